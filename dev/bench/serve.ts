import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BUNDLE_VARIABLE, freePort, root, untilReady } from "../../test/workerd/tools.ts";
import { GATEWAY_CORE, start, stop } from "./processes.ts";
import type { Running } from "./targets.ts";

/** `serve` as it ships: its own flags, transports and watching, begun by its command. CPU and memory are those of the workerd process that it starts. */

const scratch = mkdtempSync(join(tmpdir(), "responses-edge-served-"));
process.on("exit", () => rmSync(scratch, { recursive: true, force: true }));

export interface ServeOptions {
  /** The folder of the Worker's bundle. */
  bundle: string;
  upstreamPort: number;
  variables?: Record<string, string>;
}

export async function startServe({ bundle, upstreamPort, variables = {} }: ServeOptions): Promise<Running> {
  const port = await freePort();
  const child = start(process.execPath, [join(root, "cli/main.ts"), "serve"], GATEWAY_CORE, {
    stdio: ["ignore", "ignore", "inherit"],
    env: {
      ...process.env,
      PORT: String(port),
      VLLM_BASE_URL: `http://127.0.0.1:${upstreamPort}/v1`,
      ALLOW_ANONYMOUS: "true",
      STATE_DIRECTORY: mkdtempSync(join(scratch, "state-")),
      [BUNDLE_VARIABLE]: bundle,
      ...variables,
    },
  });
  await untilReady(child, `http://127.0.0.1:${port}/health`);
  const pid = workerOf(child.pid ?? 0);
  return {
    port,
    pid,
    async stop() {
      process.kill(pid, "SIGKILL");
      await stop(child);
    },
  };
}

/** The workerd process that a launcher has started. */
function workerOf(launcher: number): number {
  const children = readdirSync(`/proc/${launcher}/task`).flatMap((task) =>
    readFileSync(`/proc/${launcher}/task/${task}/children`, "latin1").trim().split(" "),
  );
  const worker = children.find(
    (pid) => pid !== "" && readFileSync(`/proc/${pid}/comm`, "latin1").startsWith("workerd"),
  );
  if (worker === undefined) throw new Error("serve has started no workerd");
  return Number(worker);
}
