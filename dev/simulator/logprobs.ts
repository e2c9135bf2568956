import type { JsonObject } from "./json.ts";
import { hash } from "./tokenizer.ts";

const encoder = new TextEncoder();

/** The log probability of a token: between -0.999 and 0, always the same for the same text. */
export function logprob(token: string): number {
  return 0 - (hash(token) % 1000) / 1000;
}

/** One entry of `logprobs.content` in vLLM's chat shape. */
export function logprobEntry(token: string, top: number): JsonObject {
  const own = candidate(token, logprob(token));
  return {
    ...own,
    top_logprobs: Array.from({ length: top }, (_, rank) =>
      rank === 0 ? own : candidate(`${token}${rank}`, logprob(token) - rank),
    ),
  };
}

function candidate(token: string, value: number): JsonObject {
  return { token, logprob: value, bytes: [...encoder.encode(token)] };
}
