import type {
  Continuation,
  Engine,
  ModelDelta,
  Prompt,
  RawMessage,
  Replay,
  Sampled,
  TokenLogprob,
  ToolExchange,
} from "../contract/engine.ts";
import type { HostedTools } from "../contract/hosted-tool.ts";
import type { PendingCall, ToolOutcome } from "../contract/server-tool.ts";
import type { TurnTools } from "../contract/turn-tools.ts";
import type { CreateRequest } from "../protocol/create-request.ts";
import { ApiError, contextLengthExceeded, toApiError } from "../protocol/errors.ts";
import { responseId, type TurnAddress } from "../protocol/ids.ts";
import type { Item } from "../protocol/items.ts";
import { initialResponse, type Usage } from "../protocol/response.ts";
import { mustCall } from "../protocol/tools.ts";
import type { EventSink } from "./event-writer.ts";
import { checkCallPairs, promptItems } from "./history.ts";
import { addSampled, type LoggedTurn, type SpentDeltas } from "./logged-turn.ts";
import { isTransient, pause, Recovery } from "./recovery.ts";
import { type ClosedResponse, type Outage, type Outcome, ResponseBuilder } from "./response-builder.ts";
import { truncateToFit } from "./truncation.ts";

/**
 * One turn: history + request → generation → events → final response.
 *
 * Pure but for what it is handed, so that the same code runs beside a client in the Worker and, for background runs,
 * in the conversation's home. A generation whose upstream dies is taken up again where it stopped.
 */

export interface TurnOptions {
  engine: Engine;
  request: CreateRequest;
  address: TurnAddress;
  /** The model's name as the client knows it, and as vLLM does. */
  model: { name: string; upstream: string };
  /** Items of earlier turns, oldest first, and the raw messages behind them. */
  history: Item[];
  replays: Replay[];
  /** This turn's input, references resolved. */
  input: Item[];
  cacheSalt: string;
  /** Unix milliseconds. */
  createdAt: number;
  /** Aborted when nobody wants the answer any more. */
  signal: AbortSignal;
  /** Now, in Unix milliseconds. */
  clock: () => number;
  /** How often a generation that broke off is taken up again in each round; 0 lets it fail. */
  maxRetries: number;
  /** How long an outage of the model server is waited for, in milliseconds. */
  recoveryTimeMs: number;
  /** Asks the model server whether it is gone. */
  isServerGone: (signal: AbortSignal) => Promise<boolean>;
  /** Keeps the host alive for what is still to be done when the turn has ended. */
  waitUntil?: (promise: Promise<unknown>) => void;
  hostedTools: HostedTools;
  /** Those of them that the request names, if it names any. */
  tools?: TurnTools | undefined;
  /** The run goes on where this log ends. */
  logged?: LoggedTurn;
  /** What all that the turn puts out may take as JSON, in UTF-16 units; what reaches it is `incomplete`. */
  room: number;
}

/** Codex's idle timeout is 300 s and counts events only: after two of these without one, `in_progress` is repeated. */
const SIGN_OF_LIFE_MS = 120_000;

/** How often a turn asks its model again that has called what nobody offered. */
const MAX_ASKED_AGAIN = 3;

/** Calls of one round, and servers asked for their tools, side by side. */
const MAX_CONCURRENT_CALLS = 8;

/**
 * How long a foreground turn that has not begun tries to reach its model server, in milliseconds: where the server has
 * only closed a connection that was kept open, it is had again at once, and a client that is told soon can go elsewhere.
 */
const START_TIME_MS = 50;

/** A sink that can be written to in batches and pushes back. */
export interface BatchSink extends EventSink {
  /** Writes at once, where a crash must not forget what is about to be done. */
  commit?(): void;
  /** Called after all events of one upstream read; a returned promise holds the turn back until it resolves. */
  flush(): Promise<void> | undefined;
}

/**
 * Keeps a settled turn, then says the terminal event by calling `terminate` (nothing to say where nobody streams).
 * Rejects when it cannot keep it; the turn is then reported as failed.
 */
export type Settle = (result: TurnResult, terminate: () => void) => Promise<void>;

export interface TurnResult {
  outcome: Outcome;
  closed: ClosedResponse;
}

type Generation = AsyncIterable<ModelDelta[]>;

export class Turn {
  readonly #options: TurnOptions;
  #prompt: Prompt;
  /** The prompt, being shortened to fit; undefined where it has changed since. */
  #fitting: Promise<Prompt> | undefined;
  /** Ends what the turn itself has begun and cannot use. */
  readonly #unusable = new AbortController();
  readonly #builder: ResponseBuilder;
  readonly #sink: BatchSink | undefined;
  /** Of the current round: what it has sampled, and the messages with which to ask again. */
  #sampled: Sampled | undefined;
  #askAgain: RawMessage[] = [];
  /** How often something was sampled: also what shows nothing is a beginning to go on from. */
  #samples = 0;
  /** What this round has said in vain, because it was begun anew. In deltas: about as many as tokens. */
  #lost: SpentDeltas;
  #askedAgain = 0;
  #rounds = 0;
  /** What the log knows to be said and not shown yet. */
  #held = "";

  /** `sink` takes the events, where anybody wants them. Throws the 400 of calls and outputs that do not pair up. */
  constructor(options: TurnOptions, sink?: BatchSink) {
    this.#options = options;
    this.#sink = sink;
    const items = promptItems(options.history, options.input);
    const { model, request, cacheSalt, createdAt, logged } = options;
    const builder = newBuilder(options, checkCallPairs(items), sink);
    this.#builder = builder;
    const previous = request.previous_input_messages;
    if (previous != null) builder.lead(previous, options.input[0]?.id);
    this.#prompt = {
      model: model.upstream,
      items: [...items, ...builder.earlierOutput],
      replays: [...options.replays, ...builder.replays],
      trailing: [...builder.looseMessages],
      request: logged && logged.rounds > 0 ? afterFirstRound(request) : request,
      serverTools: undefined,
      cacheSalt,
      createdAt,
      spentTokens: builder.usage?.output_tokens ?? 0,
    };
    this.#sampled = logged?.sampled;
    this.#rounds = logged?.rounds ?? 0;
    this.#askedAgain = logged?.askedAgain ?? 0;
    this.#lost = logged?.lost ?? NOTHING_LOST;
  }

  get id(): string {
    return responseId(this.#options.address);
  }

  /**
   * Starts the generation: resolves when the model server has taken the prompt; with undefined where something is to be
   * done before it, which `run` then does. Throws ApiError as the engine does, and the signal's reason when aborted.
   */
  async start(): Promise<Generation | undefined> {
    const { tools } = this.#options;
    if (tools?.mustPrepare) return undefined;
    if (tools) this.#offer(tools);
    return this.#beginSoon();
  }

  /** Begins the first round. A background run waits for its model server elsewhere, with events that say so. */
  async #beginSoon(): Promise<Generation> {
    const { request, maxRetries, recoveryTimeMs, clock, signal } = this.#options;
    if (request.background) return this.#begin();
    const recovery = new Recovery({ maxRetries, timeMs: Math.min(recoveryTimeMs, START_TIME_MS), clock });
    for (;;) {
      try {
        return await this.#begin();
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

  async #begin(): Promise<Generation> {
    const { engine, request, signal } = this.#options;
    const ends = request.enable_response_messages ? AbortSignal.any([signal, this.#unusable.signal]) : signal;
    const prompt = await this.#fittingPrompt();
    const { all: lost } = this.#lost;
    if (lost === 0) return engine.generate(prompt, ends);
    const spentTokens = (prompt.spentTokens ?? 0) + lost;
    const { max_output_tokens: limit } = request;
    if (limit == null || spentTokens < limit) return engine.generate({ ...prompt, spentTokens }, ends);
    return spent(Math.max(0, limit - spentTokens), await this.#brokenOff(prompt));
  }

  /** The prompt of this round, with `truncation: "auto"` shortened to fit. */
  async #fittingPrompt(): Promise<Prompt> {
    const { engine, request, signal } = this.#options;
    if (request.truncation !== "auto") return this.#prompt;
    this.#fitting ??= truncateToFit(engine, this.#prompt, signal);
    const fitting = this.#fitting;
    const fitted = await fitting;
    if (this.#fitting === fitting) this.#prompt = fitted;
    return fitted;
  }

  /** Says that the response is queued, and no more: nothing here may wait. */
  queue(): void {
    const { engine, request } = this.#options;
    if (request.enable_response_messages) {
      try {
        // Whoever would have to ask the model server gives up at once.
        const messages = engine.inputMessages(this.#prompt, AbortSignal.abort());
        if (!Array.isArray(messages)) messages.catch(() => {});
        else if (this.#builder.hasRoomFor(messages)) this.#builder.inputMessages = messages;
      } catch {
        // What is wrong with the prompt ends the run, which has not begun.
      }
    }
    this.#builder.queue();
    this.#sink?.flush();
  }

  /**
   * Runs a started generation to its end, with its events into the sink. Never rejects: whatever goes wrong is an
   * outcome. The result is settled (kept) before the terminal event is said.
   */
  async run(started: Promise<Generation | undefined>, settle: Settle): Promise<TurnResult> {
    const builder = this.#builder;
    // Awaited below, unless something before it fails.
    started.catch(() => {});
    const { request, tools } = this.#options;
    if (tools && !tools.mustPrepare && !this.#prompt.serverTools) this.#offer(tools);
    const fault = request.enable_response_messages ? await this.#showPrompt() : undefined;
    if (fault) this.#unusable.abort(fault);
    builder.start();
    this.#sink?.flush();
    const stopSigns = this.#sink && giveSignsOfLife(builder, this.#sink);
    const outcome = fault ? failed(fault) : await this.#work(started);
    stopSigns?.();
    return this.#settle(outcome, settle);
  }

  /** Puts the prompt into the response, as raw messages. Gives the fault that prevents it. */
  async #showPrompt(): Promise<ApiError | undefined> {
    const { engine, signal } = this.#options;
    try {
      const messages = await engine.inputMessages(this.#withoutOutput(await this.#fittingPrompt()), signal);
      if (!this.#builder.hasRoomFor(messages)) {
        return contextLengthExceeded("The prompt is too large to be given as messages with the response.");
      }
      this.#builder.inputMessages = messages;
      return undefined;
    } catch (error) {
      return toApiError(error);
    }
  }

  /** A prompt as the first round had it: without what the rounds of before a crash have put out. */
  #withoutOutput(prompt: Prompt): Prompt {
    const { input, request } = this.#options;
    if (!this.#hasCalled) return prompt;
    const own = new Set(this.#builder.earlierOutput.map(({ id }) => id));
    return {
      ...prompt,
      items: prompt.items.filter(({ id }) => !own.has(id)),
      replays: prompt.replays.filter(({ item }) => !own.has(item)),
      trailing: input.length > 0 ? [] : (request.previous_input_messages ?? []),
    };
  }

  /** Goes on with a generation that was cut off with its process: at the log's end, or from the beginning. */
  async resume(settle: Settle): Promise<TurnResult> {
    return this.run(this.#hasSpoken ? Promise.resolve(undefined) : this.start(), settle);
  }

  /** Ends a turn that never got to generate. */
  async abandon(outcome: Outcome, settle: Settle): Promise<TurnResult> {
    return this.#settle(outcome, settle);
  }

  async #settle(outcome: Outcome, settle: Settle): Promise<TurnResult> {
    const builder = this.#builder;
    let result = { outcome, closed: builder.close(outcome) };
    let said = false;
    const terminate = () => {
      said = true;
      builder.terminate(result.outcome, result.closed);
    };
    try {
      await settle(result, terminate);
    } catch (error) {
      const failed: Outcome = { status: "failed", error: error instanceof ApiError ? error : notStored() };
      result = { outcome: failed, closed: builder.close(failed) };
      if (!said) terminate();
    }
    await this.#sink?.flush();
    return result;
  }

  /** All rounds of the turn. Never rejects. */
  async #work(started: Promise<Generation | undefined>): Promise<Outcome> {
    const { signal, tools } = this.#options;
    try {
      if (tools?.mustPrepare) {
        await this.#prepareTools(tools);
        // What has been found out meanwhile belongs to the prompt.
        if (this.#options.request.enable_response_messages) await this.#showPrompt();
      }
      const answering = this.#options.logged?.answering;
      if (answering && !(await this.#answerCalls(tools, answering))) return { status: "completed" };
      let begin = answering ? undefined : this.#firstStep(started);
      for (;;) {
        if (begin) {
          const outcome = await this.#round(begin());
          if (outcome.status !== "completed" || !(await this.#answerRound(tools))) return outcome;
        }
        if (this.#tokensLeft() <= 0 || this.#builder.isFull)
          return { status: "incomplete", reason: "max_output_tokens" };
        begin = () => this.#begin();
      }
    } catch (error) {
      return signal.aborted ? { status: "cancelled" } : failed(toApiError(error));
    } finally {
      // Nobody waits for tool servers to be told.
      if (tools) this.#options.waitUntil?.(tools.close());
    }
  }

  /** How the turn gets to its first generation: it is under way, or goes on after a crash. */
  #firstStep(started: Promise<Generation | undefined>): () => Promise<Generation> {
    if (this.#hasSpoken) return () => this.#takeUp(connectionOfProcessLost());
    return () => started.then((generation) => generation ?? this.#beginSoon());
  }

  /** Whether something was put out or sampled before a crash. */
  get #hasSpoken(): boolean {
    const { logged } = this.#options;
    return Boolean(logged?.output.length || logged?.sampled);
  }

  /** Whether a generation had come to its end before a crash, or approved calls were being made. */
  get #hasCalled(): boolean {
    const { logged } = this.#options;
    return logged !== undefined && (logged.rounds > 0 || logged.answering !== undefined);
  }

  // Tools

  /** What must be known before the model can be asked: the tools of MCP servers, and results of approved calls. */
  async #prepareTools(tools: TurnTools): Promise<void> {
    const { signal } = this.#options;
    const builder = this.#builder;
    const servers = [...tools.unlisted];
    const list = async () => {
      for (let server = servers.shift(); server && !signal.aborted; server = servers.shift()) {
        const index = builder.beginList(server.server_label);
        this.#sink?.flush();
        const listed = await tools.list(server, signal);
        if (signal.aborted) return;
        builder.endList(index, listed, server.origin);
        this.#sink?.flush();
      }
    };
    await Promise.all(Array.from({ length: MAX_CONCURRENT_CALLS }, list));
    signal.throwIfAborted();
    if (!this.#hasCalled && tools.approved.length > 0) {
      for (const call of tools.approved) builder.addApprovedCall(call);
      this.#sink?.record?.({ answering: builder.answeringRecord([]) });
      await this.#answerCalls(tools, { dispatched: [], again: [] });
    } else this.#offer(tools);
  }

  /** Puts the tools into the prompt, unless the turn has had all the calls that it may make. */
  #offer(tools: TurnTools): void {
    const mayCall = this.#builder.serverCallsLeft > 0 && tools.mayCall(this.#rounds);
    this.#builder.offersServerTools = mayCall;
    this.#prompt = { ...this.#prompt, serverTools: mayCall ? tools.serverTools : undefined };
    this.#fitting = undefined;
  }

  /** Answers what a round has left, and makes the next one's prompt. False when the turn is at its end. */
  async #answerRound(tools: TurnTools | undefined): Promise<boolean> {
    const builder = this.#builder;
    const calls = builder.endGeneration();
    const again = this.#askedAgain < MAX_ASKED_AGAIN ? this.#askAgain : [];
    if (again.length === 0 && this.#askAgain.length > 0 && builder.endsInCutCall) throw brokenCalls();
    // Without the tools the model is asked once: one that calls them all the same would do so for ever.
    const mayAnswer = builder.ignoredCalls > 0 && this.#prompt.serverTools !== undefined;
    if (calls.length === 0 && again.length === 0 && !mayAnswer) return false;
    this.#sink?.record?.({ answering: builder.answeringRecord(again) });
    return this.#answerCalls(tools, { dispatched: [], again });
  }

  /**
   * Runs the calls that wait, and makes the next round's prompt. One that was `dispatched` before a crash is not run
   * again: nobody knows how far it came. False when the turn is at its end, because the client has to answer something.
   * Rejects with the signal's reason when it is aborted; a tool's own failure is an answer.
   */
  async #answerCalls(
    tools: TurnTools | undefined,
    { dispatched, again }: { dispatched: readonly string[]; again: readonly RawMessage[] },
  ): Promise<boolean> {
    await this.#runCalls(tools, dispatched);
    if (this.#builder.waitsForClient) return false;
    if (again.length > 0) this.#askedAgain += 1;
    this.#nextRound(again);
    if (tools) this.#offer(tools);
    return true;
  }

  async #runCalls(tools: TurnTools | undefined, dispatched: readonly string[]): Promise<void> {
    const { signal, address } = this.#options;
    const step = `${address.turn}.${this.#rounds}`;
    const waiting = [...this.#builder.pendingCalls];
    const work = async () => {
      for (let call = waiting.shift(); call; call = waiting.shift()) {
        const outcome = dispatched.includes(call.item) ? interrupted() : await this.#runCall(tools, call);
        signal.throwIfAborted();
        const exchange: ToolExchange = {
          name: call.name,
          arguments: call.arguments,
          output: outcome.output,
          step,
          ...(outcome.memory !== undefined && { memory: outcome.memory }),
        };
        const messages = this.#options.engine.answerMessages(exchange, this.#builder.messagesOf(call).at(-1));
        const answer = { item: call.item, exchange, messages };
        this.#sink?.record?.({ answered: answer });
        this.#builder.finishCall(call, outcome, answer);
        await this.#commit();
      }
    };
    await Promise.all(Array.from({ length: MAX_CONCURRENT_CALLS }, work));
  }

  async #runCall(tools: TurnTools | undefined, call: PendingCall): Promise<ToolOutcome> {
    this.#sink?.record?.({ dispatched: call.item });
    this.#builder.startCall(call);
    this.#commit();
    return tools ? tools.run(call, this.#options.signal) : interrupted();
  }

  /** What a tool does cannot be undone, nor its answer be had again: both are kept at once, where they are kept. */
  #commit(): Promise<void> | undefined {
    if (!this.#sink?.commit) return this.#sink?.flush();
    this.#sink.commit();
    return undefined;
  }

  /** What this round has put out becomes part of the prompt, with messages that answer what else it has said. */
  #nextRound(answers: readonly RawMessage[] = []): void {
    const builder = this.#builder;
    const { items, replays, loose } = builder.nextRound(answers);
    this.#sink?.record?.({ round: { loose } });
    this.#prompt = {
      ...this.#prompt,
      items: [...this.#prompt.items, ...(items as Item[])],
      replays: [...this.#options.replays, ...replays],
      trailing: loose,
      request: afterFirstRound(this.#prompt.request),
      spentTokens: builder.usage?.output_tokens ?? 0,
    };
    this.#fitting = undefined;
    this.#sampled = undefined;
    this.#lost = NOTHING_LOST;
    this.#askAgain = [];
    this.#rounds += 1;
  }

  /** What `max_output_tokens` leaves to this round. */
  #tokensLeft(): number {
    const limit = this.#options.request.max_output_tokens;
    return limit == null ? Number.POSITIVE_INFINITY : limit - (this.#prompt.spentTokens ?? 0);
  }

  /** One generation, taken up again when its upstream dies, or waited for while it is away. */
  async #round(started: Promise<Generation>): Promise<Outcome> {
    const { signal, request, maxRetries, recoveryTimeMs: timeMs, clock, logged } = this.#options;
    const builder = this.#builder;
    const since = this.#rounds === (logged?.rounds ?? 0) ? logged?.outageSince : undefined;
    const recovery = new Recovery({ maxRetries, timeMs, clock, since });
    let generation = started;
    let begun = this.#progress > 0 || request.background === true;
    for (;;) {
      const before = this.#progress;
      let taken = false;
      try {
        const deltas = await generation;
        taken = true;
        begun = true;
        builder.outage = undefined;
        await this.#consume(deltas);
        return signal.aborted ? { status: "cancelled" } : toOutcome(builder);
      } catch (error) {
        const fault = toApiError(error);
        const spoke = this.#progress > before;
        const passes = begun && maxRetries > 0 && !signal.aborted && (await this.#passes(fault));
        if (signal.aborted) return { status: "cancelled" };
        const waitMs = passes ? recovery.next(fault, { taken, spoke }) : undefined;
        if (waitMs === undefined) return { status: "failed", error: fault };
        this.#tellOutage(recovery.outage);
        await pause(waitMs, signal);
        if (signal.aborted) return { status: "cancelled" };
        generation = this.#takeUp(fault);
      }
    }
  }

  async #passes(fault: ApiError): Promise<boolean> {
    const { isServerGone, signal } = this.#options;
    return isTransient(fault, () => isServerGone(signal).catch(() => false));
  }

  /** Says that the model server is waited for, once it is seen to be away; the log learns since when. */
  #tellOutage(outage: Outage | undefined): void {
    const builder = this.#builder;
    const sink = this.#sink;
    const isNew = outage !== undefined && builder.outage === undefined;
    builder.outage = outage;
    if (!isNew) return;
    sink?.record?.({ outage: outage.since });
    builder.repeatInProgress();
    sink?.flush();
  }

  get #progress(): number {
    return this.#builder.deltas + this.#samples;
  }

  async #consume(generation: Generation): Promise<void> {
    for await (const deltas of generation) {
      for (const delta of deltas) {
        if (delta.kind === "sampled") this.#keepSampled(delta.sampled);
        else if (delta.kind === "ask_again") this.#askAgain.push(...delta.messages);
        else if (delta.kind === "usage") this.#builder.apply({ ...delta, usage: withLost(delta.usage, this.#lost) });
        else this.#builder.apply(delta);
      }
      this.#keepHeld();
      const full = this.#sink?.flush();
      if (full) await full;
      if (this.#builder.isFull) {
        this.#builder.apply({ kind: "finish", reason: "length" });
        return;
      }
    }
  }

  #keepHeld(): void {
    const { held } = this.#builder;
    if (held === this.#held) return;
    this.#held = held;
    this.#sink?.record?.({ held });
  }

  #keepSampled(sampled: Sampled): void {
    this.#sampled = addSampled(this.#sampled, sampled);
    this.#builder.keepsSampled = true;
    this.#samples += 1;
    this.#sink?.record?.({ sampled });
  }

  /** A generation that goes on where the last one broke off. Throws the fault that broke it where that cannot be. */
  async #takeUp(fault: ApiError): Promise<Generation> {
    const { engine, request, signal } = this.#options;
    const partial = this.#builder.partialItems();
    if (partial.length === 0 && !this.#sampled) return this.#begin();
    const prompt = await this.#fittingPrompt();
    const continuation = engine.continuation(prompt, partial as Item[], this.#sampled);
    const { anew = 0 } = continuation ?? {};
    if (!this.#sink && (!continuation || anew > 0)) {
      // Nobody has seen anything of it.
      this.#lose(this.#builder.withdrawRound());
      return this.#begin();
    }
    if (!continuation) throw cannotContinue(fault);
    const first = anew > 0 ? partial[partial.length - anew] : undefined;
    if (first) this.#lose(this.#builder.breakOff(first.id));
    // Nothing is left to go on after.
    if (first && first === partial[0]) return this.#begin();
    const { sampledTokens } = continuation;
    const kept = minus(this.#builder.roundDeltas, this.#lost);
    const size = sampledTokens === undefined ? await this.#spent(continuation) : undefined;
    const alreadySpent = (prompt.spentTokens ?? 0) + this.#lost.all;
    const spentTokens = alreadySpent + (sampledTokens ?? size?.spent ?? kept.all);
    const isText = continuation.prompt !== prompt && !continuation.prompt.sampled;
    const before = size && { prompt: size.prompt, reasoning: kept.reasoning, isText };
    const { max_output_tokens: limit } = request;
    // An engine that is told what was sampled ends it itself.
    if (limit != null && spentTokens >= limit && !continuation.prompt.sampled) {
      return spent(Math.max(0, limit - alreadySpent), before ?? (await this.#brokenOff(prompt)));
    }
    const generation = await engine.generate({ ...continuation.prompt, spentTokens }, signal);
    return continued(generation, continuation.repeated, before);
  }

  /** What was said is said anew: it counts as output all the same. */
  #lose(deltas: SpentDeltas): void {
    this.#lost = plus(this.#lost, deltas);
    this.#sink?.record?.({ lost: this.#lost });
  }

  async #brokenOff(prompt: Prompt): Promise<BrokenOff | undefined> {
    const { engine, signal } = this.#options;
    try {
      const { tokens } = await engine.measure(prompt, signal);
      const { reasoning } = minus(this.#builder.roundDeltas, this.#lost);
      return { prompt: tokens, reasoning, isText: true };
    } catch {
      return undefined;
    }
  }

  /** Tokens of the prompt proper, and of what was generated after it; undefined where the engine cannot tell. */
  async #spent(continuation: Continuation): Promise<{ prompt: number; spent: number } | undefined> {
    const { engine, signal } = this.#options;
    try {
      const [prompt, whole] = await Promise.all([
        engine.measure(this.#prompt, signal),
        engine.measure(continuation.prompt, signal),
      ]);
      return { prompt: prompt.tokens, spent: Math.max(0, whole.tokens - prompt.tokens) };
    } catch (error) {
      // A server that is away could not generate, either; one that does not count can.
      if (error instanceof ApiError && (await this.#passes(error))) throw error;
      return undefined;
    }
  }
}

function newBuilder(options: TurnOptions, usedCallIds: Set<string>, sink: BatchSink | undefined): ResponseBuilder {
  const { request, address, model, clock, logged, tools } = options;
  const choice = request.tool_choice;
  const identity = { id: responseId(address), model: model.name, createdAt: Math.floor(options.createdAt / 1000) };
  return new ResponseBuilder(initialResponse(request, identity), {
    address,
    sink,
    obfuscation: request.stream_options?.include_obfuscation ?? true,
    includeReasoning: request.include_reasoning ?? true,
    allowedCalls:
      typeof choice === "object" && choice?.type === "allowed_tools"
        ? new Set(choice.tools.map((tool) => (tool.type === "function" ? tool.name : "")))
        : undefined,
    parallelCalls: request.parallel_tool_calls ?? true,
    serverTool: (name) => tools?.resolve(name),
    offers: (name) => tools?.offers(name) ?? false,
    maxServerCalls: request.max_tool_calls ?? Number.POSITIVE_INFINITY,
    hostedTools: options.hostedTools,
    callDetails: { include: request.include ?? [], container: tools?.container ?? "" },
    citations: tools?.citations,
    usedCallIds,
    clock,
    logged,
    room: options.room,
    showsMessages: request.enable_response_messages === true,
  });
}

/** What holds for the first round only: a choice that forces a call, and the remote prefill of its prompt. */
function afterFirstRound({ kv_transfer_params: _, ...request }: CreateRequest): CreateRequest {
  const { tool_choice: choice } = request;
  if (!mustCall(choice) || choice == null || (typeof choice === "object" && choice.type === "function")) return request;
  if (typeof choice === "object" && choice.type === "allowed_tools") {
    return { ...request, tool_choice: { ...choice, mode: "auto" } };
  }
  return { ...request, tool_choice: "auto" };
}

function failed(error: ApiError): Outcome {
  return { status: "failed", error };
}

/** The answer to a call of whose running nothing more is known. */
function interrupted(): ToolOutcome {
  const output = "The server was restarted while this tool was running. Whether it did its work is not known.";
  return { output, failed: true, error: { type: "mcp_protocol_error", code: -32000, message: output } };
}

/** What is known of a generation that broke off: tokens of its prompt, and about as many as it reasoned. */
interface BrokenOff {
  prompt: number;
  reasoning: number;
  /** What broke off, and is gone on with, is text. */
  isText: boolean;
}

const NOTHING_LOST: SpentDeltas = { all: 0, reasoning: 0 };

function plus(a: SpentDeltas, b: SpentDeltas): SpentDeltas {
  return { all: a.all + b.all, reasoning: a.reasoning + b.reasoning };
}

function minus(a: SpentDeltas, b: SpentDeltas): SpentDeltas {
  return { all: Math.max(0, a.all - b.all), reasoning: Math.max(0, a.reasoning - b.reasoning) };
}

/** The usage of a round, with what it has said in vain. */
function withLost(usage: Usage, lost: SpentDeltas): Usage {
  if (lost.all === 0) return usage;
  return {
    ...usage,
    output_tokens: usage.output_tokens + lost.all,
    output_tokens_details: {
      ...usage.output_tokens_details,
      reasoning_tokens: usage.output_tokens_details.reasoning_tokens + lost.reasoning,
    },
    total_tokens: usage.total_tokens + lost.all,
  };
}

/** The deltas of a continuation without what the reader has already, and with the usage of the whole. */
async function* continued(
  generation: Generation,
  repeated: string,
  before: BrokenOff | undefined,
): AsyncGenerator<ModelDelta[]> {
  let skip = repeated;
  let rest = before;
  for await (const deltas of generation) {
    yield deltas.map((delta) => {
      if (delta.kind === "usage" && rest) {
        const usage = wholeUsage(delta.usage, rest);
        // What the model is asked again is counted by itself.
        rest = undefined;
        return { ...delta, usage };
      }
      if (delta.kind !== "text" || skip === "") return delta;
      const common = commonPrefix(skip, delta.text);
      // What is said anew ends the repetition, whatever is left of it.
      skip = common < delta.text.length ? "" : skip.slice(common);
      return { ...delta, text: delta.text.slice(common), logprobs: withoutFirst(delta.logprobs, common) };
    });
  }
}

/** The logprobs without those of the tokens that make up the first characters. */
function withoutFirst(logprobs: TokenLogprob[] | undefined, characters: number): TokenLogprob[] | undefined {
  if (characters === 0) return logprobs;
  let rest = characters;
  return logprobs?.filter(({ token }) => {
    rest -= token.length;
    return rest < 0;
  });
}

/** A generation that has nothing left of its limit: it was cut off between its last token and the word that it ends. */
async function* spent(outputTokens: number, before: BrokenOff | undefined): AsyncGenerator<ModelDelta[]> {
  if (before) {
    const usage: Usage = {
      input_tokens: before.prompt,
      input_tokens_details: { cached_tokens: 0, cache_write_tokens: 0 },
      output_tokens: outputTokens,
      output_tokens_details: { reasoning_tokens: before.reasoning },
      total_tokens: before.prompt + outputTokens,
    };
    yield [{ kind: "usage", usage }];
  }
  yield [{ kind: "finish", reason: "length" }];
}

function commonPrefix(a: string, b: string): number {
  let length = 0;
  while (length < a.length && length < b.length && a[length] === b[length]) length += 1;
  return length;
}

/**
 * To vLLM the text generated before counts as prompt; to the client it is output. After text no reasoning comes, though
 * vLLM, which sees no `</think>`, counts all of a continued text as such.
 */
function wholeUsage(usage: Usage, { prompt, reasoning, isText }: BrokenOff): Usage {
  const cached = Math.min(usage.input_tokens_details.cached_tokens, prompt);
  const written = Math.min(usage.input_tokens_details.cache_write_tokens, prompt - cached);
  return {
    ...usage,
    input_tokens: prompt,
    input_tokens_details: { ...usage.input_tokens_details, cached_tokens: cached, cache_write_tokens: written },
    output_tokens: usage.total_tokens - prompt,
    output_tokens_details: {
      reasoning_tokens: reasoning + (isText ? 0 : usage.output_tokens_details.reasoning_tokens),
    },
  };
}

/** Repeats `response.in_progress` whenever nothing has happened for a while; returns what ends that. */
function giveSignsOfLife(builder: ResponseBuilder, sink: BatchSink): () => void {
  let seen = builder.sequence;
  const timer = setInterval(() => {
    if (builder.sequence === seen) {
      builder.repeatInProgress();
      sink.flush();
    }
    seen = builder.sequence;
  }, SIGN_OF_LIFE_MS);
  return () => clearInterval(timer);
}

function toOutcome(builder: ResponseBuilder): Outcome {
  switch (builder.finishReason) {
    case "length":
      return { status: "incomplete", reason: "max_output_tokens" };
    case "content_filter":
      return { status: "incomplete", reason: "content_filter" };
    case "abort":
      return { status: "failed", error: upstreamAborted() };
    default:
      return { status: "completed" };
  }
}

function cannotContinue(fault: ApiError): ApiError {
  return new ApiError({
    status: 502,
    message: `${fault.message} The model cannot be put back to where it was (in a function call, in structured output or in a refusal).`,
    code: "cannot_continue",
  });
}

function connectionOfProcessLost(): ApiError {
  return new ApiError({
    status: 500,
    message: "The server was restarted in the middle of the response.",
    code: "server_restarted",
  });
}

function brokenCalls(): ApiError {
  return new ApiError({
    status: 502,
    message: "The model goes on making function calls whose arguments are not a JSON object.",
    code: "upstream_malformed_response",
  });
}

function upstreamAborted(): ApiError {
  return new ApiError({ status: 502, message: "The model server aborted the request.", code: "upstream_aborted" });
}

function notStored(): ApiError {
  return new ApiError({ status: 500, message: "The response could not be stored.", code: "storage_error" });
}
