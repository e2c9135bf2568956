import { Buffer } from "node:buffer";
import { BYTES_PER_TOKEN } from "@responses-edge/responses-api/estimate";
import {
  type DeltaType,
  type ItemEvent,
  isDelta,
  isEventType,
  type LifecycleType,
  type StreamEvent,
  type Unnumbered,
} from "@responses-edge/responses-api/items/events";
import { appendWritten, type OutputItem } from "@responses-edge/responses-api/items/registry";
import type { Usage } from "@responses-edge/responses-api/response";
import type { RawMessage, Replay, Sampled, TokenLogprob } from "./contract/engine.ts";
import type { ModelCall } from "./contract/measurements.ts";
import type { Citation, PendingCall } from "./contract/tool-session.ts";
import type { CallAnswer, Cut, DeltaCount, TurnRecord } from "./records.ts";
import { type ItemTimes, keepCall, keepItemTime } from "./timing.ts";

const NO_DELTAS: Readonly<DeltaCount> = { all: 0, reasoning: 0 };

export function plus(a: DeltaCount, b: DeltaCount): DeltaCount {
  return { all: a.all + b.all, reasoning: a.reasoning + b.reasoning };
}

/** The difference, never below zero. */
export function minus(a: DeltaCount, b: DeltaCount): DeltaCount {
  return { all: Math.max(0, a.all - b.all), reasoning: Math.max(0, a.reasoning - b.reasoning) };
}

/**
 * The state of one turn: everything that its events and records contain.
 *
 * Only `applyEvent`, `applyDelta` and `applyRecord` change it. The turn applies each event and record as it makes it;
 * `readLoggedTurn` applies the lines of its log. So a turn that continues after a crash has the same state. Anything
 * that is not in a log is not part of the state, such as the raw messages of an unfinished generation.
 */
export interface TurnState {
  /** Number of events so far: the next one's sequence number. */
  sequence: number;
  /** `response.in_progress` was sent. */
  started: boolean;
  /** Items so far. An open one has everything except its open part. */
  output: OutputItem[];
  /** The content part that text flows into. */
  openPart: OpenPart | undefined;
  /**
   * The text at the end of the open part that may become a citation: the model has generated it, but no event has it.
   */
  buffered: string;
  /** Reasoning that no event shows, by the ids of its items: an operator may hide it. */
  thoughts: Map<string, string>;
  /** Approximate tokens of delta events so far. */
  deltas: DeltaCount;
  /** The same before each item, by its `output_index`. */
  deltasBefore: DeltaCount[];
  /** Ids of items that the model generates anew. */
  superseded: Set<string>;
  /** The cuts in the output, oldest first. */
  cuts: Cut[];
  /** `output_index` of each unfinished list of an MCP server's tools. */
  openLists: number[];
  /** Number of ended rounds. */
  rounds: number;
  /** Raw messages behind the items of rounds whose generation has ended, and behind lists of tools. */
  replays: Replay[];
  /** Raw messages after the last of those items. */
  trailing: RawMessage[];
  /** Total usage of those rounds and of all summaries. */
  usage: Usage | null;
  /** Output tokens of summaries among them. */
  summaryTokens: number;
  /** Set while the calls of the last generation are being answered. */
  answering: Answering | undefined;
  /** How often in a row the model was asked again after an unusable answer. */
  askedAgain: number;
  /** The round in progress. */
  round: RoundState;
  /** Its model calls that have given something, in order. */
  calls: ModelCall[];
  /** The times of its items, by their `output_index`; at most `MAX_TIMED_ITEMS`. */
  itemTimes: ItemTimes[];
}

/** One generation, and the answers to its calls. */
interface RoundState {
  /** `output_index` of its first item. */
  firstItem: number;
  /** Approximate tokens of delta events before it. */
  deltasBefore: DeltaCount;
  /** Its lost deltas, because it was begun anew. */
  lost: DeltaCount;
  /** How often its thought, and its answer, was cut. */
  cuts: { thought: number; answer: number };
  /** Its samples so far. */
  sampled: Sampled | undefined;
  /** Hosted tools' calls that the model has completed while it is still generating. */
  called: PendingCall[];
  /** True if its prompt was compacted. */
  compacted: boolean;
  /** The beginning of the model server's outage, if nothing has come since. Unix milliseconds. */
  outageSince: number | undefined;
}

interface Answering {
  /** Calls of the generation. */
  calls: readonly PendingCall[];
  /** Ids of items whose calls have an answer. */
  answered: Set<string>;
  /** Ids of items whose calls were dispatched. */
  dispatched: string[];
  /** Messages with which the model is asked again. */
  again: RawMessage[];
}

export interface OpenPart {
  /** A `hidden_text` is reasoning that no event shows. */
  kind: "output_text" | "refusal" | "reasoning_text" | "summary_text" | "hidden_text";
  outputIndex: number;
  /** The index among its item's parts in the same field: `content` or `summary`. */
  index: number;
  text: string;
  logprobs: TokenLogprob[];
  annotations: Citation[];
}

export function newTurnState(): TurnState {
  return {
    sequence: 0,
    started: false,
    output: [],
    openPart: undefined,
    buffered: "",
    thoughts: new Map(),
    deltas: { ...NO_DELTAS },
    deltasBefore: [],
    superseded: new Set(),
    cuts: [],
    openLists: [],
    rounds: 0,
    replays: [],
    trailing: [],
    usage: null,
    summaryTokens: 0,
    answering: undefined,
    askedAgain: 0,
    round: newRound(0, NO_DELTAS),
    calls: [],
    itemTimes: [],
  };
}

function newRound(firstItem: number, deltas: DeltaCount): RoundState {
  return {
    firstItem,
    deltasBefore: { ...deltas },
    lost: NO_DELTAS,
    cuts: { thought: 0, answer: 0 },
    sampled: undefined,
    called: [],
    compacted: false,
    outageSince: undefined,
  };
}

/** The parts of an event that the state needs. An event with the whole response gives only its type. */
type AppliedEvent = Unnumbered<ItemEvent> | { type: LifecycleType };

/** Applies an event of a log. Throws SyntaxError for one that no turn sends. */
export function applyLoggedEvent(state: TurnState, event: StreamEvent): void {
  if (!isEventType(event.type)) throw new SyntaxError(`No turn says ${event.type}.`);
  if (!isDelta(event)) {
    applyEvent(state, event);
    return;
  }
  applyDelta(state, event.type, event.delta);
  const { openPart, output } = state;
  const item = output[event.output_index];
  if ((item && appendWritten(item, event.delta)) || !openPart) return;
  openPart.text += event.delta;
  if ("logprobs" in event) openPart.logprobs.push(...(event.logprobs as TokenLogprob[]));
}

/** Applies an event that the turn sends. `applyDelta` applies its deltas without an event. */
export function applyEvent(state: TurnState, event: AppliedEvent): void {
  // Any other event changes nothing.
  switch (event.type) {
    case "response.in_progress":
      state.started = true;
      return;
    case "response.output_item.added":
      state.deltasBefore[event.output_index] = { ...state.deltas };
      state.output.push(event.item);
      if (event.item.type === "mcp_list_tools") state.openLists.push(event.output_index);
      return;
    case "response.output_item.done":
      state.output[event.output_index] = event.item;
      if (event.item.type === "compaction") {
        // The prompt begins anew with it: it is not the round's output, and no raw message comes before it.
        state.round.firstItem = state.output.length;
        state.round.compacted = true;
        state.trailing = [];
      }
      if (event.item.type === "mcp_list_tools") {
        state.openLists.splice(state.openLists.indexOf(event.output_index), 1);
      }
      return;
    case "response.content_part.added":
      state.openPart = newPart(event.part.type, event.output_index, event.content_index);
      return;
    case "response.reasoning_summary_part.added":
      state.openPart = newPart("summary_text", event.output_index, event.summary_index);
      return;
    case "response.output_text.annotation.added":
      state.openPart?.annotations.push(event.annotation as Citation);
      return;
    case "response.content_part.done": {
      const item = state.output[event.output_index];
      if (item?.type === "message" || item?.type === "reasoning") (item.content as unknown[]).push(event.part);
      state.openPart = undefined;
      state.buffered = "";
      return;
    }
    case "response.reasoning_summary_part.done": {
      const item = state.output[event.output_index];
      if (item?.type === "reasoning") item.summary.push(event.part);
      state.openPart = undefined;
      return;
    }
  }
}

/** `output_index` of the unfinished compaction, if there is one. */
export function openCompaction({ output }: TurnState): number | undefined {
  const last = output.at(-1);
  return last?.type === "compaction" && last.encrypted_content === "" ? output.length - 1 : undefined;
}

/** Output tokens of the turn's rounds, which `max_output_tokens` limits. Summaries are not included. */
export function spentTokens({ usage, summaryTokens }: TurnState): number {
  return (usage?.output_tokens ?? 0) - summaryTokens;
}

/** Few tokens are longer, and few pairs of tokens are as long. UTF-16 units. */
const LONGEST_TOKEN = 16;

/** The tokens of a delta's text, about. */
export function deltaTokens(text: string): number {
  return text.length <= LONGEST_TOKEN ? 1 : Math.round(Buffer.byteLength(text) / BYTES_PER_TOKEN);
}

/**
 * Counts a delta: usually about one token, and more if the model server sends several at once. Adds its text to the
 * open part, or to the item of a call.
 */
export function applyDelta(state: TurnState, type: DeltaType | "thought", text: string): void {
  const tokens = deltaTokens(text);
  state.deltas.all += tokens;
  const isReasoning =
    type === "response.reasoning_text.delta" || type === "response.reasoning_summary_text.delta" || type === "thought";
  if (isReasoning) state.deltas.reasoning += tokens;
  state.round.outageSince = undefined;
}

function newPart(kind: OpenPart["kind"], outputIndex: number, index: number): OpenPart {
  return { kind, outputIndex, index, text: "", logprobs: [], annotations: [] };
}

/** Applies a record that the turn makes, or one of its log. Parts of the record may become part of the state. */
export function applyRecord(state: TurnState, record: TurnRecord): void {
  const { round } = state;
  if ("sampled" in record) {
    round.sampled = addSampled(round.sampled, record.sampled);
    round.outageSince = undefined;
  } else if ("buffered" in record) state.buffered = record.buffered;
  else if ("thought" in record) addThought(state, record.thought);
  else if ("thought_ended" in record) {
    state.thoughts.set(record.thought_ended, state.openPart?.text ?? "");
    state.openPart = undefined;
  } else if ("model_call" in record) keepCall(state.calls, record.model_call);
  else if ("item_at" in record) keepItemTime(state.itemTimes, record.item_at);
  else if ("outage" in record) round.outageSince = record.outage;
  else if ("asked_again" in record) state.askedAgain += 1;
  else if ("superseded" in record) for (const id of record.superseded) state.superseded.add(id);
  else if ("lost" in record) round.lost = record.lost;
  else if ("cut" in record) applyCut(state, record.cut);
  else if ("summarized" in record) {
    state.usage = record.summarized.usage;
    state.summaryTokens += record.summarized.outputTokens;
  } else if ("listed" in record) state.replays.push(record.listed);
  else if ("called" in record) round.called.push(record.called);
  else if ("answering" in record) {
    const { replays, trailing, usage, calls, again } = record.answering;
    state.replays.push(...replays);
    state.trailing = trailing;
    state.usage = usage;
    state.answering = { calls, answered: new Set(), dispatched: [], again };
    round.called = [];
    round.sampled = undefined;
  } else if ("dispatched" in record) state.answering?.dispatched.push(record.dispatched);
  else if ("answered" in record) {
    keepAnswer(state.replays, record.answered);
    state.answering?.answered.add(record.answered.item);
  } else if ("round" in record) {
    state.trailing = record.round.trailing;
    state.rounds += 1;
    state.askedAgain = state.answering?.again.length ? state.askedAgain + 1 : 0;
    state.round = newRound(state.output.length, state.deltas);
    state.answering = undefined;
  } else {
    // The failure is the reason of the turn's end, not part of its state.
    record satisfies { failure: unknown };
  }
}

/** Adds to a thought that no event shows. The first text of it, perhaps empty, begins it in the last item. */
function addThought(state: TurnState, text: string): void {
  state.openPart ??= newPart("hidden_text", state.output.length - 1, 0);
  if (text === "") return;
  state.openPart.text += text;
  applyDelta(state, "thought", text);
}

/** Cuts the end of a round's text. */
function applyCut(state: TurnState, cut: Cut): void {
  const { round } = state;
  state.cuts.push(cut);
  round.cuts[cut.kind] += 1;
  round.lost = cut.lost;
  if (cut.sampled) round.sampled = "ids" in cut.sampled ? { ids: [...cut.sampled.ids] } : { ...cut.sampled };
}

/** Items with the thoughts that no event shows, as prompts and the store have them. */
export function withThoughts<T extends OutputItem>({ thoughts }: TurnState, items: readonly T[]): T[] {
  if (thoughts.size === 0) return [...items];
  return items.map((item) => {
    const text = item.type === "reasoning" ? thoughts.get(item.id) : undefined;
    return text === undefined ? item : { ...item, content: [{ type: "reasoning_text", text }] };
  });
}

/** Adds to a round's samples. The result may be `before` itself, extended. */
function addSampled(before: Sampled | undefined, more: Sampled): Sampled {
  if (!before) return "ids" in more ? { ids: [...more.ids] } : { text: more.text };
  if ("ids" in before && "ids" in more) for (const id of more.ids) before.ids.push(id);
  else if ("text" in before && "text" in more) before.text += more.text;
  return before;
}

/** Adds the answer to a call to the raw messages of the call, if there are any. */
function keepAnswer(replays: Replay[], { item, exchange, messages }: CallAnswer): void {
  // Only a tool's latest memory is ever read.
  if (exchange.memory !== undefined) for (const each of replays) if (each.exchange) delete each.exchange.memory;
  for (const replay of replays) {
    if (replay.item !== item) continue;
    replay.exchange = exchange;
    replay.messages = [...replay.messages, ...messages];
    return;
  }
  replays.push({ item, messages, exchange });
}

/** Deltas of the round so far, without lost ones. */
export function roundDeltas({ deltas, round }: TurnState): DeltaCount {
  return minus(minus(deltas, round.deltasBefore), round.lost);
}

/** The items without those that the model generates anew. */
export function withoutSuperseded<T extends { id?: string }>(state: TurnState, items: readonly T[]): T[] {
  if (state.superseded.size === 0) return [...items];
  return items.filter(({ id }) => id === undefined || !state.superseded.has(id));
}

/** The round's items, without those that the model generates anew. */
export function roundItems(state: TurnState): OutputItem[] {
  const items = state.output.slice(state.round.firstItem);
  return state.superseded.size === 0 ? items : withoutSuperseded(state, items);
}
