import { Allowance, type CountedLimits, type Limits } from "@responses-edge/usage-limits";
import { expect, it } from "vitest";

const NEED = { requests: 1, slots: 1 };

function allowanceUnder(tenant: Limits, tellsUsage: boolean) {
  const limits: CountedLimits = { tenant, key: null, tellsUsage };
  let asked = 0;
  const exchange = () => {
    asked += 1;
    return Promise.reject(new Error("nobody is there"));
  };
  const stored = { latest: () => 0, isTold: () => true };
  const allowance = new Allowance({ tenant: "t", keyId: "k" }, limits, { quota: { exchange }, stored });
  const take = (need: Parameters<Allowance["take"]>[0]) => allowance.take(need, limits, () => {});
  return { allowance, take, asked: () => asked };
}

it("a request without limited needs holds nothing, and does not ask the quota", () => {
  const { allowance, take, asked } = allowanceUnder({ stored_bytes: 0 }, false);
  const reservation = take(NEED);
  expect(reservation).not.toBeInstanceOf(Promise);
  expect([allowance.isIdle, asked()]).toEqual([true, 0]);
});

it.each<[string, Limits, boolean]>([
  ["something is limited of what it needs", { max_concurrent_requests: 1 }, false],
  ["something is limited of what it may use", { stored_bytes: 0, tokens_per_minute: 1 }, true],
])("the quota is asked where %s", async (_, limits, tellsUsage) => {
  const { take, asked } = allowanceUnder(limits, tellsUsage);
  await expect(Promise.resolve(take({ ...NEED, tokens: 1 }))).rejects.toMatchObject({ status: 503 });
  expect(asked()).toBe(1);
});
