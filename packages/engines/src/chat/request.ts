import type { Steps } from "@responses-edge/bounded-io/long-work";
import { type Rules, toEbnf, toPattern } from "@responses-edge/grammar";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { vllmFields } from "@responses-edge/responses-api/create-fields";
import { ApiError } from "@responses-edge/responses-api/errors";
import { ClientTools } from "@responses-edge/responses-api/tool-names";
import { type FunctionTool, mustCall, type ToolChoice } from "@responses-edge/responses-api/tools";
import { customParameters } from "@responses-edge/turn/contract/client-functions";
import type { Prompt } from "@responses-edge/turn/contract/engine";
import type { Plugins } from "@responses-edge/turn/contract/plugin";
import type { Dialect } from "../dialects/dialect.ts";
import { spell } from "../dialects/spell.ts";
import { boundRules, strictByDefault, toolsOf } from "../offered-tools.ts";
import { againstRepetition } from "../repetition-penalty.ts";
import type { FormatWithTools } from "../settings.ts";
import { deliveryOf } from "../vllm-stream.ts";
import { withFamilyIds, withOutputsAfterCalls } from "./call-messages.ts";
import { type ChatMessage, chatMessages, isUnfinished, type MessageOptions } from "./messages.ts";
import { type TemplateFamily, thoughtVariables } from "./template-families.ts";

/** A prompt as the body of vLLM's `/v1/chat/completions` (and, in part, of `/tokenize`). */

/**
 * All of vLLM's fields except `stop`, which vLLM would find in reasoning and calls, too: `AnswerText` handles it.
 */
const PASSED_THROUGH = (Object.keys(vllmFields) as (keyof typeof vllmFields)[]).filter((field) => field !== "stop");

/** Efforts that every vLLM since 0.10 takes as `reasoning_effort`; others only reach the template. */
const PORTABLE_EFFORTS = new Set(["low", "medium", "high"]);

/** How a prompt is sent to vLLM. */
export interface Asking extends Pick<MessageOptions, "laterSystemMessages" | "seesImages"> {
  /** The family of the model's chat template, if it is known. */
  family?: TemplateFamily | undefined;
  /** Reasoning tokens of the model, if the request does not say. */
  thinkingBudget?: number;
  /** False for a server that is known to refuse a budget of reasoning tokens: the turn enforces it. */
  bindsThinking?: boolean;
  /** The grammar of the final text's format applies: no tool can be called, unless vLLM joins it with theirs. */
  bindsFormat: boolean;
  /** No more calls: the final text. */
  finalText?: boolean;
  /** A final text that no grammar binds: the model may write calls into it all the same. */
  mayHaveCalls?: boolean;
  /** Functions that are strict by default are sent as strict ones. */
  bindsByDefault?: boolean;
  /** False for a server that runs without a parser of calls: it leaves them in the text. */
  parsesCalls?: boolean;
  /** The rules of the whole output after the reasoning, for a server that takes a grammar. */
  grammar?: Rules;
  /** The output is part of a call: nothing that applies to the answer's text applies to it. */
  isOfCall?: boolean;
}

/** How a prompt is asked, without the parts that are tried out. */
export type Asked = Omit<
  Asking,
  "laterSystemMessages" | "family" | "thinkingBudget" | "bindsThinking" | "bindsByDefault" | "parsesCalls"
>;

/** Error texts of chat templates that want every system message at the beginning, or do not know the role later. */
const SYSTEM_PLACEMENT =
  /system message must be|only.{0,40}system message|unexpected (message )?role|roles? must alternate/i;

/** Tells whether a template refuses a prompt because of system messages after the beginning. */
export function isOfPlacement(error: unknown): boolean {
  return error instanceof ApiError && error.status === 400 && SYSTEM_PLACEMENT.test(error.message);
}

/** The tools in the prompt; `callable`: those that the model may call, the server's and the client's. */
export function promptTools(prompt: Prompt, which: "shown" | "callable" = "shown"): FunctionTool[] {
  if (prompt.request.tools == null && !prompt.pluginTools) return [];
  const { functions, plugins } = toolsOf(prompt, which);
  const rules = boundRules(prompt.request);
  const isFree = prompt.freeInputs || rules.size === 0;
  const tools = isFree ? functions : functions.map((tool) => withPattern(tool, rules.get(tool.name)));
  return [...tools, ...plugins.builtinFunctions];
}

/** All tools of the request: its model may know the names of those that are not in the prompt (`Prompt.onlyOffered`). */
export function knownTools(prompt: Prompt): FunctionTool[] {
  return promptTools(prompt.onlyOffered ? { ...prompt, onlyOffered: false } : prompt);
}

/** The function that represents a custom tool. It is strict if a pattern in its schema expresses the tool's grammar. */
function withPattern(tool: FunctionTool, rules: Rules | undefined): FunctionTool {
  const pattern = rules && toPattern(rules);
  return pattern === undefined ? tool : { ...tool, parameters: customParameters(pattern), strict: true };
}

/** Tells whether the server's grammar lets the model choose between calls and the final text in its format. */
export function isJoined(prompt: Prompt, formatWithTools: FormatWithTools, { joinsFormat }: Dialect): boolean {
  if (!joinsFormat) return false;
  if (formatWithTools !== "strict") return formatWithTools === "always";
  return promptTools(prompt).some(({ strict }) => strict === true);
}

function chatToolChoice(tools: CreateRequest["tools"], choice: ToolChoice) {
  // A call that is made anyway is only recognised if vLLM parses calls.
  if (choice === "none") return "auto";
  if (typeof choice === "string") return choice;
  const named = ClientTools.of(tools).named(choice);
  if (named) return { type: "function", function: { name: named.flatName } };
  // Only chosen hosted tools are offered.
  return mustCall(choice) ? "required" : "auto";
}

function responseFormat(format: NonNullable<NonNullable<CreateRequest["text"]>["format"]>) {
  if (format.type === "text") return undefined;
  if (format.type === "json_object") return { type: "json_object" };
  const { type, ...schema } = format;
  return { type, json_schema: schema };
}

/** Tells whether the model is to continue an open message. */
export function isContinued(prompt: Prompt): boolean {
  return !prompt.corrections?.length && isUnfinished(prompt.items.at(-1));
}

/** The part of it that determines the prompt's tokens. */
type CountedAsking = Pick<Asking, "laterSystemMessages" | "seesImages" | "bindsByDefault" | "family">;

/** The fields that determine the prompt's tokens: shared by generating and measuring. */
function* promptFields(
  prompt: Prompt,
  { laterSystemMessages, seesImages, bindsByDefault, family }: CountedAsking,
  plugins: Plugins,
  dialect: Dialect,
): Steps<Record<string, unknown>> {
  const { request, replays, items, model } = prompt;
  const { reasoning, instructions = null } = request;
  const reasoningContext = reasoning?.context ?? "auto";
  const options = { replays, plugins, instructions, reasoningContext, laterSystemMessages, seesImages };
  // vLLM's prefill: an assistant message at the end that was left open, by the client or by an upstream that died.
  const continued = isContinued(prompt);
  const tools: object[] = [];
  const bindsStrict = bindsByDefault && dialect.bindsFormat && dialect.choice !== "none";
  const byDefault = bindsStrict && request.tools != null ? strictByDefault(prompt) : undefined;
  for (const { name, description, parameters, strict: asked } of promptTools(prompt)) {
    const strict = byDefault?.has(name) ? true : asked;
    tools.push({
      type: "function",
      function: {
        name,
        ...(description !== null && { description }),
        ...(parameters !== null && { parameters }),
        ...(strict !== null && { strict }),
      },
    });
  }
  const messages = [
    ...withOutputsAfterCalls(yield* chatMessages(items, options)),
    ...((prompt.corrections ?? []) as ChatMessage[]),
  ];
  return {
    model,
    messages: withFamilyIds(messages, model),
    // Undefined rather than empty: vLLM refuses `tools: []`.
    tools: tools.length === 0 ? undefined : tools,
    chat_template_kwargs: templateVariables(request, family, tools.length > 0),
    ...(continued && { continue_final_message: true, add_generation_prompt: false }),
  };
}

/**
 * The variables of the chat template; undefined if there are none. vLLM's own Responses API sets the same two for an effort:
 * `enable_thinking` is for templates that only know on and off. The client's own variables override all others.
 */
function templateVariables(
  { reasoning, chat_template_kwargs: own }: CreateRequest,
  family: TemplateFamily | undefined,
  hasTools: boolean,
): Record<string, unknown> | undefined {
  const { effort, context } = reasoning ?? {};
  const variables: Record<string, unknown> = family ? { ...thoughtVariables(family, context, hasTools) } : {};
  if (effort != null) {
    const thinks = effort !== "none";
    Object.assign(variables, { reasoning_effort: effort, enable_thinking: thinks });
    if (family?.thinks) variables[family.thinks] = thinks;
  }
  Object.assign(variables, own);
  return Object.keys(variables).length === 0 && own == null ? undefined : variables;
}

/** Most stop strings that OpenAI's `stop` takes. */
const MAX_STOPS = 4;

/** Tells whether the server may find the stop strings itself: without the string itself in the text, and not in a call. */
function mayEndAtStop({ stop, include_stop_str_in_output: isIncluded }: CreateRequest, hasTools: boolean): boolean {
  const isFew = !Array.isArray(stop) || stop.length <= MAX_STOPS;
  return isFew && isIncluded !== true && !hasTools;
}

/** The body of `/v1/chat/completions`, for a server of a dialect. Throws as `spell` does. */
export function* toChatRequest(prompt: Prompt, asking: Asking, plugins: Plugins, dialect: Dialect): Steps<string> {
  const { request } = prompt;
  const body: Record<string, unknown> = { ...request.vllm_fields };
  for (const field of PASSED_THROUGH) if (request[field] != null) body[field] = request[field];
  const fields = yield* promptFields(prompt, asking, plugins, dialect);
  const effort = request.reasoning?.effort;
  const logprobs = request.include?.includes("message.output_text.logprobs");
  const format = request.text?.format;
  const { isWhole, interval } = deliveryOf(prompt, fields.tools !== undefined);
  const choice = request.tool_choice ?? undefined;
  const isStopped = request.stop != null && !asking.isOfCall;
  const endsAtStop = isStopped && dialect.usageAtStop === "stop" && mayEndAtStop(request, fields.tools !== undefined);
  const leavesCalls = asking.parsesCalls === false && fields.tools !== undefined;
  // The marks of some families are special tokens.
  const showsTokens = leavesCalls && (!dialect.fields || "skip_special_tokens" in dialect.fields);
  if (showsTokens && request.skip_special_tokens == null) body.skip_special_tokens = false;
  Object.assign(body, fields, {
    stream: !isWhole,
    // An answer that may be left early must have reported its usage by then.
    stream_options: isWhole ? undefined : { include_usage: true, ...(isStopped && { continuous_usage_stats: true }) },
    stop: endsAtStop ? request.stop : undefined,
    timings_per_token: (isStopped && dialect.usageAtStop === "timings_per_token") || undefined,
    stream_interval: interval,
    tool_choice:
      fields.tools &&
      (asking.finalText || asking.isOfCall || leavesCalls ? "none" : choice && chatToolChoice(request.tools, choice)),
    parallel_tool_calls: fields.tools ? (request.parallel_tool_calls ?? undefined) : undefined,
    response_format: asking.bindsFormat && format ? responseFormat(format) : undefined,
    structured_outputs:
      asking.grammar && dialect.grammar
        ? { grammar: toEbnf(asking.grammar, { hyphens: dialect.grammar === "grammar" }) }
        : asking.bindsFormat
          ? (request.structured_outputs ?? undefined)
          : undefined,
    reasoning_effort: effort != null && PORTABLE_EFFORTS.has(effort) ? effort : undefined,
    max_completion_tokens:
      request.max_output_tokens == null ? undefined : request.max_output_tokens - (prompt.spentTokens ?? 0),
    temperature: request.temperature ?? undefined,
    top_p: request.top_p ?? undefined,
    logprobs: logprobs || undefined,
    top_logprobs: logprobs ? (request.top_logprobs ?? 0) : undefined,
    cache_salt: prompt.cacheSalt,
    thinking_token_budget:
      asking.bindsThinking === false ? undefined : (request.thinking_token_budget ?? asking.thinkingBudget),
    ...againstRepetition(prompt),
    // It also returns the ids of the whole prompt, so only requests that ask for them set it.
    return_token_ids: request.enable_response_messages || undefined,
  });
  return JSON.stringify(dialect.fields ? spell(body, dialect, request) : body);
}

/** The body of the route that counts the same prompt. Throws as `spell` does. */
export function* toCountRequest(
  prompt: Prompt,
  asking: CountedAsking,
  plugins: Plugins,
  dialect: Dialect,
): Steps<string> {
  const { vllm_fields, mm_processor_kwargs } = prompt.request;
  const body = {
    ...vllm_fields,
    ...(mm_processor_kwargs != null && { mm_processor_kwargs }),
    ...(yield* promptFields(prompt, asking, plugins, dialect)),
  };
  return JSON.stringify(dialect.fields ? spell(body, dialect, prompt.request) : body);
}
