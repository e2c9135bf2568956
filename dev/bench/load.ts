import { connect, type Socket } from "node:net";

/**
 * The client of the benchmark: one keep-alive connection on a raw socket. It counts instead of parsing. It must be
 * cheap, because it shares the machine with the measured process.
 */

/** The times of one request, in milliseconds since it was written. */
export interface Sample {
  status: number;
  /** The first byte of the body: for a stream, the first byte of its first event. */
  firstByteMs: number;
  /** The read that contained the first needle, which is the first delta. */
  firstNeedleMs: number;
  totalMs: number;
  needles: number;
  bytes: number;
}

/** The bytes of a request. `needle` is the text that is counted in the answer. */
export interface Request {
  bytes: Buffer;
  needle: Buffer;
}

export function post(path: string, body: unknown, needle: string, headers: Record<string, string> = {}): Request {
  const json = Buffer.from(JSON.stringify(body));
  const more = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  const head = `POST ${path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: ${json.length}\r\n${more.join("")}\r\n`;
  return { bytes: Buffer.concat([Buffer.from(head), json]), needle: Buffer.from(needle) };
}

export function get(path: string, needle: string): Request {
  return { bytes: Buffer.from(`GET ${path} HTTP/1.1\r\nhost: localhost\r\n\r\n`), needle: Buffer.from(needle) };
}

const HEAD_END = Buffer.from("\r\n\r\n");
const EMPTY = Buffer.alloc(0);

/** Reads one HTTP answer: its head, then a body of either framing, counting needles. */
class AnswerReader {
  readonly sample: Sample = { status: 0, firstByteMs: 0, firstNeedleMs: 0, totalMs: 0, needles: 0, bytes: 0 };
  /** Gets the body's bytes. */
  readonly #kept: Buffer[] | undefined;
  readonly #needle: Buffer;
  readonly #started: number;
  #inBody = false;
  #chunked = false;
  /** Bytes of the body, or of the chunk, still to come. */
  #left = 0;
  #isLast = false;
  #held: Buffer = EMPTY;
  /** The end of the last slice, in which a needle may begin. */
  #tail: Buffer = EMPTY;
  #done = false;

  constructor(needle: Buffer, kept: Buffer[] | undefined) {
    this.#needle = needle;
    this.#kept = kept;
    this.#started = performance.now();
  }

  get #now(): number {
    return performance.now() - this.#started;
  }

  /** True when the answer is complete. */
  push(data: Buffer): boolean {
    let bytes = this.#held.length > 0 ? Buffer.concat([this.#held, data]) : data;
    this.#held = EMPTY;
    if (!this.#inBody) {
      const end = bytes.indexOf(HEAD_END);
      if (end === -1) {
        this.#held = bytes;
        return false;
      }
      this.#readHead(bytes.toString("latin1", 0, end));
      bytes = bytes.subarray(end + HEAD_END.length);
    }
    if (this.sample.bytes === 0 && bytes.length > 0) this.sample.firstByteMs = this.#now;
    if (this.#chunked) this.#pushChunked(bytes);
    else this.#pushPlain(bytes);
    if (this.#done) this.sample.totalMs = this.#now;
    return this.#done;
  }

  #readHead(head: string): void {
    this.#inBody = true;
    this.sample.status = Number(head.slice(9, 12));
    this.#chunked = /^transfer-encoding: *chunked/im.test(head);
    if (!this.#chunked) this.#left = Number(/^content-length: *(\d+)/im.exec(head)?.[1] ?? 0);
  }

  #pushPlain(bytes: Buffer): void {
    this.#body(bytes);
    this.#left -= bytes.length;
    this.#done = this.#left <= 0;
  }

  #pushChunked(bytes: Buffer): void {
    let at = 0;
    while (at < bytes.length) {
      if (this.#left === 0) {
        const end = bytes.indexOf(10, at);
        if (end === -1) {
          this.#held = bytes.subarray(at);
          return;
        }
        const size = Number.parseInt(bytes.toString("latin1", at, end - 1), 16);
        this.#isLast = size === 0;
        // The CR LF after a chunk counts as part of it.
        this.#left = size + 2;
        at = end + 1;
      }
      const take = Math.min(this.#left, bytes.length - at);
      const ofBody = Math.min(take, this.#left - 2);
      if (ofBody > 0) this.#body(bytes.subarray(at, at + ofBody));
      this.#left -= take;
      at += take;
    }
    this.#done = this.#isLast && this.#left === 0;
  }

  #body(slice: Buffer): void {
    const needle = this.#needle;
    const before = this.sample.needles;
    if (this.#tail.length > 0) {
      const seam = Buffer.concat([this.#tail, slice.subarray(0, needle.length - 1)]);
      if (seam.includes(needle)) this.sample.needles += 1;
      this.#tail = EMPTY;
    }
    for (let at = slice.indexOf(needle); at !== -1; at = slice.indexOf(needle, at + needle.length)) {
      this.sample.needles += 1;
    }
    // A needle never spans lines.
    if (slice.at(-1) !== 10) this.#tail = slice.subarray(Math.max(0, slice.length - needle.length + 1));
    if (before === 0 && this.sample.needles > 0) this.sample.firstNeedleMs = this.#now;
    this.sample.bytes += slice.length;
    this.#kept?.push(Buffer.from(slice));
  }
}

export class Connection {
  readonly #socket: Socket;
  #reader: AnswerReader | undefined;
  #settle: { resolve(): void; reject(error: Error): void } | undefined;
  /** Called when the body of the current answer has begun. */
  onFirstByte: (() => void) | undefined;
  /** Called after each read with needles, with their number. */
  onNeedles: ((count: number) => void) | undefined;
  /** Called with each piece that was read, including HTTP's framing. */
  onBytes: ((data: Buffer) => void) | undefined;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.setNoDelay(true);
    socket.on("data", (data: Buffer) => {
      const reader = this.#reader;
      if (!reader) return;
      this.onBytes?.(data);
      const { needles, bytes } = reader.sample;
      const done = reader.push(data);
      if (bytes === 0 && reader.sample.bytes > 0) this.onFirstByte?.();
      if (reader.sample.needles > needles) this.onNeedles?.(reader.sample.needles - needles);
      if (done) this.#settle?.resolve();
    });
    socket.on("error", (error) => this.#settle?.reject(error));
    socket.on("close", () => this.#settle?.reject(new Error("the connection was closed in the middle of an answer")));
  }

  static open(port: number): Promise<Connection> {
    return new Promise((resolve, reject) => {
      const socket = connect(port, "127.0.0.1", () => resolve(new Connection(socket)));
      socket.once("error", reject);
    });
  }

  async send(request: Request): Promise<Sample> {
    return this.#send(request, undefined);
  }

  /**
   * Sends a request as `send` does. Also gives the answer's text. `kept` has the bytes that have come, also after an
   * error.
   */
  async read(request: Request, kept: Buffer[] = []): Promise<{ sample: Sample; text: string }> {
    const sample = await this.#send(request, kept);
    return { sample, text: Buffer.concat(kept).toString() };
  }

  async #send(request: Request, kept: Buffer[] | undefined): Promise<Sample> {
    const reader = new AnswerReader(request.needle, kept);
    this.#reader = reader;
    const done = new Promise<void>((resolve, reject) => {
      this.#settle = { resolve, reject };
    });
    this.#socket.write(request.bytes);
    try {
      await done;
    } finally {
      this.#reader = undefined;
      this.#settle = undefined;
    }
    if (reader.sample.status !== 200)
      throw new Error(`status ${reader.sample.status} to ${request.bytes.subarray(0, 300)}`);
    return reader.sample;
  }

  close(): void {
    this.#socket.destroy();
  }
}

/**
 * Sends `request` again and again on `clients` connections for `durationMs`, and waits for the last answers. Of several
 * requests each client has its own.
 */
export async function hammer(
  port: number,
  request: Request | readonly Request[],
  { clients, durationMs }: { clients: number; durationMs: number },
): Promise<{ samples: Sample[]; seconds: number }> {
  const connections = await Promise.all(Array.from({ length: clients }, () => Connection.open(port)));
  const samples: Sample[] = [];
  const start = performance.now();
  try {
    await Promise.all(
      connections.map(async (connection, client) => {
        const own = "bytes" in request ? request : request[client % request.length];
        if (own === undefined) throw new Error("no request");
        while (performance.now() - start < durationMs) samples.push(await connection.send(own));
      }),
    );
    return { samples, seconds: (performance.now() - start) / 1000 };
  } finally {
    for (const connection of connections) connection.close();
  }
}
