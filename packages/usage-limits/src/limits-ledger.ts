import { type Amounts, KINDS, type Kind, NOTHING, plus, type Used } from "./amounts.ts";
import {
  type CountedLimits,
  type Limits,
  NOTHING_STORED,
  readsPerMinute,
  STORED_LIMITS,
  type Stored,
} from "./limits.ts";
import { nearlyUsed } from "./nearly-used.ts";
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
 * The ledger of the usage of a tenant and its keys, and of the amounts that are reserved for holders. Pure: the caller
 * gives the time, and stores the changes.
 * A **hold** is an amount reserved for a holder: an isolate of the Worker, or a run in a home. It counts as used until
 * its holder reports its real usage, gives it back, or falls silent. So usage exceeds a limit only by a holder's usage
 * beyond its hold.
 */

interface Hold extends Amounts {
  holder: string;
  /** Unix milliseconds: after that its holder counts as dead. */
  expires: number;
  /** The number of the holder's last report, so that a repeated one is not counted twice. */
  report: number;
}

/** The stored record of a key, or of the tenant (which has no holds of its own). Plain data. */
export interface Account {
  requests: Window;
  reads: Window;
  tokens: Window;
  periods: BudgetPeriod[];
  holds: Hold[];
  /** The limits that `takeNearlyUsed` has given. Accounts of an earlier version lack it. */
  told?: string[];
}

/** A holder's report on one key: the part of its hold that it keeps, and its usage since the last report. */
export interface Report {
  key: string;
  /** The end user whose limits these are; absent for the key's own. */
  endUser?: string | undefined;
  limits: CountedLimits;
  holder: string;
  report: number;
  held: Amounts;
  used: Used;
  /** The life of its hold without another report, in milliseconds. */
  lifetimeMs: number;
  want?: Want | undefined;
}

/** The further amounts that the holder wants. */
export interface Want {
  /** The minimum that is of use: below it the holder gets nothing. */
  least: Amounts;
  /** The amounts that it needs now, as far as they are free. */
  needed: Amounts;
  /** The amounts that it expects to need soon: it gets a part of them in advance, and so asks less often. */
  soon: Amounts;
}

/** The state of a limit per minute, for the `x-ratelimit-*` headers. */
export interface RateStatus {
  limit: number;
  remaining: number;
  /** The time until its window is empty. */
  resetMs: number;
}

export interface Status {
  requests?: RateStatus | undefined;
  tokens?: RateStatus | undefined;
}

/** The limit that prevents a want. */
export interface Obstacle {
  kind: Exclude<Kind, "cost"> | "budget_tokens" | "budget_usd";
  of: "key" | "tenant";
  limit: number;
  used: number;
  wanted: number;
  /** The time until the amount may be free, in milliseconds; undefined if waiting does not help. */
  retryMs: number | undefined;
  /** The reset of the budget, in Unix milliseconds. */
  resetsAt?: number | undefined;
}

export type Answer = { status: Status } & ({ granted: Amounts; obstacle?: undefined } | { obstacle: Obstacle });

/** The account of the tenant itself; keys have ids that are not empty. */
export const TENANT = "";

/** The time until slots or held tokens may come back, which is unknown, but holders report by then. */
const HOLDS_RETRY_MS = 1_000;

/** A holder gets at most this part of the rest of a limit in advance. */
const SHARE_IN_ADVANCE = 0.1;

/** The longest life of a hold without a report; also after a clock has gone back. */
export const MAX_LIFETIME_MS = 120_000;

/** The maximum of holders of one key: an isolate each, and a run each. */
const MAX_HOLDS = 4_096;

export class Ledger {
  readonly #accounts = new Map<string, Account>();
  readonly #changed = new Set<string>();
  readonly #stored: (key: string) => Stored;

  /**
   * `accounts` are the stored ones, by key. Those of an earlier version may lack `reads`. `stored` gives the storage of
   * a key, or of the tenant.
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

  /** The changed accounts since the last call. */
  takeChanged(): (readonly [key: string, account: Account])[] {
    const changed = [...this.#changed].map((key) => [key, this.#account(key)] as const);
    this.#changed.clear();
    return changed;
  }

  /** Takes a report, and grants its wants, all or nothing of the minimum. `now` in Unix milliseconds. */
  take(given: Report, now: number): Answer {
    // An isolate of an earlier version leaves out unknown kinds.
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

  /** Tells whether a report is new. The holder of a repeated one may be dropped: then it counts as a new one. */
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

  /** Drops usage that has left its window, and the holds of the dead. */
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

  /** Counts usage, and the new hold. */
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

  /** The held amounts of a key; for the tenant, those of all its keys. */
  #held(key: string): Amounts {
    let sum: Amounts = { ...NOTHING };
    for (const [name, { holds }] of this.#accounts) {
      if (key !== TENANT && name !== key) continue;
      for (const hold of holds) sum = plus(sum, hold);
    }
    return sum;
  }

  /** The rest of each kind, under a key's limits and its tenant's. */
  #unused(key: string, limits: CountedLimits, now: number): Amounts {
    const states = this.limitsOf(key, limits, now).map(({ kind, unused }) => ({ kind, unused }));
    const unused: Amounts = { ...NOTHING };
    for (const kind of KINDS) {
      const of = states.filter((each) => each.kind === kind).map((each) => each.unused);
      unused[kind] = Math.max(0, Math.min(Number.MAX_SAFE_INTEGER, ...of));
    }
    return unused;
  }

  /** The needed amounts, as far as they are free; and in advance an amount that takes little from others. */
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

  /** Every limit, with its rest. A refusal names the first ones first. */
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

  /** The budgets and storage limits of a key and its tenant that are nearly used; each is given once in its period. */
  takeNearlyUsed(key: string, limits: CountedLimits, now: number): NearlyUsed[] {
    const states = Map.groupBy(this.limitsOf(key, limits, now), ({ of }) => (of === "key" ? key : TENANT));
    return [...states].flatMap(([name, of]) => {
      const account = this.#account(name);
      const { told, isChanged, fresh } = nearlyUsed(of, account.told ?? []);
      account.told = told;
      if (isChanged) this.#changed.add(name);
      return fresh;
    });
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
      // A held amount counts for a minute from its use.
      const resetMs = used > sumOf(window) ? WINDOW_MS : msUntilEmpty(window, now);
      return { limit: tightest.limit, remaining: Math.max(0, tightest.unused), resetMs };
    };
    return { requests: of("requests"), tokens: of("tokens") };
  }
}

/** A limit that is nearly used, in the report to its operator. */
export type NearlyUsed = Pick<LimitState, "of" | "obstacle" | "limit" | "used" | "resetsAt">;

export interface LimitState {
  of: "key" | "tenant";
  kind: Kind;
  obstacle: Obstacle["kind"];
  limit: number;
  used: number;
  /** Negative if usage exceeds the reservation. */
  unused: number;
  window?: Window;
  resetsAt?: number | undefined;
}

/** The time until this much may be free; undefined if waiting does not free it. */
function retryMs({ limit, unused, window, resetsAt, obstacle }: LimitState, wanted: number, now: number) {
  if (wanted > limit || limit === 0) return undefined;
  if (obstacle === "budget_tokens" || obstacle === "budget_usd") return resetsAt && resetsAt - now;
  const inWindow = window ? msUntilFreed(window, wanted - unused, now) : HOLDS_RETRY_MS;
  // A held amount comes back when its holder reports.
  return Number.isFinite(inWindow) ? inWindow : HOLDS_RETRY_MS;
}

/** A want with zero for the absent kinds. */
function wholeWant({ least, needed, soon }: Want): Want {
  return { least: { ...NOTHING, ...least }, needed: { ...NOTHING, ...needed }, soon: { ...NOTHING, ...soon } };
}
