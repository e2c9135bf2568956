import { type Amounts, combined, covers, NOTHING, plus } from "./amounts.ts";
import { type CountedLimits, type Limits, NOTHING_STORED, readsPerMinute, STORED_LIMITS } from "./limits.ts";

/** The storage reports of this process, which are separate from requests. */
export interface StoredReports {
  /** Names the latest report. */
  latest(): number;
  /** Tells whether all reports up to `latest` were received. */
  isTold(latest: number): boolean;
}

/** A request in progress, and its amounts. */
export interface Open {
  taken: Amounts;
  /** The last sign of life, Unix milliseconds, or `ENDED`. */
  seenAt: number;
}

/** A request that has ended, or takes nothing that it could give back. */
export const ENDED = -1;

/** The quota frees the hold of an isolate that is silent for this long. */
export const LIFETIME_MS = 60_000;

/** The interval at which an isolate reports for a longer request. */
export const RENEW_AFTER_MS = 20_000;

/** Amounts of a key's limits that a quota has reserved for this isolate: free, or taken by requests. */
export class Balance {
  readonly #reports: StoredReports;
  /** Reserved, and not taken. Negative if a request has used more than it had taken. */
  #free: Amounts = { ...NOTHING };
  readonly #open = new Set<Open>();
  /**
   * Amounts that ended requests had taken to store, with the latest report of their home at their end: they are held
   * until that report is received.
   */
  #settled: { taken: Amounts; latest: number }[] = [];
  /** The last grant of the quota, Unix milliseconds. */
  #promisedAt = 0;

  constructor(reports: StoredReports) {
    this.#reports = reports;
  }

  /** Nothing is taken. */
  get isIdle(): boolean {
    return this.#open.size + this.#settled.length === 0;
  }

  /** True while the storage of ended requests is not reported yet. */
  get awaitsHomes(): boolean {
    return this.#settled.length > 0;
  }

  get free(): Readonly<Amounts> {
    return this.#free;
  }

  /** Milliseconds since the quota's last grant. */
  get age(): number {
    return Date.now() - this.#promisedAt;
  }

  /** The part of a need that is not free. */
  lacking(need: Amounts): Amounts {
    return atLeast(minus(need, this.#free), NOTHING);
  }

  covers(need: Amounts): boolean {
    return covers(this.#free, need);
  }

  /** Drops free amounts that are about to expire: the quota may give them to others before this isolate reports. */
  expire(): void {
    if (Math.abs(this.age) > LIFETIME_MS - RENEW_AFTER_MS) this.#free = atMost(this.#free, NOTHING);
  }

  /** The quota has answered, and grants this much more. */
  promise(granted: Amounts | undefined): void {
    this.#promisedAt = Date.now();
    if (granted) this.#free = plus(this.#free, granted);
  }

  /** Drops usage beyond the hold, which a report counts. */
  forgetDebt(): void {
    this.#free = atLeast(this.#free, NOTHING);
  }

  /** Gives free amounts back to the quota, except this much. */
  keep(most: Amounts): void {
    this.#free = atMost(this.#free, most);
  }

  /** Gives a request a free amount. It gives back everything that is no count of requests, at once if it has ended. */
  take(need: Amounts, open: Open): void {
    this.#free = minus(this.#free, need);
    const taken = { ...need, requests: 0, reads: 0 };
    if (open.seenAt === ENDED) this.#free = plus(this.#free, taken);
    else {
      open.taken = plus(open.taken, taken);
      this.#open.add(open);
    }
  }

  /** Ends a request with its usage. `requests`: the number of counted requests that it gives back. */
  end(open: Open, { tokens, cost }: Pick<Amounts, "tokens" | "cost">, requests = 0): void {
    if (this.#open.delete(open)) {
      const back = { ...open.taken, ...NOTHING_STORED };
      this.#free = plus(this.#free, back);
      // Its home reports its storage; the quota gets the unstored part back with the next report.
      const taken = minus(open.taken, back);
      if (STORED_LIMITS.some((kind) => taken[kind] > 0)) this.#settled.push({ taken, latest: this.#reports.latest() });
    }
    this.#free = minus(this.#free, { ...NOTHING, tokens, cost, requests: -requests });
  }

  /** Frees the amounts of requests that the platform has ended, and those of ended ones whose homes have reported. */
  forgetDead(): void {
    const now = Date.now();
    this.#settled = this.#settled.filter(({ latest }) => !this.#reports.isTold(latest));
    for (const open of this.#open) if (now - open.seenAt > LIFETIME_MS) this.#open.delete(open);
  }

  /** The whole hold of this isolate. */
  get held(): Amounts {
    let held = this.#free;
    for (const { taken } of this.#open) held = plus(held, taken);
    for (const { taken } of this.#settled) held = plus(held, taken);
    return held;
  }
}

/** An amount, without the unlimited kinds. `limited` is from `limitedBy`. */
export function limitedIn(amounts: Amounts, limited: Amounts): Amounts {
  return combined(amounts, limited, (amount, isLimited) => amount * isLimited);
}

/** 1 for each limited kind, else 0. */
export function limitedBy({ tenant, key }: CountedLimits): Amounts {
  const both = [tenant, key].filter((grants) => grants !== null);
  const one = (of: (grants: Limits) => number | null | undefined) =>
    both.some((grants) => of(grants) != null) ? 1 : 0;
  const limited: Amounts = {
    ...NOTHING,
    requests: one((grants) => grants.requests_per_minute),
    reads: one(readsPerMinute),
    tokens: one((grants) => grants.tokens_per_minute ?? grants.budget?.tokens),
    cost: one((grants) => grants.budget?.usd),
    slots: one((grants) => grants.max_concurrent_requests),
    runs: one((grants) => grants.max_background_runs),
  };
  for (const kind of STORED_LIMITS) limited[kind] = one((grants) => grants[kind]);
  return limited;
}

function minus(a: Amounts, b: Amounts): Amounts {
  return combined(a, b, (one, other) => one - other);
}

function atLeast(a: Amounts, least: Amounts): Amounts {
  return combined(a, least, Math.max);
}

function atMost(a: Amounts, most: Amounts): Amounts {
  return combined(a, most, Math.min);
}

/** The maximum of requests that are reserved in advance. */
const MAX_ADVANCE = 1_000;

/** The storage that is reserved in advance, if ten times as much is left. */
const STANDING: Amounts = {
  ...NOTHING,
  stored_bytes: 64 * 1024 * 1024,
  stored_responses: 100,
  stored_conversations: 100,
};

/** Records the needs of a period, and expects as much for the next. */
export class Forecast {
  readonly #periodMs: number;
  #period = 0;
  #now = { count: 0, amounts: NOTHING };
  #before = this.#now;

  constructor(periodMs: number) {
    this.#periodMs = periodMs;
  }

  note(need: Amounts): void {
    this.#turn();
    this.#now = { count: this.#now.count + 1, amounts: plus(this.#now.amounts, need) };
  }

  /**
   * Gives the amounts to have in advance: those of the last period, if it had several requests, and storage for a rare
   * caller, so that it need not ask for each request. `limited` is from `limitedBy`.
   */
  advance(limited: Amounts): Amounts {
    return combined(this.#expected(), limitedIn(STANDING, limited), Math.max);
  }

  #expected(): Amounts {
    this.#turn();
    const { count, amounts } = this.#now.count > this.#before.count ? this.#now : this.#before;
    if (count < 2) return { ...NOTHING };
    const share = Math.min(1, MAX_ADVANCE / count);
    return combined(amounts, NOTHING, (amount) => Math.ceil(amount * share));
  }

  #turn(): void {
    const period = Math.floor(Date.now() / this.#periodMs);
    if (period === this.#period) return;
    const none = { count: 0, amounts: NOTHING };
    this.#before = period === this.#period + 1 ? this.#now : none;
    this.#now = none;
    this.#period = period;
  }
}
