import { isJson } from "@responses-edge/bounded-io/json-text";
import type { Bound } from "@responses-edge/grammar";
import { type Item, isClientCall } from "@responses-edge/responses-api/items/registry";
import { type ClientTool, ClientTools, flatName } from "@responses-edge/responses-api/tool-names";
import type { Prompt, Resumption } from "@responses-edge/turn/contract/engine";
import { boundAnswer, boundArguments, boundInput, type Rest, restOf } from "../bound-formats.ts";
import type { ChatMessage } from "./messages.ts";

/**
 * A bound answer, or a call of the client's, whose model server died in the middle. A server's grammars begin with the
 * first generated token, so the model is asked for the rest alone, under the grammar of the rest.
 *
 * No server continues a call: its parser would have to begin in the middle. The prompt ends with the call as text, in
 * the markup that most families write, the model may call no tool, and its text is the rest of the arguments.
 */

/** An answer or a call that has begun, and the format of its whole. */
export interface Begun {
  /** The answer's text, the JSON of a call's arguments, or the bare input of a custom tool. */
  kind: "text" | "arguments" | "input";
  /** The called tool. */
  tool?: ClientTool;
  bound: Bound;
  /** Everything that the model has written of it. */
  text: string;
  rest: Exclude<Rest, { kind: "impossible" | "nothing" }>;
  /** How the prompt has it: at its end, in an open message after `before`; or quoted. */
  place: { items: readonly Item[]; before: string } | "quoted";
}

/** The place after the whole calls of an answer, which the model may follow with others. */
export interface AfterCalls {
  kind: "calls";
}

/** An item that can be at the end of an open message. */
type Said = Extract<Item, { type: "message" | "function_call" | "custom_tool_call" }>;

/**
 * The resumption after `said`, the items that stay; undefined if no model can go on there. `anew` counts those that are
 * generated anew after them. `mayContinue` tells whether a server continues the open message at the end of some items.
 */
export function begunResumption(
  prompt: Prompt,
  said: readonly Item[],
  anew: number,
  mayContinue: (items: readonly Item[]) => boolean,
): Resumption | undefined {
  const last = said.at(-1);
  if (!last) return undefined;
  const isWhole = isClientCall(last) && "status" in last && last.status === "completed";
  const found = begunBy(prompt, last, isWhole);
  const rest: Rest | undefined = isWhole ? { kind: "nothing" } : found && restAfter(found.bound, found.text);
  if (!rest || rest.kind === "impossible") return undefined;
  const place = found && placeAfter(prompt, said, found);
  if (rest.kind === "nothing") {
    const next = found && place && callsAfter(prompt, { ...found, place });
    if (next && mayContinue(next.items)) return { prompt: next, repeated: "", anew };
    return { prompt, repeated: "", anew, ends: found?.kind === "text" ? "stop" : "tool_calls" };
  }
  if (!found || !place) return undefined;
  const begun: Begun = { ...found, rest, place };
  const continued = withBegun(prompt, begun);
  if (mayContinue(continued.items)) return { prompt: continued, repeated: "", anew };
  return { prompt: withBegun(prompt, { ...begun, place: "quoted" }), repeated: "", anew, isQuoted: true };
}

/** The begun answer with more text; undefined if it is whole, or no text of its format begins so. */
export function begunWith(begun: Begun, text: string): Begun | undefined {
  const rest = restAfter(begun.bound, text);
  return rest.kind === "impossible" || rest.kind === "nothing" ? undefined : { ...begun, text, rest };
}

/** The prompt that asks for the rest of what has begun. Templates trim white space at the end of a text. */
export function withBegun(prompt: Prompt, begun: Begun): Prompt {
  const { place, text } = begun;
  if (place === "quoted") {
    const request = { ...prompt.request, reasoning: { ...prompt.request.reasoning, effort: "none" as const } };
    return { ...prompt, request, begun, corrections: [noteOf(begun)] };
  }
  return { ...prompt, begun, corrections: [], items: openAfter(place, text) };
}

/**
 * The prompt that asks for more calls after a whole one; undefined if the model may make no other, or cannot be asked.
 * Where a call is required, one has been made.
 */
export function callsAfter(prompt: Prompt, { kind, text, place }: Omit<Begun, "bound" | "rest">): Prompt | undefined {
  const { parallel_tool_calls: parallel, tool_choice: choice } = prompt.request;
  if (kind !== "arguments" || place === "quoted" || parallel === false) return undefined;
  const limits = typeof choice === "object" ? choice : null;
  if (limits && limits.type !== "allowed_tools") return undefined;
  const request = { ...prompt.request, tool_choice: limits ? { ...limits, mode: "auto" as const } : ("auto" as const) };
  const begun: AfterCalls = { kind: "calls" };
  return { ...prompt, begun, corrections: [], items: openAfter(place, `${text}${END_OF_CALL}`), request };
}

/** Tells whether a prompt asks for more calls after whole ones. */
export function isAfterCalls({ begun }: Prompt): boolean {
  return (begun as Begun | AfterCalls | undefined)?.kind === "calls";
}

/** The items with an open message at their end. */
function openAfter({ items, before }: Exclude<Begun["place"], "quoted">, text: string): Item[] {
  const part = { type: "output_text" as const, text: (before + text).trimEnd(), annotations: [], logprobs: [] };
  return [...items, { type: "message", role: "assistant", status: "in_progress", content: [part] }];
}

/** The white space at the end of what has begun: it is not in the prompt, so that the model writes it again. */
export function repeatedSpace({ text, place }: Begun): string {
  return place === "quoted" ? "" : text.slice(text.trimEnd().length);
}

function restAfter(bound: Bound, text: string): Rest {
  const isOfJson = bound.type === "json_schema" || bound.type === "json_object";
  // A number may go on.
  if (isOfJson && /[\]}"]\s*$/.test(text) && isJson(text)) return { kind: "nothing" };
  return restOf(bound, text);
}

function begunBy(
  { request }: Prompt,
  last: Item,
  isWhole: boolean,
): Pick<Begun, "kind" | "tool" | "bound" | "text"> | undefined {
  if (last.type === "message" && last.role === "assistant") {
    const bound = boundAnswer(request);
    if (!bound || last.content.some((part) => part.type !== "output_text")) return undefined;
    return { kind: "text", bound, text: textOf(last) };
  }
  if (last.type !== "function_call" && last.type !== "custom_tool_call") return undefined;
  const tool = ClientTools.of(request.tools).get(flatName(last.namespace, last.name));
  if (!tool) return undefined;
  if (last.type === "function_call") {
    return { kind: "arguments", tool, bound: boundArguments(tool), text: last.arguments };
  }
  const bound = boundInput(tool);
  if (bound) return { kind: "input", tool, bound, text: last.input };
  const text = `${inputJson(last.input)}${isWhole ? END_OF_INPUT : ""}`;
  return { kind: "arguments", tool, bound: boundArguments(tool), text };
}

/** The end of the JSON of a custom tool's arguments, after its input. */
const END_OF_INPUT = '"}';

/** The beginning of the JSON of a custom tool's arguments, up to the end of its input so far. */
export function inputJson(input: string): string {
  return `{"input": "${JSON.stringify(input).slice(1, -1)}`;
}

/**
 * Where the prompt has what has begun. Templates put thoughts before a message: those between calls stand there.
 * Undefined if there are items that no message can have.
 */
function placeAfter(
  prompt: Prompt,
  said: readonly Item[],
  { kind, tool, text }: Pick<Begun, "kind" | "tool" | "text">,
): Exclude<Begun["place"], "quoted"> | undefined {
  const firstCall = said.findIndex(isClientCall);
  const isThought = ({ type }: Item) => type === "reasoning";
  const from = (firstCall < 0 ? said : said.slice(0, firstCall)).findLastIndex(isThought) + 1;
  const rest = said.slice(from);
  const lead = [...said.slice(0, from), ...rest.filter(isThought)];
  const run = rest.filter((item) => !isThought(item));
  if (!lead.every(isMessageOrThought) || !run.every(isSaid)) return undefined;
  const hasCalls = run.some(isClientCall);
  // Messages that no call has joined stay what they are.
  const joined = hasCalls ? run.slice(0, -1) : [];
  const items = [...prompt.items, ...lead, ...(hasCalls ? [] : run.slice(0, -1))];
  const whole = joined.map((item) => (item.type === "message" ? textOf(item) : markupOf(item)));
  const open = kind === "arguments" && tool ? [beginningOf(tool.flatName)] : [""];
  const before = [...whole, ...open].join("\n");
  return { items, before: kind === "arguments" && text === "" ? before.trimEnd() : before };
}

function isMessageOrThought({ type }: Item): boolean {
  return type === "message" || type === "reasoning";
}

function isSaid(item: Item): item is Said {
  return item.type === "message" || item.type === "function_call" || item.type === "custom_tool_call";
}

/** A call as Hermes, Qwen, GLM and others write it. */
function beginningOf(name: string): string {
  return `<tool_call>\n{"name": ${JSON.stringify(name)}, "arguments": `;
}

function markupOf(call: Exclude<Said, { type: "message" }>): string {
  const json = call.type === "function_call" ? call.arguments : `${inputJson(call.input)}${END_OF_INPUT}`;
  return `${beginningOf(flatName(call.namespace, call.name))}${json}${END_OF_CALL}`;
}

const END_OF_CALL = "}\n</tool_call>";

/** Tells a model what it has written, where its server cannot continue a text. */
function noteOf({ kind, tool, text }: Begun): ChatMessage {
  const what =
    kind === "text"
      ? "Your answer"
      : `Your call of the tool '${tool?.flatName}', of which you write only the ${kind === "input" ? "input" : "arguments, as JSON"},`;
  const content = `${what} was cut off. It begins with exactly this:\n\n${text}\n\nWrite the rest: begin with the character after the last of these, and write nothing else.`;
  return { role: "user", content };
}

function textOf(item: Item): string {
  if (item.type !== "message" || item.role !== "assistant") return "";
  return item.content.map((part) => (part.type === "output_text" ? part.text : "")).join("");
}
