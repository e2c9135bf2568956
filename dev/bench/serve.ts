import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BUNDLE_VARIABLE, freePort, root, untilReady } from "../../test/workerd/tools.ts";
import { GATEWAY_CORE, start, stop } from "./processes.ts";
import type { Running } from "./targets.ts";

/**
 * `serve` as it ships: its own flags, transports and watching, started by its command. CPU and memory are those of the
 * workerd process that it starts.
 */

const scratch = mkdtempSync(join(tmpdir(), "responses-edge-served-"));
process.on("exit", () => rmSync(scratch, { recursive: true, force: true }));

export interface ServeOptions {
  /** The folder of the Worker's bundle. */
  bundle: string;
  upstreamPort: number;
  variables?: Record<string, string>;
  /** True if it may use all cores, not only the gateway's. */
  usesAllCores?: boolean;
}

export interface Served extends Running {
  /** The workerd processes that it started. */
  pids: readonly number[];
  /** The data folder. */
  state: string;
}

export async function startServe({
  bundle,
  upstreamPort,
  variables = {},
  usesAllCores = false,
}: ServeOptions): Promise<Served> {
  const port = await freePort();
  const state = variables.STATE_DIRECTORY ?? mkdtempSync(join(scratch, "state-"));
  const core = usesAllCores ? undefined : GATEWAY_CORE;
  const child = start(process.execPath, [join(root, "cli/main.ts"), "serve"], core, {
    stdio: ["ignore", "ignore", "inherit"],
    env: {
      ...process.env,
      PORT: String(port),
      VLLM_BASE_URL: `http://127.0.0.1:${upstreamPort}/v1`,
      ALLOW_ANONYMOUS: "true",
      [BUNDLE_VARIABLE]: bundle,
      ...variables,
      STATE_DIRECTORY: state,
    },
  });
  await untilReady(child, `http://127.0.0.1:${port}/health`);
  const pids = workersOf(child.pid ?? 0);
  const [pid = 0] = pids;
  return {
    port,
    pid,
    pids,
    state,
    async stop() {
      process.kill(pid, "SIGKILL");
      await stop(child);
    },
  };
}

/** The workerd processes that a launcher has started. */
function workersOf(launcher: number): number[] {
  const children = readdirSync(`/proc/${launcher}/task`).flatMap((task) =>
    readFileSync(`/proc/${launcher}/task/${task}/children`, "latin1").trim().split(" "),
  );
  const workers = children.filter(
    (pid) => pid !== "" && readFileSync(`/proc/${pid}/comm`, "latin1").startsWith("workerd"),
  );
  if (workers.length === 0) throw new Error("serve has started no workerd");
  return workers.map(Number);
}
