import type { Engine, ModelDelta, Prompt } from "../engine/engine.ts";
import type { CreateRequest } from "../protocol/create-request.ts";
import { ApiError, toApiError } from "../protocol/errors.ts";
import { responseId, type TurnAddress } from "../protocol/ids.ts";
import type { Item } from "../protocol/items.ts";
import { initialResponse } from "../protocol/response.ts";
import { checkCallPairs, promptItems } from "./history.ts";
import { type ClosedResponse, type EventSink, type Outcome, ResponseBuilder } from "./response-builder.ts";
import { truncateToFit } from "./truncation.ts";

/**
 * One turn: history + request → generation → events → final response.
 *
 * Pure but for what it is handed, so that the same code can run beside a client in the Worker and in a
 * conversation's home.
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
  /** Aborted when nobody wants the answer any more. */
  signal: AbortSignal;
  /** Now, in Unix milliseconds. */
  clock: () => number;
}

/** Codex's idle timeout is 300 s and counts events only: after two of these without one, `in_progress` is repeated. */
const SIGN_OF_LIFE_MS = 120_000;

/** A sink that can be written to in batches and pushes back. */
export interface BatchSink extends EventSink {
  /** Called after all events of one upstream read; a returned promise holds the turn back until it resolves. */
  flush(): Promise<void> | undefined;
}

/** Keeps a settled turn. Rejects when it cannot; the turn is then reported as failed. */
export type Settle = (result: TurnResult) => Promise<void>;

export interface TurnResult {
  outcome: Outcome;
  closed: ClosedResponse;
}

export class Turn {
  readonly #options: TurnOptions;
  readonly #callIds: Set<string>;
  readonly #prompt: Prompt;
  readonly #createdAt: number;

  /** Throws the 400 of calls and outputs that do not pair up. */
  constructor(options: TurnOptions) {
    this.#options = options;
    const items = promptItems(options.history, options.input);
    this.#callIds = checkCallPairs(items);
    this.#createdAt = Math.floor(options.clock() / 1000);
    this.#prompt = {
      model: options.model.upstream,
      items,
      request: options.request,
      cacheSalt: options.cacheSalt,
    };
  }

  get id(): string {
    return responseId(this.#options.address);
  }

  /**
   * Starts the generation: resolves when the model server has taken the prompt.
   * Throws ApiError as the engine does, and the signal's reason when it is aborted.
   */
  async start(): Promise<AsyncIterable<ModelDelta[]>> {
    const { engine, request, signal } = this.#options;
    const prompt = request.truncation === "auto" ? await truncateToFit(engine, this.#prompt, signal) : this.#prompt;
    return engine.generate(prompt, signal);
  }

  /**
   * Runs a started generation to its end, with its events into `sink`. Never rejects: whatever goes wrong is an
   * outcome. The result is settled (kept) before the terminal event is written.
   */
  async run(started: Promise<AsyncIterable<ModelDelta[]>>, settle: Settle, sink?: BatchSink): Promise<TurnResult> {
    const builder = this.#newBuilder(sink);
    builder.start();
    sink?.flush();
    const stopSigns = sink && giveSignsOfLife(builder, sink);
    let outcome = await this.#generate(started, builder, sink);
    stopSigns?.();
    let closed = builder.close(outcome);
    try {
      await settle({ outcome, closed });
    } catch {
      outcome = { status: "failed", error: notStored() };
      closed = builder.close(outcome);
    }
    if (sink && outcome.status !== "cancelled") {
      builder.terminate(outcome, closed);
      await sink.flush();
    }
    return { outcome, closed };
  }

  async #generate(
    started: Promise<AsyncIterable<ModelDelta[]>>,
    builder: ResponseBuilder,
    sink: BatchSink | undefined,
  ): Promise<Outcome> {
    const { signal } = this.#options;
    try {
      for await (const deltas of await started) {
        for (const delta of deltas) builder.apply(delta);
        const full = sink?.flush();
        if (full) await full;
      }
    } catch (error) {
      return signal.aborted ? { status: "cancelled" } : { status: "failed", error: toApiError(error) };
    }
    return signal.aborted ? { status: "cancelled" } : toOutcome(builder);
  }

  #newBuilder(sink: BatchSink | undefined): ResponseBuilder {
    const { request, address, model, clock } = this.#options;
    const choice = request.tool_choice;
    const response = initialResponse(request, { id: this.id, model: model.name, createdAt: this.#createdAt });
    return new ResponseBuilder(response, {
      address,
      sink,
      obfuscation: request.stream_options?.include_obfuscation ?? true,
      includeReasoning: request.include_reasoning ?? true,
      allowedCalls:
        typeof choice === "object" && choice?.type === "allowed_tools"
          ? new Set(choice.tools.map((tool) => tool.name))
          : undefined,
      parallelCalls: request.parallel_tool_calls ?? true,
      usedCallIds: this.#callIds,
      clock,
    });
  }
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

function upstreamAborted(): ApiError {
  return new ApiError({ status: 502, message: "The model server aborted the request.", code: "upstream_aborted" });
}

function notStored(): ApiError {
  return new ApiError({ status: 500, message: "The response could not be stored.", code: "storage_error" });
}
