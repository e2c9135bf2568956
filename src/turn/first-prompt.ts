import type { Prompt, RawMessage, Replay, ServerTools } from "../contract/engine.ts";
import type { Item } from "../items/registry.ts";
import type { CreateRequest } from "../protocol/create-request.ts";
import { mustCall } from "../protocol/tools.ts";
import { type NoteRole, standingPast } from "./compacted-past.ts";
import { matchOutputs, promptItems } from "./history.ts";
import { withLoadedTools } from "./loaded-tools.ts";
import type { Asked, TurnPast } from "./options.ts";

/** What the first prompt of a turn is made of. */
export interface PromptSource {
  asked: Omit<Asked, "address" | "model"> & { model: { upstream: string } };
  past: Omit<TurnPast, "removed">;
}

/**
 * The prompt of a turn's first round: what a create sends, to be counted (`engine.measure`) or shortened
 * (`truncateToFit`) without a turn. Calls and outputs of its items may still be without each other
 * (`checkCallPairs`). `noteRole` is that of its engine.
 */
export function makePrompt({ asked, past }: PromptSource, noteRole: NoteRole, serverTools?: ServerTools): Prompt {
  const { request, model, cacheSalt, createdAt } = asked;
  const { replays, opened } = past;
  const { history, input } = standingPast(past, opened, noteRole);
  // Messages that came before a compaction are out of sight with all else.
  const { before, trailing } = opened ? { before: undefined, trailing: [] } : previousMessages(request, input);
  const items = promptItems(history, matchOutputs(history, input));
  return {
    model: model.upstream,
    items,
    replays: before ? [...replays, before] : replays,
    trailing,
    // Tools that came before a compaction are there all the same: the model may have been told of them.
    request: withLoadedTools(request, [...past.history, ...past.input]),
    serverTools,
    // The grammar of a forced call knows no tool but those of the prompt.
    onlyOffered: mustCall(request.tool_choice),
    cacheSalt,
    createdAt,
    spentTokens: 0,
  };
}

/**
 * Where the client's `previous_input_messages` stand in the prompt: before the first item of its input, by that item's
 * id; after all items where the input is empty.
 */
function previousMessages(
  { previous_input_messages: messages }: CreateRequest,
  input: readonly Item[],
): { before?: Replay | undefined; trailing: RawMessage[] } {
  if (messages == null) return { trailing: [] };
  const item = input[0]?.id;
  return item === undefined ? { trailing: messages } : { before: { item, messages, before: true }, trailing: [] };
}
