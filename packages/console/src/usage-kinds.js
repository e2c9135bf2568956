import { USAGE_REPORTS } from "@responses-edge/usage-limits/usage-reports";
import { count, money, size } from "./format.js";

/**
 * The kinds of usage, and the amounts that their results have: `GET /v1/organization/usage/{kind}` and
 * `GET /v1/organization/costs`.
 *
 * @typedef {Record<string, any>} Result Its figures, and the names of its group
 * @typedef {{ start_time: number, results: Result[] }} Bucket
 * @typedef {(result: Result) => number} Amount
 *
 * @typedef {object} Measure
 * @property {string} label
 * @property {readonly (readonly [name: string, of: Amount])[]} parts which add up to the amount
 * @property {(value: number) => string} inWords
 * @property {boolean} [isLevel] true for an amount at the end of a bucket: the amounts of several buckets do not add up
 *
 * @typedef {object} Kind
 * @property {string} label
 * @property {string} path
 * @property {Record<string, Measure>} measures by name
 * @property {readonly string[]} groups fields of results
 * @property {boolean} [isByDay] true if the API has no buckets of hours
 */

/** Figures that have their own words. @type {Record<string, string>} */
const LABELS = {
  num_model_requests: "Requests",
  num_requests: "Calls",
  num_sessions: "Sessions",
  usage_bytes: "Bytes",
};

/** Names of groups in words. @type {Record<string, string>} */
export const GROUPS = { project_id: "Tenant", api_key_id: "Key", model: "Model", line_item: "Model or tool" };

const amountOf = (/** @type {string} */ field) => (/** @type {Result} */ result) => result[field] ?? 0;

/** The kinds of tokens, by the field with their number. @type {Record<string, readonly [name: string, of: Amount]>} */
const TOKENS = {
  input_cached_tokens: ["Cached input", amountOf("input_cached_tokens")],
  input_tokens: ["Other input", (result) => result.input_tokens - (result.input_cached_tokens ?? 0)],
  output_tokens: ["Output", amountOf("output_tokens")],
};

/** @param {string} label @param {Amount} of @returns {Measure} */
const cost = (label, of) => ({ label, parts: [[label, of]], inWords: money });

/** @type {Record<string, Kind>} */
export const KINDS = {
  ...Object.fromEntries(Object.values(USAGE_REPORTS).map((report) => [report.path, kindOf(report)])),
  costs: {
    label: "Costs of all kinds",
    path: "/v1/organization/costs",
    measures: { cost: cost("US dollars", ({ amount }) => amount.value) },
    groups: ["project_id", "api_key_id", "line_item"],
    isByDay: true,
  },
};

/** @param {(typeof USAGE_REPORTS)[keyof typeof USAGE_REPORTS]} report @returns {Kind} */
function kindOf({ path, figures, groups }) {
  const names = Object.keys(figures);
  const parts = Object.entries(TOKENS).flatMap(([field, part]) => (names.includes(field) ? [part] : []));
  const others = names
    .filter((name) => !(name in TOKENS))
    .map((name) => /** @type {const} */ ([name, measureOf(name)]));
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

/** @param {string} field @returns {Measure} */
function measureOf(field) {
  const label = LABELS[field] ?? inWords(field);
  const isLevel = field === "usage_bytes";
  return { label, parts: [[label, amountOf(field)]], inWords: isLevel ? size : figure, isLevel };
}

/** @param {string} name such as `file_search_calls` */
function inWords(name) {
  const words = name.replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** @param {number} value */
function figure(value) {
  return count(Number(value.toPrecision(8)));
}

/**
 * The amounts of a measure in each bucket: by its parts, or by the largest groups and all others together.
 * @param {readonly Bucket[]} buckets
 * @param {Measure} measure
 * @param {string} group a field of results; empty for none
 * @param {number} most the number of series
 * @returns {import("./plot.js").Series[]}
 */
export function seriesOf(buckets, { parts }, group, most) {
  if (group === "") {
    return parts.map(([name, of]) => ({
      name,
      values: buckets.map(({ results }) => results.reduce((sum, result) => sum + of(result), 0)),
    }));
  }
  const of = (/** @type {Result} */ result) => parts.reduce((total, [, part]) => total + part(result), 0);
  /** @type {Map<string, number[]>} */
  const groups = new Map();
  for (const [at, { results }] of buckets.entries()) {
    for (const result of results) {
      const name = result[group] || "–";
      const values = groups.get(name) ?? buckets.map(() => 0);
      groups.set(name, values);
      values[at] = (values[at] ?? 0) + of(result);
    }
  }
  const sum = (/** @type {readonly number[]} */ values) => values.reduce((total, value) => total + value, 0);
  const sorted = [...groups]
    .map(([name, values]) => ({ name, values }))
    .sort((one, other) => sum(other.values) - sum(one.values));
  if (sorted.length <= most) return sorted;
  const rest = sorted.slice(most - 1);
  const others = buckets.map((_, at) => rest.reduce((total, { values }) => total + (values[at] ?? 0), 0));
  return [...sorted.slice(0, most - 1), { name: `${count(rest.length)} others`, values: others }];
}

/**
 * The amount in all buckets, in words.
 * @param {readonly import("./plot.js").Series[]} series
 * @param {Measure} measure
 */
export function totalInWords(series, { inWords: words, isLevel }) {
  const counted = series.flatMap(({ values }) => (isLevel ? values.slice(-1) : values));
  const total = words(counted.reduce((sum, value) => sum + value, 0));
  return isLevel ? `${total} now` : `${total} counted`;
}
