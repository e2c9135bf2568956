import {
  costOf,
  costResults,
  type TenantUsage,
  USAGE_KINDS,
  USAGE_REPORTS,
  usageResults,
} from "@responses-edge/usage-limits";
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

  it("are there for every kind", () => {
    expect(Object.keys(USAGE_REPORTS).toSorted()).toEqual([...USAGE_KINDS].toSorted());
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
