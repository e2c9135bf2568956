import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BUNDLE_VARIABLE, freePort, root, untilReady } from "../../test/workerd/tools.ts";
import { adopt, childrenOf, GATEWAY_CORE, start, stop } from "./processes.ts";
import type { Running } from "./targets.ts";

/**
 * `serve` as it ships: the command of the package that `npm run package` makes, with its own flags, transports and defaults. CPU and
 * memory are those of the workerd process that it starts.
 */

const scratch = mkdtempSync(join(tmpdir(), "responses-edge-served-"));
process.on("exit", () => rmSync(scratch, { recursive: true, force: true }));

/** The commands of the packages, by checkout. */
const commands = new Map<string, string>();

/** Packages a checkout once, beside the packages that it has installed, and gives the path of the package's command. */
function commandOf(checkout: string): string {
  let command = commands.get(checkout);
  if (command === undefined) {
    execFileSync(process.execPath, ["scripts/package.ts"], { cwd: checkout, stdio: ["ignore", "ignore", "inherit"] });
    const place = mkdtempSync(join(scratch, "installed-"));
    const folder = join(place, "responses-edge");
    // A running command would notice that its own folder is made anew, and start that version.
    cpSync(join(checkout, "dist/package"), folder, { recursive: true });
    symlinkSync(join(checkout, "node_modules"), join(place, "node_modules"));
    command = join(folder, "responses-edge.js");
    commands.set(checkout, command);
  }
  return command;
}

export interface Served extends Running {
  /** The data folder. */
  state: string;
}

/**
 * Starts `serve` of the package of a checkout, which must have its packages installed, and waits until it is healthy. `state`: its
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
  const child = start(process.execPath, [commandOf(checkout), "serve"], cores, {
    stdio: ["ignore", "ignore", "inherit"],
    env: {
      ...process.env,
      PORT: String(port),
      VLLM_BASE_URL: `http://127.0.0.1:${upstreamPort}/v1`,
      ALLOW_ANONYMOUS: "true",
      // A package serves the bundle that it has.
      [BUNDLE_VARIABLE]: undefined,
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
