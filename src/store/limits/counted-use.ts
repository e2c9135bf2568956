import { costOf, type Prices, type UsageKind } from "@responses-edge/usage-limits";
import type { Identity } from "../../contract/grants.ts";
import type { Env } from "../../env.ts";
import { allowanceOf } from "./allowances.ts";

/** The use of a model within a request (embeddings for a search, an image, a moderation). It does not count as a request of the key. */
export interface CountedUse {
  kind: UsageKind;
  model: string;
  /** Tokens that the model reads, as estimated. */
  tokens?: number;
  /** As in `UsageEntry`, for example images. */
  units?: number;
  prices: Prices;
}

/** The amounts that were really used. */
export type Used = Pick<CountedUse, "tokens" | "units">;

/**
 * Reserves a use in the limits of a key. Rejects with the 429 of a limit. Gives the function that ends the reservation,
 * with the used amounts, or without any; undefined if nothing is counted.
 */
export async function reserveUse(
  identity: Identity,
  quotas: Env["QUOTAS"] | undefined,
  { kind, model, prices, ...expected }: CountedUse,
  waitUntil: (promise: Promise<unknown>) => void,
): Promise<((used: Used | undefined) => void) | undefined> {
  const { counted } = identity;
  const allowance = quotas && allowanceOf(identity, quotas);
  if (!counted || !allowance) return undefined;
  const amounts = ({ tokens = 0, units = 0 }: Used) => ({ input: tokens, cached: 0, output: 0, units });
  const cost = costOf(model, amounts(expected), prices);
  const reservation = await allowance.take({ tokens: expected.tokens ?? 0, cost }, counted, waitUntil);
  return (used) => {
    if (!used || !counted.tellsUsage) return reservation.end([]);
    const all = amounts(used);
    reservation.end([{ kind, model, requests: 1, ...all, cost: costOf(model, all, prices) }]);
  };
}
