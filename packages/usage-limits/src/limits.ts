/** Limits as callers have them, and amounts of the kinds that they know. */

/** The periods of a budget, in UTC: an hour, a day, a week (from Monday), a month, or none. */
export const BUDGET_WINDOWS = ["hour", "day", "week", "month", "total"] as const;
export type BudgetWindow = (typeof BUDGET_WINDOWS)[number];

/** Limits of storage, each with the name of its grant and of its figure. Add further kinds of storage here. */
export const STORED_LIMITS = ["stored_bytes", "stored_responses", "stored_conversations"] as const;
export type StoredLimit = (typeof STORED_LIMITS)[number];

type Count = number | null | undefined;

/** The limits of a key, or of a tenant. An absent or null limit does not restrict. Zero refuses everything. */
export interface Limits extends Partial<Record<StoredLimit, Count>> {
  requests_per_minute?: Count;
  /** The limit of requests that read, delete or cancel. `readsPerMinute` has its default. */
  reads_per_minute?: Count;
  tokens_per_minute?: Count;
  max_concurrent_requests?: Count;
  max_background_runs?: Count;
  /** `usd` in dollars. */
  budget?: { tokens?: Count; usd?: Count; window: BudgetWindow } | null | undefined;
  /** The limits of each end user, by the id in a request. */
  end_user?: Pick<Limits, "requests_per_minute" | "tokens_per_minute"> | null | undefined;
}

/** The counted limits of a caller: those of its tenant and of its key. */
export interface CountedLimits {
  tenant: Limits | null;
  key: Limits | null;
}

/** Those of a caller without any. */
export const NO_LIMITS: CountedLimits = { tenant: null, key: null };

/** The limits of each end user of a caller; undefined if neither its tenant nor its key has any. */
export function endUserLimits(tenant: Limits | null, key: Limits | null): CountedLimits | undefined {
  const limitsOf = (of: Limits | null) => {
    const { requests_per_minute: requests, tokens_per_minute: tokens } = of?.end_user ?? {};
    return requests == null && tokens == null ? null : { requests_per_minute: requests, tokens_per_minute: tokens };
  };
  const [ofTenant, ofKey] = [limitsOf(tenant), limitsOf(key)];
  return ofTenant || ofKey ? { tenant: ofTenant, key: ofKey } : undefined;
}

/**
 * The default of `reads_per_minute`: this many for each request a minute, and at least as many as a polling client
 * needs.
 */
const READS_PER_REQUEST = 10;
const LEAST_READS = 120;

/** The allowed reads a minute: the set limit, else the default for the requests a minute. Undefined: no limit. */
export function readsPerMinute({ reads_per_minute: reads, requests_per_minute: requests }: Limits): number | undefined {
  if (reads != null) return reads;
  if (requests == null) return undefined;
  return requests === 0 ? 0 : Math.max(LEAST_READS, READS_PER_REQUEST * requests);
}

export const KINDS = ["requests", "reads", "tokens", "cost", "slots", "runs", ...STORED_LIMITS] as const;
export type Kind = (typeof KINDS)[number];

/**
 * Amounts of limited kinds. `cost` in millionths of a dollar; `slots` are requests, `runs` runs in progress. Storage is
 * reserved until its home has reported its real size.
 */
export type Amounts = Record<Kind, number>;

/** The stored amounts of each kind of storage. */
export type Stored = Readonly<Record<StoredLimit, number>>;

export const NOTHING_STORED: Stored = { stored_bytes: 0, stored_responses: 0, stored_conversations: 0 };

export const NOTHING: Readonly<Amounts> = {
  ...{ requests: 0, reads: 0, tokens: 0, cost: 0, slots: 0, runs: 0 },
  ...NOTHING_STORED,
};

/** The amounts that `combine` makes of two others, kind by kind. */
export function combined(a: Amounts, b: Amounts, combine: (one: number, other: number) => number): Amounts {
  const made = { ...NOTHING };
  for (const kind of KINDS) made[kind] = combine(a[kind], b[kind]);
  return made;
}

export const plus = (a: Amounts, b: Amounts) => combined(a, b, (one, other) => one + other);
export const minus = (a: Amounts, b: Amounts) => combined(a, b, (one, other) => one - other);

/** Tells whether there is more than nothing of a kind. */
export const hasAny = (amounts: Amounts) => KINDS.some((kind) => amounts[kind] > 0);

/** 1 for each kind that the limits restrict, else 0. */
export function limitedBy({ tenant, key }: CountedLimits): Amounts {
  const limited = { ...NOTHING };
  for (const limits of [tenant, key]) {
    if (!limits) continue;
    const { budget } = limits;
    const counts: Partial<Record<Kind, Count>> = {
      requests: limits.requests_per_minute,
      reads: readsPerMinute(limits),
      tokens: limits.tokens_per_minute ?? budget?.tokens,
      cost: budget?.usd,
      slots: limits.max_concurrent_requests,
      runs: limits.max_background_runs,
      ...limits,
    };
    for (const kind of KINDS) if (counts[kind] != null) limited[kind] = 1;
  }
  return limited;
}
