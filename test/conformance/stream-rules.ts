/** The ordering rules of a Responses stream: checks 1–20 of the reference (§6), and 24. */
import type { Response, ResponseOutputItem } from "openai/resources/responses/responses";
import { isJson, itemStatus, logprobEntryViolations, responseViolations } from "./response-body.ts";
import { at, isTerminalEvent, itemId, type Placed, sameJson, type Trace } from "./stream-trace.ts";
import { isObject, type Rule, show } from "./violations.ts";

/** The fields that may change between two snapshots of one response. */
const CHANGING_KEYS: ReadonlySet<string> = new Set([
  // The items that this server has cut, as far as the output has them.
  "cut_items",
  "completed_at",
  "error",
  "incomplete_details",
  "input_messages",
  "moderation",
  "output",
  "output_messages",
  // An event of this server: an outage that the response waits for.
  "recovery",
  "service_tier",
  "status",
  "timing",
  "tool_usage",
  "usage",
]);

/** Calls, of the client's tools and of the server's: the model may write several at once. */
const CALL_TYPES: ReadonlySet<string> = new Set([
  "function_call",
  "custom_tool_call",
  "tool_search_call",
  "local_shell_call",
  "shell_call",
  "apply_patch_call",
  "mcp_call",
  "web_search_call",
  "file_search_call",
  "code_interpreter_call",
]);

/** The server's own calls, with the events that report their work. */
const SERVER_WORK: Record<string, { written: string; ended: readonly string[] }> = {
  code_interpreter_call: {
    written: "response.code_interpreter_call_code.done",
    ended: ["response.code_interpreter_call.completed"],
  },
  mcp_call: {
    written: "response.mcp_call_arguments.done",
    ended: ["response.mcp_call.completed", "response.mcp_call.failed"],
  },
  mcp_list_tools: {
    written: "response.mcp_list_tools.in_progress",
    ended: ["response.mcp_list_tools.completed", "response.mcp_list_tools.failed"],
  },
};

/** Item types that begin `in_progress`; the others are complete when they appear. */
const BEGINNING_TYPES: ReadonlySet<string> = new Set([
  "message",
  "reasoning",
  "function_call",
  "custom_tool_call",
  "tool_search_call",
  "local_shell_call",
  "shell_call",
  "apply_patch_call",
  "web_search_call",
  "file_search_call",
  "code_interpreter_call",
  "image_generation_call",
  "mcp_call",
]);

/** The type of item that an event with an `item_id` belongs to, by the beginning of the event's type. */
const EVENT_FAMILIES: readonly (readonly [prefix: string, itemType: string])[] = [
  ["response.output_text.", "message"],
  ["response.refusal.", "message"],
  ["response.reasoning_text.", "reasoning"],
  ["response.reasoning_summary_", "reasoning"],
  ["response.function_call_arguments.", "function_call"],
  ["response.custom_tool_call_input.", "custom_tool_call"],
  ["response.shell_call_", "shell_call"],
  ["response.mcp_call", "mcp_call"],
  ["response.mcp_list_tools.", "mcp_list_tools"],
  ["response.web_search_call.", "web_search_call"],
  ["response.file_search_call.", "file_search_call"],
  ["response.code_interpreter_call", "code_interpreter_call"],
  ["response.image_generation_call.", "image_generation_call"],
  ["response.compaction.", "compaction"],
];

interface StreamRule extends Rule<Trace> {
  /** The rule follows items from their beginning, so it says nothing about a replay that starts later. */
  readonly fromStart: boolean;
}

/** All rules of a stream whose events have the right shape. */
export const STREAM_RULES: readonly StreamRule[] = [
  { check: 1, run: createdFirst, fromStart: true },
  { check: 2, run: inProgressNext, fromStart: true },
  { check: 3, run: sequenceCounts, fromStart: false },
  { check: 4, run: nameIsType, fromStart: false },
  { check: 5, run: oneTerminalEventLast, fromStart: false },
  { check: 6, run: doneSentinelSent, fromStart: false },
  { check: 8, run: itemEventsInsideBracket, fromStart: true },
  { check: 8, run: everyItemDoneOnce, fromStart: true },
  { check: 8, run: onlyCallsOverlap, fromStart: true },
  { check: 8, run: serverWorkInOrder, fromStart: true },
  { check: 9, run: outputIndexesCountUp, fromStart: true },
  { check: 10, run: itemIdsStable, fromStart: true },
  { check: 10, run: finalOutputIsDoneItems, fromStart: true },
  { check: 11, run: partsBracketed, fromStart: true },
  { check: 12, run: deltasAddUpToText, fromStart: true },
  { check: 13, run: argumentDeltasAddUp, fromStart: true },
  { check: 13, run: commandsAddUp, fromStart: true },
  { check: 14, run: itemsBeginEmpty, fromStart: true },
  { check: 15, run: callIdsStable, fromStart: true },
  { check: 16, run: eventsFitTheirItem, fromStart: true },
  { check: 17, run: snapshotsAreFull, fromStart: false },
  { check: 17, run: snapshotsAreOneResponse, fromStart: false },
  { check: 17, run: snapshotsEmptyUntilTerminal, fromStart: false },
  { check: 17, run: statusFitsEvent, fromStart: false },
  { check: 19, run: logprobsOnlyWhenAsked, fromStart: false },
  { check: 20, run: obfuscationOnlyOnDeltas, fromStart: false },
  { check: 24, run: errorPrecedesFailed, fromStart: false },
];

/** Check 1: `response.created` first, with sequence number 0, and only once. */
function* createdFirst({ events, options }: Trace): Iterable<string> {
  const first = events[0];
  if (first === undefined) {
    if (!options.partial) yield "the stream has no events";
  } else if (first.event.type !== "response.created") yield `the first event is ${first.event.type}`;
  else if (sequenceOf(first) !== 0) yield `response.created has sequence number ${sequenceOf(first)}`;
  for (const placed of events.slice(1)) {
    if (placed.event.type === "response.created") yield `${at(placed)} comes again`;
  }
}

/** Check 2: `response.in_progress` second, with `response.queued` before it for a background response. */
function* inProgressNext({ events, options }: Trace): Iterable<string> {
  const types = events.map(({ event }) => event.type);
  const queued = types[1] === "response.queued";
  if (options.background === true && types.length > 1 && !queued) yield "a background response is not queued first";
  if (options.background === false && queued) yield "a response that is not in the background is queued";
  // A response that is only prepared (`generate: false`) is never in progress.
  if (options.prepared === true && types[1] === "response.completed" && types.length === 2) return;
  const next = types[queued ? 2 : 1];
  const mayEnd = options.partial || (queued && options.cancelled);
  if (next !== "response.in_progress" && !(next === undefined && mayEnd)) {
    yield `expected response.in_progress after ${queued ? "response.queued" : "response.created"}, got ${next}`;
  }
  const late = types.indexOf("response.queued", 2);
  if (late !== -1) yield `event ${late} is response.queued`;
}

/** Check 3: sequence numbers count up by one from 0, or from where a replay starts. */
function* sequenceCounts({ events, options }: Trace): Iterable<string> {
  const start = options.startingAfter === undefined ? 0 : options.startingAfter + 1;
  for (const placed of events) {
    const expected = start + placed.position;
    if (sequenceOf(placed) !== expected) {
      yield `${at(placed)} has sequence number ${sequenceOf(placed)}, expected ${expected}`;
    }
  }
}

/** Check 4: the SSE name of an event is its `type`. */
function* nameIsType({ events }: Trace): Iterable<string> {
  for (const placed of events) if (placed.name !== placed.event.type) yield `${at(placed)} is named ${placed.name}`;
}

/** Check 5: exactly one terminal event, and nothing after it. */
function* oneTerminalEventLast({ events, options }: Trace): Iterable<string> {
  const terminals = events.filter(isTerminalEvent);
  if (terminals.length === 0 && !options.partial && !options.cancelled) yield "the stream has no terminal event";
  for (const placed of terminals.slice(1)) yield `${at(placed)} is a second terminal event`;
  const after = events[(terminals[0]?.position ?? Number.POSITIVE_INFINITY) + 1];
  if (after !== undefined && !isTerminalEvent(after)) yield `${at(after)} comes after the terminal event`;
}

/** Check 6: an SSE stream ends with `[DONE]`. */
function* doneSentinelSent({ hasDoneSentinel, options }: Trace): Iterable<string> {
  if (!hasDoneSentinel && !options.partial) yield "the stream does not end with [DONE]";
}

/** Check 8: the events of an item come after its `output_item.added` and before its `output_item.done`. */
function* itemEventsInsideBracket({ events, items }: Trace): Iterable<string> {
  for (const placed of events) {
    const index = outputIndexOf(placed);
    if (index === undefined || placed.event.type === "response.output_item.added") continue;
    const item = items.find((candidate) => candidate.index === index);
    if (item === undefined) yield `${at(placed)} is of item ${index}, which was never added`;
    else if (placed.position < item.addedAt) yield `${at(placed)} comes before item ${index} is added`;
    else if (placed.position > item.doneAt) yield `${at(placed)} comes after item ${index} is done`;
  }
}

/** Check 8: every item added is done before the terminal event. When a response fails, open items are left so. */
function* everyItemDoneOnce({ items, terminal }: Trace): Iterable<string> {
  const ended = terminal?.event.type === "response.completed" || terminal?.event.type === "response.incomplete";
  for (const item of items) {
    if (ended && terminal?.event.response.status !== "cancelled" && item.done === undefined) {
      yield `item ${item.index} is never done`;
    }
    if (item.done === undefined) continue;
    const status = itemStatus(item.done);
    if (status === "in_progress") yield `item ${item.index} is done while in_progress`;
  }
}

/**
 * Check 8: one item at a time. But calls may be open together; while the server runs a written call, or lists a
 * server's tools, anything else may begin; and reasoning that is sealed with the next call ends just before that call
 * does.
 */
function* onlyCallsOverlap({ items }: Trace): Iterable<string> {
  for (const item of items) {
    for (const earlier of items) {
      if (earlier.addedAt >= item.addedAt || earlier.doneAt < item.addedAt) continue;
      if (CALL_TYPES.has(earlier.added.type) && CALL_TYPES.has(item.added.type)) continue;
      if (writtenAt(earlier) < item.addedAt) continue;
      if (isSealedWith(earlier, item)) continue;
      yield `item ${item.index} (${item.added.type}) is added while item ${earlier.index} (${earlier.added.type}) is open`;
    }
  }
}

/**
 * True if an item is reasoning without a delta after the beginning of the call `next`, and done before that call is.
 */
function isSealedWith({ added, done, doneAt, events }: Trace["items"][number], next: Trace["items"][number]): boolean {
  if (added.type !== "reasoning" || !next.added.type.endsWith("_call")) return false;
  const isSealed = done === undefined || (done.type === "reasoning" && done.encrypted_content != null);
  return isSealed && doneAt <= next.doneAt && events.every(({ position }) => position < next.addedAt);
}

/** The position at which the model has finished a call, and the server begins to run it. */
function writtenAt({ added, events }: Trace["items"][number]): number {
  const written = SERVER_WORK[added.type]?.written;
  if (written !== undefined)
    return events.find(({ event }) => event.type === written)?.position ?? Number.POSITIVE_INFINITY;
  // A search is added only when it is complete.
  return ["web_search_call", "file_search_call", "multi_agent_call"].includes(added.type)
    ? -1
    : Number.POSITIVE_INFINITY;
}

/** Check 8: the server's work begins with `in_progress` and ends with one outcome, which is also the item's status. */
function* serverWorkInOrder({ items }: Trace): Iterable<string> {
  for (const item of items) {
    const work = SERVER_WORK[item.added.type];
    if (work === undefined || item.events.length === 0) continue;
    const types = item.events.map(({ event }) => event.type as string);
    const begins = `response.${item.added.type}.in_progress`;
    if (types[0] !== begins) yield `item ${item.index} (${item.added.type}) begins with ${types[0]}`;
    if (types.indexOf(begins, 1) !== -1) yield `item ${item.index} (${item.added.type}) is in progress twice`;
    const outcomes = types.filter((type) => work.ended.includes(type));
    const status = item.done && itemStatus(item.done);
    const isCutOff = item.done === undefined || status === "incomplete";
    if (outcomes.length !== (isCutOff ? 0 : 1) && !(item.done === undefined && outcomes.length === 1)) {
      yield `item ${item.index} (${item.added.type}, ${show(status)}) has the outcomes ${show(outcomes)}`;
    }
    if (outcomes.length > 0 && types.at(-1) !== outcomes[0]) yield `item ${item.index} goes on after ${outcomes[0]}`;
    if (outcomes.length > 0 && !types.includes(work.written)) yield `item ${item.index} is run before it is written`;
    // A script that failed has been interpreted: OpenAI has no event for its failure.
    if (item.added.type === "code_interpreter_call") continue;
    if (status !== undefined && outcomes[0]?.endsWith(status) === false) {
      yield `item ${item.index} is ${status} after ${outcomes[0]}`;
    }
  }
}

/** Check 9: items are added with `output_index` 0, 1, 2… */
function* outputIndexesCountUp({ items }: Trace): Iterable<string> {
  for (const [position, item] of items.entries()) {
    if (item.index !== position) yield `item ${position} is added with output_index ${item.index}`;
  }
}

/** Check 10: an item keeps its id in all of its events, and its type. */
function* itemIdsStable({ items }: Trace): Iterable<string> {
  const seen = new Set<string>();
  for (const item of items) {
    const id = itemId(item.added);
    if (id === undefined || id === "") yield `item ${item.index} is added without an id`;
    else if (seen.has(id)) yield `item ${item.index} is added with the id ${id} of another item`;
    if (id !== undefined) seen.add(id);
    for (const placed of item.events) {
      if ("item_id" in placed.event && placed.event.item_id !== id) {
        yield `${at(placed)} has item_id ${placed.event.item_id}, item ${item.index} is ${id}`;
      }
    }
    if (item.done === undefined) continue;
    if (itemId(item.done) !== id) yield `item ${item.index} is added as ${id}, done as ${itemId(item.done)}`;
    if (item.done.type !== item.added.type) {
      yield `item ${item.index} is added as a ${item.added.type}, done as a ${item.done.type}`;
    }
  }
}

/**
 * Checks 10 and 12: the final output is the items of `output_item.done`, in order; of a failed response, some of them.
 */
function* finalOutputIsDoneItems({ items, terminal }: Trace): Iterable<string> {
  if (terminal === undefined) return;
  const output = terminal.event.response.output;
  if (terminal.event.type === "response.failed" || terminal.event.response.status === "cancelled") {
    for (const [index, final] of output.entries()) {
      const item = items.find((candidate) => itemId(candidate.added) === itemId(final));
      if (item === undefined) yield `output[${index}] of the failed response was never added`;
    }
    return;
  }
  if (output.length !== items.length) yield `the final output has ${output.length} items, added were ${items.length}`;
  for (const item of items) {
    const final = output[item.index];
    if (final === undefined || item.done === undefined || sameJson(final, item.done)) continue;
    yield `output[${item.index}] is ${difference(final, item.done)} as in its output_item.done`;
  }
}

/** Check 11: a part is added, gets deltas, its `.done`, its `part.done`, in this order, one part after the other. */
function* partsBracketed({ items }: Trace): Iterable<string> {
  for (const item of items) yield* item.parts.order;
}

/** Check 12: deltas add up to the `.done` text, the part and the item; so do logprobs and annotations. */
function* deltasAddUpToText({ items }: Trace): Iterable<string> {
  for (const item of items) yield* item.parts.text;
}

/** Check 13: argument (or input) deltas add up to `.done` and to the item, and one `.done` is sent. */
function* argumentDeltasAddUp({ items }: Trace): Iterable<string> {
  for (const item of items) {
    let streamed = "";
    let finished: string | undefined;
    for (const placed of item.events) {
      const { event } = placed;
      switch (event.type) {
        case "response.function_call_arguments.delta":
        case "response.custom_tool_call_input.delta":
        case "response.mcp_call_arguments.delta":
          if (finished !== undefined) yield `${at(placed)} comes after the arguments are done`;
          streamed += event.delta;
          break;
        case "response.function_call_arguments.done":
        case "response.custom_tool_call_input.done":
        case "response.mcp_call_arguments.done": {
          if (finished !== undefined) yield `${at(placed)} comes twice`;
          finished = "input" in event ? event.input : event.arguments;
          if (finished !== streamed) yield `${at(placed)} says ${show(finished)}, its deltas ${show(streamed)}`;
          // The type has no name, but the OpenAPI document requires it and Cline reads it (§1.7).
          const name = "name" in event ? event.name : undefined;
          if (item.added.type === "function_call" && name !== item.added.name) {
            yield `${at(placed)} has name ${show(name)}, the call ${show(item.added.name)}`;
          }
          break;
        }
        default:
          break;
      }
    }
    if (item.done === undefined) continue;
    const final = argumentsOf(item.done);
    if (final === undefined) continue;
    if (final !== streamed) yield `item ${item.index} has arguments ${show(final)}, its deltas ${show(streamed)}`;
    if (finished === undefined) yield `item ${item.index} is done without its arguments being done`;
    if (item.done.type === "function_call" && item.done.status === "completed" && !isJson(final)) {
      yield `item ${item.index} is completed, but its arguments are not JSON: ${show(final)}`;
    }
  }
}

/** Check 13: the commands of a shell are added empty, one after another, and their deltas add up to the item's. */
function* commandsAddUp({ items }: Trace): Iterable<string> {
  for (const item of items) {
    if (item.added.type !== "shell_call") continue;
    if (item.added.action.commands.length > 0) yield `item ${item.index} is added with commands`;
    const told: string[] = [];
    let streamed: string | undefined;
    for (const placed of item.events) {
      const { event } = placed;
      if (event.type === "response.shell_call_command.added") {
        const isNext = streamed === undefined && event.command_index === told.length && event.command === "";
        if (!isNext) yield `${at(placed)} does not begin command ${told.length}`;
        streamed = "";
      } else if (event.type === "response.shell_call_command.delta") {
        if (streamed === undefined) yield `${at(placed)} is of no open command`;
        streamed = (streamed ?? "") + event.delta;
      } else if (event.type === "response.shell_call_command.done") {
        if (event.command !== streamed) yield `${at(placed)} says ${show(event.command)}, its deltas ${show(streamed)}`;
        told.push(event.command);
        streamed = undefined;
      }
    }
    const final = item.done?.type === "shell_call" ? item.done.action.commands : undefined;
    if (final && !sameJson(final, told))
      yield `item ${item.index} has commands ${show(final)}, told were ${show(told)}`;
  }
}

/** Check 14: an item begins `in_progress` and empty; so does each of its parts. */
function* itemsBeginEmpty({ items }: Trace): Iterable<string> {
  for (const item of items) {
    const { added } = item;
    const status = itemStatus(added);
    if (BEGINNING_TYPES.has(added.type) && status !== "in_progress") {
      yield `item ${item.index} (${added.type}) is added with status ${show(status)}`;
    }
    const begins = argumentsOf(added);
    if (begins !== undefined && begins !== "") yield `item ${item.index} is added with arguments ${show(begins)}`;
    if (added.type === "message" || added.type === "reasoning") {
      if ((added.content ?? []).length > 0) yield `item ${item.index} is added with content`;
    }
    if (added.type === "reasoning" && added.summary.length > 0) yield `item ${item.index} is added with a summary`;
    yield* item.parts.beginnings;
  }
}

/** Check 15: a call keeps its `call_id` and its name, and no two calls share a `call_id`. */
function* callIdsStable({ items }: Trace): Iterable<string> {
  const seen = new Set<string>();
  for (const item of items) {
    const callId = fieldOf(item.added, "call_id");
    if (typeof callId === "string" && item.added.type.endsWith("_call")) {
      if (callId === "") yield `item ${item.index} is added with an empty call_id`;
      if (seen.has(callId)) yield `item ${item.index} is added with the call_id ${callId} of another call`;
      seen.add(callId);
    }
    if (item.done === undefined) continue;
    for (const key of ["call_id", "name"]) {
      const [before, after] = [fieldOf(item.added, key), fieldOf(item.done, key)];
      if (before !== after) yield `item ${item.index} is added with ${key} ${show(before)}, done with ${show(after)}`;
    }
  }
}

/** Check 16: events belong to items of their kind, and the parts of reasoning are `reasoning_text`, of messages not. */
function* eventsFitTheirItem({ items }: Trace): Iterable<string> {
  for (const item of items) {
    for (const placed of item.events) {
      const { event } = placed;
      const family = EVENT_FAMILIES.find(([prefix]) => event.type.startsWith(prefix));
      if (family !== undefined && family[1] !== item.added.type) {
        yield `${at(placed)} does not belong to a ${item.added.type}`;
      }
      if (event.type !== "response.content_part.added" && event.type !== "response.content_part.done") continue;
      const wanted = event.part.type === "reasoning_text" ? "reasoning" : "message";
      if (item.added.type !== wanted) yield `${at(placed)} puts a ${event.part.type} part into a ${item.added.type}`;
    }
  }
}

/** Check 17: every lifecycle event carries a full response. */
function* snapshotsAreFull({ lifecycle }: Trace): Iterable<string> {
  for (const placed of lifecycle) {
    for (const violation of responseViolations(placed.event.response)) yield `${at(placed)}: ${violation}`;
  }
}

/** Check 17: every lifecycle event carries the same response: constant fields do not change. */
function* snapshotsAreOneResponse({ lifecycle }: Trace): Iterable<string> {
  const first = lifecycle[0];
  if (first === undefined) return;
  const fixed = fixedFields(first.event.response);
  for (const placed of lifecycle.slice(1)) {
    const own = fixedFields(placed.event.response);
    if (!sameJson(own, fixed)) yield `${at(placed)} has ${difference(own, fixed)} as in ${at(first)}`;
  }
}

/** Check 17: until the terminal event, `usage` is null and `output` is empty. */
function* snapshotsEmptyUntilTerminal({ lifecycle }: Trace): Iterable<string> {
  for (const placed of lifecycle) {
    if (isTerminalEvent(placed)) continue;
    const { usage, output } = placed.event.response;
    // The patched schema allows null, which the type does not know.
    if ((usage ?? null) !== null) yield `${at(placed)} has usage`;
    if (output.length > 0) yield `${at(placed)} has output`;
  }
}

/** Check 17: the status of a snapshot is the one its event announces. */
function* statusFitsEvent({ lifecycle, options }: Trace): Iterable<string> {
  for (const placed of lifecycle) {
    const status = placed.event.response.status ?? "undefined";
    const announced = placed.event.type.slice("response.".length);
    const allowed = announced === "created" ? ["in_progress", "queued"] : [announced];
    if (options.cancelled && isTerminalEvent(placed)) allowed.push("cancelled");
    if (!allowed.includes(status)) yield `${at(placed)} has status ${status}`;
  }
}

/** Check 19: `logprobs` is filled only when asked for, and then completely. */
function* logprobsOnlyWhenAsked({ events, options }: Trace): Iterable<string> {
  for (const placed of events) {
    const { event } = placed;
    const entries = logprobsOf(placed);
    if (entries === undefined) continue;
    if (options.logprobs === false && entries.length > 0) yield `${at(placed)} has logprobs that were not asked for`;
    if (options.logprobs === true && entries.length === 0) {
      const text = event.type === "response.output_text.done" ? event.text : "";
      if (text !== "") yield `${at(placed)} lacks the logprobs that were asked for`;
    }
    yield* logprobEntryViolations(`${at(placed)} logprobs`, entries);
  }
}

/** Check 20: `obfuscation` is on deltas only; when it is on, on all of them; when off, on none. */
function* obfuscationOnlyOnDeltas({ events, options }: Trace): Iterable<string> {
  for (const placed of events) {
    const obfuscation = "obfuscation" in placed.event ? placed.event.obfuscation : undefined;
    const isDelta = placed.event.type.endsWith(".delta");
    if (obfuscation === undefined) {
      if (options.obfuscation === true && isDelta) yield `${at(placed)} has no obfuscation`;
      continue;
    }
    if (typeof obfuscation !== "string") yield `${at(placed)} has obfuscation ${show(obfuscation)}`;
    if (!isDelta) yield `${at(placed)} has obfuscation, but is not a delta`;
    if (options.obfuscation === false) yield `${at(placed)} has obfuscation, which is off`;
  }
}

/**
 * Check 24, §4.1(4): one `error` event, nested and flat, comes right before `response.failed`, and only there. Over a
 * WebSocket there is none: openai-node's lanes end with it.
 */
function* errorPrecedesFailed({ errors, events, terminal, options }: Trace): Iterable<string> {
  const failed = terminal?.event.type === "response.failed" ? terminal : undefined;
  const expected = failed === undefined ? undefined : events[failed.position - 1];
  const replayed = options.startingAfter !== undefined && failed?.position === 0;
  if (options.socket) {
    for (const placed of errors) yield `${at(placed)} is an error within a response`;
    return;
  }
  if (failed !== undefined && expected?.event.type !== "error" && !replayed) {
    yield `${at(failed)} is not preceded by an error event`;
  }
  for (const placed of errors) {
    const pending = placed.position === events.length - 1 && options.partial;
    if (placed !== expected && !pending) yield `${at(placed)} is not followed by response.failed`;
    const { event } = placed;
    const nested = "error" in event && isObject(event.error) ? event.error : undefined;
    if (nested === undefined) {
      yield `${at(placed)} has no nested error`;
      continue;
    }
    if (typeof nested.type !== "string" || nested.type === "") yield `${at(placed)} has no error.type`;
    if (event.message === "") yield `${at(placed)} has an empty message`;
    const flat: Record<string, unknown> = { code: event.code, message: event.message, param: event.param };
    for (const [key, value] of Object.entries(flat)) {
      if (nested[key] !== value) yield `${at(placed)} has ${key} ${show(value)}, nested ${show(nested[key])}`;
    }
    const final = failed?.event.response.error?.message;
    if (final !== undefined && final !== event.message) {
      yield `${at(placed)} says ${show(event.message)}, response.failed ${show(final)}`;
    }
  }
}

function sequenceOf(placed: Placed): number {
  return placed.event.sequence_number;
}

function outputIndexOf(placed: Placed): number | undefined {
  return "output_index" in placed.event ? placed.event.output_index : undefined;
}

function logprobsOf({ event }: Placed): readonly unknown[] | undefined {
  switch (event.type) {
    case "response.output_text.delta":
    case "response.output_text.done":
      return event.logprobs;
    case "response.content_part.added":
    case "response.content_part.done":
      return event.part.type === "output_text" ? (event.part.logprobs ?? []) : undefined;
    default:
      return undefined;
  }
}

function argumentsOf(item: ResponseOutputItem): string | undefined {
  if (item.type === "function_call" || item.type === "mcp_call") return item.arguments;
  return item.type === "custom_tool_call" ? item.input : undefined;
}

function fieldOf(item: ResponseOutputItem, key: string): unknown {
  const fields: Record<string, unknown> = { ...item };
  return fields[key];
}

function fixedFields(response: Response): Record<string, unknown> {
  return Object.fromEntries(Object.entries(response).filter(([key]) => !CHANGING_KEYS.has(key)));
}

/** Says how `actual` differs from `expected`, by its first differing key. */
export function difference(actual: object, expected: object): string {
  const [have, want]: Record<string, unknown>[] = [{ ...actual }, { ...expected }];
  const keys = Object.keys({ ...have, ...want });
  const key = keys.find((candidate) => !sameJson(have?.[candidate], want?.[candidate])) ?? "?";
  return `${key} ${show(have?.[key])}, not ${show(want?.[key])}`;
}
