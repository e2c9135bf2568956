import { type Grants, NOTHING_STORED, readsPerMinute, STORED_LIMITS } from "../../contract/grants.ts";
import type { CountedLimits } from "../../contract/identity.ts";
import { isRetryable } from "../retryable.ts";
import { isTold, latestReport } from "../stored-reports.ts";
import {
  type Amounts,
  type Answer,
  combined,
  covers,
  isStoredLimit,
  MAX_LIFETIME_MS,
  NOTHING,
  type Obstacle,
  plus,
  type Report,
  type Status,
  type Used,
  type Want,
} from "./ledger.ts";
import { limitExceeded, limitsUnavailable } from "./refusal.ts";
import type { UsageEntry } from "./usage-store.ts";

/**
 * What this isolate may use of a key's limits without asking: its quota has promised it as much. A request takes of it what
 * it needs, and gives back what it has not used. Who finds too little asks the quota; all that come meanwhile wait for
 * that answer and are asked for together, so that an isolate has one call under way for a key, however many requests come.
 */

/** A quota, as far as it is needed here. */
export interface QuotaStub {
  exchange(report: Report, usage: readonly UsageEntry[]): Promise<Answer>;
}

/** What is used is told so long after the first request that ended. */
const REPORT_AFTER_MS = 1_000;

/** How often that is tried, where the quota cannot be reached. The next request that asks tells it, too. */
const MAX_REPORTS = 10;

/** An isolate that is not heard of for so long has died, and what it holds is free again. */
const LIFETIME_MS = 60_000;

/** A request that lasts longer has its isolate heard of in between. */
export const RENEW_AFTER_MS = 20_000;

/** How long a refusal is repeated without asking again, unless something comes back before. */
const REFUSED_FOR_MS = 200;

/** How often, and how long after one another, the quota is asked again where what has ended is not told yet. */
const MAX_LOOKS = 10;
const LOOK_AGAIN_MS = 10;

/** Requests that are promised in advance at most. */
const MAX_ADVANCE = 1_000;

/** What of stored things is promised in advance, where there is room for ten times as much. */
const STANDING: Amounts = {
  ...NOTHING,
  stored_bytes: 64 * 1024 * 1024,
  stored_responses: 100,
  stored_conversations: 100,
};

/** The isolate has no name of its own. */
const holder = () => {
  name ??= crypto.randomUUID();
  return name;
};
let name: string | undefined;

/** Who waits for an answer waits no longer: whoever has asked may have been ended by the platform. */
const ANSWER_WITHIN_MS = 10_000;

interface Waiter {
  need: Amounts;
  /** For whom; and whether it begins with this, rather than wants more. */
  open: Open;
  isRequest: boolean;
  resolve(): void;
  reject(error: unknown): void;
}

/** What a request in progress has taken. */
interface Open {
  taken: Amounts;
  /** When it was last seen alive, Unix milliseconds: one whose last words the platform did not let it say is not. */
  seenAt: number;
}

/** What a request has taken, until it ends. */
export interface Reservation {
  readonly status: Status;
  /** Takes more tokens, because the prompt is longer than was known. Throws the 429 where there are not so many. */
  raise(tokens: number, cost: number): Promise<void> | undefined;
  /** Gives back what was not used. Only the first word counts. */
  end(usage: UsageEntry | undefined): void;
}

export class Lease {
  readonly #who: { tenant: string; keyId: string };
  readonly #stub: () => QuotaStub;
  #limits: CountedLimits;
  #limited: Amounts;
  /** Promised, and taken by nobody. Less than nothing where a request has used more than it had taken. */
  #free: Amounts = { ...NOTHING };
  /** Taken by requests in progress. */
  readonly #open = new Set<Open>();
  /** What requests had taken to store that have ended, and the latest report of a home when they did: it is held until that is told. */
  #settled: { taken: Amounts; latest: number }[] = [];
  /** Used, and not reported yet. */
  #used: Used = NO_USE;
  #usage = new Map<string, UsageEntry>();
  #reports = 0;
  #waiters: Waiter[] = [];
  /** Since when the quota is being asked, Unix milliseconds. Another number is another asker. */
  #askingSince: number | undefined;
  #status: Status = {};
  #refusal: { obstacle: Obstacle; until: number } | undefined;
  /** When the quota was last heard of, Unix milliseconds. */
  #heardAt = 0;
  readonly #demand = new Demand();
  #reportDue: number | undefined;

  constructor(who: { tenant: string; keyId: string }, limits: CountedLimits, stub: () => QuotaStub) {
    this.#who = who;
    this.#limits = limits;
    this.#limited = limitedBy(limits);
    this.#stub = stub;
  }

  /** Nothing is taken, asked for or to be told: it can be forgotten. */
  get isIdle(): boolean {
    const hasTold = this.#used.requests === 0 && this.#used.reads === 0 && this.#usage.size === 0;
    return this.#open.size + this.#settled.length === 0 && this.#waiters.length === 0 && !this.#isAsking && hasTold;
  }

  /**
   * Takes what a request needs, of each kind that is limited: at once, or when the quota has answered. `limits` are those of now. Throws, or rejects
   * with, the 429 of a limit, and the 503 where the quota cannot be asked. `waitUntil` keeps what outlives the request.
   */
  take(
    need: Partial<Amounts>,
    limits: CountedLimits,
    waitUntil: (promise: Promise<unknown>) => void,
  ): Reservation | Promise<Reservation> {
    this.#learn(limits);
    const open: Open = { taken: NOTHING, seenAt: Date.now() };
    const asked = this.#obtain({ ...NOTHING, ...need }, open, waitUntil);
    return asked ? asked.then(() => this.#reservation(open, waitUntil)) : this.#reservation(open, waitUntil);
  }

  /**
   * Counts a request that reserves nothing: as one of `kind`. Undefined where that is done at once. Throws, or rejects, as `take`
   * does.
   */
  count(
    kind: "requests" | "reads",
    limits: CountedLimits,
    waitUntil: (promise: Promise<unknown>) => void,
  ): Promise<void> | undefined {
    this.#learn(limits);
    if (this.#limited[kind] === 0) return undefined;
    const over: Open = { taken: NOTHING, seenAt: ENDED };
    const asked = this.#obtain({ ...NOTHING, [kind]: 1 }, over, waitUntil);
    if (asked) return asked.then(() => this.#reportSoon(waitUntil));
    this.#reportSoon(waitUntil);
    return undefined;
  }

  /** Limits as they are now. */
  #learn(limits: CountedLimits): void {
    if (limits === this.#limits) return;
    this.#limits = limits;
    this.#limited = limitedBy(limits);
  }

  #reservation(open: Open, waitUntil: (promise: Promise<unknown>) => void): Reservation {
    const timer = setInterval(() => {
      open.seenAt = Date.now();
      this.#renew(waitUntil);
    }, RENEW_AFTER_MS);
    return {
      status: this.#shownStatus(),
      raise: (tokens, cost) => {
        const { taken } = open;
        const more = { ...NOTHING, tokens: Math.max(0, tokens - taken.tokens), cost: Math.max(0, cost - taken.cost) };
        return more.tokens === 0 && more.cost === 0 ? undefined : this.#obtain(more, open, waitUntil);
      },
      end: (usage) => {
        if (open.seenAt === ENDED) return;
        open.seenAt = ENDED;
        clearInterval(timer);
        const used = { tokens: usage ? usage.input + usage.output : 0, cost: usage?.cost ?? 0 };
        this.#giveBack(open, used);
        if (usage) this.#note(usage);
        this.#reportSoon(waitUntil);
      },
    };
  }

  /** Takes an amount from what is free; else gives a promise of it. */
  #obtain(all: Amounts, open: Open, waitUntil: (promise: Promise<unknown>) => void): Promise<void> | undefined {
    const now = Date.now();
    // What is not limited is there.
    const need = combined(all, this.#limited, (amount, isLimited) => amount * isLimited);
    const isRequest = all.requests + all.reads + all.stored_bytes > 0;
    // By then the quota has given it to others.
    if (Math.abs(now - this.#heardAt) > LIFETIME_MS - RENEW_AFTER_MS) this.#free = atMost(this.#free, NOTHING);
    if (this.#waiters.length === 0 && covers(this.#free, need)) {
      this.#give(need, open, isRequest);
      return undefined;
    }
    const { obstacle, until = 0 } = this.#refusal ?? {};
    const isRefused = obstacle && need[amountOf(obstacle.kind)] > 0;
    if (isRefused && now < until && until - now <= REFUSED_FOR_MS) throw this.#refused(obstacle);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const waiter: Waiter = { need, open, isRequest, resolve, reject };
    this.#waiters.push(waiter);
    const timer = setTimeout(() => {
      this.#waiters = this.#waiters.filter((each) => each !== waiter);
      reject(limitsUnavailable());
    }, ANSWER_WITHIN_MS);
    // The question outlives the request that asks it: others wait for its answer.
    if (!this.#isAsking) waitUntil(this.#ask());
    return promise.finally(() => clearTimeout(timer));
  }

  get #isAsking(): boolean {
    return this.#askingSince !== undefined && Math.abs(Date.now() - this.#askingSince) < ANSWER_WITHIN_MS;
  }

  /** Asks until nobody waits any more. Never rejects. */
  async #ask(): Promise<void> {
    await this.#asking(async (isAsker) => {
      let looks = 0;
      for (let first = this.#waiters[0]; first && isAsker(); first = this.#waiters[0]) {
        // What was used beyond what was promised is counted by the report.
        this.#free = atLeast(this.#free, NOTHING);
        const all = this.#waiters.reduce((sum, { need }) => plus(sum, need), NOTHING);
        const want = {
          least: lacking(first.need, this.#free),
          needed: lacking(all, this.#free),
          soon: this.#advance(),
        };
        const { obstacle } = await this.#exchange(want);
        this.#handOut();
        const isStored = obstacle !== undefined && isStoredLimit(obstacle.kind);
        if (isStored && this.#settled.length > 0 && looks < MAX_LOOKS) {
          // What is held of those that have ended may be all that stands in the way: it is told in a moment.
          looks += 1;
          await new Promise((resolve) => setTimeout(resolve, LOOK_AGAIN_MS));
          continue;
        }
        looks = 0;
        if (obstacle && this.#waiters[0] === first) this.#refuse(obstacle);
      }
    });
  }

  /** Does what asks the quota, as the only one who does. Whoever waits is refused when that fails. Never rejects. */
  async #asking(work: (isAsker: () => boolean) => Promise<void>): Promise<void> {
    const since = Date.now();
    this.#askingSince = since;
    const isAsker = () => this.#askingSince === since;
    try {
      await work(isAsker);
    } catch {
      for (const { reject } of this.#waiters.splice(0)) reject(limitsUnavailable());
    } finally {
      if (isAsker()) this.#askingSince = undefined;
    }
  }

  /** Gives to those who wait, in their order, as long as there is enough. */
  #handOut(): void {
    for (let first = this.#waiters[0]; first && covers(this.#free, first.need); first = this.#waiters[0]) {
      this.#waiters.shift();
      this.#give(first.need, first.open, first.isRequest);
      first.resolve();
    }
  }

  /** From now on it is held for this request, whether it has learned that yet or not. */
  #give(need: Amounts, open: Open, isRequest: boolean): void {
    this.#free = minus(this.#free, need);
    this.#used = addUsed(this.#used, { ...NO_USE, requests: need.requests, reads: need.reads });
    if (isRequest) this.#demand.note(need);
    const taken = { ...need, requests: 0, reads: 0 };
    if (open.seenAt === ENDED) this.#free = plus(this.#free, taken);
    else {
      open.taken = plus(open.taken, taken);
      this.#open.add(open);
    }
  }

  /** Refuses the first who waits, and all whom the same stands in the way of. */
  #refuse(obstacle: Obstacle): void {
    const [first] = this.#waiters;
    if (!first) return;
    const kind = amountOf(obstacle.kind);
    const isRefused = ({ need }: Waiter) => need[kind] >= first.need[kind];
    const refused = this.#waiters.filter(isRefused);
    this.#waiters = this.#waiters.filter((waiter) => !isRefused(waiter));
    // What everybody needs as much of, nobody gets.
    if (kind === "requests" || kind === "reads" || kind === "slots") {
      this.#refusal = { obstacle, until: Date.now() + Math.min(obstacle.retryMs ?? REFUSED_FOR_MS, REFUSED_FOR_MS) };
    }
    for (const { reject, need } of refused) reject(this.#refused({ ...obstacle, wanted: need[kind] }));
  }

  #refused(obstacle: Obstacle) {
    return limitExceeded(obstacle, this.#status, this.#who);
  }

  /** Reports what was used, and takes what is granted. Rejects when the quota cannot be reached. */
  async #exchange(want: Want | undefined): Promise<Answer> {
    const [used, usage, due] = [this.#used, [...this.#usage.values()], this.#reportDue];
    this.#used = NO_USE;
    this.#usage = new Map();
    this.#reportDue = undefined;
    this.#free = atLeast(this.#free, NOTHING);
    this.#forgetDead();
    this.#reports += 1;
    const report: Report = {
      key: this.#who.keyId,
      limits: this.#limits,
      holder: holder(),
      report: this.#reports,
      held: this.#held,
      used,
      lifetimeMs: Math.min(LIFETIME_MS, MAX_LIFETIME_MS),
      want,
    };
    try {
      const answer = await this.#call(report, usage);
      this.#heardAt = Date.now();
      this.#status = answer.status;
      if (!answer.obstacle) this.#free = plus(this.#free, answer.granted);
      return answer;
    } catch (error) {
      // Told again with the next report. If it has arrived after all, it counts twice: rather than not at all.
      this.#used = addUsed(this.#used, used);
      this.#reportDue ??= due;
      for (const entry of usage) this.#note(entry);
      throw error;
    }
  }

  async #call(report: Report, usage: readonly UsageEntry[]): Promise<Answer> {
    try {
      return await this.#stub().exchange(report, usage);
    } catch (error) {
      if (!isRetryable(error)) throw error;
      return await this.#stub().exchange(report, usage);
    }
  }

  /** All that the quota is to hold for this isolate. */
  get #held(): Amounts {
    let held = this.#free;
    for (const { taken } of this.#open) held = plus(held, taken);
    for (const { taken } of this.#settled) held = plus(held, taken);
    return held;
  }

  /** What requests have taken that the platform has ended is free again, and what those have that have ended once it is told. */
  #forgetDead(): void {
    const now = Date.now();
    this.#settled = this.#settled.filter(({ latest }) => !isTold(this.#who.tenant, latest));
    for (const open of this.#open) if (now - open.seenAt > LIFETIME_MS) this.#open.delete(open);
  }

  /**
   * What is asked for in advance: as much as was needed in the time of a report, where several requests come in it. Of what is
   * stored, so much that a caller who is seldom there need not ask for each request.
   */
  #advance(): Amounts {
    const standing = combined(STANDING, this.#limited, (amount, isLimited) => amount * isLimited);
    return combined(this.#demand.expected(MAX_ADVANCE), standing, Math.max);
  }

  #giveBack(open: Open, used: Pick<Amounts, "tokens" | "cost">): void {
    if (this.#open.delete(open)) {
      const back = { ...open.taken, ...NOTHING_STORED };
      this.#free = plus(this.#free, back);
      // What was to be stored is: its home tells how much. Where it is not, the quota has it back with the next report.
      const taken = minus(open.taken, back);
      if (STORED_LIMITS.some((kind) => taken[kind] > 0)) this.#settled.push({ taken, latest: latestReport() });
    }
    this.#free = minus(this.#free, { ...NOTHING, tokens: used.tokens, cost: used.cost });
    this.#used = addUsed(this.#used, { ...NO_USE, tokens: used.tokens, cost: used.cost });
    this.#refusal = undefined;
    this.#handOut();
  }

  #note(entry: UsageEntry): void {
    const before = this.#usage.get(entry.model);
    this.#usage.set(entry.model, before ? addUsage(before, entry) : entry);
  }

  /** Tells what was used before long, unless somebody asks before. */
  #reportSoon(waitUntil: (promise: Promise<unknown>) => void): void {
    const now = Date.now();
    // A timer whose request has been ended by the platform never rings.
    if (this.#reportDue !== undefined && now < this.#reportDue + REPORT_AFTER_MS) return;
    waitUntil(this.#report(MAX_REPORTS));
  }

  /** Tells what was used when its time has come; again, so many times in all, where that cannot be told. Never rejects. */
  async #report(attempts: number): Promise<void> {
    for (let left = attempts; left > 0; left -= 1) {
      const due = Date.now() + REPORT_AFTER_MS;
      this.#reportDue = due;
      await new Promise((resolve) => setTimeout(resolve, REPORT_AFTER_MS));
      // A question has told it meanwhile, or another report is under way.
      if (this.#reportDue !== due) return;
      if (!this.#isAsking && (await this.#tell()) && this.#settled.length === 0) return;
      // Whoever has used something since tells of it, and of this.
      if (this.#reportDue !== undefined && this.#reportDue !== due) return;
    }
  }

  /** Tells what was used, and keeps no more than will be needed soon. Whether that has been heard. Never rejects. */
  async #tell(): Promise<boolean> {
    let isHeard = true;
    await this.#asking(async () => {
      this.#free = atMost(this.#free, this.#advance());
      await this.#exchange(undefined).catch(() => {
        isHeard = false;
      });
      this.#handOut();
    });
    if (this.#waiters.length > 0) await this.#ask();
    return isHeard;
  }

  #renew(waitUntil: (promise: Promise<unknown>) => void): void {
    if (this.#isAsking || Date.now() - this.#heardAt < RENEW_AFTER_MS / 2) return;
    waitUntil(this.#tell());
  }

  /** As the quota has told it, with what this isolate may still use of it. */
  #shownStatus(): Status {
    const { requests, tokens } = this.#status;
    return {
      requests: requests && {
        ...requests,
        remaining: Math.min(requests.limit, requests.remaining + this.#free.requests),
      },
      tokens: tokens && { ...tokens, remaining: Math.min(tokens.limit, tokens.remaining + this.#free.tokens) },
    };
  }
}

/** Of a request that has ended. */
const ENDED = -1;

/** What requests take in the time of a report, and so will probably take in the next. */
class Demand {
  #period = 0;
  #now = { count: 0, amounts: NOTHING };
  #before = this.#now;

  note(need: Amounts): void {
    this.#turn();
    this.#now = { count: this.#now.count + 1, amounts: plus(this.#now.amounts, need) };
  }

  /** Of at most so many requests; nothing where they come one by one. */
  expected(most: number): Amounts {
    this.#turn();
    const { count, amounts } = this.#now.count > this.#before.count ? this.#now : this.#before;
    if (count < 2) return { ...NOTHING };
    const share = Math.min(1, most / count);
    return combined(amounts, NOTHING, (amount) => Math.ceil(amount * share));
  }

  #turn(): void {
    const period = Math.floor(Date.now() / REPORT_AFTER_MS);
    if (period === this.#period) return;
    const none = { count: 0, amounts: NOTHING };
    this.#before = period === this.#period + 1 ? this.#now : none;
    this.#now = none;
    this.#period = period;
  }
}

const NO_USE: Used = { requests: 0, reads: 0, tokens: 0, cost: 0 };

/** The amount that an obstacle is about. */
function amountOf(kind: Obstacle["kind"]): keyof Amounts {
  if (kind === "budget_tokens") return "tokens";
  return kind === "budget_usd" ? "cost" : kind;
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

/** What is missing of a need. */
function lacking(need: Amounts, free: Amounts): Amounts {
  return atLeast(minus(need, free), NOTHING);
}

/** 1 for each kind that is limited, else 0. */
function limitedBy({ tenant, key }: CountedLimits): Amounts {
  const both = [tenant, key].filter((grants) => grants !== null);
  const one = (of: (grants: Grants) => number | null | undefined) =>
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

function addUsed(a: Used, b: Used): Used {
  return {
    requests: a.requests + b.requests,
    reads: a.reads + b.reads,
    tokens: a.tokens + b.tokens,
    cost: a.cost + b.cost,
  };
}

function addUsage(a: UsageEntry, b: UsageEntry): UsageEntry {
  return {
    model: a.model,
    requests: a.requests + b.requests,
    input: a.input + b.input,
    cached: a.cached + b.cached,
    output: a.output + b.output,
    cost: a.cost + b.cost,
  };
}
