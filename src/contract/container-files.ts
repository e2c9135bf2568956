import type { MemoryLimit } from "@responses-edge/responses-api/platform/containers";

/** A tenant's files, as the container of a turn reads and writes them. */
export interface ContainerFiles {
  /** A file's name, and its bytes as a stream. Throws the 404 of a missing file. */
  read(id: string): Promise<{ filename: string; body: AsyncIterable<Uint8Array> }>;
  /**
   * Stores a file. Throws the 403 of a key that may not store, the 413 and the 429 of limits, and the errors of
   * `bytes`; then nothing is stored.
   */
  keep(file: FileToKeep): Promise<KeptFile>;
  /** Tells whether a container of the tenant can be used now. */
  isRunning(container: string): Promise<boolean>;
  /** Begins the use of a container. With `own` it is made if it does not exist. Throws the 400 of a tenant with as many as it may have. */
  use(container: string, own: OwnContainer | undefined): Promise<ContainerUse>;
  /** Notes that the tool server has a session for a container, and what it was told of its files. */
  settle(container: string, told: readonly PendingFile[]): Promise<void>;
  /** Notes that the use of a container has ended. */
  touch(container: string): Promise<void>;
  /** Notes that the tool server has lost a container. */
  lose(container: string): Promise<void>;
}

/** A file of a container that the tool server has to be told of, at the container's next use. */
export interface PendingFile {
  /** The file's id without its prefix. */
  key: string;
  /** Its path below `/mnt/data`. */
  path: string;
  /** True if it is to be removed there; otherwise it is to be written. */
  isGone: boolean;
}

/** A container at the beginning of its use in a turn. */
export type ContainerUse =
  | { kind: "missing" }
  | { kind: "expired" }
  | {
      kind: "ready";
      /** True if the tool server has a session for it. */
      isOpen: boolean;
      /** How long the tool server keeps it without use. */
      minutes: number;
      memory: MemoryLimit | null;
      pending: readonly PendingFile[];
    };

/** A container that a turn makes for itself. */
export interface OwnContainer {
  memory: MemoryLimit | null;
  /** The ids of the request's files. */
  given: readonly string[];
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

/** How long a file of a container is kept after the last use of the container, at least. */
export const CONTAINER_FILE_SECONDS = 86_400;

/** Most bytes of all files of a request, and of all files of a turn's programs. */
export const MAX_CONTAINER_BYTES = 64 * 1024 * 1024;
