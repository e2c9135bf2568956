import {
  type Amounts,
  type Answer,
  Balance,
  ENDED,
  Forecast,
  LIFETIME_MS,
  limitedBy,
  limitsUnavailable,
  NOTHING,
  type Obstacle,
  type Open,
  Queue,
  type Report,
  Reporter,
  type StoredReports,
  type UsageEntry,
} from "@responses-edge/usage-limits";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

/** The four parts of an allowance, each by itself. */

beforeEach(() => {
  vi.useFakeTimers({
    now: Date.UTC(2026, 10, 22, 12),
    toFake: ["Date", "setTimeout", "clearTimeout", "setInterval", "clearInterval"],
  });
});
afterEach(() => {
  vi.useRealTimers();
});

/** Nothing is stored. */
const REPORTS: StoredReports = { latest: () => 0, isTold: () => true };

const amounts = (some: Partial<Amounts>): Amounts => ({ ...NOTHING, ...some });
const open = (): Open => ({ taken: NOTHING, seenAt: Date.now() });

describe("the balance", () => {
  it("has the promised amounts until a request takes them, and then the unused rest", () => {
    const balance = new Balance(REPORTS);
    balance.promise(amounts({ requests: 2, tokens: 100, slots: 1 }));
    const request = open();
    balance.take(amounts({ requests: 1, tokens: 80, slots: 1 }), request);
    expect(balance.free).toEqual(amounts({ requests: 1, tokens: 20 }));
    // A request of a minute is used; its tokens and its slot are held.
    expect(balance.held).toEqual(amounts({ requests: 1, tokens: 100, slots: 1 }));
    expect(balance.lacking(amounts({ tokens: 30 }))).toEqual(amounts({ tokens: 10 }));
    balance.end(request, { tokens: 50, cost: 0 });
    expect(balance.free).toEqual(amounts({ requests: 1, tokens: 50, slots: 1 }));
    expect(balance.isIdle).toBe(true);
  });

  it("owes a request's excess over its reservation until that is reported", () => {
    const balance = new Balance(REPORTS);
    balance.promise(amounts({ tokens: 10 }));
    const request = open();
    balance.take(amounts({ tokens: 10 }), request);
    balance.end(request, { tokens: 25, cost: 0 });
    expect(balance.free.tokens).toBe(-15);
    balance.forgetDebt();
    expect(balance.free.tokens).toBe(0);
  });

  it("expires when the quota may have given it to others, and frees the amounts of dead requests", () => {
    const balance = new Balance(REPORTS);
    balance.promise(amounts({ slots: 2 }));
    balance.take(amounts({ slots: 1 }), open());
    vi.advanceTimersByTime(LIFETIME_MS - 10_000);
    balance.expire();
    expect(balance.covers(amounts({ slots: 1 }))).toBe(false);
    expect(balance.held.slots).toBe(1);
    vi.advanceTimersByTime(20_000);
    balance.forgetDead();
    expect(balance.held.slots).toBe(0);
  });

  it("lends nothing to limits that are only counted", () => {
    const balance = new Balance(REPORTS);
    balance.promise(amounts({ reads: 1, slots: 1 }));
    balance.take(amounts({ reads: 1, slots: 1 }), { taken: NOTHING, seenAt: ENDED });
    expect(balance.free).toEqual(amounts({ slots: 1 }));
    expect(balance.isIdle).toBe(true);
  });
});

describe("the queue", () => {
  const obstacle: Obstacle = { kind: "tokens", of: "key", limit: 100, used: 90, wanted: 0, retryMs: 5_000 };
  const wanted = (some: Partial<Amounts>) => ({ need: amounts(some), open: open(), isNew: true });

  it("admits the first, and none before one that lacks something", async () => {
    const queue = new Queue();
    const entered: number[] = [];
    const waiting = [30, 50, 10].map((tokens) => queue.wait(wanted({ tokens })).then(() => void entered.push(tokens)));
    expect(queue.need.tokens).toBe(90);
    let left = 60;
    const take = ({ need }: { need: Amounts }) => {
      if (need.tokens > left) return false;
      left -= need.tokens;
      return true;
    };
    queue.handOut(take);
    await waiting[0];
    expect(entered).toEqual([30]);
    left = 100;
    queue.handOut(take);
    await Promise.all(waiting);
    expect([entered, queue.isEmpty]).toEqual([[30, 50, 10], true]);
  });

  it("refuses the first, and all that need as much, each with its own amounts", async () => {
    const queue = new Queue();
    const refusals = [30, 50, 10].map((tokens) =>
      queue.wait(wanted({ tokens })).catch((error: Error) => error.message),
    );
    queue.refuse(obstacle, ({ wanted: tokens }) => new Error(`${tokens}`));
    expect(await Promise.all(refusals.slice(0, 2))).toEqual(["30", "50"]);
    expect(queue.first?.need.tokens).toBe(10);
    queue.fail(limitsUnavailable());
    expect(await refusals[2]).toContain("limits");
  });

  it("remembers a refusal for a moment, until something comes back", async () => {
    const queue = new Queue();
    const refused = queue.wait(wanted({ slots: 1 })).catch(() => {});
    queue.refuse({ ...obstacle, kind: "slots" }, () => new Error());
    await refused;
    expect(queue.refusalOf(amounts({ slots: 1 }))?.kind).toBe("slots");
    expect(queue.refusalOf(amounts({ requests: 1 }))).toBeUndefined();
    queue.forgetRefusal();
    expect(queue.refusalOf(amounts({ slots: 1 }))).toBeUndefined();
    const again = queue.wait(wanted({ slots: 1 })).catch(() => {});
    queue.refuse({ ...obstacle, kind: "slots" }, () => new Error());
    await again;
    vi.advanceTimersByTime(200);
    expect(queue.refusalOf(amounts({ slots: 1 }))).toBeUndefined();
  });

  it("lets no request wait for an answer that does not come", async () => {
    const queue = new Queue();
    const refused = expect(queue.wait(wanted({ slots: 1 }))).rejects.toMatchObject({ status: 503 });
    await vi.advanceTimersByTimeAsync(10_000);
    await refused;
    expect(queue.isEmpty).toBe(true);
  });
});

describe("the reporter", () => {
  const answer: Answer = { status: {}, granted: NOTHING };
  const usage: UsageEntry = { model: "m", requests: 1, input: 5, cached: 0, output: 7, cost: 1 };
  const what = { limits: { key: null, tenant: null, tellsUsage: true }, held: NOTHING, want: undefined };

  it("reports usage once, and again with later usage if the quota was not reachable", async () => {
    const told: [Report, readonly UsageEntry[]][] = [];
    let fails = true;
    const reporter = new Reporter(
      { key: "k" },
      {
        exchange: async (report, entries) => {
          told.push([report, entries]);
          if (fails) throw new Error("No.");
          return answer;
        },
      },
    );
    reporter.note({ requests: 1, tokens: 12 }, [usage]);
    await expect(reporter.exchange(what)).rejects.toThrow("No.");
    expect(reporter.isIdle).toBe(false);
    reporter.note({ requests: 1, tokens: 12 }, [usage]);
    fails = false;
    await reporter.exchange(what);
    await reporter.exchange(what);
    expect(told.map(([{ used, report }]) => [report, used.requests, used.tokens])).toEqual([
      [1, 1, 12],
      [2, 2, 24],
      [3, 0, 0],
    ]);
    expect(told[1]?.[1]).toEqual([{ ...usage, requests: 2, input: 10, output: 14, cost: 2 }]);
    expect(reporter.isIdle).toBe(true);
  });

  it("has one report made for all that ends within a second, and tries it ten times", async () => {
    const reporter = new Reporter({ key: "k" }, { exchange: async () => answer });
    const pending: Promise<unknown>[] = [];
    const waitUntil = (promise: Promise<unknown>) => void pending.push(promise);
    let reports = 0;
    const report = async () => {
      reports += 1;
      return false;
    };
    for (let request = 0; request < 5; request += 1) reporter.reportSoon(report, waitUntil);
    await vi.advanceTimersByTimeAsync(1_000);
    expect([reports, pending.length]).toEqual([1, 1]);
    await vi.advanceTimersByTimeAsync(60_000);
    await Promise.all(pending);
    expect(reports).toBe(10);
  });
});

describe("the forecast", () => {
  const limited = limitedBy({ key: { requests_per_minute: 5 }, tenant: null, tellsUsage: true });

  it("expects the amounts of the last second's requests, and nothing for single requests", () => {
    const forecast = new Forecast(1_000);
    forecast.note(amounts({ requests: 1 }));
    expect(forecast.advance(limited)).toEqual(NOTHING);
    for (let request = 0; request < 3; request += 1) forecast.note(amounts({ requests: 1, tokens: 10 }));
    expect(forecast.advance(limited)).toEqual(amounts({ requests: 4, tokens: 30 }));
    vi.advanceTimersByTime(1_000);
    expect(forecast.advance(limited).requests).toBe(4);
    vi.advanceTimersByTime(1_000);
    expect(forecast.advance(limited)).toEqual(NOTHING);
  });

  it("has in advance at most the need of a thousand requests, and always some storage", () => {
    const forecast = new Forecast(1_000);
    for (let request = 0; request < 4_000; request += 1) forecast.note(amounts({ requests: 1 }));
    expect(forecast.advance(limited).requests).toBe(1_000);
    const stores = limitedBy({ key: { stored_responses: 5 }, tenant: null, tellsUsage: true });
    expect(new Forecast(1_000).advance(stores)).toEqual(amounts({ stored_responses: 100 }));
  });
});
