/** The names of backups in a series: the times at which they began. Their order as texts is their order in time. */
export const STAMP = /^\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z$/;

export function stampOf(time: Date): string {
  return time.toISOString().replaceAll(/[:.]/g, "-");
}

/** Splits the stamps, oldest first, into the newest `keep` and the others. */
export function keptOf(stamps: readonly string[], keep: number): { kept: string[]; removed: string[] } {
  const first = Math.max(0, stamps.length - keep);
  return { kept: stamps.slice(first), removed: stamps.slice(0, first) };
}
