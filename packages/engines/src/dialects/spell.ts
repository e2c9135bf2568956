import { GrammarFault, readGrammar, toEbnf } from "@responses-edge/grammar";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { type ApiError, invalidRequest } from "@responses-edge/responses-api/errors";
import type { ChatMessage } from "../chat/messages.ts";
import type { Dialect } from "./dialect.ts";

/** The body of a chat completion, in vLLM's fields. */
export type ChatBody = Record<string, unknown>;

/**
 * Fields that do not change an answer, or that this server handles itself: a server that does not know them does not
 * get them.
 */
const HINTS = new Set([
  ...["cache_salt", "include_reasoning", "include_stop_str_in_output"],
  ...["parallel_tool_calls", "priority", "stream_interval"],
]);

/** Fields that this server enforces itself where a server does not know them. */
const ENFORCED = new Set(["thinking_token_budget"]);

/**
 * Translates the body of a chat completion from vLLM's fields to a dialect's own. Throws the 400 of a client's field
 * that the server does not know, and of a grammar that it cannot take.
 */
export function spell(body: ChatBody, dialect: Dialect, request: CreateRequest): ChatBody {
  const { fields, unknownFields } = dialect;
  if (!fields) return body;
  if (request.enable_response_messages) throw unknownField("enable_response_messages", dialect);
  if (body.logprobs && body.tools && !dialect.logprobsWithTools) {
    throw notServed("include", "Log probabilities beside tools are", dialect);
  }
  const asked: Record<string, unknown> = request;
  const extra = request.vllm_fields ?? {};
  const spelt: ChatBody = {};
  for (const [field, value] of Object.entries(withSchemas(withChoice(withGrammar(body, dialect), dialect), dialect))) {
    if (value === undefined) continue;
    const own = Object.hasOwn(fields, field) ? fields[field] : undefined;
    const isExtra = Object.hasOwn(extra, field);
    if (own !== undefined) spelt[own] = value;
    else if (field === dialect.grammar || (isExtra && unknownFields === "ignored")) spelt[field] = value;
    else if (isExtra || (asked[field] != null && !HINTS.has(field) && !ENFORCED.has(field)))
      throw unknownField(field, dialect);
  }
  if (spelt.stream_options && dialect.usageAtStop !== "continuous_usage_stats") {
    spelt.stream_options = { include_usage: true };
  }
  // With 0, llama.cpp gives no log probabilities at all.
  if (spelt.top_logprobs === 0) spelt.top_logprobs = 1;
  return { ...spelt, messages: withMessages(body, dialect) };
}

/** The 400 of a field that the model's server lacks. */
export function unknownField(field: string, dialect: Dialect): ApiError {
  return notServed(field, `'${field}' is`, dialect);
}

/** The 400 of an input that ends in an open message, if the server would begin it anew. */
export function cannotContinue(dialect: Dialect): ApiError {
  return notServed("input", "Going on with an unfinished message is", dialect);
}

function notServed(field: string, what: string, { title }: Dialect): ApiError {
  return invalidRequest(
    field,
    `${what} not supported by the server of this model (${title}).`,
    "unsupported_parameter",
  );
}

/** The messages in the server's form, ending with one that is to be answered. */
function withMessages(body: ChatBody, dialect: Dialect): ChatMessage[] {
  const messages = (body.messages as ChatMessage[]).map((message) => withThoughts(message, dialect));
  const isWhole = body.continue_final_message === undefined && messages.at(-1)?.role === "assistant";
  // Such a server begins a new message only after one of another role.
  return dialect.misreadsLastAnswer && isWhole ? [...messages, { role: "user", content: "" }] : messages;
}

/** A message with its reasoning in the server's form, and with a text if it has no other OpenAI field. */
function withThoughts(message: ChatMessage, { unknownFields, endsThoughts, leavesThoughtsOpen }: Dialect): ChatMessage {
  if (message.role !== "assistant") return message;
  const { reasoning, reasoning_content: _, ...rest } = message;
  const whole = rest.content === undefined && rest.tool_calls === undefined ? { ...rest, content: "" } : rest;
  if (reasoning === undefined || unknownFields === "refused") return whole;
  // Only an open message is empty beside its reasoning.
  if (leavesThoughtsOpen && whole.content === "") whole.content = "\n";
  return { ...whole, reasoning_content: endsThoughts ? reasoning.replace(/\n$/, "") : reasoning };
}

/** Keywords whose values are not schemas. */
const VALUES = new Set(["const", "default", "enum", "examples"]);

/** A schema whose patterns are anchored at both ends. */
function withWholePatterns(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(withWholePatterns);
  if (typeof schema !== "object" || schema === null) return schema;
  const entries = Object.entries(schema).map(([key, value]) => {
    if (VALUES.has(key)) return [key, value];
    return [key, key === "pattern" && typeof value === "string" ? wholePattern(value) : withWholePatterns(value)];
  });
  return Object.fromEntries(entries);
}

function wholePattern(pattern: string): string {
  const begins = pattern.startsWith("^");
  const ends = /(^|[^\\])(\\\\)*\$$/.test(pattern);
  if (begins && ends) return pattern;
  const inner = pattern.slice(begins ? 1 : 0, ends ? -1 : undefined);
  return `^${begins ? "" : ".*"}(${inner})${ends ? "" : ".*"}$`;
}

/** With schemas that the server enforces. */
function withSchemas(body: ChatBody, { bindsWholePatterns, bindsObjectBySchema }: Dialect): ChatBody {
  const { response_format: asked, tools } = body;
  const isObject = (asked as { type?: unknown } | undefined)?.type === "json_object";
  const format = isObject && bindsObjectBySchema ? { type: "json_object", schema: { type: "object" } } : asked;
  if (!bindsWholePatterns) return { ...body, response_format: format };
  return { ...body, response_format: withWholePatterns(format), tools: withWholePatterns(tools) };
}

/** With only the tool that a choice names, and the rest of the choice. */
function withChoice(body: ChatBody, { choice }: Dialect): ChatBody {
  const { tool_choice: asked, tools } = body;
  if (choice === "named" || tools === undefined) return body;
  const rest = choice === "none" ? undefined : asked;
  if (typeof asked !== "object" || asked === null) return { ...body, tool_choice: rest };
  const { function: named } = asked as { function?: { name?: string } };
  const only = (tools as { function: { name: string } }[]).filter((tool) => tool.function.name === named?.name);
  return { ...body, tools: only, tool_choice: choice === "none" ? undefined : "required" };
}

/** With vLLM's `structured_outputs` as a format, or as the field with EBNF. */
function withGrammar(body: ChatBody, dialect: Dialect): ChatBody {
  const { structured_outputs: outputs, ...rest } = body;
  if (outputs == null || dialect.grammar === "structured_outputs") return body;
  const { json, json_object, regex, choice, grammar } = outputs as Record<string, unknown>;
  if (json != null) {
    const schema = typeof json === "string" ? (JSON.parse(json) as unknown) : json;
    return { ...rest, response_format: { type: "json_schema", json_schema: { name: "answer", schema, strict: true } } };
  }
  if (json_object === true) return { ...rest, response_format: { type: "json_object" } };
  const ebnf =
    typeof grammar === "string"
      ? grammar
      : typeof regex === "string"
        ? fromRegex(regex)
        : Array.isArray(choice)
          ? `root ::= ${choice.map((each) => JSON.stringify(String(each))).join(" | ")}`
          : undefined;
  if (ebnf === undefined || dialect.grammar === undefined) throw unknownField("structured_outputs", dialect);
  return { ...rest, [dialect.grammar]: ebnf };
}

/** EBNF of a regular expression; undefined if it has none. */
function fromRegex(definition: string): string | undefined {
  try {
    const rules = readGrammar({ syntax: "regex", definition });
    return "beyond" in rules ? undefined : toEbnf(rules, { hyphens: true });
  } catch (error) {
    if (error instanceof GrammarFault) return undefined;
    throw error;
  }
}
