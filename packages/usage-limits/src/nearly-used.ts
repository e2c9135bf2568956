/** The share of a limit from which it is nearly used. */
const NEARLY = 0.8;

interface UsedLimit {
  obstacle: string;
  limit: number;
  used: number;
  resetsAt?: number | undefined;
}

/**
 * The budgets and storage limits among `limits` that are nearly used. `told` has the names of those that were nearly
 * used at the last calls; `fresh` are the others. A new period, and another limit, start again.
 */
export function nearlyUsed<Limit extends UsedLimit>(limits: readonly Limit[], told: readonly string[]) {
  const near = limits.filter(
    ({ obstacle, limit, used }) => limit > 0 && /^(?:budget|stored)_/.test(obstacle) && used >= limit * NEARLY,
  );
  const fresh = near.filter((limit) => !told.includes(nameOf(limit)));
  const names = [...told.filter((name) => !limits.some((limit) => isOf(name, limit))), ...near.map(nameOf)];
  return { told: names, fresh, isChanged: fresh.length > 0 || names.length !== told.length };
}

/** Tells whether a name is of this limit, also with another amount or of another period. */
function isOf(name: string, { obstacle }: UsedLimit): boolean {
  return name.startsWith(`${obstacle} `);
}

function nameOf({ obstacle, limit, resetsAt }: UsedLimit): string {
  return `${obstacle} ${limit} ${resetsAt ?? 0}`;
}
