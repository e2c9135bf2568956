import { logLine } from "@responses-edge/bounded-io/json-text";
import type { Env } from "../../env.ts";
import type { StoredReport } from "../limits/quota-object.ts";
import { CALL_WITHIN_MS, ToldTogether } from "./told-together.ts";

/**
 * Reports how much homes store to their tenant's quota. Each report has the whole amount of a home, so that only the latest counts.
 * The homes of a tenant in this isolate share one call at a time, which carries all reports that have come in the meantime.
 */

type QuotaNamespace = Env["QUOTAS"];
type Dated = StoredReport & { at: number };

interface Told {
  report: StoredReport;
  /** Called when the quota knows it. */
  onTold: () => void;
}

interface Untold {
  report: Dated;
  /** The time of the earliest report that this one has replaced; its own time if it has replaced none. */
  from: number;
}

const together = new ToldTogether<Untold>();

/** Orders the reports of this isolate. */
let lastAt = 0;

/** The times of reports that are not sent yet, by tenant. */
const untold = new Map<string, Set<number>>();

/** Dates a report, which replaces a waiting one. */
function dated(tenant: string, report: StoredReport, replaced: Untold | undefined): Untold {
  lastAt = Math.max(Date.now(), lastAt + 1);
  const from = replaced?.from ?? lastAt;
  const ofTenant = untold.get(tenant) ?? new Set();
  untold.set(tenant, ofTenant.add(from));
  return { report: { ...report, at: lastAt }, from };
}

/** The latest report of this isolate's homes. */
export function latestReport(): number {
  return lastAt;
}

/**
 * Tells whether this isolate's reports of a tenant up to `latest` were sent. Homes elsewhere are unknown here. A report
 * that could not be sent counts as sent: the home's alarm repeats it.
 */
export function isTold(tenant: string, latest: number): boolean {
  const since = Date.now() - CALL_WITHIN_MS;
  for (const from of untold.get(tenant) ?? []) if (from <= latest && from > since) return false;
  return true;
}

/** Sends it with the next call. Never rejects: the home's alarm repeats a failed report. */
export function tellStoredSoon(quotas: QuotaNamespace, tenant: string, { report, onTold }: Told): Promise<void> {
  const value = dated(tenant, report, together.waiting(tenant, report.home));
  return together.tell(tenant, report.home, { value, onTold }, (batch) => take(quotas, tenant, batch));
}

/** Sends it now. True if the quota has got it. Never rejects. */
export function tellStored(quotas: QuotaNamespace, tenant: string, report: StoredReport): Promise<boolean> {
  const now = dated(tenant, report, together.waiting(tenant, report.home));
  together.withdraw(tenant, report.home);
  return take(quotas, tenant, [now]);
}

async function take(quotas: QuotaNamespace, tenant: string, batch: readonly Untold[]): Promise<boolean> {
  const reports = batch.map(({ report }) => report);
  const tell = () => quotas.getByName(tenant).takeStored(reports);
  try {
    await tell();
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
