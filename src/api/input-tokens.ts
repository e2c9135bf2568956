import { LongWork } from "@responses-edge/long-work";
import { assemblePrompt } from "../assembly/assemble-turn.ts";
import { acceptRequest, resolveModel } from "../assembly/model-server.ts";
import type { ReadPast } from "../assembly/past.ts";
import { accessOf } from "../contract/mcp-access.ts";
import { countRequest } from "../protocol/create-request.ts";
import { conversationNotFound } from "../protocol/errors.ts";
import { unwrap } from "../store/client.ts";
import { readHistory } from "../store/history.ts";
import { addItemIds, matchOutputs, needsItemIds } from "../turn/history.ts";
import { type Creation, checkCreation } from "./creation.ts";
import type { Caller } from "./transport.ts";

/**
 * Counts the tokens of the first prompt that a create with this body would send: what its `usage.input_tokens` says
 * later, for a turn of one round. Keeps nothing, waits for no conversation, and makes no model speak.
 * Throws ApiError for all that refuses such a create before its turn has begun, but for a prompt beyond the model's window,
 * which is counted.
 */
export async function countInputTokens(caller: Caller, body: unknown): Promise<number> {
  const creation = await checkCreation(caller, body, { schema: countRequest, makesTurn: false, kind: "count" });
  using _permits = creation.permits;
  try {
    return await count(caller, creation);
  } finally {
    creation.admission.end();
  }
}

async function count(caller: Caller, creation: Creation): Promise<number> {
  const { request, address, cacheSalt, affinity, createdAt, abort } = creation;
  const { config, tenant } = caller;
  const { signal } = abort;
  const [model, past] = await Promise.all([resolveModel(request.model, config, signal), readPast(creation)]);
  creation.permits.resize(caller.bodyLength + past.length);
  const accepted = acceptRequest(request, model, config);
  const matched = [...matchOutputs(past.history, past.input)];
  const isOfConversation = creation.conversation !== undefined;
  const work = new LongWork(tenant);
  const input = needsItemIds(request, matched)
    ? await work.run(addItemIds(matched, address, isOfConversation))
    : matched;
  const spec = { ...address, request: accepted, model, tenant, cacheSalt, affinity, createdAt };
  const host = { config, access: accessOf(accepted), signal, onAttempt: caller.onAttempt };
  const { engine, prompt } = await assemblePrompt(spec, { ...past, input }, host);
  const { tokens, contextWindow } = await engine.measure(prompt, signal, { countsAll: true });
  // vLLM cuts the prompt to so many; -1 is as many as the window has.
  const most = request.truncate_prompt_tokens ?? Number.POSITIVE_INFINITY;
  return Math.min(tokens, most < 0 ? contextWindow : most);
}

/** The past of a create, as it is now: nobody waits for a turn that is under way. */
async function readPast({ caller, input, previous, conversation }: Creation): Promise<ReadPast> {
  const past = await caller.past.past(input, previous);
  if (!conversation) return past;
  const { id, address } = conversation;
  const history = await caller.homes.ask(address.home, null, (home) => home.conversationHistory(id));
  if (!history) throw conversationNotFound(id);
  const read = readHistory(unwrap(history));
  return { ...past, ...read, length: past.length + read.length };
}
