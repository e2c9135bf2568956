import type { ModelServerConfig } from "../../config/index.ts";
import { type Hash, hashOf } from "../../protocol/hash.ts";
import type { Candidate } from "./choice.ts";
import { InFlight } from "./in-flight.ts";
import { isEjected, newRecord, type Record } from "./outliers.ts";
import { newRetryBudget, type RetryBudget } from "./retry-budget.ts";

/**
 * What this isolate knows of the servers of its pool. Plain data that all its requests may read and write: a promise that
 * one request has made, no other may wait for.
 */
export interface ServerLoad {
  hash: Hash;
  inFlight: InFlight;
  record: Record;
  /** Until when it has too much to do, as it has said itself or as its silence says. Unix milliseconds. */
  busyUntil: number;
}

/** How long a server is spared that has let a request wait in vain, and at most one that says when it takes requests again. In milliseconds. */
export const MAX_BUSY_MS = 60_000;

const loads = new Map<string, ServerLoad>();

/** Of all requests of this isolate: the servers of a deployment are one pool. */
export const retryBudget: RetryBudget = newRetryBudget(0);

export function loadOf({ name, baseUrl }: Pick<ModelServerConfig, "name" | "baseUrl">): ServerLoad {
  const known = loads.get(baseUrl);
  if (known) return known;
  const load = { hash: hashOf(name), inFlight: new InFlight(), record: newRecord(), busyUntil: 0 };
  loads.set(baseUrl, load);
  return load;
}

/** A server as the choice sees it. */
export function candidateOf(
  server: Pick<ModelServerConfig, "name" | "baseUrl" | "weight" | "drains">,
  now: number,
): Candidate {
  const { hash, inFlight, record, busyUntil } = loadOf(server);
  const { weight, drains } = server;
  return {
    hash,
    weight,
    drains,
    isEjected: isEjected(record, now),
    isBusy: now < busyUntil && busyUntil - now <= MAX_BUSY_MS,
    inFlight: inFlight.count,
  };
}
