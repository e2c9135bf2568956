import { countRequest } from "@responses-edge/responses-api/create-request";
import { conversationNotFound } from "@responses-edge/responses-api/errors";
import { accessOf } from "@responses-edge/responses-api/tools";
import { measureOrExplain } from "@responses-edge/turn/truncation";
import { assemblePrompt } from "../assembly/assemble-turn.ts";
import { readHistory } from "../store/history.ts";
import { unwrap } from "../store/rpc.ts";
import { type Creation, checkCreation, prepareTurn, type ReadHistory } from "./creation.ts";
import { RequestScope } from "./request-scope.ts";
import type { Caller } from "./transport.ts";

/**
 * Counts the tokens of the first prompt that a create with this body would send: what its `usage.input_tokens` says
 * later, for a turn of one round. Keeps nothing, waits for no conversation, and makes no model speak.
 * Throws ApiError for all that refuses such a create before its turn has begun, but for a prompt beyond the model's window,
 * which is counted. `isEstimate`: the model server counts nothing, and the texts' length was taken.
 */
export async function countInputTokens(
  caller: Caller,
  body: unknown,
): Promise<{ tokens: number; isEstimate: boolean }> {
  using scope = RequestScope.open(caller);
  const creation = await checkCreation(scope, caller, body, {
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
  // vLLM cuts the prompt to so many; -1 is as many as the window has.
  const most = request.truncate_prompt_tokens ?? Number.POSITIVE_INFINITY;
  return { tokens: Math.min(tokens, most < 0 ? contextWindow : most), isEstimate };
}

/** The history of the conversation as it is now: nobody waits for a turn that is under way. */
async function conversationHistory({ caller, conversation }: Creation): Promise<ReadHistory | undefined> {
  if (!conversation) return undefined;
  const { id, address } = conversation;
  const history = await caller.homes.ask(address.home, null, (home) => home.conversationHistory(id));
  if (!history) throw conversationNotFound(id);
  return readHistory(unwrap(history));
}
