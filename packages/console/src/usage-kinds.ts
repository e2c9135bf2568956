import { USAGE_REPORTS } from "@responses-edge/usage-limits/usage-reports";
import { count, money, size } from "./format.ts";
import type { ApiObject } from "./json.ts";
import type { Series } from "./plot.ts";

/**
 * The kinds of usage, and the amounts that their results have: `GET /v1/organization/usage/{kind}` and
 * `GET /v1/organization/costs`.
 */

/** Its figures, and the names of its group */
export type Result = ApiObject;

export type Bucket = { start_time: number; results: Result[] };

export type Amount = (result: Result) => number;

export interface Measure {
  label: string;
  /** which add up to the amount */
  parts: readonly (readonly [name: string, of: Amount])[];
  inWords: (value: number) => string;
  /** true for an amount at the end of a bucket: the amounts of several buckets do not add up */
  isLevel?: boolean;
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

/** The kinds of tokens, by the field with their number. */
const TOKENS: Record<string, readonly [name: string, of: Amount]> = {
  input_cached_tokens: ["Cached input", amountOf("input_cached_tokens")],
  input_tokens: ["Other input", (result) => result.input_tokens - (result.input_cached_tokens ?? 0)],
  output_tokens: ["Output", amountOf("output_tokens")],
};

const cost = (label: string, of: Amount): Measure => ({ label, parts: [[label, of]], inWords: money });

export const KINDS: Record<string, Kind> = {
  ...Object.fromEntries(Object.values(USAGE_REPORTS).map((report) => [report.path, kindOf(report)])),
  costs: {
    label: "Costs of all kinds",
    path: "/v1/organization/costs",
    measures: { cost: cost("US dollars", ({ amount }) => amount.value) },
    groups: ["project_id", "api_key_id", "line_item"],
    isByDay: true,
  },
};

function kindOf({ path, figures, groups }: (typeof USAGE_REPORTS)[keyof typeof USAGE_REPORTS]): Kind {
  const names = Object.keys(figures);
  const parts = Object.entries(TOKENS).flatMap(([field, part]) => (names.includes(field) ? [part] : []));
  const others = names.filter((name) => !(name in TOKENS)).map((name) => [name, measureOf(name)] as const);
  return {
    label: inWords(path),
    path: `/v1/organization/usage/${path}`,
    measures: {
      ...(parts.length > 0 && { tokens: { label: "Tokens", parts, inWords: figure } }),
      ...Object.fromEntries(others),
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
 * The amounts of a measure in each bucket: by its parts, or by the largest groups and all others together.
 * @param group a field of results; empty for none
 * @param most the number of series
 */
export function seriesOf(buckets: readonly Bucket[], { parts }: Measure, group: string, most: number): Series[] {
  if (group === "") {
    return parts.map(([name, of]) => ({
      name,
      values: buckets.map(({ results }) => results.reduce((sum, result) => sum + of(result), 0)),
    }));
  }
  const of = (result: Result) => parts.reduce((total, [, part]) => total + part(result), 0);
  const groups: Map<string, number[]> = new Map();
  for (const [at, { results }] of buckets.entries()) {
    for (const result of results) {
      const name = result[group] || "–";
      const values = groups.get(name) ?? buckets.map(() => 0);
      groups.set(name, values);
      values[at] = (values[at] ?? 0) + of(result);
    }
  }
  const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);
  const sorted = [...groups]
    .map(([name, values]) => ({ name, values }))
    .sort((one, other) => sum(other.values) - sum(one.values));
  if (sorted.length <= most) return sorted;
  const rest = sorted.slice(most - 1);
  const others = buckets.map((_, at) => rest.reduce((total, { values }) => total + (values[at] ?? 0), 0));
  return [...sorted.slice(0, most - 1), { name: `${count(rest.length)} others`, values: others }];
}

/** The amount in all buckets, in words. */
export function totalInWords(series: readonly Series[], { inWords: words, isLevel }: Measure) {
  const counted = series.flatMap(({ values }) => (isLevel ? values.slice(-1) : values));
  const total = words(counted.reduce((sum, value) => sum + value, 0));
  return isLevel ? `${total} now` : `${total} counted`;
}
