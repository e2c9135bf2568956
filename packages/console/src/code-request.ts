import type { ApiObject } from "./json.ts";
import type { Transport } from "./sending.ts";

/** A request of which a program is made. */
export interface Request {
  /** without the transport's fields, with files as LocalFile */
  body: ApiObject;
  transport: Transport;
  /** ends in `/v1` */
  baseUrl: string;
  /** The loop that it needs; undefined if it offers no function. */
  loop?: CallLoop;
}

/** The facts of a request from which code answers calls of its functions. */
export interface CallLoop {
  /** Those that the request offers, with the names of the parameters in a line. */
  functions: { name: string; parameters: string }[];
  /** The field by which the next request has what was said so far. `input`: it repeats everything. */
  keptBy: "previous_response_id" | "conversation" | "input";
  /** True if the request forces a call. The next request must not, or it never ends in a text. */
  isForced: boolean;
}

/** A request as a program asks it: one that answers calls takes whole answers, and adds to a list where it repeats everything. */
export function asProgram(request: Omit<Request, "loop">): Request {
  const { body } = request;
  const functions = functionsIn(body.tools);
  if (functions.length === 0) return request;
  const choice = body.tool_choice;
  const isForced =
    choice === "required" ||
    (isObject(choice) && (choice.type === "allowed_tools" ? choice.mode === "required" : choice.type !== undefined));
  const isStored = body.store !== false;
  const keptBy = body.conversation !== undefined ? "conversation" : isStored ? "previous_response_id" : "input";
  const isText = keptBy === "input" && typeof body.input === "string";
  const input = isText ? [{ role: "user", content: body.input }] : body.input;
  return { ...request, body: { ...body, input }, transport: "whole", loop: { functions, keptBy, isForced } };
}

/** The body as it is sent by this transport. Over a WebSocket it is an event. */
export function overHttp({ body, transport }: Request): ApiObject {
  if (transport === "whole") return body;
  return { ...body, ...(transport === "background" && { background: true }), stream: true };
}

/** Fields that OpenAI's packages know. A program gives the others to them in another way. `type` is an event's. */
const KNOWN = new Set(
  "background conversation include input instructions max_output_tokens max_tool_calls metadata model parallel_tool_calls previous_response_id prompt_cache_key reasoning service_tier store stream temperature text tool_choice tools top_logprobs top_p truncation type user".split(
    " ",
  ),
);

/** The fields of a body that OpenAI's packages know. @param put Gives the fields that stand for the others. */
export function withOthers(request: Request, put: (others: ApiObject) => ApiObject): ApiObject {
  const isEvent = request.transport === "socket";
  const sent = Object.entries(isEvent ? { type: "response.create", ...request.body } : overHttp(request));
  const others = sent.filter(([name]) => !KNOWN.has(name));
  const known = Object.fromEntries(sent.filter(([name]) => KNOWN.has(name)));
  return others.length === 0 ? known : { ...known, ...put(Object.fromEntries(others)) };
}

function functionsIn(tools: unknown): CallLoop["functions"] {
  if (!Array.isArray(tools)) return [];
  return tools.flatMap((tool: unknown) => {
    if (!isObject(tool)) return [];
    if (tool.type === "namespace") return functionsIn(tool.tools);
    if (tool.type !== "function" || typeof tool.name !== "string") return [];
    const properties = isObject(tool.parameters) ? tool.parameters.properties : undefined;
    return [{ name: tool.name, parameters: isObject(properties) ? Object.keys(properties).join(", ") : "" }];
  });
}

function isObject(value: unknown): value is ApiObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
