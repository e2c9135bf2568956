import { askOthers, type OtherWorker } from "../objects/workers.ts";

/**
 * The tenants that have filled their share of a self-hosted server's disk (`config.keys.diskShare`), as far as this worker
 * knows. Homes report what they store to the tenant's quota, and the quota tells all workers. A worker that does not know
 * it yet, or that was restarted, refuses later. One that knows a tenant asks the quota before it refuses.
 */
export const fullShares = new Set<string>();

/** Another worker, which admits requests, too. */
interface OtherShares extends OtherWorker {
  noteFullShare(tenant: string): Promise<void>;
}

/** Tells all workers that a tenant has filled its share. Never rejects. */
export async function tellFullShare(tenant: string): Promise<void> {
  fullShares.add(tenant);
  await askOthers((worker: OtherShares) => worker.noteFullShare(tenant));
}
