import { logLine } from "@responses-edge/bounded-io/json-text";
import { ApiError } from "@responses-edge/responses-api/errors";
import type { R2Binding } from "../../../config/files.ts";
import { type BytesAtRest, PIECE_BYTES, type PieceSink } from "./bytes-at-rest.ts";
import type { FileRecord } from "./file-table.ts";
import { type Bucket, LISTED } from "./object-bucket.ts";

/** R2, as a bucket. */
export function r2Bucket(bucket: R2Binding): Bucket {
  return {
    put: async (name, bytes) => {
      await bucket.put(name, bytes);
    },
    get: async (name) => {
      const found = await bucket.get(name);
      return found && new Uint8Array(await found.arrayBuffer());
    },
    list: async (prefix, after) => {
      const { objects } = await bucket.list({ prefix, limit: LISTED, ...(after && { startAfter: after }) });
      return objects.map(({ key }) => key);
    },
    remove: async (names) => bucket.delete([...names]),
  };
}

/**
 * The bytes of a tenant's files in a bucket: an object for each piece, named `tenant/file/part/piece`. So an upload
 * holds one piece in memory, and a repeated piece changes nothing. Throws the 503 of a bucket that does not answer.
 */
export class BytesInBucket implements BytesAtRest {
  readonly at: FileRecord["at"];
  readonly #bucket: Bucket;
  readonly #root: string;

  constructor(at: FileRecord["at"], bucket: Bucket, tenant: string) {
    this.at = at;
    this.#bucket = bucket;
    this.#root = `${inName(tenant)}/`;
  }

  sink(key: string, part: number): PieceSink {
    return {
      append: (seq, bytes) => this.#ask((bucket) => bucket.put(this.#nameOf(key, part, seq), bytes)),
      end: async () => {},
    };
  }

  async read(record: FileRecord): Promise<ReadableStream<Uint8Array> | null> {
    const pieces = this.pieces(record);
    // The first piece is read before the answer begins, so that an unreachable bucket is still a 503.
    let next = await pieces.next();
    if (next.done && record.bytes > 0) return null;
    return new ReadableStream<Uint8Array>(
      {
        async pull(controller) {
          if (next.done) return controller.close();
          controller.enqueue(next.value);
          next = await pieces.next();
        },
      },
      { highWaterMark: 0 },
    );
  }

  /** The pieces of a file, in order. They end early if some are missing, which the file's length shows. */
  async *pieces({ key, parts, bytes }: Pick<FileRecord, "key" | "parts" | "bytes">): AsyncGenerator<Uint8Array, void> {
    let left = bytes;
    for (const part of parts) {
      for (let seq = 0; left > 0; seq += 1) {
        const piece = await this.#ask((bucket) => bucket.get(this.#nameOf(key, part, seq)));
        if (!piece) break;
        left -= piece.length;
        if (piece.length > 0) yield piece;
        if (piece.length < PIECE_BYTES) break;
      }
    }
  }

  /** Removes the pieces of a file, except those of the parts that are kept. */
  async remove(key: string, kept: readonly number[] | null): Promise<void> {
    const prefix = `${this.#root}${key}/`;
    const keeps = new Set(kept?.map((part) => String(part)));
    for (let after = ""; ; ) {
      const names = await this.#ask((bucket) => bucket.list(prefix, after));
      const gone = names.filter((name) => !keeps.has(name.slice(prefix.length).split("/")[0] ?? ""));
      if (gone.length > 0) await this.#ask((bucket) => bucket.remove(gone));
      after = names.at(-1) ?? "";
      if (names.length < LISTED) return;
    }
  }

  #nameOf(key: string, part: number, seq: number): string {
    return `${this.#root}${key}/${part}/${seq}`;
  }

  async #ask<T>(question: (bucket: Bucket) => Promise<T>): Promise<T> {
    try {
      return await question(this.#bucket);
    } catch (error) {
      console.error(logLine({ level: "error", file_bucket: this.at, error: String(error) }));
      throw bucketFault();
    }
  }
}

/** The 503 of a bucket that does not answer, or that has older files and is no longer configured. */
export function bucketFault(): ApiError {
  const message = "The file storage does not answer. Please try again.";
  return new ApiError({ status: 503, message, code: "file_storage_unavailable" });
}

/**
 * A tenant's name in an object's name: letters, digits and `-._~%`, which need no escape in URLs or XML. A name of only
 * dots would be a path.
 */
function inName(tenant: string): string {
  const escaped = (char: string) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`;
  return encodeURIComponent(tenant)
    .replaceAll(/[!'()*]/g, escaped)
    .replaceAll(/^\./g, escaped);
}
