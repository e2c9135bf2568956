import { collect, finish, type Steps } from "@responses-edge/long-work";
import { answeredId, calledId, type Item, isClientCall, isKept, isServerCall, itemId } from "../items/registry.ts";
import { flatName } from "../protocol/client-tools.ts";
import { invalidRequest } from "../protocol/errors.ts";
import { parseItemId, type TurnAddress } from "../protocol/ids.ts";

/** What a turn knows before the model speaks: earlier items and this turn's input, checked and given ids. */

/**
 * The items of a prompt. A call that was cut off is left out (it stays in the store) unless somebody answered it.
 */
export function promptItems(history: readonly Item[], input: readonly Item[]): Item[] {
  const items = [...history, ...input];
  if (!items.some(isCutOff)) return items;
  const answered = new Set(items.map(answeredId));
  return items.filter((item) => !isCutOff(item) || (isClientCall(item) && answered.has(calledId(item))));
}

function isCutOff(item: Item): boolean {
  return (isClientCall(item) || isServerCall(item)) && item.status === "incomplete";
}

/**
 * The input with the call's id on outputs that have none but the call's name: an output answers the first call of that
 * name which has no output yet. One without such a call keeps no id (`checkCallPairs` refuses it).
 */
export function matchOutputs<Input extends Item>(history: readonly Item[], input: readonly Input[]): readonly Input[] {
  if (!input.some(isUnmatched)) return input;
  /** Calls by name, oldest first, and those that are answered. */
  const calls = new Map<string, { ids: string[]; next: number }>();
  const answered = new Set<string>();
  const see = (item: Item) => {
    if (item.type === "function_call") {
      const name = flatName(item.namespace, item.name);
      const known = calls.get(name);
      if (known) known.ids.push(item.call_id);
      else calls.set(name, { ids: [item.call_id], next: 0 });
    }
    const id = answeredId(item);
    if (id !== undefined) answered.add(id);
  };
  for (const item of history) see(item);
  return input.map((item) => {
    if (!isUnmatched(item)) {
      see(item);
      return item;
    }
    const { name = "", namespace, ...output } = item;
    const known = calls.get(flatName(namespace, name));
    if (!known) return item;
    let call_id = known.ids[known.next];
    while (call_id !== undefined && answered.has(call_id)) call_id = known.ids[++known.next];
    if (call_id === undefined) return item;
    answered.add(call_id);
    return { ...output, call_id } as Input;
  });
}

function isUnmatched<T extends Item>(item: T): item is T & Extract<Item, { type: "function_call_output" }> {
  return item.type === "function_call_output" && item.call_id === "";
}

/**
 * Every call has its output and every output its call, in that order.
 * Throws the 400s with OpenAI's texts. Returns the call ids in use. `mayBeOpen`: calls may be without an output.
 */
export function checkCallPairs(items: readonly Item[], mayBeOpen = false): Set<string> {
  const calls = new Map<string, string>();
  const outputs = new Set<string>();
  for (const item of items) {
    const call = calledId(item);
    if (call !== undefined) calls.set(call, item.type);
    const id = answeredId(item);
    if (id === undefined) continue;
    if (item.type === "function_call_output" && id === "") {
      throw invalidRequest("input", `No tool call found for function call output of '${item.name ?? ""}'.`);
    }
    if (!calls.has(id)) {
      throw invalidRequest("input", `No tool call found for ${inWords(item.type)} with call_id ${id}.`);
    }
    outputs.add(id);
  }
  for (const [id, type] of mayBeOpen ? [] : calls) {
    if (!outputs.has(id)) throw invalidRequest("input", `No tool output found for ${inWords(type)} ${id}.`);
  }
  return new Set(calls.keys());
}

/** An item's type as OpenAI's errors write it: `function call output`. */
function inWords(type: string): string {
  return type.replaceAll("_", " ");
}

/** The items of a turn's input that are kept: one that asked for a compaction is no item of the conversation. */
export function keptInput<Kept extends { type: string }>(input: readonly Kept[]): Kept[] {
  return input.filter((item) => isKept(item));
}

/**
 * The input with an id on every item, as the store keeps it. An item that carries an id of this server (an earlier
 * output given back) keeps it, unless it came twice; every other gets one in this turn. In a conversation every item
 * gets one: what is given back there is there already, and no two of its items have the same id. An approval follows
 * the request that it answers.
 */
export function withItemIds(input: readonly Item[], address: TurnAddress, inConversation: boolean): NamedItem[] {
  return finish(addItemIds(input, address, inConversation));
}

/** The same in steps. */
export function addItemIds(input: readonly Item[], address: TurnAddress, inConversation: boolean): Steps<NamedItem[]> {
  return collect(namedItems(input, address, inConversation), UNITS_PER_ITEM);
}

type NamedItem = Item & { id: string };

/** Giving an item its id takes about so many microseconds. */
const UNITS_PER_ITEM = 3;

function* namedItems(input: readonly Item[], address: TurnAddress, inConversation: boolean): Generator<NamedItem> {
  const seen = new Set<string>();
  const renamed = new Map<string, string>();
  for (const [index, item] of input.entries()) {
    const keep = !inConversation && item.id !== undefined && !seen.has(item.id) && parseItemId(item.id) !== undefined;
    const id = keep && item.id !== undefined ? item.id : itemId(item.type, address, "input", index);
    seen.add(id);
    if (item.type === "mcp_approval_request" && item.id !== undefined) renamed.set(item.id, id);
    const request = "approval_request_id" in item && item.approval_request_id;
    const approval_request_id = request ? renamed.get(request) : undefined;
    yield { ...item, id, ...(approval_request_id !== undefined && { approval_request_id }) };
  }
}

/**
 * Whether a turn needs the ids of its input itself: messages that the client has kept stand with the first item of the
 * input, by its id; an approved call names the request by the id under which it is kept; and sealed reasoning that cannot
 * be opened is told by it.
 */
export function needsItemIds(request: { previous_input_messages?: unknown }, input: readonly Item[]): boolean {
  return (
    request.previous_input_messages != null ||
    input.some(
      (item) =>
        item.type === "mcp_approval_response" || (item.type === "reasoning" && item.encrypted_content !== undefined),
    )
  );
}
