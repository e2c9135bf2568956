import { env } from "cloudflare:workers";
import { isRetryable, type RemoteObjects } from "./rpc.ts";

/**
 * The other workers of this machine (docs/self-hosting.md), and the way to them. A connection between two processes lasts
 * as long as both. So the launcher (`cli/serve/workers.ts`) gives each worker two bindings to each other worker, its sides:
 * when another process replaces a worker, it takes the other side, and calls go there.
 */

/** Another worker, as this one asks it (`src/http/share.ts`). */
export type OtherWorker = RemoteObjects & { here(): Promise<void> };

/** The bindings of a deployment with several workers. */
interface WorkerBindings {
  /** `2/4`: this is worker 2, counted from 0, of 4. */
  WORKER_SHARE?: string;
  /** The sides on which the others are reached first: `0,1,0,0`. */
  WORKER_SIDES?: string;
}

const { WORKER_SHARE = "0/1", WORKER_SIDES = "" } = env as WorkerBindings;
const [own = 0, workers = 1] = WORKER_SHARE.split("/").map(Number);
const sides = WORKER_SIDES.split(",").map(Number);

/** This worker's number, from 0, and how many there are. */
export const OWN_WORKER = own;
export const WORKERS = workers;

/** This worker's name, if there are several. */
export const workerName = workers > 1 ? String(own) : undefined;

/** How long a call waits for an unreachable worker, and how often it checks. Milliseconds. */
const MAX_WAIT_MS = 20_000;
const POLL_MS = 50;

/** The workers that did not answer their last call. */
const away = new Set<number>();

/** Sets the side on which a worker is reached from now on. */
export function setSide(worker: number, side: number): void {
  sides[worker] = side;
}

/** The folder with the databases of the homes of a worker; `own` is this one's. */
export function homeFilesOf(worker: number | undefined, own: Fetcher): Fetcher {
  return worker === undefined ? own : (bindingOf(`HOME_FILES_${worker}`) ?? own);
}

/** Asks all other workers concurrently. Leaves out those that do not answer. */
export async function askOthers<Other extends OtherWorker, T>(ask: (worker: Other) => Promise<T>): Promise<T[]> {
  const others = Array.from({ length: workers }, (_, worker) => worker).filter((worker) => worker !== own);
  const answers = await Promise.allSettled(others.map((worker) => ask(reached(worker) as Other)));
  return answers.flatMap((answer) => (answer.status === "fulfilled" ? [answer.value] : []));
}

/** Asks another worker. Waits for one that did not answer its last call. */
export async function atWorker<T>(worker: number, ask: (worker: OtherWorker) => Promise<T>): Promise<T> {
  if (away.has(worker)) await untilThere(worker);
  try {
    return await ask(reached(worker));
  } catch (error) {
    if (isRetryable(error)) away.add(worker);
    throw error;
  }
}

/** Waits until a worker answers again, or until the call may fail. */
async function untilThere(worker: number): Promise<void> {
  for (const deadline = Date.now() + MAX_WAIT_MS; Date.now() < deadline; await scheduler.wait(POLL_MS)) {
    try {
      await reached(worker).here();
      away.delete(worker);
      return;
    } catch {
      // Still unreachable.
    }
  }
}

function reached(worker: number): OtherWorker {
  const found = bindingOf(`WORKER_${worker}_${sides[worker] ?? 0}`);
  if (!found) throw new TypeError(`There is no worker ${worker}.`);
  return found as unknown as OtherWorker;
}

function bindingOf(name: string): Fetcher | undefined {
  return (env as unknown as Readonly<Record<string, Fetcher | undefined>>)[name];
}
