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
import { appendWritten, isClientCall, type OutputItem } from "@responses-edge/responses-api/items/registry";
import type { Usage } from "@responses-edge/responses-api/response";
import type { RawMessage, Replay, Sampled, TokenLogprob } from "./engine.ts";
import type { CallAnswer, DeltaCount, TurnRecord } from "./records.ts";
import type { Citation, PendingCall } from "./tool-session.ts";

const NO_DELTAS: Readonly<DeltaCount> = { all: 0, reasoning: 0 };

export function plus(a: DeltaCount, b: DeltaCount): DeltaCount {
  return { all: a.all + b.all, reasoning: a.reasoning + b.reasoning };
}

/** Never below zero. */
export function minus(a: DeltaCount, b: DeltaCount): DeltaCount {
  return { all: Math.max(0, a.all - b.all), reasoning: Math.max(0, a.reasoning - b.reasoning) };
}

/**
 * The state of one turn: all that its events and records tell.
 *
 * `applyEvent`, `applyDelta` and `applyRecord` are the only ways in which it changes. The turn applies what it says and
 * records as it goes; `readLoggedTurn` applies the lines of its log. So a turn that goes on after a crash is where it was.
 * Anything that a log does not tell is no part of it: the raw messages of a generation that has not ended, say.
 */
export interface TurnState {
  /** Events so far: the next one's sequence number. */
  sequence: number;
  /** `response.in_progress` has been said. */
  started: boolean;
  /** Items so far. One that is open has all that was said of it but its open part. */
  output: OutputItem[];
  /** The content part that text flows into. */
  openPart: OpenPart | undefined;
  /** The text at the end of the open part that may become a citation: the model has said it, no event has. */
  buffered: string;
  /** The model's thoughts that no event tells, by the ids of its items: an operator may hide it. */
  thoughts: Map<string, string>;
  /** Tokens of delta events so far, about. */
  deltas: DeltaCount;
  /** The same before each item, by its `output_index`. */
  deltasBefore: DeltaCount[];
  /** Ids of items that the model says anew. */
  superseded: Set<string>;
  /** `output_index` of each list of an MCP server's tools that has begun and not ended. */
  openLists: number[];
  /** Rounds that have ended. */
  rounds: number;
  /** Raw messages behind the items of rounds whose generation has ended, and lists of tools. */
  replays: Replay[];
  /** Raw messages after the last of those items. */
  trailing: RawMessage[];
  /** Usage of those rounds together, and of all summaries. */
  usage: Usage | null;
  /** Output tokens of summaries among them. */
  summaryTokens: number;
  /** The calls of the last generation are being answered. */
  answering: Answering | undefined;
  /** How often in a row the model was asked again, because its answer could not be used. */
  askedAgain: number;
  /** The round in progress. */
  round: RoundState;
}

/** One generation, and the answers to the calls that it makes. */
interface RoundState {
  /** `output_index` of its first item. */
  firstItem: number;
  /** Tokens of delta events before it, about. */
  deltasBefore: DeltaCount;
  /** The deltas that it has said in vain, because it was begun anew. */
  lost: DeltaCount;
  /** Its samples so far. */
  sampled: Sampled | undefined;
  /** Calls for this server that the model has completed, as long as it goes on generating. */
  called: PendingCall[];
  /** Its prompt has been compacted. */
  compacted: boolean;
  /** Since when the model server was away, where nothing has come from it since. Unix milliseconds. */
  outageSince: number | undefined;
}

interface Answering {
  /** Calls without an answer. */
  calls: PendingCall[];
  /** Ids of items whose calls were about to be run. */
  dispatched: string[];
  /** Items of the turn when the generation ended. */
  items: number;
  /** Messages with which the model is asked again. */
  again: RawMessage[];
}

export interface OpenPart {
  /** A `hidden_text` is reasoning of which no event tells. */
  kind: "output_text" | "refusal" | "reasoning_text" | "summary_text" | "hidden_text";
  outputIndex: number;
  /** Among the parts of its item of the same place: `content` or `summary`. */
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
    openLists: [],
    rounds: 0,
    replays: [],
    trailing: [],
    usage: null,
    summaryTokens: 0,
    answering: undefined,
    askedAgain: 0,
    round: newRound(0, NO_DELTAS),
  };
}

function newRound(firstItem: number, deltas: DeltaCount): RoundState {
  return {
    firstItem,
    deltasBefore: { ...deltas },
    lost: NO_DELTAS,
    sampled: undefined,
    called: [],
    compacted: false,
    outageSince: undefined,
  };
}

/** An event as far as the state needs it: of one that carries the whole response only that it was said. */
type AppliedEvent = Unnumbered<ItemEvent> | { type: LifecycleType };

/** Applies an event of a log. Throws SyntaxError where it is one that no turn says. */
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

/** Applies an event that the turn says. Its deltas are applied without one, by `applyDelta`. */
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
        // The prompt begins anew with it: it is no part of what the round says, and no raw message is before it.
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

/** `output_index` of the compaction that has begun and not ended, if there is one. */
export function openCompaction({ output }: TurnState): number | undefined {
  const last = output.at(-1);
  return last?.type === "compaction" && last.encrypted_content === "" ? output.length - 1 : undefined;
}

/** Output tokens of the turn's rounds, which `max_output_tokens` bounds: summaries are not among them. */
export function spentTokens({ usage, summaryTokens }: TurnState): number {
  return (usage?.output_tokens ?? 0) - summaryTokens;
}

/** Few tokens are longer, and few pairs of them are as long. UTF-16 units. */
const LONGEST_TOKEN = 16;

/**
 * Counts a delta: about one token as a rule, and more where the model server sends several at once. Its text is added
 * where it belongs: to the open part, or to the item of a call.
 */
export function applyDelta(state: TurnState, type: DeltaType | "thought", text: string): void {
  const tokens = text.length <= LONGEST_TOKEN ? 1 : Math.round(Buffer.byteLength(text) / BYTES_PER_TOKEN);
  state.deltas.all += tokens;
  const isReasoning =
    type === "response.reasoning_text.delta" || type === "response.reasoning_summary_text.delta" || type === "thought";
  if (isReasoning) state.deltas.reasoning += tokens;
  state.round.outageSince = undefined;
}

function newPart(kind: OpenPart["kind"], outputIndex: number, index: number): OpenPart {
  return { kind, outputIndex, index, text: "", logprobs: [], annotations: [] };
}

/** Applies a record: one that the turn makes, or one of its log. Parts of the record may become part of the state. */
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
  } else if ("outage" in record) round.outageSince = record.outage;
  else if ("asked_again" in record) state.askedAgain += 1;
  else if ("superseded" in record) for (const id of record.superseded) state.superseded.add(id);
  else if ("lost" in record) round.lost = record.lost;
  else if ("summarized" in record) {
    state.usage = record.summarized.usage;
    state.summaryTokens += record.summarized.outputTokens;
  } else if ("listed" in record) state.replays.push(record.listed);
  else if ("called" in record) round.called.push(record.called);
  else if ("answering" in record) {
    const { items, replays, trailing, usage, calls, again } = record.answering;
    state.replays.push(...replays);
    state.trailing = trailing;
    state.usage = usage;
    state.answering = { calls, dispatched: [], items, again };
    round.called = [];
    round.sampled = undefined;
  } else if ("dispatched" in record) state.answering?.dispatched.push(record.dispatched);
  else if ("answered" in record) {
    const { item } = record.answered;
    keepAnswer(state.replays, record.answered);
    if (state.answering) state.answering.calls = state.answering.calls.filter((call) => call.item !== item);
  } else if ("round" in record) {
    state.trailing = record.round.trailing;
    state.rounds += 1;
    state.askedAgain = state.answering?.again.length ? state.askedAgain + 1 : 0;
    state.round = newRound(state.answering?.items ?? state.output.length, state.deltas);
    state.answering = undefined;
  } else {
    // It tells why the turn has ended.
    record satisfies { failure: unknown };
  }
}

/** Adds to a thought that no event tells; the first word of it, perhaps empty, begins it in the last item. */
function addThought(state: TurnState, text: string): void {
  state.openPart ??= newPart("hidden_text", state.output.length - 1, 0);
  if (text === "") return;
  state.openPart.text += text;
  applyDelta(state, "thought", text);
}

/** Items with what no event tells of them: as prompts have them, and the store. */
export function withThoughts<T extends OutputItem>({ thoughts }: TurnState, items: readonly T[]): T[] {
  if (thoughts.size === 0) return [...items];
  return items.map((item) => {
    const text = item.type === "reasoning" ? thoughts.get(item.id) : undefined;
    return text === undefined ? item : { ...item, content: [{ type: "reasoning_text", text }] };
  });
}

/** Adds to what a round has sampled; the result may be `before`, grown. */
function addSampled(before: Sampled | undefined, more: Sampled): Sampled {
  if (!before) return "ids" in more ? { ids: [...more.ids] } : { text: more.text };
  if ("ids" in before && "ids" in more) for (const id of more.ids) before.ids.push(id);
  else if ("text" in before && "text" in more) before.text += more.text;
  return before;
}

/** Puts the answer to a call with the raw messages that made it, if there are any. */
function keepAnswer(replays: Replay[], { item, exchange, messages }: CallAnswer): void {
  // Only what a tool remembers last is ever read.
  if (exchange.memory !== undefined) for (const each of replays) if (each.exchange) delete each.exchange.memory;
  for (const replay of replays) {
    if (replay.item !== item) continue;
    replay.exchange = exchange;
    replay.messages = [...replay.messages, ...messages];
    return;
  }
  replays.push({ item, messages, exchange });
}

/** Tells whether the round has left something that only the client can answer: its own calls, and those to approve. */
export function waitsForClient({ output, round }: TurnState): boolean {
  for (const item of output.slice(round.firstItem)) {
    // A call that was cut is not one.
    if ((isClientCall(item) && item.status !== "incomplete") || item.type === "mcp_approval_request") return true;
  }
  return false;
}

/** Deltas of the round so far, without those that it has said in vain. */
export function roundDeltas({ deltas, round }: TurnState): DeltaCount {
  return minus(minus(deltas, round.deltasBefore), round.lost);
}

/** The items among these that the model goes on after: those that it does not say anew. */
export function withoutSuperseded<T extends { id?: string }>(state: TurnState, items: readonly T[]): T[] {
  if (state.superseded.size === 0) return [...items];
  return items.filter(({ id }) => id === undefined || !state.superseded.has(id));
}

/** The round's items, without those that the model says anew. */
export function roundItems(state: TurnState): OutputItem[] {
  const items = state.output.slice(state.round.firstItem);
  return state.superseded.size === 0 ? items : withoutSuperseded(state, items);
}
