import { DIALECTS } from "@responses-edge/engines/dialects/all";
import { loadIn, mustReadBoard, noteReport, reportOf } from "@responses-edge/engines/pool/board-view";
import { describe, expect, it } from "vitest";
import { nextAsking } from "../../src/store/deployment/board.ts";

/** The board's requests and answers, without the rest of the gateway. */

const { gauges: VLLM = /x/ } = DIALECTS.vllm;

describe("the load in a server's metrics", () => {
  it("is the number of running and waiting requests in all of its engines", () => {
    // The metrics as vLLM 0.33 writes them, with other lines around them.
    const metrics = `# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="Qwen/Qwen3-8B"} 3.0
vllm:num_requests_running{engine="1",model_name="Qwen/Qwen3-8B"} 2.0
vllm:num_requests_waiting{engine="0",model_name="Qwen/Qwen3-8B"} 1e+01
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 10.0
vllm:kv_cache_usage_perc{engine="0",model_name="Qwen/Qwen3-8B"} 0.25
`;
    expect(loadIn(metrics, VLLM)).toEqual({ load: 15, waiting: 10 });
    expect(loadIn("vllm:num_requests_running 4\n", VLLM)).toEqual({ load: 4, waiting: 0 });
  });

  it.each(["", "<html>", "vllm:num_requests_running{", "num_requests_running 3", "vllm:num_requests_running NaN"])(
    "is unknown for %j",
    (metrics) => {
      expect(loadIn(metrics, VLLM)).toBeUndefined();
    },
  );
});

describe("the board", () => {
  it("asks as long as it has readers, and little longer", () => {
    expect(nextAsking(1_000, 1_000, 500)).toBe(1_500);
    expect(nextAsking(1_000, 7_000, 500)).toBe(7_500);
    expect(nextAsking(1_000, 7_001, 500)).toBeUndefined();
    expect(nextAsking(Number.NEGATIVE_INFINITY, 0, 500)).toBeUndefined();
    expect(nextAsking(1_000, 1_000, 0)).toBeUndefined();
  });

  it("is read by one request in each interval, with any clock", () => {
    expect(mustReadBoard(10_000, 500)).toBe(true);
    expect(mustReadBoard(10_000, 500)).toBe(false);
    expect(mustReadBoard(10_499, 500)).toBe(false);
    expect(mustReadBoard(10_500, 500)).toBe(true);
    expect(mustReadBoard(0, 500)).toBe(true);
    expect(mustReadBoard(100, 500)).toBe(false);
  });

  it("is used until its data is too old", () => {
    const report = { name: "gpu-1", isDown: true, load: undefined };
    noteReport({ at: 10_000, servers: [report] });
    expect(reportOf("gpu-1", 17_000, 500)).toEqual(report);
    expect(reportOf("gpu-1", 17_001, 500)).toBeUndefined();
    expect(reportOf("gpu-1", 2_999, 500)).toBeUndefined();
    expect(reportOf("gpu-2", 10_000, 500)).toBeUndefined();
    noteReport({ at: 11_000, servers: [] });
    expect(reportOf("gpu-1", 11_000, 500)).toBeUndefined();
  });
});
