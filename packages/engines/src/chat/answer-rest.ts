import { Recogniser } from "@responses-edge/grammar";
import { ApiError } from "@responses-edge/responses-api/errors";
import { answerFormat } from "@responses-edge/turn/contract/answer-format";
import type { ModelDelta, Prompt } from "@responses-edge/turn/contract/engine";
import { RepeatedText } from "@responses-edge/turn/contract/repeated-text";
import { after } from "../bound-formats.ts";
import { refusesGrammar } from "../client-faults.ts";
import { boundRules, callFaultOf } from "../offered-tools.ts";
import { type Begun, begunWith, callsAfter, inputJson, repeatedSpace, withBegun } from "./begun-answer.ts";
import type { Asked } from "./request.ts";
import { salvaged } from "./salvage.ts";

/**
 * The rest of a bound answer or call (`Begun`). Servers may ignore a grammar, and some take none: only text within the
 * format is given, and where the model leaves the format, it is asked again from there.
 */

/** How often the model is asked for the rest. */
const MAX_TRIES = 4;

type Ask = (prompt: Prompt, asked: Asked) => Promise<AsyncIterable<ModelDelta[]>>;

/** Asks for the calls after a whole one (`callsAfter`). */
type AskForCalls = (prompt: Prompt) => Promise<AsyncIterable<ModelDelta[]>>;

/**
 * Asks for the rest of what `prompt` has begun, and for more calls after a call. `takesGrammar`: its server takes grammars; what any
 * other one writes is checked as a whole. Resolves once the server has accepted the prompt. The answer throws 502 `cannot_continue`
 * when the model has left the format too often.
 */
export async function answerRest(
  prompt: Prompt,
  takesGrammar: boolean,
  ask: Ask,
  askForCalls: AskForCalls,
): Promise<AsyncIterable<ModelDelta[]>> {
  const { begun } = prompt as { begun: Begun };
  const first = new Rest(prompt, begun, takesGrammar);
  try {
    return allRests(first, await first.ask(ask), ask, askForCalls);
  } catch (error) {
    if (!first.isGrammarRefused(error)) throw error;
    const free = new Rest(prompt, begun, false);
    return allRests(free, await free.ask(ask), ask, askForCalls);
  }
}

async function* allRests(
  first: Rest,
  begun: AsyncIterable<ModelDelta[]>,
  ask: Ask,
  askForCalls: AskForCalls,
): AsyncGenerator<ModelDelta[], void, undefined> {
  yield first.opening;
  let rest = first;
  let answer = begun;
  let isCounted = false;
  for (let tries = 1; ; tries += 1) {
    let hasGrammar = rest.hasGrammar;
    try {
      for await (const deltas of answer) {
        const shown = rest.read(deltas);
        isCounted ||= deltas.some(({ kind }) => kind === "usage");
        if (shown.length > 0) yield shown;
        if (rest.isOver) break;
      }
    } catch (error) {
      // vLLM compiles a grammar after it has accepted the request.
      if (rest.hasRead || !rest.isGrammarRefused(error)) throw error;
      hasGrammar = false;
    }
    const last = hasGrammar === rest.hasGrammar ? rest.end() : undefined;
    if (last) {
      yield last;
      if (rest.next) yield* furtherCalls(await askForCalls(rest.next), isCounted);
      return;
    }
    const next = rest.again(hasGrammar);
    if (!next || tries === MAX_TRIES) throw outsideFormat();
    rest = next;
    answer = await rest.ask(ask);
  }
}

/**
 * An answer that goes on after whole calls. They are an answer by themselves: it has no more where its server refuses
 * the prompt, which may have filled the window.
 */
export async function callsOrNone(asking: Promise<AsyncIterable<ModelDelta[]>>): Promise<AsyncIterable<ModelDelta[]>> {
  try {
    return await asking;
  } catch (error) {
    if (error instanceof ApiError && error.status === 400) return noCalls();
    throw error;
  }
}

async function* noCalls(): AsyncGenerator<ModelDelta[], void, undefined> {
  yield [{ kind: "finish", reason: "tool_calls" }];
}

/**
 * The calls after a resumed one, whose index is 0. `isCounted`: the prompt was counted with that one, and is not counted
 * again.
 */
async function* furtherCalls(
  answer: AsyncIterable<ModelDelta[]>,
  isCounted: boolean,
): AsyncGenerator<ModelDelta[], void, undefined> {
  for await (const deltas of answer) yield deltas.map((delta) => afterFirstCall(delta, isCounted));
}

function afterFirstCall(delta: ModelDelta, isCounted: boolean): ModelDelta {
  if (delta.kind === "tool_call" || delta.kind === "call_cut") return { ...delta, index: delta.index + 1 };
  if (delta.kind !== "usage" || !isCounted) return delta;
  const { output_tokens } = delta.usage;
  const input_tokens_details = { cached_tokens: 0, cache_write_tokens: 0 };
  return {
    ...delta,
    usage: { ...delta.usage, input_tokens: 0, input_tokens_details, total_tokens: output_tokens },
  };
}

/** One answer to a prompt that asks for a rest. */
class Rest {
  readonly #prompt: Prompt;
  readonly #begun: Begun;
  /** The grammar of the rest is sent, where the server takes one. */
  readonly hasGrammar: boolean;
  /** Set if the format is known: text is given while it keeps to it. Otherwise all of it is checked in the end. */
  readonly #recogniser: Recogniser | undefined;
  readonly #repeated: RepeatedText;
  /** The text so far, after what has begun. */
  #text = "";
  #finish: Extract<ModelDelta, { kind: "finish" }> | undefined;
  #hasLeftFormat = false;
  hasRead = false;
  /** Asks for more calls after the whole call that the answer has ended with (`end`). */
  next: Prompt | undefined;

  constructor(prompt: Prompt, begun: Begun, hasGrammar: boolean) {
    this.#prompt = prompt;
    this.#begun = begun;
    const { rest, place } = begun;
    this.hasGrammar = hasGrammar && rest.kind === "rules";
    // A model that continues no text may write all of it again.
    const isContinued = place !== "quoted" || this.hasGrammar;
    this.#recogniser = rest.kind === "rules" && isContinued ? new Recogniser(rest.rules) : undefined;
    this.#repeated = new RepeatedText(repeatedSpace(begun));
  }

  ask(ask: Ask): Promise<AsyncIterable<ModelDelta[]>> {
    const { rest, kind } = this.#begun;
    const isSent = this.hasGrammar && rest.kind === "rules";
    return ask(this.#prompt, {
      bindsFormat: false,
      finalText: true,
      isOfCall: kind !== "text",
      ...(isSent && { grammar: after(repeatedSpace(this.#begun), rest.rules) }),
    });
  }

  /** Tells whether an error is the server's refusal of the rest's grammar. */
  isGrammarRefused(error: unknown): boolean {
    return this.hasGrammar && error instanceof ApiError && refusesGrammar(error);
  }

  /** The deltas before all others. */
  get opening(): ModelDelta[] {
    const { tool, kind, text } = this.#begun;
    if (!tool) return [];
    const begun = kind === "input" ? inputJson(text) : text;
    return [{ kind: "resumed_call", index: 0, name: tool.flatName, arguments: begun }];
  }

  /** The model has left the format: the rest of its answer is not wanted. */
  get isOver(): boolean {
    return this.#hasLeftFormat;
  }

  /** Takes the deltas of one read. Gives those that are within the format. */
  read(deltas: readonly ModelDelta[]): ModelDelta[] {
    const out: ModelDelta[] = [];
    this.hasRead ||= deltas.length > 0;
    for (const delta of deltas) {
      // A thought would end the item that goes on.
      if (delta.kind === "reasoning" || delta.kind === "tool_call") continue;
      if (delta.kind === "finish") this.#finish = delta;
      else if (delta.kind !== "text") out.push(delta);
      else if (!this.#hasLeftFormat) this.#readText(this.#repeated.remove(delta), out);
    }
    if (out.length === 0 && this.#text !== "") out.push({ kind: "held" });
    return out;
  }

  #readText(delta: Extract<ModelDelta, { kind: "text" }>, out: ModelDelta[]): void {
    const recogniser = this.#recogniser;
    if (!recogniser) {
      this.#text += delta.text;
      return;
    }
    const before = recogniser.read;
    if (recogniser.push(delta.text)) {
      this.#text += delta.text;
      this.#give(delta, out);
      return;
    }
    this.#hasLeftFormat = true;
    const kept = delta.text.slice(0, recogniser.read - before);
    this.#text += kept;
    const { logprobs: _, ...rest } = delta;
    if (kept !== "") this.#give({ ...rest, text: kept }, out);
  }

  #give(delta: Extract<ModelDelta, { kind: "text" }>, out: ModelDelta[]): void {
    const { kind } = this.#begun;
    if (kind === "text") out.push(delta);
    else {
      const json = kind === "input" ? JSON.stringify(delta.text).slice(1, -1) : delta.text;
      out.push({ kind: "tool_call", index: 0, arguments: json });
    }
  }

  /** The last deltas of an answer that is the whole rest, or was cut by a limit; undefined if it is neither. */
  end(): ModelDelta[] | undefined {
    const finish = this.#finish;
    if (!this.#hasLeftFormat && finish && finish.reason !== "stop" && finish.reason !== "tool_calls") return [finish];
    const { kind } = this.#begun;
    const out: ModelDelta[] = [];
    let text: string | undefined = this.#text;
    if (this.#recogniser) {
      if (!this.#isWhole) return undefined;
      // Keywords that no grammar has are checked here, where nothing can be taken back.
      if (this.#isFaulty(this.#begun.text + text)) throw outsideFormat();
    } else {
      text = this.#checkedRest();
      if (text === undefined) return undefined;
      this.#give({ kind: "text", text }, out);
    }
    if (kind === "input") out.push({ kind: "tool_call", index: 0, arguments: '"}' });
    this.next = callsAfter(this.#prompt, { ...this.#begun, text: this.#begun.text + text });
    if (!this.next) out.push({ kind: "finish", reason: kind === "text" ? "stop" : "tool_calls" });
    return out;
  }

  get #isWhole(): boolean {
    const { rest } = this.#begun;
    if (!this.#hasLeftFormat || rest.kind !== "rules") return this.#recogniser?.accepts === true;
    // The format ends where the model went on.
    const recogniser = new Recogniser(rest.rules);
    return recogniser.push(this.#text) && recogniser.accepts;
  }

  /** The rest that makes what has begun whole: the text, or what follows in it after a repetition of the beginning. */
  #checkedRest(): string | undefined {
    const { text: begun } = this.#begun;
    const text = this.#text;
    const accepts = (rest: string) => this.#accepts(begun + rest);
    if (accepts(text)) return text;
    if (text.startsWith(begun) && accepts(text.slice(begun.length))) return text.slice(begun.length);
    const all = salvaged(text, (json) => json.startsWith(begun) && accepts(json.slice(begun.length)));
    return all?.slice(begun.length);
  }

  #accepts(whole: string): boolean {
    const { tool } = this.#begun;
    return tool ? !this.#isFaulty(whole) : answerFormat(this.#prompt.request)?.accepts(whole) === true;
  }

  /** Tells whether a whole text certainly does not have its format. */
  #isFaulty(whole: string): boolean {
    const { tool, kind } = this.#begun;
    const { request } = this.#prompt;
    if (!tool) return answerFormat(request)?.mayAccept(whole) === false;
    const json = kind === "input" ? `${inputJson(whole)}"}` : whole;
    return callFaultOf(tool, json, boundRules(request)) !== undefined;
  }

  /** The same from where this answer has left the format. Undefined if nothing can follow there. */
  again(hasGrammar: boolean): Rest | undefined {
    const begun = begunWith(this.#begun, this.#begun.text + (this.#recogniser ? this.#text : ""));
    return begun && new Rest(withBegun(this.#prompt, begun), begun, hasGrammar);
  }
}

function outsideFormat(): ApiError {
  return new ApiError({
    status: 502,
    message:
      "The model server died in the middle of an answer in a format, and the model did not complete it within its format.",
    code: "cannot_continue",
  });
}
