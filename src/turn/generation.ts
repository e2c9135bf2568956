import type { Continuation, Engine, ModelDelta, Prompt } from "../contract/engine.ts";
import {
  beginModelCall,
  endModelCall,
  type Measurements,
  type ModelCall,
  tokensBetween,
} from "../contract/measurements.ts";
import type { CreateRequest } from "../protocol/create-request.ts";
import { ApiError, toApiError } from "../protocol/errors.ts";
import type { Item } from "../protocol/items.ts";
import { pause } from "../protocol/pause.ts";
import type { Usage } from "../protocol/response.ts";
import { type BrokenOff, continued, type Generation, outOfTokens } from "./continuation.ts";
import type { Outcome } from "./decide.ts";
import type { BatchSink } from "./output-events.ts";
import type { RoundPrompt } from "./prompt.ts";
import { isTransient, Recovery } from "./recovery.ts";
import type { Outage, ResponseBuilder } from "./response-builder.ts";
import { type DeltaCount, plus } from "./usage.ts";

/**
 * The generations of a turn, each of one round. One whose upstream dies is taken up where it stopped, or waited for while
 * the model server is away.
 */

export interface GenerationOptions {
  engine: Engine;
  request: CreateRequest;
  /** Aborted when nobody wants the answer any more. */
  signal: AbortSignal;
  /** Now, in Unix milliseconds. */
  clock: () => number;
  /** How often a generation that broke off is taken up again in each round; 0 lets it fail. */
  maxRetries: number;
  /** How many may break off in a row before their first word. */
  maxFruitless: number;
  /** How long an outage of the model server is waited for, in milliseconds. */
  recoveryTimeMs: number;
  /** Asks the model server whether it is gone. */
  isServerGone: (signal: AbortSignal) => Promise<boolean>;
  /** Has what comes next asked of another model server, where there is one: this one has broken off. */
  leaveServer: () => void;
  /** What the request measures of itself, where anybody wants to know. */
  measured?: Measurements | undefined;
  /** The name of the model server that was asked last. */
  replica?: () => string;
}

/** A generation of which nothing is shown. */
export interface UnseenGeneration {
  begin: () => Promise<Generation>;
  consume: (generation: Generation) => Promise<void>;
  progress: () => number;
  /** What has been used, as far as the model server has said it. */
  usage: () => Usage | null | undefined;
}

interface RunningGeneration extends Omit<UnseenGeneration, "begin"> {
  /** One that goes on after a fault. */
  again: (fault: ApiError) => Promise<Generation>;
}

/**
 * How long a foreground turn that has not begun tries to reach its model server, in milliseconds: where the server has
 * only closed a connection that was kept open, it is had again at once, and a client that is told soon can go elsewhere.
 */
const START_TIME_MS = 50;

/** The error of a model call that nobody waits for any more. */
const CANCELLED = "cancelled";

export class Generations {
  readonly #options: GenerationOptions;
  readonly #builder: ResponseBuilder;
  readonly #prompt: RoundPrompt;
  readonly #sink: BatchSink | undefined;
  /** Ends what has been begun and cannot be used: only raw messages of the prompt can show that. */
  readonly #unusable: AbortController | undefined;

  constructor(options: GenerationOptions, builder: ResponseBuilder, prompt: RoundPrompt, sink: BatchSink | undefined) {
    this.#options = options;
    this.#builder = builder;
    this.#prompt = prompt;
    this.#sink = sink;
    this.#unusable = options.request.enable_response_messages ? new AbortController() : undefined;
  }

  /** Ends what has been begun: the turn has a fault that the generation knows nothing of. */
  giveUp(fault: ApiError): void {
    this.#unusable?.abort(fault);
  }

  /**
   * Asks the model. Resolves when its server has taken the prompt. Throws ApiError as the engine does, and the signal's
   * reason when it is aborted. A background run waits for its model server elsewhere, with events that say so.
   */
  async begin(): Promise<Generation> {
    const { request, maxRetries, maxFruitless, recoveryTimeMs, clock, signal } = this.#options;
    if (request.background || this.#hasBegun) return this.#ask();
    const timeMs = Math.min(recoveryTimeMs, START_TIME_MS);
    const recovery = new Recovery({ maxRetries, maxFruitless, timeMs, clock });
    for (;;) {
      try {
        return await this.#ask();
      } catch (error) {
        const fault = toApiError(error);
        const isAway = fault.code === "upstream_unreachable";
        const wait = isAway ? recovery.next(fault, { taken: false, spoke: false }) : undefined;
        if (wait === undefined) throw error;
        await pause(wait, signal);
        signal.throwIfAborted();
      }
    }
  }

  /**
   * Runs a generation to its end, taken up again as often as it may. Never rejects: gives the outcome that prevents it from
   * ending by itself.
   */
  async run(started: Promise<Generation>): Promise<Outcome | undefined> {
    const builder = this.#builder;
    const fault = await this.#toEnd(started, {
      consume: (generation) => this.#consume(generation),
      progress: () => builder.progress,
      usage: () => builder.usage,
      again: (fault) => this.takeUp(fault),
    });
    const call = this.#options.measured?.modelCalls.at(-1);
    if (call && !fault) call.finishReason = builder.finishReason;
    return fault;
  }

  /** The turn's client has got its first byte, or is to hear of all else as the turn's end. */
  get #hasBegun(): boolean {
    const { progress, state } = this.#builder;
    return progress > 0 || state.rounds > 0 || state.askedAgain > 0;
  }

  /**
   * Runs a generation of which nothing is shown to its end, begun anew as often as it may where it breaks off. `begin`
   * starts it, and `consume` takes what it says; `progress` and `usage` grow with that. Never rejects: gives the outcome that
   * prevents it from ending by itself.
   */
  runUnseen({ begin, ...generation }: UnseenGeneration): Promise<Outcome | undefined> {
    return this.#toEnd(begin(), { ...generation, again: begin });
  }

  async #toEnd(
    started: Promise<Generation>,
    { consume, progress, usage, again }: RunningGeneration,
  ): Promise<Outcome | undefined> {
    const { signal, request, maxRetries, maxFruitless, recoveryTimeMs: timeMs, clock, measured } = this.#options;
    const builder = this.#builder;
    const since = builder.state.round.outageSince;
    const recovery = new Recovery({ maxRetries, maxFruitless, timeMs, clock, since });
    let generation = started;
    let begun = this.#hasBegun || request.background === true;
    for (;;) {
      const before = progress();
      const usedBefore = measured && usage();
      let taken = false;
      try {
        const deltas = await generation;
        taken = true;
        begun = true;
        builder.outage = undefined;
        await consume(deltas);
        if (measured) endModelCall(measured, { now: clock(), tokens: tokensBetween(usedBefore, usage()) });
        return signal.aborted ? { status: "cancelled" } : undefined;
      } catch (error) {
        const fault = toApiError(error);
        if (measured) endModelCall(measured, { now: clock(), error: signal.aborted ? CANCELLED : fault.code });
        const spoke = progress() > before;
        const passes = begun && maxRetries > 0 && !signal.aborted && (await this.#passes(fault));
        if (signal.aborted) return { status: "cancelled" };
        const waitMs = passes ? recovery.next(fault, { taken, spoke }) : undefined;
        if (waitMs === undefined) return { status: "failed", error: fault };
        if (taken) this.#options.leaveServer();
        this.#tellOutage(recovery.outage);
        await pause(waitMs, signal);
        if (signal.aborted) return { status: "cancelled" };
        generation = again(fault);
      }
    }
  }

  /** A generation that goes on where the last one broke off. Throws the fault that broke it where that cannot be. */
  async takeUp(fault: ApiError): Promise<Generation> {
    const { engine, request, signal } = this.#options;
    const builder = this.#builder;
    const { sampled } = builder.state.round;
    // A model that goes on after its very tokens goes on in the middle of a call, too.
    if (!sampled) builder.forgetUnshown();
    const partial = builder.partialItems();
    if (partial.length === 0 && !sampled) return this.#ask();
    const prompt = await this.#prompt.fitting();
    const continuation = engine.continuation(prompt, partial as Item[], sampled);
    const { anew = 0 } = continuation ?? {};
    if (!this.#sink && (!continuation || anew > 0)) {
      // Nobody has seen anything of it.
      this.#lose(builder.withdrawRound());
      return this.#ask();
    }
    if (!continuation) throw cannotContinue(fault);
    const first = anew > 0 ? partial[partial.length - anew] : undefined;
    if (first) this.#lose(builder.breakOff(first.id));
    // Nothing is left to go on after.
    if (first && first === partial[0]) return this.#ask();
    const { sampledTokens } = continuation;
    const size = sampledTokens === undefined ? await this.#measure(continuation) : undefined;
    const { all, reasoning } = builder.roundDeltas;
    const spentBefore = (prompt.spentTokens ?? 0) + builder.state.round.lost.all;
    const spentTokens = spentBefore + (sampledTokens ?? size?.generated ?? all);
    const isText = continuation.prompt !== prompt && !continuation.prompt.sampled;
    const before = size && { prompt: size.prompt, reasoning, isText };
    const { max_output_tokens: limit } = request;
    // An engine that is told what was sampled ends it itself.
    if (limit != null && spentTokens >= limit && !continuation.prompt.sampled) {
      return outOfTokens(Math.max(0, limit - spentBefore), before ?? (await this.#brokenOff(prompt)));
    }
    const generation = await this.generate({ ...continuation.prompt, spentTokens }, signal, "take_up");
    return continued(generation, continuation.repeated, before);
  }

  /** Asks the model once, from the beginning of its round. */
  async #ask(): Promise<Generation> {
    const { request, signal } = this.#options;
    const ends = this.#unusable ? AbortSignal.any([signal, this.#unusable.signal]) : signal;
    const prompt = await this.#prompt.fitting();
    const { tokensInRound } = this.#builder;
    if (tokensInRound === 0) return this.generate(prompt, ends, "round");
    const spentTokens = (prompt.spentTokens ?? 0) + tokensInRound;
    const { max_output_tokens: limit } = request;
    if (limit == null || spentTokens < limit) return this.generate({ ...prompt, spentTokens }, ends, "round");
    return outOfTokens(Math.max(0, limit - spentTokens), await this.#brokenOff(prompt));
  }

  /** Has the engine generate, and notes when, where anybody wants to know. Throws as the engine does. */
  generate(prompt: Prompt, signal: AbortSignal, purpose: ModelCall["purpose"]): Promise<Generation> {
    const { engine, measured } = this.#options;
    return measured ? this.#measured(prompt, signal, purpose, measured) : engine.generate(prompt, signal);
  }

  async #measured(
    prompt: Prompt,
    signal: AbortSignal,
    purpose: ModelCall["purpose"],
    measured: Measurements,
  ): Promise<Generation> {
    const { engine, clock, replica } = this.#options;
    const call = beginModelCall(measured, { round: this.#builder.state.rounds, purpose, now: clock() });
    try {
      const generation = await engine.generate(prompt, signal);
      call.acceptedAt = clock();
      call.replica = replica?.();
      return generation;
    } catch (error) {
      call.replica = replica?.();
      const code = signal.aborted ? CANCELLED : toApiError(error).code;
      endModelCall(measured, { now: clock(), error: code });
      throw error;
    }
  }

  async #consume(generation: Generation): Promise<void> {
    const { measured, clock } = this.#options;
    const reads = generation[Symbol.asyncIterator]();
    let read = await reads.next();
    // Here rather than in the loop, which runs for each token.
    const call = measured?.modelCalls.at(-1);
    if (call && call.endedAt === undefined) call.firstChunkAt = clock();
    try {
      while (!read.done) {
        const full = this.#take(read.value);
        if (full) await full;
        if (this.#builder.isFull) {
          this.#builder.apply({ kind: "finish", reason: "length" });
          return;
        }
        read = await reads.next();
      }
    } finally {
      // What is left of it is not wanted; of one that has ended nothing is left.
      if (!read.done) await reads.return?.();
    }
  }

  /** Applies the deltas of an upstream read. What is returned holds the turn back until it resolves. */
  #take(deltas: readonly ModelDelta[]): Promise<void> | undefined {
    const builder = this.#builder;
    for (const delta of deltas) builder.apply(delta);
    builder.recordBuffered();
    return this.#sink?.flush();
  }

  async #passes(fault: ApiError): Promise<boolean> {
    const { isServerGone, signal } = this.#options;
    return isTransient(fault, () => isServerGone(signal).catch(() => false));
  }

  /** Says that the model server is waited for, once it is seen to be away; the log learns since when. */
  #tellOutage(outage: Outage | undefined): void {
    const builder = this.#builder;
    const isNew = outage !== undefined && builder.outage === undefined;
    builder.outage = outage;
    if (!isNew) return;
    builder.record({ outage: outage.since });
    builder.repeatInProgress();
    this.#sink?.flush();
  }

  /** What was said is said anew: it counts as output all the same. */
  #lose(deltas: DeltaCount): void {
    this.#builder.record({ lost: plus(this.#builder.state.round.lost, deltas) });
  }

  async #brokenOff(prompt: Prompt): Promise<BrokenOff | undefined> {
    const { engine, signal } = this.#options;
    try {
      const { tokens } = await engine.measure(prompt, signal);
      return { prompt: tokens, reasoning: this.#builder.roundDeltas.reasoning, isText: true };
    } catch {
      return undefined;
    }
  }

  /** Tokens of the prompt proper, and of what was generated after it; undefined where the engine cannot tell. */
  async #measure(continuation: Continuation): Promise<{ prompt: number; generated: number } | undefined> {
    const { engine, signal } = this.#options;
    try {
      const [prompt, whole] = await Promise.all([
        engine.measure(this.#prompt.current, signal),
        engine.measure(continuation.prompt, signal),
      ]);
      return { prompt: prompt.tokens, generated: Math.max(0, whole.tokens - prompt.tokens) };
    } catch (error) {
      // A server that is away could not generate, either; one that does not count can.
      if (error instanceof ApiError && (await this.#passes(error))) throw error;
      return undefined;
    }
  }
}

function cannotContinue(fault: ApiError): ApiError {
  return new ApiError({
    status: 502,
    message: `${fault.message} The model cannot be put back to where it was (in a function call, in structured output or in a refusal).`,
    code: "cannot_continue",
  });
}
