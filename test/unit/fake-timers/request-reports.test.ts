import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { RequestSummary } from "../../../src/contract/admin-objects.ts";
import type { Env } from "../../../src/env.ts";
import { noteRequest, reportRequests } from "../../../src/store/deployment/request-reports.ts";
import { processState } from "../../../src/store/objects/process-state.ts";

/** How an isolate reports the requests that have ended in it. */

class FakeBoard {
  readonly reports: RequestSummary[][] = [];
  isAway = false;

  readonly boards = {
    getByName: () => ({
      noteRequests: async (requests: RequestSummary[]) => {
        if (this.isAway) throw new Error("away");
        this.reports.push(requests);
      },
    }),
  } as unknown as Env["BOARD"];

  get count(): number {
    return this.reports.flat().length;
  }

  /** Notes requests that have ended. */
  note(count = 1, isBrief = false): void {
    const request = { id: "r" } as RequestSummary;
    for (let no = 0; no < count; no += 1) noteRequest(request, { boards: this.boards, waitUntil: () => {} }, isBrief);
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
  await reportRequests(board.boards);
  vi.useRealTimers();
});

describe("requests that have ended", () => {
  it("are reported together, once a second", async () => {
    for (let no = 0; no < 100; no += 1) {
      board.note();
      await vi.advanceTimersByTimeAsync(50);
    }
    await vi.advanceTimersByTimeAsync(1_000);
    expect(board.count).toBe(100);
    expect(board.reports.length).toBeLessThanOrEqual(6);
  });

  it("are reported at once where they are many, waiting costs, or the process ends", async () => {
    board.note(999);
    await vi.advanceTimersByTimeAsync(0);
    expect(board.count).toBe(0);
    board.note();
    await vi.advanceTimersByTimeAsync(0);
    expect(board.count).toBe(1_000);
    board.note(1, true);
    await vi.advanceTimersByTimeAsync(0);
    expect(board.count).toBe(1_001);
    processState.isEnding = true;
    board.note();
    await vi.advanceTimersByTimeAsync(0);
    expect(board.count).toBe(1_002);
  });

  it("are reported again with the next one while the board is away, at most ten thousand", async () => {
    const told = vi.spyOn(console, "error").mockImplementation(() => {});
    board.isAway = true;
    board.note(2_500);
    await vi.advanceTimersByTimeAsync(60_000);
    board.note(20_000);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(told).toHaveBeenCalledWith(expect.stringMatching(/"requests_not_reported":10000,"dropped":12500/));
    told.mockRestore();
    board.isAway = false;
    board.note();
    await vi.advanceTimersByTimeAsync(1_000);
    expect(board.count).toBe(10_000);
    board.note();
    await vi.advanceTimersByTimeAsync(1_000);
    expect(board.count).toBe(10_001);
  });
});
