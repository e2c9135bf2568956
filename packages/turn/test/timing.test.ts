import {
  beginModelCall,
  endModelCall,
  type ModelCall,
  newMeasurements,
} from "@responses-edge/turn/contract/measurements";
import {
  callsBefore,
  exportedTiming,
  type ItemTimes,
  isKeptTiming,
  keptTiming,
  shownTiming,
  type TimedTurn,
  upstreamErrorOf,
} from "@responses-edge/turn/timing";
import { describe, expect, it } from "vitest";

/** Times of turns: as they are kept, and as they are shown. */

const START = 1_790_000_000_000;

/** A turn that was accepted at `START`, with these calls and items. */
function turnOf(calls: Partial<ModelCall>[], itemTimes: ItemTimes[] = [], more: Partial<TimedTurn["measured"]> = {}) {
  const measured = { ...newMeasurements(), ...more };
  for (const [index, call] of calls.entries()) {
    const { round = index, purpose = "round", model = "m", begunAt = START } = call;
    Object.assign(beginModelCall(measured, { round, purpose, model, now: begunAt }), { replica: "gpu-1", ...call });
  }
  const output = itemTimes.map(() => ({}));
  return { acceptedAt: START, settledAt: START + 900, model: "m", measured, state: { itemTimes, output } };
}

const ids = (count: number) => Array.from({ length: count }, (_, index) => `msg_${index}`);
const shown = (turn: TimedTurn) => shownTiming(keptTiming(turn), { model: "m", items: ids(turn.state.output.length) });

describe("the times of a turn", () => {
  const call = { acceptedAt: START + 20, firstChunkAt: START + 30, endedAt: START + 800, attempts: 1 };
  const tokens = { input: 20, cached: 16, output: 45, reasoning: 0 };

  it("are short where a turn is, and all of them are shown", () => {
    const turn = turnOf([{ ...call, begunAt: START + 10, tokens }], [[START + 30, START + 790]], { waitedMs: 5 });
    expect(keptTiming(turn).length).toBeLessThan(100);
    expect(shown(turn)).toEqual({
      ...{ accepted_at: START, waited_ms: 5, queued_ms: 0, settled_ms: 900 },
      rounds: [
        {
          ...{ server: "gpu-1", model: "m", purpose: "round", attempts: 1, error: null },
          ...{ began_ms: 10, queued_ms: 0, first_token_ms: 30, ended_ms: 800 },
          ...{ input_tokens: 20, cached_tokens: 16, output_tokens: 45 },
        },
      ],
      items: [{ id: "msg_0", began_ms: 30, ended_ms: 790 }],
    });
  });

  it("have calls that gave nothing in the round that repeats them, unless another model does", () => {
    const failed = {
      round: 0,
      begunAt: START + 1,
      endedAt: START + 5,
      error: "upstream_timeout",
      attempts: 2,
      queuedMs: 3,
    };
    const turn = turnOf([
      failed,
      { ...failed, begunAt: START + 6, replica: "gpu-2" },
      { ...call, round: 0, model: "other", begunAt: START + 9, replica: "gpu-3" },
    ]);
    expect(shown(turn)?.rounds).toMatchObject([
      { server: "gpu-2", model: "m", began_ms: 1, queued_ms: 6, attempts: 4, error: "upstream_timeout" },
      { server: "gpu-3", model: "other", began_ms: 9, attempts: 1, error: null },
    ]);
  });

  it("are bounded, and say how many are left out", () => {
    const calls = Array.from({ length: 200 }, (_, round) => ({ ...call, round }));
    const turn = turnOf(
      calls,
      Array.from({ length: 256 }, (): ItemTimes => [START]),
    );
    turn.state.output.push({}, {});
    const kept = keptTiming(turn);
    expect(kept.length).toBeLessThan(20_000);
    const { rounds, items, rounds_omitted, items_omitted } = shown(turn) ?? {};
    expect([rounds?.length, rounds_omitted, items?.length, items_omitted]).toEqual([64, 136, 256, 2]);
  });

  it("have the model server's own text for the operator only", () => {
    const kept = keptTiming(turnOf([call], [], { upstreamError: "CUDA out of memory" }));
    expect(upstreamErrorOf(kept)).toBe("CUDA out of memory");
    expect(JSON.stringify(shownTiming(kept, { model: "m", items: [] }))).not.toContain("CUDA");
    expect(exportedTiming(kept)).not.toContain("CUDA");
    expect(isKeptTiming(exportedTiming(kept))).toBe(true);
  });

  it.each([
    "",
    "{",
    "null",
    "[]",
    "[1,2]",
    '[0,0,0,["a"],[["x"]],[],0,0]',
    "[0,0,0,[1],[],[],0,0]",
    "[0,0,0,[],[],[1],0,0]",
  ])("are null for any other text: %s", (text) => {
    expect(isKeptTiming(text)).toBe(false);
    expect(shownTiming(text, { model: "m", items: [] })).toBeNull();
  });
});

describe("the model calls before a crash", () => {
  it("end with the last time that the log has", () => {
    const measured = newMeasurements();
    const first = beginModelCall(measured, { round: 0, purpose: "round", model: "m", now: START });
    endModelCall(measured, { now: START + 10 });
    const second = beginModelCall(measured, { round: 1, purpose: "round", model: "m", now: START + 20 });
    second.firstChunkAt = START + 30;
    const itemTimes: ItemTimes[] = [[START + 5, START + 9], [START + 40]];
    expect(callsBefore({ calls: [first, second], itemTimes })).toEqual([
      first,
      { ...second, endedAt: START + 40, error: "server_restarted" },
    ]);
    const third = { ...second, begunAt: START + 35, firstChunkAt: START + 36 };
    expect(callsBefore({ calls: [first, second, third], itemTimes }).map(({ endedAt }) => endedAt)).toEqual([
      START + 10,
      START + 30,
      START + 40,
    ]);
    expect(callsBefore({ calls: [first], itemTimes })).toEqual([first]);
    expect(callsBefore({ calls: [], itemTimes: [] })).toEqual([]);
  });
});
