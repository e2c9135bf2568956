import type { ModelPrice } from "../../config/index.ts";
import type { TurnResult } from "../../turn/turn.ts";
import type { UsageEntry } from "./usage-store.ts";

/** What turns use, before they begin and when they have ended: tokens, and what these cost. */

export type Prices = Readonly<Record<string, ModelPrice>>;

/** What tokens of a model cost, in millionths of a dollar. A model without a price costs nothing. */
export function costOf(
  model: string,
  { input, cached, output }: { input: number; cached: number; output: number },
  prices: Prices,
): number {
  const price = Object.hasOwn(prices, model) ? prices[model] : prices["*"];
  if (!price) return 0;
  const ofInput = Math.max(0, input - cached) * price.input + cached * (price.cached_input ?? price.input);
  return ofInput + output * price.output;
}

/**
 * What a turn has used: as the model server says; and of rounds that broke off before it did (a client that left), what
 * they have put out, and the prompt as it was estimated. Undefined of a turn of which nothing was used.
 */
export function usageOfTurn(
  { outcome, closed: { spent } }: TurnResult,
  { model, estimatedInput }: { model: string; estimatedInput: () => number },
  prices: Prices,
): UsageEntry | undefined {
  const { usage, deltas, rounds } = spent;
  const isCut = outcome.status === "failed" || outcome.status === "cancelled";
  const reported = usage?.input_tokens_per_turn?.length ?? (usage ? 1 : 0);
  // A round that nobody has asked the model for uses nothing; that of a fault which came before its first word neither.
  const isAsked = deltas > (usage?.output_tokens ?? 0) || outcome.status === "cancelled";
  const unreported = isCut && isAsked && rounds >= reported;
  const lastInput = usage?.input_tokens_per_turn?.at(-1) ?? usage?.input_tokens;
  const input = (usage?.input_tokens ?? 0) + (unreported ? (lastInput ?? estimatedInput()) : 0);
  const output = Math.max(usage?.output_tokens ?? 0, isCut || !usage ? deltas : 0);
  if (input === 0 && output === 0) return undefined;
  const cached = usage?.input_tokens_details.cached_tokens ?? 0;
  const tokens = { input, cached, output };
  return { model, requests: 1, ...tokens, cost: costOf(model, tokens, prices) };
}
