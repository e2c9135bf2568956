import { LongWork } from "@responses-edge/bounded-io/long-work";
import { ApiError } from "@responses-edge/responses-api/errors";
import type { FileLimits } from "../../../contract/grants.ts";
import { type PermitOwner, Permits } from "../../limits/permits.ts";
import type { Stub } from "../../objects/objects.ts";
import { unwrap } from "../../objects/rpc.ts";
import { PIECE_BYTES, type PieceSink } from "./bytes-at-rest.ts";

export interface Receiver extends PermitOwner {
  limits: FileLimits;
  /** The most bytes of this part. */
  maxBytes: number;
  /** The form field of the part. */
  field: string;
}

/** The directory is told of progress after this many bytes, or this much time. */
const TOUCH_BYTES = 16 * PIECE_BYTES;
const TOUCH_MS = 60_000;

/** The first size of a part's buffer: most files are small. */
const FIRST_BUFFER_BYTES = 64 * 1024;

/**
 * A file, or a part of an upload, that is being received. At most one piece of it is in memory. Nobody sees it before
 * it is committed.
 */
/** The microseconds that receiving and storing a byte takes, about. */
const UNITS_PER_BYTE = 1 / 100;

export class ReceivedPart implements Disposable {
  readonly key: string;
  readonly part: number;
  readonly #directory: Stub<"FILE_DIRECTORIES">;
  readonly #sink: PieceSink;
  readonly #receiver: Receiver;
  readonly #permits: Permits;
  readonly #work: LongWork;
  #buffer = new Uint8Array(FIRST_BUFFER_BYTES);
  #buffered = 0;
  #length = 0;
  #pieces = 0;
  #noted = 0;
  #touchedAt = Date.now();

  constructor(
    { key, part }: { key: string; part: number },
    directory: Stub<"FILE_DIRECTORIES">,
    sink: PieceSink,
    receiver: Receiver,
  ) {
    this.key = key;
    this.part = part;
    this.#directory = directory;
    this.#sink = sink;
    this.#receiver = receiver;
    this.#permits = new Permits("body", receiver, this.#buffer.length);
    this.#work = new LongWork(receiver.tenant);
  }

  /** Bytes that have come. */
  get length(): number {
    return this.#length;
  }

  /**
   * Takes bytes, which the caller may overwrite afterwards. Throws the 413 of a part that is too large, and as the
   * directory's `touch` does.
   */
  async write(bytes: Uint8Array): Promise<void> {
    this.#length += bytes.length;
    const { maxBytes, field } = this.#receiver;
    if (this.#length > maxBytes) throw tooLarge(field, maxBytes);
    for (let at = 0; at < bytes.length; ) {
      if (this.#buffered === PIECE_BYTES) await this.#flush();
      this.#grow(bytes.length - at);
      const part = bytes.subarray(at, at + this.#buffer.length - this.#buffered);
      this.#buffer.set(part, this.#buffered);
      this.#buffered += part.length;
      at += part.length;
    }
    if (this.#length - this.#noted >= TOUCH_BYTES || Date.now() - this.#touchedAt > TOUCH_MS) await this.#touch();
  }

  /** Stores the rest: all bytes have come. */
  async end(): Promise<void> {
    // An empty part is one empty piece.
    if (this.#buffered > 0 || this.#pieces === 0) await this.#flush();
    await this.#sink.end();
  }

  [Symbol.dispose](): void {
    this.#permits[Symbol.dispose]();
  }

  /** Grows the buffer to take `more` bytes, up to the length of a piece. */
  #grow(more: number): void {
    const wanted = Math.min(PIECE_BYTES, this.#buffered + more);
    if (wanted <= this.#buffer.length) return;
    const length = Math.min(PIECE_BYTES, Math.max(2 * this.#buffer.length, wanted));
    this.#permits.resize(length);
    const larger = new Uint8Array(length);
    larger.set(this.#buffer.subarray(0, this.#buffered));
    this.#buffer = larger;
  }

  async #flush(): Promise<void> {
    await this.#work.spend(this.#buffered * UNITS_PER_BYTE);
    // Copied, because a view is sent with its whole buffer.
    await this.#sink.append(this.#pieces, this.#buffer.slice(0, this.#buffered));
    this.#pieces += 1;
    this.#buffered = 0;
  }

  async #touch(): Promise<void> {
    this.#noted = this.#length;
    this.#touchedAt = Date.now();
    const touched = await this.#directory.touch(
      { key: this.key, part: this.part, bytes: this.#length },
      this.#receiver.limits,
    );
    if (!unwrap(touched)) throw givenUp();
  }
}

function tooLarge(field: string, maxBytes: number): ApiError {
  const message =
    field === "data"
      ? `The part is too large: a part has ${maxBytes} bytes at most.`
      : `The file is too large: this server takes files of up to ${maxBytes} bytes (MAX_FILE_BYTES).`;
  return new ApiError({ status: 413, message, param: field, code: "file_too_large" });
}

/** The 409 of a file whose sender was silent for so long that its bytes were removed. */
export function givenUp(): ApiError {
  const message = "The upload was abandoned, because no data arrived for too long. Please send it again.";
  return new ApiError({ status: 409, message, param: "file", code: "upload_abandoned" });
}
