import type { UsageKind } from "@responses-edge/usage-limits";
import { KINDS_OF_REQUESTS, USAGE_REPORTS, type UsageReport } from "@responses-edge/usage-limits/usage-reports";
import type { Series } from "./chart.ts";
import { count, duration, money, size } from "./format.ts";
import type { ApiObject } from "./json.ts";

/**
 * The kinds of usage, and the amounts that their results have: `GET /v1/organization/usage/{kind}` and
 * `GET /v1/organization/costs`.
 */

/** Its figures, and the names of its group */
export type Result = ApiObject;

export type Bucket = { start_time: number; results: Result[] };

export type Amount = (result: Result) => number | null;

export interface Measure {
  label: string;
  /** which add up to the amount */
  parts: readonly (readonly [name: string, of: Amount])[];
  inWords: (value: number) => string;
  /** True for an amount at the end of a bucket: the amounts of several buckets do not add up. */
  isLevel?: boolean;
  /** True for times: they add up nowhere. */
  isTime?: boolean;
}

export interface Kind {
  label: string;
  path: string;
  /** by name */
  measures: Record<string, Measure>;
  /** fields of results */
  groups: readonly string[];
  /** true if the API has no buckets of hours */
  isByDay?: boolean;
}

/** Figures that have their own words. */
const LABELS: Record<string, string> = {
  num_model_requests: "Requests",
  num_requests: "Calls",
  num_sessions: "Sessions",
  usage_bytes: "Bytes",
};

/** Names of groups in words. */
export const GROUPS: Record<string, string> = {
  project_id: "Tenant",
  api_key_id: "Key",
  model: "Model",
  line_item: "Model or tool",
};

const amountOf = (field: string) => (result: Result) => result[field] ?? 0;

const time = (label: string, prefix: string): Measure => ({
  label,
  parts: [
    ["Half of the requests took at most (p50)", (result) => result[`p50_${prefix}ms`] ?? null],
    ["95 of 100 took at most (p95)", (result) => result[`p95_${prefix}ms`] ?? null],
  ],
  inWords: duration,
  isTime: true,
});

/** How requests have ended. */
const ENDS: Record<string, Measure> = {
  num_errors: { label: "Errors", parts: [["Errors", amountOf("num_errors")]], inWords: figure },
  duration: time("Time of a request", ""),
  first_token: time("Time to the first token", "first_token_"),
};

/** The kinds of tokens, by the field with their number. */
const TOKENS: Record<string, readonly [name: string, of: Amount]> = {
  input_cached_tokens: ["Cached input", amountOf("input_cached_tokens")],
  input_tokens: ["Other input", (result) => result.input_tokens - (result.input_cached_tokens ?? 0)],
  output_tokens: ["Output", amountOf("output_tokens")],
};

const cost = (label: string, of: Amount): Measure => ({ label, parts: [[label, of]], inWords: money });

export const KINDS: Record<string, Kind> = {
  ...Object.fromEntries(
    Object.entries(USAGE_REPORTS).map(([kind, report]) => [
      report.path,
      kindOf(report, KINDS_OF_REQUESTS.has(kind as UsageKind)),
    ]),
  ),
  costs: {
    label: "Costs of all kinds",
    path: "/v1/organization/costs",
    measures: { cost: cost("US dollars", ({ amount }) => amount.value) },
    groups: ["project_id", "api_key_id", "line_item"],
    isByDay: true,
  },
};

/** @param hasRequests true for a kind that has requests of its own: searches are parts of other requests */
function kindOf({ path, figures, groups }: UsageReport, hasRequests: boolean): Kind {
  const names = Object.keys(figures);
  const parts = Object.entries(TOKENS).flatMap(([field, part]) => (names.includes(field) ? [part] : []));
  const others = names.filter((name) => !(name in TOKENS)).map((name) => [name, measureOf(name)] as const);
  return {
    label: inWords(path),
    path: `/v1/organization/usage/${path}`,
    measures: {
      ...(parts.length > 0 && { tokens: { label: "Tokens", parts, inWords: figure } }),
      ...Object.fromEntries(others),
      ...(hasRequests && ENDS),
      ...(!names.includes("usage_bytes") && { cost: cost("Cost in US dollars", ({ cost_usd: usd }) => usd) }),
    },
    groups,
  };
}

function measureOf(field: string): Measure {
  const label = LABELS[field] ?? inWords(field);
  const isLevel = field === "usage_bytes";
  return { label, parts: [[label, amountOf(field)]], inWords: isLevel ? size : figure, isLevel };
}

/** @param name such as `file_search_calls` */
function inWords(name: string) {
  const words = name.replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

function figure(value: number) {
  return count(Number(value.toPrecision(8)));
}

/**
 * The amounts of a measure in each bucket: by its parts, or by the largest groups and all others together. Of times the
 * others are left out, and groups have the last part.
 * @param group a field of results; empty for none
 * @param most the number of series
 */
export function seriesOf(buckets: readonly Bucket[], measure: Measure, group: string, most: number): Series[] {
  const { parts, isTime } = measure;
  if (group === "") {
    return parts.map(([name, of]) => ({ name, values: buckets.map(({ results }) => added(results.map(of))) }));
  }
  const of = (result: Result) =>
    isTime ? (parts.at(-1)?.[1](result) ?? null) : added(parts.map(([, of]) => of(result)));
  const groups: Map<string, (number | null)[]> = new Map();
  for (const [at, { results }] of buckets.entries()) {
    for (const result of results) {
      const name = result[group] || "–";
      const values = groups.get(name) ?? buckets.map(() => null);
      groups.set(name, values);
      values[at] = added([values[at] ?? null, of(result)]);
    }
  }
  const size = ({ values }: Series) => (isTime ? Math.max(...values.map((value) => value ?? 0)) : (added(values) ?? 0));
  const sorted = [...groups].map(([name, values]) => ({ name, values })).sort((one, other) => size(other) - size(one));
  if (sorted.length <= most || isTime) return sorted.slice(0, most);
  const rest = sorted.slice(most - 1);
  const others = buckets.map((_, at) => added(rest.map(({ values }) => values[at] ?? null)));
  return [...sorted.slice(0, most - 1), { name: `${count(rest.length)} others`, values: others }];
}

/** The sum; null if there is nothing to add. */
function added(values: readonly (number | null)[]) {
  const given = values.filter((value) => value !== null);
  return given.length === 0 ? null : given.reduce((sum, value) => sum + value, 0);
}

/** The amount in all buckets, in words. */
export function totalInWords(series: readonly Series[], { inWords: words, isLevel, isTime }: Measure) {
  if (isTime) return "";
  const total = words(added(series.flatMap(({ values }) => (isLevel ? values.slice(-1) : values))) ?? 0);
  return isLevel ? `${total} now` : `${total} in all`;
}

/** The use of one tenant, key or model in a time. */
export interface Sum {
  name: string;
  requests: number;
  errors: number;
  input: number;
  output: number;
  /** How long a request took on average, in milliseconds; null if none ended well. */
  average: number | null;
  /** US dollars. */
  cost: number;
}

/** The use of each tenant, key or model in all buckets, the largest cost and use first. */
export function sumsOf(buckets: readonly Bucket[], group: string): Sum[] {
  const results = Map.groupBy(
    buckets.flatMap(({ results }) => results),
    (result) => String(result[group] || "–"),
  );
  const sums = [...results].map(([name, all]) => {
    const sum = (field: string) => all.reduce((total, result) => total + (result[field] ?? 0), 0);
    const requests = sum("num_model_requests");
    const tokens = { input: sum("input_tokens"), output: sum("output_tokens") };
    const average = requests > 0 ? sum("duration_ms_sum") / requests : null;
    return { name, requests, errors: sum("num_errors"), ...tokens, average, cost: sum("cost_usd") };
  });
  return sums.sort((one, other) => other.cost - one.cost || other.requests - one.requests || other.errors - one.errors);
}
