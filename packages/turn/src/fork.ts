import { invalidRequest } from "@responses-edge/responses-api/errors";
import type { StreamEvent } from "@responses-edge/responses-api/items/events";
import { isOfOtherAgent } from "@responses-edge/responses-api/items/multi-agent";
import {
  type Item,
  isAsyncCall,
  isServerCall,
  isWord,
  type OutputItem,
  programOf,
  repliedId,
  type ServerCall,
} from "@responses-edge/responses-api/items/registry";
import type { RawMessage, Replay, Sampled, ToolExchange } from "./contract/engine.ts";
import type { CalledTool, PendingCall } from "./contract/tool-session.ts";
import { recordLine, type TurnRecord } from "./records.ts";
import { MAX_TIMED_ITEMS } from "./timing.ts";

/**
 * Forks: a branch of an ended turn. Its log begins with events of that turn, and with the records that a log has beside
 * them, made from what is stored of it. From there the branch is a turn that was cut off, and is resumed (`resume.ts`).
 */

/** The last of a turn that its branch keeps. */
export type ForkPoint =
  /** Nothing of its output. */
  | { kind: "start" }
  /** The event with this sequence number, and those that belong together with it (`isBoundary`). */
  | { kind: "event"; last: number }
  /** The item with this `output_index`. */
  | { kind: "item"; index: number }
  /** The round with this hosted call, which gets another answer. */
  | { kind: "call"; index: number };

/** An ended turn. */
export interface ForkSource {
  /** Its events as JSON texts, in order. */
  events: Iterable<string>;
  /** Its items, as they are stored. */
  output: readonly OutputItem[];
  /** The raw messages behind them. */
  replays: readonly Replay[];
}

/** The functions of tools and engines that a fork needs. */
export interface ForkMeans {
  /** The tool of a call; undefined if its item does not tell. */
  toolOf: (item: ServerCall) => CalledTool | undefined;
  /** The call and answer in an item of an output. */
  exchangeOf: (item: OutputItem, replay: Replay | undefined, output: readonly OutputItem[]) => ToolExchange | undefined;
  /**
   * The samples after which an engine goes on that continues by samples: those of the messages, of which the last one is
   * still open with the text `open`, if that is given. Undefined if they are not known. Absent for an engine that continues by text.
   */
  sampledOf?: ((messages: readonly RawMessage[], open: string | undefined) => Sampled | undefined) | undefined;
  /** Unix milliseconds. */
  now: number;
}

/** Types of calls whose answer can be replaced: their items show the text that the model sees. */
const REPLACEABLE: ReadonlySet<string> = new Set(["mcp_call", "code_interpreter_call"]);

/**
 * The point that `at` means: a sequence number, or the id of an item or of a call. `output`: the call's answer is replaced. `input` are
 * the ids and call ids of the turn's input, of which nothing is kept. Throws the 400 that names `at` or `output`.
 */
export function forkPointOf(
  at: number | string | undefined,
  output: string | undefined,
  items: { output: readonly OutputItem[]; input: ReadonlySet<string> },
): ForkPoint {
  if (typeof at === "string" && items.input.has(at)) return { kind: "start" };
  const index = typeof at === "string" ? items.output.findIndex((item) => namesOf(item).includes(at)) : -1;
  const item = items.output[index];
  if (typeof at === "string" && !item) {
    throw invalidRequest("at", `The response has no item or call '${at}'.`);
  }
  if (output === undefined) {
    if (typeof at === "number") return { kind: "event", last: at };
    return item ? { kind: "item", index } : { kind: "start" };
  }
  if (!item) throw invalidRequest("at", "Another 'output' needs the id of its call in 'at'.");
  if (REPLACEABLE.has(item.type)) return { kind: "call", index };
  const message =
    "call_id" in item
      ? "The client has answered this call in a later response. Fork that one, or continue this one with another output."
      : "The output can be replaced of calls of MCP servers and of the code interpreter, and of calls in the input.";
  throw invalidRequest("output", message);
}

function namesOf(item: OutputItem): (string | null | undefined)[] {
  return [item.id, "call_id" in item ? item.call_id : undefined];
}

/** Types of the events that say that a call is being answered, or was. */
const ANSWERING = /^response\.\w+_call\.(searching|interpreting|generating|completed|failed)$/;

/** Types of events after which a log may end. */
const BOUNDARY = /^response\.(output_item\.done|\w+_call\.in_progress|(?!shell).*\.delta)$/;

/** Types of the events with which the model has completed a call. Calls without text of the model begin complete. */
const COMPLETE =
  /^response\.(mcp_call_arguments\.done|code_interpreter_call_code\.done|(web_search|file_search|image_generation)_call\.in_progress)$/;

/**
 * The lines of a branch's log. `life` are the types and responses of the events that begin it, as JSON. No lines if nothing is kept. Throws the 400 of a point
 * that the turn does not have, or from which no branch can go on.
 */
export function forkedLines(
  source: ForkSource,
  point: ForkPoint,
  means: ForkMeans,
  life: readonly (readonly [type: string, responseJson: string])[],
): string[] {
  if (point.kind === "start") return [];
  const log = new ForkedLog(source, point.kind === "call" ? source.output[point.index]?.id : undefined, means);
  for (const [type, response] of life) log.begin(type, response);
  const last = point.kind === "event" ? point.last : Number.POSITIVE_INFINITY;
  let isBeyond = false;
  for (const json of source.events) {
    const event = JSON.parse(json) as StreamEvent;
    isBeyond ||= event.sequence_number > last;
    if (isBeyond && log.isBoundary) break;
    if (point.kind === "item" && log.isBeyondItem(event, point.index)) break;
    if (point.kind === "call" && log.isBeyondRound(event)) break;
    if (!("response" in event) && event.type !== "error") log.add(event);
  }
  if (point.kind === "event" && !isBeyond) {
    throw invalidRequest("at", `The response has no event after number ${last}.`);
  }
  return log.end();
}

/** An event about an item, as far as a fork reads it. */
type ItemEvent = StreamEvent & { output_index?: number; item_id?: string; item?: OutputItem; delta?: string };

class ForkedLog {
  readonly #lines: string[] = [];
  readonly #output: readonly OutputItem[];
  readonly #replays: ReadonlyMap<string, Replay>;
  /** The id of the call that gets another answer. */
  readonly #changed: string | undefined;
  readonly #means: ForkMeans;
  #sequence = 0;
  /** Number of items that were added, and of those of ended rounds. */
  #added = 0;
  #firstItem = 0;
  readonly #done = new Set<number>();
  /** Hosted calls of the round that are not answered yet, once they are being answered. */
  #unanswered: Set<string> | undefined;
  /** Hosted calls that the model has completed, and that are not done. */
  readonly #complete = new Set<string>();
  #isBoundary = true;
  /** Events of answers that wait for calls that were made in parallel. */
  readonly #held: ItemEvent[] = [];
  /** The text of the open part. */
  #open = "";

  constructor({ output, replays }: ForkSource, changed: string | undefined, means: ForkMeans) {
    this.#output = output;
    this.#replays = new Map(replays.filter(({ before }) => !before).map((replay) => [replay.item, replay]));
    this.#changed = changed;
    this.#means = means;
  }

  /**
   * True if a branch may begin here. Nothing else comes between the beginning of an item and its first delta, between the
   * events of its end, and between a call that is complete and its answer: no log was ever cut there.
   */
  get isBoundary(): boolean {
    return this.#isBoundary && this.#complete.size === 0 && this.#held.length === 0 && !this.#unanswered?.size;
  }

  /** Tells whether an event is after an item, and after the answers to calls that were made in parallel with it. */
  isBeyondItem({ output_index: at, item }: ItemEvent, index: number): boolean {
    if (!this.#done.has(index) || this.#unanswered?.size) return false;
    return at !== undefined && at > index && item?.type !== "tool_search_output";
  }

  begin(type: string, responseJson: string): void {
    this.#lines.push(`{"type":"${type}","sequence_number":${this.#sequence},"response":${responseJson}}`);
    this.#sequence += 1;
  }

  /** Tells whether an event is after the round with the changed call. */
  isBeyondRound(event: ItemEvent): boolean {
    const unanswered = this.#unanswered;
    if (!unanswered || !this.#changed || !unanswered.has(this.#changed)) return "response" in event && this.#added > 0;
    return unanswered.size === 1 && (event.type === "response.output_item.added" || "response" in event);
  }

  /**
   * Adds an event. The answers to parallel calls come after all of these calls, also where the events were rebuilt item by
   * item.
   */
  add(event: ItemEvent): void {
    const item = this.#output[event.output_index ?? -1];
    if (item && isAnswerEvent(event, item)) {
      this.#held.push(event);
      // A program gets its results in their order.
      if (programOf(item) === undefined && this.#hasMoreCalls(item)) return;
      this.#release();
    } else this.#add(event);
  }

  #release(): void {
    for (const event of this.#held.splice(0)) this.#add(event);
  }

  /** Tells whether calls are still to be added that were made in parallel with this one. */
  #hasMoreCalls(item: ServerCall): boolean {
    const step = this.#exchangeOf(item)?.step;
    const later = this.#output.slice(this.#added);
    return step !== undefined && later.some((each) => isServerCall(each) && this.#exchangeOf(each)?.step === step);
  }

  #add(event: ItemEvent): void {
    const { type } = event;
    const index = event.output_index ?? -1;
    const item = this.#output[index];
    if (type === "response.output_item.added") {
      if (item) this.#beforeAdded(item, this.#output[index - 1]);
      this.#added += 1;
      this.#open = "";
    }
    if (!item) return;
    if (isAnswerEvent(event, item)) {
      this.#beginAnswering();
      if (item.id === this.#changed) return;
      if (!/\.(searching|interpreting|generating)$/.test(type)) this.#answer(item);
    }
    if (type === "response.output_item.done") this.#beforeDone(item);
    if (type === "response.mcp_list_tools.completed" || type === "response.mcp_list_tools.failed") {
      const listed = this.#replays.get(item.id ?? "");
      if (listed) this.#record({ listed });
    }
    if (type.endsWith("_part.added")) this.#open = "";
    if (event.delta !== undefined) this.#open += event.delta;
    this.#lines.push(JSON.stringify({ ...event, sequence_number: this.#sequence }));
    this.#sequence += 1;
    this.#isBoundary = BOUNDARY.test(type);
    if (isAnsweredCall(item) && COMPLETE.test(type)) this.#complete.add(item.id ?? "");
    const isItem = type === "response.output_item.added" || type === "response.output_item.done";
    if (isItem && index < MAX_TIMED_ITEMS) this.#record({ item_at: [index, this.#means.now] });
    if (type !== "response.output_item.done") return;
    this.#done.add(index);
    this.#complete.delete(item.id ?? "");
    // An item that broke off before the turn's end was generated anew.
    if ((item.type === "reasoning" || isServerCall(item)) && item.status === "incomplete") {
      this.#record({ superseded: [item.id ?? ""] });
    }
  }

  /** An item may begin the answers to the round's calls, or the next round. */
  #beforeAdded(item: OutputItem, before: OutputItem | undefined): void {
    const isAnswer = isOfAnswers(item);
    // After asynchronous calls and their outputs the model goes on at once.
    const goesOn = before && isWord(item) && (isAsyncCall(before) || repliedId(before as Item) !== undefined);
    if (isAnswer || goesOn) this.#beginAnswering();
    if (this.#unanswered?.size === 0 && !isAnswer) this.#endRound();
    if (programOf(item) !== undefined && isAnsweredCall(item)) this.#unanswered?.add(item.id);
  }

  /** The lines. Throws the 400 of a branch that cannot go on from here. */
  end(): string[] {
    this.#release();
    if (this.#added === 0) return [];
    if (this.#unanswered) {
      if (this.#unanswered.size > (this.#changed === undefined ? 0 : 1)) {
        throw invalidRequest("at", "A branch cannot begin while a call is being answered.");
      }
      return this.#lines;
    }
    if (this.#output.length === this.#done.size) {
      throw invalidRequest(
        "at",
        "A branch that has the whole output has nothing to add. Continue the response instead.",
      );
    }
    if (this.#changed !== undefined) {
      throw invalidRequest("at", "This call was not answered, so its output cannot be replaced.");
    }
    this.#continueSamples();
    return this.#lines;
  }

  #record(record: TurnRecord): void {
    this.#lines.push(recordLine(record));
  }

  /** The generation has ended: its calls are answered from here on. */
  #beginAnswering(): void {
    if (this.#unanswered) return;
    const items = this.#output.slice(this.#firstItem, this.#added);
    const calls = items.filter(isServerCall).filter((item) => isAnsweredCall(item));
    this.#unanswered = new Set(calls.map(({ id }) => id));
    const replays = items.flatMap(({ id }) => this.#replays.get(id ?? "") ?? []);
    this.#record({
      answering: {
        replays: replays
          .filter(({ origin }) => origin === undefined)
          .map(({ item, messages }) => ({ item, messages: own(messages) })),
        trailing: [],
        // The branch counts its own rounds.
        usage: null,
        calls: calls.map((item) => this.#callOf(item)),
        again: [],
      },
    });
  }

  #callOf(item: ServerCall): PendingCall {
    const { name = "", arguments: text = "" } = this.#exchangeOf(item) ?? {};
    // Only a call that is still to be answered needs its tool.
    return { item: item.id, tool: this.#means.toolOf(item) ?? { kind: "" }, name, arguments: text };
  }

  #exchangeOf(item: ServerCall): ToolExchange | undefined {
    return this.#means.exchangeOf(item, this.#replays.get(item.id), this.#output);
  }

  #answer(item: ServerCall): void {
    if (!this.#unanswered?.delete(item.id)) return;
    const exchange = this.#exchangeOf(item);
    const messages = this.#replays.get(item.id)?.messages ?? [];
    if (exchange)
      this.#record({ answered: { item: item.id, exchange, messages: messages.slice(own(messages).length) } });
  }

  #endRound(): void {
    this.#unanswered = undefined;
    // The item that is about to be added belongs to the next round.
    this.#firstItem = this.#added;
    this.#record({ round: { trailing: [] } });
  }

  /** A thought that no event shows is in a record. */
  #beforeDone(item: OutputItem): void {
    if (item.type !== "reasoning" || this.#open !== "") return;
    const text = (item.content ?? []).map((part) => part.text).join("\n");
    if (text === "") return;
    for (const thought of ["", text]) this.#record({ thought });
    this.#record({ thought_ended: item.id });
  }

  /** Tells an engine that continues by samples what the open round has sampled. */
  #continueSamples(): void {
    const items = this.#output.slice(this.#firstItem, this.#added).filter(({ type }) => type !== "mcp_list_tools");
    const last = items.at(-1);
    if (!last) return;
    const replays = items.map(({ id }) => this.#replays.get(id ?? ""));
    const isOpen = !this.#done.has(this.#added - 1);
    const messages = replays.flatMap((replay) => own(replay?.messages ?? []));
    const { sampledOf } = this.#means;
    if (!sampledOf) return;
    const sampled = replays.includes(undefined) ? undefined : sampledOf(messages, isOpen ? this.#open : undefined);
    if (!sampled) {
      throw invalidRequest("at", "The model's own messages are not stored from which it could go on here.");
    }
    this.#record({ sampled });
  }
}

/** Tells whether an event belongs to the answer to a hosted call, rather than to the call itself. */
function isAnswerEvent({ type }: ItemEvent, item: OutputItem): item is ServerCall {
  if (!isServerCall(item)) return false;
  return ANSWERING.test(type) || (type === "response.output_item.done" && isAnsweredCall(item));
}

/** Tells whether an item comes while calls are answered: what a call, a program, an agent or the client has given. */
function isOfAnswers(item: OutputItem): boolean {
  switch (item.type) {
    case "program_output":
    case "tool_search_output":
    case "multi_agent_call_output":
    case "agent_message":
      return true;
    default:
      return programOf(item) !== undefined || isOfOtherAgent(item) || repliedId(item as Item) !== undefined;
  }
}

/** Tells whether a hosted call was answered. */
function isAnsweredCall(item: OutputItem): boolean {
  return isServerCall(item) && (item.status === "completed" || item.status === "failed");
}

/** The model's own messages of an item, without the answers of tools. */
function own(messages: readonly RawMessage[]): RawMessage[] {
  const answers = messages.findLastIndex((message) => !("role" in message && message.role === "tool"));
  return messages.slice(0, answers + 1);
}
