import { type Answer, amountOf, type Obstacle, type Report, type Status, type Want } from "./ledger.ts";
import {
  type Amounts,
  type CountedLimits,
  combined,
  hasAny,
  KINDS,
  limitedBy,
  minus,
  NOTHING,
  NOTHING_STORED,
  plus,
  STORED_LIMITS,
} from "./limits.ts";
import { DONE_WITHIN_MS, OneAtATime } from "./one-at-a-time.ts";
import { RecentNeeds } from "./recent-needs.ts";
import { ReportTimer, type WaitUntil } from "./report-timer.ts";
import { type RequestOutcome, type UsageEntry, type UsageKind, UsageSums, usedIn } from "./usage.ts";

/** The ledger of a tenant, in this process or elsewhere. */
export interface QuotaStub {
  exchange(report: Report, usage: readonly UsageEntry[]): Promise<Answer>;
}

/** The functions of its process that an allowance needs. */
export interface AllowanceSetting {
  quota: QuotaStub;
  /** The storage reports of this process. `latest` names the newest one, `isTold` says whether the quota has all up to one. */
  stored: { latest(): number; isTold(latest: number): boolean };
  /** The error of a request that a limit does not admit. */
  refused(obstacle: Obstacle, status: Status): Error;
  /** The error of requests whose limits cannot be checked, because of `cause` or because the quota does not answer. */
  unavailable(cause?: unknown): Error;
  /** The process ends soon: nothing may wait to be reported. */
  isEnding(): boolean;
}

/** A request's part of an allowance, until it ends. */
export interface Reservation {
  readonly status: Status;
  /** Takes more tokens, if the prompt turns out longer. Throws, or rejects, as `take` does if there are not enough. */
  raise(tokens: number, cost: number): Promise<void> | undefined;
  /** Gives the unused amounts back. Does nothing the second time. */
  end(usage: readonly UsageEntry[]): void;
  /** Ends it without counting the request. */
  cancel(): void;
}

/** A request in progress, and its amounts. */
interface Open {
  taken: Amounts;
  /** The last sign of life, Unix milliseconds; undefined once it has ended. */
  seenAt: number | undefined;
}

/** An amount that a request wants. `isNew`: it begins, and so may be followed by others that need as much. */
interface Wanted {
  need: Amounts;
  open: Open;
  isNew: boolean;
}

interface Waiter extends Wanted {
  resolve(): void;
  reject(error: unknown): void;
}

/** The quota frees the hold of an isolate that is silent for this long. */
const LIFETIME_MS = 60_000;

/** The interval at which an isolate reports for a longer request. */
const RENEW_AFTER_MS = 20_000;

/** How long a refusal is repeated without asking again, unless an amount comes back before. */
const REFUSED_FOR_MS = 200;

/** The number of further questions to the quota, and their intervals, while what ended requests have stored is not reported. */
const MAX_LOOKS = 10;
const LOOK_AGAIN_MS = 10;

/** A random id of the isolate, which has no name of its own. Made by the first request: no isolate may draw one before. */
let holder: string | undefined;

/**
 * The amounts of a key's limits that its quota has leased to this isolate. A request takes its need from them, and gives
 * the unused part back. If there is too little, the allowance asks the quota; further requests wait for that answer and
 * are asked for together, so that an isolate has one call in progress for a key, however many requests arrive.
 */
export class Allowance {
  readonly #account: Pick<Report, "key" | "endUser">;
  readonly #setting: AllowanceSetting;
  #limits: CountedLimits;
  #limited: Amounts;
  /** Leased, and not taken. Negative where requests have used more than they had taken. */
  #free: Amounts = { ...NOTHING };
  /** When the quota has last answered, Unix milliseconds. */
  #heardAt = 0;
  readonly #open = new Set<Open>();
  /** The storage that ended requests had reserved, until the quota has the reports up to `latest`. */
  #settled: { taken: Amounts; latest: number }[] = [];
  /** Used, and not reported yet. */
  #used: Amounts = { ...NOTHING };
  readonly #usage = new UsageSums();
  #reports = 0;
  readonly #timer = new ReportTimer(
    async () => !this.#asking.isUnderWay && (await this.#ask()) && this.#settled.length === 0,
  );
  #waiting: Waiter[] = [];
  #refusal: { obstacle: Obstacle; until: number } | undefined;
  /** The question to the quota, with its report. */
  readonly #asking = new OneAtATime<{ used: Amounts; usage: readonly UsageEntry[] }>((told) => {
    this.#used = plus(this.#used, told.used);
    for (const entry of told.usage) this.#usage.add(entry);
  });
  readonly #recent = new RecentNeeds();
  #status: Status = {};

  constructor(account: Pick<Report, "key" | "endUser">, limits: CountedLimits, setting: AllowanceSetting) {
    this.#account = account;
    this.#setting = setting;
    this.#limits = limits;
    this.#limited = limitedBy(limits);
  }

  /** Nothing is taken, being asked, or unreported: the allowance can be dropped. */
  get isIdle(): boolean {
    return (
      this.#open.size + this.#settled.length + this.#waiting.length === 0 && this.#asking.isIdle && !this.#isUnreported
    );
  }

  get #isUnreported(): boolean {
    return !this.#usage.isEmpty || KINDS.some((kind) => this.#used[kind] !== 0);
  }

  /**
   * Takes a request's need of each limited kind: at once, or when the quota has answered. `limits` are the present ones.
   * Throws, or rejects with, the errors of its setting: of a limit, and of a quota that does not answer.
   */
  take(need: Partial<Amounts>, limits: CountedLimits, waitUntil: WaitUntil): Reservation | Promise<Reservation> {
    this.#learn(limits);
    const open: Open = { taken: NOTHING, seenAt: Date.now() };
    const asked = this.#obtain({ ...NOTHING, ...need }, open, waitUntil);
    return asked ? asked.then(() => this.#reservation(open, waitUntil)) : this.#reservation(open, waitUntil);
  }

  /** Counts usage that has taken nothing. `isBrief`: waiting costs, so that the report comes at once. */
  count(usage: readonly UsageEntry[], waitUntil: WaitUntil, isBrief: boolean): void {
    for (const entry of usage) this.#usage.add(entry);
    this.#reportSoon(waitUntil, isBrief);
  }

  /** Counts the end of a request to a model, beside what it has used. `isBrief`: as `count` has it. */
  countOutcome(kind: UsageKind, model: string, outcome: RequestOutcome, waitUntil: WaitUntil, isBrief: boolean): void {
    this.#usage.addOutcome(kind, model, outcome);
    this.#reportSoon(waitUntil, isBrief);
  }

  /** Reports at once what is not reported. Resolves when that was tried; never rejects. */
  async report(): Promise<void> {
    // A question under way has what was used before it, and not what came since.
    await this.#asking.untilOver();
    if (!this.#asking.isIdle || this.#isUnreported) await this.#ask();
  }

  #learn(limits: CountedLimits): void {
    if (limits === this.#limits) return;
    // Under a lower limit the quota grants less, and it grants nothing of one that is used up.
    if (JSON.stringify(limits) !== JSON.stringify(this.#limits)) this.#keep(NOTHING);
    this.#limits = limits;
    this.#limited = limitedBy(limits);
  }

  #reservation(open: Open, waitUntil: WaitUntil): Reservation {
    const timer = setInterval(() => {
      open.seenAt = Date.now();
      if (!this.#asking.isUnderWay && Date.now() - this.#heardAt >= RENEW_AFTER_MS / 2) waitUntil(this.#ask());
    }, RENEW_AFTER_MS);
    const end = (usage: readonly UsageEntry[], requests = 0) => {
      if (open.seenAt === undefined) return;
      clearInterval(timer);
      this.#end(open, usage, requests);
      this.#reportSoon(waitUntil);
    };
    return {
      status: this.#shownStatus(),
      raise: (tokens, cost) => {
        const more = combined({ ...NOTHING, tokens, cost }, open.taken, (all, taken) => Math.max(0, all - taken));
        return hasAny(more) ? this.#obtain(more, open, waitUntil) : undefined;
      },
      end: (usage) => end(usage),
      cancel: () => end([], this.#limited.requests),
    };
  }

  /** Ends a request with its usage. `requests`: the number of counted requests that it gives back. */
  #end(open: Open, usage: readonly UsageEntry[], requests: number): void {
    open.seenAt = undefined;
    const used = { ...NOTHING, ...usedIn(usage), requests: -requests };
    if (this.#open.delete(open)) {
      const back = { ...open.taken, ...NOTHING_STORED };
      this.#free = plus(this.#free, back);
      const taken = minus(open.taken, back);
      if (hasAny(taken)) this.#settled.push({ taken, latest: this.#setting.stored.latest() });
    }
    this.#free = minus(this.#free, used);
    this.#used = plus(this.#used, used);
    for (const entry of usage) this.#usage.add(entry);
    this.#refusal = undefined;
    this.#handOut();
  }

  /** Takes an amount from the free ones; else gives a promise of it. */
  #obtain(all: Amounts, open: Open, waitUntil: WaitUntil): Promise<void> | undefined {
    const isNew = all.requests + all.reads + all.stored_bytes > 0;
    const wanted = { need: combined(all, this.#limited, (amount, isLimited) => amount * isLimited), open, isNew };
    // The quota may give free amounts to others before this isolate reports.
    if (Math.abs(Date.now() - this.#heardAt) > LIFETIME_MS - RENEW_AFTER_MS) this.#keep(NOTHING);
    if (this.#waiting.length === 0 && this.#hasTaken(wanted)) return undefined;
    const { obstacle, until = 0 } = this.#refusal ?? {};
    const left = until - Date.now();
    if (obstacle && wanted.need[amountOf(obstacle)] > 0 && left > 0 && left <= REFUSED_FOR_MS)
      throw this.#setting.refused(obstacle, this.#status);
    const taken = this.#wait(wanted);
    // The question outlives its request, because others wait for its answer.
    if (!this.#asking.isUnderWay) waitUntil(this.#ask());
    return taken;
  }

  /** Waits for its turn. Rejects with the error of a limit, or of a quota that does not answer in time. */
  #wait(wanted: Wanted): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const waiter: Waiter = { ...wanted, resolve, reject };
    this.#waiting.push(waiter);
    const timer = setTimeout(() => {
      this.#waiting = this.#waiting.filter((each) => each !== waiter);
      reject(this.#setting.unavailable());
    }, DONE_WITHIN_MS);
    return promise.finally(() => clearTimeout(timer));
  }

  /** Takes an amount, if it is free: from now on its request holds it, even before the request knows it. */
  #hasTaken({ need, open, isNew }: Wanted): boolean {
    if (KINDS.some((kind) => need[kind] > Math.max(0, this.#free[kind]))) return false;
    const counts = { ...NOTHING, requests: need.requests, reads: need.reads };
    this.#free = minus(this.#free, need);
    this.#used = plus(this.#used, counts);
    // Its request may have ended since.
    if (open.seenAt === undefined) this.#free = plus(this.#free, minus(need, counts));
    else {
      open.taken = plus(open.taken, minus(need, counts));
      this.#open.add(open);
    }
    if (isNew) this.#recent.add(need);
    return true;
  }

  /** Serves the waiting requests in their order, as long as there is enough for the first. */
  #handOut(): void {
    for (let first = this.#waiting[0]; first && this.#hasTaken(first); first = this.#waiting[0]) {
      this.#waiting.shift();
      first.resolve();
    }
  }

  /** Refuses the first waiting request, and all that need as much of the same kind. */
  #refuse(obstacle: Obstacle): void {
    const kind = amountOf(obstacle);
    const least = this.#waiting[0]?.need[kind] ?? 0;
    const { refused = [], others = [] } = Object.groupBy(this.#waiting, ({ need }) =>
      need[kind] >= least ? "refused" : "others",
    );
    this.#waiting = others;
    // Every request needs one of these.
    if (kind === "requests" || kind === "reads" || kind === "slots") {
      this.#refusal = { obstacle, until: Date.now() + Math.min(obstacle.retryMs ?? REFUSED_FOR_MS, REFUSED_FOR_MS) };
    }
    for (const { reject, need } of refused) {
      reject(this.#setting.refused({ ...obstacle, wanted: need[kind] }, this.#status));
    }
  }

  /**
   * Asks the quota until no request waits. If none does, reports usage, and keeps only what will be needed soon. False if
   * the quota has not answered; then all waiting requests are refused. Never rejects.
   */
  #ask(): Promise<boolean> {
    return this.#asking.run((isPresent) => this.#askWhile(isPresent));
  }

  async #askWhile(isPresent: () => boolean): Promise<boolean> {
    try {
      if (this.#waiting.length === 0) {
        this.#keep(this.#recent.soon());
        await this.#exchange(undefined);
        this.#handOut();
      }
      for (let looks = 0; this.#waiting.length > 0 && isPresent(); ) {
        const [first] = this.#waiting;
        const { obstacle } = await this.#exchange(first);
        this.#handOut();
        const isStored = STORED_LIMITS.some((kind) => kind === obstacle?.kind);
        if (isStored && this.#settled.length > 0 && looks < MAX_LOOKS) {
          // The only obstacle may be holds of ended requests, which are reported in a moment.
          looks += 1;
          await new Promise((resolve) => setTimeout(resolve, LOOK_AGAIN_MS));
          continue;
        }
        looks = 0;
        if (obstacle && this.#waiting[0] === first) this.#refuse(obstacle);
      }
      return true;
    } catch (error) {
      const unavailable = this.#setting.unavailable(error);
      for (const { reject } of this.#waiting.splice(0)) reject(unavailable);
      return false;
    }
  }

  /** Reports usage, and takes what the quota grants for `first` and the requests behind it. Rejects if it does not answer. */
  async #exchange(first: Wanted | undefined): Promise<Answer> {
    const now = Date.now();
    // The report counts what was used beyond the lease.
    this.#free = combined(this.#free, NOTHING, Math.max);
    this.#settled = this.#settled.filter(({ latest }) => !this.#setting.stored.isTold(latest));
    // The platform has ended these.
    for (const open of this.#open) if (now - (open.seenAt ?? 0) > LIFETIME_MS) this.#open.delete(open);
    const held = [...this.#open, ...this.#settled].reduce((sum, { taken }) => plus(sum, taken), this.#free);
    const lacking = (need: Amounts) => combined(minus(need, this.#free), NOTHING, Math.max);
    const want: Want | undefined = first && {
      least: lacking(first.need),
      needed: lacking(this.#waiting.reduce((sum, { need }) => plus(sum, need), NOTHING)),
      soon: this.#recent.soon(),
    };
    const [used, usage, due] = [this.#used, this.#usage.take(), this.#timer.take()];
    this.#used = { ...NOTHING };
    this.#reports += 1;
    holder ??= crypto.randomUUID();
    const report = { ...this.#account, limits: this.#limits, holder, report: this.#reports, held, used, want };
    const exchange = () => this.#setting.quota.exchange({ ...report, lifetimeMs: LIFETIME_MS }, usage);
    try {
      const answer = await this.#asking.tell({ used, usage }, exchange);
      this.#heardAt = Date.now();
      if (!answer.obstacle) this.#free = plus(this.#free, answer.granted);
      this.#status = answer.status;
      return answer;
    } catch (error) {
      this.#timer.putBack(due);
      throw error;
    }
  }

  /** Reports soon, unless a question comes before; again until the quota has heard it, and homes what was stored. */
  #reportSoon(waitUntil: WaitUntil, isBrief = false): void {
    if (!this.#isUnreported && this.#settled.length === 0 && !hasAny(this.#free)) return;
    this.#timer.start(waitUntil, isBrief || this.#setting.isEnding() ? 0 : undefined);
  }

  /** Gives free amounts back to the quota, except this much. */
  #keep(most: Amounts): void {
    this.#free = combined(this.#free, most, Math.min);
  }

  /** The quota's status, with the amounts that this isolate may still use. */
  #shownStatus(): Status {
    const { requests, tokens } = this.#status;
    const shown = (kind: "requests" | "tokens", of: typeof requests) =>
      of && { ...of, remaining: Math.min(of.limit, of.remaining + this.#free[kind]) };
    return { requests: shown("requests", requests), tokens: shown("tokens", tokens) };
  }
}
