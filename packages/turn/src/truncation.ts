import { ApiError, contextLengthExceeded } from "@responses-edge/responses-api/errors";
import { parseItemId } from "@responses-edge/responses-api/ids";
import type { Item } from "@responses-edge/responses-api/items/registry";
import type { Engine, Prompt, PromptSize } from "./contract/engine.ts";

/** `truncation: "auto"`: the oldest turns are dropped until the prompt fits the model's context window. */

/** Tokens left for an answer if the request gives none: OpenAI's smallest `max_output_tokens`. */
const MIN_OUTPUT_TOKENS = 16;

/**
 * The prompt, shortened from the beginning as little as needed. Whole turns go (a user's message with all that followed
 * it), so that no call loses its output; system and developer messages stay.
 *
 * Measuring takes time proportional to the prompt. After the whole prompt, each tried prompt is about as long as the
 * window, because tokens are about proportional to characters. Throws the 400 `context_length_exceeded` when not even
 * the last turn fits, and ApiError as `engine.measure` does.
 */
export async function truncateToFit(engine: Engine, prompt: Prompt, signal: AbortSignal): Promise<Prompt> {
  const starts = turnStarts(prompt.items);
  const limit = ({ contextWindow }: PromptSize) => contextWindow - reserve(prompt, contextWindow);
  const fits = (size: PromptSize) => size.tokens <= limit(size);
  const without = (dropped: number): Prompt => ({
    ...prompt,
    items: dropped === 0 ? prompt.items : dropBefore(prompt.items, starts[dropped] ?? 0),
  });
  const measure = (candidate: Prompt) => measureOrExplain(engine, candidate, signal, "truncation 'auto'");

  const whole = await measure(prompt);
  if (fits(whole)) return prompt;
  // The fewest turns to drop lies in (low, high]; `high` is only known to fit once it has been measured.
  const characters = charactersFrom(prompt.items, starts);
  let low = { dropped: 0, tokens: whole.tokens };
  const last = starts.length - 1;
  const smallest = last > 0 ? await measure(without(last)) : undefined;
  if (!smallest || !fits(smallest)) {
    throw contextLengthExceeded(
      "Your input exceeds the context window of this model, even with all earlier turns dropped. Please adjust your input and try again.",
    );
  }
  let high = { dropped: last, tokens: smallest.tokens };
  for (let tries = 1; high.dropped - low.dropped > 1; tries += 1) {
    // Bisects every third time, because texts of very different kinds mislead the estimate.
    const middle =
      tries % 3 === 0 ? (low.dropped + high.dropped) >> 1 : estimate(low, high, limit(smallest), characters);
    const size = await measure(without(middle));
    if (fits(size)) high = { dropped: middle, tokens: size.tokens };
    else low = { dropped: middle, tokens: size.tokens };
  }
  return without(high.dropped);
}

/** How many turns to drop so that the rest has `tokens`, strictly between two numbers whose rests are known. */
function estimate(
  low: { dropped: number; tokens: number },
  high: { dropped: number; tokens: number },
  tokens: number,
  characters: readonly number[],
): number {
  const most = characters[low.dropped] ?? 0;
  const least = characters[high.dropped] ?? 0;
  const wanted = least + ((most - least) * (tokens - high.tokens)) / Math.max(1, low.tokens - high.tokens);
  let from = low.dropped + 1;
  let to = high.dropped - 1;
  while (from < to) {
    const middle = (from + to) >> 1;
    if ((characters[middle] ?? 0) <= wanted) to = middle;
    else from = middle + 1;
  }
  return from;
}

/** By turn: the approximate characters of it and all later ones. */
function charactersFrom(items: readonly Item[], starts: readonly number[]): number[] {
  const characters: number[] = [];
  let sum = 0;
  for (let turn = starts.length - 1, end = items.length; turn >= 0; turn -= 1) {
    const start = starts[turn] ?? 0;
    sum += JSON.stringify(items.slice(start, end)).length;
    characters[turn] = sum;
    end = start;
  }
  return characters;
}

/** The purpose that fails if measuring does, by the fault's code. */
const NEEDS: Readonly<Record<string, string>> = {
  upstream_error: "the model server's /tokenize route, which did not answer as expected",
  upstream_malformed_response: "counting by the model server, which it does not support",
  unknown_context_window: "the model's context window, which its server does not report",
};

/** Measures for a feature of the request (`purpose`). Throws ApiError as `engine.measure` does. */
export async function measureOrExplain(
  engine: Engine,
  prompt: Prompt,
  signal: AbortSignal,
  purpose: string,
  options?: { countsAll?: boolean },
): Promise<PromptSize> {
  try {
    return await engine.measure(prompt, signal, options);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    // For example a proxy in front of vLLM that hides /tokenize. A refusal that names a field of the client's is the
    // client's to see.
    const isRefusal = error.status < 500 && error.param === null;
    const need = NEEDS[isRefusal ? "upstream_error" : error.code];
    if (need === undefined) throw error;
    throw new ApiError({ status: 502, message: `${purpose} needs ${need}.`, code: "upstream_error" });
  }
}

function reserve(prompt: Prompt, contextWindow: number): number {
  return Math.min(prompt.request.max_output_tokens ?? MIN_OUTPUT_TOKENS, Math.floor(contextWindow / 2));
}

/**
 * Indices at which a turn begins: user messages that do not directly follow another one of the same turn. An answer that was cut off
 * within its thoughts leaves nothing between two turns.
 */
function turnStarts(items: readonly Item[]): number[] {
  const starts: number[] = [];
  let inUserInput = false;
  let turnBefore: string | undefined;
  for (const [index, item] of items.entries()) {
    const isUser = item.type === "message" && item.role === "user";
    const turn = item.id === undefined ? undefined : parseItemId(item.id)?.turn;
    if (isUser && !(inUserInput && turn === turnBefore)) starts.push(index);
    inUserInput = isUser;
    turnBefore = turn;
  }
  return starts;
}

function dropBefore(items: readonly Item[], start: number): Item[] {
  return items.filter(
    (item, index) =>
      index >= start || (item.type === "message" && (item.role === "system" || item.role === "developer")),
  );
}
