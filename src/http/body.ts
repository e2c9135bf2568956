import { brotliDecompressSync, gunzipSync, inflateSync, zstdDecompressSync } from "node:zlib";
import { concatBytes } from "../protocol/bytes.ts";
import { ApiError, invalidRequest } from "../protocol/errors.ts";
import { bodyTooLarge, parseBody } from "../protocol/json-body.ts";
import { type Asker, bodyPlace, type Place, SHORT_BODY_LENGTH } from "../store/isolate-room.ts";

/** Reads the body of a request within limits. Everything wrong with it is a 4xx in OpenAI's shape. */

/** Who sends a body, and how long it may be. */
export interface Sender extends Asker {
  config: Asker["config"] & { maxRequestBytes: number };
}

/** A body that takes longer to come is not waited for: it holds places that others could have. Milliseconds. */
const BODY_TIMEOUT_MS = 300_000;

/**
 * How much of a body beyond the limit is still read, and dropped. A connection that is closed with unread data is reset,
 * and its client would see that instead of the 413.
 */
const MAX_DISCARDED_BYTES = 100 * 1024 * 1024;

const DECODERS: Record<string, (body: Uint8Array, options: { maxOutputLength: number }) => Uint8Array> = {
  gzip: gunzipSync,
  "x-gzip": gunzipSync,
  deflate: inflateSync,
  br: brotliDecompressSync,
  zstd: zstdDecompressSync,
};

/**
 * The parsed body, and how many bytes it has. Throws ApiError: 415 for another content type or encoding, 413 beyond `maxRequestBytes`
 * (before and after decompression), 408 for one that does not come, as `parseBody` does, and as `Place.fit` does.
 */
export async function readJson(request: Request, sender: Sender): Promise<{ value: unknown; length: number }> {
  requireJsonType(request);
  using place = bodyPlace(sender);
  const bytes = await readDecoded(request, sender.config.maxRequestBytes, place);
  return { value: await parseBody(bytes), length: bytes.length };
}

/**
 * The bytes of a form with files, and the type that says where its parts begin. Throws ApiError: 415 for another content type or
 * encoding, 413 beyond `maxRequestBytes` (before and after decompression), 408 for one that does not come, and as `Place.fit` does.
 */
export async function readForm(request: Request, sender: Sender): Promise<{ bytes: Uint8Array; type: string }> {
  const type = request.headers.get("content-type") ?? "";
  if (!/^multipart\/form-data\s*;/i.test(type)) {
    throw new ApiError({
      status: 415,
      message: "Unsupported content type. Send the body as 'Content-Type: multipart/form-data'.",
      code: "unsupported_media_type",
    });
  }
  using place = bodyPlace(sender);
  return { bytes: await readDecoded(request, sender.config.maxRequestBytes, place), type };
}

async function readDecoded(request: Request, maxBytes: number, place: Place): Promise<Uint8Array> {
  const encoding = (request.headers.get("content-encoding") ?? "").trim().toLowerCase();
  const bytes = decode(await readBytes(request, maxBytes, place), encoding, maxBytes);
  place.fit(bytes.length);
  return bytes;
}

/** Types of JSON lines; none of them is registered. */
const LINES_TYPE = /^application\/(jsonl|x-jsonlines|x-ndjson|ndjson)\s*(;|$)/i;

/**
 * The lines of a body of JSON lines, as bytes without their line breaks, as they come; empty ones are left out. Throws ApiError: 415
 * for another content type or an encoding, 413 for more than `maxBytes`, 400 for a line of more than `maxLineBytes`. However
 * the reading ends, the rest of the body is read (within bounds), so that the client sees the answer.
 */
export async function* readLines(
  { headers, body }: Request,
  { maxBytes, maxLineBytes }: { maxBytes: number; maxLineBytes: number },
): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  if (!LINES_TYPE.test(headers.get("content-type") ?? "")) {
    throw new ApiError({
      status: 415,
      message: "Unsupported content type. Send the body as 'Content-Type: application/jsonl'.",
      code: "unsupported_media_type",
    });
  }
  if ((headers.get("content-encoding") ?? "identity") !== "identity") {
    throw new ApiError({
      status: 415,
      message: "Unsupported content encoding. Send JSON lines as they are.",
      code: "unsupported_content_encoding",
    });
  }
  if (!body) return;
  const reader = (body as ReadableStream<Uint8Array<ArrayBuffer>>).getReader();
  let length = 0;
  let line: Uint8Array<ArrayBuffer>[] = [];
  let lineLength = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      length += value.byteLength;
      if (length > maxBytes) throw bodyTooLarge(maxBytes);
      let from = 0;
      for (let end = value.indexOf(LINE_BREAK); end !== -1; end = value.indexOf(LINE_BREAK, from)) {
        line.push(value.subarray(from, end));
        from = end + 1;
        const whole = concatBytes(line);
        line = [];
        lineLength = 0;
        if (whole.byteLength > maxLineBytes) throw lineTooLong(maxLineBytes);
        if (whole.byteLength > 0) yield whole;
      }
      line.push(value.subarray(from));
      lineLength += value.byteLength - from;
      if (lineLength > maxLineBytes) throw lineTooLong(maxLineBytes);
    }
    if (lineLength > 0) yield concatBytes(line);
  } finally {
    await discard(reader);
  }
}

const LINE_BREAK = 0x0a;

function lineTooLong(maxLineBytes: number): ApiError {
  return invalidRequest(null, `A line may have ${maxLineBytes} bytes.`, "invalid_json");
}

/** Reads the rest of a body, and drops it. */
async function discard(reader: ReadableStreamDefaultReader<Uint8Array>): Promise<void> {
  try {
    for (let length = 0; length <= MAX_DISCARDED_BYTES; ) {
      const { done, value } = await reader.read();
      if (done) return;
      length += value.byteLength;
    }
    await reader.cancel();
  } catch {
    // The client has left.
  }
}

/** Throws the 415 of a request whose content type is not JSON. */
export function requireJsonType({ headers }: Request): void {
  if (/^application\/(json|[\w.+-]+\+json)\s*(;|$)/i.test(headers.get("content-type") ?? "")) return;
  throw new ApiError({
    status: 415,
    message: "Unsupported content type. Send the body as 'Content-Type: application/json'.",
    code: "unsupported_media_type",
  });
}

/** The bytes of a body, as they came. One that is not short has to come in time, and takes places. */
async function readBytes(request: Request, maxBytes: number, place: Place): Promise<Uint8Array> {
  const announced = request.headers.get("content-length");
  if (announced !== null && Number(announced) <= Math.min(SHORT_BODY_LENGTH, maxBytes)) {
    return new Uint8Array(await request.arrayBuffer());
  }
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(bodyTimeout()), BODY_TIMEOUT_MS);
  });
  try {
    return await Promise.race([readLong(request, announced, maxBytes, place), late]);
  } finally {
    clearTimeout(timer);
  }
}

async function readLong(
  request: Request,
  announced: string | null,
  maxBytes: number,
  place: Place,
): Promise<Uint8Array> {
  if (announced !== null && Number(announced) <= maxBytes) {
    const refusal = refusalOf(() => place.fit(Number(announced)));
    if (!refusal) return new Uint8Array(await request.arrayBuffer());
    if (request.body) await discard(request.body.getReader());
    throw refusal.error;
  }
  // Nobody sends all of it before reading the answer.
  if (Number(announced) > maxBytes + MAX_DISCARDED_BYTES) throw bodyTooLarge(maxBytes);
  if (!request.body) return new Uint8Array();
  let chunks: Uint8Array<ArrayBuffer>[] = [];
  let length = 0;
  let refusal: { error: unknown } | undefined;
  for await (const chunk of request.body) {
    length += chunk.byteLength;
    // Of a body that has announced itself nothing is kept: it is too large.
    if (announced === null && length <= maxBytes && !refusal) {
      chunks.push(chunk);
      refusal = refusalOf(() => place.fit(length));
      if (refusal) chunks = [];
    } else if (length > maxBytes + MAX_DISCARDED_BYTES) break;
  }
  if (announced !== null || length > maxBytes) throw bodyTooLarge(maxBytes);
  if (refusal) throw refusal.error;
  return concatBytes(chunks);
}

function bodyTimeout(): ApiError {
  return new ApiError({ status: 408, message: "The request body did not come in time.", code: "request_timeout" });
}

/** What it throws, where it does: what is left of the body is to be read before that is said. */
function refusalOf(take: () => void): { error: unknown } | undefined {
  try {
    take();
    return undefined;
  } catch (error) {
    return { error };
  }
}

function decode(body: Uint8Array, encoding: string, maxBytes: number): Uint8Array {
  if (encoding === "" || encoding === "identity") return body;
  const decoder = Object.hasOwn(DECODERS, encoding) ? DECODERS[encoding] : undefined;
  if (!decoder) {
    throw new ApiError({
      status: 415,
      message: `Unsupported content encoding. Supported values are: ${Object.keys(DECODERS).join(", ")}.`,
      code: "unsupported_content_encoding",
      headers: { "accept-encoding": Object.keys(DECODERS).join(", ") },
    });
  }
  try {
    return decoder(body, { maxOutputLength: maxBytes });
  } catch (error) {
    if (error instanceof RangeError) throw bodyTooLarge(maxBytes);
    throw invalidRequest(
      null,
      "The body could not be decoded as its Content-Encoding says.",
      "invalid_content_encoding",
    );
  }
}
