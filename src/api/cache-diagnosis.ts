import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { estimateTokens } from "@responses-edge/responses-api/estimate";
import { parseResponseId, type TurnAddress, treeOf } from "@responses-edge/responses-api/ids";
import type { Item } from "@responses-edge/responses-api/items/registry";
import type { CacheDiagnosis, ResponseObject } from "@responses-edge/responses-api/response";
import type { Prompt } from "@responses-edge/turn/contract/engine";
import { compared, messagesWithin } from "@responses-edge/turn/prompt-drift";
import { assemblePrompt, type Past, type TurnSpec } from "../assembly/assemble-turn.ts";
import { Permits } from "../store/limits/permits.ts";
import type { Creation } from "./creation.ts";

/**
 * The comparison of a request's prompt with that of an earlier response (`prompt_cache_options.comparison_response_id`): which part of
 * the earlier prompt a model server's prefix cache cannot use again. It asks the store and the model server beside the turn.
 */

/** The longest time for a comparison, in milliseconds. */
const MAX_MS = 10_000;

const UNAVAILABLE: CacheDiagnosis = { type: "unavailable" };

/** Compares, if the request asks for it. Never rejects. `past` is that of the turn. */
export function diagnoseCache(
  creation: Pick<Creation, "caller" | "previous">,
  spec: TurnSpec,
  past: Past,
): Promise<CacheDiagnosis> | undefined {
  const { comparison_response_id: id } = spec.request.prompt_cache_options ?? {};
  if (id == null) return undefined;
  const late = AbortSignal.any([creation.caller.signal, AbortSignal.timeout(MAX_MS)]);
  return diagnosis(creation, spec, past, id, late).catch(() => UNAVAILABLE);
}

async function diagnosis(
  { caller, previous }: Pick<Creation, "caller" | "previous">,
  spec: TurnSpec,
  past: Past,
  id: string,
  signal: AbortSignal,
): Promise<CacheDiagnosis> {
  const { homes, config } = caller;
  const address = parseResponseId(id);
  const stored = address && (await homes.ask(address.home, null, (home) => home.retrieve(address.turn)));
  if (!address || !stored) return { type: "comparison_response_not_found" };
  const head = JSON.parse(stored.head) as Omit<ResponseObject, "output">;
  using permits = new Permits("text", caller, stored.head.length + stored.output.length);
  const all = await caller.past.past([], address);
  // The two prompts, each in parts and as it is rendered.
  permits.resize(4 * all.length);
  // With a model access of its own: the turn has chosen its server, and goes on meanwhile.
  const host = { config, access: {}, signal, listsTools: false as const };
  const { engine, prompt } = await assemblePrompt(spec, past, host);
  const size = async () => (await engine.measure(prompt, signal, { countsAll: true })).tokens;
  if (head.model !== spec.model.name) {
    return { type: "cache_miss", reason: "model_changed", cache_missed_tokens: await size() };
  }
  if (isElsewhere(head, spec, previous, address) && config.modelServers.length > 1) {
    return { type: "cache_miss", reason: "prompt_cache_key_changed", cache_missed_tokens: await size() };
  }
  const before = pastBefore(all, JSON.parse(stored.output) as Item[]);
  const { prompt: then } = await assemblePrompt({ ...spec, request: requestOf(head, spec.request) }, before, host);
  const known = async (each: Prompt) => {
    const [parts, rendered] = await Promise.all([engine.parts(each, signal), engine.rendered(each, signal)]);
    return { parts, rendered };
  };
  const [earlier, now] = await Promise.all([known(then), known(prompt)]);
  const found = await compared({
    before: earlier,
    now,
    messagesWithin: (common) => messagesWithin(common, earlier.parts.length, (n) => engine.rendered(prompt, signal, n)),
    estimate: estimateTokens,
  });
  const isCompacted = compactions(past) !== compactions(before);
  return found.type === "cache_miss" && found.reason === "input_changed" && isCompacted
    ? { ...found, reason: "context_compacted" }
    : found;
}

/** Tells whether another key may have led the earlier response to another server. Turns of one tree go to the same one. */
function isElsewhere(
  head: Pick<ResponseObject, "prompt_cache_key">,
  { request }: TurnSpec,
  previous: TurnAddress | null,
  compared: TurnAddress,
): boolean {
  const isOneTree = previous !== null && treeOf(previous) === treeOf(compared) && previous.home === compared.home;
  return !isOneTree && head.prompt_cache_key !== (request.prompt_cache_key ?? null);
}

/** The history of a response with its input, without its own output: only the lists of tools come before it. */
export function pastBefore(all: Past, output: readonly Item[]): Past {
  const own = new Set(output.filter(({ type }) => type !== "mcp_list_tools").map(({ id }) => id));
  return { ...all, history: all.history.filter(({ id }) => !own.has(id)), input: [] };
}

/** The request of a response, as far as it is in its prompt. */
export function requestOf(head: Omit<ResponseObject, "output">, now: CreateRequest): CreateRequest {
  const { instructions, tools, tool_choice, reasoning, text } = head;
  return {
    ...now,
    instructions,
    tools: now.tools == null && tools.length === 0 ? now.tools : tools,
    tool_choice: now.tool_choice == null && tool_choice === "auto" ? now.tool_choice : tool_choice,
    reasoning: reasoning ?? undefined,
    text: text as CreateRequest["text"],
  } as CreateRequest;
}

function compactions({ history, input }: Past): number {
  return [...history, ...input].filter(({ type }) => type === "compaction").length;
}
