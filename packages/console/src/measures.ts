import type { Column } from "./cards-table.ts";
import type { Chart, Series } from "./chart.ts";
import { count, duration, money, size } from "./format.ts";
import type { ApiObject } from "./json.ts";

/** Figures over time: how the series of a chart, and the columns of its table, follow from the API's buckets. */

export interface Bucket {
  id: string;
  /** Unix seconds. */
  start_time: number;
  /** Its figures: those of each group, or of all together. */
  results: readonly ApiObject[];
}

/** The name of a part, its field or its amount, and the number of its colour. */
type Part = readonly [name: string, of: string | ((result: ApiObject) => number | null), colour?: number];

interface Unit {
  inWords: (value: number) => string;
  /** For the axis. */
  inShort: (value: number) => string;
  /** `sum`: amounts that add up; `level`: amounts at the end of a bucket, which add up within it; `none`: they add up nowhere. */
  adds: "sum" | "level" | "none";
}

const compact = new Intl.NumberFormat(undefined, { notation: "compact", maximumSignificantDigits: 3 });

/** A number for an axis, such as `12K`. */
const shortly = (value: number) => compact.format(Number(value.toPrecision(6)));

const UNITS = {
  count: { inWords: (value) => count(Number(value.toPrecision(8))), inShort: shortly, adds: "sum" },
  usd: { inWords: money, inShort: money, adds: "sum" },
  bytes: { inWords: size, inShort: size, adds: "level" },
  ms: { inWords: duration, inShort: duration, adds: "none" },
  perSecond: { inWords: (value) => `${shortly(value)} a second`, inShort: shortly, adds: "none" },
} satisfies Record<string, Unit>;

/** A figure that is measured. Its parts are drawn by themselves, and make up the whole where they add up. */
export interface Measure {
  label: string;
  unit: keyof typeof UNITS;
  parts: readonly Part[];
}

const time = (label: string, prefix: string): Measure => ({
  label,
  unit: "ms",
  parts: [
    ["half took at most (p50)", `p50_${prefix}ms`],
    ["95 of 100 took at most (p95)", `p95_${prefix}ms`],
  ],
});

/** The times of requests. */
export const TIMES = {
  duration: time("Time of a request", ""),
  first_token: time("Time to the first token", "first_token_"),
};

/** The number of colours in `base.css`. */
const MAX_SERIES = 7;

/** The sum; null if there is nothing to add. */
function added(values: readonly (number | null)[]) {
  const given = values.filter((value) => value !== null);
  return given.length === 0 ? null : given.reduce((sum, value) => sum + value, 0);
}

const amountOf = ([, of]: Part, result: ApiObject): number | null =>
  typeof of === "string" ? (result[of] ?? null) : of(result);

/**
 * The amounts of a measure in each bucket: by its parts, or by the largest groups and all others together. Figures that
 * do not add up have no others, and the last part of each group.
 * @param group a field of results; empty for none
 */
export function seriesOf(buckets: readonly Bucket[], { parts, unit }: Measure, group = ""): Series[] {
  if (group === "") {
    return parts.map((part) => ({
      name: part[0],
      colour: part[2],
      values: buckets.map(({ results }) => added(results.map((result) => amountOf(part, result)))),
    }));
  }
  const isApart = UNITS[unit].adds === "none";
  const counted = isApart ? parts.slice(-1) : parts;
  const groups: Map<string, (number | null)[]> = new Map();
  for (const [at, { results }] of buckets.entries()) {
    for (const result of results) {
      const name = result[group] || "–";
      const values = groups.get(name) ?? buckets.map(() => null);
      groups.set(name, values);
      values[at] = added([values[at] ?? null, ...counted.map((part) => amountOf(part, result))]);
    }
  }
  const total = (values: readonly (number | null)[]) =>
    isApart ? Math.max(...values.map((value) => value ?? 0)) : (added(values) ?? 0);
  const all = [...groups].map(([name, values]) => ({ name, values, total: total(values) }));
  all.sort((one, other) => other.total - one.total);
  if (all.length <= MAX_SERIES || isApart) return all.slice(0, MAX_SERIES);
  const rest = all.splice(MAX_SERIES - 1);
  const others = buckets.map((_, at) => added(rest.map(({ values }) => values[at] ?? null)));
  return [...all, { name: `${count(rest.length)} others`, values: others }];
}

/** The chart of a measure. The caller has its title. */
export function chartOf(
  { unit }: Measure,
  buckets: readonly Bucket[],
  series: readonly Series[],
): Omit<Chart, "title"> {
  const { inWords, inShort, adds }: Unit = UNITS[unit];
  const isLevel = adds === "level";
  const total = added(series.flatMap(({ values }) => (isLevel ? values.slice(-1) : values))) ?? 0;
  return {
    times: buckets.map(({ start_time: start }) => start),
    note: adds === "none" ? "" : `${inWords(total)} ${isLevel ? "now" : "in all"}`,
    isStacked: adds !== "none",
    isWhole: unit === "count" || unit === "bytes",
    ...{ series, labelOf: labelsOf(buckets), inWords, inShort },
  };
}

/**
 * The columns of a table with the figures of a chart.
 * @param of is put before their names
 */
export function columnsOf(
  buckets: readonly Bucket[],
  { unit }: Measure,
  series: readonly Series[],
  of = "",
): Column<Bucket>[] {
  const { inWords, adds }: Unit = UNITS[unit];
  return series.map(({ name, values }) => {
    const at = new Map(buckets.map(({ id }, index) => [id, values[index]]));
    // A time that nobody took is not zero.
    const cell = ({ id }: Bucket) => (at.get(id) == null && adds === "none" ? "–" : inWords(at.get(id) ?? 0));
    return [of === "" ? name : series.length === 1 ? of : `${of}: ${name}`, cell, "number"];
  });
}

/**
 * The labels of the buckets' times, in the browser's language.
 * @param buckets at equal distances
 */
export function labelsOf(buckets: readonly Bucket[]) {
  const start = (at: number) => buckets.at(at)?.start_time ?? 0;
  const day = { day: "numeric", month: "short" } as const;
  const hour = { hour: "2-digit", minute: "2-digit" } as const;
  // A day is one of UTC's: so the server counts.
  const isByDay = start(1) - start(0) >= 86_400;
  const options = isByDay ? { ...day, timeZone: "UTC" } : start(-1) - start(0) >= 86_400 ? { ...day, ...hour } : hour;
  return (time: number) => new Date(time * 1_000).toLocaleString(undefined, options);
}

/**
 * The last buckets, as a query of the API. The present one is among them.
 * @param range the width of a bucket, that in seconds, and their number
 */
export function lastBuckets({ width, seconds, buckets }: { width: string; seconds: number; buckets: number }) {
  const end = (Math.floor(Date.now() / 1_000 / seconds) + 1) * seconds;
  const start = end - buckets * seconds;
  return { start_time: String(start), end_time: String(end), bucket_width: width };
}
