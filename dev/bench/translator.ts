import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { compatibility } from "../../cli/serve/installation.ts";
import { V8_FLAGS } from "../../cli/serve/workerd.ts";
import { freePort, untilReady, workerd } from "../../test/workerd/tools.ts";
import { GATEWAY_CORE, start, stop } from "./processes.ts";
import type { Running } from "./targets.ts";

/** Starts the Worker that only translates (`translate-worker.js`) on workerd, with the flags that `serve` gives V8. */
export async function startTranslator(upstreamPort: number): Promise<Running> {
  const folder = mkdtempSync(join(tmpdir(), "responses-edge-translator-"));
  process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
  const port = await freePort();
  const { date, flags } = compatibility();
  const script = fileURLToPath(new URL("translate-worker.js", import.meta.url));
  const file = join(folder, "workerd.capnp");
  writeFileSync(
    file,
    `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = .worker), (name = "internet", network = (allow = ["public", "private"]))],
  sockets = [(name = "http", address = "127.0.0.1:${port}", http = (), service = "main")],
  v8Flags = ${JSON.stringify(V8_FLAGS)},
);
const worker :Workerd.Worker = (
  modules = [(name = "worker.js", esModule = embed ${JSON.stringify(script)})],
  compatibilityDate = ${date},
  compatibilityFlags = ${flags},
  globalOutbound = "internet",
  bindings = [(name = "UPSTREAM_ORIGIN", text = "http://127.0.0.1:${upstreamPort}")],
);
`,
  );
  const child = start(workerd, ["serve", "--import-path=/", file], GATEWAY_CORE);
  await untilReady(child, `http://127.0.0.1:${port}/`);
  return { port, pid: child.pid ?? 0, stop: () => stop(child) };
}
