import { env } from "cloudflare:workers";
import { isRetryable, type RemoteObjects } from "./rpc.ts";

/**
 * The workers of this machine (docs/self-hosting.md#several-workers), and the way to them. A connection between two processes
 * lasts as long as both. So there are several bindings to each worker, which all lead to its present process
 * (`cli/serve/workers.ts`): when a process answers that it has handed its objects over, calls go over the next one.
 */

/** Another worker, as this one asks it (`src/http/share.ts`). */
export type OtherWorker = RemoteObjects & { here(): Promise<void> };

const { WORKER_SHARE: share } = env as { WORKER_SHARE?: string };
const [own = 0, workers = 1] = (share ?? "0/1").split("/").map(Number);

/** True in a process that can hand its objects over. */
export const IS_SERVED = share !== undefined;

/** The bindings to each worker, and the number of the one in use. */
const CONNECTIONS = 8;
const connections = new Array<number>(workers).fill(0);

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

/** The answer of a process that has handed its objects over. */
export const MOVED = Symbol("moved");

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

/** Asks the present process of a worker. Waits for one that did not answer its last call. */
export async function atWorker<T>(worker: number, ask: (worker: OtherWorker) => Promise<T>): Promise<T> {
  for (;;) {
    if (away.has(worker)) await untilThere(worker);
    const connection = connections[worker] ?? 0;
    try {
      const answer = await ask(reached(worker));
      if (answer !== MOVED) return answer;
    } catch (error) {
      if (isRetryable(error)) away.add(worker);
      throw error;
    }
    // Another call may have found out, too.
    if (connections[worker] === connection) connections[worker] = (connection + 1) % CONNECTIONS;
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
  const found = bindingOf(`WORKER_${worker}_${connections[worker] ?? 0}`);
  if (!found) throw new TypeError(`There is no worker ${worker}.`);
  return found as unknown as OtherWorker;
}

function bindingOf(name: string): Fetcher | undefined {
  return (env as unknown as Readonly<Record<string, Fetcher | undefined>>)[name];
}
