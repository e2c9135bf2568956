import { NOTHING_STORED, STORED_LIMITS } from "./limits.ts";

/** Amounts of the kinds that limits know. */

export const KINDS = ["requests", "reads", "tokens", "cost", "slots", "runs", ...STORED_LIMITS] as const;
export type Kind = (typeof KINDS)[number];

/**
 * Amounts of limited kinds. `cost` in millionths of a dollar; `slots` are requests, `runs` runs in progress. Storage is
 * reserved until its home has reported its real size.
 */
export type Amounts = Record<Kind, number>;

export const NOTHING: Readonly<Amounts> = {
  requests: 0,
  reads: 0,
  tokens: 0,
  cost: 0,
  slots: 0,
  runs: 0,
  ...NOTHING_STORED,
};

/** The amounts that were really used. */
export type Used = Pick<Amounts, "requests" | "reads" | "tokens" | "cost">;

export function plus(a: Amounts, b: Amounts): Amounts {
  return combined(a, b, (one, other) => one + other);
}

/** The amounts that `combine` makes of two others, kind by kind. */
export function combined(a: Amounts, b: Amounts, combine: (one: number, other: number) => number): Amounts {
  const made = { ...NOTHING };
  for (const kind of KINDS) made[kind] = combine(a[kind], b[kind]);
  return made;
}

/** Tells whether there is enough of each needed kind. Other kinds may be negative. */
export function covers(free: Amounts, need: Amounts): boolean {
  return KINDS.every((kind) => need[kind] === 0 || free[kind] >= need[kind]);
}
