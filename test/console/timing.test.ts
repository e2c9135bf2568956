import { describe, expect, it } from "vitest";
import { type TimedRound, type Timing, whereTimeWent } from "../../packages/console/src/timing.ts";

/** The sentence about a response's time. */

function round(times: Partial<TimedRound>): TimedRound {
  return {
    ...{ server: "gpu-1", model: "qwen3", purpose: "round", attempts: 1, error: null },
    ...{ input_tokens: 10, cached_tokens: 0, output_tokens: 5 },
    ...{ began_ms: 0, queued_ms: 0, first_token_ms: null, ended_ms: 0, ...times },
  };
}

function timing(times: Partial<Timing>): Timing {
  return { accepted_at: 1_790_000_000_000, waited_ms: 0, queued_ms: 0, rounds: [], items: [], settled_ms: 0, ...times };
}

describe("where the time went", () => {
  it("names the wait for an earlier turn, and then the parts that are worth a word", () => {
    const rounds = [round({ began_ms: 4_200, first_token_ms: 4_700, ended_ms: 6_490 })];
    expect(whereTimeWent(timing({ waited_ms: 4_200, rounds, settled_ms: 6_500 }), [])).toEqual({
      most: "4.20 s of 6.50 s: waited for an earlier turn of its conversation.",
      others: ["1.79 s: gpu-1 wrote the answer", "500 ms: gpu-1 worked on the prompt, until the first token"],
    });
  });

  it("names the queue of busy model servers, and a model server without a first token", () => {
    const rounds = [round({ queued_ms: 3_000, ended_ms: 3_400, error: "server_error" })];
    expect(whereTimeWent(timing({ queued_ms: 3_000, rounds, settled_ms: 3_400 }), [])).toEqual({
      most: "3.00 s of 3.40 s: waited in the queue, because the model servers were busy.",
      others: ["400 ms: gpu-1 worked on the prompt, until the first token"],
    });
  });

  it("names the tools that ran between two rounds, but no call that the client runs", () => {
    const rounds = [
      round({ first_token_ms: 100, ended_ms: 200 }),
      round({ server: null, began_ms: 2_200, first_token_ms: 2_300, ended_ms: 2_500 }),
    ];
    const items = [
      { id: "mcp_1", began_ms: 150, ended_ms: 2_000 },
      { id: "fc_1", began_ms: 160, ended_ms: 2_100 },
    ];
    const output = [
      { id: "mcp_1", type: "mcp_call", name: "find", server_label: "library" },
      { id: "fc_1", type: "function_call", name: "get_weather" },
    ];
    const { most, others } = whereTimeWent(timing({ rounds, items, settled_ms: 2_500 }), output);
    expect(most).toBe("1.80 s of 2.50 s: ran library: find.");
    expect(others).toContain("200 ms: worked between two rounds");
    expect(others).toContain("200 ms: the model server wrote the answer");
  });
});
