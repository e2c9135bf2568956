import { quantile } from "./durations.ts";
import { addEnded, noRequests, type UsageKind, type UsageRow } from "./usage.ts";

/** Usage in the shapes of OpenAI's `GET /v1/organization/usage/…` (openai 7.59 `admin.organization.usage`); its projects are tenants. */

export type UsageGroup = "project_id" | "api_key_id" | "model";

type Figure = "requests" | "input" | "cached" | "output" | "units";

export interface UsageReport {
  /** The last part of the path. */
  path: string;
  /** The `object` of a result. */
  object: string;
  /** The figures of a result, by their names on the wire. */
  figures: Readonly<Record<string, Figure>>;
  groups: readonly UsageGroup[];
}

const BY_ALL: readonly UsageGroup[] = ["project_id", "api_key_id", "model"];

/** The report of each kind. */
export const USAGE_REPORTS: Readonly<Record<UsageKind, UsageReport>> = {
  completions: report("completions", "completions", BY_ALL, {
    input_tokens: "input",
    input_cached_tokens: "cached",
    output_tokens: "output",
    num_model_requests: "requests",
  }),
  embeddings: report("embeddings", "embeddings", BY_ALL, { input_tokens: "input", num_model_requests: "requests" }),
  images: report("images", "images", BY_ALL, { images: "units", num_model_requests: "requests" }),
  moderations: report("moderations", "moderations", BY_ALL, { input_tokens: "input", num_model_requests: "requests" }),
  decisions: report("decisions", "decisions", BY_ALL, {
    input_tokens: "input",
    input_cached_tokens: "cached",
    output_tokens: "output",
    num_model_requests: "requests",
  }),
  audio_transcriptions: report("audio_transcriptions", "audio_transcriptions", BY_ALL, {
    seconds: "units",
    num_model_requests: "requests",
  }),
  code_interpreter_sessions: report("code_interpreter_sessions", "code_interpreter_sessions", ["project_id"], {
    num_sessions: "units",
  }),
  file_searches: report("file_search_calls", "file_searches", ["project_id", "api_key_id"], { num_requests: "units" }),
  vector_stores: report("vector_stores", "vector_stores", ["project_id"], { usage_bytes: "units" }),
  web_searches: report("web_search_calls", "web_searches", BY_ALL, {
    num_requests: "units",
    num_model_requests: "requests",
  }),
};

function report(
  path: string,
  object: string,
  groups: readonly UsageGroup[],
  figures: UsageReport["figures"],
): UsageReport {
  return { path, object: `organization.usage.${object}.result`, figures, groups };
}

/** A row, with the tenant whose it is. */
export type TenantUsage = UsageRow & { tenant: string };

/** The kinds that have requests of their own. The others are parts of turns. */
export const KINDS_OF_REQUESTS: ReadonlySet<UsageKind> = new Set([
  ...(["completions", "embeddings", "images", "moderations", "decisions", "audio_transcriptions"] as const),
]);

/**
 * The results of a bucket: those of each group that `groupBy` tells apart. OpenAI has the cost elsewhere, and neither errors nor
 * durations.
 */
export function usageResults(kind: UsageKind, rows: readonly TenantUsage[], groupBy: readonly string[]) {
  const { object, figures, groups } = USAGE_REPORTS[kind];
  return inGroups(rows, groupBy, groups).map(({ names, sum, rows: all }) => ({
    object,
    ...Object.fromEntries(Object.entries(figures).map(([name, figure]) => [name, sum((row) => row[figure] ?? 0)])),
    ...names,
    cost_usd: sum(({ cost }) => cost) / 1e6,
    ...(KINDS_OF_REQUESTS.has(kind) && endedIn(all)),
  }));
}

/** How the requests of some rows have ended. Milliseconds. */
function endedIn(rows: readonly TenantUsage[]) {
  const { errors, ms, durations, firstTokens } = rows.reduce(
    (sum, { ended }) => (ended ? addEnded(sum, ended) : sum),
    noRequests(),
  );
  return {
    num_errors: errors,
    duration_ms_sum: ms,
    p50_ms: quantile(durations, 0.5),
    p95_ms: quantile(durations, 0.95),
    p50_first_token_ms: quantile(firstTokens, 0.5),
    p95_first_token_ms: quantile(firstTokens, 0.95),
  };
}

/**
 * The costs of each group in a bucket. Its line items are models and tools; their quantity is in units if these count
 * them.
 */
export function costResults(rows: readonly TenantUsage[], groupBy: readonly string[]) {
  const isByItem = groupBy.includes("line_item");
  const by = groupBy.map((group) => (group === "line_item" ? "model" : group));
  // Rows without requests that have used something only count errors.
  const used = rows.filter(({ requests }) => requests > 0);
  return inGroups(used, by, BY_ALL).map(({ names: { model, ...names }, sum }) => {
    const units = sum((row) => row.units ?? 0);
    return {
      object: "organization.costs.result" as const,
      amount: { value: sum(({ cost }) => cost) / 1e6, currency: "usd" as const },
      ...names,
      line_item: model ?? null,
      quantity: isByItem ? units || sum(({ input, output }) => input + output) : null,
      quantity_unit: isByItem ? (units > 0 ? ("units" as const) : ("tokens" as const)) : null,
    };
  });
}

function inGroups(rows: readonly TenantUsage[], groupBy: readonly string[], groups: readonly UsageGroup[]) {
  const named = { project_id: "tenant", api_key_id: "key", model: "model" } as const;
  const namesOf = (row: TenantUsage): Partial<Record<UsageGroup, string | null>> =>
    Object.fromEntries(groups.map((group) => [group, groupBy.includes(group) ? row[named[group]] : null]));
  return [...Map.groupBy(rows, (row) => JSON.stringify(namesOf(row)))].map(([names, group]) => ({
    names: JSON.parse(names) as ReturnType<typeof namesOf>,
    rows: group,
    sum: (of: (row: TenantUsage) => number) => group.reduce((total, row) => total + of(row), 0),
  }));
}
