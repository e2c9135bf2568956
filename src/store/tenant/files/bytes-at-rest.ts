import type { FileRecord } from "./file-table.ts";

/** Bytes of every piece but the last: rows must stay below 2 MB, and Cloudflare's RPC takes 32 MiB. */
export const PIECE_BYTES = 1024 * 1024;

/** Takes the pieces of a part, in order. */
export interface PieceSink {
  append(seq: number, bytes: Uint8Array): Promise<void>;
  /** Ends the part: all pieces have come. */
  end(): Promise<void>;
}

/** Stores the bytes of a tenant's files. Callers know from the directory that the file exists, or is to exist. */
export interface BytesAtRest {
  readonly at: FileRecord["at"];
  /** Takes the pieces of a part. */
  sink(key: string, part: number): PieceSink;
  /** The bytes of a file as a stream; null if they are missing. */
  read(record: FileRecord): Promise<ReadableStream<Uint8Array> | null>;
}
