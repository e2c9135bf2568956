import type { FileObjects } from "./bindings.ts";
import { fileRequest } from "./file-bytes.ts";
import type { FileRecord } from "./file-table.ts";
import type { PieceSink } from "./received-part.ts";

/** Where the bytes of a tenant's files are kept. Whoever calls it knows from the directory that the file is there, or is to be. */
export interface BytesAtRest {
  readonly at: FileRecord["at"];
  /** Takes the pieces of a part. */
  sink(key: string, part: number): PieceSink;
  /** The bytes of a file as they are read; null where they are not there. */
  read(record: FileRecord): Promise<ReadableStream<Uint8Array> | null>;
}

/** Bytes in the rows of the object that each file has. */
export function bytesInRows({ FILE_BYTES }: Pick<FileObjects, "FILE_BYTES">, tenant: string): BytesAtRest {
  const objectOf = (key: string) => FILE_BYTES.getByName(`${tenant}:${key}`);
  return {
    at: "rows",
    sink(key, part) {
      const object = objectOf(key);
      return {
        append: async (seq, bytes) => object.append(part, seq, bytes),
        end: async () => {},
      };
    },
    async read(record) {
      const { body, status } = await objectOf(record.key).fetch(fileRequest("content", record));
      return status === 200 ? body : null;
    },
  };
}
