import { existsSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { link, type WorkerProcess } from "./worker-process.ts";
import { OTHER } from "./workerd.ts";

/**
 * A process of workerd takes the place of another one while both are asked (docs/upgrades.md). The predecessor gives up every object in
 * which nothing is under way; then its successor starts, and accepts connections beside it. The predecessor ends the work that it has
 * begun, with the objects that this needs, and passes everything else on. Two processes never run one object at a time
 * (`src/store/ownership.ts`).
 */

/** How long the predecessor may take to give up what it can. Milliseconds. */
const GIVING_MS = 10_000;

/** How long the files of what it has given up may stay open, and how often that is looked at. Milliseconds. */
const CLOSING_MS = 2_000;
const LOOK_MS = 5;

/** Where the system does not tell which files a process has open: it closes them well within that. Milliseconds. */
const CLOSED_AFTER_MS = 250;

/** Where its time is up, it tells its clients so: sockets and readers are closed. Milliseconds. */
const LEAST_MS = 2_000;

/**
 * Before it accepts nothing more, it keeps answers back for so long. workerd closes connections on which nothing is under way, and a request
 * that a client sends at that moment is lost; those that wait for an answer it closes after that. Milliseconds.
 */
const HOLD_MS = 600;

/** So often in a row it is seen to have no connection, when it has been told to accept none. */
const IDLE_LOOKS = 3;

/** How often the predecessor is asked what it has given up. Milliseconds. */
const RELEASE_LOOK_MS = 200;

/**
 * Starts a successor of a process and has it serve. Rejects where it does not start: the predecessor then goes on as if nothing had
 * been. Gives the successor, and what resolves when the predecessor has ended.
 */
export async function handOver(
  predecessor: WorkerProcess,
  start: (predecessorGives: () => Promise<void>) => Promise<WorkerProcess>,
  timeoutMs: number,
): Promise<{ successor: WorkerProcess; retired: Promise<boolean> }> {
  let keeps: { key: string; file: string }[] = [];
  try {
    const successor = await start(async () => {
      ({ keeps = [] } = await predecessor.tell("give", null, GIVING_MS));
      await untilClosed(predecessor.pid, new Set(keeps.map(({ file }) => `${file}.sqlite`)));
    });
    // Each finds the sockets of the other one.
    link(predecessor.folder, join(successor.folder, OTHER));
    link(successor.folder, join(predecessor.folder, OTHER));
    await successor.tell(
      "succeed",
      keeps.map(({ key }) => key),
    );
    await predecessor.tell("succeeded");
    return { successor, retired: retire(predecessor, successor, timeoutMs) };
  } catch (error) {
    await predecessor.tell("take-back");
    throw error;
  }
}

/** Ends a predecessor when nothing is under way in it, or its time is up. Resolves when it has ended: false if something was cut off. */
async function retire(predecessor: WorkerProcess, successor: WorkerProcess, timeoutMs: number): Promise<boolean> {
  const deadline = performance.now() + timeoutMs;
  let hasEnded = false;
  void predecessor.ended.finally(() => (hasEnded = true)).catch(() => {});
  let rung: string[] = [];
  let left = 1;
  try {
    while (left > 0 && !hasEnded && performance.now() < deadline) {
      await sleep(RELEASE_LOOK_MS, undefined, { ref: false });
      const state = await predecessor.tell();
      if (state.released?.length) await successor.tell("adopt", state.released);
      rung = state.rung ?? rung;
      left = state.turns + (state.kept ?? 0);
    }
  } catch {
    // It does not answer: it has ended, or is about to be.
  }
  const isWhole = await end(predecessor, successor.port, Math.max(LEAST_MS, deadline - performance.now()));
  await successor.tell("adopt-rest", rung).catch(() => {});
  return isWhole && left === 0;
}

/** Ends a process in which no turn and no object is left: it accepts nothing any more, and answers what it passes on. */
async function end(predecessor: WorkerProcess, port: number, graceMs: number): Promise<boolean> {
  await predecessor.tell("hold", HOLD_MS).catch(() => {});
  await sleep(HOLD_MS / 2);
  return stopWhenIdle(predecessor, port, graceMs);
}

/**
 * Ends a process as `WorkerProcess.stop` does, and does not wait for connections of other processes of this program, by which they have asked for its
 * objects: these never end by themselves.
 */
export async function stopWhenIdle(worker: WorkerProcess, port: number, graceMs: number): Promise<boolean> {
  const stopped = worker.stop(graceMs);
  let isOver = false;
  void stopped.finally(() => (isOver = true));
  for (let idle = 0; !isOver && idle < IDLE_LOOKS; await sleep(RELEASE_LOOK_MS, undefined, { ref: false })) {
    idle = openConnections(worker.pid, port) === 0 ? idle + 1 : 0;
  }
  if (isOver) return stopped;
  await worker.stop(0);
  return true;
}

/** Waits until a process has no databases of objects open but some. */
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

/** The names of the databases of objects that a process has open. */
function openDatabases(folder: string): string[] {
  const paths = readdirSync(folder).map((descriptor) => linkOf(join(folder, descriptor)));
  return paths.flatMap((path) => /[0-9a-f]{64}\.sqlite$/.exec(path) ?? []);
}

/** How many connections of clients a process has open on a port; undefined where the system does not tell. */
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

/** A socket's state, as Linux writes it. */
const LISTENS = "0A";

/** The target of a link; empty if the link is gone. */
function linkOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return "";
  }
}
