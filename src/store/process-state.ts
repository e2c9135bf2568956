import { ApiError } from "@responses-edge/responses-api/errors";

/**
 * The state of a process of one's own, as its launcher tells the Worker (`src/http/launcher.ts`): that the process ends, and whether its
 * disk has room. Cloudflare has no launcher, and nothing is told there. workerd has one isolate for each process, with the Worker and all
 * objects in it.
 */
export const processState = {
  /** The process ends. Work that could last for ever, and can go on elsewhere, ends at once: idle WebSockets, and readers of runs. */
  isEnding: false,
  /** Another process takes new requests. */
  isHandedOver: false,
  /** Somebody can tell this process to end. */
  hasLauncher: false,
  /** The state of the disk, as the launcher measures it (`cli/free-disk.ts`). Undefined where nobody watches a disk. */
  disk: undefined as DiskState | undefined,
  /** As they were told last; none where there is no launcher. */
  measures: {} as ProcessMeasures,
};

export type DiskState = "ok" | "low";

/** Measures of this process that its launcher takes: nothing in a Worker can. Bytes. */
export interface ProcessMeasures {
  /** Free on the data folder's disk. */
  freeDisk?: number;
  /** Resident memory; Linux tells it. */
  memory?: number;
}

/** An object that has failed, as the launcher is told of it. */
export interface Suspect {
  /** The binding by which its class is reached. */
  binding: string;
  id: string;
  /** Undefined of an object that is all tenants'. */
  tenant: string | undefined;
}

/** How often what lasts looks whether the process ends. Milliseconds. */
const LOOK_MS = 1_000;

/** True once clients are to connect again: to another process, or to this one's next life. */
export function clientsAreToLeave(): boolean {
  return processState.isEnding || processState.isHandedOver;
}

/**
 * Calls back once when the process ends, or another condition holds, until what it gives is called. Each asker looks by a timer of its own, because the runtime lets no
 * request touch the streams and sockets of another one. Where nobody can tell the process to end there is no timer.
 */
export function whenProcessEnds(callBack: () => void, hasCome = () => processState.isEnding): () => void {
  if (!processState.hasLauncher) return () => {};
  const timer = setInterval(() => {
    if (!hasCome()) return;
    clearInterval(timer);
    callBack();
  }, LOOK_MS);
  return () => clearInterval(timer);
}

/** Throws the 507 while the disk is low. To be called before anything new is begun that would be stored. */
export function checkDisk(): void {
  if (processState.disk === "low") throw insufficientStorage();
}

/**
 * 507 rather than 503: the server goes on with all that stores nothing, so that no balancer is to take it for one that is down.
 * Its clients' own retries, in seconds, would not find room.
 */
export function insufficientStorage(): ApiError {
  return new ApiError({
    status: 507,
    message:
      "This server's disk has no room for anything new. What is stored can be read and deleted, and `store: false` is served.",
    code: "insufficient_storage",
    headers: { "x-should-retry": "false" },
  });
}
