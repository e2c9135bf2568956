/** The stores that this process works on, or that wait, by id. `Ingestion` keeps them. */
export const states = new Map<string, "working" | "waiting">();

/** The number of stores whose files are being indexed, and of those that wait for a server or a limit. */
export function ingestingStores(): ReadonlyMap<string, number> {
  const counts = new Map<string, number>([
    ["working", 0],
    ["waiting", 0],
  ]);
  for (const state of states.values()) counts.set(state, (counts.get(state) ?? 0) + 1);
  return counts;
}

/** Forgets a deleted store. */
export function forgetIngestion(id: string): void {
  states.delete(id);
}
