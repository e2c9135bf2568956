import {
  addCounts,
  addDuration,
  costOf,
  costResults,
  type Durations,
  quantile,
  type TenantUsage,
  USAGE_KINDS,
  USAGE_REPORTS,
  UsageSums,
  usageResults,
} from "@responses-edge/usage-limits";
import fc from "fast-check";
import { describe, expect, it } from "vitest";

const row = (fields: Partial<TenantUsage>): TenantUsage => ({
  ...{ start: 0, tenant: "a", key: "key_1", model: "m" },
  ...{ requests: 1, input: 10, cached: 2, output: 3, cost: 500_000 },
  ...fields,
});

describe("the results of usage", () => {
  it("have the figures of their kind, and its groups", () => {
    const images = [row({ kind: "images", units: 2 }), row({ kind: "images", units: 3, key: "key_2" })];
    expect(usageResults("images", images, [])).toEqual([
      {
        ...{ object: "organization.usage.images.result", images: 5, num_model_requests: 2, cost_usd: 1 },
        ...{ project_id: null, api_key_id: null, model: null },
        ...{ num_errors: 0, duration_ms_sum: 0, p50_ms: null, p95_ms: null },
        ...{ p50_first_token_ms: null, p95_first_token_ms: null },
      },
    ]);
    expect(usageResults("images", images, ["api_key_id"])).toMatchObject([
      { images: 2, api_key_id: "key_1" },
      { images: 3, api_key_id: "key_2" },
    ]);
    const sessions = [row({ kind: "code_interpreter_sessions", model: "code_interpreter", units: 1 })];
    expect(usageResults("code_interpreter_sessions", sessions, ["project_id"])).toEqual([
      {
        object: "organization.usage.code_interpreter_sessions.result",
        num_sessions: 1,
        project_id: "a",
        cost_usd: 0.5,
      },
    ]);
  });

  it("have errors and the quantiles of durations, over all rows of a group", () => {
    const ended = (errors: number, times: readonly number[]) => ({
      ...{ errors, ms: times.reduce((sum, ms) => sum + ms, 0), firstTokens: {} },
      durations: durationsOf(times),
    });
    const rows = [
      row({ ended: ended(1, [100, 100]) }),
      row({ key: "key_2", ended: ended(2, [100, 9_000]) }),
      row({ requests: 0, input: 0, output: 0, cost: 0, model: "none", ended: ended(3, []) }),
      row({ model: "other" }),
    ];
    const [all] = usageResults("completions", rows, []);
    expect(all).toMatchObject({ num_errors: 6, duration_ms_sum: 9_300, p50_first_token_ms: null });
    expect(all).toMatchObject({ p50_ms: near(100), p95_ms: near(9_000) });
    expect(usageResults("completions", rows, ["model"])).toMatchObject([
      { model: "m", num_errors: 3 },
      { model: "none", num_errors: 3, p50_ms: null },
      { model: "other", num_errors: 0, p50_ms: null },
    ]);
    // Errors cost nothing.
    expect(costResults(rows, ["line_item"]).map((result) => result.line_item)).toEqual(["m", "other"]);
  });

  it("are there for every kind", () => {
    expect(Object.keys(USAGE_REPORTS).toSorted()).toEqual([...USAGE_KINDS].toSorted());
  });
});

const durationsOf = (times: readonly number[]) => times.reduce<Durations>(addDuration, {});

/** Matches a whole number that is off by a tenth at most. */
const near = (ms: number) => expect.toSatisfy((told: number) => Math.abs(told - ms) <= 1 + ms / 10);

describe("durations", () => {
  it("have quantiles that are off by a tenth at most, also as a sum of several counts", () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 10_000_000 }), { minLength: 1 }), fc.nat(), (times, cut) => {
        const [one, other] = [times.slice(0, cut % times.length), times.slice(cut % times.length)];
        const sum = addCounts(durationsOf(one), durationsOf(other));
        const sorted = times.toSorted((a, b) => a - b);
        for (const part of [0.5, 0.95]) {
          expect(quantile(sum, part)).toEqual(near(sorted[Math.ceil(times.length * part) - 1] ?? 0));
        }
      }),
    );
  });

  it("are bounded", () => {
    const odd = durationsOf([0, -5, 1e15, Number.MAX_SAFE_INTEGER]);
    expect(Object.keys(odd)).toEqual(["0", "96"]);
    expect(quantile({}, 0.5)).toBeNull();
  });
});

describe("the sums of usage", () => {
  it("have an entry for each kind and model, and one for all models beyond a thousand", () => {
    const sums = new UsageSums();
    for (let index = 0; index < 3_000; index += 1) sums.add(row({ model: `m${index % 1_500}`, kind: "embeddings" }));
    const taken = sums.take();
    expect(taken.length).toBe(1_001);
    expect(taken.reduce((sum, { requests }) => sum + requests, 0)).toBe(3_000);
    expect(taken.find(({ model }) => model === "other")).toMatchObject({ requests: 1_000, input: 10_000 });
    expect(sums.isEmpty).toBe(true);
  });

  it("have how requests have ended, of each kind and model", () => {
    const sums = new UsageSums();
    sums.add(row({ model: "m" }));
    sums.addOutcome("completions", "m", { isError: false, ms: 100, firstTokenMs: 20 });
    sums.addOutcome("completions", "m", { isError: true, ms: 5, firstTokenMs: undefined });
    sums.add(row({ model: "m", ended: { errors: 1, ms: 100, durations: { 27: 1 }, firstTokens: {} } }));
    expect(sums.take()).toMatchObject([
      { requests: 2, ended: { errors: 2, ms: 200, durations: { 27: 2 }, firstTokens: { 17: 1 } } },
    ]);
  });
});

describe("costs", () => {
  it("have line items, with quantities in tokens, or in their units", () => {
    const rows = [row({}), row({ kind: "file_searches", model: "file_search", input: 0, output: 0, units: 4 })];
    expect(costResults(rows, ["line_item"])).toMatchObject([
      { line_item: "m", quantity: 13, quantity_unit: "tokens", amount: { value: 0.5, currency: "usd" } },
      { line_item: "file_search", quantity: 4, quantity_unit: "units" },
    ]);
    expect(costResults(rows, [])).toMatchObject([{ line_item: null, quantity: null, amount: { value: 1 } }]);
  });

  it("are those of tokens and of units", () => {
    const prices = { m: { input: 2, cached_input: 1, output: 4, unit: 0.5 }, "*": { input: 1, output: 1 } };
    expect(costOf("m", { input: 10, cached: 4, output: 1, units: 3 }, prices)).toBe(6 * 2 + 4 + 4 + 1_500_000);
    expect(costOf("other", { input: 10, cached: 4, output: 1, units: 3 }, prices)).toBe(11);
  });
});
