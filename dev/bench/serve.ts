import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BUNDLE_VARIABLE, bundleInto, freePort, root, untilReady } from "../../test/workerd/tools.ts";
import { adopt, childrenOf, GATEWAY_CORE, start, stop } from "./processes.ts";
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
  {
    checkout = root,
    state = mkdtempSync(join(scratch, "state-")),
    variables = {} as Record<string, string>,
    cores = GATEWAY_CORE as number | string,
  } = {},
): Promise<Served> {
  const port = await freePort();
  const child = start(process.execPath, [join(checkout, "cli/main.ts"), "serve"], cores, {
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
  const workers = workersOf(child.pid ?? 0);
  const [pid] = workers;
  if (pid === undefined) throw new Error("serve has started no workerd");
  const killed = workers.map(adopt);
  return {
    port,
    pid,
    root: child.pid ?? 0,
    state,
    /** `kill -9` of the launcher and its Workers. */
    async stop() {
      for (const kill of killed) kill();
      await stop(child);
    },
  };
}

/** The workerd processes that a launcher has started. */
function workersOf(launcher: number): number[] {
  return childrenOf(launcher).filter((pid) => readFileSync(`/proc/${pid}/comm`, "latin1").startsWith("workerd"));
}
