/** What a model server sends, as it comes. */
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

/** What a read at the end gives. */
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
 * The reader of a body: its own where it has one (`streamOf`). What the runtime streams itself is read into one buffer;
 * a stream of JavaScript's is as it is.
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
  return new BufferReader(reader);
}

/** A fetch body gives at most one HTTP chunk per read, and vLLM sends one per token. */
class BufferReader implements ByteReader {
  readonly #reader: ReadableStreamBYOBReader;
  #buffer: ArrayBufferLike = new ArrayBuffer(BUFFER_BYTES);

  constructor(reader: ReadableStreamBYOBReader) {
    this.#reader = reader;
  }

  async read(): Promise<Uint8Array> {
    const { value, done } = await this.#reader.read(new Uint8Array(this.#buffer));
    if (done) return NO_BYTES;
    this.#buffer = value.buffer;
    return value;
  }

  cancel(): void {
    this.#reader.cancel().catch(() => {});
  }
}

/** Of a stream that has its own pieces. */
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
