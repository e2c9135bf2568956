import { logLine } from "@responses-edge/json-text";
import type { Quota, StoredReport } from "./quota/quota.ts";
import { isRetryable } from "./rpc.ts";

/**
 * How homes tell their tenant's quota what they store. Each report says all that a home stores, so only its latest counts. Those
 * of a tenant's homes in this isolate are told by one call at a time, with all that has come meanwhile.
 */

type QuotaNamespace = DurableObjectNamespace<Quota>;
type Dated = StoredReport & { at: number };

interface Told {
  report: StoredReport;
  /** Called when the quota knows it. */
  onTold: () => void;
}

interface Untold {
  report: Dated;
  /** When the earliest report was made that this one has taken the place of: its own, where there is none. */
  from: number;
}

/** The reports of one tenant that wait to be told. */
interface Queue {
  waiting: Map<string, Untold & Pick<Told, "onTold">>;
  /** Since when the call lasts that is under way, Unix milliseconds. The object that has made it may have been ended since. */
  askingSince: number | undefined;
}

const queues = new Map<string, Queue>();

/** A call that lasts longer is taken for one of an object that has ended. */
const CALL_WITHIN_MS = 10_000;

/** Orders the reports of this isolate. */
let lastAt = 0;

/** By tenant, the times of the reports that are not told yet. */
const untold = new Map<string, Set<number>>();

/** Dates a report, which takes the place of one that waits. */
function dated(tenant: string, report: StoredReport, replaced: Untold | undefined): Untold {
  lastAt = Math.max(Date.now(), lastAt + 1);
  const from = replaced?.from ?? lastAt;
  const ofTenant = untold.get(tenant) ?? new Set();
  untold.set(tenant, ofTenant.add(from));
  return { report: { ...report, at: lastAt }, from };
}

/** Names the latest report of this isolate's homes. */
export function latestReport(): number {
  return lastAt;
}

/**
 * Tells whether a tenant's reports up to `latest` were told, as far as they are this isolate's: those of homes elsewhere nobody knows here.
 * A report that could not be told counts as told: the home's alarm tells it.
 */
export function isTold(tenant: string, latest: number): boolean {
  const since = Date.now() - CALL_WITHIN_MS;
  for (const from of untold.get(tenant) ?? []) if (from <= latest && from > since) return false;
  return true;
}

/** Tells it with the next call. Never rejects: what cannot be told the home's alarm tells again. */
export async function tellStoredSoon(quotas: QuotaNamespace, tenant: string, told: Told): Promise<void> {
  const queue = queues.get(tenant) ?? { waiting: new Map(), askingSince: undefined };
  queues.set(tenant, queue);
  const { report, onTold } = told;
  queue.waiting.set(report.home, { ...dated(tenant, report, queue.waiting.get(report.home)), onTold });
  const now = Date.now();
  if (queue.askingSince !== undefined && Math.abs(now - queue.askingSince) < CALL_WITHIN_MS) return;
  while (queue.waiting.size > 0) {
    const batch = [...queue.waiting.values()];
    queue.waiting.clear();
    const since = Date.now();
    queue.askingSince = since;
    const isHeard = await take(quotas, tenant, batch);
    if (isHeard) for (const each of batch) each.onTold();
    // Another object has taken over.
    if (queue.askingSince !== since) return;
  }
  queues.delete(tenant);
}

/** Tells it now; whether the quota has heard it. Never rejects. */
export function tellStored(quotas: QuotaNamespace, tenant: string, report: StoredReport): Promise<boolean> {
  const waiting = queues.get(tenant)?.waiting;
  const now = dated(tenant, report, waiting?.get(report.home));
  waiting?.delete(report.home);
  return take(quotas, tenant, [now]);
}

async function take(quotas: QuotaNamespace, tenant: string, batch: readonly Untold[]): Promise<boolean> {
  const reports = batch.map(({ report }) => report);
  const tell = () => quotas.getByName(tenant).takeStored(reports);
  try {
    await tell().catch((error: unknown) => {
      if (!isRetryable(error)) throw error;
      return tell();
    });
    return true;
  } catch (error) {
    const name = error instanceof Error ? error.name : typeof error;
    console.error(logLine({ level: "error", stored_not_told: reports.length, error: name }));
    return false;
  } finally {
    const ofTenant = untold.get(tenant);
    for (const { from } of batch) ofTenant?.delete(from);
    if (ofTenant?.size === 0) untold.delete(tenant);
  }
}
