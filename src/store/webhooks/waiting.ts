/**
 * The number of pending deliveries of the tenants whose webhooks have run in this process. A sleeping object keeps its
 * last number: its alarm is set.
 */
const waiting = new Map<string, number>();

/** Most tenants that are remembered. The one without a report for longest is forgotten. */
const MAX_TENANTS = 10_000;

export function noteWaitingDeliveries(tenant: string, count: number): void {
  waiting.delete(tenant);
  if (count > 0) waiting.set(tenant, count);
  const oldest = waiting.size > MAX_TENANTS ? waiting.keys().next().value : undefined;
  if (oldest !== undefined) waiting.delete(oldest);
}

export function waitingDeliveries(): number {
  return waiting.values().reduce((sum, count) => sum + count, 0);
}
