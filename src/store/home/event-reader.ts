import { SSE_HEADERS, SseStream } from "@responses-edge/bounded-io/event-stream/sse-stream";
import { withoutReasoning } from "@responses-edge/responses-api/items/reasoning";
import { whenProcessEnds } from "../objects/process-state.ts";
import type { HomeRequest } from "../objects/rpc.ts";
import type { EventLogStore } from "./event-log.ts";
import type { HomeRows } from "./home-rows.ts";
import type { EventLogWriter } from "./log-writer.ts";
import type { ResponseReader } from "./response-reader.ts";
import type { RunHost } from "./run-host.ts";
import { type StoredResponse, timingOf } from "./stored-response.ts";

/**
 * The readers of runs' event logs. A reader reads only from the log, one block at a time and no faster than its client:
 * a slow client falls back to stored events and costs no memory, and no client sees an event that is not durable.
 */

/** Most readers of one run. */
const MAX_READERS = 100;

/** Counts the readers of each run. */
export class ReaderCount {
  readonly #counts = new Map<string, number>();
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
  /** True if the terminal event has the response's times. */
  timing: boolean;
  /** The operator hides reasoning, also in older logs. */
  hidesReasoning: boolean;
  heartbeatMs: number;
  waitUntil: (promise: Promise<unknown>) => void;
}

const OBFUSCATION = /,"obfuscation":"[^"]*"}$/;

/** Types that end a stream. */
const TERMINAL = new Set(["response.completed", "response.failed", "response.incomplete"]);

/** A run as its readers see it: its log, its writer as long as the run lives, and whether it was settled. */
interface ReadableRun {
  turn: string;
  log: EventLogStore;
  live: () => EventLogWriter | undefined;
  settled: () => StoredResponse | null;
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
 * response does not exist, 409 if it has no log, 429 if it has too many readers.
 */
export function answerEvents({ rows, runs, responses, readers }: ReadableHome, asked: EventsAsked): Response {
  const { turn, after, obfuscation, timing, hidesReasoning, heartbeatMs, waitUntil } = asked;
  if (responses.retrieve(turn) === null) return new Response(null, { status: 404 });
  const { log, turns } = rows;
  if (!runs.live(turn) && !log.has(turn)) return new Response(null, { status: 409 });
  const leave = readers.enter(turn);
  if (!leave) return new Response(null, { status: 429, headers: { "retry-after": "5" } });
  const live = () => runs.live(turn)?.log;
  const settled = () => turns.response(turn);
  return streamEvents(
    { turn, log, live, settled, deleted: () => readers.isDeleted(turn) },
    {
      ...{ after, obfuscation, timing, hidesReasoning, heartbeatMs },
      waitUntil: (promise) => waitUntil(promise.finally(leave)),
    },
  );
}

/** A terminal event with the response's times, unless it has them already. */
function withTiming(event: string, response: StoredResponse | null): string {
  if (!response || event.includes(',"timing":{"accepted_at":')) return event;
  return `${event.slice(0, -2)},"timing":${timingOf(response)}}}`;
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
        // The run died with an unfinished log.
        if (!writer) return settled() ? stream.end() : stream.abandon();
        await Promise.race([writer.changed(), new Promise<void>((resolve) => (leave = resolve))]);
        continue;
      }
      let ended = false;
      for (const json of block.events) {
        const type = json.slice(9, json.indexOf('"', 9));
        ended = TERMINAL.has(type);
        const told = ended && options.timing ? withTiming(json, settled()) : json;
        const shown = options.hidesReasoning ? withoutReasoning(type, told) : told;
        if (shown !== undefined) stream.event(type, options.obfuscation ? shown : shown.replace(OBFUSCATION, "}"));
      }
      after = block.to;
      if (ended) return stream.end();
      await stream.flushed();
    }
  };
  const ended = read()
    // The log is unreadable.
    .catch(() => stream.abandon())
    .finally(() => {
      detach?.();
      forgetEnd();
    });
  options.waitUntil(ended);
  return new Response(stream.readable, { headers: SSE_HEADERS });
}
