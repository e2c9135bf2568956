import { ApiError } from "@responses-edge/responses-api/errors";
import { recordLine } from "@responses-edge/turn/records";
import { isTransient, MAX_FRUITLESS, ResumePolicy, readLoggedTurn } from "@responses-edge/turn/resume";
import { describe, expect, it } from "vitest";

const away = new ApiError({ status: 502, message: "Away.", code: "upstream_unreachable" });
const refused = { taken: false, spoke: false };

/** Tries until it is given up; gives the waits, in milliseconds. */
function waits(
  { since, ...bounds }: { outageMs: number; since?: number; maxRetries?: number; maxFruitless?: number },
  fault = away,
  how = refused,
): number[] {
  let now = 1_000_000;
  const policy = new ResumePolicy({ maxRetries: 10, maxFruitless: MAX_FRUITLESS.alone, ...bounds }, () => now, since);
  const all: number[] = [];
  for (;;) {
    const wait = policy.next(fault, how);
    if (wait === undefined) return all;
    all.push(wait);
    now += wait;
  }
}

describe("a model server that is away", () => {
  it("is waited for as long as an outage may last, to the millisecond, with a last try at its end", () => {
    const total = waits({ outageMs: 900_000 }).reduce((sum, wait) => sum + wait, 0);
    expect(total).toBeCloseTo(900_000, 3);
  });

  it("is tried soon at first, and then every few seconds, never all at the same time", () => {
    const all = waits({ outageMs: 900_000 });
    expect(all[0]).toBeLessThanOrEqual(100);
    expect(Math.max(...all)).toBeLessThanOrEqual(5_000);
    expect(Math.min(...all.slice(8, -1))).toBeGreaterThanOrEqual(2_500);
    expect(new Set(all.slice(8, -1)).size).toBeGreaterThan(50);
  });

  it("has been away since before a crash of this server: only the rest of the time is left", () => {
    const total = waits({ outageMs: 900_000, since: 1_000_000 - 800_000 }).reduce((sum, wait) => sum + wait, 0);
    expect(total).toBeCloseTo(100_000, 3);
    expect(waits({ outageMs: 900_000, since: 1_000_000 - 900_000 })).toEqual([]);
  });

  it("that says when to come again is not asked before", () => {
    const headers = { "retry-after": "7" };
    const busy = new ApiError({ status: 503, message: "Busy.", code: "server_is_overloaded", headers });
    expect(waits({ outageMs: 20_000 }, busy)).toEqual([7_000, 7_000, 6_000]);
  });

  it("is not waited for with VLLM_MAX_RETRIES=0", () => {
    expect(waits({ outageMs: 900_000, maxRetries: 0 })).toEqual([]);
  });
});

it("a prompt that the server takes and dies of is sent five times in a row, and no more; to several servers three times", () => {
  const died = { taken: true, spoke: false };
  expect(waits({ outageMs: 900_000 }, away, died)).toHaveLength(4);
  expect(waits({ outageMs: 900_000, maxFruitless: MAX_FRUITLESS.inPool }, away, died)).toHaveLength(2);
});

it("generations that break off after some words are resumed as often as VLLM_MAX_RETRIES says", () => {
  expect(waits({ outageMs: 900_000 }, away, { taken: true, spoke: true })).toHaveLength(10);
});

it("a word ends an outage: the next one has all its time again", () => {
  let now = 0;
  const policy = new ResumePolicy({ maxRetries: 10, maxFruitless: 4, outageMs: 1_000 }, () => now);
  policy.next(away, refused);
  now = 900;
  policy.next(away, refused);
  expect(policy.outage).toEqual({ since: 0, until: 1_000 });
  now = 5_000;
  expect(policy.next(away, { taken: true, spoke: true })).toBeGreaterThan(0);
  expect(policy.outage).toBeUndefined();
});

it("a failure counts as the server's death only by its health", async () => {
  const failure = new ApiError({ status: 502, message: "It failed.", code: "upstream_error" });
  const mistake = new ApiError({ status: 400, message: "Wrong.", code: "invalid_request" });
  expect(await isTransient(failure, async () => true)).toBe(true);
  expect(await isTransient(failure, async () => false)).toBe(false);
  expect(await isTransient(mistake, async () => true)).toBe(false);
});

describe("a log", () => {
  const event = { type: "response.output_text.delta", sequence_number: 0, item_id: "msg", delta: "a", logprobs: [] };
  const delta = JSON.stringify(event);

  it("knows since when the model server has been away", () => {
    expect(readLoggedTurn([delta, recordLine({ outage: 77 })]).round.outageSince).toBe(77);
  });

  it("knows that it has come back", () => {
    expect(readLoggedTurn([recordLine({ outage: 77 }), delta]).round.outageSince).toBeUndefined();
    const sampled = recordLine({ sampled: { ids: [1] } });
    expect(readLoggedTurn([recordLine({ outage: 77 }), sampled]).round.outageSince).toBeUndefined();
  });
});
