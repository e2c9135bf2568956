import type { ModelDelta, TokenLogprob } from "../contract/engine.ts";
import type { Usage } from "../protocol/response.ts";

/**
 * A generation that goes on where another one broke off, as one: without what the model repeats, and with the usage of
 * both.
 */

/** What a model says, by upstream reads. */
export type Generation = AsyncIterable<ModelDelta[]>;

/** What is known of a generation that broke off: tokens of its prompt, and about as many as it reasoned. */
export interface BrokenOff {
  prompt: number;
  reasoning: number;
  /** What broke off, and is gone on with, is text. */
  isText: boolean;
}

/** The deltas of a continuation without what the reader has already, and with the usage of the whole. */
export async function* continued(
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
export async function* outOfTokens(outputTokens: number, before: BrokenOff | undefined): AsyncGenerator<ModelDelta[]> {
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
