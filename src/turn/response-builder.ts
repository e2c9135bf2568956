import type { CitationFilter, CitedText } from "../contract/citations.ts";
import type { FinishReason, ModelDelta, Phase, RawMessage, Replay, TokenLogprob } from "../contract/engine.ts";
import type { HostedTools } from "../contract/hosted-tool.ts";
import type { PendingCall, ServerTool, ToolOutcome } from "../contract/server-tool.ts";
import type { ApprovedCall, ListedTools } from "../contract/turn-tools.ts";
import type { ApiError } from "../protocol/errors.ts";
import { newCallId, type TurnAddress } from "../protocol/ids.ts";
import type { Item } from "../protocol/items.ts";
import { isJson, jsonLength, parseArguments } from "../protocol/json.ts";
import {
  isServerCall,
  type OutputItem,
  type ResponseObject,
  type ServerCall,
  type Usage,
} from "../protocol/response.ts";
import { deltaHead, type EventSink, EventWriter } from "./event-writer.ts";
import {
  type AnsweringRecord,
  type CallAnswer,
  keepAnswer,
  type LoggedTurn,
  type OpenPartState,
  type SpentDeltas,
} from "./logged-turn.ts";
import { type CallDetails, ServerCalls } from "./server-calls.ts";

/**
 * The one place that makes items and events: ids, `output_index`, `content_index`, `sequence_number`, statuses.
 *
 * Engines say what the model did (`ModelDelta`); this builder turns it into OpenAI's event order (each item added →
 * parts → deltas → done, strictest public reader: openai-node's `ResponseStream`) and into the items of the final
 * body. Stream, body and store share the same item objects, so their ids and texts cannot differ.
 *
 * At most one message or reasoning item is open at a time. Function calls may overlap, because an upstream may
 * interleave their arguments: a call is done when something else begins and its arguments are complete JSON, or at
 * the end of the round.
 */

export interface BuilderOptions {
  address: TurnAddress;
  /** Absent when nobody streams: no event is built then. */
  sink?: EventSink;
  /** Pad delta events with random characters (`stream_options.include_obfuscation`). */
  obfuscation: boolean;
  /** Reasoning becomes items (`include_reasoning`); else it is dropped. */
  includeReasoning: boolean;
  /** Names of the functions that may be called, or undefined for any (`tool_choice: allowed_tools`). */
  allowedCalls?: ReadonlySet<string>;
  /** More than one call per round (`parallel_tool_calls`). */
  parallelCalls: boolean;
  /** The tool of this server that the model means by a name, if it means one. */
  serverTool: (name: string) => ServerTool | undefined;
  /** Whether the model may call it: it may know tools from the history that this turn does not offer. */
  offers: (name: string) => boolean;
  /** Calls of such tools in the whole turn (`max_tool_calls`); further ones are ignored. */
  maxServerCalls: number;
  hostedTools: HostedTools;
  /** What their items are made with. */
  callDetails: CallDetails;
  /** Makes a filter for a content part; undefined where there is nothing to cite. */
  citations: (() => CitationFilter) | undefined;
  /** Call ids already in the prompt: a model's own call id that repeats one of them is replaced. */
  usedCallIds: Set<string>;
  /** Now, in Unix milliseconds. */
  clock: () => number;
  /** A turn that was cut off goes on here. */
  logged?: LoggedTurn;
  /** What all that the turn puts out may take as JSON, in UTF-16 units: more could not be kept. */
  room: number;
  /** The output is given as raw messages, too (`enable_response_messages`). */
  showsMessages: boolean;
}

/** What an item, a part or a raw message has beside its text. */
const FRAME_LENGTH = 512;

/** What is kept free for what a turn says when it ends. */
const SPARE_LENGTH = 64 * 1024;

/** The model server is away: since when, and until when it is waited for. Unix milliseconds. */
export interface Outage {
  since: number;
  until: number;
}

/** How a turn ended. */
export type Outcome =
  | { status: "completed" }
  | { status: "incomplete"; reason: "max_output_tokens" | "content_filter" }
  | { status: "cancelled" }
  | { status: "failed"; error: ApiError };

/**
 * A closed response as JSON text: `head` is all of it but `output`, so that the store can keep the two apart.
 * `messages` are the raw messages behind its items (`Replay[]`), or null where the engine has none.
 */
export interface ClosedResponse {
  head: string;
  output: string;
  messages: string | null;
}

type Message = Extract<OutputItem, { type: "message" }>;
type Reasoning = Extract<OutputItem, { type: "reasoning" }>;
type FunctionCall = Extract<OutputItem, { type: "function_call" }>;

/** A part that takes text: where deltas go, and the JSON of a delta event up to its sequence number. */
interface OpenPart extends OpenPartState {
  item: Message | Reasoning;
  deltaHead: string;
  /** Absent where nothing can be cited. */
  filter?: CitationFilter;
}

interface OpenCall {
  item: FunctionCall;
  outputIndex: number;
  deltaHead: string;
}

/** The events of each kind of part; the names are OpenAI's. */
const PART_EVENTS = {
  output_text: { delta: "response.output_text.delta", done: "response.output_text.done" },
  refusal: { delta: "response.refusal.delta", done: "response.refusal.done" },
  reasoning_text: { delta: "response.reasoning_text.delta", done: "response.reasoning_text.done" },
} as const;

const ARGUMENTS_DELTA = "response.function_call_arguments.delta";

/** Joins the two halves of a closed response to its JSON body. */
export function responseBody(closed: Pick<ClosedResponse, "head" | "output">): string {
  return `${closed.head.slice(0, -1)},"output":${closed.output}}`;
}

export class ResponseBuilder {
  readonly #response: ResponseObject;
  readonly #options: BuilderOptions;
  readonly #writer: EventWriter;
  #deltas = 0;
  #reasoningDeltas = 0;
  /** Those of the rounds before this one. */
  #earlierDeltas = 0;
  #earlierReasoning = 0;
  /** Those before each item, by its `output_index`. */
  #begunAt: SpentDeltas[] = [];
  /** Items that the model says anew, by their ids. */
  readonly #superseded = new Set<string>();
  /** What signs of life tell of, while it lasts. */
  outage: Outage | undefined;
  #part: OpenPart | undefined;
  #calls = new Map<number, OpenCall>();
  readonly #serverCalls: ServerCalls;
  #serverCallsBegun = 0;
  #ignoredCalls = 0;
  /** The round may call this server's tools. What a model calls that was not offered any is ignored. */
  offersServerTools = true;
  #droppedCalls = new Set<number>();
  #roundCalls = 0;
  /** A call that was open when the turn was cut off: the next arguments may belong to it. */
  #resumedCall: OpenCall | undefined;
  #finish: FinishReason | undefined;
  /** Of what is put out so far, as JSON and at most. */
  #length = 0;
  /** Texts are kept twice where the model's own messages are kept beside the items. */
  keepsSampled = false;
  #replays: Replay[] = [];
  /** Raw messages since the last item's: they lead to the next item. */
  #loose: RawMessage[] = [];
  /** Items that have their raw messages. */
  #anchored = 0;
  /** Items and replays of the rounds before this one, and messages of this one so far. */
  #roundItems = 0;
  #roundReplays = 0;
  #roundMessages = 0;

  /** `response` is the initial response; the builder fills it in. */
  constructor(response: ResponseObject, options: BuilderOptions) {
    this.#response = response;
    this.#options = options;
    this.#writer = new EventWriter(response, { ...options, sequence: options.logged?.sequence ?? 0 });
    this.#serverCalls = new ServerCalls(this.#writer, response, options.hostedTools, options.callDetails);
    if (options.logged) this.#goOnFrom(options.logged);
  }

  #goOnFrom(logged: LoggedTurn): void {
    this.#deltas = logged.deltas;
    this.#reasoningDeltas = logged.reasoningDeltas;
    this.#earlierDeltas = logged.earlierDeltas;
    this.#earlierReasoning = logged.earlierReasoning;
    this.#begunAt = logged.begunAt;
    for (const id of logged.superseded) this.#superseded.add(id);
    this.#response.output = logged.output;
    for (const [outputIndex, item] of logged.output.entries()) {
      if (this.#superseded.has(item.id)) continue;
      if (isServerCall(item)) this.#goOnWithServerCall(item, outputIndex, logged);
      if (item.type !== "function_call" || item.status !== "in_progress") continue;
      // Its index at the engine is not known any more: that of the next arguments that belong to no other call.
      this.#resumedCall = newOpenCall(item, outputIndex);
      this.#calls.set(-1 - outputIndex, this.#resumedCall);
    }
    this.keepsSampled = logged.sampled !== undefined || logged.replays.length > 0;
    this.#length = JSON.stringify([logged.output, logged.replays, logged.openPart?.logprobs]).length;
    this.#takeText(logged.openPart?.text ?? "");
    this.#response.usage = logged.usage;
    this.#replays = logged.replays;
    this.#loose = [...logged.loose];
    this.#roundItems = logged.roundItems;
    this.#roundReplays = logged.replays.length;
    this.#anchored = logged.answering?.items ?? logged.roundItems;
    const round = this.#goneOnAfter(logged.output.slice(logged.roundItems));
    this.#roundCalls = round.filter((item) => item.type === "function_call" || isServerCall(item)).length;
    if (!logged.openPart) return;
    const item = logged.output[logged.openPart.outputIndex];
    if (item?.type !== "message" && item?.type !== "reasoning") return;
    this.#part = newOpenPart(logged.openPart, item);
    this.#addFilter(this.#part, logged.held);
  }

  #goOnWithServerCall(item: Extract<OutputItem, ServerCall>, outputIndex: number, logged: LoggedTurn): void {
    this.#serverCallsBegun += 1;
    if (item.status === "completed" || item.status === "failed" || item.status === "incomplete") return;
    const pending = (logged.answering?.calls ?? logged.called).find((call) => call.item === item.id);
    this.#serverCalls.restore(item, outputIndex, pending);
  }

  /** Nothing more can be kept of what the model says. */
  get isFull(): boolean {
    return this.#length + SPARE_LENGTH > this.#options.room;
  }

  /** Whether there is room for this, too. */
  hasRoomFor(value: unknown): boolean {
    return this.#length + SPARE_LENGTH + JSON.stringify(value).length <= this.#options.room;
  }

  #takeText(text: string): void {
    this.#length += jsonLength(text) * (1 + Number(this.keepsSampled) + Number(this.#options.showsMessages));
  }

  /** Events so far; the next one's sequence number. */
  get sequence(): number {
    return this.#writer.sequence;
  }

  /** Why the model stopped, once it has said so. */
  get finishReason(): FinishReason | undefined {
    return this.#finish;
  }

  /** Delta events so far: about as many as tokens. */
  get deltas(): number {
    return this.#deltas;
  }

  /** Those of them in this round, and of these the ones that were reasoning. */
  get roundDeltas(): SpentDeltas {
    return { all: this.#deltas - this.#earlierDeltas, reasoning: this.#reasoningDeltas - this.#earlierReasoning };
  }

  /**
   * What this round has generated, as items that a prompt can end with: an open part is there with its text so far.
   * An unfinished function call is there too; an engine that cannot go on with it says so.
   */
  partialItems(): OutputItem[] {
    const part = this.#part;
    const items = this.#response.output.map((item, index) => {
      if (!part || index !== part.outputIndex) return item;
      // Also what is held back: the model goes on after all that it has said.
      const content = partContent({ ...part, text: part.text + this.held });
      return { ...part.item, content: [...(part.item.content ?? []), content] } as OutputItem;
    });
    return this.#goneOnAfter(items.slice(this.#roundItems)).filter((item) => item.type !== "mcp_list_tools");
  }

  /** Items without those that the model has said anew. */
  #goneOnAfter(items: readonly OutputItem[]): OutputItem[] {
    return items.filter((item) => !this.#superseded.has(item.id));
  }

  /**
   * Ends this round's items from the one of this id on, because the model is to say anew what broke off: those that are
   * open are incomplete. Gives what they have cost.
   */
  breakOff(id: string): SpentDeltas {
    const { output } = this.#response;
    const from = output.findIndex((item) => item.id === id);
    const broken = output.slice(from).filter((item) => item.type !== "mcp_list_tools");
    const superseded = broken.map((item) => item.id);
    this.#writer.record({ superseded });
    for (const item of superseded) this.#superseded.add(item);
    this.#closePart("incomplete", false);
    this.#serverCalls.close(false);
    this.#forgetCalls(broken);
    const begun = this.#begunAt[from] ?? { all: this.#earlierDeltas, reasoning: this.#earlierReasoning };
    return { all: this.#deltas - begun.all, reasoning: this.#reasoningDeltas - begun.reasoning };
  }

  /** Takes back all that this round has put out, where nobody has seen it. Gives what that has cost. */
  withdrawRound(): SpentDeltas {
    const { output } = this.#response;
    const isKept = (item: OutputItem, index: number) => index < this.#roundItems || item.type === "mcp_list_tools";
    const withdrawn = output.filter((item, index) => !isKept(item, index));
    const [first] = withdrawn;
    const begun = this.#begunAt[first ? output.indexOf(first) : -1];
    this.#response.output = output.filter(isKept);
    this.#part = undefined;
    this.#calls.clear();
    this.#serverCalls.withdraw();
    this.#forgetCalls(withdrawn);
    const { all, reasoning } = begun ?? { all: this.#deltas, reasoning: this.#reasoningDeltas };
    return { all: this.#deltas - all, reasoning: this.#reasoningDeltas - reasoning };
  }

  /** The model counts its calls from the beginning again, and those that broke off were none. */
  #forgetCalls(items: readonly OutputItem[]): void {
    this.#serverCallsBegun -= items.filter(isServerCall).length;
    this.#roundCalls = 0;
    this.#resumedCall = undefined;
    this.#droppedCalls.clear();
  }

  /** What was said and is not shown yet, because it may become a citation. */
  get held(): string {
    return this.#part?.filter?.pending ?? "";
  }

  /** Tokens put out so far, by the word of the model server. */
  get usage(): Usage | null {
    return this.#response.usage;
  }

  /** The items of the rounds before this one. */
  get earlierOutput(): Item[] {
    return this.#goneOnAfter(this.#response.output.slice(0, this.#roundItems)) as Item[];
  }

  /** Raw messages so far: those that stand for items, and those that came after the last of these. */
  get replays(): readonly Replay[] {
    return this.#replays;
  }

  get looseMessages(): readonly RawMessage[] {
    return this.#loose;
  }

  /** The raw messages that the prompt is made of, for `input_messages`. */
  set inputMessages(messages: RawMessage[]) {
    const before = this.#response.input_messages;
    this.#length += JSON.stringify(messages).length - (before ? JSON.stringify(before).length : 0);
    this.#response.input_messages = messages;
    const replays = this.#replays.filter((replay) => !replay.before);
    this.#response.output_messages = this.#isLaterRound
      ? [...replays.flatMap((replay) => replay.messages), ...this.#loose]
      : [];
  }

  /** Messages that came before the turn's input: with its first item they are kept, or with its first output. */
  lead(messages: RawMessage[], firstItem: string | undefined): void {
    if (firstItem !== undefined) {
      this.#replays.unshift({ item: firstItem, messages, before: true });
      this.#roundReplays += 1;
      return;
    }
    // Later they are in what the first round has left.
    if (!this.#isLaterRound) this.#loose.unshift(...messages);
  }

  /** The turn goes on after a crash, and not in its first round. */
  get #isLaterRound(): boolean {
    const { logged } = this.#options;
    return logged !== undefined && (logged.rounds > 0 || logged.answering !== undefined);
  }

  /** `response.created` with the response queued, and `response.queued`: a background run that waits to begin. */
  queue(): void {
    if (this.#writer.sequence > 0) return;
    const snapshot = JSON.stringify({ ...this.#response, status: "queued" });
    this.#writer.lifecycle("response.created", snapshot);
    this.#writer.lifecycle("response.queued", snapshot);
  }

  /** `response.created`, unless it has been said before, and `response.in_progress`. */
  start(): void {
    if (!this.#writer.isRead || this.#options.logged?.started) return;
    const snapshot = JSON.stringify(this.#response);
    if (this.#writer.sequence === 0) this.#writer.lifecycle("response.created", snapshot);
    this.#writer.lifecycle("response.in_progress", snapshot);
  }

  /**
   * Repeats `response.in_progress`: a sign of life for clients whose idle timeout counts only events
   * (Codex gives up after 300 s of comments). During an outage it tells of that, in Unix seconds.
   */
  repeatInProgress(): void {
    const { outage } = this;
    const recovery = outage && { down_since: seconds(outage.since), gives_up_at: seconds(outage.until) };
    const snapshot = JSON.stringify({ ...this.#response, output: [], ...(recovery && { recovery }) });
    this.#writer.lifecycle("response.in_progress", snapshot);
  }

  /** Whether the last item is a client's call that the model has not made as it has to. */
  get endsInCutCall(): boolean {
    const last = this.#response.output.at(-1);
    return last?.type === "function_call" && last.status === "incomplete";
  }

  apply(delta: ModelDelta): void {
    switch (delta.kind) {
      case "text":
        this.#appendText("output_text", delta.text, delta.logprobs, delta.phase);
        return;
      case "reasoning":
        if (this.#options.includeReasoning) this.#appendText("reasoning_text", delta.text);
        else if (this.keepsSampled) this.#takeText(delta.text);
        return;
      case "refusal":
        this.#appendText("refusal", delta.text);
        return;
      case "tool_call":
        this.#appendCall(delta);
        return;
      case "call_cut": {
        const call = this.#calls.get(delta.index);
        if (call) this.#closeCall(delta.index, call, "incomplete", false);
        return;
      }
      case "item_done":
        this.#closePart("completed", false);
        for (const [index, call] of this.#calls) this.#closeCall(index, call, "completed", false);
        this.#serverCalls.completeAll();
        return;
      case "resumed_call":
        this.#resumeServerCall(delta);
        return;
      case "message":
        this.#keepMessage(delta);
        return;
      case "sampled":
      case "ask_again":
        return;
      case "usage":
        this.#response.usage = addUsage(this.#response.usage, delta.usage);
        return;
      case "kv_transfer_params":
        this.#response.kv_transfer_params = delta.value;
        return;
      case "finish":
        this.#finish = delta.reason;
        return;
    }
  }

  // Rounds

  /** The generation of a round has ended by itself: all that it has said is complete. Gives the calls to be answered. */
  endGeneration(): PendingCall[] {
    this.#closePart("completed", false);
    for (const [index, call] of this.#calls) this.#closeCall(index, call, "completed", false);
    this.#serverCalls.completeAll();
    return this.#serverCalls.pending;
  }

  /** Calls of a round before a crash that have no answer yet. */
  get pendingCalls(): PendingCall[] {
    return this.#serverCalls.pending;
  }

  /** What a round leaves, for a log: to be asked for once its generation has ended. `again` asks its model again. */
  answeringRecord(again: RawMessage[]): AnsweringRecord {
    const replays = this.#replays.slice(this.#roundReplays);
    this.#roundReplays = this.#replays.length;
    return {
      items: this.#response.output.length,
      replays,
      loose: [...this.#loose],
      usage: this.#response.usage,
      calls: this.#serverCalls.pending,
      again,
    };
  }

  /** Whether this round has left something that only the client can answer: its own calls, and those to approve. */
  get waitsForClient(): boolean {
    const round = this.#response.output.slice(this.#roundItems);
    // A call that was cut is not one.
    return round.some(
      (item) => (item.type === "function_call" && item.status !== "incomplete") || item.type === "mcp_approval_request",
    );
  }

  /** Calls that this round has made beyond what the turn may. */
  get ignoredCalls(): number {
    return this.#ignoredCalls;
  }

  /** Calls of this server's tools that the turn may still make. */
  get serverCallsLeft(): number {
    return this.#options.maxServerCalls - this.#serverCallsBegun;
  }

  startCall(call: PendingCall): void {
    this.#serverCalls.start(call);
  }

  /** Raw messages of a call, before it is answered. */
  messagesOf(call: PendingCall): readonly RawMessage[] {
    return this.#replays.find((replay) => replay.item === call.item)?.messages ?? [];
  }

  finishCall(call: PendingCall, outcome: ToolOutcome, answer: CallAnswer): void {
    this.#serverCalls.finish(call, outcome);
    this.#length += FRAME_LENGTH + 3 * JSON.stringify(answer).length;
    keepAnswer(this.#replays, answer);
    this.#response.output_messages?.push(...answer.messages);
  }

  /** A call that the client has approved. Throws nothing; it counts like any other. */
  addApprovedCall(call: ApprovedCall): void {
    this.#serverCallsBegun += 1;
    this.#length += FRAME_LENGTH;
    this.#takeText(call.arguments);
    this.#serverCalls.addApproved(call);
  }

  /** Begins to list the tools of an MCP server; before a crash it may have begun already. Gives the item's index. */
  beginList(label: string): number {
    const open = this.#options.logged?.openLists.find((index) => {
      const item = this.#response.output[index];
      return item?.type === "mcp_list_tools" && item.server_label === label;
    });
    if (open !== undefined) return open;
    const id = this.#writer.newItemId("mcp_list_tools");
    const index = this.#writer.addItem({ id, type: "mcp_list_tools", server_label: label, tools: [] });
    this.#writer.emit("response.mcp_list_tools.in_progress", { item_id: id, output_index: index });
    return index;
  }

  /** The tools are listed, or cannot be. `origin` is what the list depends on, for turns that might use it again. */
  endList(index: number, listed: ListedTools, origin: string): void {
    const item = this.#response.output[index];
    if (item?.type !== "mcp_list_tools") return;
    const shown = this.hasRoomFor(listed) ? listed : { error: "The tools are too many to be kept with the response." };
    if ("tools" in shown) item.tools = shown.tools;
    else item.error = shown.error;
    this.#length += FRAME_LENGTH + JSON.stringify(shown).length + origin.length;
    const replay = { item: item.id, messages: [], origin };
    this.#replays.push(replay);
    this.#roundReplays += 1;
    this.#writer.record({ listed: replay });
    const outcome = "tools" in shown ? "completed" : "failed";
    this.#writer.emit(`response.mcp_list_tools.${outcome}`, { item_id: item.id, output_index: index });
    this.#writer.emit("response.output_item.done", { output_index: index, item });
  }

  /**
   * Begins the next round, with messages that answer what this one has left unanswered. Gives the items and the raw
   * messages that are new in its prompt.
   */
  nextRound(answers: readonly RawMessage[]): { items: OutputItem[]; replays: readonly Replay[]; loose: RawMessage[] } {
    const { output, output_messages } = this.#response;
    const items = this.#goneOnAfter(output.slice(this.#roundItems));
    this.#loose = [...this.#loose, ...answers];
    output_messages?.push(...answers);
    this.#roundItems = output.length;
    this.#roundReplays = this.#replays.length;
    // What has no raw message by now gets none.
    this.#anchored = output.length;
    this.#earlierDeltas = this.#deltas;
    this.#earlierReasoning = this.#reasoningDeltas;
    this.#roundMessages = 0;
    this.#roundCalls = 0;
    this.#ignoredCalls = 0;
    this.#droppedCalls.clear();
    this.#finish = undefined;
    // Copies: what this round adds is in what it samples, too.
    return { items, replays: [...this.#replays], loose: [...this.#loose] };
  }

  #keepMessage({ index, shows, message }: Extract<ModelDelta, { kind: "message" }>): void {
    if (index < this.#roundMessages) return;
    this.#roundMessages = index + 1;
    this.#length += 2 * FRAME_LENGTH;
    const { output } = this.#response;
    // A list of tools is no word of the model's.
    while (output[this.#anchored]?.type === "mcp_list_tools") this.#anchored += 1;
    const item = output[this.#anchored];
    const shown = item !== undefined && shows !== undefined && shows === kindOf(item);
    // A call that this turn does not allow: nobody will answer it, so it is not to be seen again.
    if (shows === "call" && !shown) return;
    this.#response.output_messages?.push(message);
    if (shown) this.#anchored += 1;
    // A call that waits for approval is made when it is approved.
    if (item?.type === "mcp_approval_request") return;
    this.#loose.push(message);
    if (!shown) return;
    this.#replays.push({ item: item.id, messages: this.#loose });
    this.#loose = [];
  }

  /**
   * Ends every open item and settles the response; no terminal event yet, because what is settled must be stored
   * before anybody is told. May be called again with another outcome when storing failed.
   */
  close(outcome: Outcome): ClosedResponse {
    const truncated = outcome.status !== "completed";
    const silent = outcome.status === "failed" || outcome.status === "cancelled";
    const last = this.#response.output.length - 1;
    const openPart = this.#part;
    if (openPart) this.#closePart(truncated && openPart.outputIndex === last ? "incomplete" : "completed", silent);
    for (const [index, call] of [...this.#calls]) {
      const complete = !truncated || (call.outputIndex !== last && isJson(call.item.arguments));
      this.#closeCall(index, call, complete ? "completed" : "incomplete", silent);
    }
    this.#serverCalls.close(silent);
    this.#closeLists();
    const response = this.#response;
    response.status = outcome.status;
    response.completed_at = outcome.status === "completed" ? Math.floor(this.#options.clock() / 1000) : null;
    response.incomplete_details = outcome.status === "incomplete" ? { reason: outcome.reason } : null;
    response.error = outcome.status === "failed" ? toResponseError(outcome.error) : null;
    const { output, ...head } = response;
    const texts = { head: JSON.stringify(head), output: JSON.stringify(output) };
    const messages = this.#replays.length === 0 ? null : JSON.stringify(this.#replays);
    // Items are what counts: without the messages behind them they are rendered anew.
    const fits = texts.output.length + (messages?.length ?? 0) <= this.#options.room;
    return { ...texts, messages: fits ? messages : null };
  }

  /** A list that was cut off is none: a later turn is to make it anew. */
  #closeLists(): void {
    for (const item of this.#response.output) {
      if (item.type !== "mcp_list_tools" || item.error != null) continue;
      if (this.#replays.some((replay) => replay.item === item.id)) continue;
      item.error = "The tools of this server were not listed to the end.";
    }
  }

  /**
   * The terminal event of a closed response; a failure is preceded by `error`, nested and flat for all clients. OpenAI
   * has no event for a cancelled response: it ends as `response.incomplete` with a response that says `cancelled`.
   */
  terminate(outcome: Outcome, closed: ClosedResponse): void {
    if (outcome.status === "failed") {
      const { message, type, param, code } = outcome.error;
      this.#writer.record({ failure: outcome.error.toFields() });
      this.#writer.emit("error", { error: { type, code, message, param }, code, message, param });
    }
    const name = outcome.status === "cancelled" ? "incomplete" : outcome.status;
    this.#writer.lifecycle(`response.${name}`, responseBody(closed));
  }

  #appendText(kind: OpenPart["kind"], text: string, logprobs?: TokenLogprob[], phase?: Phase): void {
    if (text === "" && !logprobs?.length) return;
    let part = this.#part;
    if (part?.kind !== kind) part = this.#openPart(kind, phase);
    this.#deltas += 1;
    if (kind === "reasoning_text") this.#reasoningDeltas += 1;
    if (part.filter) this.#appendCited(part, part.filter.push(text), logprobs);
    else this.#appendShown(part, text, logprobs);
  }

  #appendShown(part: OpenPart, text: string, logprobs?: TokenLogprob[]): void {
    part.text += text;
    this.#takeText(text);
    if (logprobs) {
      part.logprobs.push(...logprobs);
      this.#length += JSON.stringify(logprobs).length;
    }
    if (!this.#writer.isRead) return;
    const extra = part.kind === "output_text" ? `,"logprobs":${logprobs ? JSON.stringify(logprobs) : "[]"}` : "";
    this.#writer.delta(PART_EVENTS[part.kind].delta, part.deltaHead, text, extra);
  }

  /** Text with the citations in it made links, each with an annotation. */
  #appendCited(part: OpenPart, { text, annotations }: CitedText, logprobs?: TokenLogprob[]): void {
    if (text !== "" || logprobs?.length) this.#appendShown(part, text, logprobs);
    for (const annotation of annotations) {
      this.#length += JSON.stringify(annotation).length;
      const annotation_index = part.annotations.push(annotation) - 1;
      this.#writer.emit("response.output_text.annotation.added", { ...addressOf(part), annotation_index, annotation });
    }
  }

  #openPart(kind: OpenPart["kind"], phase: Phase | undefined): OpenPart {
    const type = kind === "reasoning_text" ? "reasoning" : "message";
    const open = this.#part;
    // A refusal may follow text within one message; everything else begins a new item.
    const sameItem = open !== undefined && open.item.type === type;
    if (open) this.#closePart("completed", false, sameItem);
    if (!sameItem) this.#closeCompleteCalls();
    const item = sameItem ? open.item : this.#addTextItem(type, phase);
    const outputIndex = sameItem ? open.outputIndex : this.#response.output.length - 1;
    const contentIndex = item.content?.length ?? 0;
    const part = newOpenPart({ kind, outputIndex, contentIndex, text: "", logprobs: [], annotations: [] }, item);
    this.#addFilter(part);
    this.#length += FRAME_LENGTH;
    this.#part = part;
    this.#writer.emit("response.content_part.added", { ...addressOf(part), part: partContent(part) });
    return part;
  }

  #addFilter(part: OpenPart, held = ""): void {
    const { citations } = this.#options;
    if (!citations || part.kind !== "output_text") return;
    part.filter = citations();
    // What is there already, after a crash, only counts.
    part.filter.push(part.text + held);
  }

  #addTextItem(type: "message" | "reasoning", phase: Phase | undefined): Message | Reasoning {
    const id = this.#writer.newItemId(type);
    const item: Message | Reasoning =
      type === "message"
        ? { id, type, status: "in_progress", role: "assistant", content: [], ...(phase && { phase }) }
        : { id, type, status: "in_progress", summary: [], content: [] };
    this.#addItem(item);
    return item;
  }

  #addItem(item: OutputItem): number {
    this.#noteBeginning();
    return this.#writer.addItem(item);
  }

  /** An item is about to begin. */
  #noteBeginning(): void {
    this.#begunAt[this.#response.output.length] = { all: this.#deltas, reasoning: this.#reasoningDeltas };
  }

  /** Ends the open part, and its item unless `keepItem`. `silent`: the item is settled, no event says so. */
  #closePart(status: "completed" | "incomplete", silent: boolean, keepItem = false): void {
    const part = this.#part;
    if (!part) return;
    if (part.filter) this.#appendCited(part, part.filter.end());
    const { item } = part;
    const content = partContent(part);
    (item.content as unknown[]).push(content);
    if (!keepItem) {
      this.#part = undefined;
      item.status = status;
    }
    if (silent) return;
    const at = addressOf(part);
    const text = part.kind === "refusal" ? { refusal: part.text } : { text: part.text };
    const logprobs = part.kind === "output_text" ? { logprobs: part.logprobs } : {};
    this.#writer.emit(PART_EVENTS[part.kind].done, { ...at, ...text, ...logprobs });
    this.#writer.emit("response.content_part.done", { ...at, part: content });
    if (!keepItem) this.#writer.emit("response.output_item.done", { output_index: part.outputIndex, item });
  }

  #appendCall(delta: Extract<ModelDelta, { kind: "tool_call" }>): void {
    if (this.#droppedCalls.has(delta.index)) return;
    if (this.#serverCalls.has(delta.index) || this.#openServerCall(delta)) {
      this.#deltas += 1;
      this.#takeText(delta.arguments);
      this.#serverCalls.append(delta.index, delta.arguments);
      return;
    }
    const call = this.#calls.get(delta.index) ?? this.#resumeCall(delta) ?? this.#openCall(delta);
    if (!call || delta.arguments === "") return;
    this.#deltas += 1;
    call.item.arguments += delta.arguments;
    this.#takeText(delta.arguments);
    this.#writer.delta(ARGUMENTS_DELTA, call.deltaHead, delta.arguments);
  }

  /** Begins a call of a tool that this server runs. False when it is none. */
  #openServerCall({ index, name }: Extract<ModelDelta, { kind: "tool_call" }>): boolean {
    const tool = name === undefined || this.#calls.has(index) ? undefined : this.#options.serverTool(name);
    if (!tool || name === undefined) return false;
    const isAllowed = this.offersServerTools && this.serverCallsLeft > 0 && this.#options.offers(name);
    if (!isAllowed || (!this.#options.parallelCalls && this.#roundCalls > 0)) {
      this.#droppedCalls.add(index);
      this.#ignoredCalls += 1;
      return true;
    }
    this.#serverCallsBegun += 1;
    this.#roundCalls += 1;
    this.#length += FRAME_LENGTH;
    this.#closePart("completed", false);
    this.#closeCompleteCalls();
    this.#noteBeginning();
    this.#serverCalls.begin(index, name, tool);
    return true;
  }

  #resumeServerCall({ index, name, arguments: text }: Extract<ModelDelta, { kind: "resumed_call" }>): void {
    const tool = this.#options.serverTool(name);
    if (!tool || this.#droppedCalls.has(index) || this.#serverCalls.resume(index, name, tool)) return;
    // Nothing of it was to be seen yet.
    this.#serverCallsBegun += 1;
    this.#roundCalls += 1;
    this.#noteBeginning();
    this.#serverCalls.begin(index, name, tool, text);
  }

  /** The call that was open when the turn was cut off, for arguments without a name of their own. */
  #resumeCall(delta: Extract<ModelDelta, { kind: "tool_call" }>): OpenCall | undefined {
    const call = this.#resumedCall;
    if (!call || delta.name !== undefined) return undefined;
    this.#resumedCall = undefined;
    this.#calls.delete(-1 - call.outputIndex);
    this.#calls.set(delta.index, call);
    return call;
  }

  #openCall(delta: Extract<ModelDelta, { kind: "tool_call" }>): OpenCall | undefined {
    const name = delta.name ?? "";
    const refused = this.#options.allowedCalls?.has(name) === false;
    if (name === "" || refused || (!this.#options.parallelCalls && this.#roundCalls > 0)) {
      this.#droppedCalls.add(delta.index);
      return undefined;
    }
    this.#roundCalls += 1;
    this.#closePart("completed", false);
    this.#closeCompleteCalls();
    this.#length += FRAME_LENGTH;
    const id = this.#writer.newItemId("function_call");
    const item: FunctionCall = {
      id,
      type: "function_call",
      status: "in_progress",
      call_id: this.#claimCallId(delta.callId),
      name,
      arguments: "",
    };
    const call = newOpenCall(item, this.#addItem(item));
    this.#calls.set(delta.index, call);
    return call;
  }

  /** The model's own call id where it is usable (some templates insist on their form), else a new one. */
  #claimCallId(offered: string | undefined): string {
    const used = this.#options.usedCallIds;
    const id = offered && offered.length <= 64 && !used.has(offered) ? offered : newCallId();
    used.add(id);
    return id;
  }

  #closeCompleteCalls(): void {
    for (const [index, call] of this.#calls) {
      if (isWhole(call.item.arguments)) this.#closeCall(index, call, "completed", false);
    }
    this.#serverCalls.completeReady(isJson);
  }

  #closeCall(index: number, call: OpenCall, status: "completed" | "incomplete", silent: boolean): void {
    const { item, outputIndex } = call;
    // The index stays taken: what an upstream still sends for it belongs to no other call.
    this.#calls.delete(index);
    this.#droppedCalls.add(index);
    if (status === "completed" && item.arguments === "") {
      item.arguments = "{}";
      if (!silent) this.#writer.delta(ARGUMENTS_DELTA, call.deltaHead, "{}");
    }
    item.status = status;
    if (silent) return;
    this.#writer.emit("response.function_call_arguments.done", {
      item_id: item.id,
      output_index: outputIndex,
      name: item.name,
      arguments: item.arguments,
    });
    this.#writer.emit("response.output_item.done", { output_index: outputIndex, item });
  }
}

function newOpenPart(state: OpenPartState, item: Message | Reasoning): OpenPart {
  const part = { ...state, item, deltaHead: "" };
  part.deltaHead = deltaHead(PART_EVENTS[state.kind].delta, addressOf(part));
  return part;
}

function newOpenCall(item: FunctionCall, outputIndex: number): OpenCall {
  return { item, outputIndex, deltaHead: deltaHead(ARGUMENTS_DELTA, { item_id: item.id, output_index: outputIndex }) };
}

function addressOf(part: OpenPart) {
  return { item_id: part.item.id, output_index: part.outputIndex, content_index: part.contentIndex };
}

/** The part as the API shows it, with the text so far. */
function partContent(part: OpenPart) {
  switch (part.kind) {
    case "output_text":
      return { type: part.kind, text: part.text, annotations: part.annotations, logprobs: part.logprobs };
    case "refusal":
      return { type: part.kind, refusal: part.text };
    case "reasoning_text":
      return { type: part.kind, text: part.text };
  }
}

/** `response.error` knows fewer codes than HTTP errors do (openai 7.55 `ResponseError.code`). */
function toResponseError(error: ApiError): { code: string; message: string } {
  const known = error.code === "rate_limit_exceeded" || error.code === "context_length_exceeded";
  return { code: known ? error.code : error.status < 500 ? "invalid_prompt" : "server_error", message: error.message };
}

/** Whether the arguments of a function are there, and complete. */
function isWhole(text: string): boolean {
  return text.trim() !== "" && parseArguments(text) !== undefined;
}

/** Whole seconds of a time in milliseconds. */
function seconds(ms: number): number {
  return Math.floor(ms / 1000);
}

/** What an item is to the engine whose message has become one. */
function kindOf({ type }: OutputItem): "reasoning" | "message" | "call" | undefined {
  if (type === "reasoning" || type === "message") return type;
  return type === "mcp_list_tools" ? undefined : "call";
}

/** The usage of a turn with one more round. */
function addUsage(before: Usage | null, round: Usage): Usage {
  if (!before) return round;
  const { input_tokens_details: inputBefore, output_tokens_details: outputBefore } = before;
  const { input_tokens_details: input, output_tokens_details: output } = round;
  const inputs = [...(before.input_tokens_per_turn ?? [before.input_tokens]), round.input_tokens];
  const outputs = [...(before.output_tokens_per_turn ?? [before.output_tokens]), round.output_tokens];
  const cached = [...(before.cached_tokens_per_turn ?? [inputBefore.cached_tokens]), input.cached_tokens];
  const toolOutput = Math.max(0, round.input_tokens - (inputs.at(-2) ?? 0) - (outputs.at(-2) ?? 0));
  return {
    input_tokens: before.input_tokens + round.input_tokens,
    input_tokens_details: {
      cached_tokens: inputBefore.cached_tokens + input.cached_tokens,
      cache_write_tokens: inputBefore.cache_write_tokens + input.cache_write_tokens,
    },
    output_tokens: before.output_tokens + round.output_tokens,
    output_tokens_details: {
      reasoning_tokens: outputBefore.reasoning_tokens + output.reasoning_tokens,
      tool_output_tokens: (outputBefore.tool_output_tokens ?? 0) + toolOutput,
    },
    total_tokens: before.total_tokens + round.total_tokens,
    input_tokens_per_turn: inputs,
    cached_tokens_per_turn: cached,
    output_tokens_per_turn: outputs,
    tool_output_tokens_per_turn: [...(before.tool_output_tokens_per_turn ?? [0]), toolOutput],
  };
}
