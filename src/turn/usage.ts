import { Buffer } from "node:buffer";
import { BYTES_PER_TOKEN } from "../protocol/estimate.ts";
import type { Usage } from "../protocol/response.ts";

/** What a turn has used: as the model server says, and, where a generation broke off before it could, as deltas. */

/** Tokens of delta events, about; and those of them that were reasoning. */
export interface DeltaCount {
  all: number;
  reasoning: number;
}

/** Few tokens are longer, and few pairs of them are as long. UTF-16 units. */
const LONGEST_TOKEN = 16;

/** How many tokens a delta has, about: one as a rule, and more where the model server sends several in one event. */
export function tokensIn(delta: string): number {
  return delta.length <= LONGEST_TOKEN ? 1 : Math.round(Buffer.byteLength(delta) / BYTES_PER_TOKEN);
}

/** That of a turn which has asked the model nothing. */
export const NO_USAGE: Readonly<Usage> = {
  input_tokens: 0,
  input_tokens_details: { cached_tokens: 0, cache_write_tokens: 0 },
  output_tokens: 0,
  output_tokens_details: { reasoning_tokens: 0 },
  total_tokens: 0,
};

export const NO_DELTAS: Readonly<DeltaCount> = { all: 0, reasoning: 0 };

export function plus(a: DeltaCount, b: DeltaCount): DeltaCount {
  return { all: a.all + b.all, reasoning: a.reasoning + b.reasoning };
}

/** Never below zero. */
export function minus(a: DeltaCount, b: DeltaCount): DeltaCount {
  return { all: Math.max(0, a.all - b.all), reasoning: Math.max(0, a.reasoning - b.reasoning) };
}

/** The usage of a round with what it has said in vain, which counts as output all the same. */
export function withLost(usage: Usage, lost: DeltaCount): Usage {
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

/**
 * The usage of a turn with one more round, or with a summary. `ownTokens` are those of a prompt without what asks for the
 * summary.
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
