import { ApiError, toApiError } from "@responses-edge/responses-api/errors";
import type { Item } from "@responses-edge/responses-api/items/registry";
import type { Usage } from "@responses-edge/responses-api/response";
import type { Prompt, Resumption } from "./contract/engine.ts";
import { type ModelCall, tokensBetween } from "./contract/measurements.ts";
import { pause } from "./contract/pause.ts";
import { withoutCuts } from "./cuts.ts";
import type { Outcome } from "./decide.ts";
import { cannotContinue } from "./faults.ts";
import { NotedCalls } from "./noted-calls.ts";
import type { TurnOptions } from "./options.ts";
import type { RoundPrompt } from "./prompt.ts";
import type { DeltaCount } from "./records.ts";
import { type CutCause, RepetitionGuard } from "./repetition-guard.ts";
import type { Outage } from "./response.ts";
import { type BrokenOff, type Generation, isTransient, over, ResumePolicy, resumed } from "./resume.ts";
import { plus, roundDeltas } from "./state.ts";
import type { TurnOutput } from "./turn-output.ts";

/**
 * The generations of a turn, one for each round. One whose upstream dies is resumed where it stopped, once the model
 * server is back.
 */

/** A generation in progress, and its consumer. */
interface RunningGeneration {
  started: Promise<Generation>;
  /** Reads a generation to its end. Gives how to go on if it was broken off. */
  consume: (generation: Generation) => Promise<(() => Promise<Generation>) | undefined>;
  /** `progress` grows with all output; `usage` is the use so far, as the model server has reported it. */
  said: { readonly progress: number; readonly usage: Usage | null | undefined };
  /** Begins a generation that continues after a fault. */
  again: (fault: ApiError) => Promise<Generation>;
}

/**
 * How long a foreground turn that has not begun tries to reach its model server, in milliseconds. If the server has
 * only closed an idle connection, it is reached again at once; otherwise a client that is told soon can go elsewhere.
 */
const START_TIME_MS = 50;

/** Faults of a model server that has died. */
const DEATHS = new Set([
  "upstream_unreachable",
  "upstream_connection_lost",
  "upstream_engine_dead",
  "upstream_aborted",
]);

export class Generations {
  readonly calls: NotedCalls;
  readonly #options: Pick<TurnOptions, "asked" | "model" | "bounds" | "tools" | "host">;
  readonly #output: TurnOutput;
  readonly #prompt: RoundPrompt;
  readonly #guard: RepetitionGuard;
  /**
   * Aborts a generation that began and turned out unusable. Undefined if only the raw messages of a prompt could show
   * that.
   */
  readonly #unusable: AbortController | undefined;
  /** Aborted when the generation under way is to end: nobody wants it, it cannot be used, or the turn is steered. */
  readonly #ends: AbortSignal;

  constructor(
    options: Pick<TurnOptions, "asked" | "model" | "bounds" | "tools" | "host">,
    output: TurnOutput,
    prompt: RoundPrompt,
  ) {
    this.#options = options;
    this.#output = output;
    this.#prompt = prompt;
    this.calls = new NotedCalls(output, options.host);
    this.#guard = new RepetitionGuard(options, output);
    this.#unusable = options.asked.request.enable_response_messages ? new AbortController() : undefined;
    const { signal, steering } = options.host;
    const ends = [signal];
    if (this.#unusable) ends.push(this.#unusable.signal);
    if (steering) ends.push(steering.signal);
    this.#ends = ends.length === 1 ? signal : AbortSignal.any(ends);
  }

  /** True if the generation under way could be resumed now (`resume`), or there is none. */
  get isResumable(): boolean {
    const { round, state } = this.#output;
    const { sampled } = state.round;
    if (round.partialItems.length === 0 && !sampled) return true;
    return this.#resumption(this.#prompt.current) !== undefined;
  }

  /** Aborts a generation that has begun, because the turn has failed otherwise. */
  giveUp(fault: ApiError): void {
    this.#unusable?.abort(fault);
  }

  /**
   * Asks the model. Resolves once its server has accepted the prompt. Throws ApiError as the engine does, and the
   * signal's reason when it is aborted. A background run waits for its model server elsewhere, with events that say so.
   */
  async begin(): Promise<Generation> {
    const { bounds, host } = this.#options;
    const { signal, clock } = host;
    let policy: ResumePolicy | undefined;
    for (;;) {
      try {
        return await this.#ask();
      } catch (error) {
        const fault = toApiError(error);
        if (fault.code !== "upstream_unreachable" || this.#hasBegun) throw error;
        policy ??= new ResumePolicy({ ...bounds, outageMs: Math.min(bounds.outageMs, START_TIME_MS) }, clock);
        const wait = policy.next(fault, { taken: false, spoke: false });
        if (wait === undefined) throw error;
        await pause(wait, signal);
        signal.throwIfAborted();
      }
    }
  }

  /** Runs the round's generation to its end. As `runToEnd`. */
  async run(started: Promise<Generation>): Promise<Outcome | undefined> {
    const { round, size } = this.#output;
    const { model, host } = this.#options;
    const { sink } = host;
    const guard = this.#guard;
    const mayCite = this.#options.tools.session?.citations !== undefined;
    const consume = async (generation: Generation) => {
      const reads = generation[Symbol.asyncIterator]();
      let read = await reads.next();
      // Outside the loop, which runs for each token.
      const call = this.calls.first();
      guard.begin(model.engine.unboundThinking(this.#prompt.current));
      try {
        while (!read.done) {
          for (const delta of read.value) {
            // The samples come after the deltas that they have become.
            if (guard.cause && delta.kind !== "sampled") continue;
            round.apply(delta);
            guard.read(delta);
          }
          if (mayCite) round.recordBuffered();
          // A returned promise makes the turn wait for it.
          const full = sink?.flush();
          if (full) await full;
          if (size.isFull) {
            round.apply({ kind: "finish", reason: "length" });
            return undefined;
          }
          const { cause } = guard;
          if (cause) return () => this.#goOnAfter(cause);
          read = await reads.next();
        }
      } finally {
        if (call) call.finishReason = round.finish;
        // Stops an unfinished generation.
        if (!read.done) await reads.return?.();
      }
      return undefined;
    };
    return this.runToEnd({ started, consume, said: round, again: (fault) => this.resume(fault) });
  }

  /** Tells whether a fault ends a response that has begun, rather than being the answer to its request. */
  get #hasBegun(): boolean {
    const { round, state } = this.#output;
    return (
      this.#options.asked.request.background === true || round.progress > 0 || state.rounds > 0 || state.askedAgain > 0
    );
  }

  /**
   * Tells whether a client that has been sent events, though no output yet, waits for the end of an outage: its server
   * has died. One that is too slow, or overloaded, would be so again.
   */
  #outlives({ code }: ApiError): boolean {
    return this.#options.host.sink !== undefined && this.#output.state.sequence > 0 && DEATHS.has(code);
  }

  /**
   * Runs a generation to its end, resuming it after faults as often as allowed. Never rejects: a fault that ends the turn
   * is its result.
   */
  async runToEnd({ started, consume, said, again }: RunningGeneration): Promise<Outcome | undefined> {
    const { model, bounds, host } = this.#options;
    const { signal, steering, clock } = host;
    const { state, response } = this.#output;
    const { outageSince } = state.round;
    let policy: ResumePolicy | undefined;
    let generation = started;
    let begun = false;
    let isCut = false;
    for (;;) {
      const before = said.progress;
      const usedBefore = said.usage;
      let taken = false;
      try {
        const deltas = await generation;
        taken = true;
        begun = true;
        response.outage = undefined;
        const goOn = await consume(deltas);
        this.calls.end(tokensBetween(usedBefore, said.usage));
        if (signal.aborted) return { status: "cancelled" };
        if (!goOn) return undefined;
        generation = goOn();
      } catch (error) {
        const fault = toApiError(error);
        this.calls.fail(fault, !this.#ends.aborted);
        if (signal.aborted) return { status: "cancelled" };
        if (steering?.signal.aborted && !isCut) {
          isCut = true;
          generation = this.#cut();
          continue;
        }
        const spoke = said.progress > before;
        begun ||= this.#hasBegun || this.#outlives(fault);
        const passes = begun && bounds.maxRetries > 0 && !signal.aborted && (await this.#passes(fault));
        if (signal.aborted) return { status: "cancelled" };
        policy ??= new ResumePolicy(bounds, clock, outageSince);
        const waitMs = passes ? policy.next(fault, { taken, spoke }) : undefined;
        if (waitMs === undefined) return { status: "failed", error: fault };
        if (taken) model.leaveServer();
        this.#tellOutage(policy.outage);
        await pause(waitMs, this.#ends);
        if (signal.aborted) return { status: "cancelled" };
        isCut ||= steering?.signal.aborted === true;
        generation = isCut ? this.#cut() : again(fault);
      }
    }
  }

  /**
   * Begins a generation that continues where the last one broke off. If that is impossible, it throws the fault that
   * broke it off; without a fault, because this server broke it off, it ends the generation.
   */
  async resume(fault?: ApiError): Promise<Generation> {
    const { asked, host } = this.#options;
    const { round, state } = this.#output;
    const { sampled } = state.round;
    // With its exact tokens, a model can even continue in the middle of a call.
    if (!sampled) round.forgetUnshown();
    const partial = round.partialItems;
    if (partial.length === 0 && !sampled && state.round.cuts.thought === 0) return this.#ask();
    const prompt = await this.#prompt.fitting();
    const resumption = this.#resumption(prompt);
    const { anew = 0 } = resumption ?? {};
    if (!host.sink && (!resumption || anew > 0 || resumption.prompt.begun)) {
      // Nobody has seen its output.
      this.takeBack();
      return this.#ask();
    }
    if (!resumption && fault) throw cannotContinue(fault);
    if (!resumption) return this.#cut();
    const first = anew > 0 ? partial[partial.length - anew] : undefined;
    if (first) this.#lose(round.breakOff(first.id));
    // Nothing is left to continue.
    if (first && first === partial[0] && !resumption.isQuoted) return this.#ask();
    const { sampledTokens } = resumption;
    const size = sampledTokens === undefined ? await this.#measure(resumption) : undefined;
    const { all, reasoning } = roundDeltas(state);
    const spentBefore = (prompt.spentTokens ?? 0) + state.round.lost.all;
    const spentTokens = spentBefore + (sampledTokens ?? size?.generated ?? all);
    const isText = resumption.prompt !== prompt && !resumption.prompt.sampled;
    const before = size && { prompt: size.prompt, added: size.added, reasoning, isText };
    const { max_output_tokens: limit } = asked.request;
    if (resumption.ends)
      return over(size?.generated ?? all, before ?? (await this.#brokenOff(prompt)), resumption.ends);
    // An engine that gets the samples ends it by itself.
    if (limit != null && spentTokens >= limit && !resumption.prompt.sampled) {
      return over(Math.max(0, limit - spentBefore), before ?? (await this.#brokenOff(prompt)));
    }
    const again = { ...resumption.prompt, spentTokens, ...this.#guard.promptChange };
    const generation = await this.generate(again, this.#ends, "take_up");
    return resumed(generation, resumption.repeated, before);
  }

  /**
   * Ends a generation where it is, as a limit would. An engine that knows what was sampled makes its last message of it; words that another
   * one has held back are lost.
   */
  async #cut(): Promise<Generation> {
    const { model, host } = this.#options;
    const { round, state } = this.#output;
    const { sampled } = state.round;
    if (!sampled) round.forgetUnshown();
    const prompt = await this.#prompt.fitting();
    const resumption = sampled && this.#resumption(prompt);
    if (!resumption?.prompt.sampled) return over(roundDeltas(state).all, await this.#brokenOff(prompt));
    // All that it may put out has been sampled: nobody is asked.
    const request = { ...resumption.prompt.request, max_output_tokens: 1 };
    return model.engine.generate({ ...resumption.prompt, request, spentTokens: 1 }, host.signal);
  }

  /** The prompt that continues after the round's output, without its cuts; undefined if the engine cannot make it. */
  #resumption(prompt: Prompt): Resumption | undefined {
    const { round, state } = this.#output;
    const { sampled, cuts } = state.round;
    const partial = withoutCuts(state.cuts, round.partialItems) as Item[];
    const { engine } = this.#options.model;
    return engine.resumption(prompt, partial, sampled, { endsThought: cuts.thought > 0 });
  }

  /** Goes on after a generation that this server has broken off, or ends it if that has been of no use. */
  async #goOnAfter(cause: CutCause): Promise<Generation> {
    const { round } = this.#output;
    round.finish = undefined;
    if (!this.#guard.mayGoOn(cause.kind)) return this.#cut();
    await this.#guard.cutOff(cause, this.#prompt.current);
    return this.resume();
  }

  /** Asks the model once, from the beginning of its round. */
  async #ask(): Promise<Generation> {
    const ends = this.#ends;
    const prompt = { ...(await this.#prompt.fitting()), ...this.#guard.promptChange };
    const { tokensInRound } = this.#output.response;
    if (tokensInRound === 0) return this.generate(prompt, ends, "round");
    const spentTokens = (prompt.spentTokens ?? 0) + tokensInRound;
    const { max_output_tokens: limit } = this.#options.asked.request;
    if (limit == null || spentTokens < limit) return this.generate({ ...prompt, spentTokens }, ends, "round");
    return over(Math.max(0, limit - spentTokens), await this.#brokenOff(prompt));
  }

  /** Lets the engine generate, and measures it. Throws as the engine does. */
  async generate(prompt: Prompt, signal: AbortSignal, purpose: ModelCall["purpose"]): Promise<Generation> {
    const { engine, replica } = this.#options.model;
    const { clock, onPrompt } = this.#options.host;
    const call = this.calls.begin({ purpose, model: prompt.model });
    try {
      const generation = await engine.generate(prompt, signal);
      call.acceptedAt = clock();
      onPrompt?.(prompt);
      return generation;
    } catch (error) {
      this.calls.fail(error, !signal.aborted);
      throw error;
    } finally {
      call.replica = replica?.();
    }
  }

  async #passes(fault: ApiError): Promise<boolean> {
    const { model, host } = this.#options;
    return isTransient(fault, () => model.isServerGone(host.signal).catch(() => false));
  }

  /** Reports that the turn waits for the model server, once it is known to be away; the log records since when. */
  #tellOutage(outage: Outage | undefined): void {
    const { response, writer } = this.#output;
    const isNew = outage !== undefined && response.outage === undefined;
    response.outage = outage;
    if (!isNew) return;
    writer.record({ outage: outage.since });
    response.repeatInProgress();
    this.#options.host.sink?.flush();
  }

  /** Withdraws the round's output, which nobody has seen. */
  takeBack(): void {
    this.#lose(this.#output.round.withdraw());
  }

  /** Repeated words still count as output. */
  #lose(deltas: DeltaCount): void {
    const { writer, state } = this.#output;
    writer.record({ lost: plus(state.round.lost, deltas) });
  }

  async #brokenOff(prompt: Prompt): Promise<BrokenOff | undefined> {
    const { model, host } = this.#options;
    try {
      const { tokens } = await model.engine.measure(prompt, host.signal);
      return { prompt: tokens, reasoning: roundDeltas(this.#output.state).reasoning, isText: true };
    } catch {
      return undefined;
    }
  }

  /**
   * Tokens of the prompt proper, of the text generated after it, and of neither; undefined if the engine cannot tell.
   */
  async #measure(resumption: Resumption): Promise<{ prompt: number; generated: number; added: number } | undefined> {
    const { model, host } = this.#options;
    try {
      const [prompt, whole] = await Promise.all([
        model.engine.measure(this.#prompt.current, host.signal),
        model.engine.measure(resumption.prompt, host.signal),
      ]);
      const more = Math.max(0, whole.tokens - prompt.tokens);
      // An answer that is over is not in the prompt.
      const isCounted = whole.isTokenPerDelta || resumption.isQuoted || resumption.ends;
      const generated = isCounted ? roundDeltas(this.#output.state).all : more;
      return { prompt: prompt.tokens, generated, added: Math.max(0, more - generated) };
    } catch (error) {
      // A server that is away could not generate, either; one that cannot count can.
      if (error instanceof ApiError && (await this.#passes(error))) throw error;
      return undefined;
    }
  }
}
