import type { Continuation, Engine, ModelDelta, Prompt, TokenLogprob } from "../engine/engine.ts";
import type { CreateRequest } from "../protocol/create-request.ts";
import { ApiError, toApiError } from "../protocol/errors.ts";
import { responseId, type TurnAddress } from "../protocol/ids.ts";
import type { Item } from "../protocol/items.ts";
import { initialResponse, type Usage } from "../protocol/response.ts";
import { checkCallPairs, promptItems } from "./history.ts";
import type { LoggedTurn } from "./logged-turn.ts";
import { type ClosedResponse, type EventSink, type Outcome, ResponseBuilder } from "./response-builder.ts";
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
  /** Items of earlier turns, oldest first. */
  history: Item[];
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
  /** The run goes on where this log ends. */
  logged?: LoggedTurn;
}

/** Codex's idle timeout is 300 s and counts events only: after two of these without one, `in_progress` is repeated. */
const SIGN_OF_LIFE_MS = 120_000;

/** How often in a row a broken generation is taken up again before any new delta. */
const MAX_FRUITLESS_RETRIES = 4;

/** The first wait before a retry; it doubles. */
const RETRY_BASE_MS = 100;

/** A sink that can be written to in batches and pushes back. */
export interface BatchSink extends EventSink {
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
  #fits = false;
  readonly #builder: ResponseBuilder;
  readonly #sink: BatchSink | undefined;

  /** `sink` takes the events, where anybody wants them. Throws the 400 of calls and outputs that do not pair up. */
  constructor(options: TurnOptions, sink?: BatchSink) {
    this.#options = options;
    this.#sink = sink;
    const items = promptItems(options.history, options.input);
    const { model, request, cacheSalt } = options;
    this.#prompt = { model: model.upstream, items, request, cacheSalt };
    this.#builder = newBuilder(options, checkCallPairs(items), sink);
  }

  get id(): string {
    return responseId(this.#options.address);
  }

  /**
   * Starts the generation: resolves when the model server has taken the prompt.
   * Throws ApiError as the engine does, and the signal's reason when it is aborted.
   */
  async start(): Promise<Generation> {
    return this.#options.engine.generate(await this.#fittingPrompt(), this.#options.signal);
  }

  /** The prompt, with `truncation: "auto"` shortened once and for all. */
  async #fittingPrompt(): Promise<Prompt> {
    const { engine, request, signal } = this.#options;
    if (request.truncation === "auto" && !this.#fits) {
      this.#prompt = await truncateToFit(engine, this.#prompt, signal);
      this.#fits = true;
    }
    return this.#prompt;
  }

  /** Says that the response is queued, and no more. */
  queue(): void {
    this.#builder.queue();
    this.#sink?.flush();
  }

  /**
   * Runs a started generation to its end, with its events into the sink. Never rejects: whatever goes wrong is an
   * outcome. The result is settled (kept) before the terminal event is said.
   */
  async run(started: Promise<Generation>, settle: Settle): Promise<TurnResult> {
    const builder = this.#builder;
    // Awaited below, unless the sink fails before.
    started.catch(() => {});
    builder.start();
    this.#sink?.flush();
    const stopSigns = this.#sink && giveSignsOfLife(builder, this.#sink);
    const outcome = await this.#generate(started);
    stopSigns?.();
    return this.#settle(outcome, settle);
  }

  /** Goes on with a generation that was cut off with its process: at the log's end, or from the beginning. */
  async resume(settle: Settle): Promise<TurnResult> {
    if (!this.#options.logged?.output.length) return this.run(this.start(), settle);
    return this.run(this.#takeUp(connectionOfProcessLost()), settle);
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

  async #generate(started: Promise<Generation>): Promise<Outcome> {
    const { signal } = this.#options;
    const builder = this.#builder;
    let generation = started;
    let fruitless = 0;
    for (let retries = 0; ; retries += 1) {
      const before = builder.deltas;
      try {
        await this.#consume(await generation);
        return signal.aborted ? { status: "cancelled" } : toOutcome(builder);
      } catch (error) {
        if (signal.aborted) return { status: "cancelled" };
        const fault = toApiError(error);
        fruitless = builder.deltas > before ? 0 : fruitless + 1;
        const begun = builder.deltas > 0 || this.#options.request.background === true;
        if (!isTransient(fault) || !begun || fruitless > MAX_FRUITLESS_RETRIES || retries >= this.#options.maxRetries) {
          return { status: "failed", error: fault };
        }
        await wait(RETRY_BASE_MS * 2 ** fruitless, signal);
        if (signal.aborted) return { status: "cancelled" };
        generation = this.#takeUp(fault);
      }
    }
  }

  async #consume(generation: Generation): Promise<void> {
    for await (const deltas of generation) {
      for (const delta of deltas) this.#builder.apply(delta);
      const full = this.#sink?.flush();
      if (full) await full;
    }
  }

  /** A generation that goes on where the last one broke off. Throws the fault that broke it where that cannot be. */
  async #takeUp(fault: ApiError): Promise<Generation> {
    const { engine, request, signal } = this.#options;
    const partial = this.#builder.partialItems();
    if (partial.length === 0) return this.start();
    const continuation = engine.continuation(await this.#fittingPrompt(), partial as Item[]);
    if (!continuation) throw cannotContinue(fault);
    const size = await this.#spent(continuation);
    const spentTokens = size?.spent ?? this.#builder.deltas;
    const before = size && { prompt: size.prompt, reasoning: this.#builder.reasoningDeltas };
    if (request.max_output_tokens != null && spentTokens >= request.max_output_tokens) {
      return spent(request.max_output_tokens, before);
    }
    const generation = await engine.generate({ ...continuation.prompt, spentTokens }, signal);
    return continued(generation, continuation.repeated, before);
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
  const { request, address, model, clock, logged } = options;
  const choice = request.tool_choice;
  const identity = { id: responseId(address), model: model.name, createdAt: Math.floor(options.createdAt / 1000) };
  return new ResponseBuilder(initialResponse(request, identity), {
    address,
    sink,
    obfuscation: request.stream_options?.include_obfuscation ?? true,
    includeReasoning: request.include_reasoning ?? true,
    allowedCalls:
      typeof choice === "object" && choice?.type === "allowed_tools"
        ? new Set(choice.tools.map((tool) => tool.name))
        : undefined,
    parallelCalls: request.parallel_tool_calls ?? true,
    usedCallIds,
    clock,
    logged,
  });
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
