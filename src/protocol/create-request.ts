import type { Steps } from "@responses-edge/long-work";
import { z } from "zod";
import { bringsTools, type InputItem, inputItem } from "../items/registry.ts";
import { ClientTools, clientToolsIn, fullNameOf } from "./client-tools.ts";
import { list, map, readAhead } from "./collections.ts";
import { describedAs } from "./described-as.ts";
import { MAX_ID_LENGTH } from "./ids.ts";
import { isJsonObject } from "./json.ts";
import { reasoningEffort, textFormat } from "./output-settings.ts";
import { type ChosenTool, chosenTools, hostedKey, type Tool, type ToolChoice, toolChoice, tools } from "./tools.ts";

/**
 * The body of `POST /v1/responses`: OpenAI's fields (openai 7.57), plus vLLM's extras under vLLM's names.
 *
 * This is the only validation and the only place for a limit. `null` means absent for every optional field, as in
 * OpenAI's API; unknown fields are dropped.
 */

/** A field of OpenAI's API that this server does not serve: absent, null and the given neutral values pass. */
function notServed(field: string, ...neutral: z.core.util.Literal[]) {
  const schema = z
    .unknown()
    .superRefine((value, context) => {
      if (value == null || neutral.some((accepted) => isSame(accepted, value))) return;
      context.addIssue({
        code: "custom",
        message: `'${field}' is not supported by this server.`,
        params: { code: "unsupported_parameter" },
      });
    })
    .optional();
  return describedAs(schema, () => describeNeutral(neutral).describe("Not supported by this server.").optional());
}

/** Some generators know enumerations of words only. */
function describeNeutral(neutral: z.core.util.Literal[]): z.ZodType {
  if (neutral.length === 0) return z.null();
  return neutral.every((value) => typeof value === "boolean") ? z.boolean().nullable() : z.literal([...neutral, null]);
}

/** A field of chat completions that the Responses API has elsewhere: told, as OpenAI does, rather than dropped. */
function moved(field: string, to: string) {
  const schema = z
    .unknown()
    .superRefine((value, context) => {
      if (value == null) return;
      context.addIssue({
        code: "custom",
        message: `Unsupported parameter: '${field}'. In the Responses API, this parameter has moved to '${to}'. Try again with the new parameter.`,
        params: { code: "unsupported_parameter" },
      });
    })
    .optional();
  return describedAs(schema, () => z.null().describe(`A field of chat completions. Here it is '${to}'.`).optional());
}

/** Fields of chat completions, under the names that OpenAI's API refuses here. */
const chatFields = {
  messages: moved("messages", "input"),
  max_tokens: moved("max_tokens", "max_output_tokens"),
  max_completion_tokens: moved("max_completion_tokens", "max_output_tokens"),
  response_format: moved("response_format", "text.format"),
  reasoning_effort: moved("reasoning_effort", "reasoning.effort"),
  functions: moved("functions", "tools"),
  function_call: moved("function_call", "tool_choice"),
};

/** Whether a value is the neutral one: a word, or an empty list. */
function isSame(neutral: unknown, value: unknown): boolean {
  return neutral === value || (Array.isArray(neutral) && Array.isArray(value) && neutral.length + value.length === 0);
}

export const metadata = map(z.string().max(64), z.string().max(512), { max: 16 });

const text = z.object({
  format: textFormat.nullish(),
  verbosity: z.enum(["low", "medium", "high"]).nullish(),
});

const reasoning = z.object({
  effort: reasoningEffort.nullish(),
  summary: z.enum(["auto", "concise", "detailed"]).nullish(),
  generate_summary: z.enum(["auto", "concise", "detailed"]).nullish(),
  context: z.enum(["auto", "current_turn", "all_turns"]).nullish(),
  mode: notServed("reasoning.mode", "standard"),
});

/** vLLM caches every prefix, for as long as it has room. */
const promptCacheOptions = z.object({
  mode: z.enum(["implicit", "explicit"]).default("implicit"),
  ttl: z.enum(["30m", "12h"]).default("30m"),
  comparison_response_id: z.string().max(MAX_ID_LENGTH).nullish(),
  /** The same as `generate: false`. */
  prewarm: z.boolean().nullish(),
});

/** Values of `include`, here and in the queries that take it. `web_search_call.results` is none of them: searches give pages, no results. */
export const includeValues = list(
  z.enum([
    "file_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
  ]),
  { max: 64 },
);

/** OpenAI's least threshold, in tokens. */
const MIN_COMPACT_THRESHOLD = 1000;

const contextManagement = z.object({
  type: z.literal("compaction"),
  compact_threshold: z.int().min(MIN_COMPACT_THRESHOLD).nullish(),
});

const conversationId = z.string().min(1).max(MAX_ID_LENGTH);
const conversation = z.union([conversationId, z.object({ id: conversationId })]);

/** Items of one request. OpenAI documents no number; a window of a million tokens does not hold as many. */
const MAX_ITEMS = 50_000;

/** MCP servers of one request. Each is asked for its tools, over a session of its own, before the model is. */
const MAX_MCP_SERVERS = 32;

/** Fields of OpenAI's API. */
const openaiFields = {
  model: z.string().min(1).max(512).nullish(),
  input: z.union([z.string().max(10_485_760), list(inputItem, { max: MAX_ITEMS })]).nullish(),
  instructions: z.string().max(10_485_760).nullish(),
  previous_response_id: z.string().min(1).max(MAX_ID_LENGTH).nullish(),
  conversation: conversation.nullish(),
  background: z.boolean().nullish(),
  tools: tools.nullish(),
  tool_choice: toolChoice.nullish(),
  parallel_tool_calls: z.boolean().nullish(),
  max_output_tokens: z.int().min(1).nullish(),
  max_tool_calls: z.int().min(1).nullish(),
  temperature: z.number().min(0).max(2).nullish(),
  top_p: z.number().min(0).max(1).nullish(),
  top_logprobs: z.int().min(0).max(20).nullish(),
  text: text.nullish(),
  reasoning: reasoning.nullish(),
  include: includeValues.nullish(),
  store: z.boolean().nullish(),
  stream: z.boolean().nullish(),
  stream_options: z.object({ include_obfuscation: z.boolean().nullish() }).nullish(),
  metadata: metadata.nullish(),
  truncation: z.enum(["auto", "disabled"]).nullish(),
  context_management: list(contextManagement, { max: 16 }).nullish(),
  /** False: the request is checked and kept, so that it can be continued, and the model is asked nothing. */
  generate: z.boolean().nullish(),
  // Hints, of no effect here. There is one tier, which every response says.
  service_tier: z.enum(["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"]).nullish(),
  safety_identifier: z.string().max(128).nullish(),
  prompt_cache_key: z.string().max(1024).nullish(),
  prompt_cache_retention: z.enum(["in_memory", "in-memory", "24h"]).nullish(),
  prompt_cache_options: promptCacheOptions.nullish(),
  user: z.string().max(1024).nullish(),
  // Not served.
  prompt: notServed("prompt"),
  moderation: notServed("moderation"),
  image: z.strictObject({ context_compression: notServed("image.context_compression", "auto", "disabled") }).nullish(),
  access_programs: z.strictObject({ cyber: notServed("access_programs.cyber", "standard") }).nullish(),
  multi_agent: z
    .strictObject({
      enabled: notServed("multi_agent.enabled", false),
      max_concurrent_subagents: z.int().min(1).nullish(),
    })
    .nullish(),
  /** Of `input_tokens`. */
  personality: notServed("personality"),
};

const finite = z.number();
const int64 = z.int();
const jsonObject = z.record(z.string(), z.unknown());
const tokenIds = list(int64.min(0), { max: 1024 });

/**
 * vLLM's own request fields, passed through to its chat completions route under the same name.
 * Ranges are those that vLLM's `SamplingParams` checks.
 */
export const vllmFields = {
  top_k: int64.min(-1).nullish(),
  min_p: finite.min(0).max(1).nullish(),
  repetition_penalty: finite.gt(0).nullish(),
  presence_penalty: finite.min(-2).max(2).nullish(),
  frequency_penalty: finite.min(-2).max(2).nullish(),
  seed: int64.nullish(),
  stop: z.union([z.string().min(1), list(z.string().min(1), { max: 16 })]).nullish(),
  stop_token_ids: tokenIds.nullish(),
  ignore_eos: z.boolean().nullish(),
  include_stop_str_in_output: z.boolean().nullish(),
  skip_special_tokens: z.boolean().nullish(),
  logit_bias: map(z.string(), finite).nullish(),
  min_tokens: int64.min(0).nullish(),
  length_penalty: finite.nullish(),
  spaces_between_special_tokens: z.boolean().nullish(),
  allowed_token_ids: tokenIds.nullish(),
  bad_words: list(z.string().min(1).max(1024), { max: 1024 }).nullish(),
  logprob_token_ids: tokenIds.nullish(),
  repetition_detection: z
    .object({
      max_pattern_size: int64.min(0).nullish(),
      min_pattern_size: int64.min(0).nullish(),
      min_count: int64.min(0).nullish(),
    })
    .nullish(),
  truncate_prompt_tokens: int64.min(-1).nullish(),
  truncation_side: z.enum(["left", "right"]).nullish(),
  watermarking: z.boolean().nullish(),
  stream_interval: int64.min(1).nullish(),
  /** Tokens that the model may think; -1 is without limit. */
  thinking_token_budget: int64.min(-1).nullish(),
  priority: int64.nullish(),
  cache_salt: z.string().min(1).max(1024).nullish(),
  structured_outputs: jsonObject.nullish(),
  chat_template_kwargs: jsonObject.nullish(),
  mm_processor_kwargs: jsonObject.nullish(),
  vllm_xargs: jsonObject.nullish(),
  kv_transfer_params: jsonObject.nullish(),
  include_reasoning: z.boolean().nullish(),
};

/** vLLM's fields for clients that keep raw messages themselves. The engine knows their form, and checks them. */
const messageFields = {
  enable_response_messages: z.boolean().nullish(),
  previous_input_messages: list(jsonObject, { max: 100_000 }).nullish(),
};

/** All fields, as each of the bodies below may have them. */
export const requestFields = z.object({ ...openaiFields, ...vllmFields, ...messageFields, ...chatFields });

export const createRequest = describedAs(
  requestFields.superRefine((body, context) => {
    if (body.input == null) {
      const params = { code: "missing_required_parameter" };
      context.addIssue({ code: "custom", path: ["input"], message: "Missing required parameter: 'input'.", params });
    }
    checkTogether(body, context);
  }),
  () => requestFields.meta({ required: ["input"] }),
);

/** The body of `POST /v1/responses/input_tokens`: a create's, where what is continued may stand without an input. */
export const countRequest = requestFields
  .transform((body) => ({ ...body, input: body.input ?? [] }))
  .superRefine(checkTogether);

/**
 * The body of `POST /v1/responses/compact` as the create that it is: one that asks for a compaction of its input and of
 * what it continues, and keeps nothing.
 */
export const compactRequest = describedAs(
  requestFields
    .extend({ model: z.string().min(1).max(512).nullable() })
    .transform(({ input, conversation: _, ...body }) => ({
      ...body,
      input: [...toItems(input), { type: "compaction_trigger" as const }],
      background: false,
      stream: false,
      store: false,
    }))
    .superRefine((body, context) => {
      if (isOnlyPrepared(body)) {
        const params = { code: "invalid_value" };
        context.addIssue({ code: "custom", path: preparedBy(body), message: "A compaction is generated.", params });
      }
      if (body.input.length === 1 && !continuesSomething(body)) {
        const params = { code: "missing_required_parameter" };
        context.addIssue({ code: "custom", path: ["input"], message: "Missing required parameter: 'input'.", params });
      }
      checkTogether(body, context);
    }),
  () => requestFields.meta({ required: ["model"] }),
);

/** Reads the items of a long input, in steps: validating the body they are in then takes little at once. */
export function* readInputAhead(body: unknown): Steps<void> {
  if (isJsonObject(body) && Array.isArray(body.input)) yield* readAhead(inputItem, body.input, MAX_ITEMS);
}

/** The input of a request as items. */
export function toItems(input: string | InputItem[] | null | undefined): InputItem[] {
  if (typeof input !== "string") return input ?? [];
  return [{ type: "message", role: "user", status: "completed", content: [{ type: "input_text", text: input }] }];
}

/** Raises what fields are at fault together. */
function checkTogether(body: z.output<typeof requestFields>, context: z.RefinementCtx): void {
  const issue = (path: (string | number)[], message: string, code = "invalid_value") =>
    context.addIssue({ code: "custom", path, message, params: { code } });
  if (Array.isArray(body.input) && body.input.length === 0 && !continuesSomething(body)) {
    issue(["input"], "Expected at least one item.", "empty_array");
  }
  const trigger = Array.isArray(body.input) ? body.input.findIndex(({ type }) => type === "compaction_trigger") : -1;
  if (trigger !== -1 && trigger !== (body.input?.length ?? 0) - 1) {
    issue(["input", trigger], "A 'compaction_trigger' must be the last item of 'input'.");
  }
  if (body.background && body.store === false) {
    issue(["background"], "background can only be used when `store` is true");
  }
  if (body.background && isOnlyPrepared(body)) {
    issue(preparedBy(body), "A response that is only prepared cannot be made in the background.");
  }
  if (body.conversation != null && body.previous_response_id != null) {
    const message = "Mutually exclusive parameters: 'conversation' and 'previous_response_id'. Send one of them.";
    issue(["conversation"], message, "mutually_exclusive_parameters");
  }
  if (body.previous_input_messages != null && body.previous_response_id != null) {
    const message = "Only one of `previous_input_messages` and `previous_response_id` can be set.";
    issue(["previous_input_messages"], message, "mutually_exclusive_parameters");
  }
  if (body.previous_input_messages != null && body.conversation != null) {
    const message = "Only one of `previous_input_messages` and `conversation` can be set.";
    issue(["previous_input_messages"], message, "mutually_exclusive_parameters");
  }
  if (body.structured_outputs != null && body.text?.format != null && body.text.format.type !== "text") {
    issue(["structured_outputs"], "Cannot specify both structured_outputs and text.format");
  }
  const tools = body.tools ?? [];
  if (tools.filter(({ type }) => type === "mcp").length > MAX_MCP_SERVERS) {
    const index = tools.flatMap(({ type }, at) => (type === "mcp" ? [at] : []))[MAX_MCP_SERVERS] ?? 0;
    issue(["tools", index], `Expected at most ${MAX_MCP_SERVERS} MCP servers.`, "array_above_max_length");
    return;
  }
  const clash = clashingTools(tools);
  if (clash) {
    issue(["tools", ...clash.path], clash.message);
    return;
  }
  const mayLoad = continuesSomething(body) || (Array.isArray(body.input) && body.input.some(bringsTools));
  const wrong = mayLoad ? undefined : wrongChoice(body.tool_choice, tools);
  if (wrong !== undefined) issue(["tool_choice"], wrong);
}

/** Two tools that have, or would have for a model, the same name: the place of the second one, and what to say of it. */
export function clashingTools(tools: readonly Tool[]): { path: (string | number)[]; message: string } | undefined {
  const hosted = new Set<string>();
  for (const [index, tool] of tools.entries()) {
    const key = hostedKey(tool);
    if (key !== undefined && hosted.has(key)) {
      const field = tool.type === "mcp" ? "server_label" : "type";
      return { path: [index, field], message: `The tool ${field} '${key.replace(/^mcp:/, "")}' is used twice.` };
    }
    if (key !== undefined) hosted.add(key);
  }
  const known = new Map<string, string>();
  // A server's search is a function for models, too.
  if (hosted.has("tool_search")) known.set("tool_search", "tool_search");
  for (const tool of clientToolsIn(tools)) {
    const { flatName, path } = tool;
    const name = fullNameOf(tool);
    const other = known.get(flatName);
    if (other === name) return { path, message: `The tool ${path.at(-1)} '${name}' is used twice.` };
    if (other !== undefined) {
      return { path, message: `The tools '${other}' and '${name}' would both be '${flatName}' to the model.` };
    }
    known.set(flatName, name);
  }
  return undefined;
}

/** What is wrong with a choice of tools: it leaves none, or names one that is not there. */
export function wrongChoice(choice: ToolChoice | null | undefined, tools: readonly Tool[]): string | undefined {
  if (choice == null || choice === "auto" || choice === "none") return undefined;
  if (typeof choice === "string") {
    return tools.length === 0 ? "Tool choice 'required' must be specified with 'tools' parameter." : undefined;
  }
  const hosted = new Set(tools.map(hostedKey));
  const clients = ClientTools.of(tools);
  const isThere = (chosen: ChosenTool) => {
    const key = hostedKey(chosen);
    return (key !== undefined && hosted.has(key)) || clients.chosen(chosen).length > 0;
  };
  const missing = chosenTools(choice)?.find((chosen) => !isThere(chosen));
  if (!missing) return undefined;
  const name = "name" in missing && missing.type !== "mcp" ? missing.name : undefined;
  const label = missing.type === "mcp" ? missing.server_label : missing.type;
  return `Tool choice '${name ?? label}' not found in 'tools' parameter.`;
}

function continuesSomething(body: z.output<typeof requestFields>): boolean {
  return (
    body.previous_response_id != null || body.conversation != null || (body.previous_input_messages?.length ?? 0) > 0
  );
}

type Preparing = Pick<z.output<typeof requestFields>, "generate" | "prompt_cache_options">;

/** Whether a request is to be checked and kept, and the model to be asked nothing. */
export function isOnlyPrepared({ generate, prompt_cache_options: cache }: Preparing): boolean {
  return generate === false || cache?.prewarm === true;
}

/** The field by which it is that. */
export function preparedBy({ generate }: Preparing): string[] {
  return generate === false ? ["generate"] : ["prompt_cache_options", "prewarm"];
}

/** The id of the conversation that a request names, in either form. */
export function conversationOf(request: CreateRequest): string | undefined {
  return typeof request.conversation === "string" ? request.conversation : request.conversation?.id;
}

/** A validated create body. Past this type nothing is checked again. */
export type CreateRequest = z.output<typeof createRequest> & {
  /** Fields that only vLLM knows, as the client sent them (`VLLM_EXTRA_FIELDS`). */
  vllm_fields?: Record<string, unknown>;
};
