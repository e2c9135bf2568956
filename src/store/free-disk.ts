import { ApiError } from "@responses-edge/responses-api/errors";

/**
 * The state of the disk: it has room for what is new, or not. The launcher of a process of one's own measures it (`cli/free-disk.ts`), and tells
 * the Worker when it changes; Cloudflare has no disk that could be full, and nobody tells.
 */

export type DiskState = "ok" | "low";

/** The state as this isolate knows it: workerd has one for each process, with the Worker and all objects in it. */
let state: DiskState | undefined;

export function noteDisk(told: DiskState): void {
  state = told;
}

/** Measures of this process that its launcher takes: nothing in a Worker can. Bytes. */
export interface ProcessMeasures {
  /** Free on the data folder's disk. */
  freeDisk?: number;
  /** Resident memory; Linux tells it. */
  memory?: number;
}

let measures: ProcessMeasures = {};

export function noteMeasures(told: ProcessMeasures): void {
  measures = told;
}

/** The measures as they were told last; none where there is no launcher. */
export function processMeasures(): ProcessMeasures {
  return measures;
}

/** Undefined where nobody watches a disk. */
export function diskState(): DiskState | undefined {
  return state;
}

/** Throws the 507 while the disk is low. To be called before anything new is begun that would be stored. */
export function checkDisk(): void {
  if (state === "low") throw insufficientStorage();
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
