import { existsSync, readdirSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { connectionCounter } from "../serve/client-connections.ts";
import type { WorkerProcess } from "../serve/worker-process.ts";

/**
 * A process of workerd takes the place of another one (docs/self-hosting.md#reloading): the predecessor closes all
 * objects, its successor takes them over, and the predecessor ends the requests that it has, with calls to the successor
 * (`src/store/objects/ownership.ts`).
 */

/** The longest time in which runs of the predecessor may reach a point from which they can be resumed. Milliseconds. */
const MAX_SUSPEND_MS = 30_000;

/** The predecessor's time to close its objects. Milliseconds. */
const CLOSING_MS = 20_000;

/** The time in which the files of closed objects may stay open, and the interval of checks. Milliseconds. */
const FILES_MS = 2_000;
const POLL_MS = 5;

/** If the system does not show the open files of a process: it closes them well within this time. Milliseconds. */
const CLOSED_AFTER_MS = 250;

/**
 * The time in which streams may end before the predecessor stops accepting connections, because workerd then closes their
 * connections without an announcement; the interval of checks; and the time in which clients send their next requests, whose
 * answers are held until then. Milliseconds.
 */
const STREAMS_MS = 5_000;
const STREAMS_POLL_MS = 25;
const HOLD_MS = 800;

/** The interval of checks for clients, and the number of checks that must find none. Milliseconds. */
const CLIENTS_POLL_MS = 200;
const IDLE_LOOKS = 3;

/** The time in which a process without clients reports its usage. Milliseconds. */
const REPORTING_MS = 10_000;

/**
 * Starts a successor, which takes over the objects of its predecessor. Rejects if it does not start, or if either does
 * not answer: the predecessor then has its objects again. `whenClosed` is called while no process has the file of an
 * object open.
 */
export async function handOver(
  predecessor: WorkerProcess,
  start: (predecessorCloses: () => Promise<void>) => Promise<WorkerProcess>,
  timeoutMs: number,
  whenClosed: () => void,
): Promise<WorkerProcess> {
  let carried: unknown[] = [];
  let successor: WorkerProcess | undefined;
  try {
    successor = await start(async () => {
      const suspendMs = Math.min(timeoutMs, MAX_SUSPEND_MS);
      ({ carried = [] } = await predecessor.tell("close", suspendMs, suspendMs + CLOSING_MS));
      await untilClosed(predecessor.pid);
      whenClosed();
    });
    await successor.tell("take-over", carried, CLOSING_MS);
    return successor;
  } catch (error) {
    await successor?.stop(0);
    await predecessor.tell("take-over", carried, CLOSING_MS);
    throw error;
  }
}

/** Makes a predecessor accept no more connections, once no client would lose a request by it. */
export async function retire(predecessor: WorkerProcess): Promise<void> {
  const deadline = performance.now() + STREAMS_MS;
  while ((await predecessor.tell()).streams > 0 && performance.now() < deadline) await sleep(STREAMS_POLL_MS);
  await predecessor.tell("hold");
  await sleep(HOLD_MS);
  await predecessor.retire();
}

/**
 * Ends a process that accepts no more connections when its clients have gone and its usage is reported, or after `graceMs`: false if it
 * had clients then. Connections from this program's other processes are not waited for: they never end by themselves.
 */
export async function endWithClients(worker: WorkerProcess, graceMs: number): Promise<boolean> {
  const stopped = worker.stop(graceMs);
  if (graceMs === 0) return stopped;
  let isOver = false;
  void stopped.finally(() => (isOver = true));
  const connections = connectionCounter(worker);
  for (let idle = 0; !isOver && idle < IDLE_LOOKS; await sleep(CLIENTS_POLL_MS, undefined, { ref: false })) {
    idle = (await connections()) === 0 ? idle + 1 : 0;
  }
  if (isOver) return stopped;
  await Promise.race([worker.reported(), sleep(REPORTING_MS, undefined, { ref: false })]);
  await worker.stop(0);
  return true;
}

/** Waits until a process has no database of an object open. */
async function untilClosed(pid: number): Promise<void> {
  const folder = `/proc/${pid}/fd`;
  if (!existsSync(folder)) {
    await sleep(CLOSED_AFTER_MS);
    return;
  }
  for (const deadline = performance.now() + FILES_MS; performance.now() < deadline; await sleep(POLL_MS)) {
    const open = readdirSync(folder).map((descriptor) => linkOf(join(folder, descriptor)));
    if (!open.some((path) => /[0-9a-f]{64}\.sqlite$/.test(path))) return;
  }
  throw new Error("The process has not closed its objects.");
}

/** The target of a link; empty if the link does not exist any more. */
function linkOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return "";
  }
}
