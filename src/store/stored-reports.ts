import { logLine } from "@responses-edge/json-text";
import type { Quota, StoredReport } from "./quota/quota.ts";
import { isRetryable } from "./rpc.ts";
import { CALL_WITHIN_MS, ToldTogether } from "./told-together.ts";

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

const together = new ToldTogether<Untold>();

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
export function tellStoredSoon(quotas: QuotaNamespace, tenant: string, { report, onTold }: Told): Promise<void> {
  const value = dated(tenant, report, together.waiting(tenant, report.home));
  return together.tell(tenant, report.home, { value, onTold }, (batch) => take(quotas, tenant, batch));
}

/** Tells it now; whether the quota has heard it. Never rejects. */
export function tellStored(quotas: QuotaNamespace, tenant: string, report: StoredReport): Promise<boolean> {
  const now = dated(tenant, report, together.waiting(tenant, report.home));
  together.withdraw(tenant, report.home);
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
