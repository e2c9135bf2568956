import { constants, createBrotliDecompress, createGunzip, createInflate, createZstdDecompress } from "node:zlib";
import { concatBytes } from "@responses-edge/bounded-body";
import { ApiError, invalidRequest } from "@responses-edge/responses-api/errors";

/** Decompresses the body of a request as it comes in, and reports the length after every piece. */

/**
 * The highest ratio of lengths, beyond `FREE_BYTES`. JSON with much repetition becomes 20 to 50 times as long; only
 * attacks (gzip: up to 1,032 times, Brotli and zstd: 100,000 times) exceed this ratio.
 */
const MAX_RATIO = 100;
const FREE_BYTES = 1024 * 1024;

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

/** The encoding of a body; undefined if it is not encoded. Throws the 415 of an unknown one. */
export function encodingOf({ headers }: Request): Encoding | undefined {
  const encoding = (headers.get("content-encoding") ?? "").trim().toLowerCase();
  if (encoding === "" || encoding === "identity") return undefined;
  if (Object.hasOwn(DECODERS, encoding)) return encoding as Encoding;
  const known = Object.keys(DECODERS).join(", ");
  throw new ApiError({
    status: 415,
    message: `Unsupported content encoding. Supported values are: ${known}.`,
    code: "unsupported_content_encoding",
    headers: { "accept-encoding": known },
  });
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
    this.#stream.on("error", (error) => {
      this.#failed.reject(error instanceof ApiError ? error : undecodable());
    });
    // Brotli's decoder ignores `pause`. Only destroying it bounds its output.
    this.#stream.on("data", (piece: Uint8Array<ArrayBuffer>) => {
      if (this.#stream.destroyed) return;
      try {
        this.#length += piece.byteLength;
        if (this.#length > FREE_BYTES + MAX_RATIO * this.#taken) throw ratioTooHigh();
        onLength(this.#length);
        this.#pieces.push(piece);
      } catch (error) {
        this.#stream.destroy(error as Error);
      }
    });
  }

  /** Length of the output so far. Bytes. */
  get length(): number {
    return this.#length;
  }

  /** Decompresses more of the input. Throws the 413 of too high a ratio, the 400 of invalid data, and as `onLength` does. */
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

function undecodable(): ApiError {
  const message = "The body could not be decoded as its Content-Encoding says.";
  return invalidRequest(null, message, "invalid_content_encoding");
}

function ratioTooHigh(): ApiError {
  const message = `The request body is compressed too much: beyond ${FREE_BYTES} bytes it may become ${MAX_RATIO} times as long. Send it without Content-Encoding.`;
  return new ApiError({ status: 413, message, code: "request_too_large" });
}
