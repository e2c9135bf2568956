import { newMeasurements } from "@responses-edge/turn/contract/measurements";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { loadConfig, type Variables } from "../../../src/config/index.ts";
import type { Env } from "../../../src/env.ts";
import type { RequestReport } from "../../../src/store/deployment/request-log.ts";
import { noteRequest, reportRequests } from "../../../src/store/deployment/request-reports.ts";
import { processState } from "../../../src/store/objects/process-state.ts";
import type { EndedRequest } from "../../../src/telemetry/telemetry.ts";

/** How an isolate reports the requests that have ended in it. */

const CONFIG = loadConfig({ VLLM_BASE_URL: "http://vllm/v1", ALLOW_ANONYMOUS: "true" } as unknown as Variables);

let ended = 0;

/** A request that took `ms`, with an error if it has a code. */
function request(ms: number, error?: string): EndedRequest {
  ended += 1;
  const measured = newMeasurements();
  return {
    event: {
      ...{ level: error === undefined ? "info" : "error", event: "request", request_id: `r${ended}` },
      ...{ tenant: "acme", endpoint: "POST /v1/responses", transport: "http", total_ms: ms, status: 200 },
      ...{ input_tokens: 5, output_tokens: 8, first_token_ms: 10, client_left: false, ...(error && { error }) },
    },
    ...{ measured, begunAt: Date.now() - ms, endedAt: Date.now(), message: undefined },
  };
}

class FakeBoard {
  readonly reports: RequestReport[] = [];
  isAway = false;
  /** The platform ends the request that reports, in the middle of its call. */
  endsReporters = false;

  readonly boards = {
    getByName: () => ({
      addRequests: async (report: RequestReport) => {
        if (this.isAway) throw new Error("away");
        if (this.endsReporters) await new Promise(() => {});
        this.reports.push(report);
      },
    }),
  } as unknown as Env["BOARD"];

  /** The number of requests in the sums. */
  get count(): number {
    return this.reports.flatMap(({ minutes }) => minutes).reduce((sum, { sums }) => sum + sums.requests, 0);
  }

  get rows() {
    return this.reports.flatMap(({ rows }) => rows);
  }

  /** Notes a request that has ended. */
  note({ isBrief = false, ms = 100, error }: { isBrief?: boolean; ms?: number; error?: string } = {}): void {
    const target = { boards: this.boards, waitUntil: () => {}, config: CONFIG };
    const outcome = { isError: error !== undefined, ms, firstTokenMs: 10 };
    noteRequest(request(ms, error), outcome, target, isBrief);
  }

  noteMany(count: number, fields?: Parameters<FakeBoard["note"]>[0]): void {
    for (let no = 0; no < count; no += 1) this.note(fields);
  }
}

let board: FakeBoard;
beforeEach(() => {
  vi.useFakeTimers({ toFake: ["Date", "setTimeout", "clearTimeout"] });
  board = new FakeBoard();
});
afterEach(async () => {
  processState.isEnding = false;
  board.isAway = false;
  await reportRequests();
  vi.useRealTimers();
});

describe("requests that have ended", () => {
  it("are reported together, once a second", async () => {
    for (let no = 0; no < 100; no += 1) {
      board.note();
      await vi.advanceTimersByTimeAsync(50);
    }
    await vi.advanceTimersByTimeAsync(1_000);
    expect([board.count, board.rows.length]).toEqual([100, 100]);
    expect(board.reports.length).toBeLessThanOrEqual(6);
  });

  it("are reported at once where errors are many, waiting costs, or the process ends", async () => {
    board.noteMany(999, { error: "server_error" });
    await vi.advanceTimersByTimeAsync(0);
    expect(board.count).toBe(0);
    board.note({ error: "server_error" });
    await vi.advanceTimersByTimeAsync(0);
    expect(board.count).toBe(1_000);
    board.note({ isBrief: true });
    await vi.advanceTimersByTimeAsync(0);
    expect(board.count).toBe(1_001);
    processState.isEnding = true;
    board.note();
    await vi.advanceTimersByTimeAsync(0);
    expect(board.count).toBe(1_002);
  });

  it("are reported again if the platform ends the request that reports them", async () => {
    board.endsReporters = true;
    board.note();
    await vi.advanceTimersByTimeAsync(1_000);
    board.note();
    board.endsReporters = false;
    const again = reportRequests();
    await vi.advanceTimersByTimeAsync(10_000);
    await again;
    expect([board.count, board.rows.length]).toEqual([2, 2]);
  });

  it("have rows if they are slow or end with an error, in their order; all are in the sums", async () => {
    for (let no = 0; no < 1_000; no += 1) board.note({ ms: 20 + no, ...(no === 3 && { error: "server_error" }) });
    for (let no = 0; no < 1_000; no += 1) board.note({ ms: 20 });
    await vi.advanceTimersByTimeAsync(1_000);
    expect(board.reports.length).toBe(1);
    expect(board.rows.map((row) => row.duration_ms)).toEqual([23, ...Array.from({ length: 200 }, (_, no) => 820 + no)]);
    const [sums] = board.reports.flatMap(({ minutes }) => minutes.map((minute) => minute.sums));
    expect(sums).toMatchObject({ errors: 1, byStatus: { completed: 2_000 } });
    expect([board.count, sums?.input, sums?.output]).toEqual([2_000, 10_000, 16_000]);
  });

  it("are all counted after the board was away, with rows of ten thousand that ended with an error", async () => {
    const told = vi.spyOn(console, "error").mockImplementation(() => {});
    board.isAway = true;
    board.noteMany(2_500, { error: "server_error" });
    await vi.advanceTimersByTimeAsync(60_000);
    board.noteMany(20_000, { error: "server_error" });
    await vi.advanceTimersByTimeAsync(60_000);
    expect(told).toHaveBeenCalledWith(expect.stringMatching(/"requests_not_reported":22500,"dropped":12500/));
    told.mockRestore();
    board.isAway = false;
    board.note();
    await vi.advanceTimersByTimeAsync(1_000);
    expect([board.count, board.rows.length]).toEqual([22_501, 10_001]);
  });

  it("are reported again, each second, by a board that does not answer at first", async () => {
    const told = vi.spyOn(console, "error").mockImplementation(() => {});
    board.isAway = true;
    board.note();
    await vi.advanceTimersByTimeAsync(2_500);
    expect(board.count).toBe(0);
    board.isAway = false;
    await vi.advanceTimersByTimeAsync(1_000);
    expect([board.count, told.mock.calls.length]).toEqual([1, 2]);
    told.mockRestore();
  });
});
