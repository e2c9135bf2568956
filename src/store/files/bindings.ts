import type { FileBytes } from "./file-bytes.ts";
import type { FileDirectory } from "./file-directory.ts";

/** The objects that keep files: the directory of a tenant is named as the tenant, the bytes of a file tenant + key. */
export interface FileObjects {
  FILE_DIRECTORIES: DurableObjectNamespace<FileDirectory>;
  FILE_BYTES: DurableObjectNamespace<FileBytes>;
}
