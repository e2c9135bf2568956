import type { ApiError } from "@responses-edge/responses-api/errors";
import type { StreamEvent } from "@responses-edge/responses-api/items/events";
import type { Item } from "@responses-edge/responses-api/items/registry";
import type { Usage } from "@responses-edge/responses-api/response";
import { newestCompaction, openCompaction, standingItems } from "./compacted-past.ts";
import type { FinishReason, ModelDelta, Prompt } from "./contract/engine.ts";
import { RepeatedText } from "./contract/repeated-text.ts";
import { withLoadedTools } from "./loaded-tools.ts";
import type { TurnBounds, TurnOptions } from "./options.ts";
import { withOutputsInPlace } from "./program-record.ts";
import { afterFirstRound, earlierOutput, promptOutput } from "./prompt.ts";
import { isRecord, parseRecord } from "./records.ts";
import { applyLoggedEvent, applyRecord, newTurnState, type TurnState } from "./state.ts";
import type { TurnOutput } from "./turn-output.ts";

/**
 * Resuming: a turn whose process died continues from its log, and a generation whose model server died continues where
 * it stopped (`Generations.resume`).
 */

/**
 * The state of a turn that was cut off, from the lines of its log, in order: events and records, as JSON texts. Throws
 * SyntaxError or TypeError for other lines, or a wrong order.
 */
export function readLoggedTurn(lines: Iterable<string>): TurnState {
  const state = newTurnState();
  for (const line of lines) {
    if (isRecord(line)) {
      applyRecord(state, parseRecord(line));
      continue;
    }
    const event = JSON.parse(line) as StreamEvent;
    if (event.sequence_number !== state.sequence) throw new SyntaxError("An event is missing.");
    state.sequence += 1;
    applyLoggedEvent(state, event);
  }
  return state;
}

/** The prompt of the round in which the turn was cut off, with the output of the earlier rounds. */
export function resumedPrompt(
  first: Prompt,
  options: Pick<TurnOptions, "past" | "model" | "secrets">,
  output: TurnOutput,
): Prompt {
  const { items, ...rest } = promptOutput(options.past, output, earlierOutput(output.state));
  const loaded = withLoadedTools(first.request, items);
  const request = output.state.rounds > 0 ? afterFirstRound(loaded) : loaded;
  return { ...first, items: sinceCompaction(first.items, items, options), ...rest, request };
}

/** The items of a prompt, and of the rounds before a crash, from the newest compaction on. */
function sinceCompaction(
  first: readonly Item[],
  output: readonly Item[],
  { model, secrets }: Pick<TurnOptions, "model" | "secrets">,
): Item[] {
  const at = newestCompaction(output);
  const item = output[at];
  const rest = output.slice(at + 1).filter(({ type }) => type !== "compaction");
  if (item?.type !== "compaction") return withOutputsInPlace([...first, ...rest]);
  const content = openCompaction(item, secrets.compactions, { param: "previous_response_id", isStored: true });
  return [...standingItems(content, model.engine.noteRole), ...rest];
}

type ResumeBounds = Pick<TurnBounds, "maxRetries" | "maxFruitless" | "outageMs">;

/**
 * Generations in a row that may break off before their first word, because the prompt itself may kill the server. With
 * several servers, each attempt may kill another one.
 */
export const MAX_FRUITLESS = { alone: 4, inPool: 2 };

/**
 * The first wait; it doubles, up to the longest. Each is shortened randomly, so that not all turns come back at once.
 */
const BASE_WAIT_MS = 100;
const MAX_WAIT_MS = 5_000;

/**
 * Faults of the connection to the model server, and of an overloaded, restarting or dead server: worth another attempt.
 */
const TRANSIENT = new Set([
  "model_server_unknown",
  "upstream_aborted",
  "upstream_connection_lost",
  "upstream_engine_dead",
  "upstream_timeout",
  "upstream_unreachable",
  "server_is_overloaded",
  "rate_limit_exceeded",
]);

/** Failures after which the server may be gone, which its health shows. */
const MAY_BE_GONE = new Set(["upstream_error"]);

/**
 * Decides when a generation that broke off is resumed. It waits for an absent model server, because a restart takes
 * minutes; it does not repeat a prompt endlessly that the server accepts and dies of, because the server has other
 * clients, too.
 */
export class ResumePolicy {
  readonly #bounds: ResumeBounds;
  readonly #clock: () => number;
  #brokenOff = 0;
  #fruitless = 0;
  #tries = 0;
  #since: number | undefined;
  /** The last attempt, but not the first one, could not connect. */
  #isAway = false;

  /** `since`: the beginning of an outage from before a crash. Unix milliseconds, as `clock` gives. */
  constructor(bounds: ResumeBounds, clock: () => number, since?: number) {
    this.#bounds = bounds;
    this.#clock = clock;
    this.#since = since;
  }

  /** The present outage: its beginning, and the end of waiting for it. Unix milliseconds. */
  get outage(): { since: number; until: number } | undefined {
    return this.#since === undefined || !this.#isAway
      ? undefined
      : { since: this.#since, until: this.#since + this.#bounds.outageMs };
  }

  /**
   * How long to wait before the next attempt, in milliseconds; undefined if the fault is final. `taken`: the server had
   * accepted the prompt; `spoke`: it had generated something.
   */
  next({ headers }: ApiError, { taken, spoke }: { taken: boolean; spoke: boolean }): number | undefined {
    const { maxRetries, maxFruitless, outageMs } = this.#bounds;
    if (spoke) {
      this.#fruitless = 0;
      this.#tries = 0;
      this.#since = undefined;
    } else if (taken) this.#fruitless += 1;
    if (taken) this.#brokenOff += 1;
    this.#since ??= this.#clock();
    this.#tries += 1;
    this.#isAway = !taken && this.#tries > 1;
    const left = this.#since + outageMs - this.#clock();
    if (maxRetries === 0 || this.#brokenOff > maxRetries || this.#fruitless > maxFruitless || left <= 0) {
      return undefined;
    }
    const wait = Math.min(MAX_WAIT_MS, BASE_WAIT_MS * 2 ** (this.#tries - 1)) * (1 - Math.random() / 2);
    const asked = Number(headers["retry-after"] ?? 0) * 1000;
    return Math.min(Math.max(wait, asked || 0), left);
  }
}

/** Tells whether a fault is temporary: by its nature, or because the server is gone and will come back. */
export async function isTransient(fault: ApiError, isServerGone: () => Promise<boolean>): Promise<boolean> {
  if (TRANSIENT.has(fault.code)) return true;
  return MAY_BE_GONE.has(fault.code) && isServerGone();
}

/** A model's deltas, by upstream reads. */
export type Generation = AsyncIterable<ModelDelta[]>;

/** The known facts of a generation that broke off: tokens of its prompt, and approximate reasoning tokens. */
export interface BrokenOff {
  prompt: number;
  /** Tokens that a template adds to a continued message. They do not count. */
  added?: number;
  reasoning: number;
  /** True if the continued part is text. */
  isText: boolean;
}

/** The deltas of a resumed generation without the text that the reader has already, and with the usage of the whole. */
export async function* resumed(
  generation: Generation,
  repeated: string,
  before: BrokenOff | undefined,
): AsyncGenerator<ModelDelta[]> {
  const repetition = new RepeatedText(repeated);
  let rest = before;
  for await (const deltas of generation) {
    yield deltas.map((delta) => {
      if (delta.kind === "usage" && rest) {
        const usage = wholeUsage(delta.usage, rest);
        // A repeated prompt is counted separately.
        rest = undefined;
        return { ...delta, usage };
      }
      return delta.kind === "text" ? repetition.remove(delta) : delta;
    });
  }
}

/**
 * A generation that is over without another token: it has used up its limit, or was cut off between its last token and
 * the server's finish reason. `outputTokens` counts its tokens.
 */
export async function* over(
  outputTokens: number,
  before: BrokenOff | undefined,
  reason: FinishReason = "length",
): AsyncGenerator<ModelDelta[]> {
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
  yield [{ kind: "finish", reason }];
}

/**
 * vLLM counts the earlier text as prompt; for the client it is output. No reasoning comes after text, but vLLM, which
 * sees no `</think>`, counts all of a continued text as reasoning.
 */
function wholeUsage(usage: Usage, { prompt, added = 0, reasoning, isText }: BrokenOff): Usage {
  const cached = Math.min(usage.input_tokens_details.cached_tokens, prompt);
  const written = Math.min(usage.input_tokens_details.cache_write_tokens, prompt - cached);
  const output = Math.max(0, usage.total_tokens - added - prompt);
  return {
    ...usage,
    input_tokens: prompt,
    input_tokens_details: { ...usage.input_tokens_details, cached_tokens: cached, cache_write_tokens: written },
    output_tokens: output,
    total_tokens: prompt + output,
    output_tokens_details: {
      // The earlier ones are approximate.
      reasoning_tokens: Math.min(output, reasoning + (isText ? 0 : usage.output_tokens_details.reasoning_tokens)),
    },
  };
}
