/** The rules for every Response object on the wire: a body, or a snapshot in a stream event. */
import type { Response, ResponseOutputItem } from "openai/resources/responses/responses";
import { shapeViolations } from "./schemas.ts";
import { isObject, type Rule, runRules, show, throwIfAny } from "./violations.ts";

const MAX_ID_LENGTH = 64;

/** The keys that Open Responses requires in every response (reference §2.2), each with the condition for its value. */
const ALWAYS_PRESENT: Record<string, (value: unknown) => boolean> = {
  id: isNonEmptyString,
  object: (value) => value === "response",
  created_at: isUnixSeconds,
  completed_at: (value) => value === null || isUnixSeconds(value),
  status: isNonEmptyString,
  incomplete_details: isObjectOrNull,
  model: isNonEmptyString,
  previous_response_id: (value) => value === null || isNonEmptyString(value),
  instructions: (value) => value === null || typeof value === "string" || Array.isArray(value),
  output: Array.isArray,
  error: isObjectOrNull,
  tools: Array.isArray,
  tool_choice: (value) => isNonEmptyString(value) || isObject(value),
  truncation: isNonEmptyString,
  parallel_tool_calls: (value) => typeof value === "boolean",
  text: (value) => isObject(value) && isObject(value.format),
  top_p: isNumber,
  presence_penalty: isNumber,
  frequency_penalty: isNumber,
  top_logprobs: isCount,
  temperature: isNumber,
  reasoning: (value) => value === null || (isObject(value) && "effort" in value && "summary" in value),
  usage: isObjectOrNull,
  max_output_tokens: (value) => value === null || isCount(value),
  max_tool_calls: (value) => value === null || isCount(value),
  store: (value) => typeof value === "boolean",
  background: (value) => typeof value === "boolean",
  service_tier: isNonEmptyString,
  metadata: isObjectOrNull,
  safety_identifier: (value) => value === null || typeof value === "string",
  prompt_cache_key: (value) => value === null || typeof value === "string",
};

/** Item types that are state machines on our wire: they always carry `status`, though OpenAI's types make it optional. */
const WITH_STATUS: ReadonlySet<string> = new Set(["message", "reasoning", "function_call", "custom_tool_call"]);

const TERMINAL_STATUSES: ReadonlySet<string> = new Set(["completed", "failed", "incomplete", "cancelled"]);

/** All rules for one Response whose shape is valid. */
export const RESPONSE_RULES: readonly Rule<Response>[] = [
  { check: 21, run: requiredKeysFilled },
  { check: 21, run: functionToolsFilled },
  { check: 22, run: usageAddsUp },
  { check: 23, run: statusExplained },
  { check: 23, run: onlyLastItemIncomplete },
  { check: 23, run: itemStatusesFitResponse },
  { check: 10, run: idsUsable },
  { check: 21, run: nullsOmitted },
  { check: 13, run: completedArgumentsAreJson },
  { check: 16, run: reasoningLeadsSomewhere },
  { check: 19, run: logprobsFilled },
];

/**
 * Checks one Response object.
 *
 * @throws {ConformanceError} with every violation: those of the shape, or, when the shape is right, those of the rules.
 */
export function checkResponse(body: unknown): Response {
  const violations = responseViolations(body);
  throwIfAny("The response", violations);
  return body as Response;
}

/** As {@link checkResponse}, but gives the violations. */
export function responseViolations(body: unknown): string[] {
  const shape = shapeViolations("Response", body).map((message) => `#21 schema: ${message}`);
  return shape.length > 0 ? shape : runRules(RESPONSE_RULES, body as Response);
}

export function isTerminal(response: Response): boolean {
  return TERMINAL_STATUSES.has(statusOf(response));
}

/** The `status` of an item, or undefined when it has none. */
export function itemStatus(item: ResponseOutputItem): string | undefined {
  return "status" in item && typeof item.status === "string" ? item.status : undefined;
}

/** Check 21, §2.2, §4.1: the 31 keys are there, with numbers where Open Responses wants numbers. */
function* requiredKeysFilled(response: Response): Iterable<string> {
  const fields: Record<string, unknown> = { ...response };
  for (const [key, accepts] of Object.entries(ALWAYS_PRESENT)) {
    if (!(key in fields)) yield `key ${key} is missing`;
    else if (!accepts(fields[key])) yield `${key} must not be ${show(fields[key])}`;
  }
}

/** Check 21: an echoed function tool has all four keys, with nulls filled in. */
function* functionToolsFilled(response: Response): Iterable<string> {
  for (const [index, tool] of response.tools.entries()) {
    if (tool.type !== "function") continue;
    for (const key of ["name", "description", "parameters", "strict"]) {
      if (!(key in tool)) yield `tools[${index}] has no key ${key}`;
    }
  }
}

/** Check 22: usage is null or adds up, with every detail counted. */
function* usageAddsUp(response: Response): Iterable<string> {
  // The patched schema allows null, which the type does not know.
  const usage = response.usage ?? null;
  if (usage === null) return;
  const cached = usage.input_tokens_details.cached_tokens;
  const written = usage.input_tokens_details.cache_write_tokens;
  const reasoning = usage.output_tokens_details.reasoning_tokens;
  const counts = { input: usage.input_tokens, output: usage.output_tokens, cached, written, reasoning };
  for (const [name, value] of Object.entries(counts)) {
    if (!isCount(value)) yield `${name} tokens ${show(value)} is not a count`;
  }
  if (usage.total_tokens !== usage.input_tokens + usage.output_tokens) {
    yield `total_tokens ${usage.total_tokens} is not ${usage.input_tokens} + ${usage.output_tokens}`;
  }
  if (cached > usage.input_tokens) yield `cached_tokens ${cached} exceed input_tokens ${usage.input_tokens}`;
  if (reasoning > usage.output_tokens) {
    yield `reasoning_tokens ${reasoning} exceed output_tokens ${usage.output_tokens}`;
  }
}

/** Checks 23 and 24: `completed_at`, `incomplete_details` and `error` are there exactly when the status calls for them. */
function* statusExplained(response: Response): Iterable<string> {
  const status = statusOf(response);
  const completedAt = response.completed_at ?? null;
  if ((completedAt !== null) !== (status === "completed")) yield `completed_at is ${completedAt} while ${status}`;
  if (completedAt !== null && completedAt < response.created_at) {
    yield `completed_at ${completedAt} is before created_at ${response.created_at}`;
  }
  if ((response.incomplete_details !== null) !== (status === "incomplete")) {
    yield `incomplete_details is ${show(response.incomplete_details)} while ${status}`;
  }
  if (status === "incomplete" && response.incomplete_details?.reason === undefined) {
    yield "incomplete_details has no reason";
  }
  if ((response.error !== null) !== (status === "failed")) yield `error is ${show(response.error)} while ${status}`;
  if (response.error?.message === "") yield "error has an empty message";
}

/** Calls that the server runs, side by side: they are cut off together, and a limit may be reached after them. */
const SERVER_CALLS: ReadonlySet<string> = new Set(["mcp_call", "web_search_call", "code_interpreter_call"]);

const BEGUN_ANEW: ReadonlySet<string> = new Set(["reasoning", "function_call", "custom_tool_call"]);

/**
 * True if a model may repeat an item in an item of its own: reasoning and server calls that a dead model server has cut
 * off, and a call of a strict function or a custom tool that the model has broken off, or that cannot be made
 * (docs/deviations.md).
 */
function isBegunAnew(response: Response, index: number): boolean {
  const type = response.output[index]?.type ?? "";
  return index < response.output.length - 1 && (BEGUN_ANEW.has(type) || SERVER_CALLS.has(type));
}

/**
 * Check 23, Open Responses: an incomplete item is the last one, and its response is incomplete, cancelled or failed.
 */
function* onlyLastItemIncomplete(response: Response): Iterable<string> {
  const status = statusOf(response);
  for (const [index, item] of response.output.entries()) {
    // The output of a program that failed says so.
    if (itemStatus(item) !== "incomplete" || item.type === "program_output" || isBegunAnew(response, index)) continue;
    if (index < response.output.length - 1) yield `output[${index}] is incomplete, but not the last item`;
    if (!["incomplete", "cancelled", "failed"].includes(status)) yield `output[${index}] is incomplete while ${status}`;
  }
  const last = response.output.at(-1);
  if (status === "incomplete" && last && itemStatus(last) !== "incomplete" && !SERVER_CALLS.has(last.type)) {
    yield `the response is incomplete, its last item ${show(itemStatus(last))}`;
  }
}

/** Check 23: items that are state machines have a status, and none is open after the response has ended. */
function* itemStatusesFitResponse(response: Response): Iterable<string> {
  for (const [index, item] of response.output.entries()) {
    const status = itemStatus(item);
    if (status === undefined && WITH_STATUS.has(item.type)) yield `output[${index}] (${item.type}) has no status`;
    if (status === "in_progress" && isTerminal(response)) {
      yield `output[${index}] is in_progress while the response is ${statusOf(response)}`;
    }
  }
}

/** Check 10, §1.2: ids are there, unique and short enough to be sent back. */
function* idsUsable(response: Response): Iterable<string> {
  const seen = new Set<string>();
  for (const [index, item] of response.output.entries()) {
    const id = "id" in item ? item.id : undefined;
    if (!isNonEmptyString(id)) {
      yield `output[${index}] has no id`;
      continue;
    }
    if (id.length > MAX_ID_LENGTH) yield `output[${index}].id has ${id.length} characters`;
    if (seen.has(id)) yield `output[${index}].id ${id} is used twice`;
    seen.add(id);
    if ("call_id" in item && typeof item.call_id === "string") {
      const length = item.call_id.length;
      if (length < 1 || length > MAX_ID_LENGTH) yield `output[${index}].call_id has ${length} characters`;
    }
  }
  if (response.id.length > MAX_ID_LENGTH) yield `the response id has ${response.id.length} characters`;
}

/** §4.1(3), §4.5: keys that a client rejects as null are omitted instead. */
function* nullsOmitted(response: Response): Iterable<string> {
  for (const [index, item] of response.output.entries()) {
    if (item.type === "message" && item.phase === null) yield `output[${index}].phase is null`;
    if (item.type === "reasoning" && item.encrypted_content === null)
      yield `output[${index}].encrypted_content is null`;
    if (item.type === "mcp_list_tools" && item.error === null) yield `output[${index}].error is null`;
  }
}

/** Check 13: the arguments of a completed function call are JSON. */
function* completedArgumentsAreJson(response: Response): Iterable<string> {
  for (const [index, item] of response.output.entries()) {
    if (item.type !== "function_call" || item.status !== "completed") continue;
    if (!isJson(item.arguments)) yield `output[${index}].arguments are not JSON: ${show(item.arguments)}`;
  }
}

/**
 * Check 16: reasoning precedes the message or call that follows from it. After a message, reasoning needs such a
 * further item.
 */
function* reasoningLeadsSomewhere(response: Response): Iterable<string> {
  if (statusOf(response) !== "completed") return;
  const last = response.output.at(-1);
  if (last?.type === "reasoning" && response.output.some((item) => item.type === "message")) {
    yield `output[${response.output.length - 1}] is reasoning after the message it should precede`;
  }
}

/** Check 19, §4.1(5): `logprobs` is always an array, each entry with `bytes` and `top_logprobs`. */
function* logprobsFilled(response: Response): Iterable<string> {
  for (const [index, item] of response.output.entries()) {
    if (item.type !== "message") continue;
    for (const [part, content] of item.content.entries()) {
      if (content.type !== "output_text") continue;
      const place = `output[${index}].content[${part}].logprobs`;
      if (!Array.isArray(content.logprobs)) yield `${place} is not an array`;
      else yield* logprobEntryViolations(place, content.logprobs);
    }
  }
}

/** The missing parts of a list of logprobs, of a part or of an event. */
export function* logprobEntryViolations(place: string, entries: readonly unknown[]): Iterable<string> {
  for (const [index, entry] of entries.entries()) {
    if (!isObject(entry)) continue;
    if (!Array.isArray(entry.bytes)) yield `${place}[${index}] has no bytes`;
    if (!Array.isArray(entry.top_logprobs)) {
      yield `${place}[${index}] has no top_logprobs`;
      continue;
    }
    for (const [rank, alternative] of entry.top_logprobs.entries()) {
      if (!isObject(alternative) || !Array.isArray(alternative.bytes)) {
        yield `${place}[${index}].top_logprobs[${rank}] has no bytes`;
      }
    }
  }
}

/** Request fields whose value, when given and not null, comes back unchanged. */
const ECHOED = [
  "background",
  "instructions",
  "max_output_tokens",
  "max_tool_calls",
  "metadata",
  "parallel_tool_calls",
  "previous_response_id",
  "prompt_cache_key",
  "safety_identifier",
  "store",
  "temperature",
  "top_logprobs",
  "top_p",
  "truncation",
  "user",
];

/**
 * Check 21, second half: the request's fields in the response are equal to those of the request. Keys the server fills
 * in beside the request's own (a tool's `strict: null`) are allowed.
 *
 * @returns the violations
 */
export function echoViolations(request: Record<string, unknown>, response: Response): string[] {
  const echo: Record<string, unknown> = { ...response };
  const violations: string[] = [];
  const expectContained = (place: string, sent: unknown, echoed: unknown): void => {
    if (!contains(echoed, sent)) violations.push(`#21 echo: ${place} was ${show(sent)}, is ${show(echoed)}`);
  };
  for (const key of ECHOED) {
    if (request[key] !== undefined && request[key] !== null) expectContained(key, request[key], echo[key]);
  }
  if (typeof request.tool_choice === "string") expectContained("tool_choice", request.tool_choice, echo.tool_choice);
  if (isObject(request.text) && isObject(request.text.format)) {
    expectContained("text.format", request.text.format, response.text?.format);
  }
  if (isObject(request.reasoning) && typeof request.reasoning.effort === "string") {
    expectContained("reasoning.effort", request.reasoning.effort, response.reasoning?.effort);
  }
  if (Array.isArray(request.tools)) {
    expectContained("the number of tools", request.tools.length, response.tools.length);
    for (const [index, tool] of request.tools.entries()) {
      // Hosted tools may return normalised.
      if (!isObject(tool) || tool.type !== "function") continue;
      const sent = Object.fromEntries(
        Object.entries(tool).filter(([, value]) => value !== null && value !== undefined),
      );
      expectContained(`tools[${index}]`, sent, response.tools[index]);
    }
  }
  return violations;
}

/** Tells whether `whole` contains `part`: an equal value, or an object with at least the same keys. */
function contains(whole: unknown, part: unknown): boolean {
  if (Array.isArray(part)) {
    return (
      Array.isArray(whole) &&
      whole.length === part.length &&
      part.every((element, index) => contains(whole[index], element))
    );
  }
  if (isObject(part)) {
    return isObject(whole) && Object.entries(part).every(([key, value]) => contains(whole[key], value));
  }
  return whole === part;
}

export function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function statusOf(response: Response): string {
  return response.status ?? "undefined";
}

function isNonEmptyString(value: unknown): value is string {
  return typeof value === "string" && value !== "";
}

function isNumber(value: unknown): boolean {
  return typeof value === "number" && Number.isFinite(value);
}

function isCount(value: unknown): boolean {
  return Number.isSafeInteger(value) && typeof value === "number" && value >= 0;
}

/** A whole number of seconds; milliseconds would be far in the future. */
function isUnixSeconds(value: unknown): boolean {
  return isCount(value) && typeof value === "number" && value < 100_000_000_000;
}

function isObjectOrNull(value: unknown): boolean {
  return value === null || isObject(value);
}
