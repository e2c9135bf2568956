import {
  Allowance,
  type CountedLimits,
  Ledger,
  type Limits,
  NO_LIMITS,
  NOTHING,
  NOTHING_STORED,
  type Obstacle,
  type QuotaStub,
  type Report,
  type Reservation,
  type UsageEntry,
} from "@responses-edge/usage-limits";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

/** Allowances of several isolates at one quota, which is its ledger and a count of its calls. */

function limitsOf(key: Limits): CountedLimits {
  return { key, tenant: null };
}

/** A refusal: by a limit, or because the quota does not answer. */
class Refused extends Error {
  readonly obstacle: Obstacle | undefined;

  constructor(obstacle?: Obstacle) {
    super(obstacle?.kind ?? "unavailable");
    this.obstacle = obstacle;
  }
}

class FakeQuota {
  /** The reports of homes. */
  stored = NOTHING_STORED;
  readonly ledger = new Ledger([], () => this.stored);
  readonly reports: Report[] = [];
  /** Calls, including those that fail. */
  calls = 0;
  readonly usage: UsageEntry[] = [];
  /** Homes have told it what they store. */
  hasHeardHomes = true;
  /** The error of all calls, if it is set. */
  fault: unknown;
  /** Answers wait for this. */
  gate: Promise<void> = Promise.resolve();

  /** The processes of its isolates end. */
  isEnding = false;

  /** Another isolate's view of it. */
  isolate(limits: CountedLimits): Allowance {
    const holder = crypto.randomUUID();
    const quota: QuotaStub = {
      exchange: async (report, usage) => {
        this.calls += 1;
        await this.gate;
        if (this.fault) throw this.fault;
        // All isolates of a test are one process.
        this.reports.push({ ...report, holder });
        this.usage.push(...usage);
        return this.ledger.take({ ...report, holder }, Date.now());
      },
    };
    const stored = { latest: () => 1, isTold: () => this.hasHeardHomes };
    const refusals = { refused: (obstacle: Obstacle) => new Refused(obstacle), unavailable: () => new Refused() };
    return new Allowance({ key: "k" }, limits, { quota, stored, ...refusals, isEnding: () => this.isEnding });
  }
}

const pending: Promise<unknown>[] = [];
const waitUntil = (promise: Promise<unknown>) => void pending.push(promise);

beforeEach(() => {
  vi.useFakeTimers({
    now: Date.UTC(2026, 10, 22, 12),
    toFake: ["Date", "setTimeout", "clearTimeout", "setInterval", "clearInterval"],
  });
});
afterEach(async () => {
  await vi.advanceTimersByTimeAsync(120_000);
  await Promise.all(pending.splice(0));
  vi.useRealTimers();
});

const usage = (input: number, output: number): UsageEntry => ({
  kind: "completions",
  model: "m",
  requests: 1,
  input,
  cached: 0,
  output,
  cost: 0,
});

async function take(allowance: Allowance, limits: CountedLimits, tokens = 0): Promise<Reservation | Refused> {
  try {
    return await allowance.take({ tokens, cost: 0, requests: 1, slots: 1 }, limits, waitUntil);
  } catch (error) {
    if (error instanceof Refused) return error;
    throw error;
  }
}

const isRefused = (taken: Reservation | Refused): taken is Refused => taken instanceof Refused;
const isTaken = (taken: Reservation | Refused): taken is Reservation => !isRefused(taken);

describe("an allowance without limits", () => {
  const count = (allowance: Allowance, isBrief = false) => allowance.count([usage(10, 5)], waitUntil, isBrief);

  it("adds usage up, and reports it once a second", async () => {
    const quota = new FakeQuota();
    const allowance = quota.isolate(NO_LIMITS);
    for (let request = 0; request < 100; request += 1) {
      count(allowance);
      await vi.advanceTimersByTimeAsync(50);
    }
    await vi.advanceTimersByTimeAsync(1_000);
    expect(quota.calls).toBeGreaterThanOrEqual(4);
    expect(quota.calls).toBeLessThanOrEqual(6);
    expect(quota.usage.reduce((sum, { requests }) => sum + requests, 0)).toBe(100);
    expect(allowance.isIdle).toBe(true);
  });

  it("reports again what the quota has not heard, also after an hour", async () => {
    const quota = new FakeQuota();
    const allowance = quota.isolate(NO_LIMITS);
    quota.fault = new Error("away");
    count(allowance);
    await vi.advanceTimersByTimeAsync(3_600_000);
    expect([quota.calls, quota.usage]).toEqual([10, []]);
    expect(allowance.isIdle).toBe(false);
    quota.fault = undefined;
    count(allowance);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(quota.usage).toMatchObject([{ requests: 2, input: 20, output: 10 }]);
  });

  it("reports at once where waiting costs, when the process ends, and when it is told to", async () => {
    const quota = new FakeQuota();
    const allowance = quota.isolate(NO_LIMITS);
    count(allowance);
    count(allowance, true);
    await vi.advanceTimersByTimeAsync(0);
    expect(quota.usage).toMatchObject([{ requests: 2 }]);
    count(allowance);
    await allowance.report();
    expect(quota.usage.length).toBe(2);
    quota.isEnding = true;
    count(allowance);
    await vi.advanceTimersByTimeAsync(0);
    expect(quota.usage.length).toBe(3);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(quota.calls).toBe(3);
  });

  it("reports, when it is told to, after a question under way, and if that question's request was ended", async () => {
    const quota = new FakeQuota();
    const allowance = quota.isolate(NO_LIMITS);
    const gate = Promise.withResolvers<void>();
    quota.gate = gate.promise;
    count(allowance, true);
    await vi.advanceTimersByTimeAsync(0);
    count(allowance);
    const told = allowance.report();
    quota.gate = new Promise(() => {});
    await vi.advanceTimersByTimeAsync(1_000);
    expect(quota.calls).toBe(1);
    gate.resolve();
    await vi.advanceTimersByTimeAsync(1_000);
    expect(quota.usage.length).toBe(1);
    // The question that has no answer.
    expect(quota.calls).toBe(2);
    count(allowance);
    quota.gate = Promise.resolve();
    const again = allowance.report();
    await vi.advanceTimersByTimeAsync(10_000);
    await again;
    // The question without an answer is asked again.
    expect(quota.usage).toMatchObject([{ requests: 1 }, { requests: 2 }]);
    void told;
  });
});

describe("an allowance", () => {
  it("reserves a request's storage until its home has reported it, and names a short time to retry", async () => {
    const quota = new FakeQuota();
    const limits = limitsOf({ stored_responses: 1 });
    const allowance = quota.isolate(limits);
    const store = () => allowance.take({ stored_responses: 1, requests: 1 }, limits, waitUntil);
    const first = await store();
    quota.hasHeardHomes = false;
    first.end([]);
    const refused = expect(store()).rejects.toMatchObject({
      obstacle: { kind: "stored_responses", limit: 1, used: 0, wanted: 1, retryMs: 1_000 },
    });
    await vi.advanceTimersByTimeAsync(500);
    await refused;
    // Another one waits for the moment in which it is told.
    const next = store();
    await vi.advanceTimersByTimeAsync(50);
    quota.hasHeardHomes = true;
    await vi.advanceTimersByTimeAsync(50);
    (await next).end([]);
  });

  it("under a lowered limit has nothing in advance, because more is already stored", async () => {
    const quota = new FakeQuota();
    const allowance = quota.isolate(limitsOf({ stored_responses: 1_000 }));
    const store = async (limit: number) =>
      allowance.take({ stored_responses: 1, requests: 1 }, limitsOf({ stored_responses: limit }), waitUntil);
    for (const each of await Promise.all(Array.from({ length: 4 }, () => store(1_000)))) each.end([]);
    // A frequent caller has some in advance. Limits that are looked up again, and the same, change nothing.
    (await store(1_000)).end([]);
    const asked = quota.reports.length;
    (await store(1_000)).end([]);
    expect(quota.reports).toHaveLength(asked);
    quota.stored = { stored_bytes: 0, stored_responses: 2, stored_conversations: 0 };
    await expect(store(2)).rejects.toMatchObject({ obstacle: { kind: "stored_responses" } });
  });

  it("lets 200 requests of one isolate in by a handful of calls, and no more of them than the limit", async () => {
    const quota = new FakeQuota();
    const limits = limitsOf({ requests_per_minute: 100 });
    const allowance = quota.isolate(limits);
    const taken = await Promise.all(Array.from({ length: 200 }, () => take(allowance, limits)));
    expect(taken.filter(isTaken)).toHaveLength(100);
    expect(quota.reports.length).toBeLessThanOrEqual(4);
    for (const each of taken.filter(isTaken)) each.end([]);
  });

  it("of each of two isolates: of 200 requests at once no more than the limit are let in, and all of the limit is", async () => {
    const quota = new FakeQuota();
    const limits = limitsOf({ requests_per_minute: 100 });
    const allowances = [quota.isolate(limits), quota.isolate(limits)];
    const taken = await Promise.all(
      Array.from({ length: 200 }, (_, at) => take(allowances[at % 2] as Allowance, limits)),
    );
    expect(taken.filter(isTaken)).toHaveLength(100);
    for (const each of taken.filter(isTaken)) each.end([]);
  });

  /** Sends the given requests per second from two isolates for a minute and a half. Returns the admitted ones with their times. */
  async function ninetySeconds(quota: FakeQuota, limits: CountedLimits, perSecond: number): Promise<number[]> {
    const allowances = [quota.isolate(limits), quota.isolate(limits)];
    const passed: number[] = [];
    for (let at = 0; at < 90_000; at += 100) {
      for (let index = 0; index < perSecond / 10; index += 1) {
        const taken = await take(allowances[index % 2] as Allowance, limits);
        if (isRefused(taken)) continue;
        passed.push(Date.now());
        taken.end([]);
      }
      await vi.advanceTimersByTimeAsync(100);
    }
    return passed;
  }

  it("of a hot key costs a few calls a second, not one a request", async () => {
    const quota = new FakeQuota();
    const passed = await ninetySeconds(quota, limitsOf({ requests_per_minute: 6_000 }), 60);
    expect(passed).toHaveLength(90 * 60);
    // Two and a half of each isolate in a second.
    expect(quota.reports.length).toBeLessThanOrEqual(90 * 2 * 2.5);
  });

  it("that more is asked of than its limit lets in no more in any minute, and not much less", async () => {
    const quota = new FakeQuota();
    const passed = await ninetySeconds(quota, limitsOf({ requests_per_minute: 1_200 }), 40);
    for (const from of passed) {
      expect(passed.filter((at) => at >= from && at < from + 60_000).length).toBeLessThanOrEqual(1_200);
    }
    expect(passed.filter((at) => at < (passed[0] ?? 0) + 60_000).length).toBeGreaterThanOrEqual(1_150);
  });

  it("of a cold key costs two calls a request: one that asks, and one that tells", async () => {
    const quota = new FakeQuota();
    const limits = limitsOf({ tokens_per_minute: 10_000 });
    const allowance = quota.isolate(limits);
    for (let turn = 0; turn < 5; turn += 1) {
      const taken = await take(allowance, limits, 1_000);
      if (isRefused(taken)) throw taken;
      taken.end([usage(100, 50)]);
      await vi.advanceTimersByTimeAsync(5_000);
    }
    expect(quota.reports).toHaveLength(10);
    expect(quota.usage).toEqual(Array.from({ length: 5 }, () => usage(100, 50)));
    // Nothing is held in advance.
    expect(quota.reports.at(-1)?.held).toEqual(NOTHING);
  });

  it("gives a request's unused rest to the next one without a call, and no more", async () => {
    const quota = new FakeQuota();
    const limits = limitsOf({ tokens_per_minute: 1_000 });
    const allowance = quota.isolate(limits);
    const first = await take(allowance, limits, 1_000);
    expect(isRefused(await take(allowance, limits, 900))).toBe(true);
    if (isTaken(first)) first.end([usage(100, 0)]);
    const second = await take(allowance, limits, 900);
    expect(isTaken(second)).toBe(true);
    expect(isRefused(await take(allowance, limits, 1))).toBe(true);
    if (isTaken(second)) second.end([usage(900, 0)]);
  });

  it("lets the one who waits in as soon as another one of the isolate has ended", async () => {
    const quota = new FakeQuota();
    const limits = limitsOf({ max_concurrent_requests: 1 });
    const allowance = quota.isolate(limits);
    const first = await take(allowance, limits);
    let open = () => {};
    quota.gate = new Promise((resolve) => {
      open = resolve;
    });
    const waiting = take(allowance, limits);
    if (isTaken(first)) first.end([]);
    const second = await waiting;
    expect(isTaken(second)).toBe(true);
    open();
    if (isTaken(second)) second.end([]);
  });

  it("reports during a long request, so that its amounts are not given to others", async () => {
    const quota = new FakeQuota();
    const limits = limitsOf({ max_concurrent_requests: 1 });
    const [here, there] = [quota.isolate(limits), quota.isolate(limits)];
    const long = await take(here, limits);
    await vi.advanceTimersByTimeAsync(600_000);
    expect(isRefused(await take(there, limits))).toBe(true);
    if (isTaken(long)) long.end([]);
    await vi.advanceTimersByTimeAsync(2_000);
    const next = await take(there, limits);
    expect(isTaken(next)).toBe(true);
    if (isTaken(next)) next.end([]);
  });

  it("admits no request when the quota does not answer: 503; and usage is reported when it answers again", async () => {
    const quota = new FakeQuota();
    const limits = limitsOf({ tokens_per_minute: 1_000 });
    const allowance = quota.isolate(limits);
    const first = await take(allowance, limits, 500);
    quota.fault = new Error("gone");
    expect(await take(allowance, limits, 600)).toEqual(new Refused());
    if (isTaken(first)) first.end([usage(700, 0)]);
    await vi.advanceTimersByTimeAsync(2_000);
    quota.fault = undefined;
    const refused = await take(allowance, limits, 400);
    expect(refused).toMatchObject({ obstacle: { kind: "tokens" } });
    expect(quota.usage).toEqual([usage(700, 0)]);
  });

  it("reports usage as soon as possible, also without further requests", async () => {
    const quota = new FakeQuota();
    const limits = limitsOf({ tokens_per_minute: 1_000 });
    const allowance = quota.isolate(limits);
    const first = await take(allowance, limits, 500);
    quota.fault = new Error("gone");
    if (isTaken(first)) first.end([usage(300, 0)]);
    await vi.advanceTimersByTimeAsync(5_500);
    quota.fault = undefined;
    await vi.advanceTimersByTimeAsync(1_500);
    expect(quota.usage).toEqual([usage(300, 0)]);
  });

  it("reports the usage during a slow answer of the quota", async () => {
    const quota = new FakeQuota();
    const limits = limitsOf({ tokens_per_minute: 1_000 });
    const allowance = quota.isolate(limits);
    const first = await take(allowance, limits, 500);
    let open = () => {};
    quota.gate = new Promise((resolve) => {
      open = resolve;
    });
    const second = take(allowance, limits, 400);
    if (isTaken(first)) first.end([usage(50, 0)]);
    await vi.advanceTimersByTimeAsync(3_000);
    open();
    const taken = await second;
    await vi.advanceTimersByTimeAsync(2_500);
    expect(quota.usage).toEqual([usage(50, 0)]);
    if (isTaken(taken)) taken.end([]);
  });

  it("does not wait for a quota that never answers: 503", async () => {
    const quota = new FakeQuota();
    const limits = limitsOf({ requests_per_minute: 10 });
    const allowance = quota.isolate(limits);
    quota.gate = new Promise(() => {});
    const waiting = Promise.all([take(allowance, limits), take(allowance, limits)]);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(await waiting).toEqual([new Refused(), new Refused()]);
    quota.gate = Promise.resolve();
    const next = await take(allowance, limits);
    expect(isTaken(next)).toBe(true);
    if (isTaken(next)) next.end([]);
    // The question that was never answered is not waited for.
    pending.length = 0;
  });

  it("drops a request that never ended", async () => {
    const quota = new FakeQuota();
    const limits = limitsOf({ max_concurrent_requests: 1 });
    const allowance = quota.isolate(limits);
    const lost = await take(allowance, limits);
    expect(isTaken(lost)).toBe(true);
    // The platform has ended its request: its timers ring no more.
    vi.clearAllTimers();
    await vi.advanceTimersByTimeAsync(61_000);
    const next = await take(allowance, limits);
    expect(isTaken(next)).toBe(true);
    if (isTaken(next)) next.end([]);
    if (isTaken(lost)) lost.end([]);
    // Its place was given to another one, and is not given twice.
    const [one, two] = [await take(allowance, limits), await take(allowance, limits)];
    expect([one, two].filter(isTaken)).toHaveLength(1);
    for (const each of [one, two].filter(isTaken)) each.end([]);
  });

  it("asks nothing for a request without limited needs, and has nothing to report", async () => {
    const quota = new FakeQuota();
    const limits = limitsOf({ stored_bytes: 0 });
    const allowance = quota.isolate(limits);
    const taken = allowance.take({ requests: 1, slots: 1 }, limits, waitUntil);
    expect(taken).not.toBeInstanceOf(Promise);
    (await taken).end([]);
    await vi.advanceTimersByTimeAsync(5_000);
    expect([quota.calls, allowance.isIdle]).toEqual([0, true]);
  });

  it("owes what a request has used beyond its reservation", async () => {
    const quota = new FakeQuota();
    const limits = limitsOf({ tokens_per_minute: 100 });
    const allowance = quota.isolate(limits);
    const first = await take(allowance, limits, 10);
    if (isTaken(first)) first.end([usage(95, 0)]);
    expect(await take(allowance, limits, 10)).toMatchObject({ obstacle: { kind: "tokens", used: 95 } });
  });

  it("serves waiting requests in their order, and refuses those that need as much as a refused one", async () => {
    const quota = new FakeQuota();
    const limits = limitsOf({ tokens_per_minute: 60 });
    const allowance = quota.isolate(limits);
    const outcomes = await Promise.all([30, 50, 60, 20].map((tokens) => take(allowance, limits, tokens)));
    expect(outcomes.map(isTaken)).toEqual([true, false, false, true]);
    expect(outcomes.map((each) => isRefused(each) && each.obstacle?.wanted)).toEqual([false, 50, 60, false]);
    for (const each of outcomes.filter(isTaken)) each.end([]);
  });

  it("repeats a refusal for a moment without asking, until something comes back", async () => {
    const quota = new FakeQuota();
    const limits = limitsOf({ max_concurrent_requests: 1 });
    const [here, there] = [quota.isolate(limits), quota.isolate(limits)];
    const first = await take(here, limits);
    expect(isRefused(await take(there, limits))).toBe(true);
    const asked = quota.calls;
    for (let again = 0; again < 5; again += 1) expect(isRefused(await take(there, limits))).toBe(true);
    expect(quota.calls).toBe(asked);
    await vi.advanceTimersByTimeAsync(200);
    expect(isRefused(await take(there, limits))).toBe(true);
    expect(quota.calls).toBe(asked + 1);
    expect(isRefused(await take(here, limits))).toBe(true);
    if (isTaken(first)) first.end([]);
    expect(isTaken(await take(here, limits))).toBe(true);
  });

  it("does not use an amount in advance that the quota may have given to others", async () => {
    const quota = new FakeQuota();
    const limits = limitsOf({ requests_per_minute: 1_000 });
    const allowance = quota.isolate(limits);
    const burst = () => Promise.all(Array.from({ length: 20 }, () => take(allowance, limits)));
    for (const each of [...(await burst()), ...(await burst())].filter(isTaken)) each.end([]);
    const asked = quota.calls;
    expect(isTaken(await take(allowance, limits))).toBe(true);
    expect(quota.calls).toBe(asked);
    // The quota has not been heard for nearly the life of a hold.
    vi.clearAllTimers();
    pending.length = 0;
    await vi.advanceTimersByTimeAsync(50_000);
    expect(isTaken(await take(allowance, limits))).toBe(true);
    expect(quota.calls).toBe(asked + 1);
  });

  it("has at most the need of a thousand requests in advance", async () => {
    const quota = new FakeQuota();
    const limits = limitsOf({ requests_per_minute: 10_000_000 });
    const allowance = quota.isolate(limits);
    const taken = await Promise.all(Array.from({ length: 4_000 }, () => take(allowance, limits)));
    await take(allowance, limits);
    expect(quota.reports.at(-1)?.want?.soon.requests).toBe(1_000);
    for (const each of taken.filter(isTaken)) each.end([]);
  });

  it("makes one report for all that ends within a second, and tries it ten times", async () => {
    const quota = new FakeQuota();
    const limits = limitsOf({ tokens_per_minute: 1_000 });
    const allowance = quota.isolate(limits);
    const taken = await Promise.all([1, 2, 3].map((tokens) => take(allowance, limits, tokens)));
    const asked = quota.calls;
    quota.fault = new Error("gone");
    for (const each of taken.filter(isTaken)) each.end([usage(1, 0)]);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(quota.calls).toBe(asked + 10);
    quota.fault = undefined;
    // The next request reports it.
    await take(allowance, limits, 1_000);
    expect(quota.usage).toEqual([{ ...usage(3, 0), requests: 3 }]);
  });
});
