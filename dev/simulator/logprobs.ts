import type { JsonObject } from "./json.ts";
import { hash } from "./tokenizer.ts";

const encoder = new TextEncoder();

/**
 * The letters of an answer to a question with options, and their logits: each is e times less likely than the one before, and
 * without a space e³ times less likely than with one.
 */
const LETTERS = [..."ABCDEFGHIJ"].flatMap((letter, rank): [string, number][] => [
  [` ${letter}`, -rank],
  [letter, -rank - 3],
]);
const total = Math.log(LETTERS.reduce((sum, [, logit]) => sum + Math.exp(logit), 0));
const letters = new Map(LETTERS.map(([letter, logit]) => [letter, logit - total]));

/** The log probability of a token: always the same for the same text, and above -1 but for letters. */
export function logprob(token: string): number {
  return letters.get(token) ?? 0 - (hash(token) % 1000) / 1000;
}

/** A token and its alternatives with their log probabilities, `count` in all. */
export function alternatives(token: string, count: number): [token: string, logprob: number][] {
  const others: Iterable<[string, number]> = letters.has(token)
    ? [...letters].filter(([letter]) => letter !== token).toSorted(([, one], [, other]) => other - one)
    : Array.from({ length: count }, (_, rank) => [`${token}${rank + 1}`, logprob(token) - rank - 1]);
  return [[token, logprob(token)] satisfies [string, number], ...others].slice(0, count);
}

/** One entry of `logprobs.content` in vLLM's chat shape. */
export function logprobEntry(token: string, top: number): JsonObject {
  return {
    ...candidate(token, logprob(token)),
    top_logprobs: alternatives(token, top).map(([text, value]) => candidate(text, value)),
  };
}

function candidate(token: string, value: number): JsonObject {
  return { token, logprob: value, bytes: [...encoder.encode(token)] };
}
