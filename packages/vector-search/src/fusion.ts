/**
 * Reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009): joins lists of different measures by ranks only.
 */

/** Results of one way to search, best first. */
export interface RankedList {
  ids: readonly number[];
  /** Its weight beside the others. Not negative. */
  weight: number;
}

export interface Fused {
  id: number;
  /** From 0 to 1; 1 is the first of every list. */
  score: number;
  /** Its rank in each list, from 1; undefined if it is not in it. */
  ranks: (number | undefined)[];
}

/** The paper's constant: ranks below the first few count nearly the same. */
const K = 60;

/** Joins lists, best first. A list without weight finds nothing. */
export function fuse(lists: readonly RankedList[]): Fused[] {
  const fused = new Map<number, Fused>();
  const most = lists.reduce((sum, { weight }) => sum + weight / (K + 1), 0);
  lists.forEach(({ ids, weight }, list) => {
    if (weight === 0) return;
    ids.forEach((id, index) => {
      let each = fused.get(id);
      if (!each) {
        each = { id, score: 0, ranks: lists.map(() => undefined) };
        fused.set(id, each);
      }
      if (each.ranks[list] !== undefined) return;
      each.ranks[list] = index + 1;
      each.score += weight / (K + index + 1) / most;
    });
  });
  return [...fused.values()].sort((one, other) => other.score - one.score || one.id - other.id);
}
