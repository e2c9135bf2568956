import type { ModelDelta, Prompt } from "./contract/engine.ts";
import { droppedTokens, placeOfCut } from "./cuts.ts";
import type { TurnOptions } from "./options.ts";
import type { CutReason } from "./records.ts";
import { lengthWithoutRepetition, type RepeatedKind, RepetitionWatch } from "./repetition.ts";
import { deltaTokens, minus, plus, roundDeltas } from "./state.ts";
import type { TurnOutput } from "./turn-output.ts";

/** How often a thought, and how often an answer, is cut in a round. */
const MAX_CUTS = 2;

/** Why a generation is to be broken off. */
export interface CutCause {
  kind: RepeatedKind;
  reason: CutReason;
}

/**
 * Watches the generations of a turn: for repetition, and for thoughts that are longer than their budget where the model
 * server does not end them itself.
 */
export class RepetitionGuard {
  readonly #options: Pick<TurnOptions, "model" | "host">;
  readonly #output: TurnOutput;
  readonly #watch: RepetitionWatch | undefined;
  readonly #watchesAnswers: boolean;
  /** The budget of the generation's reasoning, and the tokens that are left of it. */
  #budget = Number.POSITIVE_INFINITY;
  #left = Number.POSITIVE_INFINITY;
  /** The samples of a thought, by their ids: they correct the count of their texts. */
  #sampled = 0;
  /** The kind of the last text. */
  #kind: RepeatedKind = "answer";
  /** The cause to break the generation off; undefined while there is none. */
  cause: CutCause | undefined;

  constructor(options: Pick<TurnOptions, "asked" | "bounds" | "model" | "host">, output: TurnOutput) {
    const { asked, bounds } = options;
    const { repetition_detection: own, text, structured_outputs: outputs } = asked.request;
    const mode = own?.max_pattern_size === 0 ? "off" : bounds.repetitionGuard;
    const isPlain = (text?.format?.type ?? "text") === "text" && outputs == null;
    this.#options = options;
    this.#output = output;
    this.#watch = mode === "off" ? undefined : new RepetitionWatch(isPlain);
    this.#watchesAnswers = mode === "on";
  }

  /** Begins to watch a generation, with the most reasoning tokens of the round that this server has to bind. */
  begin(budget: number | undefined): void {
    this.cause = undefined;
    this.#watch?.reset();
    const { state } = this.#output;
    const isBound = budget !== undefined && state.round.cuts.thought === 0;
    this.#budget = isBound ? budget - roundDeltas(state).reasoning : Number.POSITIVE_INFINITY;
    this.#left = this.#budget;
    this.#sampled = 0;
  }

  /** Reads a delta that the round has taken. */
  read(delta: ModelDelta): void {
    switch (delta.kind) {
      case "text":
        this.#kind = "answer";
        if (this.#watchesAnswers && this.#watch?.read("answer", delta.text)) this.#found("repetition");
        return;
      case "reasoning":
        this.#kind = "thought";
        if (this.#watch?.read("thought", delta.text)) this.#found("repetition");
        if (this.#budget === Number.POSITIVE_INFINITY) return;
        this.#left -= deltaTokens(delta.text);
        if (this.#left <= 0) this.#found("thinking_token_budget");
        return;
      case "sampled":
        if (this.#budget === Number.POSITIVE_INFINITY || this.#kind !== "thought" || !("ids" in delta.sampled)) return;
        this.#sampled += delta.sampled.ids.length;
        this.#left = this.#budget - this.#sampled;
        if (this.#left <= 0) this.#found("thinking_token_budget");
        return;
      case "tool_call":
        // Another text follows.
        this.#watch?.reset();
        return;
      case "finish":
        if (delta.reason === "repetition") this.#found("repetition");
    }
  }

  #found(reason: CutReason): void {
    this.cause ??= { kind: this.#kind, reason };
  }

  /** The part of a prompt that makes an answer which was cut go on differently. */
  get promptChange(): Pick<Prompt, "repetitions"> | undefined {
    const { answer } = this.#output.state.round.cuts;
    return answer > 0 ? { repetitions: answer } : undefined;
  }

  /** Tells whether the model may go on after another cut of this kind. */
  mayGoOn(kind: RepeatedKind): boolean {
    return this.#output.state.round.cuts[kind] < MAX_CUTS;
  }

  /** Cuts the end of the round's output, from which the model then goes on. The log has the cut. */
  async cutOff({ kind, reason }: CutCause, prompt: Prompt): Promise<void> {
    const { model, host } = this.#options;
    const { round, state, writer } = this.#output;
    const { sampled: before, lost, cuts } = state.round;
    const place = placeOfCut(round.partialItems, kind, reason);
    const shown = place.item === null ? Number.POSITIVE_INFINITY : place.to;
    const kept = reason === "repetition" ? lengthWithoutRepetition : ({ length }: string) => Math.min(length, shown);
    const mustAnswer = !model.engine.mayCall(prompt) || cuts.thought > 0;
    const sampled = before && (await model.engine.cutSampled?.(prompt, before, { kind, kept, mustAnswer }));
    const item = state.output.findIndex(({ id }) => id === place.item);
    const ofItem = minus(state.deltas, state.deltasBefore[item] ?? state.deltas).all;
    const cut = { kind, reason, ...place, ...(sampled && { sampled }) };
    const all = droppedTokens(cut, before, ofItem);
    const { measured } = host;
    const call = measured?.modelCalls.at(-1);
    if (call) call.finishReason = reason;
    measured?.cuts.push({ kind, reason });
    writer.record({ cut: { ...cut, lost: plus(lost, { all, reasoning: kind === "thought" ? all : 0 }) } });
    if (kind === "thought") round.apply({ kind: "item_done" });
    host.sink?.flush();
  }
}
