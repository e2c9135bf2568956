import { ApiError } from "@responses-edge/responses-api/errors";
import { estimateTokens } from "@responses-edge/responses-api/estimate";
import type { Engine, ModelDelta, Prompt } from "../contract/engine.ts";
import { NO_USAGE } from "../response.ts";
import { GuardFault, type Judged, type Judgement, joined, moderationFields } from "./judgement.ts";
import type { UnjudgedInput } from "./moderated-text.ts";

/** An engine whose input and output are moderated: OpenAI's `moderation` of a create. */

/** A judgement for a response, or the reason why there is none. */
export type ModerationResult =
  | ({ type: "moderation_result"; model: string } & ReturnType<typeof moderationFields>)
  | { type: "error"; code: string; message: string };

/** `score` judges and continues; `block` ends the turn if something is flagged. */
export type ModerationMode = "score" | "block";

export interface Moderation {
  /** The name of the guard, for results. */
  model: string;
  /** Judges a text. Rejects with GuardFault, and with the signal's reason. */
  judge: (judged: Judged, signal: AbortSignal) => Promise<Judgement>;
  /** Undefined: that side is not judged. */
  modes: { input: ModerationMode | undefined; output: ModerationMode | undefined };
  /** If the guard does not answer, text that it should block passes. */
  failsOpen: boolean;
  /** The input of a prompt that was not judged before. It is asked for in each round. */
  input: UnjudgedInput;
  /** Judges tools, which most turns of an agent repeat. Rejects as `judge` does. */
  judgeTools: (text: string, signal: AbortSignal) => Promise<Judgement>;
  /** The turn's output before a crash. */
  earlier: string;
}

/** The length of the earlier answer that is judged together with a sentence, in UTF-16 units. */
const CONTEXT_LENGTH = 4_000;

/** A piece of an answer ends with a sentence, from this length on, or at the maximum. */
const MIN_PIECE_LENGTH = 60;
const MAX_PIECE_LENGTH = 600;

const SENTENCE_END = /[.!?。！？:;\n]["')\]]*\s*$/;

type Side = "input" | "output";

/** The texts of one turn, and their judgements. */
export class ModeratedTurn {
  readonly #moderation: Moderation;
  readonly #judgements: Record<Side, Judgement[]> = { input: [], output: [] };
  readonly #faults: Partial<Record<Side, string>> = {};
  /** Tells whether the input has passed, as far as it is known. */
  #input = Promise.resolve(true);
  /** Output from before a crash without a judgement. */
  #earlier: string;

  constructor(moderation: Moderation) {
    this.#moderation = moderation;
    this.#earlier = moderation.earlier;
  }

  /** The engine, with moderation of its texts. */
  engine(engine: Engine): Engine {
    const { noteRole } = engine;
    const answerMessages = engine.answerMessages?.bind(engine);
    const cutSampled = engine.cutSampled?.bind(engine);
    return {
      noteRole,
      accept: (request) => engine.accept(request),
      mayCall: (prompt) => engine.mayCall(prompt),
      generate: (prompt, signal) => this.#generate(engine, prompt, signal),
      resumption: (...args) => engine.resumption(...args),
      unboundThinking: (prompt) => engine.unboundThinking(prompt),
      ...(cutSampled && { cutSampled }),
      measure: (...args) => engine.measure(...args),
      ...(answerMessages && { answerMessages }),
      parts: (...args) => engine.parts(...args),
      rendered: (...args) => engine.rendered(...args),
      renderedText: (...args) => engine.renderedText(...args),
      inputMessages: (...args) => engine.inputMessages(...args),
    };
  }

  /** The field `moderation` of the response, as far as it is known. */
  get result(): { input: ModerationResult; output: ModerationResult } {
    return { input: this.#resultOf("input"), output: this.#resultOf("output") };
  }

  /** The tokens that the guard has read for the turn, as far as it reports them. */
  get used(): { model: string; tokens: number } {
    const { input, output } = this.#judgements;
    return { model: this.#moderation.model, tokens: joined([...input, ...output]).tokens ?? 0 };
  }

  #resultOf(side: Side): ModerationResult {
    const fault = this.#faults[side];
    if (fault !== undefined) return { type: "error", code: "moderation_unavailable", message: fault };
    const judgements = this.#judgements[side];
    if (judgements.length === 0) {
      return { type: "error", code: "not_moderated", message: `The ${side} of this response was not moderated.` };
    }
    return { type: "moderation_result", model: this.#moderation.model, ...moderationFields(joined(judgements)) };
  }

  async #generate(engine: Engine, prompt: Prompt, signal: AbortSignal): Promise<AsyncIterable<ModelDelta[]>> {
    // A summary of the conversation is nobody's answer.
    if (prompt.asksForText) return engine.generate(prompt, signal);
    const { modes } = this.#moderation;
    if (modes.input !== undefined) this.#judgeInput(prompt, signal);
    // A score is waited for at the end.
    this.#input.catch(() => {});
    if (modes.input === "block" && !(await this.#input)) return blocked(prompt, 0);
    const source = await engine.generate(prompt, signal);
    return this.#judged(source, prompt, signal);
  }

  /** Begins to judge what is new in the prompt. */
  #judgeInput(prompt: Prompt, signal: AbortSignal): void {
    const { input, judge, judgeTools } = this.#moderation;
    const judgements = input.items(prompt).map((each) => {
      const judged = { side: "input", ...each } as const;
      return this.#passes("input", () => judge(judged, signal), signal);
    });
    const tools = input.tools(prompt);
    if (tools !== "") judgements.push(this.#passes("input", () => judgeTools(tools, signal), signal));
    if (judgements.length > 0)
      this.#input = Promise.all([this.#input, ...judgements]).then((all) => all.every(Boolean));
  }

  async *#judged(
    source: AsyncIterable<ModelDelta[]>,
    prompt: Prompt,
    signal: AbortSignal,
  ): AsyncGenerator<ModelDelta[]> {
    const { output: mode } = this.#moderation.modes;
    const isHeld = mode === "block";
    let held: ModelDelta[] = [];
    let unjudged = mode === "score" ? this.#earlier : "";
    let context = isHeld ? this.#earlier.slice(-CONTEXT_LENGTH) : "";
    /** How much of what is held ends with a sentence. */
    let piece = { deltas: 0, length: 0 };
    let words = 0;
    this.#earlier = "";
    /** Judges the beginning of what was not. False where the answer ends here. */
    const judge = async (length = unjudged.length): Promise<boolean> => {
      const text = context + unjudged.slice(0, length);
      if (mode === undefined || unjudged === "") return true;
      unjudged = unjudged.slice(length);
      if (isHeld) context = text.slice(-CONTEXT_LENGTH);
      const judgement = () => this.#moderation.judge({ side: "output", text }, signal);
      return (await this.#passes("output", judgement, signal)) || !isHeld;
    };
    for await (const batch of source) {
      for (const delta of batch) {
        held.push(delta);
        const text = textOf(delta);
        if (text === "") continue;
        words += 1;
        unjudged += text;
        if (isHeld && endsPiece(unjudged, text)) piece = { deltas: held.length, length: unjudged.length };
      }
      // The end may only be sent after everything before it was judged.
      const isEnd = batch.some(({ kind }) => kind === "finish");
      if (isEnd) await this.#input;
      if (isEnd) {
        if (!(await judge())) return yield* blocked(prompt, words);
      } else if (piece.deltas > 0 && !prompt.isUnwatched) {
        if (!(await judge(piece.length))) return yield* blocked(prompt, words);
        yield held.splice(0, piece.deltas);
        piece = { deltas: 0, length: 0 };
      }
      if (isHeld && unjudged !== "") continue;
      yield held;
      held = [];
    }
    if (!(await judge())) yield* blocked(prompt, words);
    else if (held.length > 0) yield held;
  }

  /** Judges a side. False where it is flagged. Throws the 503 of a guard that cannot be asked where it should block. */
  async #passes(side: Side, judge: () => Promise<Judgement>, signal: AbortSignal): Promise<boolean> {
    const { modes, failsOpen } = this.#moderation;
    try {
      const judgement = await judge();
      this.#judgements[side].push(judgement);
      return !judgement.flagged;
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof GuardFault)) throw error;
      this.#faults[side] = error.message;
      if (modes[side] === "score" || failsOpen) return true;
      throw unavailable(side);
    }
  }
}

function textOf(delta: ModelDelta): string {
  switch (delta.kind) {
    case "reasoning":
    case "text":
    case "refusal":
      return delta.text;
    case "tool_call":
      return delta.arguments;
    default:
      return "";
  }
}

/** Tells whether a text that ends with these words may be judged, so that no sentence is shown before its end was. */
function endsPiece({ length }: string, words: string): boolean {
  return length >= MAX_PIECE_LENGTH || (length >= MIN_PIECE_LENGTH && SENTENCE_END.test(words));
}

/** The end of a blocked answer. Its usage is estimated, because the model server reports usage only at its own end. */
async function* blocked(prompt: Prompt, words: number): AsyncGenerator<ModelDelta[]> {
  // A model that was not asked has read nothing.
  const input = words === 0 ? 0 : estimateTokens(prompt.items);
  const usage = { ...NO_USAGE, input_tokens: input, output_tokens: words, total_tokens: input + words };
  yield [
    { kind: "usage", usage },
    { kind: "finish", reason: "content_filter" },
  ];
}

function unavailable(side: Side): ApiError {
  return new ApiError({
    status: 503,
    message: `The ${side} could not be moderated. Please try again.`,
    code: "moderation_unavailable",
  });
}
