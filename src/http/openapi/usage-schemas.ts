import { KINDS_OF_REQUESTS, USAGE_REPORTS, type UsageKind } from "@responses-edge/usage-limits";
import { z } from "zod";

/** The pages of usage and costs, in OpenAI's form. */

/** The page of each kind of usage. */
export const USAGE_PAGES = {
  completions: "UsagePage",
  embeddings: "EmbeddingsUsagePage",
  images: "ImagesUsagePage",
  moderations: "ModerationsUsagePage",
  decisions: "DecisionsUsagePage",
  audio_transcriptions: "AudioTranscriptionsUsagePage",
  code_interpreter_sessions: "CodeInterpreterSessionsUsagePage",
  file_searches: "FileSearchesUsagePage",
  vector_stores: "VectorStoresUsagePage",
  web_searches: "WebSearchesUsagePage",
} as const satisfies Record<UsageKind, string>;

export function usageSchemas() {
  const text = z.string();
  const count = z.int().min(0);
  const seconds = count.describe("Unix seconds.");
  const buckets = <Result extends z.ZodType>(result: Result) =>
    z.array(
      z.object({ object: z.literal("bucket"), start_time: seconds, end_time: seconds, results: z.array(result) }),
    );
  const pageOf = <Result extends z.ZodType>(result: Result) =>
    z.object({
      object: z.literal("page"),
      data: buckets(result),
      has_more: z.boolean(),
      next_page: text.nullable(),
    });
  const ms = count.nullable().describe("Milliseconds, off by a tenth at most. Null if no request has it.");
  const ended = {
    num_errors: count.describe("Requests that ended with an error, also those that no model got."),
    duration_ms_sum: count.describe("The time of all requests without an error, in milliseconds."),
    ...{ p50_ms: ms, p95_ms: ms, p50_first_token_ms: ms, p95_first_token_ms: ms },
  };
  const usagePage = (kind: UsageKind) => {
    const { object, figures, groups } = USAGE_REPORTS[kind];
    return pageOf(
      z.object({
        object: z.literal(object),
        ...Object.fromEntries(Object.keys(figures).map((name) => [name, count])),
        ...Object.fromEntries(groups.map((group) => [group, text.nullable()])),
        cost_usd: z.number().min(0),
        ...(KINDS_OF_REQUESTS.has(kind) && ended),
      }),
    );
  };
  const usagePages = Object.entries(USAGE_PAGES).map(([kind, name]) => [name, usagePage(kind as UsageKind)] as const);
  return {
    buckets,
    pages: {
      ...(Object.fromEntries(usagePages) as Record<(typeof USAGE_PAGES)[UsageKind], ReturnType<typeof usagePage>>),
      CostsPage: pageOf(
        z.object({
          object: z.literal("organization.costs.result"),
          amount: z.object({ value: z.number().min(0), currency: z.literal("usd") }),
          project_id: text.nullable(),
          api_key_id: text.nullable(),
          line_item: text.nullable(),
          quantity: count.nullable(),
          quantity_unit: z.enum(["tokens", "units"]).nullable(),
        }),
      ),
    },
  };
}
