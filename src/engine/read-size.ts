/**
 * How much is read at once from a stream of tokens. Each read costs the runtime the same, however little it brings:
 * reading every token by itself is what a stream costs most for. Tokens that come one by one are read one by one; of
 * those that come faster than a reader could tell, some are read together.
 *
 * The number of bytes is what the server will send within a few milliseconds, by its pace of just now and by that of
 * the whole stream, whichever is less: what has piled up before a busy thread says nothing of how fast more will come.
 */

/** How long a token may wait for the next ones, in milliseconds, while the thread has time for each. */
const PATIENCE_MS = 3;

/** How long it may when the thread is behind, at most: more reads would only put it further behind. */
const MAX_LAG_MS = 50;

/** The pace of just now is that of so many reads. */
const READS = 8;

/** How long the tokens of an answer that nobody gets before it is whole may wait, in milliseconds. */
const WHOLE_PATIENCE_MS = 250;

const MAX_BYTES = 16 * 1024;

/** How late the timers of this isolate have been of late, in milliseconds. */
let lag = 0;

/** Learns that a timer of this isolate came so many milliseconds after its time. */
export function sawLateness(ms: number): void {
  const late = Math.min(Math.max(ms, 0), MAX_LAG_MS);
  lag = late > lag ? late : lag + (late - lag) / 8;
}

export interface ReadSizeOptions {
  /** When the stream was asked for, in Unix milliseconds. */
  since: number;
  /** Nobody gets any of it before it is whole. */
  asWhole?: boolean | undefined;
  /** What the server's streams came at before, in bytes per millisecond: of use where it may wait. */
  pace?: number | undefined;
}

export class ReadSize {
  readonly #options: ReadSizeOptions;
  #total = 0;
  #pace: number;
  /** When the last read ended. */
  #last: number;
  /** The reads of just now: how many, their bytes, and since when. */
  #reads = 0;
  #bytes = 0;
  #begun: number;

  constructor(options: ReadSizeOptions) {
    this.#options = options;
    this.#pace = (options.asWhole && options.pace) || 0;
    this.#last = options.since;
    this.#begun = options.since;
  }

  /** Bytes per millisecond; 0 while nothing is known of it. */
  get pace(): number {
    return this.#pace;
  }

  /** The least number of bytes to wait for. The first word is never waited with: it ends the silence before it. */
  get next(): number {
    if (this.#total === 0) return 1;
    return Math.max(1, Math.min(MAX_BYTES, Math.floor(this.#pace * this.#patience)));
  }

  /** Learns that a read has brought so many bytes. `now`: Unix milliseconds. */
  saw(bytes: number, now: number): void {
    const waited = now - this.#last;
    this.#last = now;
    this.#total += bytes;
    if (waited > 2 * this.#patience) {
      // The server has paused, or slowed down.
      this.#pace = Math.min(this.#pace, bytes / waited);
      this.#begin(now);
      return;
    }
    this.#reads += 1;
    this.#bytes += bytes;
    if (this.#reads < READS) return;
    const elapsed = Math.max(1, now - this.#begun);
    const whole = Math.max(1, now - this.#options.since);
    this.#pace = Math.min(this.#bytes / elapsed, this.#total / whole);
    this.#begin(now);
  }

  get #patience(): number {
    return (this.#options.asWhole ? WHOLE_PATIENCE_MS : PATIENCE_MS) + lag;
  }

  #begin(now: number): void {
    this.#reads = 0;
    this.#bytes = 0;
    this.#begun = now;
  }
}
