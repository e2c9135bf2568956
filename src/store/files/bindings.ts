import type { DurableObject } from "cloudflare:workers";
import type { Variables } from "../../config/index.ts";
import type { FileBytes } from "./file-bytes.ts";
import type { FileDirectory } from "./file-directory.ts";

/**
 * The objects that keep files: the directory of a tenant is named as the tenant, the bytes of a file tenant + key. The variables say whether a
 * bucket has the bytes.
 */
export interface FileObjects extends Variables {
  FILE_DIRECTORIES: DurableObjectNamespace<FileDirectory>;
  FILE_BYTES: DurableObjectNamespace<FileBytes>;
}

/** A directory as its callers see it. (The type of a stub gives an answer that is a union as a union of promises.) */
export type DirectoryStub = {
  [Name in Exclude<keyof FileDirectory, keyof DurableObject>]: (
    ...args: Parameters<FileDirectory[Name]>
  ) => Promise<Awaited<ReturnType<FileDirectory[Name]>>>;
};
