/** The files of a tenant, as the container of a turn reads and writes them. */
export interface ContainerFiles {
  /** A file's name and its bytes, as they are read. Throws the 404 of a file that is not there. */
  read(id: string): Promise<{ filename: string; body: AsyncIterable<Uint8Array> }>;
  /** Keeps a file. Throws the 403 of a key that keeps nothing, the 413 and the 429 of limits, and what `bytes` throws: then nothing is kept. */
  keep(file: FileToKeep): Promise<KeptFile>;
}

/** A file that a tool of a turn has made. */
export interface FileToKeep {
  /** The container in which a program has written it; undefined of a file that no program has written. */
  container?: string;
  /** Its place there, or its name. */
  path: string;
  bytes: AsyncIterable<Uint8Array> | Iterable<Uint8Array>;
  mimeType?: string;
  /** How long it is kept; a day without this word. */
  seconds?: number;
}

/** A file that a program has written, as it is kept: JSON. */
export interface KeptFile {
  /** As `file_id`. */
  id: string;
  filename: string;
  /** Its place below `/mnt/data`. */
  path: string;
}

/** A file that a request gives to its container. */
export interface GivenFile {
  id: string;
  filename: string;
}

/** Where a program finds its files, and leaves those that others are to have: OpenAI's. */
export const FILES_DIRECTORY = "/mnt/data";

/** Bytes that the files of a request have together, and that a turn's programs may have kept. */
export const MAX_CONTAINER_BYTES = 64 * 1024 * 1024;
