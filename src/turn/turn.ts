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
} from "../engine/engine.ts";
import type { CreateRequest } from "../protocol/create-request.ts";
import { ApiError, contextLengthExceeded, toApiError } from "../protocol/errors.ts";
import { responseId, type TurnAddress } from "../protocol/ids.ts";
import type { Item } from "../protocol/items.ts";
import { initialResponse, type Usage } from "../protocol/response.ts";
import { mustCall } from "../protocol/tools.ts";
import { listOrigin } from "../tools/mcp/policy.ts";
import type { PendingCall, ToolOutcome } from "../tools/server-tool.ts";
import type { Toolset } from "../tools/toolset.ts";
import type { EventSink } from "./event-writer.ts";
import { checkCallPairs, promptItems } from "./history.ts";
import { addSampled, type LoggedTurn } from "./logged-turn.ts";
import { type ClosedResponse, type Outcome, ResponseBuilder } from "./response-builder.ts";
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
  /** How often a generation whose upstream died is taken up again, in all. */
  maxRetries: number;
  /** Keeps the host alive for what is still to be done when the turn has ended. */
  waitUntil?: (promise: Promise<unknown>) => void;
  /** The tools that this server runs, where the request names any. */
  tools?: Toolset | undefined;
  /** The run goes on where this log ends. */
  logged?: LoggedTurn;
  /** What all that the turn puts out may take as JSON, in UTF-16 units; what reaches it is `incomplete`. */
  room: number;
}

/** Codex's idle timeout is 300 s and counts events only: after two of these without one, `in_progress` is repeated. */
const SIGN_OF_LIFE_MS = 120_000;

/** How often a turn asks its model again that has called what nobody offered. */
const MAX_ASKED_AGAIN = 3;

/** Calls of one round that run side by side. */
const MAX_CONCURRENT_CALLS = 8;

/** How often in a row a broken generation is taken up again before any new delta. */
const MAX_FRUITLESS_RETRIES = 4;

/** The first wait before a retry; it doubles. */
const RETRY_BASE_MS = 100;

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
    return this.#begin();
  }

  async #begin(): Promise<Generation> {
    const { engine, request, signal } = this.#options;
    const ends = request.enable_response_messages ? AbortSignal.any([signal, this.#unusable.signal]) : signal;
    return engine.generate(await this.#fittingPrompt(), ends);
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
    return () => started.then((generation) => generation ?? this.#begin());
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
  async #prepareTools(tools: Toolset): Promise<void> {
    const { signal } = this.#options;
    const builder = this.#builder;
    await Promise.all(
      tools.unlisted.map(async (server) => {
        const index = builder.beginList(server.server_label);
        this.#sink?.flush();
        const listed = await tools.list(server, signal);
        if (signal.aborted) return;
        builder.endList(index, listed, listOrigin(server));
        this.#sink?.flush();
      }),
    );
    signal.throwIfAborted();
    if (!this.#hasCalled && tools.approved.length > 0) {
      for (const { tool, name, arguments: text, request } of tools.approved) {
        builder.addApprovedCall(tool, name, text, request);
      }
      this.#sink?.record?.({ answering: builder.answeringRecord([]) });
      await this.#answerCalls(tools, { dispatched: [], again: [] });
    } else this.#offer(tools);
  }

  /** Puts the tools into the prompt, unless the turn has had all the calls that it may make. */
  #offer(tools: Toolset): void {
    const mayCall = this.#builder.serverCallsLeft > 0 && tools.mayCall(this.#rounds);
    this.#builder.offersServerTools = mayCall;
    this.#prompt = { ...this.#prompt, serverTools: mayCall ? tools.serverTools : undefined };
    this.#fitting = undefined;
  }

  /** Answers what a round has left, and makes the next one's prompt. False when the turn is at its end. */
  async #answerRound(tools: Toolset | undefined): Promise<boolean> {
    const builder = this.#builder;
    const calls = builder.endGeneration();
    const again = this.#askedAgain < MAX_ASKED_AGAIN ? this.#askAgain : [];
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
    tools: Toolset | undefined,
    { dispatched, again }: { dispatched: readonly string[]; again: readonly RawMessage[] },
  ): Promise<boolean> {
    await this.#runCalls(tools, dispatched);
    if (this.#builder.waitsForClient) return false;
    if (again.length > 0) this.#askedAgain += 1;
    this.#nextRound(again);
    if (tools) this.#offer(tools);
    return true;
  }

  async #runCalls(tools: Toolset | undefined, dispatched: readonly string[]): Promise<void> {
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

  async #runCall(tools: Toolset | undefined, call: PendingCall): Promise<ToolOutcome> {
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
    this.#askAgain = [];
    this.#rounds += 1;
  }

  /** What `max_output_tokens` leaves to this round. */
  #tokensLeft(): number {
    const limit = this.#options.request.max_output_tokens;
    return limit == null ? Number.POSITIVE_INFINITY : limit - (this.#prompt.spentTokens ?? 0);
  }

  /** One generation, taken up again as often as its upstream dies. */
  async #round(started: Promise<Generation>): Promise<Outcome> {
    const { signal } = this.#options;
    const builder = this.#builder;
    let generation = started;
    let fruitless = 0;
    for (let retries = 0; ; retries += 1) {
      const before = this.#progress;
      try {
        await this.#consume(await generation);
        return signal.aborted ? { status: "cancelled" } : toOutcome(builder);
      } catch (error) {
        if (signal.aborted) return { status: "cancelled" };
        const fault = toApiError(error);
        fruitless = this.#progress > before ? 0 : fruitless + 1;
        const begun = this.#progress > 0 || this.#options.request.background === true;
        if (!isTransient(fault) || !begun || fruitless > MAX_FRUITLESS_RETRIES || retries >= this.#options.maxRetries) {
          return { status: "failed", error: fault };
        }
        await wait(RETRY_BASE_MS * 2 ** fruitless, signal);
        if (signal.aborted) return { status: "cancelled" };
        generation = this.#takeUp(fault);
      }
    }
  }

  get #progress(): number {
    return this.#builder.deltas + this.#samples;
  }

  async #consume(generation: Generation): Promise<void> {
    for await (const deltas of generation) {
      for (const delta of deltas) {
        if (delta.kind === "sampled") this.#keepSampled(delta.sampled);
        else if (delta.kind === "ask_again") this.#askAgain.push(...delta.messages);
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
    if (!continuation) throw cannotContinue(fault);
    const { sampledTokens } = continuation;
    const size = sampledTokens === undefined ? await this.#spent(continuation) : undefined;
    const spentTokens = (prompt.spentTokens ?? 0) + (sampledTokens ?? size?.spent ?? this.#builder.roundDeltas.all);
    const before = size && { prompt: size.prompt, reasoning: this.#builder.roundDeltas.reasoning };
    const { max_output_tokens: limit } = request;
    // An engine that is told what was sampled ends it itself.
    if (limit != null && spentTokens >= limit && !continuation.prompt.sampled) {
      return spent(limit - (prompt.spentTokens ?? 0), before ?? (await this.#brokenOff(prompt)));
    }
    const generation = await engine.generate({ ...continuation.prompt, spentTokens }, signal);
    return continued(generation, continuation.repeated, before);
  }

  async #brokenOff(prompt: Prompt): Promise<BrokenOff | undefined> {
    const { engine, signal } = this.#options;
    try {
      const { tokens } = await engine.measure(prompt, signal);
      return { prompt: tokens, reasoning: this.#builder.roundDeltas.reasoning };
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
    } catch {
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
    shown: {
      sources: request.include?.includes("web_search_call.action.sources") ?? false,
      outputs: request.include?.includes("code_interpreter_call.outputs") ?? false,
    },
    container: tools?.container ?? "",
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
}

/** The deltas of a continuation without what the reader has already, and with the usage of the whole. */
async function* continued(
  generation: Generation,
  repeated: string,
  before: BrokenOff | undefined,
): AsyncGenerator<ModelDelta[]> {
  let skip = repeated;
  for await (const deltas of generation) {
    yield deltas.map((delta) => {
      if (delta.kind === "usage" && before) return { ...delta, usage: wholeUsage(delta.usage, before) };
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

/** To vLLM the text generated before counts as prompt; to the client it is output. */
function wholeUsage(usage: Usage, { prompt, reasoning }: BrokenOff): Usage {
  const cached = Math.min(usage.input_tokens_details.cached_tokens, prompt);
  return {
    ...usage,
    input_tokens: prompt,
    input_tokens_details: { ...usage.input_tokens_details, cached_tokens: cached },
    output_tokens: usage.total_tokens - prompt,
    output_tokens_details: { reasoning_tokens: usage.output_tokens_details.reasoning_tokens + reasoning },
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

/** Faults of the way to the model server, and its being overloaded or restarting: worth another try. */
const TRANSIENT = new Set(["upstream_connection_lost", "upstream_unreachable", "server_is_overloaded"]);

function isTransient(fault: ApiError): boolean {
  return TRANSIENT.has(fault.code);
}

function wait(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        resolve();
      },
      { once: true },
    );
  });
}

function cannotContinue(fault: ApiError): ApiError {
  return new ApiError({
    status: 502,
    message: `${fault.message} The model cannot be put back to where it was (in its reasoning, in a function call or in structured output).`,
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

function upstreamAborted(): ApiError {
  return new ApiError({ status: 502, message: "The model server aborted the request.", code: "upstream_aborted" });
}

function notStored(): ApiError {
  return new ApiError({ status: 500, message: "The response could not be stored.", code: "storage_error" });
}
