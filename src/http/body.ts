import { concatBytes, linesOf, ReadFault } from "@responses-edge/bounded-io/body";
import {
  DecompressionFault,
  Decompressor,
  ENCODINGS,
  type Encoding,
  FREE_BYTES,
  MAX_RATIO,
} from "@responses-edge/bounded-io/body/decompressor";
import { LongWork } from "@responses-edge/bounded-io/long-work";
import { boundaryOf, type FormPart, MalformedForm, readParts } from "@responses-edge/bounded-io/multipart";
import { ApiError, clientLeft, invalidRequest } from "@responses-edge/responses-api/errors";
import { bodyTooLarge, parseBody } from "@responses-edge/responses-api/json";
import { type PermitOwner, Permits } from "../store/limits/permits.ts";
import { notePassed } from "../store/objects/row-pieces.ts";

/** Reads the body of a request within limits. Everything wrong with it is a 4xx in OpenAI's form. */

/** The sender of a body, and how long the body may be. */
export interface Sender extends PermitOwner {
  config: PermitOwner["config"] & { maxRequestBytes: number };
}

/**
 * The parsed body, and its length in bytes. Throws ApiError: 415 for an unknown encoding, 413 beyond
 * `maxRequestBytes` (before and after decompression) and for too high a compression, 408 for a sender that is too slow,
 * as `parseBody` does, and as `Permits.resize` does.
 */
export async function readJson(request: Request, sender: Sender): Promise<{ value: unknown; length: number }> {
  using held = new DisposableStack();
  const bytes = await readBytes(request, sender, held);
  const value = await parseBody(bytes, sender.tenant);
  // A short one dies young.
  if (bytes.length > SHORT_BODY_LENGTH) notePassed(bytes.length);
  return { value, length: bytes.length };
}

/**
 * The bytes of a form with files, and the content type with the boundary of its parts. Throws the 415 of another
 * content type, and as `readJson` does before parsing.
 */
export async function readForm(request: Request, sender: Sender): Promise<{ bytes: Uint8Array; type: string }> {
  const type = request.headers.get("content-type") ?? "";
  if (!/^multipart\/form-data\s*;/i.test(type)) throw wrongType("multipart/form-data");
  using held = new DisposableStack();
  return { bytes: await readBytes(request, sender, held), type };
}

/** Bytes of a form without its file: fields and boundaries. */
const MAX_FORM_EXTRA_BYTES = 64 * 1024;

/**
 * The parts of a form with a file of at most `maxFileBytes`, as they come. Throws ApiError: 415 for another content
 * type or an encoding, 413 for a longer file, 400 for an invalid form, 408 for a sender that is too slow. The rest of
 * the body is always read (within bounds), so that the client sees the answer.
 */
export async function* fileParts({ headers, body }: Request, maxFileBytes: number): AsyncGenerator<FormPart, void> {
  const boundary = boundaryOf(headers.get("content-type") ?? "");
  if (boundary === undefined) throw wrongType("multipart/form-data");
  requireUnencoded(headers, "a form with a file");
  const maxBytes = maxFileBytes + MAX_FORM_EXTRA_BYTES;
  // A client would not send all of it before it reads the answer.
  if (Number(headers.get("content-length")) > maxBytes + MAX_DISCARDED_BYTES) throw bodyTooLarge(maxBytes);
  if (!body) throw malformed("The form ends before its closing boundary.");
  using source = new BodySource(body);
  let length = 0;
  try {
    const read = async () => {
      const bytes = await source.read();
      // Thrown here rather than in the parser, whose error the reader of a part would get.
      if (!bytes) throw malformed("The form ends before its closing boundary.");
      length += bytes.byteLength;
      if (length > maxBytes) throw bodyTooLarge(maxBytes);
      return bytes;
    };
    yield* readParts(read, boundary);
  } catch (error) {
    throw error instanceof MalformedForm ? malformed(error.message) : error;
  } finally {
    await source.discard();
  }
}

function malformed(message: string): ApiError {
  return invalidRequest(null, message, "invalid_form");
}

/** Throws the 415 of a body that is compressed. */
function requireUnencoded(headers: Headers, what: string): void {
  if ((headers.get("content-encoding") ?? "identity") === "identity") return;
  const message = `Unsupported content encoding. Send ${what} without it.`;
  throw new ApiError({ status: 415, message, code: "unsupported_content_encoding" });
}

/** Types of JSON lines; none of them is registered. */
const LINES_TYPE = /^application\/(jsonl|x-jsonlines|x-ndjson|ndjson)\s*(;|$)/i;

/**
 * The lines of a body of JSON lines, as bytes without their line breaks, as they come; empty ones are left out. Throws
 * ApiError: 415 for another content type or an encoding, 413 for more than `maxBytes`, 400 for a line of more than
 * `maxLineBytes`. The rest of the body is always read (within bounds), so that the client sees the answer.
 */
export async function* readLines(
  { headers, body }: Request,
  { maxBytes, maxLineBytes }: { maxBytes: number; maxLineBytes: number },
): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  if (!LINES_TYPE.test(headers.get("content-type") ?? "")) throw wrongType("application/jsonl");
  requireUnencoded(headers, "a body of JSON lines");
  if (!body) return;
  using source = new BodySource(body);
  try {
    yield* linesOf(chunksOf(source, maxBytes), maxLineBytes);
  } catch (error) {
    throw error instanceof ReadFault ? lineTooLong(maxLineBytes) : error;
  } finally {
    await source.discard();
  }
}

/** The chunks of a body. Throws the 413 of more than `maxBytes`. */
async function* chunksOf(source: BodySource, maxBytes: number): AsyncGenerator<Uint8Array> {
  let length = 0;
  for (let chunk = await source.read(); chunk; chunk = await source.read()) {
    length += chunk.byteLength;
    if (length > maxBytes) throw bodyTooLarge(maxBytes);
    yield chunk;
  }
}

function lineTooLong(maxLineBytes: number): ApiError {
  return invalidRequest(null, `A line may have ${maxLineBytes} bytes.`, "invalid_json");
}

/** Reads and drops an unread body, within bounds, so that the client sees the answer. */
export async function discardBody({ body, bodyUsed, headers }: Request): Promise<void> {
  if (!body || bodyUsed || body.locked || Number(headers.get("content-length")) > MAX_DISCARDED_BYTES) return;
  using source = new BodySource(body, BODY_TIMEOUT_MS);
  await source.discard();
}

/** The 415 of a body of another content type than `wanted`. */
export function wrongType(wanted: string): ApiError {
  const message = `Unsupported content type. Send the body as 'Content-Type: ${wanted}'.`;
  return new ApiError({ status: 415, message, code: "unsupported_media_type" });
}

/**
 * The bytes of a body, decompressed. `held` gets permits for the bytes that came, never for an announced length. A
 * refused body is read to its end, within bounds, so that the client sees the answer.
 */
async function readBytes(request: Request, sender: Sender, held: DisposableStack): Promise<Uint8Array> {
  const { maxRequestBytes: maxBytes } = sender.config;
  const { headers } = request;
  const announced = Number(headers.get("content-length") ?? Number.NaN);
  // A client would not send all of it before it reads the answer.
  if (announced > maxBytes + MAX_DISCARDED_BYTES) throw bodyTooLarge(maxBytes);
  if (announced <= Math.min(SHORT_BODY_LENGTH, maxBytes) && !headers.has("content-encoding")) {
    held.use(new Permits("body", sender, 0));
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
  const { body } = request;
  if (!body) return new Uint8Array();
  using source = new BodySource(body, BODY_TIMEOUT_MS);
  try {
    const encoding = encodingOf(request);
    const permits = held.use(new Permits("body", sender, 0));
    if (announced > maxBytes) throw bodyTooLarge(maxBytes);
    const take = (length: number) => {
      if (length > maxBytes) throw bodyTooLarge(maxBytes);
      permits.resize(length);
    };
    if (encoding !== undefined) return await decompressAll(source, encoding, take, new LongWork(sender.tenant));
    const chunks: Uint8Array<ArrayBuffer>[] = [];
    const work = new LongWork(sender.tenant);
    let length = 0;
    for (let chunk = await source.read(); chunk; chunk = await source.read()) {
      length += chunk.byteLength;
      take(length);
      chunks.push(chunk.slice());
      await work.spend(chunk.byteLength * UNITS_PER_BYTE);
    }
    return concatBytes(chunks);
  } catch (error) {
    held.dispose();
    await source.discard();
    throw error instanceof DecompressionFault ? undecodable(error) : error;
  }
}

/** The microseconds that receiving a byte takes, about. */
const UNITS_PER_BYTE = 1 / 300;

/** The encoding of a body; undefined if it is not encoded. Throws the 415 of an unknown one. */
function encodingOf({ headers }: Request): Encoding | undefined {
  const encoding = (headers.get("content-encoding") ?? "").trim().toLowerCase();
  if (encoding === "" || encoding === "identity") return undefined;
  const known = ENCODINGS.find((name) => name === encoding);
  if (known) return known;
  const names = ENCODINGS.join(", ");
  throw new ApiError({
    status: 415,
    message: `Unsupported content encoding. Supported values are: ${names}.`,
    code: "unsupported_content_encoding",
    headers: { "accept-encoding": names },
  });
}

/** Bytes of output that take a microsecond. */
const DECOMPRESSED_PER_UNIT = 200;

async function decompressAll(
  source: BodySource,
  encoding: Encoding,
  take: (length: number) => void,
  work: LongWork,
): Promise<Uint8Array> {
  let sent = 0;
  using decompressor = new Decompressor(encoding, (length) => take(Math.max(sent, length)));
  for (let chunk = await source.read(); chunk; chunk = await source.read()) {
    sent += chunk.byteLength;
    const before = decompressor.length;
    take(Math.max(sent, before));
    await decompressor.write(chunk);
    const slice = work.spend((decompressor.length - before) / DECOMPRESSED_PER_UNIT);
    if (slice) await slice;
  }
  return await decompressor.end();
}

/**
 * The body of a request as it comes in. A sender that stalls, or is slower than the lowest rate, gets a 408, after
 * which the runtime closes its connection.
 */

/** The lowest rate of a sender. Kestrel (240) and Apache (500) allow less. Bytes per second. */
const LEAST_RATE = 1024;

/** The rate is averaged over this time, within which the first byte must come. Milliseconds. */
const RATE_PERIOD_MS = 10_000;

/** The longest time for a body that is kept in memory, at any rate. Milliseconds. */
const BODY_TIMEOUT_MS = 300_000;

/**
 * Bytes of a refused body that are read and dropped. A connection that is closed with unread data is reset; its client
 * would not see the answer.
 */
const MAX_DISCARDED_BYTES = 100 * 1024 * 1024;

/** The length of one read. */
const READ_BYTES = 64 * 1024;

/** A body of this length comes in one read. Bytes. */
const SHORT_BODY_LENGTH = 16 * 1024;

/** The time that a short body takes at the lowest rate. Milliseconds. */
const SHORT_BODY_TIMEOUT_MS = RATE_PERIOD_MS + (SHORT_BODY_LENGTH / LEAST_RATE) * 1000;

class BodySource implements Disposable {
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

  /** `timeoutMs`: the time for the whole body. */
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

  /** Time in which nobody reads does not count against the sender. */
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

/** A reader that may read into a given buffer, or ignore it. */
interface ByteReader {
  read(buffer: Uint8Array<ArrayBuffer>): Promise<{ value?: Uint8Array<ArrayBuffer> | undefined; done: boolean }>;
  cancel(): Promise<void>;
}

/** A stream of the runtime is read into one buffer; a stream of JavaScript has its own chunks. */
function readerOf(body: ReadableStream<Uint8Array>): ByteReader {
  try {
    return body.getReader({ mode: "byob" }) as ByteReader;
  } catch {
    return body.getReader() as ByteReader;
  }
}

/** The 413 of too high a ratio, or the 400 of invalid data. */
function undecodable({ kind }: DecompressionFault): ApiError {
  if (kind === "malformed") {
    const message = "The body could not be decoded with its Content-Encoding.";
    return invalidRequest(null, message, "invalid_content_encoding");
  }
  const message = `The request body expands too much: beyond ${FREE_BYTES} bytes it may expand to ${MAX_RATIO} times its size. Send it without Content-Encoding.`;
  return new ApiError({ status: 413, message, code: "request_too_large" });
}

/** The runtime's own errors say only that the connection is gone. */
function faultOf(error: unknown): ApiError {
  return error instanceof ApiError ? error : clientLeft();
}

function tooSlow(): ApiError {
  const message = `The request body did not arrive in time: less than ${LEAST_RATE} bytes a second, or more than ${BODY_TIMEOUT_MS / 60_000} minutes in all.`;
  return new ApiError({ status: 408, message, code: "request_timeout" });
}
