import { runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { describe, expect, it } from "vitest";
import type { RequestSummary } from "../../src/contract/admin-objects.ts";
import {
  addPeaks,
  countInSums,
  HOUR,
  MINUTE,
  noSums,
  REQUEST_TABLES,
  RequestLog,
  type RequestReport,
} from "../../src/store/deployment/request-log.ts";
import { Schema } from "../../src/store/objects/schema.ts";

/** The bounds of the log of requests. */

let boards = 0;

/** Uses the log of a new board. */
function withLog<T>(maxRows: number, use: (log: RequestLog, sql: SqlStorage) => T): Promise<T> {
  boards += 1;
  return runInDurableObject(env.BOARD.getByName(`requests-${boards}`), (_, { storage }) =>
    use(new RequestLog(new Schema(storage, REQUEST_TABLES), maxRows), storage.sql),
  );
}

const DAY_MS = 86_400_000;
const NOW = 1_790_000_000;

function request(fields: Partial<RequestSummary> = {}): RequestSummary {
  return {
    object: "request.summary",
    ...{ id: "r", created_at: NOW, tenant: "acme", api_key_id: "key", endpoint: "POST /v1/responses", model: "m" },
    ...{ transport: "http", http_status: 200, status: "completed", response_id: null, server: "gpu", attempts: 1 },
    ...{ duration_ms: 100, first_token_ms: 20, waited_ms: 0, queued_ms: 0, cost_usd: null, error: null },
    usage: { input_tokens: 5, cached_tokens: 0, output_tokens: 8, reasoning_tokens: 0 },
    ...fields,
  };
}

/** A report of requests that all have a row. */
function reportOf(rows: readonly RequestSummary[]): RequestReport {
  const minutes = [...Map.groupBy(rows, ({ created_at: at }) => at - (at % MINUTE))].map(([start, all]) => {
    const sums = noSums();
    for (const { status, error, duration_ms: ms, first_token_ms: first, usage } of all) {
      const tokens = { input: usage?.input_tokens ?? 0, output: usage?.output_tokens ?? 0 };
      countInSums(sums, status, { isError: error !== null, ms, firstTokenMs: first ?? undefined }, tokens);
    }
    return { start, sums };
  });
  return { rows, minutes };
}

const many = (count: number, fields: (no: number) => Partial<RequestSummary>) =>
  Array.from({ length: count }, (_, no) => request(fields(no)));

describe("the log of requests", () => {
  it("keeps the worst that each process saw of servers and disk in a minute, and in an hour", async () => {
    const seen = (at: number, process: string, load: [number, number], down: string[], freeDisk?: number) => {
      const sums = noSums();
      addPeaks(sums.peaks, { load: { [process]: load }, down, freeDisk });
      return { rows: [], minutes: [{ start: at, sums }] };
    };
    await withLog(1_000, (log) => {
      const start = NOW - (NOW % HOUR);
      for (const report of [
        seen(start, "0", [3, 0], [], 900),
        seen(start, "1", [1, 2], ["b"], 800),
        seen(start, "0", [2, 5], ["a"], 950),
        seen(start + MINUTE, "1", [7, 1], ["b"]),
      ]) {
        log.add(report, NOW * 1000, DAY_MS);
      }
      const peaksOf = (width: typeof MINUTE | typeof HOUR) =>
        log.sums({ width, from: start, until: start + HOUR }).map(({ sums }) => sums.peaks);
      expect(peaksOf(MINUTE)).toEqual([
        { load: { 0: [3, 5], 1: [1, 2] }, down: ["b", "a"], freeDisk: 800 },
        { load: { 1: [7, 1] }, down: ["b"] },
      ]);
      expect(peaksOf(HOUR)).toEqual([{ load: { 0: [3, 5], 1: [7, 2] }, down: ["b", "a"], freeDisk: 800 }]);
    });
  });

  it("keeps the newest, and counts all", async () => {
    await withLog(1_500, (log, sql) => {
      for (let turn = 0; turn < 20; turn += 1) {
        log.add(reportOf(many(200, (no) => ({ id: `r${turn}-${no}` }))), NOW * 1000, DAY_MS);
      }
      const [row] = sql.exec<{ count: number }>("SELECT COUNT(*) AS count FROM requests").toArray();
      expect(row?.count).toBeLessThanOrEqual(2_500);
      expect(log.list({ limit: 1 })).toMatchObject([{ id: "r19-199" }]);
      expect(log.list({ limit: 1, after: "r0-0" })).toBeNull();
      for (const width of [MINUTE, HOUR] as const) {
        const [all] = log.sums({ width, from: 0, until: NOW + 1 });
        expect(all?.sums).toMatchObject({ requests: 4_000, input: 20_000, output: 32_000, generatingMs: 320_000 });
      }
    });
  });

  it("finds those with an error, however they ended", async () => {
    await withLog(100_000, (log) => {
      const error = { code: "server_error", message: "It failed.", upstream: "CUDA out of memory" };
      const failed = request({ id: "failed", status: "failed", error });
      const refused = request({ id: "refused", status: "refused", error });
      log.add(reportOf([failed, request({ id: "good" }), refused]), NOW * 1000, DAY_MS);
      expect(log.list({ status: "error", limit: 9 })?.map(({ id }) => id)).toEqual(["refused", "failed"]);
      expect(log.list({ status: "failed", limit: 9 })?.map(({ id }) => id)).toEqual(["failed"]);
    });
  });

  it("forgets what is old: requests and hours as usage is, minutes after two days", async () => {
    await withLog(100_000, (log) => {
      log.add(reportOf([request({ id: "old", created_at: NOW - 5 * 86_400 })]), (NOW - 5 * 86_400) * 1000, 9 * DAY_MS);
      log.add(
        reportOf([request({ id: "older", created_at: NOW - 12 * 86_400 })]),
        (NOW - 12 * 86_400) * 1000,
        9 * DAY_MS,
      );
      for (let report = 0; report < 5; report += 1) {
        log.add(reportOf(many(200, (no) => ({ id: `new-${report}-${no}` }))), NOW * 1000, 9 * DAY_MS);
      }
      const ids = log.list({ limit: 2_000 })?.map(({ id }) => id) ?? [];
      expect([ids.length, ids.includes("old"), ids.includes("older")]).toEqual([1_001, true, false]);
      const counted = (width: typeof MINUTE | typeof HOUR) => {
        const rows = log.sums({ width, from: 0, until: NOW + 1 });
        return rows.reduce((sum, row) => sum + row.sums.requests, 0);
      };
      expect([counted(MINUTE), counted(HOUR)]).toEqual([1_000, 1_001]);
    });
  });

  it("forgets the requests of a tenant, and not their sums", async () => {
    await withLog(100_000, (log) => {
      log.add(reportOf([request({ tenant: "one" }), request({ tenant: "other" })]), NOW * 1000, DAY_MS);
      log.eraseTenant("one");
      expect(log.list({ limit: 9 })).toMatchObject([{ tenant: "other" }]);
      expect(log.list({ limit: 9, tenant: "one" })).toEqual([]);
      expect(log.sums({ width: HOUR, from: 0, until: NOW + 1 })).toMatchObject([{ sums: { requests: 2 } }]);
    });
  });

  it("tells requests apart that share an id, as those of a WebSocket do", async () => {
    await withLog(100, (log) => {
      log.add(reportOf(many(5, () => ({ transport: "websocket" }))), NOW * 1000, DAY_MS);
      const paged: string[] = [];
      for (let after: string | undefined; ; after = paged.at(-1)) {
        const page = log.list({ limit: 2, after }) ?? [];
        if (page.length === 0) break;
        paged.push(...page.map(({ id }) => id));
      }
      expect(new Set(paged).size).toBe(5);
      expect(paged.every((id) => /^r\.\d+$/.test(id))).toBe(true);
    });
  });
});
