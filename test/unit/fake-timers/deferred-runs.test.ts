import { setTimeout as sleep } from "node:timers/promises";
import { expect, it } from "vitest";
import { whenDue } from "../../../src/store/home/deferred-runs.ts";
import type { RunSpec } from "../../../src/store/home/run-store.ts";
import { Permits } from "../../../src/store/limits/permits.ts";

/** The order in which background runs with a later completion window begin. */

const OWNER = { tenant: "acme", config: { maxOpenTurns: 1_000 } };

function spec(window: "2h" | "8h", continuation: string | undefined, createdAt: number): RunSpec {
  const background_options = { completion_window: window, continuation_id: continuation };
  return { request: { background_options }, tenant: "acme", createdAt } as unknown as RunSpec;
}

it("is: those of 2h, those of an id that has run lately, the oldest; as many at a time as may be", async () => {
  const { signal } = new AbortController();
  const now = Date.now();
  const known = await whenDue(spec("8h", "known", now), signal);
  known?.[Symbol.dispose]();
  using turn = new Permits("turn", OWNER, 0);
  const begun: string[] = [];
  const places: (Disposable | undefined)[] = [];
  const add = async (name: string, each: RunSpec) => {
    const place = await whenDue(each, signal);
    begun.push(name);
    places.push(place);
  };
  const all = Array.from({ length: 20 }, (_, index) => add(`old ${index}`, spec("8h", undefined, now - 1_000 + index)));
  all.push(add("related", spec("8h", "known", now)), add("soon", spec("2h", undefined, now)));
  await sleep(600);
  expect(begun).toEqual([]);
  turn[Symbol.dispose]();
  await expect.poll(() => begun.length, { timeout: 10_000 }).toBe(16);
  expect(begun).toEqual(
    expect.arrayContaining(["soon", "related", ...Array.from({ length: 14 }, (_, index) => `old ${index}`)]),
  );
  for (const place of places) place?.[Symbol.dispose]();
  await Promise.all(all);
  expect(begun).toHaveLength(22);
});
