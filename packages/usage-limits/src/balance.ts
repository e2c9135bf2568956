import { type Amounts, combined, covers, NOTHING, plus } from "./ledger.ts";
import { type CountedLimits, type Limits, NOTHING_STORED, readsPerMinute, STORED_LIMITS } from "./limits.ts";

/** The reports of what this process has stored, which are told apart from requests. */
export interface StoredReports {
  /** Names the latest report. */
  latest(): number;
  /** Tells whether all reports up to `latest` were told. */
  isTold(latest: number): boolean;
}

/** A request in progress, and the amounts that it has taken. */
export interface Open {
  taken: Amounts;
  /** When it was last seen alive, Unix milliseconds, or `ENDED`. */
  seenAt: number;
}

/** A request that has ended, or takes nothing that it could give back. */
export const ENDED = -1;

/** The quota frees what an isolate holds that it has not heard of for so long. */
export const LIFETIME_MS = 60_000;

/** A request that lasts longer has its isolate heard of in between. */
export const RENEW_AFTER_MS = 20_000;

/** Amounts of a key's limits that a quota has promised to this isolate: free, or taken by requests. */
export class Balance {
  readonly #reports: StoredReports;
  /** Promised, and taken by nobody. Less than nothing where a request has used more than it had taken. */
  #free: Amounts = { ...NOTHING };
  readonly #open = new Set<Open>();
  /** Amounts that ended requests had taken to store, and the latest report of a home when they ended: they are held until that is told. */
  #settled: { taken: Amounts; latest: number }[] = [];
  /** When the quota last promised something, Unix milliseconds. */
  #promisedAt = 0;

  constructor(reports: StoredReports) {
    this.#reports = reports;
  }

  /** Nothing is taken. */
  get isIdle(): boolean {
    return this.#open.size + this.#settled.length === 0;
  }

  /** True while amounts are held of ended requests whose homes have not told yet what they store. */
  get awaitsHomes(): boolean {
    return this.#settled.length > 0;
  }

  get free(): Readonly<Amounts> {
    return this.#free;
  }

  /** Milliseconds since the quota last promised something. */
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

  /** Forgets what is free and about to expire: the quota may give it to others before it hears of this isolate. */
  expire(): void {
    if (Math.abs(this.age) > LIFETIME_MS - RENEW_AFTER_MS) this.#free = atMost(this.#free, NOTHING);
  }

  /** The quota has answered, and promises so much more. */
  promise(granted: Amounts | undefined): void {
    this.#promisedAt = Date.now();
    if (granted) this.#free = plus(this.#free, granted);
  }

  /** Forgets what was used beyond what was promised: a report counts it. */
  forgetDebt(): void {
    this.#free = atLeast(this.#free, NOTHING);
  }

  /** Gives free amounts back to the quota, but so much. */
  keep(most: Amounts): void {
    this.#free = atMost(this.#free, most);
  }

  /** Gives a request an amount of what is free. It gives back what is no count of requests, at once where it has ended. */
  take(need: Amounts, open: Open): void {
    this.#free = minus(this.#free, need);
    const taken = { ...need, requests: 0, reads: 0 };
    if (open.seenAt === ENDED) this.#free = plus(this.#free, taken);
    else {
      open.taken = plus(open.taken, taken);
      this.#open.add(open);
    }
  }

  /** Ends a request, which has used so much. `requests`: so many are given back of those that it has counted. */
  end(open: Open, { tokens, cost }: Pick<Amounts, "tokens" | "cost">, requests = 0): void {
    if (this.#open.delete(open)) {
      const back = { ...open.taken, ...NOTHING_STORED };
      this.#free = plus(this.#free, back);
      // Its home tells how much it has stored; the quota has what it has not stored back with the next report.
      const taken = minus(open.taken, back);
      if (STORED_LIMITS.some((kind) => taken[kind] > 0)) this.#settled.push({ taken, latest: this.#reports.latest() });
    }
    this.#free = minus(this.#free, { ...NOTHING, tokens, cost, requests: -requests });
  }

  /** Frees what requests have taken that the platform has ended, and what is held of ended ones whose homes have told it. */
  forgetDead(): void {
    const now = Date.now();
    this.#settled = this.#settled.filter(({ latest }) => !this.#reports.isTold(latest));
    for (const open of this.#open) if (now - open.seenAt > LIFETIME_MS) this.#open.delete(open);
  }

  /** All that the quota is to hold for this isolate. */
  get held(): Amounts {
    let held = this.#free;
    for (const { taken } of this.#open) held = plus(held, taken);
    for (const { taken } of this.#settled) held = plus(held, taken);
    return held;
  }
}

/** An amount, without the kinds that are not limited. `limited` is of `limitedBy`. */
export function limitedIn(amounts: Amounts, limited: Amounts): Amounts {
  return combined(amounts, limited, (amount, isLimited) => amount * isLimited);
}

/** 1 for each kind that is limited, else 0. */
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

/** Requests that are promised in advance at most. */
const MAX_ADVANCE = 1_000;

/** So much of what may be stored is promised in advance, where ten times as much is left. */
const STANDING: Amounts = {
  ...NOTHING,
  stored_bytes: 64 * 1024 * 1024,
  stored_responses: 100,
  stored_conversations: 100,
};

/** Notes what the requests of a period take, and expects as much of the next. */
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
   * Gives the amounts to have in advance: those of the last period, where several requests came in it, and so much of what may be
   * stored that a caller who is seldom there need not ask for each request. `limited` is of `limitedBy`.
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
