import { brotliDecompressSync, gunzipSync, inflateSync, zstdDecompressSync } from "node:zlib";
import { concatBytes } from "../protocol/bytes.ts";
import { ApiError, invalidRequest } from "../protocol/errors.ts";
import { bodyTooLarge, parseBody } from "../protocol/json-body.ts";

/** Reads the JSON body of a request within limits. Everything wrong with it is a 4xx in OpenAI's shape. */

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
 * The parsed body. Throws ApiError: 415 for another content type or encoding, 413 beyond `maxBytes` (before and after
 * decompression), and as `parseBody` does.
 */
export async function readJson(request: Request, maxBytes: number): Promise<unknown> {
  requireJsonType(request);
  return parseBody(await readDecoded(request, maxBytes));
}

/**
 * The bytes of a form with files, and the type that says where its parts begin. Throws ApiError: 415 for another content type or
 * encoding, 413 beyond `maxBytes` (before and after decompression).
 */
export async function readForm(request: Request, maxBytes: number): Promise<{ bytes: Uint8Array; type: string }> {
  const type = request.headers.get("content-type") ?? "";
  if (!/^multipart\/form-data\s*;/i.test(type)) {
    throw new ApiError({
      status: 415,
      message: "Unsupported content type. Send the body as 'Content-Type: multipart/form-data'.",
      code: "unsupported_media_type",
    });
  }
  return { bytes: await readDecoded(request, maxBytes), type };
}

async function readDecoded(request: Request, maxBytes: number): Promise<Uint8Array> {
  const encoding = (request.headers.get("content-encoding") ?? "").trim().toLowerCase();
  return decode(await readBytes(request, maxBytes), encoding, maxBytes);
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

async function readBytes(request: Request, maxBytes: number): Promise<Uint8Array> {
  const announced = request.headers.get("content-length");
  if (announced !== null && Number(announced) <= maxBytes) return new Uint8Array(await request.arrayBuffer());
  // Nobody sends all of it before reading the answer.
  if (Number(announced) > maxBytes + MAX_DISCARDED_BYTES) throw bodyTooLarge(maxBytes);
  if (!request.body) return new Uint8Array();
  const chunks: Uint8Array<ArrayBuffer>[] = [];
  let length = 0;
  for await (const chunk of request.body) {
    length += chunk.byteLength;
    // Of a body that has announced itself nothing is kept: it is too large.
    if (announced === null && length <= maxBytes) chunks.push(chunk);
    else if (length > maxBytes + MAX_DISCARDED_BYTES) break;
  }
  if (announced !== null || length > maxBytes) throw bodyTooLarge(maxBytes);
  return concatBytes(chunks);
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
