/**
 * HTTP/1.1 answers (RFC 9112), for the transport that reads them itself: heads, and the framing of bodies. An answer
 * that violates the grammar is refused, and its cost is bounded.
 */
import { Buffer } from "node:buffer";

/** The bytes are no answer in HTTP/1.1, or one that this client has not asked for. */
export class Http1Error extends Error {
  override readonly name = "Http1Error";
}

/** The longest head of an answer, with the interim ones before it. */
export const MAX_HEAD_BYTES = 64 * 1024;
const MAX_HEADERS = 256;

/** The longest line with the length of a chunk, including its extensions. */
const MAX_CHUNK_LINE_BYTES = 1024;
const MAX_TRAILER_BYTES = 16 * 1024;

const TAB = 9;
const LF = 10;
const CR = 13;
const SPACE = 32;
const SEMICOLON = 59;

/** Separates a body from its framing. */
export interface Framing {
  /** The body is complete: later bytes are not part of it. */
  readonly ended: boolean;
  /** The end of the connection ends the body. */
  readonly endsWithConnection: boolean;
  /** The body's own part of the next bytes, moved to their beginning. Throws Http1Error for invalid framing. */
  unframe(bytes: Uint8Array): Uint8Array;
}

/** The headers of a head. Values of the same name are joined, as in `Headers`. */
export class HeadHeaders {
  readonly #values = new Map<string, string>();

  append(name: string, value: string): void {
    const key = name.toLowerCase();
    const before = this.#values.get(key);
    this.#values.set(key, before === undefined ? value : `${before}, ${value}`);
  }

  get(name: string): string | null {
    return this.#values.get(name.toLowerCase()) ?? null;
  }
}

export interface Head {
  status: number;
  headers: HeadHeaders;
  framing: Framing;
}

/**
 * The end of the head at the beginning of `bytes`, including its empty line; -1 if it has not arrived. Not before
 * `from`.
 */
export function endOfHead(bytes: Uint8Array, from: number): number {
  for (let at = bytes.indexOf(LF, from); at !== -1; at = bytes.indexOf(LF, at + 1)) {
    if (at >= 3 && bytes[at - 1] === CR && bytes[at - 2] === LF && bytes[at - 3] === CR) return at + 1;
  }
  return -1;
}

// No character of a class below can also follow it: each is tried once.
const STATUS_LINE = /^HTTP\/1\.([01]) ([1-5]\d\d)(?: [\t\x20-\x7e\x80-\xff]*)?$/;
const HEADER_LINE = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t\x20-\x7e\x80-\xff]*)$/;

/**
 * A whole head, as `endOfHead` finds it; undefined for an interim answer (1xx), after which the next one comes.
 * `method` is the request's. Throws Http1Error for any other head than that of an answer to a request without an
 * upgrade and without codings.
 */
export function parseHead(bytes: Uint8Array, method: string): Head | undefined {
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength - 4).toString("latin1");
  const [statusLine = "", ...lines] = text.split("\r\n", MAX_HEADERS + 2);
  if (lines.length > MAX_HEADERS) throw new Http1Error("too many headers");
  const [, minor, code] = STATUS_LINE.exec(statusLine) ?? [];
  if (code === undefined) throw new Http1Error("no status line");
  const headers = new HeadHeaders();
  for (const line of lines) {
    const [, name, value] = HEADER_LINE.exec(line) ?? [];
    if (name === undefined || value === undefined) throw new Http1Error("no header");
    headers.append(name, withoutBlanks(value));
  }
  const status = Number(code);
  if (status === 101) throw new Http1Error("an upgrade that nobody has asked for");
  if (status < 200) return undefined;
  return { status, headers, framing: framingOf(status, headers, method, minor === "0") };
}

/** A value without the blanks around it (RFC 9110 §5.5). */
function withoutBlanks(value: string): string {
  let from = 0;
  let to = value.length;
  while (from < to && isBlank(value.charCodeAt(from))) from += 1;
  while (to > from && isBlank(value.charCodeAt(to - 1))) to -= 1;
  return value.slice(from, to);
}

const isBlank = (code: number) => code === SPACE || code === TAB;

/** Statuses without a body, whatever their headers say. */
export const NULL_BODY_STATUSES: ReadonlySet<number> = new Set([204, 205, 304]);

/** RFC 9112 §6.3. Two lengths are a smuggling attack (§6.1), and are refused. */
function framingOf(status: number, headers: HeadHeaders, method: string, isOld: boolean): Framing {
  if (method === "HEAD" || NULL_BODY_STATUSES.has(status)) return new LengthFraming(0);
  const coding = headers.get("content-encoding") ?? "identity";
  if (coding.toLowerCase() !== "identity") throw new Http1Error("a content coding that nobody has asked for");
  const transfer = headers.get("transfer-encoding");
  const length = headers.get("content-length");
  if (transfer !== null) {
    if (transfer.toLowerCase() !== "chunked" || length !== null || isOld) throw new Http1Error("a transfer coding");
    return new ChunkedFraming();
  }
  return length === null ? new ConnectionFraming() : new LengthFraming(parseLength(length));
}

/** A length may be repeated, by a proxy that joins headers. */
function parseLength(header: string): number {
  const [length = "", ...others] = header.split(",", MAX_HEADERS).map((each) => each.trim());
  if (!/^\d{1,15}$/.test(length) || others.some((other) => other !== length)) throw new Http1Error("a content length");
  return Number(length);
}

/** A body with a length in its head. */
class LengthFraming implements Framing {
  readonly endsWithConnection = false;
  #left: number;

  constructor(length: number) {
    this.#left = length;
  }

  get ended(): boolean {
    return this.#left === 0;
  }

  unframe(bytes: Uint8Array): Uint8Array {
    const own = bytes.length > this.#left ? bytes.subarray(0, this.#left) : bytes;
    this.#left -= own.length;
    return own;
  }
}

/** A body that the end of the connection ends. */
class ConnectionFraming implements Framing {
  readonly endsWithConnection = true;
  readonly ended = false;

  unframe(bytes: Uint8Array): Uint8Array {
    return bytes;
  }
}

/** The position of the next byte in a chunked body (RFC 9112 §7.1). */
type ChunkState =
  | "size"
  | "extension"
  | "size LF"
  | "data"
  | "data CR"
  | "data LF"
  | "trailer"
  | "trailer line"
  | "trailer LF"
  | "last LF"
  | "end";

/** A body in chunks. Their extensions, and the trailers after the last one, are skipped. */
export class ChunkedFraming implements Framing {
  readonly endsWithConnection = false;
  #state: ChunkState = "size";
  /** The remaining bytes of the present chunk; while its size is read, the size so far. */
  #left = 0;
  #digits = 0;
  /** The length of the present framing line, and of all trailers. */
  #lineBytes = 0;

  get ended(): boolean {
    return this.#state === "end";
  }

  unframe(bytes: Uint8Array): Uint8Array {
    let to = 0;
    let at = 0;
    while (at < bytes.length && this.#state !== "end") {
      if (this.#state === "data") {
        const end = Math.min(at + this.#left, bytes.length);
        if (at !== to) bytes.copyWithin(to, at, end);
        to += end - at;
        this.#left -= end - at;
        at = end;
        if (this.#left === 0) this.#state = "data CR";
      } else {
        this.#state = this.#next(bytes[at] as number);
        at += 1;
      }
    }
    return bytes.subarray(0, to);
  }

  #next(byte: number): ChunkState {
    switch (this.#state) {
      case "size":
        this.#countLine(MAX_CHUNK_LINE_BYTES);
        return this.#sizeByte(byte);
      case "extension":
        this.#countLine(MAX_CHUNK_LINE_BYTES);
        if (byte === CR) return "size LF";
        if (byte !== LF) return "extension";
        break;
      case "size LF":
        this.#lineBytes = 0;
        this.#digits = 0;
        if (byte === LF) return this.#left > 0 ? "data" : "trailer";
        break;
      case "data CR":
        if (byte === CR) return "data LF";
        break;
      case "data LF":
        if (byte === LF) return "size";
        break;
      case "trailer":
        this.#countLine(MAX_TRAILER_BYTES);
        if (byte === CR) return "last LF";
        if (byte !== LF) return "trailer line";
        break;
      case "trailer line":
        this.#countLine(MAX_TRAILER_BYTES);
        if (byte === CR) return "trailer LF";
        if (byte !== LF) return "trailer line";
        break;
      case "trailer LF":
        if (byte === LF) return "trailer";
        break;
      case "last LF":
        if (byte === LF) return "end";
        break;
      default:
    }
    throw new Http1Error("a chunk");
  }

  #sizeByte(byte: number): ChunkState {
    const digit = HEX_DIGITS[byte] ?? -1;
    if (digit >= 0) {
      this.#left = this.#left * 16 + digit;
      this.#digits += 1;
      if (this.#left <= Number.MAX_SAFE_INTEGER) return "size";
    } else if (this.#digits > 0) {
      if (byte === CR) return "size LF";
      if (byte === SEMICOLON || byte === SPACE || byte === TAB) return "extension";
    }
    throw new Http1Error("the size of a chunk");
  }

  #countLine(most: number): void {
    this.#lineBytes += 1;
    if (this.#lineBytes > most) throw new Http1Error("a line of a chunk");
  }
}

/** The value of each byte that is a hexadecimal digit; -1 for others. */
const HEX_DIGITS = Int8Array.from({ length: 256 }, (_, byte) => {
  const digit = "0123456789abcdef".indexOf(String.fromCharCode(byte).toLowerCase());
  return byte < 128 ? digit : -1;
});

/** Bytes that end a line, and with it a header, or that no header may contain. */
const VISIBLE = /^[\x20-\x7e]*$/;
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

/**
 * A complete request, the only one of its connection. Throws Http1Error if a header would end before its value does.
 */
export function requestText(
  method: string,
  url: URL,
  headers: Readonly<Record<string, string>>,
  body?: string | Uint8Array,
): string {
  const all: Record<string, string> = {
    host: url.host,
    ...headers,
    "accept-encoding": "identity",
    connection: "close",
    ...(body !== undefined && {
      "content-length": String(typeof body === "string" ? Buffer.byteLength(body) : body.byteLength),
    }),
  };
  let head = `${method} ${url.pathname}${url.search} HTTP/1.1\r\n`;
  for (const [name, value] of Object.entries(all)) {
    if (!TOKEN.test(name) || !VISIBLE.test(value)) throw new Http1Error("a header that cannot be sent");
    head += `${name}: ${value}\r\n`;
  }
  return `${head}\r\n${typeof body === "string" ? body : ""}`;
}
