import { isOfOtherAgent } from "@responses-edge/responses-api/items/multi-agent";
import {
  answeredId,
  calledId,
  type Item,
  isAsyncCall,
  withoutAsked,
} from "@responses-edge/responses-api/items/registry";

/**
 * The items that a model reads of a prompt, in the form that chat templates and gpt-oss know.
 *
 * A response may have asynchronous calls (openai 7.59 `FunctionTool.async`), after which the model goes on, and items
 * of other agents (`multi_agent`), which have their own prompts.
 */

/** The output of an asynchronous call until its own has come. */
const RUNNING = "The call is running in the background. Its result will be given later; go on without it.";

/**
 * The items of a prompt as its model reads them. Items of other agents, and the client's answers to them, are left out. An
 * output that says that it is running follows each asynchronous call; where the call's own output stands, the call is
 * repeated before it. The items before an output never change, so that the prompt of a later turn begins with that of an
 * earlier one.
 *
 * @param items - All items of a prompt, oldest first.
 * @returns The same array if there is neither.
 */
export function modelItems(items: readonly Item[]): readonly Item[] {
  let hasAsync = false;
  for (const item of items) hasAsync ||= isAsyncCall(item);
  const own = withoutAsked(items, isOfOtherAgent);
  return hasAsync ? withAsyncOutputs(own) : own;
}

function withAsyncOutputs(items: readonly Item[]): readonly Item[] {
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
