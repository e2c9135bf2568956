import { type Hash, hashOf } from "../hash.ts";
import type { ModelServerConfig } from "../settings.ts";
import { Admission } from "./admission.ts";
import type { Candidate } from "./choice.ts";
import { InFlight } from "./in-flight.ts";
import type { ServerDemand, ServerShare } from "./shares.ts";

/**
 * The load of a server of the pool, as this isolate knows it. Plain data that all its requests may read and write: no
 * request may wait for a promise of another.
 */
export interface ServerLoad {
  /** The server's name, and its hash, by which its conversations find it. */
  name: string;
  hash: Hash;
  inFlight: InFlight;
  admission: Admission;
  record: Record;
  /** Until when it is overloaded, by its own answer or its silence. Unix milliseconds. */
  busyUntil: number;
}

/**
 * How long a server that let a request time out is spared; at most this long if it names a time itself. In
 * milliseconds.
 */
export const MAX_BUSY_MS = 60_000;

const loads = new Map<string, ServerLoad>();

export function loadOf({ name, baseUrl }: Pick<ModelServerConfig, "name" | "baseUrl">): ServerLoad {
  const known = loads.get(baseUrl);
  if (known?.name === name) return known;
  // The configuration may rename a server while it has requests in progress.
  const kept = known ?? newLoad();
  const load = { ...kept, name, hash: hashOf(name) };
  loads.set(baseUrl, load);
  return load;
}

/** The servers with requests of this process in progress, or waiting, and a limit. */
export function takeDemands(): ServerDemand[] {
  return [...loads.values()].flatMap(({ name, admission }) => admission.takeDemand(name) ?? []);
}

/** Takes this process's shares of servers. */
export function noteShares(shares: readonly ServerShare[], now: number): void {
  for (const { name, admission } of loads.values()) {
    const share = shares.find(({ server }) => server === name);
    if (share) admission.noteShare(share, now);
  }
}

function newLoad() {
  const inFlight = new InFlight();
  return { inFlight, admission: new Admission(inFlight), record: newRecord(), busyUntil: 0 };
}

/** A server as the choice sees it. */
export function candidateOf(
  server: Pick<ModelServerConfig, "name" | "baseUrl" | "weight" | "drains" | "keepsConversations">,
  now: number,
): Candidate {
  const { hash, inFlight, record, busyUntil } = loadOf(server);
  const { weight, drains, keepsConversations } = server;
  return {
    hash,
    weight,
    drains,
    keepsConversations,
    isEjected: isEjected(record, now),
    isBusy: now < busyUntil && busyUntil - now <= MAX_BUSY_MS,
    inFlight: inFlight.count,
  };
}

/**
 * Servers that fail are left alone for a while (Envoy's outlier detection, with its defaults): after five failures in a row
 * for 30 s, then 60 s, up to 300 s; at most a tenth of the servers at a time, but one in any case. Plain data.
 */

/** The remembered failures of a server. Times in Unix milliseconds. */
export interface Record {
  /** Failures since the last success. */
  failures: number;
  ejectedUntil: number;
  /** Consecutive ejections. */
  ejections: number;
}

const MAX_FAILURES = 5;
const EJECTION_MS = 30_000;
const MAX_EJECTION_MS = 300_000;
const MAX_EJECTED_SHARE = 0.1;

/** One ejection is forgotten for each such interval without a new one. */
const INTERVAL_MS = 10_000;

export function newRecord(): Record {
  return { failures: 0, ejectedUntil: 0, ejections: 0 };
}

/** A clock that was set back does not prolong it. */
export function isEjected({ ejectedUntil }: Record, now: number): boolean {
  return now < ejectedUntil && ejectedUntil - now <= MAX_EJECTION_MS;
}

export function noteSuccess(record: Record): void {
  record.failures = 0;
}

/** Notes a failure of one of a pool's servers; `records` are those of all of them. True if the server is ejected by it. */
export function noteFailure(record: Record, records: readonly Record[], now: number): boolean {
  record.failures += 1;
  if (record.failures < MAX_FAILURES || isEjected(record, now)) return false;
  const ejected = records.filter((other) => isEjected(other, now)).length;
  if (ejected >= Math.max(1, Math.floor(MAX_EJECTED_SHARE * records.length))) return false;
  const calmFor = Math.max(0, now - record.ejectedUntil);
  record.ejections = Math.max(0, record.ejections - Math.floor(calmFor / INTERVAL_MS)) + 1;
  record.ejectedUntil = now + Math.min(MAX_EJECTION_MS, EJECTION_MS * record.ejections);
  record.failures = 0;
  return true;
}

/**
 * Limits the requests that are repeated at another server (Finagle's retry budget): a fifth of all requests, and ten a
 * second. If all servers are in trouble, retries do not become the greater part of the load. Plain data.
 */
export interface RetryBudget {
  /** Retries that are available now. */
  tokens: number;
  /** When it was last updated, in Unix milliseconds. */
  at: number;
}

const PER_REQUEST = 0.2;
const PER_SECOND = 10;

/** Most retries that may accumulate: those of ten seconds. */
const MAX_TOKENS = 100;

export function newRetryBudget(now: number): RetryBudget {
  return { tokens: PER_SECOND, at: now };
}

/** Counts a first request, not a retry. */
export function noteRequest(budget: RetryBudget, now: number): void {
  refill(budget, now);
  budget.tokens = Math.min(MAX_TOKENS, budget.tokens + PER_REQUEST);
}

/** Takes a retry; false if none is left. */
export function takeRetry(budget: RetryBudget, now: number): boolean {
  refill(budget, now);
  if (budget.tokens < 1) return false;
  budget.tokens -= 1;
  return true;
}

/** A clock that was set back adds nothing. */
function refill(budget: RetryBudget, now: number): void {
  const seconds = Math.max(0, now - budget.at) / 1000;
  budget.tokens = Math.min(MAX_TOKENS, budget.tokens + PER_SECOND * seconds);
  budget.at = now;
}

/** The retries of all requests of this isolate: a deployment's servers are one pool. */
export const retryBudget: RetryBudget = newRetryBudget(0);
