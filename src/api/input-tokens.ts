import { countRequest } from "@responses-edge/responses-api/create-bodies";
import { conversationNotFound } from "@responses-edge/responses-api/errors";
import { accessOf } from "@responses-edge/responses-api/tools";
import { measureOrExplain } from "@responses-edge/turn/truncation";
import { assemblePrompt } from "../assembly/assemble-turn.ts";
import { readHistory } from "../store/home/history.ts";
import { unwrap } from "../store/objects/rpc.ts";
import { acceptCreate, type Creation, prepareTurn, type ReadHistory } from "./creation.ts";
import { RequestScope } from "./request-scope.ts";
import type { Caller } from "./transport.ts";

/**
 * Counts the tokens of the first prompt that a create with this body would send: the later `usage.input_tokens` of a
 * turn with one round. Stores nothing, waits for no conversation, and asks no model to generate. Throws the ApiErrors
 * of a create that is refused before its turn has begun, except for a prompt longer than the model's window, which is
 * counted. `isEstimate`: the model server cannot count, and the length of the texts was taken.
 */
export async function countInputTokens(
  caller: Caller,
  body: unknown,
): Promise<{ tokens: number; isEstimate: boolean }> {
  using scope = RequestScope.open(caller);
  const creation = await acceptCreate(scope, caller, body, {
    schema: countRequest,
    makesTurn: false,
    kind: "count",
  });
  const { config, onAttempt } = caller;
  const { modelAccess, abort } = creation;
  const { signal } = abort;
  const { spec, past } = await prepareTurn(creation, conversationHistory(creation));
  const { request } = spec;
  const host = { config, modelAccess, access: accessOf(request), signal, onAttempt };
  const { engine, prompt } = await assemblePrompt(spec, past, host);
  const size = await measureOrExplain(engine, prompt, signal, "Counting input tokens", { countsAll: true });
  const { tokens, contextWindow, isEstimate = false } = size;
  // vLLM truncates the prompt to this many tokens; -1 stands for the model's window.
  const most = request.truncate_prompt_tokens ?? Number.POSITIVE_INFINITY;
  return { tokens: Math.min(tokens, most < 0 ? contextWindow : most), isEstimate };
}

/** The current history of the conversation. Does not wait for a turn in progress. */
async function conversationHistory({ caller, conversation }: Creation): Promise<ReadHistory | undefined> {
  if (!conversation) return undefined;
  const { id, address } = conversation;
  const history = await caller.homes.ask(address.home, null, (home) => home.conversationHistory(id));
  if (!history) throw conversationNotFound(id);
  return readHistory(unwrap(history));
}
