import {
  type Amounts,
  type CountedLimits,
  hasAny,
  KINDS,
  type Kind,
  type Limits,
  NOTHING,
  NOTHING_STORED,
  plus,
  readsPerMinute,
  STORED_LIMITS,
  type Stored,
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
  /** The names of the limits that `takeNearlyUsed` has given. */
  told: string[];
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
  /** Requests, reads, tokens and cost. */
  used: Amounts;
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
export interface Obstacle extends Pick<LimitState, "of" | "limit" | "used" | "resetsAt"> {
  kind: LimitState["obstacle"];
  wanted: number;
  /** The time until the amount may be free, in milliseconds; undefined if waiting does not help. */
  retryMs: number | undefined;
}

/** The amount that an obstacle is about. */
export function amountOf({ kind }: Obstacle): keyof Amounts {
  if (kind === "budget_tokens") return "tokens";
  return kind === "budget_usd" ? "cost" : kind;
}

export type Answer = { status: Status } & ({ granted: Amounts; obstacle?: undefined } | { obstacle: Obstacle });

/** A limit, and how much of it is used. */
export interface LimitState {
  of: "key" | "tenant";
  /** The amount that it limits, and the name of the limit. */
  kind: Kind;
  obstacle: Exclude<Kind, "cost"> | "budget_tokens" | "budget_usd";
  limit: number;
  /** Used, and held except for storage. */
  used: number;
  /** Negative if usage exceeds the reservation. */
  unused: number;
  /** The usage in the last minute, of a limit per minute. */
  window?: Window | undefined;
  /** The reset of a budget, in Unix milliseconds. */
  resetsAt?: number | undefined;
}

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

/** The part of a budget or of a storage limit from which it is nearly used. */
const NEARLY = 0.8;

export class Ledger {
  readonly #accounts: Map<string, Account>;
  readonly #changed = new Set<string>();
  readonly #stored: (key: string) => Stored;

  /** `accounts` are the stored ones, by key. `stored` gives the storage of a key, or of the tenant. */
  constructor(
    accounts: Iterable<readonly [key: string, account: Account]> = [],
    stored: (key: string) => Stored = () => NOTHING_STORED,
  ) {
    this.#accounts = new Map(accounts);
    this.#stored = stored;
  }

  /** The changed accounts since the last call. */
  takeChanged(): (readonly [key: string, account: Account])[] {
    const changed = [...this.#changed].map((key) => [key, this.#account(key)] as const);
    this.#changed.clear();
    return changed;
  }

  /** Takes a report, and grants its wants, all or nothing of the minimum. `now` in Unix milliseconds. */
  take(report: Report, now: number): Answer {
    this.#pass(now);
    this.#book(report, now);
    const { key, limits, want } = report;
    const states = this.limitsOf(key, limits, now);
    if (!want) return { granted: NOTHING, status: statusOf(states, NOTHING, now) };
    const obstacle = this.#obstacle(key, states, want.least, now);
    if (obstacle) return { obstacle, status: statusOf(states, NOTHING, now) };
    const granted = grantable(states, want);
    this.#hold(report, plus(report.held, granted), now);
    return { granted, status: statusOf(states, granted, now) };
  }

  /** Tells whether a report is new. The holder of a repeated one may be dropped: then it counts as a new one. */
  isNew({ key, holder, report }: Pick<Report, "key" | "holder" | "report">): boolean {
    const before = this.#account(key).holds.find((hold) => hold.holder === holder);
    return report > (before?.report ?? -1);
  }

  #account(key: string): Account {
    let account = this.#accounts.get(key);
    if (!account) {
      account = { requests: [], reads: [], tokens: [], periods: [], holds: [], told: [] };
      this.#accounts.set(key, account);
    }
    return account;
  }

  /** Drops usage that has left its window, and the holds of the dead. */
  #pass(now: number): void {
    for (const [key, account] of this.#accounts) {
      for (const kind of ["requests", "reads", "tokens"] as const) account[kind] = slid(account[kind], now);
      if (account.holds.every(({ expires }) => expires > now && expires <= now + MAX_LIFETIME_MS)) continue;
      account.holds = account.holds
        .filter(({ expires }) => expires > now)
        .map((hold) => ({ ...hold, expires: Math.min(hold.expires, now + MAX_LIFETIME_MS) }));
      this.#changed.add(key);
    }
  }

  /** Counts usage, and what the holder keeps. */
  #book(report: Report, now: number): void {
    const { key, used, limits, held } = report;
    if (this.isNew(report) && KINDS.some((kind) => used[kind] !== 0)) {
      this.#use(key, limits.key, used, now);
      this.#use(TENANT, limits.tenant, used, now);
    }
    this.#hold(report, held, now);
  }

  #use(key: string, limits: Limits | null, { requests, reads, tokens, cost }: Amounts, now: number): void {
    if (!limits) return;
    const account = this.#account(key);
    if (limits.requests_per_minute != null) account.requests = added(account.requests, requests, now);
    if (readsPerMinute(limits) !== undefined) account.reads = added(account.reads, reads, now);
    if (limits.tokens_per_minute != null) account.tokens = added(account.tokens, tokens, now);
    const { budget } = limits;
    if (budget) account.periods = withUsed(account.periods, budget.window, { tokens, cost }, now);
    this.#changed.add(key);
  }

  /** Replaces the hold of a holder. */
  #hold({ key, holder, report, lifetimeMs }: Report, amounts: Amounts, now: number): void {
    const account = this.#account(key);
    const others = account.holds.filter((hold) => hold.holder !== holder);
    if (others.length === account.holds.length && !hasAny(amounts)) return;
    account.holds = others;
    if (hasAny(amounts)) others.push({ ...amounts, holder, expires: now + lifetimeMs, report });
    this.#changed.add(key);
  }

  /** The held amounts of a key; for the tenant, those of all its keys. */
  #held(key: string): Amounts {
    let sum: Amounts = NOTHING;
    for (const [name, { holds }] of this.#accounts) {
      if (key === TENANT || name === key) sum = holds.reduce(plus, sum);
    }
    return sum;
  }

  /** Every limit, with its rest. A refusal names the first ones first. */
  limitsOf(key: string, limits: CountedLimits, now: number): LimitState[] {
    return [...this.#limitsOf("key", key, limits.key, now), ...this.#limitsOf("tenant", TENANT, limits.tenant, now)];
  }

  #limitsOf(of: LimitState["of"], key: string, limits: Limits | null, now: number): LimitState[] {
    if (!limits) return [];
    const account = this.#account(key);
    const held = this.#held(key);
    const stored = this.#stored(key);
    const states: LimitState[] = [];
    type Rest = Partial<LimitState> & { used: number };
    const add = (kind: Kind, limit: number | null | undefined, { used, ...rest }: Rest, unheld = 0) => {
      if (limit == null) return;
      states.push({
        of,
        kind,
        obstacle: kind as LimitState["obstacle"],
        limit,
        used,
        unused: limit - used - unheld,
        ...rest,
      });
    };
    const rate = (kind: "requests" | "reads" | "tokens") => {
      return { used: sumOf(account[kind]) + held[kind], window: account[kind] };
    };
    add("requests", limits.requests_per_minute, rate("requests"));
    add("reads", readsPerMinute(limits), rate("reads"));
    add("slots", limits.max_concurrent_requests, { used: held.slots });
    add("runs", limits.max_background_runs, { used: held.runs });
    add("tokens", limits.tokens_per_minute, rate("tokens"));
    for (const kind of STORED_LIMITS) add(kind, limits[kind], { used: stored[kind] }, held[kind]);
    const { budget } = limits;
    if (!budget) return states;
    const { tokens, cost } = usedInPeriod(account.periods, budget.window, now);
    const resetsAt = periodEnd(budget.window, now);
    const usd = budget.usd == null ? undefined : budget.usd * 1e6;
    add("tokens", budget.tokens, { obstacle: "budget_tokens", used: tokens + held.tokens, resetsAt });
    add("cost", usd, { obstacle: "budget_usd", used: cost + held.cost, resetsAt });
    return states;
  }

  /** The budgets and storage limits of a key and its tenant that are nearly used; each is given once in its period. */
  takeNearlyUsed(key: string, limits: CountedLimits, now: number): LimitState[] {
    const states = Map.groupBy(this.limitsOf(key, limits, now), ({ of }) => (of === "key" ? key : TENANT));
    return [...states].flatMap(([name, all]) => {
      const account = this.#account(name);
      const near = all.filter(
        ({ obstacle, limit, used }) => limit > 0 && /^(?:budget|stored)_/.test(obstacle) && used >= limit * NEARLY,
      );
      const fresh = near.filter((state) => !account.told.includes(nameOf(state)));
      // A new period, and another limit, start again.
      const others = account.told.filter((told) => !all.some(({ obstacle }) => told.startsWith(`${obstacle} `)));
      const told = [...others, ...near.map(nameOf)];
      if (fresh.length > 0 || told.length !== account.told.length) this.#changed.add(name);
      account.told = told;
      return fresh;
    });
  }

  #obstacle(key: string, states: readonly LimitState[], least: Amounts, now: number): Obstacle | undefined {
    if (this.#account(key).holds.length >= MAX_HOLDS) {
      const kind = least.runs > 0 ? "runs" : "slots";
      return { kind, of: "key", limit: MAX_HOLDS, used: MAX_HOLDS, wanted: least[kind], retryMs: HOLDS_RETRY_MS };
    }
    const state = states.find(({ kind, unused }) => least[kind] > 0 && least[kind] > unused);
    if (!state) return undefined;
    const { obstacle: kind, of, limit, used, resetsAt } = state;
    const wanted = least[state.kind];
    return { kind, of, limit, used, wanted, retryMs: retryMs(state, wanted, now), resetsAt };
  }
}

function nameOf({ obstacle, limit, resetsAt }: LimitState): string {
  return `${obstacle} ${limit} ${resetsAt ?? 0}`;
}

/** The needed amounts, as far as they are free; and in advance an amount that takes little from others. */
function grantable(states: readonly LimitState[], { needed, soon }: Want): Amounts {
  const granted = { ...NOTHING };
  for (const kind of KINDS) {
    const rests = states.flatMap((each) => (each.kind === kind ? [each.unused] : []));
    const unused = Math.max(0, Math.min(Number.MAX_SAFE_INTEGER, ...rests));
    const atOnce = Math.min(needed[kind], unused);
    const advance = Math.min(soon[kind], (unused - atOnce) * SHARE_IN_ADVANCE);
    granted[kind] = atOnce + (kind === "cost" ? advance : Math.floor(advance));
  }
  return granted;
}

/** The tightest limits per minute, after an amount was granted. */
function statusOf(states: readonly LimitState[], granted: Amounts, now: number): Status {
  const of = (kind: "requests" | "tokens"): RateStatus | undefined => {
    const rates = states.filter(({ obstacle }) => obstacle === kind);
    const [tightest] = rates.toSorted((a, b) => a.unused - b.unused);
    if (!tightest) return undefined;
    const { window = [], limit, used, unused } = tightest;
    // A held amount counts for a minute from its use.
    const resetMs = used + granted[kind] > sumOf(window) ? WINDOW_MS : msUntilEmpty(window, now);
    return { limit, remaining: Math.max(0, unused - granted[kind]), resetMs };
  };
  return { requests: of("requests"), tokens: of("tokens") };
}

/** The time until this much may be free; undefined if waiting does not free it. */
function retryMs({ limit, unused, window, resetsAt, obstacle }: LimitState, wanted: number, now: number) {
  if (wanted > limit || limit === 0) return undefined;
  if (obstacle === "budget_tokens" || obstacle === "budget_usd") return resetsAt && resetsAt - now;
  const inWindow = window ? msUntilFreed(window, wanted - unused, now) : HOLDS_RETRY_MS;
  // A held amount comes back when its holder reports.
  return Number.isFinite(inWindow) ? inWindow : HOLDS_RETRY_MS;
}
