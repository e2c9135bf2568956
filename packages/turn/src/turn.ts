import { forEachAtOnce } from "@responses-edge/bounded-io/long-work";
import { traceparent } from "@responses-edge/otlp";
import { ApiError, contextLengthExceeded, toApiError } from "@responses-edge/responses-api/errors";
import { type Item, isAsyncCall, isServerCall } from "@responses-edge/responses-api/items/registry";
import { ClientTools } from "@responses-edge/responses-api/tool-names";
import { mustCall } from "@responses-edge/responses-api/tools";
import { Compaction, type DueCompaction } from "./compaction.ts";
import type { Prompt, RawMessage } from "./contract/engine.ts";
import { beginToolCall, endToolCall, NO_TOKENS, tokensOf } from "./contract/measurements.ts";
import { withoutCuts } from "./cuts.ts";
import {
  type Again,
  type CompactionKind,
  type Done,
  decide,
  disregarded,
  failed,
  type Outcome,
  type Step,
  steered,
  type TurnFacts,
  waitsForClient,
} from "./decide.ts";
import { notStored, restarted } from "./faults.ts";
import { unfulfillable } from "./forced-choice.ts";
import { Generations } from "./generation.ts";
import { InjectedOutputs } from "./injected-outputs.ts";
import type { TurnOptions } from "./options.ts";
import { ProgramRuns } from "./program-runs.ts";
import { checkCallPairs, firstRoundPrompt, makePrompt, promptOutput, RoundPrompt } from "./prompt.ts";
import type { ClosedResponse } from "./response.ts";
import { type Generation, resumedPrompt } from "./resume.ts";
import { roundItems, spentTokens, type TurnState, withThoughts } from "./state.ts";
import { TurnOutput } from "./turn-output.ts";

/**
 * One turn: history + request → generation → events → final response.
 * Uses only what it is given, so that the same code runs beside a client in the Worker and, for background runs, in the
 * conversation's home. `decide` gives its next `Step`.
 */

/** Codex's idle timeout is 300 s and counts only events: `in_progress` is repeated after this time, twice within it. */
const SIGN_OF_LIFE_MS = 120_000;

/**
 * Stores a settled turn, then sends the terminal event by calling `terminate` (which does nothing without a stream).
 * Rejects if it cannot be stored; the turn is then reported as failed.
 */
export type Settle = (result: TurnResult, terminate: () => void) => Promise<void>;

export interface TurnResult {
  outcome: Outcome;
  closed: ClosedResponse;
}

/** The beginning of a round: a compaction, or a generation in progress. */
type BegunRound = { due: DueCompaction; started?: undefined } | { due?: undefined; started: Promise<Generation> };

export class Turn {
  readonly #options: TurnOptions;
  readonly #output: TurnOutput;
  readonly #prompt: RoundPrompt;
  readonly #generations: Generations;
  readonly #compaction: Compaction | undefined;
  readonly #programs: ProgramRuns;
  readonly #injected: InjectedOutputs;
  readonly #facts: TurnFacts;
  #step: Step;
  /** The beginning of the round, if it has begun already. */
  #begun: Promise<BegunRound> | undefined;

  /** Throws the 400 of unpaired calls and outputs. */
  constructor(options: TurnOptions) {
    this.#options = options;
    const { asked, past, model, host, tools, logged } = options;
    const { request } = asked;
    const made = makePrompt(options, model.engine.noteRole);
    const first: Prompt = host.sink ? made : { ...made, isUnwatched: true };
    let kind: CompactionKind | undefined = request.context_management?.length ? "managed" : undefined;
    if (past.input.at(-1)?.type === "compaction_trigger") kind = "asked";
    // A compaction may contain unanswered calls.
    const usedCallIds = past.isTextOnly ? new Set<string>() : checkCallPairs(first.items, kind === "asked");
    const requestTools = () => this.#prompt.current.request.tools;
    const clientTool = (name: string) => ClientTools.of(requestTools()).get(name);
    this.#output = new TurnOutput({ ...options, usedCallIds, clientTool, prompted: first.request }, logged);
    this.#injected = new InjectedOutputs(options, this.#output);
    const prompt = logged ? resumedPrompt(first, options, this.#output) : first;
    this.#prompt = new RoundPrompt(prompt, model.engine, host.signal);
    this.#generations = new Generations(options, this.#output, this.#prompt);
    this.#programs = new ProgramRuns(options, this.#output, requestTools, kind === "asked");
    this.#compaction = kind && new Compaction(kind, options, this.#output, this.#prompt, this.#generations);
    this.#facts = {
      compaction: kind,
      maxOutputTokens: request.max_output_tokens ?? Number.POSITIVE_INFINITY,
      // Raw messages of a client's request or answer cannot be withdrawn.
      isUnseen: !host.sink && !request.enable_response_messages && request.previous_input_messages == null,
    };
    const { unlisted = [], approved = [] } = tools.session ?? {};
    const mustPrepare = unlisted.length > 0 || approved.length > 0 || this.#programs.areOpen;
    this.#step = this.#enter(decide(this.#output.state, { did: "begin", mustPrepare }, this.#facts));
  }

  /** The state of the turn. It may be passed to another turn only if this one ends here. */
  get state(): TurnState {
    return this.#output.state;
  }

  /** The error of a turn that its request lets only fail: it forces a call where there is none to make. */
  get refusal(): ApiError | undefined {
    return this.#step.kind === "end" && this.#step.outcome.status === "failed" ? this.#step.outcome.error : undefined;
  }

  /** True if the turn could go on from its log if its process ended now, without repeating what cannot be repeated. */
  get isResumable(): boolean {
    return this.state.answering ? this.#output.calls.areRepeatable : this.#generations.isResumable;
  }

  /**
   * Starts the generation: resolves once the model server has accepted the prompt. If other work comes first, `run`
   * does it, and this resolves at once; before a compaction, it resolves when the compaction is known to be needed.
   * Throws ApiError as the engine does, and the signal's reason when aborted.
   */
  async start(): Promise<void> {
    const { kind } = this.#step;
    if (kind === "end" && this.refusal) throw this.refusal;
    if (kind !== "compact" && kind !== "generate") return;
    this.#begun = this.#beginRound(kind);
    const round = await this.#begun;
    if (!round.due) await round.started;
  }

  /** Sends that the response is queued, and nothing more: nothing here may wait. */
  queue(): void {
    const { asked, model, host } = this.#options;
    if (asked.request.enable_response_messages) {
      try {
        // An engine that would have to ask the model server is aborted at once. No hosted tools are shown.
        const prompt = { ...this.#prompt.current, pluginTools: undefined };
        const messages = model.engine.inputMessages(prompt, AbortSignal.abort());
        if (!Array.isArray(messages)) messages.catch(() => {});
        else if (this.#output.size.fits(messages)) this.#output.messages.setInput(messages);
      } catch {
        // A fault of the prompt ends the run later, once it has begun.
      }
    }
    this.#output.response.queue();
    host.sink?.flush();
  }

  /**
   * Runs a turn that was started (`start`) to its end, with its events into the sink. Never rejects: every failure is
   * an outcome. The result is stored before the terminal event is sent.
   */
  async run(started: Promise<void>, settle: Settle): Promise<TurnResult> {
    // The step uses the generation itself, and its failure is the round's.
    started.catch(() => {});
    const { sink, diagnosis } = this.#options.host;
    const fault = this.#options.asked.request.enable_response_messages ? await this.#setInputMessages() : undefined;
    if (fault) this.#generations.giveUp(fault);
    const { state, response } = this.#output;
    response.start();
    sink?.flush();
    let seen = state.sequence;
    const repeat = () => {
      if (state.sequence === seen) {
        response.repeatInProgress();
        sink?.flush();
      }
      seen = state.sequence;
    };
    const signsOfLife = sink && setInterval(repeat, sink.signOfLifeMs ?? SIGN_OF_LIFE_MS);
    const outcome = fault ? failed(fault) : await this.#work();
    clearInterval(signsOfLife);
    if (diagnosis) response.diagnose(await diagnosis);
    return this.#settle(outcome, settle);
  }

  /** Resumes a turn that was cut off with its process: at the log's end, or from the beginning. */
  async resume(settle: Settle): Promise<TurnResult> {
    return this.run(this.start(), settle);
  }

  /** Settles a turn without generating: checked, empty, and ready to be continued. Never rejects. */
  async warmUp(settle: Settle): Promise<TurnResult> {
    this.#output.response.warmUp();
    return this.#settle({ status: "completed" }, settle);
  }

  /** Ends a turn that never got to generate. */
  async abandon(outcome: Outcome, settle: Settle): Promise<TurnResult> {
    return this.#settle(outcome, settle);
  }

  async #settle(outcome: Outcome, settle: Settle): Promise<TurnResult> {
    const { response } = this.#output;
    const { sink, measured } = this.#options.host;
    this.#programs.close(outcome);
    let result = { outcome, closed: this.#output.close(outcome) };
    let said = false;
    const terminate = () => {
      said = true;
      response.terminate(result.outcome, result.closed);
    };
    try {
      await settle(result, terminate);
    } catch (error) {
      const fault = failed(error instanceof ApiError ? error : notStored());
      result = { outcome: fault, closed: this.#output.close(fault) };
      if (!said) terminate();
    }
    await sink?.flush();
    const { usage } = response.object;
    const { code: error, message } = result.outcome.status === "failed" ? result.outcome.error : {};
    measured.end = { status: result.outcome.status, error, message, tokens: usage ? tokensOf(usage) : NO_TOKENS };
    return result;
  }

  /** Runs all steps of the turn. Never rejects. */
  async #work(): Promise<Outcome> {
    const { asked, tools, host } = this.#options;
    try {
      await tools.session?.open(host.signal);
      while (this.#step.kind !== "end") {
        const { kind } = this.#step;
        let done: Done;
        if (kind === "prepare") done = await this.#prepare();
        else if (kind === "compact") done = await this.#compact();
        else if (kind === "answer") done = await this.#answer(this.#step.again);
        else done = await this.#generate(this.#step);
        const next = decide(this.#output.state, done, this.#facts);
        this.#step = this.#enter(host.steering?.signal.aborted ? steered(next, done) : next);
        // Lists that were made in this step belong to the prompt.
        if (kind === "prepare" && asked.request.enable_response_messages) await this.#setInputMessages();
      }
      return this.#step.outcome;
    } catch (error) {
      return host.signal.aborted ? { status: "cancelled" } : failed(toApiError(error));
    } finally {
      this.#injected.close();
      // Runs beside the answer.
      if (tools.session) host.waitUntil?.(tools.session.close());
    }
  }

  /**
   * Offers the model its tools once all of them are known, unless the turn has used up its calls. The turn ends if a
   * call is forced and there is none to make.
   */
  #enter(step: Step): Step {
    const { tools, host, model } = this.#options;
    const { session } = tools;
    const isSameRound = step.kind === "generate" && step.again;
    if (isSameRound || step.kind === "prepare" || step.kind === "end") return step;
    const { calls, state } = this.#output;
    if (state.rounds >= this.#options.bounds.maxRounds) this.#prompt.withoutPrograms();
    if (session) {
      calls.isOffered = calls.left > 0 && state.rounds < session.maxRounds && host.clock() < session.deadline;
      this.#prompt.change({ pluginTools: calls.isOffered ? session.pluginTools : undefined });
    }
    const beginsRound = step.kind === "generate" || (step.kind === "compact" && this.#facts.compaction === "managed");
    const choice = this.#prompt.current.request.tool_choice;
    if (!beginsRound || choice == null || !mustCall(choice)) return step;
    const fault = unfulfillable(this.#prompt.current, model.engine, { session, output: state.output });
    return fault ? { kind: "end", outcome: failed(fault) } : step;
  }

  /** Lists the tools of MCP servers, and runs the approved calls, if there are any. */
  async #prepare(): Promise<Done> {
    const { tools, host } = this.#options;
    const { session } = tools;
    const { signal, sink, measured, clock } = host;
    const { calls, state } = this.#output;
    await forEachAtOnce([...(session?.unlisted ?? [])], async (server) => {
      signal.throwIfAborted();
      const index = this.#output.beginList(server.server_label);
      sink?.flush();
      const noted = beginToolCall(measured, { tool: { kind: "mcp" }, name: server.server_label }, clock());
      const listed = await server.list(signal, traceparent(measured.trace, noted.span));
      endToolCall(noted, { failed: "error" in listed }, clock());
      signal.throwIfAborted();
      this.#output.endList(index, listed, server.origin);
      sink?.flush();
    });
    signal.throwIfAborted();
    const isBegun = state.rounds > 0 || state.answering !== undefined;
    const approved = session?.approved ?? [];
    if (isBegun || (approved.length === 0 && !this.#programs.areOpen)) return { did: "prepare" };
    for (const call of approved) calls.addApproved(call);
    return this.#answer([]);
  }

  /** Finds out whether the round's prompt must be compacted, if it may be; otherwise its generation begins. */
  async #beginRound(kind: "compact" | "generate"): Promise<BegunRound> {
    const due = kind === "compact" ? await this.#compaction?.due() : undefined;
    if (due) return { due };
    const started = this.#generations.begin();
    // Its failure is the round's.
    started.catch(() => {});
    return { started };
  }

  /** Compacts the prompt, if it must be. */
  async #compact(): Promise<Done> {
    this.#begun ??= this.#beginRound("compact");
    const { due } = await this.#begun;
    if (due) this.#begun = undefined;
    return { did: "compact", fault: due && (await this.#compaction?.run(due)) };
  }

  /**
   * Asks the model, `again` if its last answer in this round was unusable; or continues the generation that was cut
   * off.
   */
  async #generate(step: Extract<Step, { kind: "generate" | "resume" }>): Promise<Done> {
    let started: Promise<Generation> | undefined;
    if (step.kind === "resume") started = this.#generations.resume(restarted());
    else {
      if (step.again) this.#askAgain(step.again);
      this.#begun ??= this.#beginRound("generate");
      ({ started } = await this.#begun);
      this.#begun = undefined;
    }
    const fault = await this.#generations.run(started ?? this.#generations.begin());
    const { round, calls, state, response } = this.#output;
    const { finish, noAnswer, unread } = round;
    const prompt = this.#prompt.current;
    const isWhole = !fault && finish !== "length" && finish !== "content_filter";
    if (isWhole) round.end();
    const mayGoOn = state.rounds < this.#options.bounds.maxRounds;
    const injected = isWhole && mayGoOn && !noAnswer ? this.#injected.take() : 0;
    const asyncCalls = mayGoOn ? roundItems(state).filter(isAsyncCall).length : 0;
    return {
      did: "generate",
      fault,
      finish,
      noAnswer,
      calls: isWhole ? calls.pending.size + asyncCalls + injected + Number(this.#programs.areOpen) : 0,
      waitsForClient: waitsForClient(state),
      mayAnswerWithoutTools: calls.ignored > 0 && prompt.pluginTools !== undefined,
      spentTokens: spentTokens(state) + response.tokensInRound,
      disregarded: isWhole ? (unread ?? disregarded(this.#options.asked.request, prompt, state)) : undefined,
    };
  }

  #askAgain(again: Again): void {
    if ("disregarded" in again) {
      const said = roundItems(this.#output.state).filter(({ type }) => type === "message");
      this.#generations.takeBack();
      this.#prompt.correct(said as Item[], again.disregarded);
    } else this.#prompt.askAgain(again.change);
    this.#output.askAgain("disregarded" in again || again.isCounted);
  }

  /** Runs the calls of a round, and begins the next one, unless the client must answer something, too. */
  async #answer(again: readonly RawMessage[]): Promise<Done> {
    const output = this.#output;
    const { state } = output;
    if (!state.answering) {
      // The model may have called a tool that it only saw.
      if (again.length > 0) this.#prompt.change({ onlyOffered: true });
      output.beginAnswering([...again]);
    }
    this.#injected.take();
    await this.#programs.answer();
    const isClients = waitsForClient(state);
    if (!isClients) {
      // The round's output becomes part of the prompt.
      const items = withoutCuts(state.cuts, withThoughts(state, roundItems(state))) as Item[];
      const hasCalled = again.length === 0 || items.some((item) => isServerCall(item) || isAsyncCall(item));
      output.nextRound();
      this.#prompt.next(promptOutput(this.#options.past, output, items), hasCalled);
    }
    return {
      did: "answer",
      waitsForClient: isClients,
      isFull: output.size.isFull,
      disregarded: isClients ? disregarded(this.#options.asked.request, this.#prompt.current, state) : undefined,
    };
  }

  /** Sets the prompt that the response gives, as raw messages. Gives the fault that prevents it. */
  async #setInputMessages(): Promise<ApiError | undefined> {
    const { model, host } = this.#options;
    try {
      const prompt = firstRoundPrompt(await this.#prompt.fitting(), this.#options, this.#output);
      const messages = await model.engine.inputMessages(prompt, host.signal);
      if (!this.#output.size.fits(messages)) {
        return contextLengthExceeded("The prompt is too large for the response's messages.");
      }
      this.#output.messages.setInput(messages);
      return undefined;
    } catch (error) {
      return toApiError(error);
    }
  }
}
