import { concatBytes } from "../protocol/bytes.ts";

/** What a model server sends, read in pieces of no less than is asked for. */
export interface ByteReader {
  /**
   * The next bytes: at least `min` of them (1 or more), or fewer where the body ends with them. They are valid until the
   * next read. Rejects when the connection breaks. One read at a time, and none after the end.
   */
  read(min: number): Promise<Uint8Array>;
  /** A read gives all that has come, up to 4 kB and more: nothing is gained by waiting for more. */
  readonly givesAll: boolean;
  /** Gives up the body: what is waited for ends. */
  cancel(): void;
}

/** A read of one token takes a few hundred bytes, and every open stream keeps a buffer. */
const BUFFER_BYTES = 4096;

/** The readers of bodies that are streams only for those who want one. */
const readers = new WeakMap<ReadableStream, ByteReader>();

/** A body as a stream, whose reader stays the one that is given (`readerOf`). */
export function streamOf(reader: ByteReader): ReadableStream<Uint8Array> {
  const body = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const bytes = await reader.read(1);
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
 * The reader of a body: its own where it has one (`streamOf`). What the runtime streams itself is read into one buffer;
 * a stream of JavaScript's is as it is.
 */
export function readerOf(body: ReadableStream<Uint8Array<ArrayBuffer>>): ByteReader {
  const own = readers.get(body);
  if (own) return own;
  let reader: ReadableStreamBYOBReader;
  try {
    reader = body.getReader({ mode: "byob" });
  } catch {
    return new PieceReader(body.getReader());
  }
  return new BufferReader(reader);
}

/** A fetch body gives at most one HTTP chunk per read, and vLLM sends one per token, unless more are asked for. */
class BufferReader implements ByteReader {
  readonly givesAll = false;
  readonly #reader: ReadableStreamBYOBReader;
  #buffer: ArrayBuffer | undefined;

  constructor(reader: ReadableStreamBYOBReader) {
    this.#reader = reader;
  }

  async read(min: number): Promise<Uint8Array> {
    const size = Math.max(BUFFER_BYTES, 2 * min);
    const buffer = this.#buffer && this.#buffer.byteLength >= size ? this.#buffer : new ArrayBuffer(size);
    this.#buffer = undefined;
    const { value, done } = await this.#reader.readAtLeast(min, new Uint8Array(buffer));
    if (done) return NO_BYTES;
    this.#buffer = value.buffer as ArrayBuffer;
    return value;
  }

  cancel(): void {
    this.#reader.cancel().catch(() => {});
  }
}

/** Of a stream that has its own pieces. */
class PieceReader implements ByteReader {
  readonly givesAll = false;
  readonly #reader: ReadableStreamDefaultReader<Uint8Array<ArrayBuffer>>;

  constructor(reader: ReadableStreamDefaultReader<Uint8Array<ArrayBuffer>>) {
    this.#reader = reader;
  }

  async read(min: number): Promise<Uint8Array> {
    const pieces: Uint8Array<ArrayBuffer>[] = [];
    for (let length = 0; length < min; ) {
      const { value } = await this.#reader.read();
      if (!value) break;
      pieces.push(value);
      length += value.length;
    }
    return concatBytes(pieces);
  }

  cancel(): void {
    this.#reader.cancel().catch(() => {});
  }
}

const NO_BYTES = new Uint8Array();
