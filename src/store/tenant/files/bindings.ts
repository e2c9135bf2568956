import type { DurableObject } from "cloudflare:workers";
import type { Variables } from "../../../config/index.ts";
import type { FileBytes } from "./file-bytes.ts";
import type { FileDirectory } from "./file-directory.ts";

/**
 * The objects that store files: a tenant's directory has the name of the tenant, a file's bytes have tenant + key. The
 * variables say whether a bucket has the bytes.
 */
export interface FileObjects extends Variables {
  FILE_DIRECTORIES: DurableObjectNamespace<FileDirectory>;
  FILE_BYTES: DurableObjectNamespace<FileBytes>;
}

/** A directory as its callers see it. (A stub's own type turns an answer that is a union into a union of promises.) */
export type DirectoryStub = {
  [Name in Exclude<keyof FileDirectory, keyof DurableObject>]: (
    ...args: Parameters<FileDirectory[Name]>
  ) => Promise<Awaited<ReturnType<FileDirectory[Name]>>>;
};
