/**
 * Durations, counted by buckets whose bounds grow by a fifth (2^¼): counts of many reporters add up, and a quantile of them is off by
 * a tenth at most. Plain data: the number of each bucket that is not empty, by its index.
 */
export type Durations = Readonly<Record<string, number>>;

/** Buckets for each doubling of a duration. */
const PER_DOUBLING = 4;

/** The last bucket: about four and a half hours, and everything longer. */
const LAST = 96;

/** The bucket of a duration, in milliseconds. */
export function bucketOf(ms: number): number {
  return Math.min(LAST, Math.max(0, Math.round(PER_DOUBLING * Math.log2(Math.max(1, ms)))));
}

/** The counts with one more duration, in milliseconds. */
export function withDuration(durations: Durations, ms: number): Durations {
  const bucket = bucketOf(ms);
  return { ...durations, [bucket]: (durations[bucket] ?? 0) + 1 };
}

/** The sum of two counts. */
export function addDurations(one: Durations, other: Durations): Durations {
  const sum: Record<string, number> = { ...one };
  for (const [bucket, count] of Object.entries(other)) sum[bucket] = (sum[bucket] ?? 0) + count;
  return sum;
}

/** The duration that a part of all durations does not exceed (0.5: the median), in milliseconds; null if there are none. */
export function quantile(durations: Durations, part: number): number | null {
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
