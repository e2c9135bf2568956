import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BUNDLE_VARIABLE, bundleInto, freePort, root, untilReady } from "../../test/workerd/tools.ts";
import { adopt, GATEWAY_CORE, start, stop } from "./processes.ts";
import type { Running } from "./targets.ts";

/**
 * `serve` as it ships: started by its command, with its own flags, transports and defaults. CPU and memory are those of
 * the workerd process that it starts.
 */

const scratch = mkdtempSync(join(tmpdir(), "responses-edge-served-"));
process.on("exit", () => rmSync(scratch, { recursive: true, force: true }));

/** The folders of the bundles, by checkout. */
const bundles = new Map<string, string>();

/** Bundles the Worker of a checkout once. */
function bundleOf(checkout: string): string {
  let folder = bundles.get(checkout);
  if (folder === undefined) {
    folder = mkdtempSync(join(scratch, "bundle-"));
    bundleInto(folder, checkout);
    bundles.set(checkout, folder);
  }
  return folder;
}

export interface Served extends Running {
  /** The data folder. */
  state: string;
}

/**
 * Starts the `serve` of a checkout, which must have its packages installed, and waits until it is healthy. `state`: its
 * data folder; a new one without.
 */
export async function startServe(
  upstreamPort: number,
  { checkout = root, state = mkdtempSync(join(scratch, "state-")), variables = {} as Record<string, string> } = {},
): Promise<Served> {
  const port = await freePort();
  const child = start(process.execPath, [join(checkout, "cli/main.ts"), "serve"], GATEWAY_CORE, {
    stdio: ["ignore", "ignore", "inherit"],
    env: {
      ...process.env,
      PORT: String(port),
      VLLM_BASE_URL: `http://127.0.0.1:${upstreamPort}/v1`,
      ALLOW_ANONYMOUS: "true",
      [BUNDLE_VARIABLE]: bundleOf(checkout),
      ...variables,
      STATE_DIRECTORY: state,
    },
  });
  await untilReady(child, `http://127.0.0.1:${port}/health`);
  const pid = workerOf(child.pid ?? 0);
  const killWorker = adopt(pid);
  return {
    port,
    pid,
    state,
    /** `kill -9` of the launcher and its Worker. */
    async stop() {
      killWorker();
      await stop(child);
    },
  };
}

/** The workerd process that a launcher has started. */
function workerOf(launcher: number): number {
  const children = readdirSync(`/proc/${launcher}/task`).flatMap((task) =>
    readFileSync(`/proc/${launcher}/task/${task}/children`, "latin1").trim().split(" "),
  );
  const isWorker = (pid: string) => pid !== "" && readFileSync(`/proc/${pid}/comm`, "latin1").startsWith("workerd");
  const worker = children.find(isWorker);
  if (worker === undefined) throw new Error("serve has started no workerd");
  return Number(worker);
}
