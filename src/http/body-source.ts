import { ApiError, clientLeft } from "../protocol/errors.ts";

/**
 * The body of a request as it comes. A sender that stalls, or is slower than the least rate, is a 408, after which the runtime closes
 * its connection.
 */

/** The least rate. Kestrel (240) and Apache (500) have lower ones. Bytes per second. */
const LEAST_RATE = 1024;

/** The rate is an average over this time, which is also how long the first byte may take. Milliseconds. */
const RATE_PERIOD_MS = 10_000;

/** How long a body that is kept in memory may take, whatever its rate. Milliseconds. */
export const BODY_TIMEOUT_MS = 300_000;

/**
 * How much of a refused body is still read, and dropped. A connection that is closed with unread data is reset, and its client would
 * see that instead of the answer.
 */
export const MAX_DISCARDED_BYTES = 100 * 1024 * 1024;

/** As much as one read takes. */
const READ_BYTES = 64 * 1024;

/** A body of this length comes in one read. Bytes. */
export const SHORT_BODY_LENGTH = 16 * 1024;

/** A short body comes this fast at the least rate. Milliseconds. */
const SHORT_BODY_TIMEOUT_MS = RATE_PERIOD_MS + (SHORT_BODY_LENGTH / LEAST_RATE) * 1000;

/** The whole of a body that announces at most `SHORT_BODY_LENGTH` bytes: one read of the runtime's. Throws as `BodySource.read` does. */
export async function readShort(request: Request): Promise<Uint8Array<ArrayBuffer>> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(tooSlow()), SHORT_BODY_TIMEOUT_MS);
  try {
    return new Uint8Array(await Promise.race([request.arrayBuffer(), late.promise]));
  } catch (error) {
    throw faultOf(error);
  } finally {
    clearTimeout(timer);
  }
}

export class BodySource implements Disposable {
  readonly #reader: ByteReader;
  readonly #late = Promise.withResolvers<never>();
  readonly #rateTimer: ReturnType<typeof setInterval>;
  readonly #timer: ReturnType<typeof setTimeout> | undefined;
  #buffer = new ArrayBuffer(READ_BYTES);
  /** The reader waits for the sender. */
  #isWaiting = false;
  /** Bytes of this period. */
  #came = 0;
  #isOver = false;

  /** `timeoutMs`: how long all of the body may take. */
  constructor(body: ReadableStream<Uint8Array>, timeoutMs?: number) {
    this.#reader = readerOf(body);
    this.#late.promise.catch(() => {});
    this.#rateTimer = setInterval(() => this.#checkRate(), RATE_PERIOD_MS);
    this.#timer = timeoutMs === undefined ? undefined : setTimeout(() => this.#end(), timeoutMs);
  }

  /** The next bytes, valid until the next read; undefined at the end. Throws the 408 of a sender that is too slow, and the 499 of one that leaves. */
  async read(): Promise<Uint8Array | undefined> {
    this.#isWaiting = true;
    try {
      const { value } = await Promise.race([this.#readSome(), this.#late.promise]);
      this.#isOver ||= value === undefined;
      this.#came += value?.byteLength ?? 0;
      return value;
    } catch (error) {
      this.#isOver = true;
      throw faultOf(error);
    } finally {
      this.#isWaiting = false;
    }
  }

  /** Reads the rest of the body, within bounds, and drops it, so that the client sees the answer. Never rejects. */
  async discard(): Promise<void> {
    // It holds no permits: none of it is kept.
    try {
      for (let length = 0; !this.#isOver && length <= MAX_DISCARDED_BYTES; ) {
        length += (await this.read())?.byteLength ?? 0;
      }
    } catch {
      // The client has left, or is too slow.
    }
    if (!this.#isOver) this.#reader.cancel().catch(() => {});
  }

  [Symbol.dispose](): void {
    clearInterval(this.#rateTimer);
    clearTimeout(this.#timer);
  }

  async #readSome(): Promise<{ value?: Uint8Array | undefined }> {
    const { value, done } = await this.#reader.read(new Uint8Array(this.#buffer));
    if (done || !value) return {};
    this.#buffer = value.buffer;
    return { value };
  }

  /** Time in which nobody reads is not the sender's. */
  #checkRate(): void {
    const isSlow = this.#isWaiting && this.#came < (LEAST_RATE * RATE_PERIOD_MS) / 1000;
    this.#came = 0;
    if (isSlow) this.#end();
  }

  #end(): void {
    this.#late.reject(tooSlow());
    this.#reader.cancel().catch(() => {});
  }
}

/** A reader of bytes that may read into a buffer of ours. One that does not ignores it. */
interface ByteReader {
  read(buffer: Uint8Array<ArrayBuffer>): Promise<{ value?: Uint8Array<ArrayBuffer> | undefined; done: boolean }>;
  cancel(): Promise<void>;
}

/** A stream of the runtime's is read into one buffer; a stream of JavaScript's has chunks of its own. */
function readerOf(body: ReadableStream<Uint8Array>): ByteReader {
  try {
    return body.getReader({ mode: "byob" }) as ByteReader;
  } catch {
    return body.getReader() as ByteReader;
  }
}

/** The runtime's own errors tell nothing but that the connection is gone. */
function faultOf(error: unknown): ApiError {
  return error instanceof ApiError ? error : clientLeft();
}

function tooSlow(): ApiError {
  return new ApiError({
    status: 408,
    message: `The request body did not come in time: less than ${LEAST_RATE} bytes a second, or more than ${BODY_TIMEOUT_MS / 60_000} minutes in all.`,
    code: "request_timeout",
  });
}
