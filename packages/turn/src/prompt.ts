import { finish, type Steps } from "@responses-edge/bounded-io/long-work";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { invalidRequest } from "@responses-edge/responses-api/errors";
import { parseItemId, type TurnAddress } from "@responses-edge/responses-api/ids";
import {
  answeredId,
  calledId,
  type Item,
  isAside,
  isAsyncCall,
  isClientCall,
  isCutCall,
  isServerCall,
  itemId,
} from "@responses-edge/responses-api/items/registry";
import { ClientTools, flatName } from "@responses-edge/responses-api/tool-names";
import { mustCall } from "@responses-edge/responses-api/tools";
import { type NoteRole, standingPast } from "./compacted-past.ts";
import type { Engine, PluginTools, Prompt, PromptChange, RawMessage, Replay } from "./contract/engine.ts";
import { withoutCuts } from "./cuts.ts";
import { withLoadedTools } from "./loaded-tools.ts";
import type { Asked, TurnPast } from "./options.ts";
import { withOutputsInPlace, withoutProgramCalls } from "./program-record.ts";
import { spentTokens, type TurnState, withoutSuperseded, withThoughts } from "./state.ts";
import { truncateToFit } from "./truncation.ts";
import type { TurnOutput } from "./turn-output.ts";

/** The parts of a turn's first prompt. */
interface PromptSource {
  asked: Omit<Asked, "address" | "model"> & { model: { upstream: string } };
  past: Omit<TurnPast, "removed">;
}

/**
 * The prompt of a turn's first round: the prompt that a create sends, to be counted (`engine.measure`) or shortened
 * (`truncateToFit`) without a turn. Calls and outputs in it may still be unpaired (`checkCallPairs`). `noteRole` is
 * that of its engine.
 */
export function makePrompt({ asked, past }: PromptSource, noteRole: NoteRole, pluginTools?: PluginTools): Prompt {
  const { request, model, cacheSalt, createdAt } = asked;
  const { replays, opened } = past;
  const { history, input } = past.isTextOnly ? past : standingPast(past, opened, noteRole);
  // The client's own messages come before the first item of its input, found by that item's id, or after all items if
  // the input is empty. Messages from before a compaction are dropped with everything else.
  const messages = opened ? null : request.previous_input_messages;
  const item = input[0]?.id;
  const before = messages != null && item !== undefined ? ({ item, messages, before: true } as const) : undefined;
  const whole = past.isTextOnly ? [] : withoutProgramCalls([...history, ...matchOutputs(history, input)]);
  const items = past.isTextOnly ? [...history, ...input] : withOutputsInPlace(promptItems(whole, [], replays));
  const hasTools = !past.isTextOnly || request.tools != null || request.tool_choice != null;
  return {
    model: model.upstream,
    items,
    replays: before ? [...replays, before] : replays,
    trailing: before ? [] : (messages ?? []),
    // Tools from before a compaction remain, because the model may have been told of them.
    request: hasTools ? withLoadedTools(request, [...past.history, ...past.input]) : request,
    pluginTools,
    // The grammar of a forced call has only the tools of the prompt.
    onlyOffered: request.tool_choice != null && mustCall(request.tool_choice),
    cacheSalt,
    createdAt,
    spentTokens: 0,
  };
}

/** A turn's output in the prompt of its next round. */
interface PromptOutput {
  /** Items of all earlier rounds. */
  items: readonly Item[];
  /** Raw messages behind them. */
  replays: readonly Replay[];
  /** Raw messages after all items. */
  trailing: readonly RawMessage[];
  /** Output tokens of all earlier rounds. */
  spentTokens: number;
}

/** The prompt of the round in progress. */
export class RoundPrompt {
  readonly #engine: Engine;
  readonly #signal: AbortSignal;
  current: Prompt;
  /** The prompt while it is shortened to fit; undefined if it has changed since. */
  #fitting: Promise<Prompt> | undefined;
  /** The changes with which it is asked again in this round. */
  #again: PromptChange | undefined;

  constructor(prompt: Prompt, engine: Engine, signal: AbortSignal) {
    this.current = prompt;
    this.#engine = engine;
    this.#signal = signal;
  }

  /**
   * The prompt to send; with `truncation: "auto"` shortened to fit. Throws ApiError as `truncateToFit` does, and the
   * signal's reason when it is aborted.
   */
  async fitting(): Promise<Prompt> {
    let fitted = this.current;
    if (fitted.request.truncation === "auto") {
      this.#fitting ??= truncateToFit(this.#engine, fitted, this.#signal);
      const fitting = this.#fitting;
      fitted = await fitting;
      if (this.#fitting === fitting) this.current = fitted;
    }
    return this.#again ? { ...fitted, ...this.#again } : fitted;
  }

  /** Changes the prompt, which is asked again in this round. */
  askAgain(change: PromptChange): void {
    this.#again = change;
  }

  /**
   * Changes the prompt to be asked again after the model's answer and a note that this violates `field` of the request.
   */
  correct(said: readonly Item[], field: string): void {
    const text = `Your answer does not keep to ${field}. Answer again.`;
    const content = [{ type: "input_text" as const, text }];
    const word: Item = { type: "message", role: "user", status: "completed", content };
    const answers = said.map((item): Item => ({ ...item, id: undefined }));
    this.change({ items: [...this.current.items, ...answers, word] });
  }

  /**
   * Makes the next round's prompt, with the last round's output at its end. `replays` are those of history and output
   * together. `hasCalled`: a choice that forces a call is fulfilled.
   */
  next({ items, replays, trailing, spentTokens }: PromptOutput, hasCalled: boolean): void {
    this.#again = undefined;
    const { request: before } = this.current;
    const hasFirst = before.tool_choice != null || before.kv_transfer_params != null;
    const request = withLoadedTools(hasCalled && hasFirst ? afterFirstRound(before) : before, items);
    const all = withOutputsInPlace([...this.current.items, ...items]);
    this.change({ items: all, replays, trailing, spentTokens, request });
  }

  /** Offers the tool that takes programs no longer. */
  withoutPrograms(): void {
    const { request } = this.current;
    const tools = request.tools?.filter(({ type }) => type !== "programmatic_tool_calling");
    if (tools?.length !== request.tools?.length) this.change({ request: { ...request, tools } });
  }

  /** Changes the prompts of this round and the later ones. */
  change(changed: Partial<Prompt>): void {
    this.current = { ...this.current, ...changed };
    this.#fitting = undefined;
  }
}

/** The turn's output so far; `items` are those that go into its prompt. */
export function promptOutput(past: TurnPast, { messages, state }: TurnOutput, items: readonly Item[]): PromptOutput {
  return {
    items: withoutProgramCalls(items),
    replays: [...past.replays, ...messages.replays],
    trailing: messages.left.trailing,
    spentTokens: spentTokens(state),
  };
}

/** The items of the earlier rounds, as prompts have them. */
export function earlierOutput(state: TurnState): Item[] {
  const earlier = state.output.slice(0, state.round.firstItem);
  return withoutCuts(state.cuts, withThoughts(state, withoutSuperseded(state, earlier))) as Item[];
}

/** The prompt of the first round: without the output of rounds from before a crash. */
export function firstRoundPrompt(
  prompt: Prompt,
  { past, asked }: { past: Pick<TurnPast, "input">; asked: Pick<Asked, "request"> },
  { messages, state }: Pick<TurnOutput, "messages" | "state">,
): Prompt {
  if (!messages.hasEarlierRounds) return prompt;
  const own = new Set(earlierOutput(state).map(({ id }) => id));
  return {
    ...prompt,
    items: prompt.items.filter(({ id }) => !own.has(id)),
    replays: prompt.replays.filter(({ item }) => !own.has(item)),
    trailing: past.input.length > 0 ? [] : (asked.request.previous_input_messages ?? []),
  };
}

/**
 * A request without the fields that apply only to the first round: a choice that forces a call, and the remote prefill
 * of its prompt.
 */
export function afterFirstRound({ kv_transfer_params: _, ...request }: CreateRequest): CreateRequest {
  const { tool_choice: choice } = request;
  const named = ClientTools.of(request.tools).named(choice);
  if (!mustCall(choice) || choice == null || (named && named.tool.type !== "programmatic_tool_calling")) return request;
  if (typeof choice === "object" && choice.type === "allowed_tools") {
    return { ...request, tool_choice: { ...choice, mode: "auto" } };
  }
  return { ...request, tool_choice: "auto" };
}

/**
 * The items of a prompt. A response that was cut off (cancelled, failed, or incomplete) may have items that the client does not answer and
 * that no template expects. They stay in the store, and are left out here:
 *
 * - a call that was cut off, and every other call of its response, unless a later item answers it;
 * - a thought that was cut off, and one before a call that is left out. A thought whose message is among the `replays` stays: gpt-oss
 *   goes on after it when its response was steered.
 */
export function promptItems(
  history: readonly Item[],
  input: readonly Item[],
  replays: readonly Pick<Replay, "item">[] = [],
): Item[] {
  const items = [...history, ...input];
  if (!items.some((item) => item.type === "reasoning" || isCutOff(item) || isUnfinished(item))) return items;
  const kept: Item[] = [];
  /** Calls before the present item that later ones answer. */
  const answered = new Set<string | undefined>();
  const replayed = new Set<string | undefined>(replays.map(({ item }) => item));
  /** Of the response that the present item belongs to: a later item was cut off; and a later item is in the prompt. */
  let isCut = false;
  let isFollowed = false;
  for (const item of items.reverse()) {
    const answers = answeredId(item);
    if (answers !== undefined) answered.add(answers);
    if (answers !== undefined || isOfClient(item)) {
      isCut = false;
      isFollowed = false;
    } else if (item.type === "reasoning") {
      const isUnended = item.status === "incomplete" && !replayed.has(item.id);
      if (isUnended || (isCut && !isFollowed)) continue;
    } else {
      const isAnswered = isClientCall(item) && answered.delete(calledId(item));
      isCut ||= (isCutOff(item) && !isAnswered) || isUnfinished(item);
      if (isCutOff(item) && !isAnswered) continue;
      if (isCut && isClientCall(item) && !isAnswered) continue;
      isFollowed ||= !isAside(item);
    }
    kept.push(item);
  }
  return kept.reverse();
}

/** Tells whether an item can only be a client's, apart from an output of its tools. */
function isOfClient(item: Item): boolean {
  return item.type === "mcp_approval_response" || (item.type === "message" && item.role !== "assistant");
}

function isUnfinished(item: Item): boolean {
  return item.type === "message" && item.role === "assistant" && item.status === "incomplete";
}

function isCutOff(item: Item): boolean {
  return (isClientCall(item) || isServerCall(item)) && isCutCall(item);
}

/**
 * The input with call ids on outputs that have only the name of their call: an output answers the first call of that
 * name without an output. An output without such a call gets no id (`checkCallPairs` refuses it).
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
 * Checks that every call has its output, unless it is asynchronous, and every output its call, in that order. Throws the 400s with OpenAI's texts.
 * Gives the call ids in use. `mayBeOpen`: calls may lack an output.
 */
export function checkCallPairs(items: readonly Item[], mayBeOpen = false): Set<string> {
  const calls = new Map<string, Item>();
  const outputs = new Set<string>();
  for (const item of items) {
    const call = calledId(item);
    if (call !== undefined) calls.set(call, item);
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
  for (const [id, call] of mayBeOpen ? [] : calls) {
    // A program's output is this server's to give.
    if (outputs.has(id) || isAsyncCall(call) || call.type === "program") continue;
    throw invalidRequest("input", `No tool output found for ${inWords(call.type)} ${id}.`);
  }
  return new Set(calls.keys());
}

/** An item's type as OpenAI's errors write it: `function call output`. */
function inWords(type: string): string {
  return type.replaceAll("_", " ");
}

/**
 * The input with an id on every item, as it is stored. An item that carries an id of this server (an earlier output
 * given back) keeps it, unless it came twice; every other gets one in this turn. In a conversation every item gets a
 * new one: items that are given back are already there, and no two items have the same id. An approval follows the
 * request that it answers.
 */
export function withItemIds(input: readonly Item[], address: TurnAddress, inConversation: boolean): NamedItem[] {
  return finish(addItemIds(input, address, inConversation));
}

type NamedItem = Item & { id: string };

/** Items between two steps, and the microseconds that giving one its id takes, about. */
const ITEMS_PER_STEP = 100;
const UNITS_PER_ITEM = 3;

/** The same in steps. */
export function* addItemIds(input: readonly Item[], address: TurnAddress, inConversation: boolean): Steps<NamedItem[]> {
  const named: NamedItem[] = [];
  const seen = new Set<string>();
  const renamed = new Map<string, string>();
  for (const [index, item] of input.entries()) {
    const keep = !inConversation && item.id !== undefined && !seen.has(item.id) && parseItemId(item.id) !== undefined;
    const id = keep && item.id !== undefined ? item.id : itemId(item.type, address, "input", index);
    seen.add(id);
    if (item.type === "mcp_approval_request" && item.id !== undefined) renamed.set(item.id, id);
    const request = "approval_request_id" in item && item.approval_request_id;
    const approval_request_id = request ? renamed.get(request) : undefined;
    named.push({ ...item, id, ...(approval_request_id !== undefined && { approval_request_id }) });
    if (named.length % ITEMS_PER_STEP === 0) yield ITEMS_PER_STEP * UNITS_PER_ITEM;
  }
  return named;
}

/**
 * Tells whether a turn itself needs the ids of these items: an approved call names its request by the stored id, and
 * unreadable sealed reasoning is reported by its id.
 */
export function needsItemIds(input: readonly Item[]): boolean {
  for (const item of input) {
    if (item.type === "mcp_approval_response") return true;
    if (item.type === "reasoning" && item.encrypted_content !== undefined) return true;
  }
  return false;
}
