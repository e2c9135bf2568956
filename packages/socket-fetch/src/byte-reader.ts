/** The bytes that a model server sends, as they come. */
export interface ByteReader {
  /**
   * The next bytes; none at the end of the body. They are valid until the next read. Rejects when the connection breaks.
   * One read at a time, and none after the end.
   */
  read(): Promise<Uint8Array>;
  /** Gives up the body: what is waited for ends. */
  cancel(): void;
}

/** A read of one token takes a few hundred bytes, and every open stream keeps a buffer. */
export const BUFFER_BYTES = 4096;

/** A read at the end gives this. */
export const NO_BYTES = new Uint8Array();

/** The readers of bodies that are streams only for those who want one. */
const readers = new WeakMap<ReadableStream, ByteReader>();

/** A body as a stream, whose reader stays the one that is given (`readerOf`). */
export function streamOf(reader: ByteReader): ReadableStream<Uint8Array> {
  const body = new ReadableStream<Uint8Array>(
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
  readers.set(body, reader);
  return body;
}

/**
 * The reader of a body: its own where it has one (`streamOf`). A body that the runtime streams itself is read into one buffer; a stream of
 * JavaScript's is as it is.
 */
export function readerOf(body: ReadableStream<Uint8Array>): ByteReader {
  const own = readers.get(body);
  if (own) return own;
  let reader: ReadableStreamBYOBReader;
  try {
    reader = body.getReader({ mode: "byob" });
  } catch {
    return new PieceReader(body.getReader());
  }
  return new BufferReader(body, reader);
}

/**
 * How far this thread is behind, as its timers tell: by how much they ring late. A thread that has more to read than it can
 * reads less often, and then more at a time: what comes is left to gather. So its streams are late by some milliseconds,
 * where each of them would else get a part of its tokens.
 */

/**
 * A timer's lateness counts by the time since the one before, up to a limit: those that ring together after a standstill tell of
 * one, and one that rings alone does not tell of much. Milliseconds.
 */
const LAG_TIME_MS = 200;
const MAX_TOLD_MS = 50;

/** A timer that rings later than this tells of a clock that was set, or a machine that slept. Milliseconds. */
const MAX_LATE_MS = 1_000;

/** A lag is believed for so long after the last timer that told of it. Milliseconds. */
const KNOWN_MS = 2_000;

/** A thread that is less behind than this is not. One that is pauses for twice as long, up to a limit. Milliseconds. */
const LAG_MS = 4;
const PAUSE_PER_LAG = 2;
const MAX_PAUSE_MS = 100;

/**
 * A pause that helps takes its own reason away. It becomes shorter slowly, by two thirds in this time: pauses that end at once are
 * followed by the next standstill. Milliseconds.
 */
const FADE_MS = 4_000;

let lagMs = 0;
let pauseMs = 0;
let toldAt = 0;

/** `setTimeout`, for a timer that tells how far the thread is behind. */
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

/** A read that comes within this has not been waited for. Milliseconds. */
const QUICK_MS = 2;

/** A read of more than this is worth its cost. */
const LARGE_BYTES = BUFFER_BYTES / 2;

/** So many reads in a row tell how a stream goes. */
const MANY_READS = 8;

/** The share of each new time between two reads in their average. */
const WEIGHT = 1 / 4;

/** How a stream's reads go: whether they bring so little, and so often, that it is better to gather for a while. */
export class ReadPace {
  /** Small reads follow each other. */
  isSmall = false;
  /** How many of the last reads, in a row, were not worth their cost. */
  #small = 0;
  #lastAt = Date.now();
  /** Between two reads. Milliseconds. */
  #everyMs = 0;

  /** A read has brought so much; `wasGathered`: only because it was put off. */
  note(bytes: number, wasGathered: boolean, now: number): void {
    this.#small = wasGathered || bytes < LARGE_BYTES ? this.#small + 1 : 0;
    this.isSmall = this.#small >= MANY_READS;
    if (!wasGathered) this.#everyMs += (now - this.#lastAt - this.#everyMs) * WEIGHT;
    this.#lastAt = now;
  }

  /** How long the stream is not read because the thread is behind. Milliseconds; 0: it is not, or it would gather nothing. */
  lagPauseMs(): number {
    const isBehind = this.isSmall && Date.now() - toldAt <= KNOWN_MS;
    return isBehind && pauseMs > this.#everyMs ? pauseMs : 0;
  }
}

/** How long what comes is gathered while the server is ahead: reads are not waited for. Milliseconds. */
const GATHER_MS = 3;

/**
 * A fetch body gives at most one HTTP chunk per read, and vLLM sends one per token. A read, and the write that follows it, cost the same
 * however much they bring. Where the server is ahead, or the thread behind, what comes is gathered for some milliseconds, and read at once.
 * Bytes that come alone are read as they come.
 */
class BufferReader implements ByteReader {
  readonly #body: ReadableStream<Uint8Array>;
  #reader: ReadableStreamBYOBReader;
  #buffer: ArrayBufferLike = new ArrayBuffer(BUFFER_BYTES);
  #ahead: ReadAhead | undefined;
  readonly #pace = new ReadPace();
  /** How many of the last reads, in a row, were not waited for. */
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
 * Has the runtime take what comes of a body, so that the other branch of it has it at the next read, all at once. Nothing of it
 * is looked at here, so that nothing is lost when the body breaks off.
 */
class ReadAhead {
  readonly #reader: ReadableStreamBYOBReader;
  #buffer: ArrayBufferLike = new ArrayBuffer(BUFFER_BYTES);
  /** Resolves when as much has come as is read at once, or nothing more will. */
  #full: Promise<void> | undefined;

  constructor(branch: ReadableStream<Uint8Array>) {
    const { readable, writable } = new IdentityTransformStream();
    // Bytes that nobody takes would be kept for as long as the other branch is read.
    branch.pipeTo(writable).catch(() => branch.cancel().catch(() => {}));
    this.#reader = readable.getReader({ mode: "byob" });
  }

  /** Lets as much come as is read at once; until this is called again, no more than that is kept. */
  begin(): Promise<void> {
    this.#full ??= this.#fill();
    return this.#full;
  }

  /** Waits until so much has come, at most `ms`. */
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
      // The reader of the other branch hears of it.
    }
  }
}

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
