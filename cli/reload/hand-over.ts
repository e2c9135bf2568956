import { existsSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { link, type WorkerProcess } from "../serve/worker-process.ts";
import { OTHER } from "../serve/workerd.ts";

/**
 * A process of workerd takes the place of another one while both serve (docs/self-hosting.md). The predecessor gives up
 * every idle object; then its successor starts, and accepts connections beside it. The predecessor ends the work that
 * it has begun, with the objects that this needs, and forwards everything else. Two processes never run one object at a
 * time (`src/store/objects/ownership.ts`).
 */

/** The predecessor's time to give up its idle objects. Milliseconds. */
const GIVING_MS = 10_000;

/** The time in which the files of given-up objects may stay open, and the interval of checks. Milliseconds. */
const CLOSING_MS = 2_000;
const LOOK_MS = 5;

/** If the system does not show the open files of a process: it closes them well within this time. Milliseconds. */
const CLOSED_AFTER_MS = 250;

/** The time in which a predecessor closes its sockets and readers, also after its timeout. Milliseconds. */
const LEAST_MS = 2_000;

/**
 * The time in which the predecessor holds answers back before it stops accepting connections. workerd closes idle
 * connections, and loses a request that a client sends at that moment; it closes a connection that waits for an answer
 * after this answer. Milliseconds.
 */
const HOLD_MS = 600;

/** The number of checks that must find no connection, after the predecessor was told to accept none. */
const IDLE_LOOKS = 3;

/** The interval at which the predecessor is asked which objects it has given up. Milliseconds. */
const RELEASE_LOOK_MS = 200;

/**
 * Starts a successor of a process and lets it serve. Rejects if it does not start, or if either does not answer: the
 * predecessor then goes on alone. Gives the successor, a promise that resolves when the predecessor has ended, and a
 * function that leaves it less time. `whenGiven` is called while no process has any file of an object open but those
 * that the predecessor keeps: it gets their names.
 */
export async function handOver(
  predecessor: WorkerProcess,
  start: (predecessorGives: () => Promise<void>) => Promise<WorkerProcess>,
  timeoutMs: number,
  whenGiven: (kept: ReadonlySet<string>) => void = () => {},
): Promise<{ successor: WorkerProcess; retired: Promise<boolean>; endWithin(ms: number): void }> {
  let keeps: { key: string; file: string }[] = [];
  let successor: WorkerProcess | undefined;
  try {
    successor = await start(async () => {
      ({ keeps = [] } = await predecessor.tell("give", null, GIVING_MS));
      const kept = new Set(keeps.map(({ file }) => `${file}.sqlite`));
      await untilClosed(predecessor.pid, kept);
      whenGiven(kept);
    });
    // Each process finds the other one's sockets by this link.
    link(predecessor.folder, join(successor.folder, OTHER));
    link(successor.folder, join(predecessor.folder, OTHER));
    await successor.tell(
      "succeed",
      keeps.map(({ key }) => key),
    );
    await predecessor.tell("succeeded");
    const time = { end: performance.now() + timeoutMs };
    const endWithin = (ms: number) => {
      time.end = Math.min(time.end, performance.now() + ms);
    };
    return { successor, retired: retire(predecessor, successor, time), endWithin };
  } catch (error) {
    await successor?.stop(0);
    await predecessor.tell("take-back");
    throw error;
  }
}

/**
 * Ends a predecessor when its work has ended, or its time is up. Resolves when the process has ended: with false if
 * work was cut off.
 */
async function retire(
  predecessor: WorkerProcess,
  successor: WorkerProcess,
  time: Readonly<{ end: number }>,
): Promise<boolean> {
  let hasEnded = false;
  void predecessor.ended.finally(() => (hasEnded = true)).catch(() => {});
  let rung: string[] = [];
  let left = 1;
  try {
    while (left > 0 && !hasEnded && performance.now() < time.end) {
      await sleep(RELEASE_LOOK_MS, undefined, { ref: false });
      const state = await predecessor.tell();
      if (state.released?.length) await successor.tell("adopt", state.released);
      rung = state.rung ?? rung;
      left = state.turns + (state.kept ?? 0);
    }
  } catch {
    // The predecessor does not answer: it has ended, or will be ended below.
  }
  const isWhole = await end(predecessor, successor.port, Math.max(LEAST_MS, time.end - performance.now()));
  await successor.tell("adopt-rest", rung).catch(() => {});
  return isWhole && left === 0;
}

/**
 * Ends a process that has no turns and no objects left. It accepts no more connections, and answers the requests that
 * it forwards.
 */
async function end(predecessor: WorkerProcess, port: number, graceMs: number): Promise<boolean> {
  await predecessor.tell("hold", HOLD_MS).catch(() => {});
  await sleep(HOLD_MS / 2);
  return stopWhenIdle(predecessor, port, graceMs);
}

/**
 * Ends a process as `WorkerProcess.stop` does, but does not wait for connections from this program's other processes.
 * They have called its objects over these connections, which never end by themselves.
 */
export async function stopWhenIdle(worker: WorkerProcess, port: number, graceMs: number): Promise<boolean> {
  const stopped = worker.stop(graceMs);
  if (graceMs === 0) return stopped;
  let isOver = false;
  void stopped.finally(() => (isOver = true));
  for (let idle = 0; !isOver && idle < IDLE_LOOKS; await sleep(RELEASE_LOOK_MS, undefined, { ref: false })) {
    idle = openConnections(worker.pid, port) === 0 ? idle + 1 : 0;
  }
  if (isOver) return stopped;
  await worker.stop(0);
  return true;
}

/** Waits until a process has only the given databases of objects open. */
async function untilClosed(pid: number, files: ReadonlySet<string>): Promise<void> {
  const folder = `/proc/${pid}/fd`;
  if (!existsSync(folder)) {
    await sleep(CLOSED_AFTER_MS);
    return;
  }
  for (const deadline = performance.now() + CLOSING_MS; performance.now() < deadline; await sleep(LOOK_MS)) {
    if (!openDatabases(folder).some((name) => !files.has(name))) return;
  }
  throw new Error("The process has not closed the files that it gave up.");
}

/** The names of the object databases that a process has open. */
function openDatabases(folder: string): string[] {
  const paths = readdirSync(folder).map((descriptor) => linkOf(join(folder, descriptor)));
  return paths.flatMap((path) => /[0-9a-f]{64}\.sqlite$/.exec(path) ?? []);
}

/** The number of clients' connections of a process on a port; undefined if the system does not show it. */
function openConnections(pid: number, port: number): number | undefined {
  try {
    const folder = `/proc/${pid}/fd`;
    const own = new Set(readdirSync(folder).map((descriptor) => linkOf(join(folder, descriptor))));
    const lines = ["tcp", "tcp6"].flatMap((name) => readFileSync(`/proc/${pid}/net/${name}`, "latin1").split("\n"));
    const local = `:${port.toString(16).toUpperCase().padStart(4, "0")}`;
    return lines.filter((line) => {
      const [, address = "", , state, , , , , , inode] = line.trim().split(/\s+/);
      return address.endsWith(local) && state !== LISTENS && own.has(`socket:[${inode}]`);
    }).length;
  } catch {
    return undefined;
  }
}

/** The state of a socket, as Linux writes it. */
const LISTENS = "0A";

/** The target of a link; empty if the link does not exist any more. */
function linkOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return "";
  }
}
