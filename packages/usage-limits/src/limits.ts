/** When a budget begins anew, in UTC: with the hour, the day, the week (on Monday), the month, or never. */
export const BUDGET_WINDOWS = ["hour", "day", "week", "month", "total"] as const;
export type BudgetWindow = (typeof BUDGET_WINDOWS)[number];

type Count = number | null | undefined;

/** The limits of each end user, by the id that a request names. */
export type EndUserLimits = Pick<Limits, "requests_per_minute" | "tokens_per_minute">;

/** The limits of a key, or of a tenant. One that is absent, or null, does not limit. Zero lets nothing through. */
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

/** The limits of a caller that are counted: those of its tenant and of its key, of which some count something. */
export interface CountedLimits {
  tenant: Limits | null;
  key: Limits | null;
  /** Tells whether it is told what was used: not where nothing but the deployment's own limit of what is kept binds the caller. */
  tellsUsage: boolean;
}

/** The limits of each end user of a caller; undefined where neither its tenant nor its key has any. */
export function endUserLimits(tenant: Limits | null, key: Limits | null): CountedLimits | undefined {
  const limitsOf = (of: Limits | null) => {
    const { requests_per_minute: requests, tokens_per_minute: tokens } = of?.end_user ?? {};
    return requests == null && tokens == null ? null : { requests_per_minute: requests, tokens_per_minute: tokens };
  };
  const [ofTenant, ofKey] = [limitsOf(tenant), limitsOf(key)];
  return ofTenant || ofKey ? { tenant: ofTenant, key: ofKey, tellsUsage: false } : undefined;
}

/** Limits of what is kept, each named as the grant and as the figure that it limits. Every further kind of stored amount is named here. */
export const STORED_LIMITS = ["stored_bytes", "stored_responses", "stored_conversations"] as const;
export type StoredLimit = (typeof STORED_LIMITS)[number];

/** How much is kept of each. */
export type Stored = Readonly<Record<StoredLimit, number>>;

export const NOTHING_STORED: Stored = { stored_bytes: 0, stored_responses: 0, stored_conversations: 0 };

/** Where `reads_per_minute` is absent: so many for each request a minute, and no fewer than a client needs that polls. */
const READS_PER_REQUEST = 10;
const LEAST_READS = 120;

/** How many reads a minute are allowed: those that are set, else what the requests a minute come with. Undefined: any number. */
export function readsPerMinute({ reads_per_minute: reads, requests_per_minute: requests }: Limits): number | undefined {
  if (reads != null) return reads;
  if (requests == null) return undefined;
  return requests === 0 ? 0 : Math.max(LEAST_READS, READS_PER_REQUEST * requests);
}
