import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { ForegroundTurn } from "../../../src/store/home/settlement.ts";
import { settleInTurn } from "../../../src/store/home/settlement-queue.ts";

/** Turns of one isolate that are stored in one home at the same time. */

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
});
afterEach(() => {
  vi.useRealTimers();
});

let homes = 0;

function turnOf(turn: string, length = 2): ForegroundTurn {
  const input = "x".repeat(length);
  return { turn, parent: null, createdAt: 0, input, output: "[]", messages: null, response: "{}" };
}

type Call = { turns: string[]; end: (rows: readonly number[]) => void; fail: (error: Error) => void };

/** A new home whose calls end when the test ends them. */
function openHome() {
  const home = `tenant:${homes++}`;
  const calls: Call[] = [];
  const settle = (turn: ForegroundTurn) =>
    settleInTurn(home, turn, (turns) => {
      const { promise, resolve, reject } = Promise.withResolvers<readonly number[]>();
      calls.push({ turns: turns.map((each) => each.turn), end: resolve, fail: reject });
      return promise;
    });
  const called = () => calls.map(({ turns }) => turns);
  return { calls, called, settle };
}

/** Lets everything happen that waits for no timer. */
const settled = () => vi.advanceTimersByTimeAsync(0);

describe("turns of a home", () => {
  it("share the call after the one that is under way, and each gets its own rows", async () => {
    const { calls, called, settle } = openHome();
    const all = ["a", "b", "c"].map((turn) => settle(turnOf(turn)));
    expect(called()).toEqual([["a"]]);
    calls[0]?.end([1]);
    await settled();
    const late = settle(turnOf("d"));
    expect(called()).toEqual([["a"], ["b", "c"]]);
    calls[1]?.end([2, 0]);
    expect(await Promise.all(all)).toEqual([1, 2, 0]);
    await settled();
    calls[2]?.end([3]);
    expect(await late).toBe(3);
    expect(called()).toEqual([["a"], ["b", "c"], ["d"]]);
    // Nothing waits: the next one is called at once.
    void settle(turnOf("e"));
    expect(called().at(-1)).toEqual(["e"]);
  });

  it("do not wait for a call of another home", () => {
    const [one, other] = [openHome(), openHome()];
    for (const { settle } of [one, other]) void settle(turnOf("a"));
    expect([one.called(), other.called()]).toEqual([[["a"]], [["a"]]]);
  });

  it("have calls of their own if they are long", () => {
    const { called, settle } = openHome();
    for (const turn of ["a", "b"]) void settle(turnOf(turn, 300_000));
    expect(called()).toEqual([["a"], ["b"]]);
  });

  it("are at most 32 in one call, in the order in which they came", async () => {
    const { calls, called, settle } = openHome();
    const names = Array.from({ length: 40 }, (_, index) => String(index));
    for (const name of names) void settle(turnOf(name));
    calls[0]?.end([1]);
    await settled();
    calls[1]?.end(Array(32).fill(1));
    await settled();
    expect(called()).toEqual([names.slice(0, 1), names.slice(1, 33), names.slice(33)]);
  });

  it("are stored one by one if their common call fails, so that one of them fails alone", async () => {
    const { calls, called, settle } = openHome();
    const all = ["a", "b", "c"].map((turn) => settle(turnOf(turn)));
    calls[0]?.end([1]);
    await settled();
    calls[1]?.fail(new Error("One is too long."));
    await settled();
    expect(called()).toEqual([["a"], ["b", "c"], ["b"], ["c"]]);
    calls[2]?.end([1]);
    calls[3]?.fail(new Error("This one."));
    const ends = await Promise.allSettled(all);
    expect(ends.map((end) => (end.status === "fulfilled" ? end.value : String(end.reason)))).toEqual([
      1,
      1,
      "Error: This one.",
    ]);
  });

  it("are stored by their own requests when the request that was to store them has ended", async () => {
    const { calls, called, settle } = openHome();
    void settle(turnOf("a"));
    const waiting = ["b", "c"].map((turn) => settle(turnOf(turn)));
    await vi.advanceTimersByTimeAsync(2_000);
    expect(called()).toEqual([["a"], ["b"], ["c"]]);
    for (const { end } of calls.slice(1)) end([1]);
    expect(await Promise.all(waiting)).toEqual([1, 1]);
    await settled();
    void settle(turnOf("d"));
    expect(called().at(-1)).toEqual(["d"]);
  });

  it("are stored when the request that was to store them with others has ended", async () => {
    const { calls, called, settle } = openHome();
    const [, , other] = ["a", "b", "c"].map((turn) => settle(turnOf(turn)));
    calls[0]?.end([1]);
    await settled();
    expect(called()).toEqual([["a"], ["b", "c"]]);
    await vi.advanceTimersByTimeAsync(2_000);
    expect(called().at(-1)).toEqual(["c"]);
    calls[2]?.end([1]);
    expect(await other).toBe(1);
  });
});
