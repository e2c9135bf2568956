import type { FileRecord } from "./file-table.ts";

/** Bytes of a piece but the last: rows must stay below 2 MB, and Cloudflare's RPC takes 32 MiB. */
export const PIECE_BYTES = 1024 * 1024;

/** Where the pieces of a part go, one after another. */
export interface PieceSink {
  append(seq: number, bytes: Uint8Array): Promise<void>;
  /** All pieces are there. */
  end(): Promise<void>;
}

/** Where the bytes of a tenant's files are kept. Callers know from the directory that the file is there, or is to be. */
export interface BytesAtRest {
  readonly at: FileRecord["at"];
  /** Takes the pieces of a part. */
  sink(key: string, part: number): PieceSink;
  /** The bytes of a file as they are read; null where they are not there. */
  read(record: FileRecord): Promise<ReadableStream<Uint8Array> | null>;
}
