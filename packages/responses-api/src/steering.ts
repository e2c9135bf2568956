import { list } from "@responses-edge/bounded-io/schemas/collections";
import { z } from "zod";
import { invalidRequest } from "./errors.ts";
import {
  answeredId,
  bringsTools,
  calledId,
  type Item,
  inputItem,
  isAsyncCall,
  isClientCall,
  type OutputItem,
  partsOf,
} from "./items/registry.ts";
import { isJsonObject, type JsonObject } from "./json.ts";
import { parse } from "./validation-errors.ts";

/**
 * Submissions over a WebSocket to a response in progress: a user's message (openai 7.59 `ResponseSteerEvent`), and outputs
 * of its client's calls (`BetaResponseInjectEvent`).
 */

/** Most messages of one event, and most parts of one message. */
const MAX_MESSAGES = 128;

const part = z.looseObject({ type: z.enum(["input_text", "input_image", "input_file"]) });

const message = z.strictObject({
  type: z.literal("message").optional(),
  role: z.literal("user"),
  content: z.union([z.string().min(1), list(part, { min: 1, max: MAX_MESSAGES })]),
  id: z.string().nullish(),
  status: z.string().nullish(),
});

const steerEvent = z.strictObject({
  type: z.literal("response.steer"),
  previous_response_id: z.string(),
  input: z.union([z.string().min(1), list(message, { min: 1, max: MAX_MESSAGES })]),
});

/**
 * The messages of a `response.steer`, in the form of a create's input. Throws the 400 of any other input, and of
 * unknown fields.
 */
export function steerMessages(event: unknown): JsonObject[] {
  const { input } = parse(steerEvent, event);
  const content = typeof input === "string" ? [{ role: "user" as const, content: input }] : input;
  return content.map(({ role, content: said }) => ({ type: "message", role, content: said }));
}

const injectEvent = z.strictObject({
  type: z.literal("response.inject"),
  response_id: z.string(),
  input: list(inputItem, { min: 1, max: MAX_MESSAGES }),
});

/**
 * The items of a `response.inject`. Throws the 400 of anything that is no output of a call, of an output that a create
 * would have to resolve first, because it has images, files or tools, and of unknown fields.
 */
export function injectedItems(event: unknown): Item[] {
  return parse(injectEvent, event).input.map((item, index) => {
    const param = `input[${index}]`;
    if (item.type === "item_reference" || answeredId(item) === undefined) {
      throw invalidRequest(param, `'${param}' is not the output of a call, such as 'function_call_output'.`);
    }
    if (bringsTools(item) || partsOf(item).parts.some(({ type }) => type !== "input_text")) {
      throw invalidRequest(param, `'${param}' has images, files or tools. Send it with the next 'response.create'.`);
    }
    return item;
  });
}

/**
 * The input of a create with those messages before it, but after the outputs and approvals at its beginning: chat
 * templates need these beside their calls. Throws the 400 of an input that is neither a text nor a list.
 */
export function withMessages(messages: readonly JsonObject[], input: unknown): unknown[] {
  if (input == null) return [...messages];
  if (typeof input === "string") return [...messages, { type: "message", role: "user", content: input }];
  if (!Array.isArray(input)) {
    throw invalidRequest("input", "Invalid type for 'input': expected a string or an array.", "invalid_type");
  }
  const first = input.findIndex((item) => !isJsonObject(item) || !/_(output|response)$/.test(String(item.type)));
  const outputs = first === -1 ? input.length : first;
  return [...input.slice(0, outputs), ...messages, ...input.slice(outputs)];
}

/**
 * Tells whether a create makes a response that may be steered: a foreground one, outside of conversations, without
 * compaction.
 */
export function maySteer(create: JsonObject): boolean {
  const { conversation, context_management: management, generate, input, prompt_cache_options: cache } = create;
  const isPrepared = generate === false || (isJsonObject(cache) && cache.prewarm === true);
  const last: unknown = Array.isArray(input) ? input.at(-1) : undefined;
  const isCompaction = isJsonObject(last) && last.type === "compaction_trigger";
  const managed = Array.isArray(management) && management.length > 0;
  return conversation == null && !managed && !isPrepared && !isCompaction;
}

/**
 * Stubs of the input that a response waits for: outputs of its client's calls, and approvals
 * (`ResponseSteerRequiredInput`).
 */
export function requiredInput(output: readonly OutputItem[]): JsonObject[] {
  const answered = new Set(output.map((item) => answeredId(item as Item)));
  return output.flatMap((item): JsonObject[] => {
    if (item.type === "mcp_approval_request") return [{ type: "mcp_approval_response", approval_request_id: item.id }];
    if (!isClientCall(item) || item.type === "program" || item.status === "incomplete" || isAsyncCall(item)) return [];
    if (answered.has(calledId(item as Item))) return [];
    const call = { call_id: ("call_id" in item ? item.call_id : undefined) ?? item.id };
    if (item.type === "tool_search_call") return [{ type: "tool_search_output", ...call, execution: "client" }];
    const name = item.type === "function_call" ? { name: item.name } : {};
    return [{ type: `${item.type}_output`, ...call, ...name }];
  });
}
