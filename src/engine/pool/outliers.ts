/**
 * Servers that fail are left alone for a while (Envoy's outlier detection, with its defaults): after five failures in a row
 * for 30 s, then 60 s, up to 300 s; at most a tenth of the servers at a time, but one in any case. Plain data.
 */

/** What is remembered of a server's failures. Times in Unix milliseconds. */
export interface Record {
  /** Failures since the last success. */
  failures: number;
  ejectedUntil: number;
  /** How often in a row it was ejected. */
  ejections: number;
}

const MAX_FAILURES = 5;
const EJECTION_MS = 30_000;
const MAX_EJECTION_MS = 300_000;
const MAX_EJECTED_SHARE = 0.1;

/** For each of these in which a server was not ejected, one ejection is forgotten. */
const INTERVAL_MS = 10_000;

export function newRecord(): Record {
  return { failures: 0, ejectedUntil: 0, ejections: 0 };
}

/** A clock that was set back does not make it longer. */
export function isEjected({ ejectedUntil }: Record, now: number): boolean {
  return now < ejectedUntil && ejectedUntil - now <= MAX_EJECTION_MS;
}

export function noteSuccess(record: Record): void {
  record.failures = 0;
}

/** Notes a failure of one of a pool's servers, `records` being those of all of them. */
export function noteFailure(record: Record, records: readonly Record[], now: number): void {
  record.failures += 1;
  if (record.failures < MAX_FAILURES || isEjected(record, now)) return;
  const ejected = records.filter((other) => isEjected(other, now)).length;
  if (ejected >= Math.max(1, Math.floor(MAX_EJECTED_SHARE * records.length))) return;
  const calmFor = Math.max(0, now - record.ejectedUntil);
  record.ejections = Math.max(0, record.ejections - Math.floor(calmFor / INTERVAL_MS)) + 1;
  record.ejectedUntil = now + Math.min(MAX_EJECTION_MS, EJECTION_MS * record.ejections);
  record.failures = 0;
}
