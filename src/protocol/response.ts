import type { ResponseError, ResponseStatus } from "openai/resources/responses/responses";
import type { OutputItem } from "../items/registry.ts";
import { type CreateRequest, conversationOf } from "./create-request.ts";
import { hostedOf } from "./hosted-tools.ts";
import { echoTool } from "./tools.ts";

/**
 * Token counts of a whole turn. The lists have one entry for each round of a turn with several (vLLM's, which calls
 * them turns, and has them in the details; there the Agents SDK takes nothing but numbers). Tokens of tool outputs are
 * what a round's prompt has more than the last one's and its output.
 */
export interface Usage {
  input_tokens: number;
  input_tokens_details: { cached_tokens: number; cache_write_tokens: number };
  output_tokens: number;
  output_tokens_details: { reasoning_tokens: number; tool_output_tokens?: number };
  total_tokens: number;
  input_tokens_per_turn?: number[];
  cached_tokens_per_turn?: number[];
  output_tokens_per_turn?: number[];
  tool_output_tokens_per_turn?: number[];
}

/** What hosted tools have used. OpenAI's type has images, too, which nothing makes here. */
export interface ToolUsage {
  image_gen: {
    input_tokens: number;
    input_tokens_details: { image_tokens: number; text_tokens: number };
    output_tokens: number;
    total_tokens: number;
  };
  web_search: { num_requests: number };
}

/** What the hosted tools of a response have used: undefined of one without a web search. */
export function toolUsageOf({ tools, output }: Pick<ResponseObject, "tools" | "output">): ToolUsage | undefined {
  if (!tools.some(({ type }) => hostedOf(type)?.kind === "browser")) return undefined;
  const searches = output.filter(
    (item) => item.type === "web_search_call" && item.status === "completed" && item.action.type === "search",
  );
  const images = { image_tokens: 0, text_tokens: 0 };
  return {
    image_gen: { input_tokens: 0, input_tokens_details: images, output_tokens: 0, total_tokens: 0 },
    web_search: { num_requests: searches.length },
  };
}

/** An item of the input that the model did not get, in the words of OpenAI's `input_transformations` (openai 7.56). */
export interface InputTransformation {
  type: "reasoning";
  /** The item's id. */
  id: string;
  action: "removed";
  /** Whose it is: another tenant's or nobody's that is known here, or another model's. */
  reason: "organization_mismatch" | "model_mismatch";
}

/**
 * The `response` object: OpenAI's, with the keys that the Open Responses schema wants always present
 * (openai 7.57 `Response`; Open Responses 2026-04-24 `ResponseResource`).
 */
export interface ResponseObject {
  id: string;
  object: "response";
  /** Unix seconds. */
  created_at: number;
  /** Unix seconds; only of a completed response. */
  completed_at: number | null;
  status: ResponseStatus;
  background: boolean;
  error: (Pick<ResponseError, "message"> & { code: string }) | null;
  incomplete_details: { reason: "max_output_tokens" | "content_filter" } | null;
  model: string;
  previous_response_id: string | null;
  conversation: { id: string } | null;
  instructions: string | null;
  output: OutputItem[];
  tools: NonNullable<CreateRequest["tools"]>;
  tool_choice: NonNullable<CreateRequest["tool_choice"]>;
  parallel_tool_calls: boolean;
  max_output_tokens: number | null;
  max_tool_calls: number | null;
  temperature: number;
  top_p: number;
  presence_penalty: number;
  frequency_penalty: number;
  top_logprobs: number;
  text: { format: NonNullable<NonNullable<CreateRequest["text"]>["format"]>; verbosity: "low" | "medium" | "high" };
  reasoning: { effort: string | null; summary: string | null } | null;
  truncation: "auto" | "disabled";
  usage: Usage | null;
  store: boolean;
  service_tier: string;
  metadata: Record<string, string>;
  safety_identifier: string | null;
  access_programs: null;
  moderation: null;
  prompt: null;
  prompt_cache_key: string | null;
  prompt_cache_retention: string | null;
  /** As the request had them; absent otherwise. */
  prompt_cache_options?: Omit<NonNullable<CreateRequest["prompt_cache_options"]>, "prewarm">;
  /** Only where the request asked for a comparison: vLLM tells how much of a prompt was cached, and not why the rest was not. */
  prompt_cache_diagnostics?: { type: "unavailable" };
  /** Only of a request with a web search. */
  tool_usage?: ToolUsage;
  user: string | null;
  /** What the model did not get of the input, in its order; present only where there is any. */
  input_transformations?: InputTransformation[];
  /** The prompt and the output as raw messages: vLLM's `enable_response_messages`, present only when asked for. */
  input_messages?: object[];
  output_messages?: object[];
  /** vLLM's disaggregated-serving hand-over, present only when the engine returned it. */
  kv_transfer_params?: unknown;
}

/** The response as it stands before the first token: every field echoed, defaults filled in. */
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
    tools: (request.tools ?? []).map(echoTool),
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
    // The tier that served the request, which is the only one there is.
    service_tier: "default",
    metadata: request.metadata ?? {},
    safety_identifier: request.safety_identifier ?? null,
    access_programs: null,
    moderation: null,
    prompt: null,
    prompt_cache_key: request.prompt_cache_key ?? null,
    prompt_cache_retention: request.prompt_cache_retention ?? null,
    ...promptCacheFields(request),
    user: request.user ?? null,
  };
}

function promptCacheFields({ prompt_cache_options: asked }: CreateRequest) {
  if (asked == null) return {};
  const { prewarm: _, ...options } = asked;
  const isCompared = options.comparison_response_id != null;
  return {
    prompt_cache_options: options,
    ...(isCompared && { prompt_cache_diagnostics: { type: "unavailable" as const } }),
  };
}
