import { env } from "cloudflare:workers";
import { ApiError, type ErrorFields } from "@responses-edge/responses-api/errors";
import { isRetryable } from "./rpc.ts";
import { workerOf } from "./shares.ts";

/**
 * The other workers of this machine (docs/self-hosting.md), and the way to an object in another one's share. A connection between
 * two processes lasts as long as both. So the launcher (`cli/serve/workers.ts`) gives each worker two bindings to each other worker,
 * its sides: when another process replaces a worker, it takes the other side, and calls go there.
 */

/** A call of an object. */
interface Call {
  binding: string;
  name: string;
  method: string;
  args: unknown[];
}

/** The answer to a call. Errors of the API are transferred as values. */
export type ShareAnswer = { value: unknown } | { error: ErrorFields };

/** Another worker, as this one asks it (`src/http/share.ts`). */
export interface OtherWorker extends Fetcher {
  call(call: Call): Promise<ShareAnswer>;
  here(): Promise<void>;
}

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

/** How long a call waits for an unreachable worker, and how often it checks. Milliseconds. */
const MAX_WAIT_MS = 20_000;
const LOOK_MS = 50;

/** The workers that did not answer their last call. */
const away = new Set<number>();

/** Methods that only read, or are idempotent. They are called again if a worker died during the call. */
const REPEATABLE =
  /^(?:fetch|snapshot|awaitTurn|retrieve|inputItems|tree|finished|liveRun|read|lookUp|lookUpTenant|overrides|get|list|stored|facts)$|^conversation/;

/** This worker's number, if there are several. */
export const workerName = workers > 1 ? String(own) : undefined;

/** Sets the side on which a worker is reached from now on. */
export function setSide(worker: number, side: number): void {
  sides[worker] = side;
}

type Namespace = Pick<DurableObjectNamespace, "idFromName">;

/** The worker whose share has an object; undefined for this one. */
export function elsewhere(namespace: Namespace, name: string): number | undefined {
  if (workers === 1) return undefined;
  const worker = workerOf(String(namespace.idFromName(name)), workers);
  return worker === own ? undefined : worker;
}

/** Draws keys until one names an object of this worker's share. */
export function drawnHere(namespace: Namespace, draw: () => string, nameOf: (key: string) => string): string {
  for (;;) {
    const key = draw();
    if (elsewhere(namespace, nameOf(key)) === undefined) return key;
  }
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

/** Asks an object in another worker's share. Waits for an unreachable worker. Throws the API's error that it answers. */
export async function askWorker(worker: number, call: Call, header: readonly [string, string]): Promise<unknown> {
  const request = call.method === "fetch" ? new Request(...(call.args as [Request])) : undefined;
  for (let isAgain = false; ; isAgain = true) {
    if (away.has(worker)) await untilThere(worker);
    try {
      if (request) {
        const asked = new Request(request.clone() as Request);
        asked.headers.set(...header);
        return await reached(worker).fetch(asked as Request);
      }
      const answer = await reached(worker).call(call);
      if ("error" in answer) throw new ApiError(answer.error);
      return answer.value;
    } catch (error) {
      if (!isRetryable(error)) throw error;
      away.add(worker);
      if (isAgain || !REPEATABLE.test(call.method)) throw error;
    }
  }
}

/** Waits until a worker answers again, or until the call may fail. */
async function untilThere(worker: number): Promise<void> {
  for (const deadline = Date.now() + MAX_WAIT_MS; Date.now() < deadline; await scheduler.wait(LOOK_MS)) {
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
  return found as OtherWorker;
}

function bindingOf(name: string): Fetcher | undefined {
  return (env as unknown as Readonly<Record<string, Fetcher | undefined>>)[name];
}
