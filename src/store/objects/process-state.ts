import { ApiError } from "@responses-edge/responses-api/errors";
import type { ObjectBinding } from "./registry.ts";

/**
 * The state of a self-hosted process, as its launcher reports it to the Worker (`src/http/launcher.ts`): whether the
 * process is ending, and whether its disk has free space. Cloudflare has no launcher, and reports nothing. workerd has
 * one isolate for each process, with the Worker and all objects in it.
 */
export const processState = {
  /**
   * The process is ending. Work without an end of its own that can continue elsewhere ends at once: idle WebSockets,
   * and readers of runs.
   */
  isEnding: false,
  /** All answers wait until this process stops accepting connections. */
  holdsAnswers: false,
  /** This process accepts no more connections, because another one serves. */
  hasRetired: false,
  /** The process has a launcher, which can tell it to end. */
  hasLauncher: false,
  /** The state of the disk, as the launcher measures it (`cli/serve/free-disk.ts`). Undefined without a launcher that watches it. */
  disk: undefined as DiskState | undefined,
  /** The disk takes nothing new: `noteDisk` derives it once, because every create reads it. */
  isDiskClosed: false,
  /** The latest values; empty without a launcher. */
  measures: {} as ProcessMeasures,
};

export const DISK_STATES = ["ok", "low", "read_only"] as const;
export type DiskState = (typeof DISK_STATES)[number];

/** Takes the state of the disk. */
export function noteDisk(disk: DiskState): void {
  processState.disk = disk;
  processState.isDiskClosed = disk !== "ok";
}

/** Measures of this process that a Worker cannot take, and its launcher does. */
export interface ProcessMeasures {
  /** Free on the data folder's disk. Bytes. */
  freeDisk?: number;
  /** Resident memory; only known on Linux. Bytes. */
  memory?: number;
  /** The end of the server's own certificate, Unix milliseconds. */
  certificateEnd?: number | undefined;
  /** When the newest backup of the data folder began, Unix milliseconds. */
  backupAt?: number | undefined;
  /** The configuration file has errors, and has no effect. Undefined without a file. */
  isFileRefused?: boolean | undefined;
  /** Clients that have closed their connections (`cli/serve/closed-peers.ts`). */
  closedPeers?: readonly string[];
}

/** An object that has failed, as the launcher gets it. */
export interface Suspect {
  /** The binding of its class. */
  binding: ObjectBinding;
  id: string;
  /** Undefined for an object that belongs to all tenants. */
  tenant: string | undefined;
}

/** How often long-lived work checks whether the process ends. Milliseconds. */
const POLL_MS = 500;

/** True once clients should reconnect: to another process, or to this one after its restart. */
export function clientsAreToLeave(): boolean {
  return processState.isEnding || processState.hasRetired;
}

/**
 * Calls back once when the process ends, or when `hasCome`, until the returned function is called. Each caller has a timer of its
 * own, because the runtime lets no request touch the streams and sockets of another one. Without a launcher there is no timer.
 */
export function whenProcessEnds(callBack: () => void, hasCome = () => processState.isEnding): () => void {
  if (!processState.hasLauncher) return () => {};
  const timer = setInterval(() => {
    if (!hasCome()) return;
    clearInterval(timer);
    callBack();
  }, POLL_MS);
  return () => clearInterval(timer);
}

/** Throws the 507 while the disk takes nothing new. To be called before anything begins that would be stored. */
export function checkDisk(): void {
  if (processState.isDiskClosed) throw insufficientStorage();
}

/** An object that cannot be reached now: the process or machine that had it is gone, or is handing it over. */
export function objectUnreachable(): ApiError {
  const message = "The stored data of this request is not reachable at the moment. Please retry in a few seconds.";
  return new ApiError({ status: 503, message, code: "storage_unavailable", headers: { "retry-after": "5" } });
}

/**
 * 507 rather than 503: requests that store nothing are still served, so that a balancer should not take the server for
 * down. Retries within seconds would not find space.
 */
export function insufficientStorage(): ApiError {
  const message =
    processState.disk === "read_only"
      ? "This server's disk is read-only. You can read stored data, and send 'store: false'."
      : "This server's disk is full. You can read stored data, delete it while the disk has any space, and send 'store: false'.";
  return new ApiError({
    status: 507,
    message,
    code: "insufficient_storage",
    headers: { "x-should-retry": "false" },
  });
}
