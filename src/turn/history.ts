import { invalidRequest } from "../protocol/errors.ts";
import { itemId, parseItemId, type TurnAddress } from "../protocol/ids.ts";
import type { InputItem, Item } from "../protocol/items.ts";
import { isServerCall } from "../protocol/response.ts";

/** What a turn knows before the model speaks: earlier items and this turn's input, checked and given ids. */

/** The input of a request as items. */
export function toInputItems(input: string | InputItem[] | null | undefined): InputItem[] {
  if (typeof input !== "string") return input ?? [];
  return [{ type: "message", role: "user", status: "completed", content: [{ type: "input_text", text: input }] }];
}

/**
 * The items of a prompt. A call that was cut off is left out (it stays in the store) unless somebody answered it.
 */
export function promptItems(history: readonly Item[], input: readonly Item[]): Item[] {
  const items = [...history, ...input];
  if (!items.some(isCutOff)) return items;
  const answered = new Set(items.map((item) => (item.type === "function_call_output" ? item.call_id : undefined)));
  return items.filter((item) => !isCutOff(item) || (item.type === "function_call" && answered.has(item.call_id)));
}

function isCutOff(item: Item): boolean {
  return (item.type === "function_call" || isServerCall(item)) && item.status === "incomplete";
}

/**
 * Every call has its output and every output its call, in that order.
 * Throws the 400s with OpenAI's texts. Returns the call ids in use.
 */
export function checkCallPairs(items: readonly Item[]): Set<string> {
  const calls = new Set<string>();
  const outputs = new Set<string>();
  for (const item of items) {
    if (item.type === "function_call") calls.add(item.call_id);
    if (item.type !== "function_call_output") continue;
    if (!calls.has(item.call_id)) {
      throw invalidRequest("input", `No tool call found for function call output with call_id ${item.call_id}.`);
    }
    outputs.add(item.call_id);
  }
  for (const id of calls) {
    if (!outputs.has(id)) throw invalidRequest("input", `No tool output found for function call ${id}.`);
  }
  return calls;
}

/**
 * The input with an id on every item, as the store keeps it. An item that carries an id of this server (an earlier
 * output given back) keeps it, unless it came twice; every other gets one in this turn. In a conversation every item
 * gets one: what is given back there is there already, and no two of its items have the same id. An approval follows
 * the request that it answers.
 */
export function withItemIds(
  input: readonly Item[],
  address: TurnAddress,
  inConversation: boolean,
): (Item & { id: string })[] {
  const seen = new Set<string>();
  const renamed = new Map<string, string>();
  return input.map((item, index) => {
    const keep = !inConversation && item.id !== undefined && !seen.has(item.id) && parseItemId(item.id) !== undefined;
    const id = keep && item.id !== undefined ? item.id : itemId(item.type, address, "input", index);
    seen.add(id);
    if (item.type === "mcp_approval_request" && item.id !== undefined) renamed.set(item.id, id);
    const request = "approval_request_id" in item && item.approval_request_id;
    const approval_request_id = request ? renamed.get(request) : undefined;
    return { ...item, id, ...(approval_request_id !== undefined && { approval_request_id }) };
  });
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
