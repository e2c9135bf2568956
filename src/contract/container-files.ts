/** A tenant's files, as the container of a turn reads and writes them. */
export interface ContainerFiles {
  /** A file's name, and its bytes as a stream. Throws the 404 of a missing file. */
  read(id: string): Promise<{ filename: string; body: AsyncIterable<Uint8Array> }>;
  /**
   * Stores a file. Throws the 403 of a key that may not store, the 413 and the 429 of limits, and the errors of
   * `bytes`; then nothing is stored.
   */
  keep(file: FileToKeep): Promise<KeptFile>;
}

/** A file that a tool of a turn has made. */
export interface FileToKeep {
  /** The container whose program has written it; undefined for other files. */
  container?: string;
  /** Its path in the container, or its name. */
  path: string;
  bytes: AsyncIterable<Uint8Array> | Iterable<Uint8Array>;
  mimeType?: string;
  /** How long it is kept, a day by default. */
  seconds?: number;
}

/** A file that a program has written, as it is stored: JSON. */
export interface KeptFile {
  /** The `file_id`. */
  id: string;
  filename: string;
  /** Its path below `/mnt/data`. */
  path: string;
}

/** A file that a request gives to its container. */
export interface GivenFile {
  id: string;
  filename: string;
}

/** The directory in which a program finds its files, and leaves those to be kept. OpenAI has the same. */
export const FILES_DIRECTORY = "/mnt/data";

/** Most bytes of all files of a request, and of all files of a turn's programs. */
export const MAX_CONTAINER_BYTES = 64 * 1024 * 1024;
