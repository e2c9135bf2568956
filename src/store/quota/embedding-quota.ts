import type { Identity } from "../../contract/grants.ts";
import { allowanceOf } from "./allowances.ts";
import type { Quota } from "./quota.ts";
import { costOf, type Prices } from "./usage.ts";

/** Tokens of a model that reads for a search: what it is asked is no request of the key's own. */
export interface ReadTokens {
  model: string;
  /** As estimated. */
  tokens: number;
  prices: Prices;
}

/**
 * Reserves tokens in the limits of a key. Rejects with the 429 of a limit. Gives what ends that, with the tokens that were used, or without
 * where none were; undefined where nothing is counted.
 */
export async function reserveTokens(
  identity: Identity,
  quotas: DurableObjectNamespace<Quota> | undefined,
  { model, tokens, prices }: ReadTokens,
  waitUntil: (promise: Promise<unknown>) => void,
): Promise<((used: number | undefined) => void) | undefined> {
  const { counted } = identity;
  const allowance = quotas && allowanceOf(identity, quotas);
  if (!counted || !allowance) return undefined;
  const cost = (input: number) => costOf(model, { input, cached: 0, output: 0 }, prices);
  const reservation = await allowance.take({ tokens, cost: cost(tokens) }, counted, waitUntil);
  return (used) => {
    const usage = { model, requests: 1, input: used ?? 0, cached: 0, output: 0, cost: cost(used ?? 0) };
    reservation.end(used === undefined || !counted.tellsUsage ? undefined : usage);
  };
}
