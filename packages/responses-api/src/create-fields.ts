import { list, map } from "@responses-edge/bounded-io/schemas/collections";
import { describedAs } from "@responses-edge/bounded-io/schemas/described-as";
import { z } from "zod";
import { HOSTED_TYPES } from "./hosted-tools.ts";
import { MAX_ID_LENGTH } from "./ids.ts";
import { inputItem } from "./items/registry.ts";
import { moderationField } from "./moderations.ts";
import { reasoningEffort, textFormat } from "./output-settings.ts";
import { refuse } from "./tool-fields.ts";
import { toolChoice, tools } from "./tools.ts";

/**
 * The fields of a create: OpenAI's (openai 7.59), plus vLLM's extras under vLLM's names. This is the only place for the limit of a
 * field. `null` means absent for every optional field, as in OpenAI's API; unknown fields are dropped. The API's description and
 * docs/reference/fields.md are generated from this.
 */

/**
 * A field of OpenAI's API that this server does not support: absent, null and the given neutral values are accepted.
 */
function notServed(field: string, ...neutral: z.core.util.Literal[]) {
  const schema = z
    .transform((value: unknown, context) => {
      if (value == null || neutral.some((accepted) => isSame(accepted, value))) return value;
      refuse(context, [], `'${field}' is not supported by this server.`);
      return z.NEVER;
    })
    .optional();
  return describedAs(schema, () => describeNeutral(neutral).describe("Not supported by this server.").optional());
}

/** Some generators know enumerations of words only. */
function describeNeutral(neutral: z.core.util.Literal[]): z.ZodType {
  if (neutral.length === 0) return z.null();
  return neutral.every((value) => typeof value === "boolean") ? z.boolean().nullable() : z.literal([...neutral, null]);
}

/** A field of chat completions: refused as OpenAI does, rather than dropped. `where` tells what the Responses API has instead. */
function ofChat(field: string, where: string, about: string) {
  const schema = z
    .transform((value: unknown, context) => {
      if (value != null) refuse(context, [], `Unsupported parameter: '${field}'. ${where}`);
      return value;
    })
    .optional();
  return describedAs(schema, () => z.null().describe(`A field of chat completions. ${about}`).optional());
}

/** One that the Responses API has elsewhere. */
function moved(field: string, to: string) {
  const where = `In the Responses API, this parameter has moved to '${to}'. Try again with the new parameter.`;
  return ofChat(field, where, `Here it is '${to}'.`);
}

/** One that the Responses API does not have. */
function chatOnly(field: string) {
  return ofChat(field, "The Responses API has no such parameter.", "There is none here.");
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
  verbosity: moved("verbosity", "text.verbosity"),
  web_search_options: moved("web_search_options", "tools"),
  logprobs: moved("logprobs", "top_logprobs"),
  n: chatOnly("n"),
  modalities: chatOnly("modalities"),
  audio: chatOnly("audio"),
  prediction: chatOnly("prediction"),
};

/** Tells whether a value is the neutral one: a word, or an empty list. */
function isSame(neutral: unknown, value: unknown): boolean {
  return neutral === value || (Array.isArray(neutral) && Array.isArray(value) && neutral.length + value.length === 0);
}

export const metadata = map(z.string().max(64), z.string().max(512), { max: 16 });

const text = z.object({
  format: textFormat.nullish().describe("The format of the final text: `text`, `json_object` or `json_schema`."),
  verbosity: z.enum(["low", "medium", "high"]).nullish().describe("Echoed."),
});

const reasoning = z.object({
  effort: reasoningEffort
    .nullish()
    .describe("Chat templates receive it as `reasoning_effort` and `enable_thinking`, gpt-oss in its system message."),
  summary: z
    .enum(["auto", "concise", "detailed"])
    .nullish()
    .describe("The reasoning arrives as `summary` parts and events, which most clients show (docs/reasoning.md)."),
  generate_summary: z.enum(["auto", "concise", "detailed"]).nullish().describe("The older name of `summary`."),
  context: z
    .enum(["auto", "current_turn", "all_turns"])
    .nullish()
    .describe(
      "`current_turn`: the model gets only this turn's reasoning back. `all_turns`: it gets all of it, if it is gpt-oss or its chat template can keep it (docs/reasoning.md).",
    ),
  mode: notServed("reasoning.mode", "standard"),
});

/** A word whose default is also that of null. */
function orNull<Words extends z.ZodEnum>(words: Words, preset: z.output<Words>) {
  return words
    .nullable()
    .default(preset as never)
    .transform((word) => (word ?? preset) as z.output<Words>);
}

/** vLLM caches every prefix, as long as its cache has space. */
const promptCacheOptions = z.object({
  mode: orNull(z.enum(["implicit", "explicit"]), "implicit").describe("Echoed. The default is `implicit`."),
  ttl: orNull(z.enum(["30m", "12h"]), "30m").describe("Echoed. The default is `30m`."),
  comparison_response_id: z.string().max(MAX_ID_LENGTH).nullish().describe("Echoed."),
  prewarm: z.boolean().nullish().describe("The same as `generate: false`."),
});

const INCLUDE = [
  "file_search_call.results",
  "web_search_call.results",
  "web_search_call.action.sources",
  "message.input_image.image_url",
  "computer_call_output.output.image_url",
  "code_interpreter_call.outputs",
  "reasoning.encrypted_content",
  "message.output_text.logprobs",
] as const;

/** Values of `include` in the queries of items. */
export const includeValues = list(z.enum(INCLUDE), { max: 64 });

/** Those of a create, and of a query of a response. */
export const responseIncludeValues = list(z.enum([...INCLUDE, "timing"]), { max: 64 });

/** OpenAI's least threshold, in tokens. */
const MIN_COMPACT_THRESHOLD = 1000;

const contextManagement = z.object({
  type: z.literal("compaction"),
  compact_threshold: z.int().min(MIN_COMPACT_THRESHOLD).nullish(),
});

const conversationId = z.string().min(1).max(MAX_ID_LENGTH);
const conversation = z.union([conversationId, z.object({ id: conversationId })]);

/** Items of one request. OpenAI documents no number; a window of a million tokens does not hold as many. */
export const MAX_ITEMS = 50_000;

/** Fields of OpenAI's API. */
const openaiFields = {
  model: z
    .string()
    .min(1)
    .max(512)
    .nullish()
    .describe("The model's name at vLLM, or an alias of `MODEL_ALIASES`. Without it, vLLM's first model answers."),
  input: z
    .union([z.string().max(10_485_760), list(inputItem, { max: MAX_ITEMS })])
    .nullish()
    .describe(
      "A text, or items: messages (`user`, `assistant`, `system`, `developer`), calls and outputs of tools, `reasoning`, `item_reference`, `mcp_approval_response`, `additional_tools`, `configuration_update`, `compaction`, `compaction_trigger`. Items of tools that are not served are stored and not shown to the model. The parts of a message are `input_text`, `input_image` (a URL, a data URL or a `file_id`), `input_audio`, `input_video`, `input_file` (by `file_data`, `file_url` or `file_id`: PDF, Office, HTML and text), `output_text` and `refusal`.",
    ),
  instructions: z
    .string()
    .max(10_485_760)
    .nullish()
    .describe("A system message for this turn. The next turn does not inherit it."),
  previous_response_id: z
    .string()
    .min(1)
    .max(MAX_ID_LENGTH)
    .nullish()
    .describe("The stored response that this one continues. Two continuations of one response are two branches."),
  conversation: conversation
    .nullish()
    .describe(
      "The id of a conversation, or `{id}`. Its items come before the input, and it receives the input and the output. Turns of one conversation run one after another.",
    ),
  background: z
    .boolean()
    .nullish()
    .describe(
      "`true`: the response is made without a client and survives crashes. With `store: false` it can be read for ten minutes after its end (`UNSTORED_RETENTION_MS`), and not be continued.",
    ),
  tools: tools
    .nullish()
    .describe(
      `Clients run functions, \`custom\`, \`namespace\`, \`tool_search\`, \`local_shell\`, \`shell\` and \`apply_patch\`. This server runs ${HOSTED_TYPES.map((name) => `\`${name}\``).join(", ")} (docs/tools.md).`,
    ),
  tool_choice: toolChoice
    .nullish()
    .describe("`none`, `auto`, `required`, one tool by its type or name, or `allowed_tools`."),
  parallel_tool_calls: z.boolean().nullish().describe("`false`: the model makes one call at a time."),
  max_output_tokens: z.int().min(1).nullish().describe("The maximum of output tokens, including reasoning."),
  max_tool_calls: z.int().min(1).nullish().describe("The maximum of calls of hosted tools."),
  temperature: z.number().min(0).max(2).nullish().describe("The temperature of sampling."),
  top_p: z.number().min(0).max(1).nullish().describe("The share of probability from which the model samples."),
  top_logprobs: z
    .int()
    .min(0)
    .max(20)
    .nullish()
    .describe("The number of alternatives listed for each token, with `message.output_text.logprobs` in `include`."),
  text: text.nullish(),
  reasoning: reasoning.nullish(),
  include: responseIncludeValues
    .nullish()
    .describe(
      "`message.output_text.logprobs` adds log probabilities to the stream and the body. `file_search_call.results`, `web_search_call.results`, `web_search_call.action.sources` and `code_interpreter_call.outputs` add these to items. `reasoning.encrypted_content` is included by default if the deployment has `ENCRYPTION_KEYS`: a client that keeps its items itself then gets the same prompt as with `previous_response_id`. `timing` adds the times of the response, also to the last event of a stream.",
    ),
  store: z.boolean().nullish().describe("`false`: nothing is stored. The default is `true`."),
  stream: z.boolean().nullish().describe("`true`: the answer is server-sent events."),
  stream_options: z
    .object({ include_obfuscation: z.boolean().nullish().describe("`false`: deltas have no padding.") })
    .nullish(),
  metadata: metadata.nullish().describe("Echoed."),
  truncation: z
    .enum(["auto", "disabled"])
    .nullish()
    .describe(
      "`disabled`: a prompt that is too long is a 400 `context_length_exceeded`. `auto`: the oldest turns are dropped until it fits.",
    ),
  context_management: list(contextManagement, { max: 16 })
    .nullish()
    .describe(
      '`[{type: "compaction", compact_threshold}]`: a prompt of this many tokens is replaced by a summary of itself (docs/reasoning.md).',
    ),
  generate: z
    .boolean()
    .nullish()
    .describe("`false`: the request is validated and stored, so that it can be continued, without asking the model."),
  // Hints, of no effect here. There is one tier, which every response says.
  service_tier: z
    .enum(["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"])
    .nullish()
    .describe("Checked. Every response says `default`."),
  safety_identifier: z
    .string()
    .max(128)
    .nullish()
    .describe("Echoed. The end user, if the key has [limits](../keys.md#end-users) for each."),
  prompt_cache_key: z
    .string()
    .max(1024)
    .nullish()
    .describe("Echoed. Requests with the same key that are not stored go to the same model server (docs/fleet.md)."),
  prompt_cache_retention: z.enum(["in_memory", "in-memory", "24h"]).nullish().describe("Echoed."),
  prompt_cache_options: promptCacheOptions.nullish(),
  user: z.string().max(1024).nullish().describe("Echoed. The end user where `safety_identifier` is absent."),
  background_options: z
    .object({
      completion_window: z
        .enum(["soonest", "2h", "8h"])
        .nullish()
        .describe(
          "`2h` waits for foreground turns, `8h` also for other runs, each for half of its window at most. Both need `background`.",
        ),
      continuation_id: z
        .string()
        .max(1024)
        .nullish()
        .describe("Of waiting runs, those of an id that has run lately come first."),
    })
    .nullish(),
  multi_agent: z
    .strictObject({
      enabled: z.boolean().describe("Gives the model the actions of agents (docs/agents.md)."),
      max_concurrent_subagents: z
        .int()
        .min(1)
        .nullish()
        .describe("Sub-agents that may work at a time; 3 if it is left out."),
    })
    .nullish(),
  // Not served.
  prompt: notServed("prompt"),
  moderation: moderationField.nullish(),
  image: z.strictObject({ context_compression: notServed("image.context_compression", "auto", "disabled") }).nullish(),
  access_programs: z.strictObject({ cyber: notServed("access_programs.cyber", "standard") }).nullish(),
  /** A field of `input_tokens` at OpenAI. */
  personality: notServed("personality"),
};

const boolean = z.boolean().nullish();
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
  stop: z
    .union([z.string().min(1), list(z.string().min(1), { max: 16 })])
    .nullish()
    .describe("This server searches for these texts, only in the text of the answer."),
  stop_token_ids: tokenIds.nullish(),
  ignore_eos: boolean,
  include_stop_str_in_output: boolean,
  skip_special_tokens: boolean,
  logit_bias: map(z.string(), finite).nullish(),
  min_tokens: int64.min(0).nullish(),
  length_penalty: finite.nullish(),
  spaces_between_special_tokens: boolean,
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
  watermarking: boolean,
  stream_interval: int64.min(1).nullish(),
  thinking_token_budget: int64.min(-1).nullish().describe("The maximum of reasoning tokens; -1 is no limit."),
  priority: int64.nullish().describe("Where there are keys, `VLLM_EXTRAS` must open this field."),
  cache_salt: z
    .string()
    .min(1)
    .max(1024)
    .nullish()
    .describe("Requests share vLLM's prefix cache only with those of the same tenant and salt."),
  structured_outputs: jsonObject.nullish(),
  chat_template_kwargs: jsonObject.nullish().describe("Where there are keys, `VLLM_EXTRAS` must open this field."),
  mm_processor_kwargs: jsonObject.nullish().describe("Where there are keys, `VLLM_EXTRAS` must open this field."),
  vllm_xargs: jsonObject.nullish().describe("Where there are keys, `VLLM_EXTRAS` must open this field."),
  kv_transfer_params: jsonObject.nullish().describe("Where there are keys, `VLLM_EXTRAS` must open this field."),
  include_reasoning: boolean,
};

/** vLLM's fields for clients that keep raw messages themselves. The engine knows their form, and checks them. */
const messageFields = {
  enable_response_messages: z
    .boolean()
    .nullish()
    .describe("`true`: the response has vLLM's raw messages (docs/vllm.md)."),
  previous_input_messages: list(jsonObject, { max: 100_000 })
    .nullish()
    .describe("Raw messages with which the prompt begins (docs/vllm.md)."),
};

/** All fields that the bodies below may have. */
export const requestFields = z.object({ ...openaiFields, ...vllmFields, ...messageFields, ...chatFields });
