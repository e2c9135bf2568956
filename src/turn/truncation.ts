import type { Engine, Prompt, PromptSize } from "../engine/engine.ts";
import { ApiError, contextLengthExceeded } from "../protocol/errors.ts";
import type { Item } from "../protocol/items.ts";

/** `truncation: "auto"`: the oldest turns are dropped until the prompt fits the model's context window. */

/** Room for an answer when the request names none: OpenAI's smallest `max_output_tokens`. */
const MIN_OUTPUT_TOKENS = 16;

/**
 * The prompt, shortened from the beginning as little as needed. Whole turns go (a user's message with all that
 * followed it), so that no call loses its output; system and developer messages stay.
 * Throws the 400 `context_length_exceeded` when not even the last turn fits, and ApiError as `engine.measure` does.
 */
export async function truncateToFit(engine: Engine, prompt: Prompt, signal: AbortSignal): Promise<Prompt> {
  const starts = turnStarts(prompt.items);
  const fits = (size: PromptSize) => size.tokens + reserve(prompt, size.contextWindow) <= size.contextWindow;
  const without = (dropped: number): Prompt => ({
    ...prompt,
    items: dropped === 0 ? prompt.items : dropBefore(prompt.items, starts[dropped] ?? 0),
  });
  const measure = (candidate: Prompt) => measureOrExplain(engine, candidate, signal);

  if (fits(await measure(prompt))) return prompt;
  // The fewest turns to drop lies in (low, high]; `high` is only known to fit once it has been measured.
  let low = 0;
  let high = starts.length - 1;
  const smallest = high > 0 ? await measure(without(high)) : undefined;
  if (!smallest || !fits(smallest)) {
    throw contextLengthExceeded(
      "Your input exceeds the context window of this model, even with all earlier turns dropped. Please adjust your input and try again.",
    );
  }
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (fits(await measure(without(middle)))) high = middle;
    else low = middle;
  }
  return without(high);
}

async function measureOrExplain(engine: Engine, prompt: Prompt, signal: AbortSignal): Promise<PromptSize> {
  try {
    return await engine.measure(prompt, signal);
  } catch (error) {
    // A proxy in front of vLLM that hides /tokenize must not look like an unknown model.
    if (
      error instanceof ApiError &&
      error.status < 500 &&
      error.code !== "context_length_exceeded" &&
      error.code !== "model_not_found"
    ) {
      throw new ApiError({
        status: 502,
        message: "truncation 'auto' needs the model server's /tokenize route, which did not answer as expected.",
        code: "upstream_error",
      });
    }
    throw error;
  }
}

function reserve(prompt: Prompt, contextWindow: number): number {
  return Math.min(prompt.request.max_output_tokens ?? MIN_OUTPUT_TOKENS, Math.floor(contextWindow / 2));
}

/** Indices at which a turn begins: user messages that do not follow one directly. */
function turnStarts(items: readonly Item[]): number[] {
  const starts: number[] = [];
  let inUserInput = false;
  for (const [index, item] of items.entries()) {
    const isUser = item.type === "message" && item.role === "user";
    if (isUser && !inUserInput) starts.push(index);
    inUserInput = isUser;
  }
  return starts;
}

function dropBefore(items: readonly Item[], start: number): Item[] {
  return items.filter(
    (item, index) =>
      index >= start || (item.type === "message" && (item.role === "system" || item.role === "developer")),
  );
}
