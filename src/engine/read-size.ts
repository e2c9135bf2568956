/**
 * How much is read at once from a stream of tokens. Each read costs the runtime the same, however little it brings:
 * reading every token by itself is what a stream costs most for. Tokens that come one by one are read one by one; of
 * those that come faster than a reader could tell, some are read together.
 *
 * The number of bytes is what the server will send within a few milliseconds, by its pace of just now and by that of
 * the whole stream, whichever is less: what has piled up before a busy thread says nothing of how fast more will come.
 * A thread that is behind all the time takes what has piled up together: more reads would put it further behind.
 */

/** How long a token may wait for the next ones, in milliseconds. */
const PATIENCE_MS = 3;

/** The same in an answer that nobody gets before it is whole. */
const WHOLE_PATIENCE_MS = 250;

/** The pace of just now is that of so many reads. */
const READS = 8;

const MAX_BYTES = 16 * 1024;

/** A thread whose timers are later than this is behind, in milliseconds. */
const BEHIND_MS = 10;

/** Of the lateness of one timer counts this share: a single one says little. */
const SHARE = 1 / 16;

/** What was seen so long ago says nothing any more, in milliseconds. */
const FORGET_MS = 500;

/** How late the timers of this isolate are, in milliseconds, and when the last one was seen. */
let lag = 0;
let seenAt = 0;

/** Learns that a timer of this isolate came so many milliseconds after its time. `now`: Unix milliseconds. */
export function sawLateness(ms: number, now: number): void {
  const late = Math.max(ms, 0);
  lag += (late - lag) * (late > lag ? SHARE : Math.max(SHARE, Math.min(1, (now - seenAt) / FORGET_MS)));
  seenAt = now;
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
  readonly #since: number;
  readonly #patienceMs: number;
  #total = 0;
  #pace: number;
  /** What is known to lie before a thread that is behind, in bytes. */
  #waiting = 0;
  /** The reads of just now: how many, their bytes, and since when. */
  #reads = 0;
  #bytes = 0;
  #begun: number;

  constructor({ since, asWhole = false, pace = 0 }: ReadSizeOptions) {
    this.#since = since;
    this.#patienceMs = asWhole ? WHOLE_PATIENCE_MS : PATIENCE_MS;
    this.#pace = asWhole ? pace : 0;
    this.#begun = since;
  }

  /** Bytes per millisecond; 0 while nothing is known of it. */
  get pace(): number {
    return this.#pace;
  }

  /** The least number of bytes to wait for. The first word is never waited with: it ends the silence before it. */
  get next(): number {
    if (this.#total === 0) return 1;
    return Math.max(1, Math.min(MAX_BYTES, Math.floor(Math.max(this.#pace * this.#patienceMs, this.#waiting))));
  }

  /** Learns that a read has brought so many bytes, which it waited for since `asked`. Both times in Unix milliseconds. */
  saw(bytes: number, asked: number, now: number): void {
    const waited = now - asked;
    this.#total += bytes;
    // What comes as late as timers do was there before: there may be as much again.
    if (lag < BEHIND_MS) this.#waiting = 0;
    else this.#waiting = waited <= 2 * lag ? 2 * bytes : this.#waiting / 2;
    if (waited > 2 * this.#patienceMs) {
      // The server has paused, or slowed down.
      this.#pace = Math.min(this.#pace, bytes / waited);
      this.#begin(now);
      return;
    }
    this.#reads += 1;
    this.#bytes += bytes;
    if (this.#reads < READS) return;
    this.#pace = Math.min(perMs(this.#bytes, now - this.#begun), perMs(this.#total, now - this.#since));
    this.#begin(now);
  }

  #begin(now: number): void {
    this.#reads = 0;
    this.#bytes = 0;
    this.#begun = now;
  }
}

function perMs(bytes: number, ms: number): number {
  return bytes / Math.max(1, ms);
}
