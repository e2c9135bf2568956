import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { isClientCall, isServerCall, type OutputItem } from "@responses-edge/responses-api/items/registry";
import type { Usage } from "@responses-edge/responses-api/response";
import { type ClientTool, ClientTools } from "@responses-edge/responses-api/tool-names";
import { ClientCallItems } from "./client-call-items.ts";
import type { FinishReason, ModelDelta, Phase, TokenLogprob } from "./contract/engine.ts";
import type { NoAnswer } from "./decide.ts";
import type { TurnOptions } from "./options.ts";
import type { CallParts, PluginCallItems } from "./plugin-call-items.ts";
import type { DeltaCount } from "./records.ts";
import type { TurnResponse } from "./response.ts";
import { sealReasoning } from "./sealed-content/sealed-reasoning.ts";
import { minus, type OpenPart, roundItems, withThoughts } from "./state.ts";
import { ITEM_TYPES, TextParts } from "./text-parts.ts";

/** The output of the model in one round: decides which item a delta belongs to, and what ends when something else begins. */

type CallDelta = Extract<ModelDelta, { kind: "tool_call" }>;
type ResumedCall = Extract<ModelDelta, { kind: "resumed_call" }>;

/** The calls that a request lets a model make. */
export interface CallRules {
  /** Names of the client's tools that may be called; undefined for any (`tool_choice`: `none`, `allowed_tools`). */
  allowed: ReadonlySet<string> | undefined;
  /** More than one call per round (`parallel_tool_calls`). */
  parallel: boolean;
}

export interface RoundOptions extends Pick<TurnOptions, "asked" | "tools" | "secrets"> {
  /** Call ids in the prompt: a model's call id that repeats one of them is replaced. */
  usedCallIds: Set<string>;
  /** The client's tool that the model means by a name; undefined if there is none. */
  clientTool: (name: string) => ClientTool | undefined;
  /** The request with the tools that the prompt's items have loaded. */
  prompted: CreateRequest;
}

/** The parts of a turn's output that a round changes. */
interface RoundParts extends CallParts {
  readonly response: TurnResponse;
  readonly calls: PluginCallItems;
}

/** The kind of a call that begins: the client's, this server's, one beyond the limit of these, or none. */
export type Beginning = "client" | "server" | "ignored" | "dropped";

/** The facts of a call that begins. */
export interface BegunCallFacts {
  name: string;
  /** It calls a hosted tool, which may run now (`mayRun`). */
  isServers: boolean;
  mayRun: boolean;
  /** Earlier calls of the round. */
  calls: number;
}

export function beginningOf(
  { name, isServers, mayRun, calls }: BegunCallFacts,
  { allowed, parallel }: CallRules,
): Beginning {
  const isOneTooMany = !parallel && calls > 0;
  if (isServers) return mayRun && !isOneTooMany ? "server" : "ignored";
  return name === "" || isOneTooMany || allowed?.has(name) === false ? "dropped" : "client";
}

export class ModelOutput {
  readonly #output: RoundParts;
  readonly #options: RoundOptions;
  readonly #rules: CallRules;
  /** The form in which reasoning becomes items; undefined drops it. */
  readonly #reasoning: ReturnType<typeof reasoningForm>;
  readonly #texts: TextParts;
  /** Absent until the model has called a tool of the client's. */
  #clientCalls: ClientCallItems | undefined;
  /** Calls that the round has made. */
  #calls: number;
  /** There may be open calls. */
  #hasCalled: boolean;
  /** Indices of calls that take nothing more: they are over, or not allowed. */
  readonly #closed = new Set<number>();
  /** The client's call is complete, and its message has not come yet: reasoning is held for it. */
  #awaitsMessage = false;
  /** Reasoning is sealed with its raw messages, which come after its text, and with that of the next call. */
  readonly #sealsMessages: boolean;
  /** Why the model stopped, once it has. */
  finish: FinishReason | undefined;
  /** The fault of an answer that has markup of the model's in its text. */
  unread: string | undefined;
  /** The end of a generation without an answer. */
  noAnswer: NoAnswer | undefined;
  /** Grows with all output of the model, even without events (yet). */
  progress: number;

  constructor(output: RoundParts, options: RoundOptions) {
    const { state, messages } = output;
    const { seal } = options.secrets;
    this.#output = output;
    this.#options = options;
    const { tool_choice: choice, parallel_tool_calls: parallel } = options.asked.request;
    const isLimited = choice === "none" || (typeof choice === "object" && choice?.type === "allowed_tools");
    const offered = isLimited ? ClientTools.of(options.prompted.tools).offered(choice) : undefined;
    this.#rules = { allowed: offered && new Set(offered.map(({ flatName }) => flatName)), parallel: parallel ?? true };
    this.#reasoning = reasoningForm(options);
    this.#texts = new TextParts(output, {
      session: options.tools.session,
      seal: seal && ((item, text) => sealReasoning(seal, { id: item.id, text }, messages.takeUnsealed(), state.output)),
    });
    if (state.output.length > 0) this.#clientCalls = new ClientCallItems(output, options.usedCallIds, this.#closed);
    const made = state.output.length > 0 ? roundItems(state) : [];
    this.#calls = made.filter((item) => isClientCall(item) || isServerCall(item)).length;
    this.#hasCalled = this.#calls > 0;
    this.#sealsMessages = seal?.engine === "harmony";
    this.progress = state.deltas.all;
  }

  /** The usage that the model server has reported so far. */
  get usage(): Usage | null {
    return this.#output.response.object.usage;
  }

  /** Begins a generation, which has nothing to do with earlier output. */
  begin(): void {
    this.#calls = 0;
    this.#closed.clear();
    this.finish = undefined;
    this.noAnswer = undefined;
    this.unread = undefined;
    this.#output.calls.ignored = 0;
  }

  apply(delta: ModelDelta): void {
    if (this.#awaitsMessage && delta.kind !== "message") this.end();
    switch (delta.kind) {
      case "text":
        this.#appendText("output_text", delta.text, delta.logprobs, delta.phase);
        return;
      case "reasoning":
        if (this.#reasoning) this.#appendText(this.#reasoning, delta.text);
        else if (this.#output.size.keepsSampled) this.#output.size.addText(delta.text);
        return;
      case "refusal":
        this.#appendText("refusal", delta.text);
        return;
      case "tool_call":
        this.#appendCall(delta);
        return;
      case "call_cut":
        this.#texts.release();
        this.#clientCalls?.cut(delta.index);
        return;
      case "item_done":
        // Reasoning is done before the call that it is sealed with.
        if (this.#texts.holds && this.#clientCalls?.isOpen) this.#awaitsMessage = true;
        else this.end(true, this.#sealsMessages);
        return;
      case "resumed_call":
        this.#resumeCall(delta);
        return;
      case "message":
        if (this.#awaitsMessage) this.#completeCall(delta);
        else this.#output.messages.keep(delta);
        return;
      case "sampled":
        this.#output.size.keepsSampled = true;
        this.progress += 1;
        this.#output.writer.record({ sampled: delta.sampled });
        return;
      case "broken":
      case "ask_again":
        this.noAnswer = delta;
        return;
      case "held":
        this.progress += 1;
        return;
      case "unread":
        this.unread = delta.why;
        return;
      case "usage":
      case "kv_transfer_params":
        this.#output.response.take(delta);
        return;
      case "finish":
        this.finish = delta.reason;
        return;
    }
  }

  /** Keeps what is buffered, if it has changed: to be called after the deltas of each upstream read where text may be cited. */
  recordBuffered(): void {
    const { buffered } = this.#texts;
    if (buffered !== this.#output.state.buffered) this.#output.writer.record({ buffered });
  }

  #appendText(kind: OpenPart["kind"], text: string, logprobs?: TokenLogprob[], phase?: Phase): void {
    if (text === "" && !logprobs?.length) return;
    const open = this.#output.state.openPart?.kind;
    if (open !== kind) {
      // A refusal may follow text within its item.
      if (!open || ITEM_TYPES[open] !== ITEM_TYPES[kind]) this.end(false);
      this.#texts.begin(kind, phase);
    }
    this.progress += 1;
    this.#texts.append(text, logprobs);
  }

  #appendCall(delta: CallDelta): void {
    const { index, arguments: text } = delta;
    if (this.#closed.has(index)) return;
    const { calls } = this.#output;
    if (calls.append(index, text)) this.progress += 1;
    else if (this.#clientCalls?.has(index) || this.#clientCalls?.resume(delta)) {
      if (text === "") return;
      this.progress += 1;
      this.#clientCalls.append(index, text);
    } else if (this.#beginCall(delta)) this.#appendCall(delta);
  }

  /** Begins a call. False if it is dropped. */
  #beginCall({ index, name = "", callId }: CallDelta): boolean {
    const { calls } = this.#output;
    const { tool, isOffered = false } = (name !== "" && this.#options.tools.session?.resolve(name)) || {};
    const mayRun = isOffered && calls.isOffered && calls.left > 0;
    const facts = { name, isServers: tool !== undefined, mayRun, calls: this.#calls };
    const beginning = beginningOf(facts, this.#rules);
    if (beginning === "ignored") calls.ignored += 1;
    if (beginning === "ignored" || beginning === "dropped") {
      this.#closed.add(index);
      return false;
    }
    this.#calls += 1;
    if (tool) {
      this.end(false);
      calls.begin(index, name, tool);
    } else {
      this.end(false, this.#sealsMessages && !this.#clientCalls?.isOpen);
      this.#clientCalls ??= new ClientCallItems(this.#output, this.#options.usedCallIds, this.#closed);
      this.#clientCalls.begin(index, this.#options.clientTool(name), name, callId);
    }
    this.#hasCalled = true;
    return true;
  }

  /** Continues a call in the middle of which the generation was cut off. If it was not shown yet, it begins. */
  #resumeCall({ index, name, arguments: text }: ResumedCall): void {
    const { calls } = this.#output;
    const tool = this.#options.tools.session?.resolve(name)?.tool;
    if (this.#closed.has(index)) return;
    this.#hasCalled = true;
    if (tool) {
      if (calls.resume(index, name, tool)) return;
      this.#calls += 1;
      calls.begin(index, name, tool, text);
      return;
    }
    this.#clientCalls ??= new ClientCallItems(this.#output, this.#options.usedCallIds, this.#closed);
    if (this.#clientCalls.has(index)) return;
    const isResumed = this.#clientCalls.resumeWith(index, this.#options.clientTool(name), text);
    if (isResumed && this.#clientCalls.has(index)) this.#calls += 1;
  }

  /**
   * Ends text and calls, because something else begins, or the generation has ended by itself: `all` calls, or those with complete arguments.
   * `holds`: reasoning is held.
   */
  end(all = true, holds = false): void {
    this.#awaitsMessage = false;
    const { request, isTask } = this.#options.asked;
    if (request.multi_agent?.enabled && !isTask) this.#namePhase(all ? "final_answer" : "commentary");
    this.#texts.close("completed", false, holds);
    if (!this.#hasCalled) return;
    this.#clientCalls?.close(all);
    this.#output.calls.complete(all);
  }

  /** Clients find the root's answer among the messages of all agents by its phase, which chat models do not tell. */
  #namePhase(phase: Phase): void {
    const item = this.#output.state.output[this.#texts.outputIndex ?? -1];
    if (item?.type === "message") item.phase ??= phase;
  }

  /** Takes the message of a client's complete call: reasoning is sealed with it, and done just before the call. */
  #completeCall(message: Extract<ModelDelta, { kind: "message" }>): void {
    let isKept = false;
    const seal = () => {
      if (isKept) return;
      isKept = true;
      this.#output.messages.keep(message);
      this.#texts.release();
    };
    this.#clientCalls?.close(true, seal);
    seal();
    this.end();
  }

  /** Ends the turn. `isTruncated`: in the middle of an open item. `isSilent`: without events. */
  close(isTruncated: boolean, isSilent: boolean): void {
    const last = this.#output.state.output.length - 1;
    this.#texts.close(isTruncated && this.#texts.outputIndex === last ? "incomplete" : "completed", isSilent);
    this.#clientCalls?.closeTurn(isTruncated, last, isSilent);
  }

  // A generation that broke off

  /**
   * This round's output, as items that a prompt can end with: an open part has its text so far. An unfinished function
   * call is included; an engine that cannot continue it says so.
   */
  get partialItems(): OutputItem[] {
    const { state } = this.#output;
    const open = this.#texts.partialItem();
    return withThoughts(state, roundItems(state))
      .filter((item) => item.type !== "mcp_list_tools")
      .map((item) => (item.id === open?.id ? open : item));
  }

  /**
   * Ends this round's items from the one with this id on, because the model is to generate them anew; open ones are
   * incomplete. Gives their deltas.
   */
  breakOff(id: string): DeltaCount {
    const { output, deltas, deltasBefore, round } = this.#output.state;
    const from = output.findIndex((item) => item.id === id);
    const broken = output.slice(from).filter((item) => item.type !== "mcp_list_tools");
    this.#output.writer.record({ superseded: broken.map((item) => item.id) });
    this.#texts.close("incomplete", false);
    this.#output.calls.close(false);
    this.#forgetCalls(broken);
    return minus(deltas, deltasBefore[from] ?? round.deltasBefore);
  }

  /** Forgets the calls that were not shown yet: the model is to generate them anew, and to count from the beginning. */
  forgetUnshown(): void {
    this.#calls -= this.#output.calls.forgetUnshown() + (this.#clientCalls?.forgetUnshown() ?? 0);
    this.#closed.clear();
  }

  /** Withdraws this round's whole output, which nobody has seen. Gives its deltas. */
  withdraw(): DeltaCount {
    const { state, calls } = this.#output;
    const isKept = (item: OutputItem, index: number) => index < state.round.firstItem || item.type === "mcp_list_tools";
    const withdrawn = state.output.filter((item, index) => !isKept(item, index));
    const [first] = withdrawn;
    const begun = first && state.deltasBefore[state.output.indexOf(first)];
    // In place, because the response has the same list.
    state.output.splice(0, state.output.length, ...state.output.filter(isKept));
    state.round.sampled = undefined;
    const ids = new Set<string | null>(withdrawn.map(({ id }) => id));
    state.cuts = state.cuts.filter(({ item }) => !ids.has(item));
    this.#output.messages.beginRound();
    this.#texts.withdraw();
    this.#clientCalls?.withdraw();
    calls.withdraw();
    this.#forgetCalls(withdrawn);
    return minus(state.deltas, begun ?? state.deltas);
  }

  /** Forgets calls that broke off: the model counts its calls from the beginning again. */
  #forgetCalls(items: readonly OutputItem[]): void {
    this.#output.calls.uncount(items.filter(isServerCall).length);
    this.#calls = 0;
    this.#closed.clear();
    this.#clientCalls?.forgetResumed();
  }
}

/** The form in which reasoning is shown: as a summary if the request asks for one, hidden if the operator hides it. */
function reasoningForm({ asked: { request }, secrets }: RoundOptions) {
  if (request.include_reasoning === false) return undefined;
  if (secrets.hidesReasoning) return "hidden_text";
  const { summary, generate_summary: older } = request.reasoning ?? {};
  return (summary ?? older) ? "summary_text" : "reasoning_text";
}
