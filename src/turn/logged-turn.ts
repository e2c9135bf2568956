import type { ResponseStreamEvent } from "openai/resources/responses/responses";
import type { UrlCitation } from "../contract/citations.ts";
import type { RawMessage, Replay, Sampled, TokenLogprob, ToolExchange } from "../contract/engine.ts";
import type { PendingCall } from "../contract/server-tool.ts";
import type { ErrorFields } from "../protocol/errors.ts";
import type { OutputItem, Usage } from "../protocol/response.ts";

/**
 * What a log of events says of a turn that was cut off: enough to go on where the log ends, so that a reader of the
 * whole sees one stream.
 */
export interface LoggedTurn {
  /** The next sequence number. */
  sequence: number;
  /** `response.in_progress` has been said. */
  started: boolean;
  /** Items so far; those that were not done are `in_progress`, without the open part. */
  output: OutputItem[];
  /** The part that text was flowing into. */
  openPart: OpenPartState | undefined;
  /** What was said in it and is not shown yet. */
  held: string;
  /** Delta events so far: about as many as tokens; and those of them that were reasoning. */
  deltas: number;
  reasoningDeltas: number;
  /** Those of the rounds that have ended. */
  earlierDeltas: number;
  earlierReasoning: number;
  /** Those before each item, by its `output_index`. */
  begunAt: SpentDeltas[];
  /** Items that the model has said anew, by their ids; and what the round in progress has lost so. */
  superseded: string[];
  lost: SpentDeltas;
  /** Since when the model server was away, where nothing has come from it since. Unix milliseconds. */
  outageSince: number | undefined;
  /** What the round in progress has sampled so far. */
  sampled: Sampled | undefined;
  /** Rounds that have ended; and of all of them together: items, raw messages, and usage. */
  rounds: number;
  roundItems: number;
  replays: Replay[];
  loose: RawMessage[];
  usage: Usage | null;
  /** Calls of the round in progress that the model has completed. */
  called: PendingCall[];
  /** The last round is over, and its calls are being answered. */
  answering: { calls: PendingCall[]; dispatched: string[]; items: number; again: RawMessage[] } | undefined;
  /** How often the model was asked again. */
  askedAgain: number;
  /** Items that begin to list a server's tools and are not done: their `output_index`. */
  openLists: number[];
}

/** Delta events: about as many as tokens; and those of them that were reasoning. */
export interface SpentDeltas {
  all: number;
  reasoning: number;
}

/** A generation has ended with calls for this server to answer: all that its round has left. */
export interface AnsweringRecord {
  /** Items of the turn by now. */
  items: number;
  /** Raw messages behind the round's items, and those after its last item. */
  replays: Replay[];
  loose: RawMessage[];
  usage: Usage | null;
  calls: PendingCall[];
  /** Messages with which the model is asked again, once the calls are answered. */
  again: RawMessage[];
}

/** A call's answer, and the raw messages that tell it to the model where its engine has such. */
export interface CallAnswer {
  /** The id of the call's item. */
  item: string;
  exchange: ToolExchange;
  messages: RawMessage[];
}

/** What a log keeps beside the events, for going on: no reader sees it. */
export type TurnRecord =
  | { sampled: Sampled }
  /** What was said in the open part and is not shown yet, because it may become a citation. */
  | { held: string }
  /** The model has completed a call, in the middle of its generation perhaps. */
  | { called: PendingCall }
  /** Where a list of tools is from. */
  | { listed: Replay }
  | { answering: AnsweringRecord }
  /** A call is about to be run: it is never run again, because nobody knows how far it came. */
  | { dispatched: string }
  | { answered: CallAnswer }
  /** The turn has failed; the events that say so have neither status nor headers. */
  | { failure: ErrorFields }
  /** The model server is away, since then. Unix milliseconds. */
  | { outage: number }
  /** The model is to say these items anew: they are not what it goes on after. */
  | { superseded: string[] }
  /** What the round has said in vain by now. */
  | { lost: SpentDeltas }
  /** All calls are answered, and the next round begins, with these messages to its prompt. */
  | { round: { loose: RawMessage[] } };

/** Adds to what a round has sampled; the result may be `before`, grown. */
export function addSampled(before: Sampled | undefined, more: Sampled): Sampled {
  if (!before) return "ids" in more ? { ids: [...more.ids] } : { text: more.text };
  if ("ids" in before && "ids" in more) for (const id of more.ids) before.ids.push(id);
  else if ("text" in before && "text" in more) before.text += more.text;
  return before;
}

export interface OpenPartState {
  kind: "output_text" | "refusal" | "reasoning_text";
  outputIndex: number;
  contentIndex: number;
  text: string;
  logprobs: TokenLogprob[];
  annotations: UrlCitation[];
}

/** A line of a log: a record is an array, an event an object. */
export function isRecord(line: string): boolean {
  return line.startsWith("[");
}

export function recordLine(record: TurnRecord): string {
  return JSON.stringify([record]);
}

/**
 * Reads the lines of a log, in order: events and records, as JSON texts. Throws SyntaxError or TypeError where they are
 * none, or do not follow each other.
 */
export function readLoggedTurn(lines: Iterable<string>): LoggedTurn {
  const turn: LoggedTurn = {
    sequence: 0,
    started: false,
    output: [],
    openPart: undefined,
    held: "",
    deltas: 0,
    reasoningDeltas: 0,
    earlierDeltas: 0,
    earlierReasoning: 0,
    begunAt: [],
    superseded: [],
    lost: { all: 0, reasoning: 0 },
    outageSince: undefined,
    sampled: undefined,
    rounds: 0,
    roundItems: 0,
    replays: [],
    loose: [],
    usage: null,
    called: [],
    answering: undefined,
    askedAgain: 0,
    openLists: [],
  };
  const texts: string[] = [];
  for (const line of lines) {
    if (isRecord(line)) {
      applyRecord(turn, (JSON.parse(line) as [TurnRecord])[0]);
      continue;
    }
    const event = JSON.parse(line) as ResponseStreamEvent;
    if (event.sequence_number !== turn.sequence) throw new SyntaxError("An event is missing.");
    if (event.type.endsWith(".delta")) turn.outageSince = undefined;
    turn.sequence = event.sequence_number + 1;
    switch (event.type) {
      case "response.in_progress":
        turn.started = true;
        break;
      case "response.output_item.added":
        turn.begunAt[event.output_index] = { all: turn.deltas, reasoning: turn.reasoningDeltas };
        turn.output.push(event.item as OutputItem);
        if (event.item.type === "mcp_list_tools") turn.openLists.push(event.output_index);
        break;
      case "response.output_item.done":
        turn.output[event.output_index] = event.item as OutputItem;
        turn.openLists = turn.openLists.filter((index) => index !== event.output_index);
        break;
      case "response.content_part.added":
        texts.length = 0;
        turn.openPart = {
          kind: event.part.type,
          outputIndex: event.output_index,
          contentIndex: event.content_index,
          text: "",
          logprobs: [],
          annotations: [],
        };
        break;
      case "response.output_text.annotation.added":
        if (event.annotation?.type === "url_citation") turn.openPart?.annotations.push(event.annotation);
        break;
      case "response.output_text.delta":
        turn.openPart?.logprobs.push(...(event.logprobs as TokenLogprob[]));
        texts.push(event.delta);
        turn.deltas += 1;
        break;
      case "response.reasoning_text.delta":
        texts.push(event.delta);
        turn.deltas += 1;
        turn.reasoningDeltas += 1;
        break;
      case "response.refusal.delta":
        texts.push(event.delta);
        turn.deltas += 1;
        break;
      case "response.function_call_arguments.delta": {
        const item = turn.output[event.output_index];
        if (item?.type === "function_call") item.arguments += event.delta;
        turn.deltas += 1;
        break;
      }
      case "response.mcp_call_arguments.delta": {
        const item = turn.output[event.output_index];
        if (item?.type === "mcp_call") item.arguments += event.delta;
        turn.deltas += 1;
        break;
      }
      case "response.code_interpreter_call_code.delta": {
        const item = turn.output[event.output_index];
        if (item?.type === "code_interpreter_call") item.code = (item.code ?? "") + event.delta;
        turn.deltas += 1;
        break;
      }
      case "response.content_part.done": {
        const item = turn.output[event.output_index];
        if (item?.type === "message" || item?.type === "reasoning") (item.content as unknown[]).push(event.part);
        turn.openPart = undefined;
        turn.held = "";
        break;
      }
    }
  }
  if (turn.openPart) turn.openPart.text = texts.join("");
  return turn;
}

function applyRecord(turn: LoggedTurn, record: TurnRecord): void {
  if ("sampled" in record) {
    turn.sampled = addSampled(turn.sampled, record.sampled);
    turn.outageSince = undefined;
  } else if ("outage" in record) turn.outageSince = record.outage;
  else if ("superseded" in record) turn.superseded.push(...record.superseded);
  else if ("lost" in record) turn.lost = record.lost;
  else if ("held" in record) turn.held = record.held;
  else if ("listed" in record) turn.replays.push(record.listed);
  else if ("called" in record) turn.called.push(record.called);
  else if ("answering" in record) {
    const { items, replays, loose, usage, calls, again } = record.answering;
    turn.replays.push(...replays);
    turn.loose = loose;
    turn.usage = usage;
    turn.answering = { calls, dispatched: [], items, again };
    turn.called = [];
    turn.sampled = undefined;
  } else if ("dispatched" in record) turn.answering?.dispatched.push(record.dispatched);
  else if ("answered" in record) {
    const { item } = record.answered;
    keepAnswer(turn.replays, record.answered);
    if (turn.answering) turn.answering.calls = turn.answering.calls.filter((call) => call.item !== item);
  } else if ("round" in record) {
    turn.loose = record.round.loose;
    turn.rounds += 1;
    turn.earlierDeltas = turn.deltas;
    turn.earlierReasoning = turn.reasoningDeltas;
    turn.lost = { all: 0, reasoning: 0 };
    if (turn.answering && turn.answering.again.length > 0) turn.askedAgain += 1;
    turn.roundItems = turn.answering?.items ?? turn.output.length;
    turn.answering = undefined;
  }
}

/** Puts the answer to a call with the raw messages that made it, if there are any. */
export function keepAnswer(replays: Replay[], { item, exchange, messages }: CallAnswer): void {
  // Only what a tool remembers last is ever read.
  if (exchange.memory !== undefined) for (const each of replays) if (each.exchange) delete each.exchange.memory;
  const replay = replays.find((each) => each.item === item);
  if (!replay) replays.push({ item, messages, exchange });
  else {
    replay.exchange = exchange;
    replay.messages = [...replay.messages, ...messages];
  }
}
