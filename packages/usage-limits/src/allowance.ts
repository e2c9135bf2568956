import { type Amounts, NOTHING, plus } from "./amounts.ts";
import {
  Balance,
  ENDED,
  Forecast,
  limitedBy,
  limitedIn,
  type Open,
  RENEW_AFTER_MS,
  type StoredReports,
} from "./balance.ts";
import { type CountedLimits, isStoredLimit } from "./limits.ts";
import type { Answer, Obstacle, Status, Want } from "./limits-ledger.ts";
import { limitExceeded, limitsUnavailable, type Who } from "./refusal.ts";
import { type QuotaStub, REPORT_AFTER_MS, Reporter } from "./reporter.ts";
import { type UsageEntry, usedIn } from "./usage.ts";

/** The number of further questions to the quota, and their intervals, while ended requests are not reported yet. */
const MAX_LOOKS = 10;
const LOOK_AGAIN_MS = 10;

type WaitUntil = (promise: Promise<unknown>) => void;

/** A request's part of an allowance, until it ends. */
export interface Reservation {
  readonly status: Status;
  /** Takes more tokens, if the prompt turns out longer. Throws the 429 if there are not enough. */
  raise(tokens: number, cost: number): Promise<void> | undefined;
  /** Gives the unused amounts back. Does nothing the second time. */
  end(usage: readonly UsageEntry[]): void;
  /** Ends it without counting the request. */
  cancel(): void;
}

/** The reservation of a request without limits. */
const FREE: Omit<Reservation, "status"> = { raise: () => undefined, end: () => {}, cancel: () => {} };

/**
 * The amount of a key's limits that an isolate uses without asking, because its quota has reserved it (`balance.ts`). A
 * request takes its need from it, and gives the unused part back. If there is too little, it asks the quota; further
 * requests wait for that answer and are asked for together, so that an isolate has one call in progress for
 * a key, however many requests arrive.
 */
export class Allowance {
  readonly #who: Who;
  #limits: CountedLimits;
  #limited: Amounts;
  readonly #balance: Balance;
  readonly #queue = new Queue();
  readonly #reporter: Reporter;
  readonly #forecast = new Forecast(REPORT_AFTER_MS);
  /** The time since when the quota is being asked, Unix milliseconds. Another number belongs to another asker. */
  #askingSince: number | undefined;
  #status: Status = {};

  /** `quota` counts the use of a tenant, `stored` has the storage reports that its quota has not received yet. */
  constructor(who: Who, limits: CountedLimits, { quota, stored }: { quota: QuotaStub; stored: StoredReports }) {
    this.#who = who;
    this.#limits = limits;
    this.#limited = limitedBy(limits);
    this.#balance = new Balance(stored);
    this.#reporter = new Reporter({ key: who.keyId, endUser: who.endUser?.id }, quota);
  }

  /** Nothing is taken, being asked, or unreported: the allowance can be dropped. */
  get isIdle(): boolean {
    return this.#balance.isIdle && this.#queue.isEmpty && !this.#isAsking && this.#reporter.isIdle;
  }

  /**
   * Takes a request's need of each limited kind: at once, or when the quota has answered. `limits` are the present
   * ones. Throws, or rejects with, the 429 of a limit, and the 503 if the quota does not answer. `waitUntil` keeps work
   * alive that outlives the request.
   */
  take(need: Partial<Amounts>, limits: CountedLimits, waitUntil: WaitUntil): Reservation | Promise<Reservation> {
    this.#learn(limits);
    if (this.#isFree(need)) return { ...FREE, status: this.#shownStatus() };
    const open: Open = { taken: NOTHING, seenAt: Date.now() };
    const asked = this.#obtain({ ...NOTHING, ...need }, open, waitUntil);
    return asked ? asked.then(() => this.#reservation(open, waitUntil)) : this.#reservation(open, waitUntil);
  }

  /**
   * Counts a request without a reservation as one of `kind`. Undefined if that is done at once. Throws, or rejects, as
   * `take` does.
   */
  count(kind: "requests" | "reads", limits: CountedLimits, waitUntil: WaitUntil): Promise<void> | undefined {
    this.#learn(limits);
    if (this.#limited[kind] === 0) return undefined;
    const asked = this.#obtain({ ...NOTHING, [kind]: 1 }, { taken: NOTHING, seenAt: ENDED }, waitUntil);
    if (asked) return asked.then(() => this.#reportSoon(waitUntil));
    this.#reportSoon(waitUntil);
    return undefined;
  }

  /** No part of the request's need is limited, and its usage is not reported: it holds nothing. */
  #isFree(need: Partial<Amounts>): boolean {
    const { tokens, cost } = this.#limited;
    if (this.#limits.tellsUsage || tokens > 0 || cost > 0) return false;
    for (const kind in need)
      if (need[kind as keyof Amounts] !== 0 && this.#limited[kind as keyof Amounts] > 0) return false;
    return true;
  }

  #learn(limits: CountedLimits): void {
    if (limits === this.#limits) return;
    // Under a lower limit the quota grants less, and it grants nothing of one that is used up.
    if (JSON.stringify(limits) !== JSON.stringify(this.#limits)) this.#balance.keep(NOTHING);
    this.#limits = limits;
    this.#limited = limitedBy(limits);
  }

  #reservation(open: Open, waitUntil: WaitUntil): Reservation {
    const timer = setInterval(() => {
      open.seenAt = Date.now();
      if (!this.#isAsking && this.#balance.age >= RENEW_AFTER_MS / 2) waitUntil(this.#report());
    }, RENEW_AFTER_MS);
    const end = (usage: readonly UsageEntry[], requests = 0) => {
      if (open.seenAt === ENDED) return;
      open.seenAt = ENDED;
      clearInterval(timer);
      const used = usedIn(usage);
      this.#balance.end(open, used, requests);
      this.#reporter.note({ ...used, requests: -requests }, usage);
      this.#queue.forgetRefusal();
      this.#handOut();
      this.#reportSoon(waitUntil);
    };
    return {
      status: this.#shownStatus(),
      raise: (tokens, cost) => {
        const { taken } = open;
        const more = { ...NOTHING, tokens: Math.max(0, tokens - taken.tokens), cost: Math.max(0, cost - taken.cost) };
        return more.tokens === 0 && more.cost === 0 ? undefined : this.#obtain(more, open, waitUntil);
      },
      end: (usage) => end(usage),
      cancel: () => end([], this.#limited.requests),
    };
  }

  /** Takes an amount from the free ones; else gives a promise of it. */
  #obtain(all: Amounts, open: Open, waitUntil: WaitUntil): Promise<void> | undefined {
    const isNew = all.requests + all.reads + all.stored_bytes > 0;
    const wanted: Wanted = { need: limitedIn(all, this.#limited), open, isNew };
    this.#balance.expire();
    if (this.#queue.isEmpty && this.#take(wanted)) return undefined;
    const obstacle = this.#queue.refusalOf(wanted.need);
    if (obstacle) throw this.#refused(obstacle);
    const taken = this.#queue.wait(wanted);
    // The question outlives its request, because others wait for its answer.
    if (!this.#isAsking) waitUntil(this.#ask());
    return taken;
  }

  /** Takes an amount, if it is free: from now on its request holds it, even before the request knows it. */
  #take({ need, open, isNew }: Wanted): boolean {
    if (!this.#balance.covers(need)) return false;
    this.#balance.take(need, open);
    this.#reporter.note({ requests: need.requests, reads: need.reads });
    if (isNew) this.#forecast.note(need);
    return true;
  }

  /** Serves the waiting requests in their order, as long as there is enough. */
  #handOut(): void {
    this.#queue.handOut((wanted) => this.#take(wanted));
  }

  get #isAsking(): boolean {
    return this.#askingSince !== undefined && Math.abs(Date.now() - this.#askingSince) < ANSWER_WITHIN_MS;
  }

  /** Asks until no request waits. Never rejects. */
  async #ask(): Promise<void> {
    await this.#asking(async (isAsker) => {
      let looks = 0;
      for (let first = this.#queue.first; first && isAsker(); first = this.#queue.first) {
        this.#balance.forgetDebt();
        const { obstacle } = await this.#exchange({
          least: this.#balance.lacking(first.need),
          needed: this.#balance.lacking(this.#queue.need),
          soon: this.#forecast.advance(this.#limited),
        });
        this.#handOut();
        const isStored = obstacle !== undefined && isStoredLimit(obstacle.kind);
        if (isStored && this.#balance.awaitsHomes && looks < MAX_LOOKS) {
          // The only obstacle may be holds of ended requests, which are reported in a moment.
          looks += 1;
          await new Promise((resolve) => setTimeout(resolve, LOOK_AGAIN_MS));
          continue;
        }
        looks = 0;
        if (obstacle && this.#queue.first === first) this.#queue.refuse(obstacle, (each) => this.#refused(each));
      }
    });
  }

  /** Runs a question to the quota, one at a time. A failure refuses all waiting requests. Never rejects. */
  async #asking(work: (isAsker: () => boolean) => Promise<void>): Promise<void> {
    const since = Date.now();
    this.#askingSince = since;
    const isAsker = () => this.#askingSince === since;
    try {
      await work(isAsker);
    } catch (error) {
      this.#queue.fail(limitsUnavailable(error));
    } finally {
      if (isAsker()) this.#askingSince = undefined;
    }
  }

  #refused(obstacle: Obstacle) {
    return limitExceeded(obstacle, this.#status, this.#who);
  }

  /** Reports usage, and takes the granted amounts. Rejects if the quota does not answer. */
  async #exchange(want: Want | undefined): Promise<Answer> {
    this.#balance.forgetDebt();
    this.#balance.forgetDead();
    const answer = await this.#reporter.exchange({ limits: this.#limits, held: this.#balance.held, want });
    this.#balance.promise(answer.obstacle ? undefined : answer.granted);
    this.#status = answer.status;
    return answer;
  }

  #reportSoon(waitUntil: WaitUntil): void {
    const report = async () => !this.#isAsking && (await this.#report()) && !this.#balance.awaitsHomes;
    this.#reporter.reportSoon(report, waitUntil);
  }

  /**
   * Reports usage, and keeps only the amounts that will be needed soon. Gives false if the quota has not received it.
   * Never rejects.
   */
  async #report(): Promise<boolean> {
    let isHeard = true;
    await this.#asking(async () => {
      this.#balance.keep(this.#forecast.advance(this.#limited));
      await this.#exchange(undefined).catch(() => {
        isHeard = false;
      });
      this.#handOut();
    });
    if (!this.#queue.isEmpty) await this.#ask();
    return isHeard;
  }

  /** The quota's status, with the amounts that this isolate may still use. */
  #shownStatus(): Status {
    const { requests, tokens } = this.#status;
    const { free } = this.#balance;
    return {
      requests: requests && { ...requests, remaining: Math.min(requests.limit, requests.remaining + free.requests) },
      tokens: tokens && { ...tokens, remaining: Math.min(tokens.limit, tokens.remaining + free.tokens) },
    };
  }
}

/** The maximum wait of a request for an answer: the platform may have ended the request that asks. */
const ANSWER_WITHIN_MS = 10_000;

/** The time in which a refusal is repeated without asking again, unless an amount comes back before. */
const REFUSED_FOR_MS = 200;

/** An amount to ask a quota for, and its request. */
interface Wanted {
  need: Amounts;
  open: Open;
  /** False if a running request wants more. */
  isNew: boolean;
}

interface Waiter extends Wanted {
  resolve(): void;
  reject(error: unknown): void;
}

/** The requests that wait for a quota's answer, in their order, and its last refusals. */
export class Queue {
  #waiters: Waiter[] = [];
  #refusal: { obstacle: Obstacle; until: number } | undefined;

  get isEmpty(): boolean {
    return this.#waiters.length === 0;
  }

  get first(): Wanted | undefined {
    return this.#waiters[0];
  }

  /** The sum of all waiting needs. */
  get need(): Amounts {
    return this.#waiters.reduce((sum, { need }) => plus(sum, need), NOTHING);
  }

  /** Waits for its turn. Rejects with the 429 of a limit, and the 503 if no answer arrives in time. */
  wait(wanted: Wanted): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const waiter: Waiter = { ...wanted, resolve, reject };
    this.#waiters.push(waiter);
    const timer = setTimeout(() => {
      this.#waiters = this.#waiters.filter((each) => each !== waiter);
      reject(limitsUnavailable());
    }, ANSWER_WITHIN_MS);
    return promise.finally(() => clearTimeout(timer));
  }

  /** Admits waiting requests in their order, as long as `take` can serve the first. */
  handOut(take: (wanted: Wanted) => boolean): void {
    for (let first = this.#waiters[0]; first && take(first); first = this.#waiters[0]) {
      this.#waiters.shift();
      first.resolve();
    }
  }

  /** Refuses the first waiting request, and all with the same obstacle, with the error of `refused`. */
  refuse(obstacle: Obstacle, refused: (obstacle: Obstacle) => Error): void {
    const [first] = this.#waiters;
    if (!first) return;
    const kind = amountOf(obstacle.kind);
    const isRefused = ({ need }: Waiter) => need[kind] >= first.need[kind];
    const leaving = this.#waiters.filter(isRefused);
    this.#waiters = this.#waiters.filter((waiter) => !isRefused(waiter));
    // Every request needs one of these.
    if (kind === "requests" || kind === "reads" || kind === "slots") {
      this.#refusal = { obstacle, until: Date.now() + Math.min(obstacle.retryMs ?? REFUSED_FOR_MS, REFUSED_FOR_MS) };
    }
    for (const { reject, need } of leaving) reject(refused({ ...obstacle, wanted: need[kind] }));
  }

  /** Refuses all waiting requests, because the quota does not answer. */
  fail(error: Error): void {
    for (const { reject } of this.#waiters.splice(0)) reject(error);
  }

  /** The obstacle that a need met a moment ago. */
  refusalOf(need: Amounts): Obstacle | undefined {
    const { obstacle, until = 0 } = this.#refusal ?? {};
    const left = until - Date.now();
    return obstacle && need[amountOf(obstacle.kind)] > 0 && left > 0 && left <= REFUSED_FOR_MS ? obstacle : undefined;
  }

  /** An amount has come back: refused needs may fit now. */
  forgetRefusal(): void {
    this.#refusal = undefined;
  }
}

/** The amount that an obstacle is about. */
function amountOf(kind: Obstacle["kind"]): keyof Amounts {
  if (kind === "budget_tokens") return "tokens";
  return kind === "budget_usd" ? "cost" : kind;
}
