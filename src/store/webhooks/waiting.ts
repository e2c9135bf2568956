/**
 * How many deliveries wait, by the tenants whose webhooks this process has had open. One whose object sleeps has as many as it had last: its
 * alarm is set.
 */
const waiting = new Map<string, number>();

/** Tenants that are remembered; the one that has told nothing for longest is forgotten. */
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
