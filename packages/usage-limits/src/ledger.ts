import {
  type CountedLimits,
  type Limits,
  NOTHING_STORED,
  readsPerMinute,
  STORED_LIMITS,
  type Stored,
  type StoredLimit,
} from "./limits.ts";
import {
  added,
  type BudgetPeriod,
  msUntilEmpty,
  msUntilFreed,
  periodEnd,
  slid,
  sumOf,
  usedInPeriod,
  WINDOW_MS,
  type Window,
  withUsed,
} from "./window.ts";

/**
 * The ledger of what a tenant and its keys have used, and what is promised to those who are about to use it. Pure: time is handed in,
 * and what is to be kept is told.
 *
 * A **hold** is what is promised to a holder: an isolate of the Worker, or a run in a home. It counts as used until its
 * holder says what it has really used, gives it back, or is not heard of any more. So what is used never exceeds a limit
 * by anything but what a holder uses beyond its hold.
 */

const KINDS = ["requests", "reads", "tokens", "cost", "slots", "runs", ...STORED_LIMITS] as const;
type Kind = (typeof KINDS)[number];

/**
 * Amounts of what is limited. `cost` in millionths of a dollar; `slots` are requests, `runs` runs in progress. An amount to be stored is
 * promised until its home has told how much it stores.
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

interface Hold extends Amounts {
  holder: string;
  /** Unix milliseconds: then its holder is taken for dead. */
  expires: number;
  /** The number of the holder's last report: of one that comes twice, the second is not counted. */
  report: number;
}

/** The record that is kept of a key, or of the tenant (which has no holds of its own). Plain data. */
export interface Account {
  requests: Window;
  reads: Window;
  tokens: Window;
  periods: BudgetPeriod[];
  holds: Hold[];
}

/** A holder's report on one key: what it holds from now on of what it has had, and what it has used since last time. */
export interface Report {
  key: string;
  /** The end user of the key whose limits these are; absent of the key's own. */
  endUser?: string | undefined;
  limits: CountedLimits;
  holder: string;
  report: number;
  held: Amounts;
  used: Used;
  /** How long its hold lives without another report, in milliseconds. */
  lifetimeMs: number;
  want?: Want | undefined;
}

/** The amounts that a holder wants beside. */
export interface Want {
  /** Less than this is of no use: then it gets nothing. */
  least: Amounts;
  /** The amounts that it needs now, as far as they are there. */
  needed: Amounts;
  /** The amounts that it expects to need soon: it gets a part of them in advance, and so has to ask less often. */
  soon: Amounts;
}

/** How a limit of a minute stands, for the `x-ratelimit-*` headers. */
export interface RateStatus {
  limit: number;
  remaining: number;
  /** Until nothing is used of it. */
  resetMs: number;
}

export interface Status {
  requests?: RateStatus | undefined;
  tokens?: RateStatus | undefined;
}

/** The limit that stands in the way of a want. */
export interface Obstacle {
  kind: Exclude<Kind, "cost"> | "budget_tokens" | "budget_usd";
  of: "key" | "tenant";
  limit: number;
  used: number;
  wanted: number;
  /** When it may be there, in milliseconds; undefined where waiting does not help. */
  retryMs: number | undefined;
  /** When the budget begins anew, in Unix milliseconds. */
  resetsAt?: number | undefined;
}

export type Answer = { status: Status } & ({ granted: Amounts; obstacle?: undefined } | { obstacle: Obstacle });

/** The account of the tenant itself; keys have ids that are not empty. */
export const TENANT = "";

/** When slots or held tokens may come back: nobody knows, but holders report by then. */
const HOLDS_RETRY_MS = 1_000;

/** A holder gets no more in advance than this part of what is left of a limit. */
const SHARE_IN_ADVANCE = 0.1;

/** The longest life of a hold without a report; also where a clock has gone back since. */
export const MAX_LIFETIME_MS = 120_000;

/** Holders that one key may have: an isolate each, and a run each. */
const MAX_HOLDS = 4_096;

export class Ledger {
  readonly #accounts = new Map<string, Account>();
  readonly #changed = new Set<string>();
  readonly #stored: (key: string) => Stored;

  /**
   * `accounts` as they were kept, by key. An earlier version has kept some without `reads`. `stored` gives what a key has stored, or
   * the tenant.
   */
  constructor(
    accounts: Iterable<readonly [key: string, account: Account]> = [],
    stored: (key: string) => Stored = () => NOTHING_STORED,
  ) {
    this.#stored = stored;
    for (const [key, { reads = [], ...account }] of accounts) {
      this.#accounts.set(key, { ...account, reads, holds: account.holds.map((hold) => ({ ...NOTHING, ...hold })) });
    }
  }

  /** The accounts that have changed since this was last asked. */
  takeChanged(): (readonly [key: string, account: Account])[] {
    const changed = [...this.#changed].map((key) => [key, this.#account(key)] as const);
    this.#changed.clear();
    return changed;
  }

  /** Takes a report, and grants what it wants, all or nothing of the least. `now` in Unix milliseconds. */
  take(given: Report, now: number): Answer {
    // An isolate of an earlier version leaves out what it does not know.
    const report = { ...given, held: { ...NOTHING, ...given.held }, want: given.want && wholeWant(given.want) };
    this.#pass(now);
    this.#book(report, now);
    const { want, limits, key } = report;
    const obstacle = want && this.#obstacle(key, limits, want.least, now);
    if (obstacle) return { obstacle, status: this.#status(key, limits, now) };
    const granted = want ? this.#grantable(key, limits, want, now) : { ...NOTHING };
    if (want) this.#promise(report, granted, now);
    return { granted, status: this.#status(key, limits, now) };
  }

  /** Tells whether a report has not been taken before. Its holder may be forgotten: then it is taken for a new one. */
  isNew({ key, holder, report }: Pick<Report, "key" | "holder" | "report">): boolean {
    const before = this.#account(key).holds.find((hold) => hold.holder === holder);
    return report > (before?.report ?? -1);
  }

  #account(key: string): Account {
    let account = this.#accounts.get(key);
    if (!account) {
      account = { requests: [], reads: [], tokens: [], periods: [], holds: [] };
      this.#accounts.set(key, account);
    }
    return account;
  }

  /** Forgets what time has taken: what has left its window, and the holds of the dead. */
  #pass(now: number): void {
    for (const [key, account] of this.#accounts) {
      account.requests = slid(account.requests, now);
      account.reads = slid(account.reads, now);
      account.tokens = slid(account.tokens, now);
      if (account.holds.every(({ expires }) => expires > now && expires <= now + MAX_LIFETIME_MS)) continue;
      account.holds = account.holds
        .filter(({ expires }) => expires > now)
        .map((hold) => ({ ...hold, expires: Math.min(hold.expires, now + MAX_LIFETIME_MS) }));
      this.#changed.add(key);
    }
  }

  /** Counts what was used, and what is held from now on. */
  #book(taken: Report, now: number): void {
    const { key, holder, report, held, used, limits, lifetimeMs } = taken;
    const account = this.#account(key);
    const before = account.holds.find((hold) => hold.holder === holder);
    if (this.isNew(taken) && KINDS.some((kind) => (used as Partial<Amounts>)[kind])) {
      this.#use(key, limits.key, used, now);
      this.#use(TENANT, limits.tenant, used, now);
    }
    const holds = KINDS.some((kind) => held[kind] > 0);
    if (!before && !holds) return;
    const others = account.holds.filter((hold) => hold.holder !== holder);
    account.holds = holds ? [...others, { ...held, holder, expires: now + lifetimeMs, report }] : others;
    this.#changed.add(key);
  }

  #use(key: string, limits: Limits | null, { requests, reads = 0, tokens, cost }: Used, now: number): void {
    if (!limits) return;
    const account = this.#account(key);
    if (limits.requests_per_minute != null) account.requests = added(account.requests, requests, now);
    if (readsPerMinute(limits) !== undefined) account.reads = added(account.reads, reads, now);
    if (limits.tokens_per_minute != null) account.tokens = added(account.tokens, tokens, now);
    const { budget } = limits;
    if (budget) account.periods = withUsed(account.periods, budget.window, { tokens, cost }, now);
    this.#changed.add(key);
  }

  #promise({ key, holder, report, held, lifetimeMs }: Report, granted: Amounts, now: number): void {
    const account = this.#account(key);
    const sum = plus(held, granted);
    if (!KINDS.some((kind) => sum[kind] > 0)) return;
    const others = account.holds.filter((hold) => hold.holder !== holder);
    account.holds = [...others, { ...sum, holder, expires: now + lifetimeMs, report }];
    this.#changed.add(key);
  }

  /** The amounts that are held of a key; of the tenant, all that is held of its keys. */
  #held(key: string): Amounts {
    let sum: Amounts = { ...NOTHING };
    for (const [name, { holds }] of this.#accounts) {
      if (key !== TENANT && name !== key) continue;
      for (const hold of holds) sum = plus(sum, hold);
    }
    return sum;
  }

  /** How much of each kind is left, under a key's limits and its tenant's. */
  #unused(key: string, limits: CountedLimits, now: number): Amounts {
    const states = this.limitsOf(key, limits, now).map(({ kind, unused }) => ({ kind, unused }));
    const unused: Amounts = { ...NOTHING };
    for (const kind of KINDS) {
      const of = states.filter((each) => each.kind === kind).map((each) => each.unused);
      unused[kind] = Math.max(0, Math.min(Number.MAX_SAFE_INTEGER, ...of));
    }
    return unused;
  }

  /** The needed amounts, as far as they are there; and in advance what does not take much from others. */
  #grantable(key: string, limits: CountedLimits, { needed, soon }: Want, now: number): Amounts {
    const unused = this.#unused(key, limits, now);
    const granted: Amounts = { ...NOTHING };
    for (const kind of KINDS) {
      const now = Math.min(needed[kind], unused[kind]);
      const advance = Math.min(soon[kind], (unused[kind] - now) * SHARE_IN_ADVANCE);
      granted[kind] = now + Math.max(0, kind === "cost" ? advance : Math.floor(advance));
    }
    return granted;
  }

  /** Every limit that there is, with what is left of it. Those that are asked first are named first in a refusal. */
  limitsOf(key: string, limits: CountedLimits, now: number): LimitState[] {
    const states: LimitState[] = [];
    const accounts = [
      { of: "key", name: key, grants: limits.key },
      { of: "tenant", name: TENANT, grants: limits.tenant },
    ] as const;
    for (const { of, name, grants } of accounts) {
      if (!grants) continue;
      const account = this.#account(name);
      const held = this.#held(name);
      const rate = (kind: "requests" | "reads" | "tokens", limit: number | null | undefined) => {
        if (limit == null) return;
        const used = sumOf(account[kind]) + held[kind];
        states.push({ of, kind, obstacle: kind, limit, used, unused: limit - used, window: account[kind] });
      };
      const load = (kind: "slots" | "runs", limit: number | null | undefined) => {
        if (limit == null) return;
        states.push({ of, kind, obstacle: kind, limit, used: held[kind], unused: limit - held[kind] });
      };
      rate("requests", grants.requests_per_minute);
      rate("reads", readsPerMinute(grants));
      load("slots", grants.max_concurrent_requests);
      load("runs", grants.max_background_runs);
      rate("tokens", grants.tokens_per_minute);
      for (const kind of STORED_LIMITS) {
        const limit = grants[kind];
        if (limit == null) continue;
        const used = this.#stored(name)[kind];
        states.push({ of, kind, obstacle: kind, limit, used, unused: limit - used - held[kind] });
      }
      const { budget } = grants;
      if (!budget) continue;
      const period = usedInPeriod(account.periods, budget.window, now);
      const resetsAt = periodEnd(budget.window, now);
      if (budget.tokens != null) {
        const used = period.tokens + held.tokens;
        const unused = budget.tokens - used;
        states.push({ of, kind: "tokens", obstacle: "budget_tokens", limit: budget.tokens, used, unused, resetsAt });
      }
      if (budget.usd != null) {
        const limit = budget.usd * 1e6;
        const used = period.cost + held.cost;
        states.push({ of, kind: "cost", obstacle: "budget_usd", limit, used, unused: limit - used, resetsAt });
      }
    }
    return states;
  }

  #obstacle(key: string, limits: CountedLimits, least: Amounts, now: number): Obstacle | undefined {
    if (this.#account(key).holds.length >= MAX_HOLDS) {
      const wanted = least.slots + least.runs;
      const kind = least.runs > 0 ? "runs" : "slots";
      return { kind, of: "key", limit: MAX_HOLDS, used: MAX_HOLDS, wanted, retryMs: HOLDS_RETRY_MS };
    }
    for (const state of this.limitsOf(key, limits, now)) {
      const wanted = least[state.kind];
      if (wanted === 0 || wanted <= state.unused) continue;
      const { obstacle: kind, of, limit, used, resetsAt } = state;
      return { kind, of, limit, used, wanted, retryMs: retryMs(state, wanted, now), resetsAt };
    }
    return undefined;
  }

  #status(key: string, limits: CountedLimits, now: number): Status {
    const states = this.limitsOf(key, limits, now);
    const of = (kind: "requests" | "tokens"): RateStatus | undefined => {
      const rates = states.filter(({ obstacle }) => obstacle === kind);
      const [tightest] = rates.toSorted((a, b) => a.unused - b.unused);
      if (!tightest) return undefined;
      const { window = [], used } = tightest;
      // A promised amount counts for a minute from when it is used.
      const resetMs = used > sumOf(window) ? WINDOW_MS : msUntilEmpty(window, now);
      return { limit: tightest.limit, remaining: Math.max(0, tightest.unused), resetMs };
    };
    return { requests: of("requests"), tokens: of("tokens") };
  }
}

export interface LimitState {
  of: "key" | "tenant";
  kind: Kind;
  obstacle: Obstacle["kind"];
  limit: number;
  used: number;
  /** Less than nothing where more was used than was promised. */
  unused: number;
  window?: Window;
  resetsAt?: number | undefined;
}

/** When there may be room for so much; undefined where no waiting makes room for it. */
function retryMs({ limit, unused, window, resetsAt, obstacle }: LimitState, wanted: number, now: number) {
  if (wanted > limit || limit === 0) return undefined;
  if (obstacle === "budget_tokens" || obstacle === "budget_usd") return resetsAt && resetsAt - now;
  const inWindow = window ? msUntilFreed(window, wanted - unused, now) : HOLDS_RETRY_MS;
  // A held amount comes back when its holder reports.
  return Number.isFinite(inWindow) ? inWindow : HOLDS_RETRY_MS;
}

/** A want with nothing of what it leaves out. */
function wholeWant({ least, needed, soon }: Want): Want {
  return { least: { ...NOTHING, ...least }, needed: { ...NOTHING, ...needed }, soon: { ...NOTHING, ...soon } };
}

export function plus(a: Amounts, b: Amounts): Amounts {
  return combined(a, b, (one, other) => one + other);
}

/** The amounts that `combine` makes of each kind of two others. */
export function combined(a: Amounts, b: Amounts, combine: (one: number, other: number) => number): Amounts {
  const made = { ...NOTHING };
  for (const kind of KINDS) made[kind] = combine(a[kind], b[kind]);
  return made;
}

/** Tells whether an amount is one of what is stored. */
export function isStoredLimit(kind: Obstacle["kind"] | Kind): kind is StoredLimit {
  return (STORED_LIMITS as readonly string[]).includes(kind);
}

/** Tells whether there is as much of each kind as is needed. A kind that is not needed may be below zero. */
export function covers(free: Amounts, need: Amounts): boolean {
  return KINDS.every((kind) => need[kind] === 0 || free[kind] >= need[kind]);
}
