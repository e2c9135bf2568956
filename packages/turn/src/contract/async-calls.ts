import { answeredId, calledId, type Item, isAsyncCall } from "@responses-edge/responses-api/items/registry";

/**
 * Asynchronous calls (openai 7.59 `FunctionTool.async`): the model goes on after the call, and its output comes in any
 * later response. Chat templates and gpt-oss know only calls whose output follows at once.
 */

/** The output of an asynchronous call until its own has come. */
const RUNNING = "The call is running in the background. Its result will be given later; go on without it.";

/**
 * The items of a prompt as models know calls. An output that says that it is running follows each asynchronous call.
 * Where the call's own output stands, the call is repeated before it. The items before that stay as they were, so that
 * the prompt of a later turn begins with that of an earlier one.
 *
 * @param items - All items of a prompt, oldest first.
 * @returns The same array if there is no asynchronous call.
 */
export function withAsyncOutputs(items: readonly Item[]): readonly Item[] {
  if (!items.some(isAsyncCall)) return items;
  const calls = new Map<string, Item>();
  return items.flatMap((item): Item[] => {
    const call_id = calledId(item);
    if (call_id !== undefined && isAsyncCall(item)) {
      calls.set(call_id, item);
      return [item, { type: `${item.type}_output`, call_id, output: RUNNING, status: "completed" } as Item];
    }
    const id = answeredId(item);
    const call = id === undefined ? undefined : calls.get(id);
    if (!call) return [item];
    // Without an item's id, no raw message stands for the repeated call.
    const again = { id: undefined, call_id: `${id}_result` };
    return [{ ...call, ...again } as Item, { ...item, call_id: again.call_id } as Item];
  });
}
