import {
  type Account,
  type Amounts,
  type Answer,
  added,
  Ledger,
  type Limits,
  msUntilFreed,
  NOTHING,
  periodEnd,
  periodStart,
  type Report,
  slid,
  sumOf,
  type Window,
} from "@responses-edge/usage-limits";
import fc from "fast-check";
import { describe, expect, it } from "vitest";

const T0 = Date.UTC(2026, 10, 22, 12, 0, 0);

const amounts = (given: Partial<Amounts>): Amounts => ({ ...NOTHING, ...given });

interface Said {
  key?: string;
  holder?: string;
  report?: number;
  held?: Partial<Amounts>;
  used?: Partial<Amounts>;
  want?: Partial<Amounts>;
  soon?: Partial<Amounts>;
  ofKey?: Limits | null;
  ofTenant?: Limits | null;
}

let reports = 0;

function report({
  key = "k",
  holder = "h",
  held = {},
  used = {},
  want,
  soon,
  ofKey = null,
  ofTenant = null,
  ...rest
}: Said): Report {
  reports += 1;
  return {
    key,
    holder,
    report: rest.report ?? reports,
    limits: { key: ofKey, tenant: ofTenant },
    held: amounts(held),
    used: amounts(used),
    lifetimeMs: 60_000,
    ...(want && { want: { least: amounts(want), needed: amounts(want), soon: amounts(soon ?? {}) } }),
  };
}

const isGranted = (answer: Answer) => answer.obstacle === undefined;

describe("the window of a minute", () => {
  it("never has more in any 60 seconds than was let in under its limit, whenever that is asked for", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 20 }),
        fc.array(fc.tuple(fc.integer({ min: 0, max: 20_000 }), fc.integer({ min: 1, max: 5 })), { maxLength: 200 }),
        (limit, steps) => {
          let window: Window = [];
          let now = T0;
          const passed: { at: number; amount: number }[] = [];
          for (const [wait, amount] of steps) {
            now += wait;
            window = slid(window, now);
            if (sumOf(window) + amount > limit) continue;
            window = added(window, amount, now);
            passed.push({ at: now, amount });
          }
          for (const { at } of passed) {
            const inMinute = passed.filter((each) => each.at >= at && each.at < at + 60_000);
            expect(inMinute.reduce((sum, each) => sum + each.amount, 0)).toBeLessThanOrEqual(limit);
          }
        },
      ),
    );
  });

  it("admits a request at the named time, and not a second before", () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.integer({ min: 0, max: 3_000 }), fc.integer({ min: 1, max: 9 })), {
          minLength: 1,
          maxLength: 20,
        }),
        (steps) => {
          let window: Window = [];
          let now = T0;
          for (const [wait, amount] of steps) {
            now += wait;
            window = added(slid(window, now), amount, now);
          }
          const sum = sumOf(window);
          const ms = msUntilFreed(window, 1, now);
          expect(sumOf(slid(window, now + ms))).toBeLessThan(sum);
          expect(sumOf(slid(window, now + ms - 1))).toBe(sum);
          expect(msUntilFreed(window, sum + 1, now)).toBe(Number.POSITIVE_INFINITY);
        },
      ),
    );
  });

  it("keeps usage after the clock goes back, for at most a minute", () => {
    const window = added([], 5, T0);
    const back = slid(window, T0 - 3_600_000);
    expect(sumOf(back)).toBe(5);
    expect(sumOf(slid(back, T0 - 3_600_000 + 61_000))).toBe(0);
  });
});

describe("the period of a budget", () => {
  it.each([
    ["hour", "2026-11-22T12:00:00.000Z", "2026-11-22T13:00:00.000Z"],
    ["day", "2026-11-22T00:00:00.000Z", "2026-11-23T00:00:00.000Z"],
    // 22 November 2026 is a Sunday: the week began on Monday.
    ["week", "2026-11-16T00:00:00.000Z", "2026-11-23T00:00:00.000Z"],
    ["month", "2026-11-01T00:00:00.000Z", "2026-12-01T00:00:00.000Z"],
  ] as const)("%s is the calendar's", (window, start, end) => {
    const now = T0 + 1_234_567;
    expect(new Date(periodStart(window, now)).toISOString()).toBe(start);
    expect(new Date(periodEnd(window, now) ?? 0).toISOString()).toBe(end);
  });

  it("total never ends", () => {
    expect([periodStart("total", T0), periodEnd("total", T0)]).toEqual([0, undefined]);
  });
});

describe("the ledger", () => {
  const one = { requests: 1, slots: 1 };

  it("of many holders never promises more than a limit, for any holds, usage and requests", () => {
    const step = fc.record({
      holder: fc.constantFrom("a", "b", "c"),
      key: fc.constantFrom("k1", "k2"),
      wait: fc.integer({ min: 0, max: 30_000 }),
      want: fc.integer({ min: 1, max: 6 }),
      soon: fc.integer({ min: 0, max: 20 }),
      uses: fc.integer({ min: 0, max: 6 }),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const limit = 12;
        const limits = { ofTenant: { requests_per_minute: limit } };
        const ledger = new Ledger();
        const holders = new Map<string, { has: number; heardAt: number }>();
        const used: { at: number; amount: number }[] = [];
        let now = T0;
        for (const { holder, key, wait, want, soon, uses } of steps) {
          now += wait;
          // A holder knows the time of its last report, and uses no older promise.
          for (const [name, { heardAt }] of holders) if (heardAt <= now - 60_000) holders.delete(name);
          const name = `${holder}/${key}`;
          const before = holders.get(name)?.has ?? 0;
          const spent = Math.min(before, uses);
          const held = before - spent;
          if (spent > 0) used.push({ at: now, amount: spent });
          const said = { ...limits, key, holder: name, held: { requests: held }, used: { requests: spent } };
          const answer = ledger.take(report({ ...said, want: { requests: want }, soon: { requests: soon } }), now);
          const granted = answer.obstacle ? 0 : answer.granted.requests;
          if (granted > 0) expect(granted).toBeGreaterThanOrEqual(want);
          holders.set(name, { has: held + granted, heardAt: now });
          const inMinute = used.filter((each) => each.at > now - 60_000).reduce((sum, each) => sum + each.amount, 0);
          const promised = [...holders.values()].reduce((sum, { has }) => sum + has, 0);
          expect(inMinute + promised).toBeLessThanOrEqual(limit);
        }
      }),
    );
  });

  it("counts all keys of a tenant against its limit, and each against its own", () => {
    const ledger = new Ledger();
    const ofTenant = { max_concurrent_requests: 3 };
    const ofKey = { max_concurrent_requests: 2 };
    const take = (key: string, holder: string) => ledger.take(report({ key, holder, ofKey, ofTenant, want: one }), T0);
    expect([take("a", "1"), take("a", "2"), take("a", "3")].map(isGranted)).toEqual([true, true, false]);
    expect([take("b", "4"), take("b", "5")].map(isGranted)).toEqual([true, false]);
    expect(take("b", "6").obstacle).toMatchObject({ of: "tenant", kind: "slots", limit: 3, used: 3 });
  });

  it("frees the hold of a silent holder, and not before its time", () => {
    const ledger = new Ledger();
    const limits = { ofKey: { max_concurrent_requests: 1, budget: { tokens: 100, window: "total" as const } } };
    const want = { ...one, tokens: 60 };
    expect(isGranted(ledger.take(report({ ...limits, holder: "dead", want }), T0))).toBe(true);
    expect(isGranted(ledger.take(report({ ...limits, want }), T0 + 59_999))).toBe(false);
    expect(isGranted(ledger.take(report({ ...limits, want }), T0 + 60_000))).toBe(true);
  });

  it("is the same after it was written and read again", () => {
    const ledger = new Ledger();
    const limits = {
      ofKey: { requests_per_minute: 2, max_concurrent_requests: 5 },
      ofTenant: { tokens_per_minute: 10 },
    };
    ledger.take(report({ ...limits, want: { ...one, tokens: 4 } }), T0);
    ledger.take(report({ ...limits, held: one, used: { requests: 1, tokens: 4 } }), T0);
    const kept = JSON.parse(JSON.stringify(ledger.takeChanged())) as ConstructorParameters<typeof Ledger>[0];
    const again = new Ledger(kept);
    const want = { ...one, tokens: 7 };
    expect(again.take(report({ ...limits, holder: "other", want }), T0)).toEqual(
      ledger.take(report({ ...limits, holder: "other", want }), T0),
    );
    expect(ledger.takeChanged()).toEqual([]);
  });

  it("counts a report once that comes twice", () => {
    const ledger = new Ledger();
    const limits = { ofKey: { requests_per_minute: 3 } };
    const said = { ...limits, report: 7, held: { slots: 1 }, used: { requests: 1 } };
    ledger.take(report(said), T0);
    ledger.take(report(said), T0);
    const answer = ledger.take(report({ ...limits, holder: "other", want: { requests: 2 } }), T0);
    expect(isGranted(answer)).toBe(true);
  });

  it("counts usage beyond a promise against later requests", () => {
    const ledger = new Ledger();
    const limits = { ofKey: { tokens_per_minute: 100 } };
    ledger.take(report({ ...limits, want: { tokens: 10 } }), T0);
    ledger.take(report({ ...limits, used: { tokens: 150 } }), T0 + 500);
    const refused = ledger.take(report({ ...limits, want: { tokens: 1 } }), T0 + 1_000);
    expect(refused.obstacle).toMatchObject({ kind: "tokens", used: 150, retryMs: 60_000 });
    expect(isGranted(ledger.take(report({ ...limits, want: { tokens: 1 } }), T0 + 61_000))).toBe(true);
  });

  it.each<[string, Limits, Partial<Amounts>]>([
    ["requests", { requests_per_minute: 0 }, one],
    ["slots", { max_concurrent_requests: 0 }, one],
    ["runs", { max_background_runs: 0 }, { runs: 1, requests: 1 }],
    ["tokens", { tokens_per_minute: 0 }, { ...one, tokens: 1 }],
    ["budget_tokens", { budget: { tokens: 0, window: "day" } }, { ...one, tokens: 1 }],
    ["budget_usd", { budget: { usd: 0, window: "day" } }, { ...one, cost: 0.001 }],
  ])("a limit of zero %s lets none through", (kind, ofKey, want) => {
    const { obstacle } = new Ledger().take(report({ ofKey, want }), T0);
    expect(obstacle).toMatchObject({ kind, limit: 0 });
  });

  it("says that waiting does not help where more is wanted than the limit is", () => {
    const { obstacle } = new Ledger().take(report({ ofKey: { tokens_per_minute: 10 }, want: { tokens: 11 } }), T0);
    expect(obstacle?.retryMs).toBeUndefined();
  });

  it("a clock that goes into another period and comes back opens no budget", () => {
    const ledger = new Ledger();
    const limits = { ofKey: { budget: { tokens: 100, window: "day" as const } } };
    ledger.take(report({ ...limits, used: { tokens: 90 } }), T0);
    const want = { tokens: 20 };
    const ahead = T0 + 400 * 86_400_000;
    expect(isGranted(ledger.take(report({ ...limits, want }), ahead))).toBe(true);
    ledger.take(report({ ...limits, used: { tokens: 20 } }), ahead);
    expect(isGranted(ledger.take(report({ ...limits, want }), T0 + 1_000))).toBe(false);
    expect(isGranted(ledger.take(report({ ...limits, want: { tokens: 10 } }), T0 + 1_000))).toBe(true);
  });

  it("a clock that goes back blocks no client for longer than a hold lives", () => {
    const ledger = new Ledger();
    const limits = { ofKey: { max_concurrent_requests: 1 } };
    ledger.take(report({ ...limits, holder: "dead", want: one }), T0 + 86_400_000);
    expect(isGranted(ledger.take(report({ ...limits, want: one }), T0))).toBe(false);
    expect(isGranted(ledger.take(report({ ...limits, want: one }), T0 + 120_000))).toBe(true);
  });

  it("gives in advance at most a tenth of the rest", () => {
    const ledger = new Ledger();
    const limits = { ofKey: { requests_per_minute: 101 } };
    const answer = ledger.take(report({ ...limits, want: { requests: 1 }, soon: { requests: 500 } }), T0);
    expect(answer.obstacle === undefined && answer.granted.requests).toBe(11);
  });
});

describe("a limit that is nearly used up", () => {
  it("is reported once in its period, and again after it was not for a while", () => {
    const stored = () => ({ stored_bytes: 850, stored_responses: 1, stored_conversations: 0 });
    const kept = new Map<string, Account>();
    let ledger = new Ledger(kept, stored);
    const budget = { tokens: 100, window: "day" } as const;
    const limits = {
      ofKey: { budget, stored_bytes: 1_000, requests_per_minute: 1 },
      ofTenant: { budget: { ...budget, tokens: 1_000 } },
    };
    const toldAfter = (used: number, now: number) => {
      const said = report({ ...limits, used: { tokens: used, requests: 1 } });
      ledger.take(said, now);
      const told = ledger.takeNearlyUsed("k", said.limits, now).map(({ of, obstacle }) => `${of} ${obstacle}`);
      // Its quota ends when it is idle, and begins again with what it has stored.
      for (const [key, account] of structuredClone(ledger.takeChanged())) kept.set(key, account);
      ledger = new Ledger(kept, stored);
      return told;
    };
    expect(toldAfter(79, T0)).toEqual(["key stored_bytes"]);
    expect(toldAfter(1, T0)).toEqual(["key budget_tokens"]);
    expect(toldAfter(50, T0)).toEqual([]);
    expect(toldAfter(700, T0)).toEqual(["tenant budget_tokens"]);
    const tomorrow = T0 + 86_400_000;
    expect(toldAfter(0, tomorrow)).toEqual([]);
    expect(toldAfter(90, tomorrow)).toEqual(["key budget_tokens"]);
  });
});
