import type { PastSource } from "../assembly/past.ts";
import type { Config } from "../config.ts";
import type { HomeClient } from "../store/client.ts";

/** Who asks, and what the transport and the platform hand on: all operations of the API take it. */
export interface Caller {
  config: Config;
  tenant: string;
  /** The tenant's homes. */
  homes: HomeClient;
  /** Where earlier turns are read. */
  past: PastSource;
  /** Aborted when the client leaves. */
  signal: AbortSignal;
  /** Keeps the process alive for what is still to be done after the answer. */
  waitUntil: (promise: Promise<unknown>) => void;
}
