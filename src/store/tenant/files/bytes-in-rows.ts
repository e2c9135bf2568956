import type { Env } from "../../../env.ts";
import type { BytesAtRest } from "./bytes-at-rest.ts";
import { askFile } from "./file-bytes.ts";

/** Stores bytes in the rows of the object that each file has. */
export function bytesInRows({ FILE_BYTES }: Pick<Env, "FILE_BYTES">, tenant: string): BytesAtRest {
  const objectOf = (key: string) => FILE_BYTES.getByName(tenant, key);
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
      const { body, status } = await askFile(objectOf(record.key), "content", record);
      return status === 200 ? body : null;
    },
  };
}
