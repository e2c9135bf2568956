import type { Rules } from "@responses-edge/grammar";
import type { FinishReason, ModelDelta } from "../../contract/engine.ts";
import type { ClientTool } from "../../protocol/client-tools.ts";
import { callFaultOf } from "../call-faults.ts";
import type { FinalFormat } from "./final-format.ts";
import { asJson, type ChatMessage } from "./messages.ts";

/**
 * One answer of a model that may call tools, before it is taken for one. What nothing binds may be wrong: a call of a
 * tool that was not offered, a call without a name, arguments that are cut in the middle, an input outside of its tool's
 * grammar, a final text without its format. The model is then told, and asked again.
 */

export interface DraftOptions {
  /** Names of the tools that the model may call. */
  offered: ReadonlySet<string>;
  /** Those of them that the client answers; of what is wrong with others' arguments the model is told by the tool. */
  clients: ReadonlyMap<string, ClientTool>;
  /** Other tools stand in the prompt, too, and would not in the next one. */
  withholds: boolean;
  /** Names of those of the client's whose calls are shown as they are written. */
  live: ReadonlySet<string>;
  /** The grammars of custom tools, by their names. */
  rules: ReadonlyMap<string, Rules>;
  /** What the final text must be; it is held back until it is known to be so. */
  format: FinalFormat | undefined;
}

/** What is to be done after a draft. */
export type Verdict =
  /** It is the answer. */
  | { next: "accept" }
  /** The model is to be asked again after these messages, which tell it what was wrong. */
  | { next: "again"; messages: ChatMessage[] }
  /** The model has written its final text freely: it is to be asked for it under the format's grammar. */
  | { next: "format" };

interface DraftCall {
  callId: string | undefined;
  name: string | undefined;
  arguments: string[];
  /** Why it cannot be made, as of so many pieces of its arguments. */
  judged: { pieces: number; fault: string | undefined } | undefined;
  /** Its deltas, as long as it is not known to be right. */
  buffered: ModelDelta[];
}

export class Draft {
  readonly #options: DraftOptions;
  readonly #calls = new Map<number, DraftCall>();
  #newest: DraftCall | undefined;
  #text: string[] = [];
  #buffered: ModelDelta[] = [];
  #refused = false;
  #finish: FinishReason | undefined;
  #tokens = 0;
  readonly #firstIndex: number;

  /** `firstIndex`: those below are calls of drafts before this one. */
  constructor(options: DraftOptions, firstIndex: number) {
    this.#options = options;
    this.#firstIndex = firstIndex;
  }

  /** The first index that is no call's. */
  get nextIndex(): number {
    return Math.max(this.#firstIndex, ...[...this.#calls.keys()].map((index) => index + 1));
  }

  /** Tokens that the draft has cost, by the word of the model server. */
  get tokens(): number {
    return this.#tokens;
  }

  /** Takes the deltas of one read. Gives those that are right whatever comes. */
  read(deltas: readonly ModelDelta[]): ModelDelta[] {
    const out: ModelDelta[] = [];
    for (const delta of deltas) {
      switch (delta.kind) {
        case "text":
          // A call that text comes after has ended.
          if (this.#newest && delta.text.trim() !== "") this.#release(this.#newest, out);
          this.#text.push(delta.text);
          (this.#options.format ? this.#buffered : out).push(delta);
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
          break;
        case "usage":
          this.#tokens += delta.usage.output_tokens;
          out.push(delta);
          break;
        default:
          out.push(delta);
      }
    }
    return out;
  }

  #readCall(delta: Extract<ModelDelta, { kind: "tool_call" }>, out: ModelDelta[]): void {
    const index = this.#firstIndex + delta.index;
    let call = this.#calls.get(index);
    if (!call) {
      // The one before it has ended.
      if (this.#newest) this.#release(this.#newest, out);
      call = { callId: delta.callId, name: undefined, arguments: [], judged: undefined, buffered: [] };
      this.#calls.set(index, call);
      this.#newest = call;
    }
    call.arguments.push(delta.arguments);
    const isNamed = call.name !== undefined;
    call.name ??= delta.name;
    if (call.name === undefined || !this.#isOffered(call)) return;
    // With what came of it before its name.
    const text = isNamed ? delta.arguments : call.arguments.join("");
    const own: ModelDelta = { ...delta, index, callId: call.callId ?? delta.callId, arguments: text };
    if (this.#mayBeCut(call)) call.buffered.push(own);
    else out.push(own);
  }

  /** Gives a call that has turned out to be right. */
  #release(call: DraftCall, out: ModelDelta[]): void {
    if (call.buffered.length === 0 || this.#isCut(call)) return;
    for (const delta of call.buffered) out.push(delta);
    call.buffered = [];
  }

  /** Whether nothing binds the arguments, and nobody here reads them. */
  #mayBeCut({ name = "" }: DraftCall): boolean {
    return this.#options.clients.has(name) && !this.#options.live.has(name);
  }

  #isOffered({ name }: DraftCall): boolean {
    return name !== undefined && this.#options.offered.has(name);
  }

  /** Ends the draft: adds what is still to be said of it to `deltas`. `isLast`: the model is not asked again. */
  end(deltas: ModelDelta[], isLast: boolean): Verdict {
    const finish: ModelDelta = { kind: "finish", reason: this.#finish ?? "stop" };
    if (finish.reason !== "stop" && finish.reason !== "tool_calls") {
      // Cut off: the beginning of a document is shown, as it would be under the grammar.
      if (this.#calls.size === 0 && /^\s*[[{]/.test(this.#said)) deltas.push(...this.#buffered);
      for (const { buffered } of this.#calls.values()) for (const delta of buffered) deltas.push(delta);
      deltas.push(finish);
      return { next: "accept" };
    }
    for (const call of this.#calls.values()) this.#release(call, deltas);
    const wrong = [...this.#calls].filter(([, call]) => !this.#isOffered(call) || this.#isCut(call));
    for (const [index, call] of wrong) {
      if (this.#isOffered(call) && !this.#mayBeCut(call)) deltas.push({ kind: "call_cut", index });
    }
    if (wrong.length < this.#calls.size) {
      deltas.push(finish);
      return { next: "accept" };
    }
    if (wrong.length > 0) {
      deltas.push({ kind: "item_done" });
      const calls = wrong.map(([, call]) => call);
      // A model that has said nothing needs not hear of tools that it sees no more.
      const isAnew =
        this.#options.withholds && this.#said.trim() === "" && !calls.some((call) => this.#isOffered(call));
      if (!isLast) return { next: "again", messages: isAnew ? [] : this.#corrections(calls) };
      const [first] = calls;
      deltas.push({ kind: "broken", why: first ? this.#whyOf(first) : "", messages: [] }, finish);
      return { next: "accept" };
    }
    const { format } = this.#options;
    if (!format || this.#refused || format.accepts(this.#said)) {
      deltas.push(...this.#buffered, finish);
      return { next: "accept" };
    }
    deltas.push({ kind: "item_done" });
    return { next: "format" };
  }

  get #said(): string {
    return this.#text.join("");
  }

  /** Why a call of the client's tool cannot be made, if it cannot. A function without arguments is called with none. */
  #faultOf(call: DraftCall): string | undefined {
    const tool = call.name === undefined ? undefined : this.#options.clients.get(call.name);
    if (!tool) return undefined;
    const { length: pieces } = call.arguments;
    if (call.judged?.pieces !== pieces) {
      call.judged = { pieces, fault: callFaultOf(tool, call.arguments.join(""), this.#options.rules) };
    }
    return call.judged.fault;
  }

  #whyOf(call: DraftCall): string {
    const fault = this.#isOffered(call) ? this.#faultOf(call) : "there is no tool of this name.";
    return `a call of '${safeName(call.name)}': ${fault ?? "it was not made."}`;
  }

  #isCut(call: DraftCall): boolean {
    return this.#faultOf(call) !== undefined;
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
          function: { name: safeName(name), arguments: asJson(pieces.join("") || "{}") },
        })),
      },
      ...calls.map(
        (call, index): ChatMessage => ({
          role: "tool",
          tool_call_id: id(index),
          content: this.#isOffered(call)
            ? `Error: ${this.#faultOf(call) ?? "it was not made."} Call the tool again with complete arguments.`
            : `Error: there is no tool of this name. ${instead}`,
        }),
      ),
    ];
  }
}

/** A name of the model's own making, which must not become more than a name. */
function safeName(name = ""): string {
  return /^[\w.:-]{1,64}$/.test(name) ? name : "unknown";
}
