import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { compatibility } from "../../cli/serve/installation.ts";
import { V8_FLAGS } from "../../cli/serve/workerd.ts";
import { freePort, untilReady, workerd } from "../../test/workerd/tools.ts";
import { GATEWAY_CORE, start, stop } from "./processes.ts";
import type { Running } from "./targets.ts";

/** A Worker to compare with: `translate-worker.js` or `minimum-worker.js`. */
export type ComparedWorker = "translate" | "minimum";

const MODULES: Record<ComparedWorker, readonly string[]> = {
  translate: ["translate-worker.js"],
  minimum: ["minimum-worker.js", "translate-worker.js"],
};

/** Starts a Worker to compare with on workerd, with the flags that `serve` gives V8. */
export async function startComparedWorker(worker: ComparedWorker, upstreamPort: number): Promise<Running> {
  const folder = mkdtempSync(join(tmpdir(), "responses-edge-compared-"));
  process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
  const storage = join(folder, "storage");
  mkdirSync(storage);
  const port = await freePort();
  const { date, flags } = compatibility();
  const modules = MODULES[worker].map((name) => {
    const file = fileURLToPath(new URL(name, import.meta.url));
    return `(name = "${name}", esModule = embed ${JSON.stringify(file)})`;
  });
  const bindings = [`(name = "UPSTREAM_ORIGIN", text = "http://127.0.0.1:${upstreamPort}")`];
  let objects = "";
  if (worker === "minimum") {
    bindings.push('(name = "HOME", durableObjectNamespace = "Home")');
    objects = `durableObjectNamespaces = [(className = "Home", uniqueKey = "home", enableSql = true)],
  durableObjectStorage = (localDisk = "disk"),`;
  }
  const file = join(folder, "workerd.capnp");
  writeFileSync(
    file,
    `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = .worker),
    (name = "internet", network = (allow = ["public", "private"])),
    (name = "disk", disk = (path = ${JSON.stringify(storage)}, writable = true)),
  ],
  sockets = [(name = "http", address = "127.0.0.1:${port}", http = (), service = "main")],
  v8Flags = ${JSON.stringify(V8_FLAGS)},
);
const worker :Workerd.Worker = (
  modules = [${modules.join(", ")}],
  compatibilityDate = ${date},
  compatibilityFlags = ${flags},
  globalOutbound = "internet",
  bindings = [${bindings.join(", ")}],
  ${objects}
);
`,
  );
  const child = start(workerd, ["serve", "--import-path=/", file], GATEWAY_CORE);
  await untilReady(child, `http://127.0.0.1:${port}/`);
  return { port, pid: child.pid ?? 0, stop: () => stop(child) };
}
