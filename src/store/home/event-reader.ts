import { SSE_HEADERS, SseStream } from "@responses-edge/bounded-io/event-stream/sse-stream";
import { withoutReasoning } from "@responses-edge/responses-api/items/reasoning";
import { whenProcessEnds } from "../objects/process-state.ts";
import type { HomeRequest } from "../objects/rpc.ts";
import type { EventLogStore } from "./event-log.ts";
import type { HomeRows } from "./home-rows.ts";
import type { EventLogWriter } from "./log-writer.ts";
import type { ResponseReader } from "./response-reader.ts";
import type { RunHost } from "./run-host.ts";

/**
 * The readers of runs' event logs. A reader reads only from the log, one block at a time and no faster than its client:
 * a slow client falls back to stored events and costs no memory, and no client sees an event that is not durable.
 */

/** Most readers of one run. */
const MAX_READERS = 100;

/** The time in which a client may take what its reader has read, at the end of an object. Milliseconds. */
const STOP_MS = 3_000;

/** The time in which a reader goes on in another process. Its position is forgotten later. Milliseconds. */
const GOES_ON_MS = 60_000;

/** Counts the readers of each run, and passes them on at the end of the object. */
export class ReaderCount {
  readonly #counts = new Map<string, number>();
  /** Ends a reader, and gives the last sequence number that its client has; by the readers' names. */
  readonly #stops = new Map<string, () => Promise<number>>();
  /** The positions of readers of the object's instance in an earlier process, and until when they are kept (Unix milliseconds). */
  readonly #left = new Map<string, { after: number; until: number }>();
  #onAllTaken = () => {};
  /** Runs that were deleted while they had readers. */
  readonly #deleted = new Set<string>();

  /** Adds a reader, and gives the function that removes it; undefined if the run has as many as it may. */
  enter(turn: string): (() => void) | undefined {
    const count = this.#counts.get(turn) ?? 0;
    if (count >= MAX_READERS) return undefined;
    this.#counts.set(turn, count + 1);
    return () => {
      const left = (this.#counts.get(turn) ?? 1) - 1;
      if (left > 0) this.#counts.set(turn, left);
      else {
        this.#counts.delete(turn);
        this.#deleted.delete(turn);
      }
    };
  }

  /** Adds a reader that can be passed on; gives the function that removes it. */
  follow(reader: string, stop: () => Promise<number>): () => void {
    this.#stops.set(reader, stop);
    return () => this.#stops.delete(reader);
  }

  /**
   * Ends all readers. Gives their positions, by their names, without those whose clients take nothing; and those of readers that have not
   * gone on here yet.
   */
  async stop(): Promise<Record<string, number>> {
    const positions: Record<string, number> = {};
    const now = Date.now();
    for (const [reader, { after, until }] of this.#left) if (until > now) positions[reader] = after;
    const stopped = [...this.#stops].map(async ([reader, stop]) => {
      const after = await Promise.race([stop(), scheduler.wait(STOP_MS)]);
      if (after !== undefined) positions[reader] = after;
    });
    await Promise.all(stopped);
    return positions;
  }

  /** Takes the positions that another process gives. Resolves when all their readers have gone on, or may do so no more. */
  async restore(positions: Record<string, number>): Promise<void> {
    const until = Date.now() + GOES_ON_MS;
    for (const [reader, after] of Object.entries(positions)) this.#left.set(reader, { after, until });
    if (this.#left.size === 0) return;
    const taken = new Promise<void>((resolve) => (this.#onAllTaken = resolve));
    await Promise.race([taken, scheduler.wait(GOES_ON_MS)]);
  }

  /** The position of a reader of an earlier process, which is forgotten; undefined if it is not known. */
  takeLeft(reader: string): number | undefined {
    const left = this.#left.get(reader);
    this.#left.delete(reader);
    if (this.#left.size === 0) this.#onAllTaken();
    return left?.after;
  }

  /** Notes that a run is deleted. To be called before its log is deleted. */
  delete(turn: string): void {
    if (this.#counts.has(turn)) this.#deleted.add(turn);
  }

  /** Tells whether a run was deleted while it has readers. */
  isDeleted(turn: string): boolean {
    return this.#deleted.has(turn);
  }
}

interface ReaderOptions {
  /** The last sequence number that the client has. */
  after: number;
  /** True if deltas keep their `obfuscation`. */
  obfuscation: boolean;
  /** The operator hides reasoning, also in older logs. */
  hidesReasoning: boolean;
  heartbeatMs: number;
  waitUntil: (promise: Promise<unknown>) => void;
  /** Registers the function that ends the reader for another process; gives the function that removes it. */
  follow: (stop: () => Promise<number>) => () => void;
}

const OBFUSCATION = /,"obfuscation":"[^"]*"}$/;

/** Types that end a stream. */
const TERMINAL = new Set(["response.completed", "response.failed", "response.incomplete"]);

/** A run as its readers see it: its log, its writer as long as the run lives, and whether it was settled. */
interface ReadableRun {
  turn: string;
  log: EventLogStore;
  live: () => EventLogWriter | undefined;
  settled: () => boolean;
  deleted: () => boolean;
}

/** The parts of a home that its readers need. */
interface ReadableHome {
  rows: HomeRows;
  runs: RunHost;
  responses: ResponseReader;
  readers: ReaderCount;
}

type EventsAsked = HomeRequest & { kind: "events" } & Pick<
    ReaderOptions,
    "hidesReasoning" | "heartbeatMs" | "waitUntil"
  >;

/**
 * The log of a run as SSE. The home answers rather than the Worker, so that a client that leaves is noticed. 404 if the
 * response does not exist, 409 if it has no log, 410 if the reader to continue is unknown, 429 if it has too many readers.
 */
export function answerEvents({ rows, runs, responses, readers }: ReadableHome, asked: EventsAsked): Response {
  const { turn, reader, continues, obfuscation, hidesReasoning, heartbeatMs, waitUntil } = asked;
  if (responses.retrieve(turn) === null) return new Response(null, { status: 404 });
  const after = continues ? readers.takeLeft(reader) : asked.after;
  if (after === undefined) return new Response(null, { status: 410 });
  const { log, turns } = rows;
  if (!runs.live(turn) && !log.has(turn)) return new Response(null, { status: 409 });
  const leave = readers.enter(turn);
  if (!leave) return new Response(null, { status: 429, headers: { "retry-after": "5" } });
  const live = () => runs.live(turn)?.log;
  const settled = () => turns.response(turn) !== null;
  return streamEvents(
    { turn, log, live, settled, deleted: () => readers.isDeleted(turn) },
    {
      ...{ after, obfuscation, hidesReasoning, heartbeatMs },
      waitUntil: (promise) => waitUntil(promise.finally(leave)),
      follow: (stop) => readers.follow(reader, stop),
    },
  );
}

/** A run's events as an SSE answer. It ends with the run, or when the run is deleted. */
function streamEvents({ turn, log, live, settled, deleted }: ReadableRun, options: ReaderOptions): Response {
  let hasLeft = false;
  let leave = () => {};
  const stream = new SseStream(options.heartbeatMs, () => {
    hasLeft = true;
    leave();
  });
  const detach = live()?.attach();
  // The client continues at the next process.
  const forgetEnd = whenProcessEnds(() => {
    hasLeft = true;
    leave();
    void stream.abandon();
  });
  let { after } = options;
  const read = async (): Promise<void> => {
    while (!hasLeft) {
      if (deleted()) return stream.end();
      const block = log.next(turn, after);
      if (!block) {
        const writer = live();
        // The run died with an unfinished log. The client may reconnect and continue.
        if (!writer) return settled() ? stream.end() : stream.abandon();
        await Promise.race([writer.changed(), new Promise<void>((resolve) => (leave = resolve))]);
        continue;
      }
      let ended = false;
      for (const json of block.events) {
        const type = json.slice(9, json.indexOf('"', 9));
        const shown = options.hidesReasoning ? withoutReasoning(type, json) : json;
        if (shown !== undefined) stream.event(type, options.obfuscation ? shown : shown.replace(OBFUSCATION, "}"));
        ended = TERMINAL.has(type);
      }
      after = block.to;
      if (ended) return stream.end();
      await stream.flushed();
    }
  };
  const ended = read()
    // The log is unreadable. The client may reconnect.
    .catch(() => stream.abandon())
    .finally(() => {
      detach?.();
      forgetEnd();
      unfollow();
    });
  const unfollow = options.follow(async () => {
    hasLeft = true;
    leave();
    await ended;
    // Everything up to there is on its way when the stream has ended.
    await stream.end("");
    return after;
  });
  options.waitUntil(ended);
  return new Response(stream.readable, { headers: SSE_HEADERS });
}
