import type { Transport } from "./sending.ts";

/** The body as it is sent by this transport. Over a WebSocket it has none of these fields. */
export function overHttp(body: Record<string, unknown>, transport: Transport): Record<string, unknown> {
  if (transport === "whole") return body;
  return transport === "background" ? { ...body, background: true, stream: true } : { ...body, stream: true };
}

/** Fields that OpenAI's packages know. A program gives the others to them in another way. `type` is an event's. */
const KNOWN = new Set(
  "background conversation include input instructions max_output_tokens max_tool_calls metadata model parallel_tool_calls previous_response_id prompt_cache_key reasoning service_tier store stream temperature text tool_choice tools top_logprobs top_p truncation type user".split(
    " ",
  ),
);

/** The fields of a body that OpenAI's packages know, and the others. */
export function knownFields(body: Record<string, unknown>): {
  known: Record<string, unknown>;
  others: Record<string, unknown> | undefined;
} {
  const entries = Object.entries(body);
  const others = entries.filter(([name]) => !KNOWN.has(name));
  return {
    known: Object.fromEntries(entries.filter(([name]) => KNOWN.has(name))),
    others: others.length > 0 ? Object.fromEntries(others) : undefined,
  };
}

/** A function that a request offers, and the names of its parameters. */
export interface OfferedFunction {
  name: string;
  parameters: string[];
}

/** The facts of a request from which code answers calls of its functions. */
export interface CallLoop {
  functions: OfferedFunction[];
  /** The field by which the next request has what was said so far. `input`: it repeats everything. */
  keptBy: "previous_response_id" | "conversation" | "input";
  /** True if the request forces a call. The next request must not, or it never ends in a text. */
  isForced: boolean;
}

/** The loop that a request needs; undefined if it offers no function. */
export function callLoopOf(body: Record<string, unknown>, transport: Transport): CallLoop | undefined {
  const functions = functionsIn(body.tools);
  if (functions.length === 0) return undefined;
  const choice = body.tool_choice;
  const isForced =
    choice === "required" ||
    (isObject(choice) && (choice.type === "allowed_tools" ? choice.mode === "required" : choice.type !== undefined));
  // A connection keeps the responses that are not stored.
  const isKept = body.store !== false || transport === "socket";
  const keptBy = body.conversation !== undefined ? "conversation" : isKept ? "previous_response_id" : "input";
  return { functions, keptBy, isForced };
}

/** The body with its input as a list, to which a program adds. */
export function withListedInput(body: Record<string, unknown>): Record<string, unknown> {
  return typeof body.input === "string" ? { ...body, input: [{ role: "user", content: body.input }] } : body;
}

function functionsIn(tools: unknown): OfferedFunction[] {
  if (!Array.isArray(tools)) return [];
  return tools.flatMap((tool: unknown) => {
    if (!isObject(tool)) return [];
    if (tool.type === "namespace") return functionsIn(tool.tools);
    if (tool.type !== "function" || typeof tool.name !== "string") return [];
    const properties = isObject(tool.parameters) ? tool.parameters.properties : undefined;
    return [{ name: tool.name, parameters: isObject(properties) ? Object.keys(properties) : [] }];
  });
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
