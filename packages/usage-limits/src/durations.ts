/**
 * Durations, counted by buckets whose bounds grow by a fifth (2^¼): counts of many reporters add up, and a quantile of them is off by
 * a tenth at most. Plain data: the number of each bucket that is not empty, by its index.
 */
export type Durations = Record<string, number>;

/** Buckets for each doubling of a duration. */
const PER_DOUBLING = 4;

/** The last bucket: about four and a half hours, and everything longer. */
const LAST = 96;

/** The bucket of a duration, in milliseconds. */
export function bucketOf(ms: number): number {
  return Math.min(LAST, Math.max(0, Math.round(PER_DOUBLING * Math.log2(Math.max(1, ms)))));
}

/** Counts one more duration, in milliseconds. Gives the counts, which it changes. */
export function addDuration(durations: Durations, ms: number): Durations {
  const bucket = bucketOf(ms);
  durations[bucket] = (durations[bucket] ?? 0) + 1;
  return durations;
}

/** Adds counts to others, by their names. Gives `sum`, which it changes. */
export function addCounts(sum: Record<string, number>, counts: Readonly<Record<string, number>>) {
  for (const name in counts) sum[name] = (sum[name] ?? 0) + (counts[name] ?? 0);
  return sum;
}

/** The duration that a part of all durations does not exceed (0.5: the median), in milliseconds; null if there are none. */
export function quantile(durations: Readonly<Durations>, part: number): number | null {
  // Keys that are whole numbers come in their order.
  const buckets = Object.entries(durations);
  const total = buckets.reduce((sum, [, count]) => sum + count, 0);
  let seen = 0;
  for (const [bucket, count] of buckets) {
    seen += count;
    if (seen >= total * part) return Math.round(2 ** (Number(bucket) / PER_DOUBLING));
  }
  return null;
}
