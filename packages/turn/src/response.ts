import type { ApiError } from "@responses-edge/responses-api/errors";
import { responseId } from "@responses-edge/responses-api/ids";
import { isImageInFile, withoutImage } from "@responses-edge/responses-api/items/image-generation";
import {
  type CacheDiagnosis,
  type CountedTool,
  initialResponse,
  type ResponseObject,
  toolUseOf,
  type Usage,
  unixSeconds,
} from "@responses-edge/responses-api/response";
import type { ModelDelta } from "./contract/engine.ts";
import type { Outcome } from "./decide.ts";
import type { TurnOptions } from "./options.ts";
import type { EventWriter } from "./output-events.ts";
import type { DeltaCount } from "./records.ts";
import { type TurnState, withThoughts } from "./state.ts";
import { keptTiming, shownTiming, type TimedTurn } from "./timing.ts";

/** An outage of the model server: its beginning, and the end of waiting for it. Unix milliseconds. */
export interface Outage {
  since: number;
  until: number;
}

/**
 * A closed response as JSON text: `head` is everything but `output`, so that the store can separate the two. `messages`
 * are the raw messages behind its items (`Replay[]`), or null if the engine has none.
 */
export interface ClosedResponse {
  head: string;
  output: string;
  /** The output as it is stored, including parts that no client sees. */
  kept: string;
  messages: string | null;
  /** Gives its times as they are stored (`timing.ts`): only a response that is stored has them. */
  keptTiming(): string;
  /** Its times as JSON, for a client that wants them. */
  timing?: string | undefined;
  /** The turn's usage, as far as is known: rounds that broke off have put out deltas, and told no usage. */
  spent: {
    usage: Usage | null;
    deltas: number;
    rounds: number;
    toolCalls?: Record<CountedTool, number>;
    guarded?: { model: string; tokens: number };
  };
}

/** A response as a client sees it: JSON texts, and its times if they are wanted. */
export type ShownResponse = Pick<ClosedResponse, "head" | "output" | "timing">;

/** Joins the parts of a response to its JSON body. */
export function responseBody({ head, output, timing }: ShownResponse): string {
  const end = timing === undefined ? "}" : `,"timing":${timing}}`;
  return `${head.slice(0, -1)},"output":${output}${end}`;
}

/** The response object of a turn, and the events that carry it. */
export class TurnResponse {
  readonly object: ResponseObject;
  readonly #state: TurnState;
  readonly #writer: EventWriter;
  readonly #options: Pick<TurnOptions, "asked" | "bounds" | "host" | "moderation">;
  /** Set while it lasts; heartbeat events then report it. */
  outage: Outage | undefined;

  constructor(
    state: TurnState,
    writer: EventWriter,
    options: Pick<TurnOptions, "asked" | "past" | "bounds" | "host" | "moderation">,
  ) {
    const { address, request, model, createdAt } = options.asked;
    const identity = { id: responseId(address), model: model.name, createdAt: unixSeconds(createdAt) };
    this.object = initialResponse(request, identity);
    this.object.output = state.output;
    this.object.usage = state.usage;
    const { removed } = options.past;
    if (removed.length > 0) this.object.input_transformations = [...removed];
    this.#state = state;
    this.#writer = writer;
    this.#options = options;
  }

  /** Output tokens of this round that count: those of unusable answers, and of lost deltas. */
  get tokensInRound(): number {
    const { usage, round } = this.#state;
    return Math.max(round.lost.all, (this.object.usage?.output_tokens ?? 0) - (usage?.output_tokens ?? 0));
  }

  /** Adds facts that a model server reports of an answer. */
  take(delta: Extract<ModelDelta, { kind: "usage" | "kv_transfer_params" }>): void {
    if (delta.kind === "usage") {
      const { lost } = this.#state.round;
      const usage = lost.all === 0 ? delta.usage : withLost(delta.usage, lost);
      const { usage: before } = this.object;
      this.object.usage = before ? addUsage(before, usage) : usage;
    } else this.object.kv_transfer_params = delta.value;
  }

  /** Adds the comparison with an earlier prompt. A server that has used nothing of a prompt again may have had no space for it. */
  diagnose(diagnosis: CacheDiagnosis): void {
    const isUnused = this.object.usage?.input_tokens_details.cached_tokens === 0;
    const isUnclear = diagnosis.type === "cache_hit" && isUnused;
    this.object.prompt_cache_diagnostics = isUnclear ? { type: "unavailable" } : diagnosis;
  }

  /** Adds a summary of a prompt with this many tokens. It counts even if it is not used. */
  addSummary(usage: Usage | undefined, promptTokens: number): void {
    if (!usage) return;
    this.object.usage = addUsage(this.object.usage, usage, promptTokens);
    this.#writer.record({ summarized: { usage: this.object.usage, outputTokens: usage.output_tokens } });
  }

  /**
   * Sends `response.created` with the response queued, and `response.queued`, for a background run that waits to begin.
   */
  queue(): void {
    if (this.#state.sequence > 0) return;
    const snapshot = JSON.stringify({ ...this.object, status: "queued" });
    this.#writer.lifecycle("response.created", snapshot);
    this.#writer.lifecycle("response.queued", snapshot);
  }

  /** Sends `response.created` of a response that stays empty and uses no token. */
  warmUp(): void {
    this.#writer.lifecycle("response.created", JSON.stringify(this.object));
    this.object.usage = NO_USAGE;
  }

  /** Sends `response.created`, unless it was sent before, and `response.in_progress`. */
  start(): void {
    if (!this.#options.host.sink || this.#state.started) return;
    const snapshot = JSON.stringify(this.object);
    if (this.#state.sequence === 0) this.#writer.lifecycle("response.created", snapshot);
    this.#writer.lifecycle("response.in_progress", snapshot);
  }

  /**
   * Repeats `response.in_progress`: a heartbeat for clients whose idle timeout counts only events (Codex gives up after
   * 300 s of comments). During an outage it has the time since when, in Unix seconds.
   */
  repeatInProgress(): void {
    const { outage } = this;
    const recovery = outage && { down_since: unixSeconds(outage.since), gives_up_at: unixSeconds(outage.until) };
    const snapshot = JSON.stringify({ ...this.object, output: [], ...(recovery && { recovery }) });
    this.#writer.lifecycle("response.in_progress", snapshot);
  }

  /** Settles a response whose items have ended. `replays` are the raw messages behind them. */
  close(outcome: Outcome, replays: readonly object[]): ClosedResponse {
    const response = this.object;
    response.status = outcome.status;
    response.completed_at = outcome.status === "completed" ? unixSeconds(this.#options.host.clock()) : null;
    response.incomplete_details = outcome.status === "incomplete" ? { reason: outcome.reason } : null;
    response.error = outcome.status === "failed" ? toResponseError(outcome.error) : null;
    const { cuts } = this.#state;
    if (cuts.length > 0) response.cut_items = cuts.map(({ item, reason }) => ({ id: item, reason }));
    const { moderation } = this.#options;
    response.moderation = moderation?.result ?? null;
    const toolUse = response.tools.length > 0 ? toolUseOf(response) : undefined;
    if (toolUse?.shown) response.tool_usage = toolUse.shown;
    const { output, ...head } = response;
    const { thoughts, deltas, rounds } = this.#state;
    const shown = JSON.stringify(output);
    let isKeptAsShown = thoughts.size === 0;
    for (const item of output) if (item.type === "image_generation_call" && isImageInFile(item)) isKeptAsShown = false;
    const kept = isKeptAsShown ? shown : JSON.stringify(withThoughts(this.#state, output).map(withoutImage));
    const messages = replays.length === 0 ? null : JSON.stringify(replays);
    // Only the items are necessary: without their raw messages, later prompts render the items.
    const fits = kept.length + (messages?.length ?? 0) <= this.#options.bounds.outputLength;
    const spent = {
      usage: response.usage,
      deltas: deltas.all,
      rounds,
      ...(toolUse && { toolCalls: toolUse.calls }),
      ...(moderation && { guarded: moderation.used }),
    };
    const times = this.#times();
    return {
      head: JSON.stringify(head),
      output: shown,
      kept,
      messages: fits ? messages : null,
      keptTiming: () => keptTiming(times),
      timing: this.#shownTiming(times),
      spent,
    };
  }

  #times(): TimedTurn {
    const { asked, host } = this.#options;
    const { measured } = host;
    return {
      acceptedAt: asked.createdAt,
      settledAt: host.clock(),
      model: asked.model.upstream,
      measured,
      state: this.#state,
    };
  }

  /** The times as JSON for a client that wants them. */
  #shownTiming(times: TimedTurn): string | undefined {
    if (!this.#options.asked.request.include?.includes("timing")) return undefined;
    const { output, model } = this.object;
    return JSON.stringify(shownTiming(keptTiming(times), { model, items: output.map(({ id }) => id ?? "") }));
  }

  /**
   * Sends the terminal event of a closed response; a failure is preceded by `error`, nested and flat for all clients,
   * unless the sink wants it alone. OpenAI has no event for a cancelled response: it ends as `response.incomplete` with
   * the status `cancelled`.
   */
  terminate(outcome: Outcome, closed: ClosedResponse): void {
    if (outcome.status === "failed") {
      const { message, type, param, code } = outcome.error;
      this.#writer.record({ failure: outcome.error.toFields() });
      if (!this.#options.host.sink?.failsAlone) {
        this.#writer.emit({ type: "error", error: { type, code, message, param }, code, message, param });
      }
    }
    const name = outcome.status === "cancelled" ? "incomplete" : outcome.status;
    this.#writer.lifecycle(`response.${name}`, responseBody(closed));
  }
}

/** `response.error` has fewer codes than HTTP errors (openai 7.59 `ResponseError.code`). */
function toResponseError(error: ApiError): { code: string; message: string } {
  const known = error.code === "rate_limit_exceeded" || error.code === "context_length_exceeded";
  return { code: known ? error.code : error.status < 500 ? "invalid_prompt" : "server_error", message: error.message };
}

/** The usage of a turn that has not asked the model. */
export const NO_USAGE: Readonly<Usage> = {
  input_tokens: 0,
  input_tokens_details: { cached_tokens: 0, cache_write_tokens: 0 },
  output_tokens: 0,
  output_tokens_details: { reasoning_tokens: 0 },
  total_tokens: 0,
};

/** The usage of a round including its lost deltas, which still count as output. */
export function withLost(usage: Usage, lost: DeltaCount): Usage {
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

/**
 * The usage of a turn with one more round, or with a summary. `ownTokens` are those of a prompt without its request for
 * the summary.
 */
export function addUsage(before: Usage | null, round: Usage, ownTokens = round.input_tokens): Usage {
  if (!before) return round;
  const { input_tokens_details: inputBefore, output_tokens_details: outputBefore } = before;
  const { input_tokens_details: input, output_tokens_details: output } = round;
  const inputs = [...(before.input_tokens_per_turn ?? [before.input_tokens]), round.input_tokens];
  const outputs = [...(before.output_tokens_per_turn ?? [before.output_tokens]), round.output_tokens];
  const cached = [...(before.cached_tokens_per_turn ?? [inputBefore.cached_tokens]), input.cached_tokens];
  const toolOutput = Math.max(0, ownTokens - (inputs.at(-2) ?? 0) - (outputs.at(-2) ?? 0));
  return {
    input_tokens: before.input_tokens + round.input_tokens,
    input_tokens_details: {
      cached_tokens: inputBefore.cached_tokens + input.cached_tokens,
      cache_write_tokens: inputBefore.cache_write_tokens + input.cache_write_tokens,
    },
    output_tokens: before.output_tokens + round.output_tokens,
    output_tokens_details: {
      reasoning_tokens: outputBefore.reasoning_tokens + output.reasoning_tokens,
      tool_output_tokens: (outputBefore.tool_output_tokens ?? 0) + toolOutput,
    },
    total_tokens: before.total_tokens + round.total_tokens,
    input_tokens_per_turn: inputs,
    cached_tokens_per_turn: cached,
    output_tokens_per_turn: outputs,
    tool_output_tokens_per_turn: [...(before.tool_output_tokens_per_turn ?? [0]), toolOutput],
  };
}
