import { logLine } from "../protocol/log-line.ts";
import type { Quota } from "./quota/quota.ts";
import type { StoredReport } from "./quota/stored-totals.ts";
import { isRetryable } from "./retryable.ts";

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

/** Of one tenant, what waits to be told. */
interface Queue {
  waiting: Map<string, { report: Dated; onTold: () => void }>;
  /** Since when the call lasts that is under way, Unix milliseconds. The object that has made it may have been ended since. */
  askingSince: number | undefined;
}

const queues = new Map<string, Queue>();

/** A call that lasts longer is taken for one of an object that has ended. */
const CALL_WITHIN_MS = 10_000;

/** Orders the reports of this isolate. */
let lastAt = 0;

function dated(report: StoredReport): Dated {
  lastAt = Math.max(Date.now(), lastAt + 1);
  return { ...report, at: lastAt };
}

/** Tells it with the next call. Never rejects: what cannot be told the home's alarm tells again. */
export async function tellStoredSoon(quotas: QuotaNamespace, tenant: string, told: Told): Promise<void> {
  const queue = queues.get(tenant) ?? { waiting: new Map(), askingSince: undefined };
  queues.set(tenant, queue);
  const { report, onTold } = told;
  queue.waiting.set(report.home, { report: dated(report), onTold });
  const now = Date.now();
  if (queue.askingSince !== undefined && Math.abs(now - queue.askingSince) < CALL_WITHIN_MS) return;
  while (queue.waiting.size > 0) {
    const batch = [...queue.waiting.values()];
    queue.waiting.clear();
    const since = Date.now();
    queue.askingSince = since;
    const isTold = await take(
      quotas,
      tenant,
      batch.map((each) => each.report),
    );
    if (isTold) for (const each of batch) each.onTold();
    // Another object has taken over.
    if (queue.askingSince !== since) return;
  }
  queues.delete(tenant);
}

/** Tells it now; whether the quota has heard it. Never rejects. */
export function tellStored(quotas: QuotaNamespace, tenant: string, report: StoredReport): Promise<boolean> {
  queues.get(tenant)?.waiting.delete(report.home);
  return take(quotas, tenant, [dated(report)]);
}

async function take(quotas: QuotaNamespace, tenant: string, reports: readonly Dated[]): Promise<boolean> {
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
  }
}
