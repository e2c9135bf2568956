/** The bytes of a model server, as they arrive. */
export interface ByteReader {
  /**
   * The next bytes; none at the end of the body. They are valid until the next read. Rejects when the connection breaks.
   * One read at a time, and none after the end.
   */
  read(): Promise<Uint8Array>;
  /** Gives up the body: a waiting read ends. */
  cancel(): void;
}

/** A read of one token takes a few hundred bytes, and every open stream keeps a buffer. */
export const BUFFER_BYTES = 4096;

/** A read at the end gives this. */
export const NO_BYTES = new Uint8Array();

/** An answer to a request: a `Response`, or the part of one that is needed (`socketFetch`). */
export interface HttpAnswer {
  readonly status: number;
  /** The status is of the 200s. */
  readonly ok: boolean;
  readonly headers: { get(name: string): string | null };
  readonly body: ReadableStream<Uint8Array> | null;
  /** Reads the body, if it is a stream only on demand: then `body` stays unused. */
  readonly reader?: ByteReader | undefined;
}

/** A body as a stream. */
export function streamOf(reader: ByteReader): ReadableStream<Uint8Array> {
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const bytes = await reader.read();
        if (bytes.length > 0) controller.enqueue(bytes.slice());
        else controller.close();
      },
      cancel: () => reader.cancel(),
    },
    { highWaterMark: 0 },
  );
}

/**
 * The reader of an answer's body: its own if it has one; undefined without a body. A body that the runtime streams itself is read into one
 * buffer; a stream of JavaScript's is read unchanged.
 *
 * @param unwatchedSince When the body was asked for, if nobody sees it before its end: its bytes gather (`UnwatchedReader`).
 * Unix milliseconds.
 */
export function readerOf(answer: Pick<HttpAnswer, "body" | "reader">, unwatchedSince?: number): ByteReader | undefined {
  if (answer.reader) return answer.reader;
  const { body } = answer;
  if (!body) return undefined;
  let reader: ReadableStreamBYOBReader;
  try {
    reader = body.getReader({ mode: "byob" });
  } catch {
    return new PieceReader(body.getReader());
  }
  return unwatchedSince === undefined ? new BufferReader(body, reader) : new UnwatchedReader(reader, unwatchedSince);
}

/**
 * The lag of this thread, by the lateness of its timers. An overloaded thread reads less often, and then more at a
 * time, because bytes gather meanwhile. So its streams are late by some milliseconds, where each of them would
 * otherwise get a part of its tokens.
 */

/**
 * A timer's lateness counts by the time since the previous one, up to a limit: several that fire together after a
 * standstill show one lag, and a single one shows little. Milliseconds.
 */
const LAG_TIME_MS = 200;
const MAX_TOLD_MS = 50;

/** A timer that fires later than this shows a changed clock, or a machine that slept. Milliseconds. */
const MAX_LATE_MS = 1_000;

/** The time for which a lag counts after the last timer that showed it. Milliseconds. */
const KNOWN_MS = 2_000;

/** A smaller lag does not count. Otherwise a thread pauses for twice the lag, up to a limit. Milliseconds. */
const LAG_MS = 4;
const PAUSE_PER_LAG = 2;
const MAX_PAUSE_MS = 100;

/**
 * A pause that helps removes the lag that caused it. So it shortens slowly, by two thirds in this time: if it ended
 * at once, the next standstill would follow. Milliseconds.
 */
const FADE_MS = 4_000;

let lagMs = 0;
let pauseMs = 0;
let toldAt = 0;

/** `setTimeout`, for a timer that measures the lag. */
export function setTellingTimeout(ring: () => void, ms: number): ReturnType<typeof setTimeout> {
  const dueAt = Date.now() + ms;
  return setTimeout(() => {
    tell(Date.now(), dueAt);
    ring();
  }, ms);
}

function tell(now: number, dueAt: number): void {
  const sinceMs = Math.max(0, now - toldAt);
  toldAt = now;
  const lateMs = Math.min(MAX_LATE_MS, Math.max(0, now - dueAt));
  lagMs += (lateMs - lagMs) * (1 - Math.exp(-Math.min(sinceMs, MAX_TOLD_MS) / LAG_TIME_MS));
  const neededMs = lagMs <= LAG_MS ? 0 : Math.min(MAX_PAUSE_MS, PAUSE_PER_LAG * lagMs);
  pauseMs = Math.max(neededMs, pauseMs * Math.exp(-sinceMs / FADE_MS));
}

/** A read that completes within this time did not have to wait. Milliseconds. */
const QUICK_MS = 2;

/** A read of more bytes than this is worth its cost. */
const LARGE_BYTES = BUFFER_BYTES / 2;

/** The number of reads in a row that show a stream's pace. */
const MANY_READS = 8;

/** The weight of a new interval between two reads in their average. */
const WEIGHT = 1 / 4;

/** The pace of a stream's reads: whether they bring so few bytes, so often, that gathering for a while is better. */
export class ReadPace {
  /** Small reads follow each other. */
  isSmall = false;
  /** The number of last reads in a row that were not worth their cost. */
  #small = 0;
  #lastAt = Date.now();
  /** Between two reads. Milliseconds. */
  #everyMs = 0;

  /** A read has brought this many bytes; `wasGathered`: only because it was delayed. */
  note(bytes: number, wasGathered: boolean, now: number): void {
    this.#small = wasGathered || bytes < LARGE_BYTES ? this.#small + 1 : 0;
    this.isSmall = this.#small >= MANY_READS;
    if (!wasGathered) this.#everyMs += (now - this.#lastAt - this.#everyMs) * WEIGHT;
    this.#lastAt = now;
  }

  /** The pause of the stream because the thread lags. Milliseconds; 0: no lag, or nothing to gather. */
  lagPauseMs(): number {
    const isBehind = this.isSmall && Date.now() - toldAt <= KNOWN_MS;
    return isBehind && pauseMs > this.#everyMs ? pauseMs : 0;
  }
}

/** The time in which bytes gather while the server is ahead: reads do not wait. Milliseconds. */
const GATHER_MS = 3;

/**
 * A fetch body gives at most one HTTP chunk per read, and vLLM sends one per token. A read, and the write after it,
 * cost the same for any number of bytes. If the server is ahead, or the thread lags, bytes gather for some
 * milliseconds, and one read takes them. Single bytes are read as they arrive.
 */
class BufferReader implements ByteReader {
  readonly #body: ReadableStream<Uint8Array>;
  #reader: ReadableStreamBYOBReader;
  #buffer: ArrayBufferLike = new ArrayBuffer(BUFFER_BYTES);
  #ahead: ReadAhead | undefined;
  readonly #pace = new ReadPace();
  /** The number of last reads in a row that did not have to wait. */
  #quick = 0;

  constructor(body: ReadableStream<Uint8Array>, reader: ReadableStreamBYOBReader) {
    this.#body = body;
    this.#reader = reader;
  }

  async read(): Promise<Uint8Array> {
    const isAhead = this.#pace.isSmall && this.#quick >= MANY_READS;
    const gatherMs = this.#pace.lagPauseMs() || (isAhead ? GATHER_MS : 0);
    if (gatherMs > 0) {
      if (!this.#ahead) {
        this.#reader.releaseLock();
        const [own, other] = this.#body.tee();
        this.#reader = own.getReader({ mode: "byob" });
        this.#ahead = new ReadAhead(other);
      }
      await this.#ahead.gather(gatherMs);
    } else void this.#ahead?.begin();
    const askedAt = Date.now();
    const { value, done } = await this.#reader.read(new Uint8Array(this.#buffer));
    if (done) return NO_BYTES;
    this.#buffer = value.buffer;
    const now = Date.now();
    this.#pace.note(value.length, gatherMs > 0, now);
    this.#quick = now - askedAt <= QUICK_MS ? this.#quick + 1 : 0;
    return value;
  }

  cancel(): void {
    this.#reader.cancel().catch(() => {});
    this.#ahead?.cancel();
  }
}

/**
 * Lets the runtime read a body, so that its other branch has all bytes at the next read. The bytes are dropped here, so
 * that nothing is lost when the body breaks off.
 */
class ReadAhead {
  readonly #reader: ReadableStreamBYOBReader;
  #buffer: ArrayBufferLike = new ArrayBuffer(BUFFER_BYTES);
  /** Resolves when the bytes of one read have arrived, or no more will. */
  #full: Promise<void> | undefined;

  constructor(branch: ReadableStream<Uint8Array>) {
    const { readable, writable } = new IdentityTransformStream();
    // Unread bytes would be kept for as long as the other branch is read.
    branch.pipeTo(writable).catch(() => branch.cancel().catch(() => {}));
    this.#reader = readable.getReader({ mode: "byob" });
  }

  /** Lets the bytes of one read arrive; until the next call, no more than that are kept. */
  begin(): Promise<void> {
    this.#full ??= this.#fill();
    return this.#full;
  }

  /** Waits until this many bytes have arrived, at most `ms`. */
  async gather(ms: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer = setTellingTimeout(resolve, ms);
    void this.begin().then(resolve);
    await promise;
    clearTimeout(timer);
  }

  cancel(): void {
    this.#reader.cancel().catch(() => {});
  }

  async #fill(): Promise<void> {
    try {
      const { value, done } = await this.#reader.readAtLeast(BUFFER_BYTES, new Uint8Array(this.#buffer));
      if (done) return;
      this.#buffer = value.buffer;
      this.#full = undefined;
    } catch {
      // The reader of the other branch gets the error.
    }
  }
}

/** The time in which the bytes of an unwatched body gather. Milliseconds. */
const UNWATCHED_MS = 100;

/** vLLM sends the event with the role and that with the first token together: both have more bytes, the first alone has fewer. */
const FIRST_BYTES = 400;

/**
 * A fetch body gives at most one HTTP chunk per read, and each read costs as much as translating several tokens. Here the runtime
 * waits for the bytes of about `UNWATCHED_MS`, at the pace that the body has had altogether or, if that is slower, in the last read.
 * A body that breaks off loses the bytes of the pending read.
 */
class UnwatchedReader implements ByteReader {
  readonly #reader: ReadableStreamBYOBReader;
  readonly #since: number;
  #buffer: ArrayBufferLike = new ArrayBuffer(BUFFER_BYTES);
  #length = 0;
  #lastAt: number;
  /** The bytes that the next read waits for. */
  #least = FIRST_BYTES;
  #isOver = false;

  constructor(reader: ReadableStreamBYOBReader, since: number) {
    this.#reader = reader;
    this.#since = since;
    this.#lastAt = since;
  }

  async read(): Promise<Uint8Array> {
    if (this.#isOver) return NO_BYTES;
    const { value, done } = await this.#reader.readAtLeast(this.#least, new Uint8Array(this.#buffer));
    // Only the end of the body makes a read shorter.
    this.#isOver = done || value.length < this.#least;
    if (!value) return NO_BYTES;
    this.#buffer = value.buffer;
    this.#length += value.length;
    const now = Date.now();
    const pace = Math.min(bytesPerMs(this.#length, now - this.#since), bytesPerMs(value.length, now - this.#lastAt));
    this.#least = Math.max(1, Math.min(BUFFER_BYTES, Math.ceil(pace * UNWATCHED_MS)));
    this.#lastAt = now;
    return value;
  }

  cancel(): void {
    this.#reader.cancel().catch(() => {});
  }
}

const bytesPerMs = (bytes: number, ms: number) => bytes / Math.max(1, ms);

/** Reads a stream that has its own pieces. */
class PieceReader implements ByteReader {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;

  constructor(reader: ReadableStreamDefaultReader<Uint8Array>) {
    this.#reader = reader;
  }

  async read(): Promise<Uint8Array> {
    for (;;) {
      const { value } = await this.#reader.read();
      if (!value || value.length > 0) return value ?? NO_BYTES;
    }
  }

  cancel(): void {
    this.#reader.cancel().catch(() => {});
  }
}
