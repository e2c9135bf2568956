/** Most tenants that are remembered. The one without a report for longest is forgotten. */
const MAX_TENANTS = 10_000;

/**
 * The amount of work that waits or is in progress, of the tenants whose object for it has run in this process. A
 * sleeping object keeps its last number: its alarm is set.
 */
class PendingWork {
  readonly #counts = new Map<string, number>();

  note(tenant: string, count: number): void {
    this.#counts.delete(tenant);
    if (count > 0) this.#counts.set(tenant, count);
    const oldest = this.#counts.size > MAX_TENANTS ? this.#counts.keys().next().value : undefined;
    if (oldest !== undefined) this.#counts.delete(oldest);
  }

  get total(): number {
    return this.#counts.values().reduce((sum, count) => sum + count, 0);
  }
}

export const pendingDeliveries = new PendingWork();
export const pendingBatches = new PendingWork();
