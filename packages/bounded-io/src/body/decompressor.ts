import { constants, createBrotliDecompress, createGunzip, createInflate, createZstdDecompress } from "node:zlib";
import { concatBytes } from "./bounded-read.ts";

/** Decompresses a body as it arrives, and reports the length after every piece. */

/**
 * The highest ratio of lengths, beyond `FREE_BYTES`. JSON with much repetition becomes 20 to 50 times as long; only
 * attacks (gzip: up to 1,032 times, Brotli and zstd: 100,000 times) exceed this ratio.
 */
export const MAX_RATIO = 100;
export const FREE_BYTES = 1024 * 1024;

/** The length of a piece of output. */
const PIECE_BYTES = 64 * 1024;

/** RFC 9659: no window in a `Content-Encoding: zstd` is larger than 8 MB. */
const ZSTD_WINDOW_LOG = 23;

const DECODERS = {
  gzip: () => createGunzip({ chunkSize: PIECE_BYTES }),
  "x-gzip": () => createGunzip({ chunkSize: PIECE_BYTES }),
  deflate: () => createInflate({ chunkSize: PIECE_BYTES }),
  br: () => createBrotliDecompress({ chunkSize: PIECE_BYTES }),
  zstd: () =>
    createZstdDecompress({
      chunkSize: PIECE_BYTES,
      params: { [constants.ZSTD_d_windowLogMax]: ZSTD_WINDOW_LOG },
    }),
};

export type Encoding = keyof typeof DECODERS;

/** The names of encodings, as `Content-Encoding` has them. */
export const ENCODINGS = Object.keys(DECODERS) as readonly Encoding[];

/** The reason why a body was not decompressed: it violates its encoding, or expands too much (`MAX_RATIO`). */
export class DecompressionFault extends Error {
  override readonly name = "DecompressionFault";
  readonly kind: "malformed" | "ratio";

  constructor(kind: DecompressionFault["kind"]) {
    super(`The body could not be decompressed: ${kind}.`);
    this.kind = kind;
  }
}

export class Decompressor implements Disposable {
  readonly #stream: ReturnType<(typeof DECODERS)[Encoding]>;
  readonly #failed = Promise.withResolvers<never>();
  readonly #pieces: Uint8Array<ArrayBuffer>[] = [];
  #taken = 0;
  #length = 0;

  /** `onLength` gets the length of the output so far. Its errors end the decompression. */
  constructor(encoding: Encoding, onLength: (length: number) => void) {
    this.#stream = DECODERS[encoding]();
    this.#failed.promise.catch(() => {});
    // The first fault counts: that of a piece comes before that of the stream which it destroys.
    this.#stream.on("error", () => this.#failed.reject(new DecompressionFault("malformed")));
    // Brotli's decoder ignores `pause`. Only destroying it bounds its output.
    this.#stream.on("data", (piece: Uint8Array<ArrayBuffer>) => {
      if (this.#stream.destroyed) return;
      try {
        this.#length += piece.byteLength;
        if (this.#length > FREE_BYTES + MAX_RATIO * this.#taken) throw new DecompressionFault("ratio");
        onLength(this.#length);
        this.#pieces.push(piece);
      } catch (error) {
        this.#failed.reject(error);
        this.#stream.destroy();
      }
    });
  }

  /** Length of the output so far. Bytes. */
  get length(): number {
    return this.#length;
  }

  /** Decompresses more of the input. Throws DecompressionFault, and as `onLength` does. */
  async write(bytes: Uint8Array): Promise<void> {
    this.#taken += bytes.byteLength;
    await Promise.race([
      new Promise<void>((resolve) => this.#stream.write(bytes, () => resolve())),
      this.#failed.promise,
    ]);
  }

  /** Ends the input, and gives the whole output. Throws as `write` does. */
  async end(): Promise<Uint8Array<ArrayBuffer>> {
    const ended = new Promise<void>((resolve) => this.#stream.on("end", resolve));
    this.#stream.end();
    await Promise.race([ended, this.#failed.promise]);
    return concatBytes(this.#pieces);
  }

  [Symbol.dispose](): void {
    this.#stream.destroy();
  }
}
