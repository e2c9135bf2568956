import type { StreamEvent } from "@responses-edge/responses-api/items/events";
import type { OutputItem } from "@responses-edge/responses-api/items/registry";
import type { ResponseObject } from "@responses-edge/responses-api/response";
import type { TokenLogprob } from "./contract/engine.ts";
import { responseBody, type ShownResponse } from "./response.ts";

/**
 * The events that a stored response implies, for one whose own events were not kept. They are in the order in which a
 * turn sends them, and always the same for the same response. Texts come in short pieces, because the deltas of the
 * model are not known any more.
 */

/** An event as its type and its JSON text, which ends without a line break. */
export interface WrittenEvent {
  type: string;
  json: string;
}

/** An event without its `type` and `sequence_number`. */
type Fields = Record<string, unknown>;
type EventType = StreamEvent["type"];
type Said = readonly [type: EventType, fields: Fields];

/** Fields of an ended response that one in progress does not have. */
const OF_ITS_END = ["cut_items", "tool_usage", "prompt_cache_diagnostics", "output_messages"] as const;

/**
 * All events of an ended response, in order, made as they are taken. `response`: as `GET /v1/responses/{id}` shows it, with encrypted
 * reasoning. Throws SyntaxError for a text that is not JSON.
 */
export function* impliedEvents(response: ShownResponse): Generator<WrittenEvent> {
  const head = JSON.parse(response.head) as Omit<ResponseObject, "output">;
  const output = JSON.parse(response.output) as OutputItem[];
  let sequence = 0;
  const written = (type: EventType, fields: Fields): WrittenEvent => {
    const json = JSON.stringify({ type, sequence_number: sequence, ...fields });
    sequence += 1;
    return { type, json };
  };
  const begun: Fields = { ...head, status: "in_progress", completed_at: null, error: null, incomplete_details: null };
  for (const field of OF_ITS_END) delete begun[field];
  const snapshot = { response: { ...begun, usage: null, moderation: null, output: [] } };
  yield written("response.created", snapshot);
  // A response that was only prepared never began.
  if (head.status !== "completed" || output.length > 0) yield written("response.in_progress", snapshot);
  for (const [output_index, item] of output.entries()) {
    const place = { item_id: item.id, output_index };
    yield written("response.output_item.added", { output_index, item: addedItem(item) });
    for (const [type, fields] of eventsWithin(item, place, inPieces)) yield written(type, { ...place, ...fields });
    if (isDone(item, output_index === output.length - 1, head.status)) {
      yield written("response.output_item.done", { output_index, item });
    }
  }
  const type = `response.${head.status === "cancelled" ? "incomplete" : head.status}`;
  yield { type, json: `{"type":"${type}","sequence_number":${sequence},"response":${responseBody(response)}}` };
}

/** Tells whether an item was done. The last item of a response that failed or was cancelled may have been open. */
function isDone(item: OutputItem, isLast: boolean, status: ResponseObject["status"]): boolean {
  const isCutOff = isLast && (status === "failed" || status === "cancelled");
  return !isCutOff || !("status" in item) || item.status === "completed" || item.status === "failed";
}

/** An item as it is added: without what its events tell. */
export function addedItem(item: OutputItem): Fields {
  const { result_index: _ofItsEnd, ...begun } = begunItem(item);
  return begun;
}

function begunItem(item: OutputItem): Fields {
  switch (item.type) {
    case "message":
      return { ...item, status: "in_progress", content: [] };
    case "reasoning": {
      const { encrypted_content: _sealed, ...rest } = item;
      return { ...rest, status: "in_progress", summary: [], ...(item.content && { content: [] }) };
    }
    case "function_call":
      return { ...item, status: "in_progress", arguments: "" };
    case "custom_tool_call":
      // Its items have no status in OpenAI's types.
      return { ...item, status: "in_progress", input: "" };
    case "shell_call":
      return { ...item, status: "in_progress", action: { ...item.action, commands: [] } };
    case "mcp_call":
      return { ...item, status: "in_progress", arguments: "", output: null, error: null };
    case "mcp_list_tools": {
      const { error: _error, ...rest } = item;
      return { ...rest, tools: [] };
    }
    case "code_interpreter_call":
      return { ...item, status: "in_progress", code: "", outputs: null };
    case "web_search_call":
    case "image_generation_call": {
      const { id, type } = item;
      return type === "web_search_call"
        ? { ...item, status: "in_progress" }
        : { id, type, status: "in_progress", result: null };
    }
    case "file_search_call":
      return { ...item, status: "in_progress", results: null };
    case "compaction":
      return { ...item, encrypted_content: "" };
    case "local_shell_call":
    case "apply_patch_call":
      return { ...item, status: "in_progress" };
    default:
      return { ...item };
  }
}

/** The deltas of a text. */
type CutText = (text: string) => Iterable<string>;

/** The events between those in which an item is added and done. `place` is in all of them. */
export function* eventsWithin(
  item: OutputItem,
  place: { item_id?: string | undefined },
  cut: CutText,
): Generator<Said> {
  switch (item.type) {
    case "message":
      for (const [content_index, part] of item.content.entries()) yield* eventsOfPart(cut, part, content_index);
      return;
    case "reasoning":
      for (const [summary_index, part] of item.summary.entries()) {
        const at = { summary_index };
        yield ["response.reasoning_summary_part.added", { ...at, part: { ...part, text: "" } }];
        yield* deltas(cut, "response.reasoning_summary_text.delta", part.text, at);
        yield ["response.reasoning_summary_text.done", { ...at, text: part.text }];
        yield ["response.reasoning_summary_part.done", { ...at, part }];
      }
      for (const [content_index, part] of (item.content ?? []).entries()) yield* eventsOfPart(cut, part, content_index);
      return;
    case "function_call":
      yield* deltas(cut, "response.function_call_arguments.delta", item.arguments);
      yield ["response.function_call_arguments.done", { name: item.name, arguments: item.arguments }];
      return;
    case "custom_tool_call":
      yield* deltas(cut, "response.custom_tool_call_input.delta", item.input);
      yield ["response.custom_tool_call_input.done", { input: item.input }];
      return;
    case "shell_call":
      for (const [command_index, command] of item.action.commands.entries()) {
        // These events name no item.
        const at = { item_id: undefined, command_index };
        yield ["response.shell_call_command.added", { ...at, command: "" }];
        yield ["response.shell_call_command.delta", { ...at, delta: command }];
        yield ["response.shell_call_command.done", { ...at, command }];
      }
      return;
    case "mcp_call":
      yield ["response.mcp_call.in_progress", {}];
      yield* deltas(cut, "response.mcp_call_arguments.delta", item.arguments);
      yield ["response.mcp_call_arguments.done", { arguments: item.arguments }];
      if (item.status === "completed") yield ["response.mcp_call.completed", {}];
      else if (item.status === "failed") yield ["response.mcp_call.failed", {}];
      return;
    case "mcp_list_tools":
      yield ["response.mcp_list_tools.in_progress", {}];
      yield [item.error == null ? "response.mcp_list_tools.completed" : "response.mcp_list_tools.failed", {}];
      return;
    case "code_interpreter_call":
      yield ["response.code_interpreter_call.in_progress", {}];
      yield* deltas(cut, "response.code_interpreter_call_code.delta", item.code ?? "");
      yield ["response.code_interpreter_call_code.done", { code: item.code ?? "" }];
      if (item.status === "incomplete") return;
      yield ["response.code_interpreter_call.interpreting", {}];
      yield ["response.code_interpreter_call.completed", {}];
      return;
    case "web_search_call":
    case "file_search_call":
      yield [`response.${item.type}.in_progress`, {}];
      yield [`response.${item.type}.searching`, {}];
      if (item.status === "completed" || item.status === "failed") yield [`response.${item.type}.completed`, {}];
      return;
    case "image_generation_call":
      yield ["response.image_generation_call.in_progress", {}];
      yield ["response.image_generation_call.generating", {}];
      if (item.status === "completed") yield ["response.image_generation_call.completed", {}];
      return;
    case "compaction":
      yield ["response.compaction.compacting", place];
  }
}

type Part =
  | Extract<OutputItem, { type: "message" }>["content"][number]
  | NonNullable<Extract<OutputItem, { type: "reasoning" }>["content"]>[number];

function* eventsOfPart(cut: CutText, part: Part, content_index: number): Generator<Said> {
  const at = { content_index };
  switch (part.type) {
    case "output_text": {
      const { text, annotations, logprobs = [] } = part;
      const empty = { ...part, text: "", annotations: [], logprobs: [] };
      yield ["response.content_part.added", { ...at, part: empty }];
      for (const piece of textPieces(cut, text, logprobs)) yield ["response.output_text.delta", { ...at, ...piece }];
      for (const [annotation_index, annotation] of annotations.entries()) {
        yield ["response.output_text.annotation.added", { ...at, annotation_index, annotation }];
      }
      yield ["response.output_text.done", { ...at, text, logprobs }];
      break;
    }
    case "refusal":
      yield ["response.content_part.added", { ...at, part: { ...part, refusal: "" } }];
      yield* deltas(cut, "response.refusal.delta", part.refusal, at);
      yield ["response.refusal.done", { ...at, refusal: part.refusal }];
      break;
    case "reasoning_text":
      yield ["response.content_part.added", { ...at, part: { ...part, text: "" } }];
      yield* deltas(cut, "response.reasoning_text.delta", part.text, at);
      yield ["response.reasoning_text.done", { ...at, text: part.text }];
  }
  yield ["response.content_part.done", { ...at, part }];
}

/** A word with the white space before it, in pieces of at most 32 characters. Every text consists of these. */
const PIECE = /\s{0,16}\S{1,16}|\s{1,16}/gu;

function* inPieces(text: string): Generator<string> {
  for (const [piece] of text.matchAll(PIECE)) yield piece;
}

function* deltas(cut: CutText, type: EventType, text: string, at: Fields = {}): Generator<Said> {
  for (const delta of cut(text)) yield [type, { ...at, delta }];
}

/** The pieces of a text, which are its tokens where these are known. */
function* textPieces(cut: CutText, text: string, logprobs: readonly TokenLogprob[]): Generator<Fields> {
  if (logprobs.length > 0 && logprobs.map(({ token }) => token).join("") === text) {
    for (const logprob of logprobs) yield { delta: logprob.token, logprobs: [logprob] };
  } else for (const delta of cut(text)) yield { delta, logprobs: [] };
}
