import type { Used } from "./amounts.ts";
import { LIFETIME_MS } from "./balance.ts";
import { type Answer, MAX_LIFETIME_MS, type Report } from "./limits-ledger.ts";
import { addUsage, type UsageEntry, usageKey } from "./usage.ts";

/** The ledger of a tenant, in this process or elsewhere. */
export interface QuotaStub {
  exchange(report: Report, usage: readonly UsageEntry[]): Promise<Answer>;
}

/** The delay of a report after the first ended request. */
export const REPORT_AFTER_MS = 1_000;

/** The number of attempts of a report, if the quota does not answer. The next request that asks reports, too. */
const MAX_REPORTS = 10;

const NO_USE: Used = { requests: 0, reads: 0, tokens: 0, cost: 0 };

/** A random id of the isolate, which has no name of its own. */
const holder = () => {
  name ??= crypto.randomUUID();
  return name;
};
let name: string | undefined;

/** Reports the usage of this isolate to a key's quota. */
export class Reporter {
  readonly #account: Pick<Report, "key" | "endUser">;
  readonly #stub: QuotaStub;
  /** Used, and not reported yet. */
  #used: Used = NO_USE;
  #usage = new Map<string, UsageEntry>();
  #reports = 0;
  /** The time of the next report, Unix milliseconds; undefined if none is due. */
  #due: number | undefined;

  constructor(account: Pick<Report, "key" | "endUser">, stub: QuotaStub) {
    this.#account = account;
    this.#stub = stub;
  }

  /** Nothing is to be told. */
  get isIdle(): boolean {
    return this.#used.requests === 0 && this.#used.reads === 0 && this.#usage.size === 0;
  }

  note(used: Partial<Used>, usage: readonly UsageEntry[] = []): void {
    this.#used = addUsed(this.#used, { ...NO_USE, ...used });
    for (const entry of usage) this.#noteUsage(entry);
  }

  #noteUsage(entry: UsageEntry): void {
    const key = usageKey(entry);
    const before = this.#usage.get(key);
    this.#usage.set(key, before ? addUsage(before, entry) : entry);
  }

  /** Reports usage, and asks for the wants. Rejects if the quota does not answer. */
  async exchange(what: Pick<Report, "limits" | "held" | "want">): Promise<Answer> {
    const [used, usage, due] = [this.#used, [...this.#usage.values()], this.#due];
    this.#used = NO_USE;
    this.#usage = new Map();
    this.#due = undefined;
    this.#reports += 1;
    const lifetimeMs = Math.min(LIFETIME_MS, MAX_LIFETIME_MS);
    const report: Report = { ...what, ...this.#account, holder: holder(), report: this.#reports, used, lifetimeMs };
    try {
      return await this.#stub.exchange(report, usage);
    } catch (error) {
      // The next report repeats it. If this one has arrived after all, it counts twice, rather than not at all.
      this.#used = addUsed(this.#used, used);
      this.#due ??= due;
      for (const entry of usage) this.#noteUsage(entry);
      throw error;
    }
  }

  /** Calls `report` soon, unless a question comes before; again if it gives false. It never rejects. */
  reportSoon(report: () => Promise<boolean>, waitUntil: (promise: Promise<unknown>) => void): void {
    // A timer whose request was ended by the platform never fires.
    if (this.#due !== undefined && Date.now() < this.#due + REPORT_AFTER_MS) return;
    waitUntil(this.#report(report));
  }

  async #report(report: () => Promise<boolean>): Promise<void> {
    for (let left = MAX_REPORTS; left > 0; left -= 1) {
      const due = Date.now() + REPORT_AFTER_MS;
      this.#due = due;
      await new Promise((resolve) => setTimeout(resolve, REPORT_AFTER_MS));
      // A question has reported it meanwhile, or another report is in progress.
      if (this.#due !== due) return;
      if (await report()) return;
      // A later use of the quota has begun a report of its own, with these figures.
      if (this.#due !== undefined && this.#due !== due) return;
    }
  }
}

function addUsed(a: Used, b: Used): Used {
  return {
    requests: a.requests + b.requests,
    reads: a.reads + b.reads,
    tokens: a.tokens + b.tokens,
    cost: a.cost + b.cost,
  };
}
