import { alwaysNull } from "@responses-edge/bounded-io/schemas/described-as";
import { z } from "zod";
import { type CreateRequest, conversationOf } from "./create-bodies.ts";
import { hostedOf } from "./hosted-tools.ts";
import { answeredItems } from "./items/answered.ts";
import type { OutputItem } from "./items/registry.ts";
import { once } from "./items/shapes.ts";
import { moderationSchemas } from "./moderations.ts";
import { reasoningEffort, textFormat } from "./output-settings.ts";
import { withStrictness } from "./strict-functions.ts";
import { echoTool, normalChoice, tool } from "./tools.ts";

/**
 * Makes the schemas of a response: OpenAI's, with the keys that the Open Responses schema requires (openai 7.59
 * `Response`; Open Responses 2026-04-24 `ResponseResource`). They describe, and give the types below.
 */
export const responseSchemas = once(() => {
  const text = z.string();
  const seconds = z.int().min(0).describe("Unix seconds.");
  const count = z.int().min(0);

  // The lists have one entry for each round of a turn with several rounds (vLLM calls them turns, and has them in the
  // details, where the Agents SDK accepts only numbers). Tokens of tool outputs are those of a round's prompt beyond
  // the previous round's prompt and output.
  const Usage = z.object({
    input_tokens: count,
    input_tokens_details: z.object({ cached_tokens: count, cache_write_tokens: count }),
    output_tokens: count,
    output_tokens_details: z.object({ reasoning_tokens: count, tool_output_tokens: count.optional() }),
    total_tokens: count,
    input_tokens_per_turn: z.array(count).optional(),
    cached_tokens_per_turn: z.array(count).optional(),
    output_tokens_per_turn: z.array(count).optional(),
    tool_output_tokens_per_turn: z.array(count).optional(),
  });
  // Image servers report no tokens: those of images are always 0.
  const ToolUsage = z.object({
    image_gen: z.object({
      input_tokens: count,
      input_tokens_details: z.object({ image_tokens: count, text_tokens: count }),
      output_tokens: count,
      total_tokens: count,
    }),
    web_search: z.object({ num_requests: count }),
  });
  const ms = z.int().min(0);
  const since = ms.describe("Milliseconds from `accepted_at`.");
  const Round = z.object({
    server: text.nullable().describe("The name of the model server that was asked last."),
    model: text,
    purpose: z
      .enum(["round", "take_up", "summary"])
      .describe("`take_up` continues a round that broke off, `summary` compacts the prompt."),
    began_ms: since,
    queued_ms: ms.describe("How long it waited for a saturated model server."),
    first_token_ms: since.nullable(),
    ended_ms: since,
    attempts: z.int().min(0).describe("HTTP requests. More than one: it was repeated."),
    input_tokens: count,
    cached_tokens: count,
    output_tokens: count,
    error: text.nullable().describe("The code of the error that it ended with."),
  });
  const Timing = z.object({
    accepted_at: z.int().describe("Unix milliseconds."),
    waited_ms: ms.describe("How long it waited for its conversation."),
    queued_ms: ms.describe("How long all rounds waited for saturated model servers."),
    rounds: z.array(Round),
    items: z
      .array(z.object({ id: text, began_ms: since, ended_ms: since }))
      .describe("The output items. That of a tool's call ends with its result."),
    settled_ms: since,
    rounds_omitted: z.int().describe("The number of further rounds, if there are any.").optional(),
    items_omitted: z.int().describe("The number of further items, if there are any.").optional(),
  });
  const ResponseObject = z.object({
    id: text,
    object: z.literal("response"),
    created_at: seconds,
    // Only of a completed response.
    completed_at: seconds.nullable(),
    status: z.enum(["completed", "failed", "in_progress", "cancelled", "queued", "incomplete"]),
    background: z.boolean(),
    error: z.object({ code: text, message: text }).nullable(),
    incomplete_details: z.object({ reason: z.enum(["max_output_tokens", "content_filter", "steered"]) }).nullable(),
    model: text,
    previous_response_id: text.nullable(),
    conversation: z.object({ id: text }).nullable(),
    instructions: text.nullable(),
    output: z.array(answeredItems().OutputItem),
    tools: z.array(tool),
    tool_choice: normalChoice,
    parallel_tool_calls: z.boolean(),
    max_output_tokens: z.int().nullable(),
    max_tool_calls: z.int().nullable(),
    temperature: z.number(),
    top_p: z.number(),
    presence_penalty: z.number(),
    frequency_penalty: z.number(),
    top_logprobs: z.int(),
    text: z.object({ format: textFormat, verbosity: z.enum(["low", "medium", "high"]) }),
    reasoning: z
      .object({
        effort: reasoningEffort.nullable(),
        summary: z.enum(["auto", "concise", "detailed"]).nullable(),
        context: z.enum(["auto", "current_turn", "all_turns"]).optional(),
      })
      .nullable(),
    truncation: z.enum(["auto", "disabled"]),
    usage: Usage.nullable(),
    store: z.boolean(),
    service_tier: z.enum(["default", "flex", "scale", "priority", "fast", "ultrafast"]),
    metadata: z.record(text, text),
    safety_identifier: text.nullable(),
    access_programs: alwaysNull(),
    // Only if the turn was moderated.
    moderation: moderationSchemas().ResponseModeration.nullable(),
    prompt: alwaysNull(),
    prompt_cache_key: text.nullable(),
    prompt_cache_retention: z.enum(["in_memory", "in-memory", "24h"]).nullable(),
    // As the request had them; absent otherwise.
    prompt_cache_options: z
      .object({
        mode: z.enum(["implicit", "explicit"]),
        ttl: z.enum(["30m", "12h"]),
        comparison_response_id: text.nullish(),
      })
      .optional(),
    // Only if the request asked for a comparison.
    prompt_cache_diagnostics: cacheDiagnosis().optional(),
    // Only for a request with a web search or images.
    tool_usage: ToolUsage.optional(),
    user: text.nullable(),
    // The input items that the model did not get, in their order, with the owner of each: another or an unknown tenant,
    // or another model (openai 7.56). Present only if there are any.
    input_transformations: z
      .array(
        z.object({
          type: z.literal("reasoning"),
          id: text,
          action: z.literal("removed"),
          reason: z.enum(["organization_mismatch", "model_mismatch"]),
        }),
      )
      .optional(),
    // The prompt and the output as raw messages: vLLM's `enable_response_messages`, present only when asked for.
    input_messages: z.array(z.looseObject({})).optional(),
    output_messages: z.array(z.looseObject({})).optional(),
    // vLLM's disaggregated-serving hand-over, present only when the engine returned it.
    kv_transfer_params: z.unknown().optional(),
    // The items whose generation this server has broken off, in their order. Present only if there are any.
    cut_items: z
      .array(z.object({ id: text.nullable(), reason: z.enum(["repetition", "thinking_token_budget"]) }))
      .describe("`id` is null for reasoning that is not shown.")
      .optional(),
    recovery: z
      .object({ down_since: seconds, gives_up_at: seconds })
      .describe("Only in events, while the turn waits for a model server.")
      .optional(),
    timing: Timing.nullable()
      .describe(
        "With `timing` in `include`: the wait, each round and each item. Null while the response is in progress.",
      )
      .optional(),
  });
  return { Usage, ToolUsage, Timing, ResponseObject };
});

type Described = {
  [Name in keyof ReturnType<typeof responseSchemas>]: z.output<ReturnType<typeof responseSchemas>[Name]>;
};

/** OpenAI's reasons for which a prompt differs from the compared response's. */
const CACHE_MISS_REASONS = [
  "model_changed",
  "prompt_cache_key_changed",
  "tools_changed",
  "text_format_changed",
  "reasoning_effort_changed",
  "context_compacted",
  "input_changed",
] as const;

function cacheDiagnosis() {
  return z.union([
    z.object({ type: z.enum(["cache_hit", "comparison_response_not_found", "unavailable"]) }),
    z.object({
      type: z.literal("cache_miss"),
      reason: z.enum(CACHE_MISS_REASONS),
      cache_missed_tokens: z.int(),
      comparison_reusable_tokens: z.int().optional(),
      first_difference: z
        .object({
          part: z.enum(["effort", "tool", "format", "input"]),
          index: z.int(),
          name: z.string().optional(),
          by_template: z.literal(true).optional(),
        })
        .describe("The first part that is not the same: its kind, and its position among the parts of that kind.")
        .optional(),
    }),
  ]);
}

/** OpenAI's `prompt_cache_diagnostics`. */
export type CacheDiagnosis = z.output<ReturnType<typeof cacheDiagnosis>>;

/** Token counts of a whole turn. */
export type Usage = Described["Usage"];

/** The times of a turn: its wait, each round and each item. */
export type ResponseTiming = Described["Timing"];

/** The use of hosted tools. */
export type ToolUsage = Described["ToolUsage"];

/** The `response` object. */
export type ResponseObject = Omit<Described["ResponseObject"], "output" | "input_messages" | "output_messages"> & {
  output: OutputItem[];
  input_messages?: object[];
  output_messages?: object[];
};

/** An input item that the model did not get, in the form of OpenAI's `input_transformations`. */
export type InputTransformation = NonNullable<ResponseObject["input_transformations"]>[number];

/** The hosted tools whose use is counted beside tokens. */
export type CountedTool = "code_interpreter" | "file_search" | "image_generation" | "web_search";

/**
 * The use of a response's hosted tools. `calls`: searches count by their calls; all programs of a turn share one
 * container, and are one session. `shown` is the response's field; undefined without a web search or images.
 */
export function toolUseOf({ tools, output }: Pick<ResponseObject, "tools" | "output">): {
  calls: Record<CountedTool, number>;
  shown: ToolUsage | undefined;
} {
  const calls = { code_interpreter: 0, file_search: 0, image_generation: 0, web_search: 0 };
  for (const item of output) {
    if (item.type === "code_interpreter_call") calls.code_interpreter = 1;
    if (!("status" in item) || item.status !== "completed") continue;
    if (item.type === "file_search_call") calls.file_search += 1;
    else if (item.type === "image_generation_call") calls.image_generation += 1;
    else if (item.type === "web_search_call" && item.action.type === "search") calls.web_search += 1;
  }
  const kinds = new Set<string | undefined>();
  for (const { type } of tools) kinds.add(hostedOf(type)?.kind);
  if (!kinds.has("browser") && !kinds.has("image_generation")) return { calls, shown: undefined };
  const images = { image_tokens: 0, text_tokens: 0 };
  const drawn = { input_tokens: 0, input_tokens_details: images, output_tokens: 0, total_tokens: 0 };
  return { calls, shown: { image_gen: drawn, web_search: { num_requests: calls.web_search } } };
}

/** A time in Unix milliseconds as whole Unix seconds, the API's form. */
export function unixSeconds(ms = Date.now()): number {
  return Math.floor(ms / 1000);
}

/** The response before the first token: every field echoed, defaults filled in. */
export function initialResponse(
  request: CreateRequest,
  identity: { id: string; model: string; createdAt: number },
): ResponseObject {
  const { reasoning, text } = request;
  const conversation = conversationOf(request);
  return {
    id: identity.id,
    object: "response",
    created_at: identity.createdAt,
    completed_at: null,
    status: "in_progress",
    background: request.background ?? false,
    error: null,
    incomplete_details: null,
    model: identity.model,
    previous_response_id: request.previous_response_id ?? null,
    conversation: conversation === undefined ? null : { id: conversation },
    instructions: request.instructions ?? null,
    output: [],
    tools: (request.tools ?? []).map((each) => (each.type === "mcp" ? echoTool(each) : withStrictness(each))),
    tool_choice: request.tool_choice ?? "auto",
    parallel_tool_calls: request.parallel_tool_calls ?? true,
    max_output_tokens: request.max_output_tokens ?? null,
    max_tool_calls: request.max_tool_calls ?? null,
    temperature: request.temperature ?? 1,
    top_p: request.top_p ?? 1,
    presence_penalty: request.presence_penalty ?? 0,
    frequency_penalty: request.frequency_penalty ?? 0,
    top_logprobs: request.top_logprobs ?? 0,
    text: { format: text?.format ?? { type: "text" }, verbosity: text?.verbosity ?? "medium" },
    reasoning: reasoning
      ? {
          effort: reasoning.effort ?? null,
          summary: reasoning.summary ?? reasoning.generate_summary ?? null,
          ...(reasoning.context != null && { context: reasoning.context }),
        }
      : null,
    truncation: request.truncation ?? "disabled",
    usage: null,
    store: request.store ?? true,
    // The tier that served the request; there is only one.
    service_tier: "default",
    metadata: request.metadata ?? {},
    safety_identifier: request.safety_identifier ?? null,
    access_programs: null,
    moderation: null,
    prompt: null,
    prompt_cache_key: request.prompt_cache_key ?? null,
    prompt_cache_retention: request.prompt_cache_retention ?? null,
    ...(request.prompt_cache_options != null && promptCacheFields(request.prompt_cache_options)),
    user: request.user ?? null,
  };
}

function promptCacheFields(asked: NonNullable<CreateRequest["prompt_cache_options"]>) {
  const { prewarm: _, ...options } = asked;
  const isCompared = options.comparison_response_id != null;
  return {
    prompt_cache_options: options,
    ...(isCompared && { prompt_cache_diagnostics: { type: "unavailable" as const } }),
  };
}
