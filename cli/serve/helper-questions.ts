import type { readChangedFile, readConfiguration } from "../configuration/configuration.ts";
import type { modelServerLines } from "../configuration/model-servers.ts";

/** The messages between `serve` and its helper process. */

/** A number that changes with them. The helper is of the installed version, which may be newer than its caller. */
export const HELPER_VERSION = 1;

/** The functions that the helper calls. */
export interface Answers {
  readConfiguration: typeof readConfiguration;
  readChangedFile: typeof readChangedFile;
  modelServerLines: typeof modelServerLines;
  listen(address: ListenAddress): Promise<Listened>;
}

export interface ListenAddress {
  host: string;
  /** 0 takes a free one. */
  port: number;
  /** True if other sockets may listen there, too (SO_REUSEPORT). */
  isShared: boolean;
}

/** The port of the socket that comes with the answer; or the system's code of the reason why there is none. */
export type Listened = { port: number } | { code: string };

export interface Question {
  id: number;
  version: number;
  name: keyof Answers;
  given: readonly unknown[];
}

export type Answer =
  | { value: unknown }
  | { refusal: { exitCode: number; lines: readonly string[] } }
  /** The stack of an unexpected error. */
  | { fault: string };
