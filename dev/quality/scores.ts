/** Scores of a list of ids, best first, against the relevant ids. */

/** Normalised discounted cumulative gain of the first `depth` (Järvelin and Kekäläinen, 2002), with relevance of 0 or 1. */
export function ndcg(found: readonly string[], relevant: readonly string[], depth: number): number {
  const gain = (hits: readonly boolean[]) =>
    hits.reduce((sum, hit, index) => sum + (hit ? 1 / Math.log2(index + 2) : 0), 0);
  const ideal = gain(relevant.slice(0, depth).map(() => true));
  return ideal === 0 ? 0 : gain(found.slice(0, depth).map((id) => relevant.includes(id))) / ideal;
}

/** The share of relevant ids that is among the first `depth`. */
export function recall(found: readonly string[], relevant: readonly string[], depth: number): number {
  if (relevant.length === 0) return 0;
  return relevant.filter((id) => found.slice(0, depth).includes(id)).length / relevant.length;
}
