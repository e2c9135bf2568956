/** The periods of a budget, in UTC: an hour, a day, a week (from Monday), a month, or none. */
export const BUDGET_WINDOWS = ["hour", "day", "week", "month", "total"] as const;
export type BudgetWindow = (typeof BUDGET_WINDOWS)[number];

type Count = number | null | undefined;

/** The limits of each end user, by the id in a request. */
export type EndUserLimits = Pick<Limits, "requests_per_minute" | "tokens_per_minute">;

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
  end_user?: EndUserLimits | null | undefined;
}

/** The counted limits of a caller: those of its tenant and of its key, of which at least one counts something. */
export interface CountedLimits {
  tenant: Limits | null;
  key: Limits | null;
  /** Tells whether usage is reported: not if only the deployment's own storage limit applies to the caller. */
  tellsUsage: boolean;
}

/** The limits of each end user of a caller; undefined if neither its tenant nor its key has any. */
export function endUserLimits(tenant: Limits | null, key: Limits | null): CountedLimits | undefined {
  const limitsOf = (of: Limits | null) => {
    const { requests_per_minute: requests, tokens_per_minute: tokens } = of?.end_user ?? {};
    return requests == null && tokens == null ? null : { requests_per_minute: requests, tokens_per_minute: tokens };
  };
  const [ofTenant, ofKey] = [limitsOf(tenant), limitsOf(key)];
  return ofTenant || ofKey ? { tenant: ofTenant, key: ofKey, tellsUsage: false } : undefined;
}

/** Limits of storage, each with the name of its grant and of its figure. Add further kinds of storage here. */
export const STORED_LIMITS = ["stored_bytes", "stored_responses", "stored_conversations"] as const;
export type StoredLimit = (typeof STORED_LIMITS)[number];

/** The stored amount of each. */
export type Stored = Readonly<Record<StoredLimit, number>>;

export const NOTHING_STORED: Stored = { stored_bytes: 0, stored_responses: 0, stored_conversations: 0 };

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

/** Tells whether a kind is storage. */
export function isStoredLimit(kind: string): kind is StoredLimit {
  return (STORED_LIMITS as readonly string[]).includes(kind);
}
