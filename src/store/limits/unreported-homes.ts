/**
 * The homes of this isolate that have stored something which the quota of their tenant does not know yet. Ended requests keep
 * what they have reserved until then.
 */

/** The longest that an unreported change counts as such: its home reports it later in any case. Milliseconds. */
const REPORTED_WITHIN_MS = 10_000;

/** Orders the changes in this isolate. */
let latest = 0;

/** By tenant and home: the first change that is not reported, and the last one. */
const unreported = new Map<string, Map<string, { first: number; last: number }>>();

/** Notes that a home has stored or removed something that is counted. */
export function noteChange(tenant: string, home: string): void {
  latest = Math.max(Date.now(), latest + 1);
  const homes = unreported.get(tenant) ?? new Map<string, { first: number; last: number }>();
  unreported.set(tenant, homes.set(home, { first: homes.get(home)?.first ?? latest, last: latest }));
}

/** Names the latest change. */
export function latestChange(): number {
  return latest;
}

/** Notes that a home has reported its changes up to `change`. */
export function noteReport(tenant: string, home: string, change: number): void {
  const homes = unreported.get(tenant);
  const last = homes?.get(home)?.last ?? 0;
  if (last > change) homes?.set(home, { first: change + 1, last });
  else if (homes?.delete(home) && homes.size === 0) unreported.delete(tenant);
}

/** Tells whether the homes of a tenant in this isolate have reported their changes up to `change`. Homes elsewhere are unknown here. */
export function areReported(tenant: string, change: number): boolean {
  for (const [home, { first }] of unreported.get(tenant) ?? []) {
    if (first < Date.now() - REPORTED_WITHIN_MS) noteReport(tenant, home, latest);
    else if (first <= change) return false;
  }
  return true;
}
