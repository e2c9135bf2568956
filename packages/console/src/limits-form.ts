import type { Field, Form } from "./fields.ts";
import { valuesInWords } from "./fields-in-words.ts";
import type { ApiObject } from "./json.ts";

/** The limits of a key or a tenant, as fields of a form (docs/keys.md). Common limits have a field each, all others are edited as JSON. */

/** As the API has them, by name. */
export type Limits = ApiObject;

const numbers = (fields: readonly (readonly [name: string, label: string])[]): Field[] =>
  fields.map(([name, label]) => ({ name, label, kind: "number", placeholder: "no limit" }));

const WINDOWS = ["hour", "day", "week", "month", "total"];

export const LIMITS: Form = [
  ...numbers([
    ["requests_per_minute", "Requests per minute"],
    ["tokens_per_minute", "Tokens per minute"],
    ["max_concurrent_requests", "Requests at a time"],
  ]),
  { name: "budget.usd", label: "Budget in US dollars", kind: "number", step: "any", placeholder: "no limit" },
  { name: "budget.tokens", label: "Budget in tokens", kind: "number", placeholder: "no limit" },
  {
    name: "budget.window",
    label: "Budget begins anew",
    kind: "choice",
    options: WINDOWS.map((window) => [window, window === "total" ? "never" : `each ${window}`]),
  },
  {
    name: "models",
    label: "Models",
    kind: "list",
    placeholder: "all; or names, or beginnings such as qwen*, separated by commas",
  },
  {
    title: "Further limits",
    fields: [
      ...numbers([
        ["reads_per_minute", "Reads per minute"],
        ["end_user.requests_per_minute", "Requests per minute of each end user"],
        ["end_user.tokens_per_minute", "Tokens per minute of each end user"],
        ["max_background_runs", "Background runs at a time"],
        ["max_output_tokens", "Output tokens of a response"],
        ["stored_bytes", "Stored bytes"],
        ["stored_responses", "Stored responses"],
        ["stored_conversations", "Stored conversations"],
        ["stored_files", "Stored files"],
        ["stored_file_bytes", "Stored bytes of files"],
      ]),
      { name: "log_content", label: "Log contents to the operator's sink", kind: "check" },
      { name: "track_homes", label: "Note homes, for export and erasure", kind: "check" },
      { name: "force_store_false", label: "Store nothing", kind: "check" },
      {
        name: "others",
        label: "Others, as JSON",
        kind: "others",
        placeholder: '{"hosted_tools": ["web_search"], "tier": "gold"}',
      },
    ],
  },
];

/** The values of the form for limits. */
export function limitValues(limits: Limits | null): ApiObject {
  const { budget, ...others } = limits ?? {};
  return { ...others, budget: { window: "month", ...budget } };
}

/** The limits for the values of the form; null for none. */
export function limitsOf({ budget, ...others }: ApiObject): Limits | null {
  const hasBudget = budget?.usd !== undefined || budget?.tokens !== undefined;
  const limits = hasBudget ? { ...others, budget } : others;
  return Object.keys(limits).length === 0 ? null : limits;
}

/** Limits in a line. */
export function limitsInWords({ budget, ...others }: Limits) {
  const hasBudget = budget?.usd != null || budget?.tokens != null;
  return valuesInWords(LIMITS, hasBudget ? { ...others, budget } : others);
}
