import type { Rules } from "@responses-edge/grammar";
import { isJson } from "@responses-edge/responses-api/json";
import { type ClientTool, ClientTools } from "@responses-edge/responses-api/tool-names";
import { mustCall } from "@responses-edge/responses-api/tools";
import type { AnswerFormat } from "@responses-edge/turn/contract/answer-format";
import type { FinishReason, ModelDelta, Prompt, PromptChange } from "@responses-edge/turn/contract/engine";
import { boundRules, callFaultOf, NO_CALL, NO_SUCH_TOOL, withholdsTools } from "../offered-tools.ts";
import { FIRST_MARKED_CALL } from "./marked-text.ts";
import { argumentsObject, type ChatMessage } from "./messages.ts";
import { promptTools } from "./request.ts";
import { salvaged, tellSalvaged } from "./salvage.ts";

/**
 * One answer of a model that may call tools, before it is accepted. A model without a grammar may make mistakes: a call
 * of a tool that was not offered, a call without a name, truncated arguments, arguments outside their schema, an input
 * outside its tool's grammar, text instead of a required call, a final text without its format. The model is then told,
 * and asked again.
 */

export interface DraftOptions {
  /** The server binds the arguments of strict functions to their schemas. */
  bindsStrict: boolean;
  /** The format of the final text, which is held back until it is known to have it. */
  format?: AnswerFormat | undefined;
  /** The model server was given the format, but does not enforce it on every text. */
  wasTold?: boolean;
  /**
   * The answer goes on after calls of its own: nothing has to come, and the model is not asked again. Only calls are
   * given, once they are valid: a model may have its own markup for calls, and write anything after those in another one.
   */
  isAfterCalls?: boolean;
}

/** The calls that an answer may have. */
interface Calls {
  /** Names of the tools that the model may call. */
  offered: ReadonlySet<string>;
  /** The client's tools among them. A hosted tool itself tells the model what is wrong with its arguments. */
  clients: ReadonlyMap<string, ClientTool>;
  /**
   * Names of the client's tools whose calls are shown while they are written: strict ones, where the server binds them, and custom
   * ones without a grammar, whose inputs are long and may be anything.
   */
  live: ReadonlySet<string>;
  /** The grammars of custom tools, by their names. */
  rules: ReadonlyMap<string, Rules>;
  /** A call is required: text instead of one is held back. */
  mustCall: boolean;
}

function callsOf(prompt: Prompt, bindsStrict: boolean): Calls {
  const { request } = prompt;
  const clients = ClientTools.of(request.tools);
  const named = request.tool_choice == null ? undefined : clients.named(request.tool_choice);
  const rules = boundRules(request);
  const callable = new Set<string>();
  const strict = new Set<string>();
  for (const tool of promptTools(prompt, "callable")) {
    if (named && tool.name !== named.flatName) continue;
    callable.add(tool.name);
    if (bindsStrict && tool.strict === true) strict.add(tool.name);
  }
  const answered = new Map<string, ClientTool>();
  const live = new Set<string>();
  for (const client of named ? [named] : clients.offered(request.tool_choice)) {
    const { flatName, tool } = client;
    answered.set(flatName, client);
    if ((tool.type === "custom" && !rules.has(flatName)) || strict.has(flatName)) live.add(flatName);
  }
  return { offered: callable, mustCall: mustCall(request.tool_choice), clients: answered, live, rules };
}

interface DraftCall {
  callId: string | undefined;
  name: string | undefined;
  /** The client's tool of its name. */
  tool: ClientTool | undefined;
  /** The model may call a tool of its name. */
  isOffered: boolean;
  /** Nothing binds its arguments, and nobody here reads them. */
  mayBeCut: boolean;
  index: number;
  arguments: string[];
  /** Why it is invalid, judged after this many pieces of its arguments; and whether they are a whole JSON object. */
  judged: { pieces: number; fault: string | undefined; isWhole: boolean } | undefined;
  /** It was shown, and has ended as an incomplete item. */
  isCut: boolean;
  /** Its deltas, until it is known to be valid. */
  buffered: ModelDelta[];
}

export class Draft {
  readonly #prompt: Prompt;
  readonly #options: DraftOptions & Calls;
  readonly #calls = new Map<number, DraftCall>();
  #newest: DraftCall | undefined;
  /** A call has come that the model may make. */
  #hasOffered = false;
  #text: string[] = [];
  #buffered: ModelDelta[] = [];
  #refused = false;
  /** Text or a call of the answer has been given, and cannot be withdrawn. */
  hasShown = false;
  /** A call was shown, because its server binds its arguments to their schema, and they are outside of it. */
  hasShownInvalid = false;
  #finish: FinishReason | undefined;

  constructor(prompt: Prompt, options: DraftOptions) {
    this.#prompt = prompt;
    this.#options = { ...options, ...callsOf(prompt, options.bindsStrict) };
  }

  /** Takes the deltas of one read. Gives those that are valid whatever follows. */
  read(deltas: readonly ModelDelta[]): ModelDelta[] {
    const out: ModelDelta[] = [];
    const { format, mustCall, isAfterCalls } = this.#options;
    for (const delta of deltas) {
      switch (delta.kind) {
        case "text":
          // Text after a call shows that the call has ended.
          if (this.#newest && delta.text.trim() !== "") this.#release(this.#newest, out);
          this.#text.push(delta.text);
          // Text is held back if its format must be checked, or if the model must call a tool and has not done so yet.
          (format !== undefined || isAfterCalls || (mustCall && !this.#hasOffered) ? this.#buffered : out).push(delta);
          break;
        case "refusal":
          this.#refused = true;
          out.push(delta);
          break;
        case "tool_call":
          this.#readCall(delta, out);
          break;
        case "finish":
          this.#finish = delta.reason;
          // Nothing after it is read, and the answer goes on.
          if (delta.reason === "repetition") out.push(delta);
          break;
        case "reasoning":
          if (this.#newest) this.#release(this.#newest, out);
          out.push(delta);
          break;
        default:
          out.push(delta);
      }
    }
    // A server that dies now has not died of the prompt.
    if (out.length === 0 && (this.#newest || this.#buffered.length > 0)) out.push({ kind: "held" });
    for (const { kind } of out) this.hasShown ||= kind === "text" || kind === "tool_call" || kind === "refusal";
    return out;
  }

  #readCall(delta: Extract<ModelDelta, { kind: "tool_call" }>, out: ModelDelta[]): void {
    let call = this.#calls.get(delta.index);
    if (!call) {
      // The earlier call has ended.
      if (this.#newest) this.#release(this.#newest, out);
      const unnamed = { name: undefined, tool: undefined, isOffered: false, mayBeCut: false };
      const { callId, index } = delta;
      call = { callId, index, ...unnamed, arguments: [], judged: undefined, isCut: false, buffered: [] };
      this.#calls.set(index, call);
      this.#newest = call;
    }
    call.arguments.push(delta.arguments);
    const isNamed = call.name !== undefined;
    const { offered, clients, live, mustCall, format, isAfterCalls } = this.#options;
    if (call.name === undefined && delta.name !== undefined) {
      call.name = delta.name;
      call.isOffered = offered.has(call.name);
      call.tool = clients.get(call.name);
      const isLive = live.has(call.name) && call.index < FIRST_MARKED_CALL && !isAfterCalls;
      call.mayBeCut = call.tool !== undefined && !isLive;
      this.#hasOffered ||= call.isOffered;
    }
    if (!call.isOffered) return;
    if (mustCall && !format) out.push(...this.#buffered.splice(0));
    // Includes the arguments that came before the name.
    const text = isNamed ? delta.arguments : call.arguments.join("");
    const own: ModelDelta = { ...delta, callId: call.callId ?? delta.callId, arguments: text };
    if (call.mayBeCut) call.buffered.push(own);
    else out.push(own);
  }

  /**
   * Gives a call that is valid, because something else begins. A call that was shown while it was written is cut where
   * its arguments are complete and outside their schema: it would be done now.
   */
  #release(call: DraftCall, out: ModelDelta[]): void {
    if (!call.mayBeCut && call.isOffered && call.tool) {
      if (call.isCut || this.#faultOf(call) === undefined || !call.judged?.isWhole) return;
      call.isCut = true;
      out.push({ kind: "call_cut", index: call.index });
      return;
    }
    if (call.buffered.length === 0 || this.#faultOf(call) !== undefined) return;
    for (const delta of call.buffered) out.push(delta);
    call.buffered = [];
  }

  /** Ends an answer that the model server could not parse. */
  endUnread(): ModelDelta[] {
    if (this.#options.isAfterCalls) return [{ kind: "finish", reason: "tool_calls" }];
    const again = this.#askAgain("what its server could not read.", "Answer again, with complete calls or with text.");
    return [{ kind: "item_done" }, again, { kind: "finish", reason: "stop" }];
  }

  /** Ends the draft. Gives its last deltas, which say how to ask the model again if the answer is unusable. */
  end(): ModelDelta[] {
    const deltas: ModelDelta[] = [];
    const { isAfterCalls } = this.#options;
    // Text after calls is not theirs, however it ends.
    const reason = isAfterCalls && this.#calls.size === 0 ? "tool_calls" : (this.#finish ?? "stop");
    const finish: ModelDelta = { kind: "finish", reason };
    if (finish.reason !== "stop" && finish.reason !== "tool_calls") {
      // Truncated output: the beginning of a document is shown, as it would be under the grammar.
      const isShown = !this.#options.format || /^\s*[[{]/.test(this.#said);
      if (this.#calls.size === 0 && isShown) deltas.push(...this.#buffered);
      // Only the last call can be truncated.
      for (const call of this.#calls.values()) {
        if (call === this.#newest || this.#faultOf(call) === undefined) deltas.push(...call.buffered);
      }
      deltas.push(finish);
      return deltas;
    }
    for (const call of this.#calls.values()) if (call.mayBeCut) this.#release(call, deltas);
    const wrong: DraftCall[] = [];
    for (const [index, call] of this.#calls) {
      if (call.isOffered && (!call.tool || this.#faultOf(call) === undefined)) continue;
      wrong.push(call);
      if (!call.isOffered || call.mayBeCut) continue;
      if (!call.isCut) deltas.push({ kind: "call_cut", index });
      this.hasShownInvalid ||= call.judged?.isWhole === true;
    }
    if (isAfterCalls) return [...deltas, { kind: "finish", reason: "tool_calls" }];
    const [first] = wrong;
    if (first && wrong.length === this.#calls.size) {
      const change = this.#corrected(wrong);
      deltas.push({ kind: "item_done" }, { kind: "ask_again", why: this.#whyOf(first), change });
    } else if (this.#calls.size === 0) {
      const { mustCall, format } = this.#options;
      const again = (mustCall || format) && !this.#refused ? this.#askedForMore() : undefined;
      // Log probabilities are those of the whole text.
      const isPlain = again && !mustCall && !this.#buffered.some((each) => "logprobs" in each);
      const found = isPlain && format ? salvaged(this.#said, (json) => format.accepts(json)) : undefined;
      if (found !== undefined) {
        tellSalvaged("answer", this.#prompt.model);
        deltas.push({ kind: "text", text: found });
      } else deltas.push(...(again ? [{ kind: "item_done" } as const, again] : this.#buffered));
    }
    deltas.push(finish);
    return deltas;
  }

  /** How to ask the model again after a text without calls; undefined if that is the answer. */
  #askedForMore(): Extract<ModelDelta, { kind: "ask_again" }> | undefined {
    const { mustCall, format, wasTold } = this.#options;
    if (mustCall) {
      const names = [...this.#options.offered];
      const must = names.length === 1 ? `the tool '${names[0]}'` : `one of the tools: ${names.join(", ")}`;
      return this.#askAgain(NO_CALL, `Call ${must}.`);
    }
    // A text that was written without the server's grammar is asked for again with it.
    if (!wasTold && format && !format.accepts(this.#said)) {
      return { kind: "ask_again", change: { ...this.#change, isFinal: true } };
    }
    if (!wasTold || !format || format.mayAccept(this.#said)) return undefined;
    return this.#askAgain(
      "text that does not keep to its format.",
      "Answer again, with JSON of the requested format alone.",
    );
  }

  /** Asks the model again, with a note about its text. */
  #askAgain(why: string, content: string): Extract<ModelDelta, { kind: "ask_again" }> {
    const { corrections = [] } = this.#prompt;
    const said = this.#said.trim();
    const answer: ChatMessage[] = said === "" ? [] : [{ role: "assistant", content: said }];
    const change = { ...this.#change, corrections: [...corrections, ...answer, { role: "user", content }] };
    return { kind: "ask_again", why, change: this.#prompt.isFinal ? { ...change, isFinal: true } : change };
  }

  /** The change made to the prompt before. */
  get #change(): PromptChange {
    const { corrections, onlyOffered, freeInputs } = this.#prompt;
    return { ...(corrections && { corrections }), onlyOffered, ...(freeInputs && { freeInputs }) };
  }

  /** Changes the prompt: only callable tools, and notes about what was wrong with the calls. */
  #corrected(calls: readonly DraftCall[]): PromptChange {
    // A model that has written nothing need not be told of tools that it no longer sees.
    const isAnew =
      withholdsTools(this.#prompt) && this.#said.trim() === "" && !calls.some(({ isOffered }) => isOffered);
    const { corrections: before = [] } = this.#prompt;
    const corrections = isAnew ? before : [...before, ...this.#corrections(calls)];
    return { ...this.#change, corrections, onlyOffered: true };
  }

  get #said(): string {
    return this.#text.join("");
  }

  /**
   * Why a call of the client's tool is invalid; undefined if it is valid. A function without arguments is called with
   * none.
   */
  #faultOf(call: DraftCall): string | undefined {
    if (!call.tool) return undefined;
    const { length: pieces } = call.arguments;
    if (call.judged?.pieces !== pieces) {
      const { tool } = call;
      const text = call.arguments.join("");
      const faultOf = (json: string) => callFaultOf(tool, json, this.#options.rules);
      const fault = faultOf(text);
      call.judged = { pieces, fault, isWhole: fault === undefined || (text.trim() !== "" && isJson(text)) };
      const [begun] = call.buffered;
      // Nothing of it was shown.
      const json = fault && begun ? salvaged(text, (json) => faultOf(json) === undefined) : undefined;
      if (json !== undefined && begun?.kind === "tool_call") {
        tellSalvaged("call", this.#prompt.model);
        call.arguments = [json];
        call.buffered = [{ ...begun, arguments: json }];
        call.judged = { pieces: 1, fault: undefined, isWhole: true };
      }
    }
    return call.judged.fault;
  }

  #whyOf(call: DraftCall): string {
    const fault = call.isOffered ? this.#faultOf(call) : NO_SUCH_TOOL;
    return `a call of '${safeName(call.name)}': ${fault ?? "it was not made."}`;
  }

  #corrections(calls: readonly DraftCall[]): ChatMessage[] {
    const names = [...this.#options.offered];
    const instead = names.length > 0 ? `The tools are: ${names.join(", ")}.` : "There are no tools.";
    const id = (index: number) => `call_again_${index}`;
    return [
      {
        role: "assistant",
        content: this.#options.format ? "" : this.#said.trim(),
        tool_calls: calls.map(({ name, arguments: pieces }, index) => ({
          id: id(index),
          type: "function",
          function: { name: safeName(name), arguments: argumentsObject(pieces.join("")) },
        })),
      },
      ...calls.map(
        (call, index): ChatMessage => ({
          role: "tool",
          tool_call_id: id(index),
          content: call.isOffered
            ? `Error: ${this.#faultOf(call) ?? "it was not made."} Call the tool again with complete arguments.`
            : `Error: ${NO_SUCH_TOOL} ${instead}`,
        }),
      ),
    ];
  }
}

/** A name that the model has made up, cut to the form of a name. */
function safeName(name = ""): string {
  return /^[\w.:-]{1,64}$/.test(name) ? name : "unknown";
}
