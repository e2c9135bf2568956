import { connect } from "cloudflare:sockets";
import { Buffer } from "node:buffer";
import {
  BUFFER_BYTES,
  type ByteReader,
  type HttpAnswer,
  NO_BYTES,
  ReadPace,
  setTellingTimeout,
  streamOf,
} from "./byte-reader.ts";
import type { Connection, Connector } from "./connection.ts";
import {
  endOfHead,
  type Framing,
  type Head,
  Http1Error,
  MAX_HEAD_BYTES,
  NULL_BODY_STATUSES,
  parseHead,
  requestText,
} from "./http1.ts";

/**
 * The model server over a socket, instead of `fetch`: one HTTP/1.1 request per connection. A fetch body gives at most
 * one HTTP chunk per read, and vLLM sends one per token; a socket gives all arrived bytes. A connection serves one
 * request, and is not kept for the next, because the runtime binds a socket to its request.
 */

export interface SocketRequest {
  method: string;
  headers: Readonly<Record<string, string>>;
  body?: string | Uint8Array<ArrayBuffer> | undefined;
  /** Aborting it closes the connection, also in the middle of the answer. */
  signal: AbortSignal;
}

/**
 * Requests like `fetch`, and follows no redirect. Its body is read by the socket's own reader (`readerOf`). Rejects if the
 * server is not reachable or does not answer in HTTP/1.1, and with the signal's reason when that is aborted.
 */
export async function socketFetch(
  url: string,
  { method, headers, body, signal }: SocketRequest,
  connector: Connector = { connect },
): Promise<HttpAnswer> {
  const target = new URL(url);
  const isSecure = target.protocol === "https:";
  const text = new TextEncoder().encode(requestText(method, target, headers, body));
  const bytes = typeof body === "object" ? Buffer.concat([text, body]) : text;
  signal.throwIfAborted();
  const connection = connector.connect(
    { hostname: target.hostname, port: Number(target.port) || (isSecure ? 443 : 80) },
    // The end of the answer closes the connection; if the server ends it, its reader closes it.
    { secureTransport: isSecure ? "on" : "off", allowHalfOpen: true },
  );
  const close = () => void connection.close().catch(() => {});
  // Closing a connection that is not yet made does not end its reads.
  const aborted = Promise.withResolvers<never>();
  const onAbort = () => {
    close();
    aborted.reject(signal.reason);
  };
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    // A server may answer before it has read everything: the answer shows the result of the request.
    connection.writable
      .getWriter()
      .write(bytes)
      .catch(() => {});
    return await Promise.race([readAnswer(connection, method, close), aborted.promise]);
  } catch (error) {
    signal.removeEventListener("abort", onAbort);
    close();
    throw error;
  }
}

/** Reads the head of the answer. Bytes after it are the beginning of its body. */
async function readAnswer(connection: Connection, method: string, close: () => void): Promise<HttpAnswer> {
  const reader = connection.readable.getReader({ mode: "byob" });
  let buffer = new ArrayBuffer(BUFFER_BYTES);
  let length = 0;
  /** The beginning of the head, and the part that was searched for its end. */
  let start = 0;
  let searched = 0;
  for (;;) {
    const { value, done } = await reader.readAtLeast(1, new Uint8Array(buffer, length));
    if (done) throw new Http1Error("the connection was closed before the answer");
    buffer = value.buffer as ArrayBuffer;
    length += value.byteLength;
    for (;;) {
      const bytes = new Uint8Array(buffer, start, length - start);
      const end = endOfHead(bytes, searched);
      searched = end === -1 ? bytes.length : 0;
      if (end === -1) break;
      const head = parseHead(bytes.subarray(0, end), method);
      if (head) {
        const { status, headers } = head;
        const body = new SocketBody(reader, bytes.subarray(end), head, close);
        return new SocketAnswer(status, headers, NULL_BODY_STATUSES.has(status) ? undefined : body);
      }
      start += end;
    }
    if (length < buffer.byteLength) continue;
    if (length >= MAX_HEAD_BYTES) throw new Http1Error("a head that is too long");
    const larger = new ArrayBuffer(2 * length);
    new Uint8Array(larger).set(new Uint8Array(buffer));
    buffer = larger;
  }
}

/** Its body is a stream only where one is needed: a `Response` with a stream costs as much as several tokens. */
class SocketAnswer implements HttpAnswer {
  readonly status: number;
  readonly headers: HttpAnswer["headers"];
  readonly reader: ByteReader | undefined;
  #body: ReadableStream<Uint8Array> | undefined;

  constructor(status: number, headers: HttpAnswer["headers"], reader: ByteReader | undefined) {
    this.status = status;
    this.headers = headers;
    this.reader = reader;
  }

  get ok(): boolean {
    return this.status >= 200 && this.status < 300;
  }

  get body(): ReadableStream<Uint8Array> | null {
    if (!this.reader) return null;
    this.#body ??= streamOf(this.reader);
    return this.#body;
  }
}

/** A body as it arrives over a connection. The framing is removed in place. */
class SocketBody implements ByteReader {
  readonly #reader: ReadableStreamBYOBReader;
  readonly #framing: Framing;
  readonly #close: () => void;
  #buffer: ArrayBufferLike;
  readonly #pace = new ReadPace();
  /** The bytes that arrived with the head, until the first read. */
  #held: Uint8Array;

  constructor(reader: ReadableStreamBYOBReader, held: Uint8Array<ArrayBuffer>, { framing }: Head, close: () => void) {
    this.#reader = reader;
    this.#buffer = held.buffer;
    this.#framing = framing;
    this.#close = close;
    this.#held = held;
    if (framing.ended) close();
  }

  async read(): Promise<Uint8Array> {
    const held = this.#unframe(this.#held);
    this.#held = NO_BYTES;
    if (held.length > 0) return held;
    const pauseMs = this.#pace.lagPauseMs();
    if (pauseMs > 0) await new Promise<void>((resolve) => setTellingTimeout(resolve, pauseMs));
    while (!this.#framing.ended) {
      const { value, done } = await this.#reader.read(new Uint8Array(this.#buffer));
      if (value) this.#buffer = value.buffer;
      if (done) {
        this.#close();
        if (this.#framing.endsWithConnection) break;
        throw new Http1Error("the connection was closed in the middle of the answer");
      }
      const own = this.#unframe(value);
      this.#pace.note(own.length, pauseMs > 0, Date.now());
      if (own.length > 0) return own;
    }
    return NO_BYTES;
  }

  cancel(): void {
    this.#reader.cancel().catch(() => {});
    this.#close();
  }

  #unframe(bytes: Uint8Array): Uint8Array {
    try {
      const own = this.#framing.unframe(bytes);
      if (this.#framing.ended) this.#close();
      return own;
    } catch (error) {
      this.#close();
      throw error;
    }
  }
}
