import type { UsageKind } from "@responses-edge/usage-limits";
import { KINDS_OF_REQUESTS, USAGE_REPORTS, type UsageReport } from "@responses-edge/usage-limits/usage-reports";
import { inWords } from "./format.ts";
import { type Measure, TIMES } from "./measures.ts";

/** The kinds of usage, and what is measured of each: `GET /v1/organization/usage/{kind}` and `GET /v1/organization/costs`. */
export interface Kind {
  label: string;
  path: string;
  measures: Record<string, Measure>;
  /** Fields of results. */
  groups: readonly string[];
  /** True if the API has no buckets of hours. */
  isByDay?: boolean;
}

/** Figures that have their own words. */
const LABELS: Record<string, string> = {
  num_model_requests: "Requests",
  num_requests: "Calls",
  num_sessions: "Sessions",
  num_errors: "Errors",
  usage_bytes: "Bytes",
};

/** The kinds of tokens, by the field with their number. */
const TOKENS: Record<string, Measure["parts"][number]> = {
  input_cached_tokens: ["Cached input", "input_cached_tokens"],
  input_tokens: ["Other input", (result) => result.input_tokens - (result.input_cached_tokens ?? 0)],
  output_tokens: ["Output", "output_tokens"],
};

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
    measures: { cost: { label: "US dollars", unit: "usd", parts: [["US dollars", ({ amount }) => amount.value]] } },
    groups: ["project_id", "api_key_id", "line_item"],
    isByDay: true,
  },
};

/** @param hasRequests true for a kind that has requests of its own: searches are parts of other requests */
function kindOf({ path, figures, groups }: UsageReport, hasRequests: boolean): Kind {
  const names = Object.keys(figures);
  const parts = Object.entries(TOKENS).flatMap(([name, part]) => (names.includes(name) ? [part] : []));
  const others = names.filter((name) => !(name in TOKENS)).map((name) => [name, measureOf(name)] as const);
  return {
    label: inWords(path),
    path: `/v1/organization/usage/${path}`,
    measures: {
      ...(parts.length > 0 && { tokens: { label: "Tokens", unit: "count", parts } }),
      ...Object.fromEntries(others),
      ...(hasRequests && { num_errors: measureOf("num_errors"), ...TIMES }),
      ...(!names.includes("usage_bytes") && {
        cost: { label: "Cost in US dollars", unit: "usd", parts: [["Cost in US dollars", "cost_usd"]] },
      }),
    },
    groups,
  };
}

function measureOf(field: string): Measure {
  const label = LABELS[field] ?? inWords(field);
  return { label, unit: field === "usage_bytes" ? "bytes" : "count", parts: [[label, field]] };
}
