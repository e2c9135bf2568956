import type { CompactionCodec } from "../contract/compaction.ts";
import type { Engine, Prompt, RawMessage, Replay } from "../contract/engine.ts";
import type { HostedTools } from "../contract/hosted-tool.ts";
import {
  beginToolList,
  endToolCall,
  type Measurements,
  NO_TOKENS,
  tokensOf,
  traceparent,
} from "../contract/measurements.ts";
import type { ListedTools, TurnTools, UnlistedServer } from "../contract/turn-tools.ts";
import { ClientTools } from "../protocol/client-tools.ts";
import type { CreateRequest } from "../protocol/create-request.ts";
import { ApiError, contextLengthExceeded, toApiError } from "../protocol/errors.ts";
import { responseId, type TurnAddress } from "../protocol/ids.ts";
import type { Item } from "../protocol/items.ts";
import { type InputTransformation, initialResponse } from "../protocol/response.ts";
import { answerCalls, MAX_CONCURRENT_CALLS } from "./call-answers.ts";
import { newestCompaction, type OpenedCompaction, openCompaction, standingItems } from "./compacted-past.ts";
import { Compaction, compactionKind, type DueCompaction } from "./compaction.ts";
import type { Generation } from "./continuation.ts";
import { type Done, decide, type Outcome, type Step, type TurnFacts } from "./decide.ts";
import { makePrompt } from "./first-prompt.ts";
import { forEachAtOnce } from "./for-each-at-once.ts";
import { Generations } from "./generation.ts";
import { checkCallPairs } from "./history.ts";
import { withLoadedTools } from "./loaded-tools.ts";
import type { BatchSink } from "./output-events.ts";
import { afterFirstRound, RoundPrompt } from "./prompt.ts";
import { type BuilderOptions, type ClosedResponse, ResponseBuilder } from "./response-builder.ts";
import type { ReasoningSeal } from "./sealed-reasoning.ts";
import { newTurnState, roundItems, spentTokens, type TurnState, withThoughts } from "./state.ts";

/**
 * One turn: history + request → generation → events → final response.
 *
 * Pure but for what it is handed, so that the same code runs beside a client in the Worker and, for background runs,
 * in the conversation's home. What it does next is a `Step` (`decide`).
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
  /** How many may break off in a row before their first word. */
  maxFruitless: number;
  /** How long an outage of the model server is waited for, in milliseconds. */
  recoveryTimeMs: number;
  /** Asks the model server whether it is gone. */
  isServerGone: (signal: AbortSignal) => Promise<boolean>;
  /** Has what comes next asked of another model server, where there is one: this one has broken off. */
  leaveServer: () => void;
  /** Keeps the host alive for what is still to be done when the turn has ended. */
  waitUntil?: (promise: Promise<unknown>) => void;
  /** No client gets to see what the model thinks. */
  hidesReasoning: boolean;
  /** Seals the reasoning that clients get, where the operator has keys for it. */
  seal: ReasoningSeal | undefined;
  /** What was left out of the past, because it could not be opened. */
  transformations: readonly InputTransformation[];
  hostedTools: HostedTools;
  /** Writes and reads what compaction items carry. */
  compactions: CompactionCodec;
  /** The newest compaction of history and input. */
  opened?: OpenedCompaction | undefined;
  /** Those of them that the request names, if it names any. */
  tools?: TurnTools | undefined;
  /** The state of the turn at the end of its log: it goes on from there. */
  logged?: TurnState | undefined;
  /** What all that the turn puts out may take as JSON, in UTF-16 units; what reaches it is `incomplete`. */
  room: number;
  /** What the request measures of itself, where anybody wants to know. */
  measured?: Measurements | undefined;
  /** The name of the model server that was asked last. */
  replica?: () => string;
}

/** Codex's idle timeout is 300 s and counts events only: after two of these without one, `in_progress` is repeated. */
const SIGN_OF_LIFE_MS = 120_000;

/**
 * Keeps a settled turn, then says the terminal event by calling `terminate` (nothing to say where nobody streams).
 * Rejects when it cannot keep it; the turn is then reported as failed.
 */
export type Settle = (result: TurnResult, terminate: () => void) => Promise<void>;

export interface TurnResult {
  outcome: Outcome;
  closed: ClosedResponse;
}

/** How a round begins: with a compaction, or with a generation that is under way. */
type BegunRound = { due: DueCompaction; started?: undefined } | { due?: undefined; started: Promise<Generation> };

export class Turn {
  readonly #options: TurnOptions;
  readonly #builder: ResponseBuilder;
  readonly #prompt: RoundPrompt;
  readonly #generations: Generations;
  readonly #compaction: Compaction | undefined;
  readonly #sink: BatchSink | undefined;
  readonly #facts: TurnFacts;
  #step: Step;
  /** The beginning of the round, where it is under way already. */
  #begun: Promise<BegunRound> | undefined;

  /** `sink` takes the events, where anybody wants them. Throws the 400 of calls and outputs that do not pair up. */
  constructor(options: TurnOptions, sink?: BatchSink) {
    this.#options = options;
    this.#sink = sink;
    const { engine, request, signal, tools, logged } = options;
    const made = makePrompt(options, engine.noteRole);
    const first: Prompt = sink ? made : { ...made, isUnwatched: true };
    const clientTool = (name: string) => ClientTools.of(this.#prompt.current.request.tools).get(name);
    const kind = compactionKind(request, options.input);
    // A compaction carries calls that nobody has answered yet.
    const usedCallIds = checkCallPairs(first.items, kind === "asked");
    const builder = newBuilder(options, first.request, { clientTool, usedCallIds, sink });
    this.#builder = builder;
    const prompt = logged ? afterCrash(first, options, builder) : first;
    this.#prompt = new RoundPrompt(prompt, engine, signal);
    this.#generations = new Generations(options, builder, this.#prompt, sink);
    this.#compaction = kind && new Compaction({ ...options, kind }, builder, this.#prompt, this.#generations, sink);
    this.#facts = { compaction: kind, maxOutputTokens: request.max_output_tokens ?? Number.POSITIVE_INFINITY };
    const mustPrepare = tools?.mustPrepare ?? false;
    this.#step = this.#enter(decide(builder.state, { did: "begin", mustPrepare }, this.#facts));
  }

  get id(): string {
    return responseId(this.#options.address);
  }

  /**
   * Starts the generation: resolves when the model server has taken the prompt. Where something is to be done before it,
   * `run` does that, and this resolves at once; for a compaction, as soon as it is known that there must be one.
   * Throws ApiError as the engine does, and the signal's reason when aborted.
   */
  async start(): Promise<void> {
    const { kind } = this.#step;
    if (kind !== "compact" && kind !== "generate") return;
    this.#begun = this.#beginRound(kind);
    const round = await this.#begun;
    if (!round.due) await round.started;
  }

  /** Says that the response is queued, and no more: nothing here may wait. */
  queue(): void {
    const { engine, request } = this.#options;
    if (request.enable_response_messages) {
      try {
        // Whoever would have to ask the model server gives up at once. The queued response never told of this server's tools.
        const messages = engine.inputMessages(withoutTools(this.#prompt.current), AbortSignal.abort());
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
   * Runs a turn that has been started (`start`) to its end, with its events into the sink. Never rejects: whatever goes
   * wrong is an outcome. The result is settled (kept) before the terminal event is said.
   */
  async run(started: Promise<void>, settle: Settle): Promise<TurnResult> {
    const builder = this.#builder;
    // The step has the generation itself, and its failure is the round's.
    started.catch(() => {});
    const { request } = this.#options;
    const fault = request.enable_response_messages ? await this.#setInputMessages() : undefined;
    if (fault) this.#generations.giveUp(fault);
    builder.start();
    this.#sink?.flush();
    const stopSigns = this.#sink && giveSignsOfLife(builder, this.#sink);
    const outcome = fault ? failed(fault) : await this.#work();
    stopSigns?.();
    return this.#settle(outcome, settle);
  }

  /** Goes on with a turn that was cut off with its process: at the log's end, or from the beginning. */
  async resume(settle: Settle): Promise<TurnResult> {
    return this.run(this.start(), settle);
  }

  /** Settles a turn that is not to generate: checked, empty, and there to be continued. Never rejects. */
  async warmUp(settle: Settle): Promise<TurnResult> {
    this.#builder.warmUp();
    return this.#settle({ status: "completed" }, settle);
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
    this.#noteEnd(result.outcome);
    return result;
  }

  #noteEnd(outcome: Outcome): void {
    const { measured } = this.#options;
    if (!measured) return;
    const { usage } = this.#builder;
    const error = outcome.status === "failed" ? outcome.error.code : undefined;
    measured.end = { status: outcome.status, error, tokens: usage ? tokensOf(usage) : NO_TOKENS };
  }

  /** All steps of the turn. Never rejects. */
  async #work(): Promise<Outcome> {
    const { signal, tools, request } = this.#options;
    try {
      while (this.#step.kind !== "end") {
        const { kind } = this.#step;
        const done = await this.#do(this.#step);
        this.#step = this.#enter(decide(this.#builder.state, done, this.#facts));
        // What has been found out meanwhile belongs to the prompt.
        if (kind === "prepare" && request.enable_response_messages) await this.#setInputMessages();
      }
      return this.#step.outcome;
    } catch (error) {
      return signal.aborted ? { status: "cancelled" } : failed(toApiError(error));
    } finally {
      // Nobody waits for tool servers to be told.
      if (tools) this.#options.waitUntil?.(tools.close());
    }
  }

  async #do(step: Exclude<Step, { kind: "end" }>): Promise<Done> {
    switch (step.kind) {
      case "prepare":
        return this.#prepare();
      case "compact":
        return this.#compact();
      case "generate":
        return this.#ask(step);
      case "resume":
        return this.#generate(this.#generations.takeUp(connectionOfProcessLost()));
      case "answer":
        return this.#answer(step.again);
    }
  }

  /** The model is offered its tools as soon as all of them are known, unless the turn has had all calls it may make. */
  #enter(step: Step): Step {
    const { tools } = this.#options;
    const isSameRound = step.kind === "generate" && step.again;
    if (!tools || isSameRound || step.kind === "prepare" || step.kind === "end") return step;
    const mayCall = this.#builder.serverCallsLeft > 0 && tools.mayCall(this.#builder.state.rounds);
    this.#builder.offersServerTools = mayCall;
    this.#prompt.offer(mayCall ? tools.serverTools : undefined);
    return step;
  }

  /** Lists the tools of MCP servers, and runs the approved calls, if there are any. */
  async #prepare(): Promise<Done> {
    const { signal, tools } = this.#options;
    if (!tools) return { did: "prepare" };
    const { lists, state } = this.#builder;
    await forEachAtOnce([...tools.unlisted], MAX_CONCURRENT_CALLS, async (server) => {
      signal.throwIfAborted();
      const index = lists.begin(server.server_label);
      this.#sink?.flush();
      const listed = await this.#list(server, tools);
      signal.throwIfAborted();
      lists.end(index, listed, server.origin);
      this.#sink?.flush();
    });
    signal.throwIfAborted();
    const isBegun = state.rounds > 0 || state.answering !== undefined;
    if (isBegun || tools.approved.length === 0) return { did: "prepare" };
    for (const call of tools.approved) this.#builder.addApprovedCall(call);
    return this.#answer([]);
  }

  async #list(server: UnlistedServer, tools: TurnTools): Promise<ListedTools> {
    const { signal, measured, clock } = this.#options;
    if (!measured) return tools.list(server, signal);
    const noted = beginToolList(measured, server.server_label, clock());
    const listed = await tools.list(server, signal, traceparent(measured.trace, noted.span));
    endToolCall(noted, { failed: "error" in listed }, clock());
    return listed;
  }

  /** Finds out whether the round's prompt must be compacted, where it may be; else its generation begins. */
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

  /** Asks the model: `again` where its last answer in this round cannot be used. */
  async #ask({ again }: Extract<Step, { kind: "generate" }>): Promise<Done> {
    if (again) {
      this.#builder.askAgain(again.isCounted);
      this.#prompt.askAgain(again.change);
    }
    this.#begun ??= this.#beginRound("generate");
    const { started } = await this.#begun;
    this.#begun = undefined;
    return this.#generate(started ?? this.#generations.begin());
  }

  async #generate(started: Promise<Generation>): Promise<Done> {
    const fault = await this.#generations.run(started);
    const builder = this.#builder;
    const { finishReason: finish } = builder;
    const isWhole = !fault && finish !== "length" && finish !== "content_filter";
    const calls = isWhole ? builder.endGeneration().length : 0;
    const { noAnswer, waitsForClient, ignoredCalls, state, tokensInRound } = builder;
    return {
      did: "generate",
      fault,
      finish,
      noAnswer,
      calls,
      waitsForClient,
      mayAnswerWithoutTools: ignoredCalls > 0 && this.#prompt.current.serverTools !== undefined,
      spentTokens: spentTokens(state) + tokensInRound,
    };
  }

  /** Runs the calls of a round, and begins the next one, unless the client has to answer something, too. */
  async #answer(again: readonly RawMessage[]): Promise<Done> {
    const { engine, tools, signal, address, measured, clock } = this.#options;
    const builder = this.#builder;
    if (!builder.state.answering) {
      // Perhaps the model has called what it only saw.
      if (again.length > 0) this.#prompt.hideUnoffered();
      builder.beginAnswering([...again]);
    }
    const step = `${address.turn}.${builder.state.rounds}`;
    await answerCalls({ builder, engine, tools, sink: this.#sink, signal, step, measured, clock });
    const { waitsForClient } = builder;
    if (!waitsForClient) this.#nextRound();
    return { did: "answer", waitsForClient, isFull: builder.isFull };
  }

  /** What the round has put out becomes part of the prompt. */
  #nextRound(): void {
    const builder = this.#builder;
    const items = withThoughts(builder.state, roundItems(builder.state)) as Item[];
    builder.nextRound();
    this.#prompt.next(promptOutput(this.#options, builder, items));
  }

  /** Gives the prompt with the response, as raw messages. Returns the fault that prevents it. */
  async #setInputMessages(): Promise<ApiError | undefined> {
    const { engine, signal } = this.#options;
    try {
      const messages = await engine.inputMessages(this.#withoutOutput(await this.#prompt.fitting()), signal);
      if (!this.#builder.hasRoomFor(messages)) {
        return contextLengthExceeded("The prompt is too large to be shown as messages with the response.");
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
    if (!this.#builder.hasEarlierRounds) return prompt;
    const own = new Set(this.#builder.earlierOutput.map(({ id }) => id));
    return {
      ...prompt,
      items: prompt.items.filter(({ id }) => !own.has(id)),
      replays: prompt.replays.filter(({ item }) => !own.has(item)),
      trailing: input.length > 0 ? [] : (request.previous_input_messages ?? []),
    };
  }
}

/** The prompt of the round in which the turn was cut off: what the rounds before have put out follows. */
function afterCrash(first: Prompt, options: TurnOptions, builder: ResponseBuilder): Prompt {
  const { items, ...rest } = promptOutput(options, builder, builder.earlierOutput);
  const loaded = withLoadedTools(first.request, items);
  const request = builder.state.rounds > 0 ? afterFirstRound(loaded) : loaded;
  return { ...first, items: afterCompaction(first.items, items, options), ...rest, request };
}

/** The items of a prompt, and those of the rounds before a crash: from the newest compaction on. */
function afterCompaction(first: readonly Item[], output: readonly Item[], options: TurnOptions): Item[] {
  const at = newestCompaction(output);
  const item = output[at];
  const rest = output.slice(at + 1).filter(({ type }) => type !== "compaction");
  if (item?.type !== "compaction") return [...first, ...rest];
  const content = openCompaction(item, options.compactions, { param: "previous_response_id", isStored: true });
  return [...standingItems(content, options.engine.noteRole), ...rest];
}

function promptOutput({ replays }: TurnOptions, { messages, state }: ResponseBuilder, items: readonly Item[]) {
  return {
    items,
    replays: [...replays, ...messages.replays],
    trailing: [...messages.trailing],
    spentTokens: spentTokens(state),
  };
}

function withoutTools(prompt: Prompt): Prompt {
  return { ...prompt, serverTools: undefined };
}

/** `prompted` is the request with the tools that the prompt's items have brought. */
function newBuilder(
  options: TurnOptions,
  prompted: CreateRequest,
  own: Pick<BuilderOptions, "clientTool" | "usedCallIds" | "sink">,
): ResponseBuilder {
  const { request, address, model, clock, logged, tools, input } = options;
  const choice = request.tool_choice;
  const offered = ClientTools.of(prompted.tools).offered(choice);
  const identity = { id: responseId(address), model: model.name, createdAt: Math.floor(options.createdAt / 1000) };
  return new ResponseBuilder(initialResponse(request, identity), logged ?? newTurnState(), {
    ...own,
    address,
    obfuscation: request.stream_options?.include_obfuscation ?? true,
    reasoning: reasoningForm(options),
    seal: options.seal,
    transformations: options.transformations,
    allowedCalls:
      choice === "none" || (typeof choice === "object" && choice?.type === "allowed_tools")
        ? new Set(offered.map(({ flatName }) => flatName))
        : undefined,
    parallelCalls: request.parallel_tool_calls ?? true,
    serverTool: (name) => tools?.resolve(name),
    offers: (name) => tools?.offers(name) ?? false,
    maxServerCalls: request.max_tool_calls ?? Number.POSITIVE_INFINITY,
    hostedTools: options.hostedTools,
    callDetails: { include: request.include ?? [], container: tools?.container ?? "" },
    citations: tools?.citations,
    clock,
    room: options.room,
    withMessages: request.enable_response_messages === true,
    previous: request.previous_input_messages ?? undefined,
    firstInput: input[0]?.id,
  });
}

/** In which form reasoning is shown: as a summary where one is asked for, and hidden where the operator says so. */
function reasoningForm({ request, hidesReasoning }: TurnOptions): BuilderOptions["reasoning"] {
  if (request.include_reasoning === false) return undefined;
  if (hidesReasoning) return "hidden_text";
  const { summary, generate_summary: older } = request.reasoning ?? {};
  return (summary ?? older) ? "summary_text" : "reasoning_text";
}

function failed(error: ApiError): Outcome {
  return { status: "failed", error };
}

/** Repeats `response.in_progress` whenever nothing has happened for a while; returns what ends that. */
function giveSignsOfLife(builder: ResponseBuilder, sink: BatchSink): () => void {
  let seen = builder.state.sequence;
  const timer = setInterval(() => {
    if (builder.state.sequence === seen) {
      builder.repeatInProgress();
      sink.flush();
    }
    seen = builder.state.sequence;
  }, sink.signOfLifeMs ?? SIGN_OF_LIFE_MS);
  return () => clearInterval(timer);
}

function connectionOfProcessLost(): ApiError {
  return new ApiError({
    status: 500,
    message: "The server was restarted in the middle of the response.",
    code: "server_restarted",
  });
}

function notStored(): ApiError {
  return new ApiError({ status: 500, message: "The response could not be stored.", code: "storage_error" });
}
