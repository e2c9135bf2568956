import { SSE_HEADERS, SseStream } from "@responses-edge/bounded-io/event-stream/sse-stream";
import { withoutReasoning } from "@responses-edge/responses-api/items/reasoning";
import { whenProcessEnds } from "../objects/process-state.ts";
import type { EventLogStore } from "./event-log.ts";
import type { EventLogWriter } from "./log-writer.ts";

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
  settled: () => boolean;
  deleted: () => boolean;
}

/** A run's events as an SSE answer. It ends with the run, or when the run is deleted. */
export function streamEvents({ turn, log, live, settled, deleted }: ReadableRun, options: ReaderOptions): Response {
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
  const read = async (): Promise<void> => {
    let after = options.after;
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
    });
  options.waitUntil(ended);
  return new Response(stream.readable, { headers: SSE_HEADERS });
}
