import type { CitationFilter } from "../contract/citations.ts";
import type { FinishReason, ModelDelta, Phase, RawMessage, TokenLogprob } from "../contract/engine.ts";
import type { HostedTools } from "../contract/hosted-tool.ts";
import type { PendingCall, ServerTool, ToolOutcome } from "../contract/server-tool.ts";
import type { ApprovedCall } from "../contract/turn-tools.ts";
import type { ClientTool } from "../protocol/client-tools.ts";
import type { ApiError } from "../protocol/errors.ts";
import type { TurnAddress } from "../protocol/ids.ts";
import type { Item } from "../protocol/items.ts";
import { isJson } from "../protocol/json.ts";
import {
  type InputTransformation,
  isClientCall,
  isServerCall,
  type OutputItem,
  type ResponseObject,
  toolUsageOf,
  type Usage,
} from "../protocol/response.ts";
import { ClientCalls } from "./client-calls.ts";
import { Compactions } from "./compactions.ts";
import type { NoAnswer, Outcome } from "./decide.ts";
import { type EventSink, EventWriter } from "./output-events.ts";
import { OutputSize } from "./output-size.ts";
import { RawMessages } from "./raw-messages.ts";
import type { CallAnswer, TurnRecord } from "./records.ts";
import { type ReasoningSeal, sealReasoning } from "./sealed-reasoning.ts";
import { type CallDetails, ServerCalls } from "./server-calls.ts";
import { type OpenPart, roundItems, type TurnState, withoutSuperseded, withThoughts } from "./state.ts";
import { TextParts } from "./text-parts.ts";
import { ToolLists } from "./tool-lists.ts";
import { addUsage, type DeltaCount, minus, NO_USAGE, withLost } from "./usage.ts";

/**
 * Turns what the model does (`ModelDelta`) into OpenAI's events and into the items of the final body.
 *
 * Each kind of item has a room of its own, which knows what of it is open: `TextParts`, `ClientCalls`, `ServerCalls`,
 * `ToolLists`. The builder decides which of them a delta is for, and what ends when something else begins. Stream, body
 * and store have the same item objects, so their ids and texts cannot differ. The order of events is that of the
 * strictest public reader, openai-node's `ResponseStream`.
 */

export interface BuilderOptions {
  address: TurnAddress;
  /** Absent when nobody streams: no event is built then. */
  sink: EventSink | undefined;
  /** Pad delta events with random characters (`stream_options.include_obfuscation`). */
  obfuscation: boolean;
  /** Reasoning becomes items (`include_reasoning`), and these show it in this form; undefined drops it. */
  reasoning: "reasoning_text" | "summary_text" | "hidden_text" | undefined;
  /** Seals reasoning for clients that keep it, where the operator has keys for it. */
  seal: ReasoningSeal | undefined;
  /** What the model did not get of the input. */
  transformations: readonly InputTransformation[];
  /** The tool of the client's that the model means by a name, if it means one. */
  clientTool: (name: string) => ClientTool | undefined;
  /** Names of the client's tools that may be called, or undefined for any (`tool_choice`: `none`, `allowed_tools`). */
  allowedCalls: ReadonlySet<string> | undefined;
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
  /** What all that the turn puts out may take as JSON, in UTF-16 units: more could not be kept. */
  room: number;
  /** The output is given as raw messages, too (`enable_response_messages`). */
  withMessages: boolean;
  /** Raw messages before the turn's input (`previous_input_messages`), and the id of the input's first item. */
  previous: RawMessage[] | undefined;
  firstInput: string | undefined;
}

/** What one round has done that its log does not tell. */
interface Round {
  /** Calls that it has made. */
  calls: number;
  /** Calls of this server's tools beyond what the turn may make. */
  ignoredCalls: number;
  /** Indices of calls for which nothing more is taken: they are over, or not allowed. */
  closedIndices: Set<number>;
  /** It may call this server's tools. What a model calls that was not offered any is ignored. */
  offersServerTools: boolean;
  /** It has ended in what is no answer. */
  noAnswer: NoAnswer | undefined;
  /** Why the model stopped, once it has said so. */
  finish: FinishReason | undefined;
}

function newRound(calls: number): Round {
  return {
    calls,
    ignoredCalls: 0,
    closedIndices: new Set(),
    offersServerTools: true,
    noAnswer: undefined,
    finish: undefined,
  };
}

/** The model server is away: since when, and until when it is waited for. Unix milliseconds. */
export interface Outage {
  since: number;
  until: number;
}

/**
 * A closed response as JSON text: `head` is all of it but `output`, so that the store can keep the two apart.
 * `messages` are the raw messages behind its items (`Replay[]`), or null where the engine has none.
 */
export interface ClosedResponse {
  head: string;
  output: string;
  /** The output as it is kept: also with what no client gets to see. */
  kept: string;
  messages: string | null;
  /** What the turn has used, as far as is known: rounds that broke off have put out deltas, and told no usage. */
  spent: { usage: Usage | null; deltas: number; rounds: number };
}

/** Joins the two halves of a closed response to its JSON body. */
export function responseBody(closed: Pick<ClosedResponse, "head" | "output">): string {
  return `${closed.head.slice(0, -1)},"output":${closed.output}}`;
}

export class ResponseBuilder {
  readonly state: TurnState;
  readonly #response: ResponseObject;
  readonly #options: BuilderOptions;
  readonly #writer: EventWriter;
  readonly #size: OutputSize;
  readonly #texts: TextParts;
  readonly #clientCalls: ClientCalls;
  readonly #serverCalls: ServerCalls;
  readonly #lists: ToolLists;
  readonly #compactions: Compactions;
  readonly #messages: RawMessages;
  #round: Round;
  #serverCallsBegun: number;
  #progress: number;
  /** The client's call is complete, and its message is yet to come: reasoning is held for it. */
  #awaitsMessage = false;
  /** What signs of life tell of, while it lasts. */
  outage: Outage | undefined;

  /** `response` is the initial response; the builder fills it in. A turn that was cut off goes on from its `state`. */
  constructor(response: ResponseObject, state: TurnState, options: BuilderOptions) {
    this.state = state;
    this.#response = response;
    this.#options = options;
    response.output = state.output;
    response.usage = state.usage;
    if (options.transformations.length > 0) response.input_transformations = [...options.transformations];
    this.#writer = new EventWriter(state, options);
    this.#size = new OutputSize(state, options);
    this.#texts = new TextParts(state, this.#writer, this.#size, {
      citations: options.citations,
      seal: (item, text) =>
        options.seal && sealReasoning(options.seal, { id: item.id, text }, this.#messages.takeUnsealed(), state.output),
    });
    this.#clientCalls = new ClientCalls(state, this.#writer, this.#size, options.usedCallIds);
    this.#serverCalls = new ServerCalls(this.#writer, response, options.hostedTools, options.callDetails);
    this.#lists = new ToolLists(state, this.#writer, this.#size);
    this.#compactions = new Compactions(state, this.#writer, this.#size);
    this.#messages = new RawMessages(state, response, this.#size, options);
    this.#round = newRound(roundItems(state).filter((item) => isClientCall(item) || isServerCall(item)).length);
    this.#serverCallsBegun = withoutSuperseded(state, state.output).filter(isServerCall).length;
    this.#progress = state.deltas.all;
    this.#restoreServerCalls();
  }

  #restoreServerCalls(): void {
    const { output, superseded, answering, round } = this.state;
    const calls = answering?.calls ?? round.called;
    for (const [outputIndex, item] of output.entries()) {
      if (!isServerCall(item) || superseded.has(item.id)) continue;
      if (item.status === "completed" || item.status === "failed" || item.status === "incomplete") continue;
      const pending = calls.find((call) => call.item === item.id);
      this.#serverCalls.restore(item, outputIndex, pending);
    }
  }

  /** Nothing more can be kept of what the model says. */
  get isFull(): boolean {
    return this.#size.isFull;
  }

  /** Whether there is room for this, too. */
  hasRoomFor(value: unknown): boolean {
    return this.#size.hasRoomFor(value);
  }

  /** Why the model stopped, once it has said so. */
  get finishReason(): FinishReason | undefined {
    return this.#round.finish;
  }

  /** What the turn has used so far, as far as the model server has said it. */
  get usage(): Usage | null {
    return this.#response.usage;
  }

  /** Grows with all that the model says, also with what no event tells (yet). */
  get progress(): number {
    return this.#progress;
  }

  /** The items of the rounds before this one. */
  get earlierOutput(): Item[] {
    const earlier = this.state.output.slice(0, this.state.round.firstItem);
    return withThoughts(this.state, withoutSuperseded(this.state, earlier)) as Item[];
  }

  /** The turn was cut off after its first generation had ended. */
  get hasEarlierRounds(): boolean {
    return this.#messages.hasEarlierRounds;
  }

  /** The raw messages of this turn, those after all items apart. */
  get messages(): Pick<RawMessages, "replays" | "trailing"> {
    return this.#messages;
  }

  /** The raw messages that the prompt is made of, for `input_messages`. */
  set inputMessages(messages: RawMessage[]) {
    this.#messages.setInput(messages);
  }

  record(record: TurnRecord): void {
    this.#writer.record(record);
  }

  // The response as a whole

  /** `response.created` with the response queued, and `response.queued`: a background run that waits to begin. */
  queue(): void {
    if (this.state.sequence > 0) return;
    const snapshot = JSON.stringify({ ...this.#response, status: "queued" });
    this.#writer.lifecycle("response.created", snapshot);
    this.#writer.lifecycle("response.queued", snapshot);
  }

  /** `response.created` of a response that stays empty: it uses no token. */
  warmUp(): void {
    this.#writer.lifecycle("response.created", JSON.stringify(this.#response));
    this.#response.usage = NO_USAGE;
  }

  /** `response.created`, unless it has been said before, and `response.in_progress`. */
  start(): void {
    if (!this.#writer.isRead || this.state.started) return;
    const snapshot = JSON.stringify(this.#response);
    if (this.state.sequence === 0) this.#writer.lifecycle("response.created", snapshot);
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

  /**
   * Ends every open item and settles the response; no terminal event yet, because what is settled must be stored
   * before anybody is told. May be called again with another outcome when storing failed.
   */
  close(outcome: Outcome): ClosedResponse {
    const truncated = outcome.status !== "completed";
    const isSilent = outcome.status === "failed" || outcome.status === "cancelled";
    const last = this.state.output.length - 1;
    this.#texts.close(truncated && this.#texts.outputIndex === last ? "incomplete" : "completed", isSilent);
    this.#texts.release(isSilent);
    this.#clientCalls.closeTurn(truncated, last, isSilent);
    this.#serverCalls.close(isSilent);
    this.#lists.closeUnfinished();
    const response = this.#response;
    response.status = outcome.status;
    response.completed_at = outcome.status === "completed" ? seconds(this.#options.clock()) : null;
    response.incomplete_details = outcome.status === "incomplete" ? { reason: outcome.reason } : null;
    response.error = outcome.status === "failed" ? toResponseError(outcome.error) : null;
    const toolUsage = toolUsageOf(response);
    if (toolUsage) response.tool_usage = toolUsage;
    const { output, ...head } = response;
    const shown = JSON.stringify(output);
    const kept = this.state.thoughts.size === 0 ? shown : JSON.stringify(withThoughts(this.state, output));
    const { replays } = this.#messages;
    const messages = replays.length === 0 ? null : JSON.stringify(replays);
    // Items are what counts: without the messages behind them they are rendered anew.
    const fits = kept.length + (messages?.length ?? 0) <= this.#options.room;
    const spent = { usage: response.usage, deltas: this.state.deltas.all, rounds: this.state.rounds };
    return { head: JSON.stringify(head), output: shown, kept, messages: fits ? messages : null, spent };
  }

  /**
   * The terminal event of a closed response; a failure is preceded by `error`, nested and flat for all clients, unless
   * the sink takes it alone. OpenAI has no event for a cancelled response: it ends as `response.incomplete` with a response that says `cancelled`.
   */
  terminate(outcome: Outcome, closed: ClosedResponse): void {
    if (outcome.status === "failed") {
      const { message, type, param, code } = outcome.error;
      this.#writer.record({ failure: outcome.error.toFields() });
      if (!this.#options.sink?.failsAlone) {
        this.#writer.emit({ type: "error", error: { type, code, message, param }, code, message, param });
      }
    }
    const name = outcome.status === "cancelled" ? "incomplete" : outcome.status;
    this.#writer.lifecycle(`response.${name}`, responseBody(closed));
  }

  // What the model says

  apply(delta: ModelDelta): void {
    if (this.#awaitsMessage && delta.kind !== "message") this.#completeItems(false);
    switch (delta.kind) {
      case "text":
        this.#appendText("output_text", delta.text, delta.logprobs, delta.phase);
        return;
      case "reasoning":
        if (this.#options.reasoning) this.#appendText(this.#options.reasoning, delta.text);
        else if (this.#size.keepsSampled) this.#size.addText(delta.text);
        return;
      case "refusal":
        this.#appendText("refusal", delta.text);
        return;
      case "tool_call":
        this.#appendCall(delta);
        return;
      case "call_cut":
        this.#texts.release();
        if (!this.#clientCalls.cut(delta.index)) return;
        this.#round.closedIndices.add(delta.index);
        return;
      case "item_done":
        // Reasoning is done before the call that it is sealed with.
        if (this.#texts.holds && this.#clientCalls.isOpen) this.#awaitsMessage = true;
        else this.#completeItems(this.#sealsMessages);
        return;
      case "resumed_call":
        if (!this.#resumeServerCall(delta)) this.#resumeClientCall(delta);
        return;
      case "message":
        if (this.#awaitsMessage) this.#completeCall(delta);
        else this.#messages.keep(delta);
        return;
      case "sampled":
        this.#size.keepsSampled = true;
        this.#progress += 1;
        this.#writer.record({ sampled: delta.sampled });
        return;
      case "broken":
      case "ask_again":
        this.#round.noAnswer = delta;
        return;
      case "usage":
        this.#response.usage = addUsage(this.#response.usage, withLost(delta.usage, this.state.round.lost));
        return;
      case "kv_transfer_params":
        this.#response.kv_transfer_params = delta.value;
        return;
      case "finish":
        this.#round.finish = delta.reason;
        return;
    }
  }

  /** Keeps what is buffered, if it has changed: to be called after the deltas of each upstream read. */
  recordBuffered(): void {
    const { buffered } = this.#texts;
    if (buffered !== this.state.buffered) this.#writer.record({ buffered });
  }

  #appendText(kind: OpenPart["kind"], text: string, logprobs?: TokenLogprob[], phase?: Phase): void {
    if (text === "" && !logprobs?.length) return;
    if (!this.#texts.isOpen(kind)) {
      if (!this.#texts.joinsOpenItem(kind)) this.#makeWay();
      this.#texts.begin(kind, phase);
    }
    this.#progress += 1;
    this.#texts.append(text, logprobs);
  }

  #appendCall(delta: Extract<ModelDelta, { kind: "tool_call" }>): void {
    const { index, arguments: text } = delta;
    if (this.#round.closedIndices.has(index)) return;
    if (this.#serverCalls.has(index) || this.#beginServerCall(delta)) {
      this.#progress += 1;
      this.#size.addText(text);
      this.#serverCalls.append(index, text);
      return;
    }
    const isOpen = this.#clientCalls.has(index) || this.#clientCalls.resume(delta) || this.#beginClientCall(delta);
    if (!isOpen || text === "") return;
    this.#progress += 1;
    this.#clientCalls.append(index, text);
  }

  /** Begins a call of a tool that this server runs, or ignores it. False when it is none. */
  #beginServerCall({ index, name }: Extract<ModelDelta, { kind: "tool_call" }>): boolean {
    const tool = name === undefined || this.#clientCalls.has(index) ? undefined : this.#options.serverTool(name);
    if (!tool || name === undefined) return false;
    const round = this.#round;
    const isAllowed = round.offersServerTools && this.serverCallsLeft > 0 && this.#options.offers(name);
    if (!isAllowed || (!this.#options.parallelCalls && round.calls > 0)) {
      round.closedIndices.add(index);
      round.ignoredCalls += 1;
      return true;
    }
    this.#countServerCall();
    this.#size.addFrames(1);
    this.#makeWay();
    this.#serverCalls.begin(index, name, tool);
    return true;
  }

  /** A call in whose middle the generation goes on. Where nothing of it was to be seen yet, it begins. */
  #resumeServerCall({ index, name, arguments: text }: Extract<ModelDelta, { kind: "resumed_call" }>): boolean {
    const tool = this.#options.serverTool(name);
    if (!tool) return false;
    if (this.#round.closedIndices.has(index) || this.#serverCalls.resume(index, name, tool)) return true;
    this.#countServerCall();
    this.#serverCalls.begin(index, name, tool, text);
    return true;
  }

  #resumeClientCall({ index, name, arguments: text }: Extract<ModelDelta, { kind: "resumed_call" }>): void {
    if (this.#round.closedIndices.has(index)) return;
    const isNew = !this.#clientCalls.has(index);
    const tool = this.#options.clientTool(name);
    if (isNew && this.#clientCalls.resumeWith(index, tool, text) && this.#clientCalls.has(index))
      this.#round.calls += 1;
  }

  #countServerCall(): void {
    this.#serverCallsBegun += 1;
    this.#round.calls += 1;
  }

  /** Begins a call that the client answers. False when it is not allowed. */
  #beginClientCall({ index, name = "", callId }: Extract<ModelDelta, { kind: "tool_call" }>): boolean {
    const round = this.#round;
    const isRefused = this.#options.allowedCalls?.has(name) === false;
    if (name === "" || isRefused || (!this.#options.parallelCalls && round.calls > 0)) {
      round.closedIndices.add(index);
      return false;
    }
    round.calls += 1;
    this.#makeWay(this.#sealsMessages && !this.#clientCalls.isOpen);
    this.#clientCalls.begin(index, this.#options.clientTool(name), name, callId);
    return true;
  }

  /** Something else begins: text ends, and so do calls whose arguments are complete. `holds`: reasoning is held. */
  #makeWay(holds = false): void {
    this.#texts.close("completed", false, holds);
    if (!holds) this.#texts.release();
    this.#closeIndices(this.#clientCalls.closeComplete());
    this.#serverCalls.completeReady(isJson);
  }

  /** All that is open is complete. `holds`: reasoning is held. */
  #completeItems(holds: boolean): void {
    this.#awaitsMessage = false;
    this.#texts.close("completed", false, holds);
    if (!holds) this.#texts.release();
    this.#closeIndices(this.#clientCalls.closeAll());
    this.#serverCalls.completeAll();
  }

  /** The client's call is complete, and this is its message: reasoning is sealed with it, and done just before it. */
  #completeCall(message: Extract<ModelDelta, { kind: "message" }>): void {
    let isKept = false;
    const seal = () => {
      if (isKept) return;
      isKept = true;
      this.#messages.keep(message);
      this.#texts.release();
    };
    this.#closeIndices(this.#clientCalls.closeAll(seal));
    seal();
    this.#completeItems(false);
  }

  /** Reasoning is sealed with the messages behind it, which come after its text, and with that of the call after it. */
  get #sealsMessages(): boolean {
    return this.#options.seal?.engine === "harmony";
  }

  /** What an upstream still sends for a call that is over belongs to no other. */
  #closeIndices(indices: readonly number[]): void {
    for (const index of indices) this.#round.closedIndices.add(index);
  }

  // A generation that broke off

  /**
   * What this round has generated, as items that a prompt can end with: an open part is there with its text so far.
   * An unfinished function call is there too; an engine that cannot go on with it says so.
   */
  partialItems(): OutputItem[] {
    const open = this.#texts.partialItem();
    return withThoughts(this.state, roundItems(this.state))
      .filter((item) => item.type !== "mcp_list_tools")
      .map((item) => (item.id === open?.id ? open : item));
  }

  /** Deltas of this round so far, without those that it has said in vain. */
  get roundDeltas(): DeltaCount {
    const { deltas, round } = this.state;
    return minus(minus(deltas, round.deltasBefore), round.lost);
  }

  /**
   * Ends this round's items from the one of this id on, because the model is to say anew what broke off: those that are
   * open are incomplete. Gives what they have cost.
   */
  breakOff(id: string): DeltaCount {
    const { output, deltas, deltasBefore, round } = this.state;
    const from = output.findIndex((item) => item.id === id);
    const broken = output.slice(from).filter((item) => item.type !== "mcp_list_tools");
    this.#writer.record({ superseded: broken.map((item) => item.id) });
    this.#texts.close("incomplete", false);
    this.#texts.release();
    this.#serverCalls.close(false);
    this.#forgetCalls(broken);
    return minus(deltas, deltasBefore[from] ?? round.deltasBefore);
  }

  /** Forgets the calls of which nothing was shown yet: the model is to say them anew, and to count from the beginning. */
  forgetUnshown(): void {
    const forgotten = this.#serverCalls.forgetUnshown();
    this.#serverCallsBegun -= forgotten;
    this.#round.calls -= forgotten + this.#clientCalls.forgetUnshown();
    this.#round.closedIndices.clear();
  }

  /** Takes back all that this round has put out, where nobody has seen it. Gives what that has cost. */
  withdrawRound(): DeltaCount {
    const { state } = this;
    const isKept = (item: OutputItem, index: number) => index < state.round.firstItem || item.type === "mcp_list_tools";
    const withdrawn = state.output.filter((item, index) => !isKept(item, index));
    const [first] = withdrawn;
    const begun = first && state.deltasBefore[state.output.indexOf(first)];
    state.output = state.output.filter(isKept);
    this.#response.output = state.output;
    this.#texts.withdraw();
    this.#clientCalls.withdraw();
    this.#serverCalls.withdraw();
    this.#forgetCalls(withdrawn);
    return minus(state.deltas, begun ?? state.deltas);
  }

  /** The model counts its calls from the beginning again, and those that broke off were none. */
  #forgetCalls(items: readonly OutputItem[]): void {
    this.#serverCallsBegun -= items.filter(isServerCall).length;
    this.#round.calls = 0;
    this.#round.closedIndices.clear();
    this.#clientCalls.forgetResumed();
  }

  // Rounds, and the answers to their calls

  /** The generation of a round has ended by itself: all that it has said is complete. Gives the calls to be answered. */
  endGeneration(): PendingCall[] {
    this.#completeItems(false);
    return this.#serverCalls.pending;
  }

  /** What the generation has ended in instead of an answer. */
  get noAnswer(): NoAnswer | undefined {
    return this.#round.noAnswer;
  }

  /** The model is asked again in the same round. `isCounted`: it was at fault. */
  askAgain(isCounted: boolean): void {
    if (isCounted) this.#writer.record({ asked_again: true });
    this.#round = { ...newRound(0), offersServerTools: this.#round.offersServerTools };
    this.#messages.askAgain();
  }

  /** Output tokens of this round that count: those of answers that could not be used, and of words said in vain. */
  get tokensInRound(): number {
    const { usage, round } = this.state;
    return Math.max(round.lost.all, (this.#response.usage?.output_tokens ?? 0) - (usage?.output_tokens ?? 0));
  }

  /** Calls that this round has made beyond what the turn may. */
  get ignoredCalls(): number {
    return this.#round.ignoredCalls;
  }

  /** Calls of this server's tools that the turn may still make. */
  get serverCallsLeft(): number {
    return this.#options.maxServerCalls - this.#serverCallsBegun;
  }

  /** Whether the round may call this server's tools. */
  set offersServerTools(offers: boolean) {
    this.#round.offersServerTools = offers;
  }

  /** The generation is over, and its calls are to be answered; then the model is asked `again` with these messages. */
  beginAnswering(again: RawMessage[]): void {
    this.#writer.record({
      answering: {
        items: this.state.output.length,
        ...this.#messages.left,
        usage: this.#response.usage,
        calls: this.#serverCalls.pending,
        again,
      },
    });
    this.#messages.beginRound();
  }

  /** Calls that have no answer yet. */
  get pendingCalls(): PendingCall[] {
    return this.#serverCalls.pending;
  }

  /** Raw messages of a call, before it is answered. */
  messagesOf(call: PendingCall): readonly RawMessage[] {
    return this.#messages.of(call.item);
  }

  /** A call is about to be run. */
  startCall(call: PendingCall): void {
    this.#writer.record({ dispatched: call.item });
    this.#serverCalls.start(call);
  }

  finishCall(call: PendingCall, outcome: ToolOutcome, answer: CallAnswer): void {
    this.#writer.record({ answered: answer });
    this.#serverCalls.finish(call, outcome);
    this.#size.addFrames(1);
    this.#size.addJson(3 * JSON.stringify(answer).length);
    this.#messages.addAnswer(answer.messages);
  }

  /** A call that the client has approved. It counts like any other. */
  addApprovedCall(call: ApprovedCall): void {
    this.#serverCallsBegun += 1;
    this.#size.addFrames(1);
    this.#size.addText(call.arguments);
    this.#serverCalls.addApproved(call);
  }

  /** Lists of the tools of MCP servers. */
  get lists(): Pick<ToolLists, "begin" | "end"> {
    return this.#lists;
  }

  /** The first words of a summary are there: a compaction begins. */
  beginCompaction(): void {
    this.#compactions.begin();
  }

  /** The compaction is done: `content` stands for the prompt, which had so many tokens, and `usage` is the summary's. */
  endCompaction(content: string, usage: Usage | undefined, promptTokens: number): void {
    this.addSummaryUsage(usage, promptTokens);
    this.#compactions.end(content);
    this.#messages.beginRound();
  }

  /** A summary counts, whatever becomes of it. */
  addSummaryUsage(usage: Usage | undefined, promptTokens: number): void {
    if (!usage) return;
    this.#response.usage = addUsage(this.#response.usage, usage, promptTokens);
    const { usage: total } = this.#response;
    this.#writer.record({ summarized: { usage: total, outputTokens: usage.output_tokens } });
  }

  /** Whether this round has left something that only the client can answer: its own calls, and those to approve. */
  get waitsForClient(): boolean {
    const round = this.state.output.slice(this.state.round.firstItem);
    // A call that was cut is not one.
    return round.some(
      (item) => (isClientCall(item) && item.status !== "incomplete") || item.type === "mcp_approval_request",
    );
  }

  /** Begins the next round. */
  nextRound(): void {
    const { trailing, answering } = this.state;
    const again = answering?.again ?? [];
    this.#messages.addAnswer(again);
    this.#writer.record({ round: { trailing: [...trailing, ...again] } });
    this.#messages.beginRound();
    this.#round = newRound(0);
  }
}

/** `response.error` knows fewer codes than HTTP errors do (openai 7.57 `ResponseError.code`). */
function toResponseError(error: ApiError): { code: string; message: string } {
  const known = error.code === "rate_limit_exceeded" || error.code === "context_length_exceeded";
  return { code: known ? error.code : error.status < 500 ? "invalid_prompt" : "server_error", message: error.message };
}

/** Whole seconds of a time in milliseconds. */
function seconds(ms: number): number {
  return Math.floor(ms / 1000);
}
