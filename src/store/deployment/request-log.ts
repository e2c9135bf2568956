import {
  addCounts,
  addEnded,
  countOutcome,
  type EndedRequests,
  noRequests,
  type RequestOutcome,
} from "@responses-edge/usage-limits";
import type { RequestSummary } from "../../contract/admin-objects.ts";
import type { Schema } from "../objects/schema.ts";

/**
 * The log of ended requests of all tenants, for the operator, and their sums over time. It has numbers, names and errors, never
 * content. A row is one request; the oldest are removed.
 */

export const REQUEST_TABLES = [
  // The body is a `RequestSummary` as JSON. The other columns are those that a query asks for.
  `CREATE TABLE requests (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, at INTEGER NOT NULL, tenant TEXT NOT NULL, key TEXT, model TEXT,
    server TEXT, status TEXT NOT NULL, ms INTEGER NOT NULL, body TEXT NOT NULL)`,
  "CREATE INDEX requests_of_tenant ON requests (tenant, seq)",
  // The sums of all requests that began within `width` seconds from `start` (Unix seconds): `Sums` as JSON.
  `CREATE TABLE sums (
    width INTEGER NOT NULL, start INTEGER NOT NULL, body TEXT NOT NULL, PRIMARY KEY (width, start)) WITHOUT ROWID`,
];

/** The worst of a time that a process saw at its reports. */
export interface Peaks {
  /** By the process: the most requests at the model servers, and waiting for saturated ones. */
  load: Record<string, [inFlight: number, waiting: number]>;
  /** Names of model servers that a process did not reach, or ejected. */
  down: string[];
  /** The least. Undefined where nothing watches the disk. Bytes. */
  freeDisk?: number | undefined;
}

/** The sums of some requests. Times are milliseconds. */
export interface Sums extends EndedRequests {
  peaks: Peaks;
  requests: number;
  input: number;
  output: number;
  /** The output tokens of requests whose generation was timed, and its time: from the first token to the end. */
  generated: number;
  generatingMs: number;
  byStatus: Record<string, number>;
}

/** The sums of no requests, to which others are added. */
export function noSums(): Sums {
  const counts = { requests: 0, input: 0, output: 0, generated: 0, generatingMs: 0 };
  return { ...counts, byStatus: {}, peaks: { load: {}, down: [] }, ...noRequests() };
}

/** Sums of requests that began in the same time. */
export interface SumsRow {
  /** Unix seconds. */
  start: number;
  sums: Sums;
}

/** Requests that have ended, as an isolate reports them. */
export interface RequestReport {
  /** Those that have a row. */
  rows: readonly RequestSummary[];
  /** The sums of each minute in which some of them began. */
  minutes: readonly SumsRow[];
}

/** The sums of each time of `width` seconds that begins at `from` or later, and before `until`. Unix seconds. */
export interface SumsQuery {
  width: typeof MINUTE | typeof HOUR;
  from: number;
  until: number;
}

export interface RequestQuery {
  tenant?: string | undefined;
  key?: string | undefined;
  model?: string | undefined;
  server?: string | undefined;
  /** `error`: all that ended with an error. */
  status?: string | undefined;
  minMs?: number | undefined;
  /** Unix seconds: requests that began at `from` or later, and before `until`. */
  from?: number | undefined;
  until?: number | undefined;
  /** The `id` of an entry: those before it. */
  after?: string | undefined;
  limit: number;
}

/** Seconds of a minute and an hour, and for how long the sums of minutes are kept. Those of hours are kept as usage is. */
export const MINUTE = 60;
export const HOUR = 3_600;
export const MINUTES_KEPT_S = 2 * 86_400;

/** Most requests in the log. */
const MAX_ROWS = 100_000;

/** Rows that are added between two removals of old ones. */
const SWEEP_EVERY = 1_000;

type Row = { seq: number; body: string };

export class RequestLog {
  readonly #schema: Schema;
  readonly #maxRows: number;
  #added = 0;

  /** `maxRows`: most requests. */
  constructor(schema: Schema, maxRows = MAX_ROWS) {
    this.#schema = schema;
    this.#maxRows = maxRows;
  }

  /**
   * Adds a report. Regularly removes what is older than `retentionMs`, or too much. Within a transaction. `now` in Unix
   * milliseconds.
   */
  add({ rows, minutes }: RequestReport, now: number, retentionMs: number): void {
    this.#schema.write(
      `INSERT INTO requests (id, at, tenant, key, model, server, status, ms, body)
       SELECT value ->> 'id', value ->> 'created_at', value ->> 'tenant', value ->> 'api_key_id', value ->> 'model',
         value ->> 'server', value ->> 'status', value ->> 'duration_ms', value FROM json_each(?)`,
      JSON.stringify(rows),
    );
    for (const width of [MINUTE, HOUR]) this.#addSums(width, minutes);
    const sweeps = Math.floor(this.#added / SWEEP_EVERY);
    this.#added += rows.length;
    if (sweeps !== 0 && sweeps === Math.floor(this.#added / SWEEP_EVERY)) return;
    const oldest = Math.floor((now - retentionMs) / 1000);
    const excess = "SELECT seq FROM requests ORDER BY seq DESC LIMIT 1 OFFSET ?";
    const [last] = this.#schema.rows<{ seq: number }>(excess, this.#maxRows);
    this.#schema.write("DELETE FROM requests WHERE seq <= ? OR at < ?", last?.seq ?? 0, oldest);
    this.#schema.write("DELETE FROM sums WHERE width = ? AND start < ?", MINUTE, now / 1000 - MINUTES_KEPT_S);
    this.#schema.write("DELETE FROM sums WHERE width = ? AND start < ?", HOUR, oldest);
  }

  /** Adds to the sums of a width, each in its time. */
  #addSums(width: number, added: readonly SumsRow[]): void {
    const byStart = Map.groupBy(added, ({ start }) => start - (start % width));
    for (const [start, all] of byStart) {
      const [row] = this.#schema.rows<{ body: string }>(
        "SELECT body FROM sums WHERE width = ? AND start = ?",
        width,
        start,
      );
      const before = row ? sumsFrom(row.body) : noSums();
      const body = JSON.stringify(all.reduce((sum, { sums }) => addSums(sum, sums), before));
      this.#schema.write("INSERT OR REPLACE INTO sums (width, start, body) VALUES (?, ?, ?)", width, start, body);
    }
  }

  /** Requests, the last that ended first; null if there is no entry `after`. */
  list({
    tenant,
    key,
    model,
    server,
    status,
    minMs,
    from,
    until,
    after,
    limit,
  }: RequestQuery): RequestSummary[] | null {
    const before = after === undefined ? Number.MAX_SAFE_INTEGER : this.#sequenceOf(after);
    if (before === undefined) return null;
    const conditions = [
      ["seq <", before],
      ["tenant =", tenant],
      ["key =", key],
      ["model =", model],
      ["server =", server],
      ["status =", status === "error" ? undefined : status],
      ["(body ->> 'error' IS NOT NULL) =", status === "error" ? 1 : undefined],
      ["ms >=", minMs],
      ["at >=", from],
      ["at <", until],
    ] as const;
    const wanted = conditions.filter(([, value]) => value !== undefined);
    const rows = this.#schema.rows<Row>(
      `SELECT seq, body FROM requests WHERE ${wanted.map(([text]) => `${text} ?`).join(" AND ")} ORDER BY seq DESC LIMIT ?`,
      ...wanted.map(([, value]) => value as SqlStorageValue),
      limit,
    );
    return rows.map(({ seq, body }) => {
      const entry = JSON.parse(body) as RequestSummary;
      return { ...entry, id: isShared(entry) ? `${entry.id}.${seq}` : entry.id };
    });
  }

  #sequenceOf(id: string): number | undefined {
    const numbered = /\.(\d{1,15})$/.exec(id)?.[1];
    const [row] = this.#schema.rows<{ seq: number }>(
      `SELECT seq FROM requests WHERE ${numbered === undefined ? "id" : "seq"} = ? LIMIT 1`,
      numbered === undefined ? id : Number(numbered),
    );
    return row?.seq;
  }

  /** The sums of minutes or hours. */
  sums({ width, from, until }: SumsQuery): SumsRow[] {
    const select = "SELECT start, body FROM sums WHERE width = ? AND start >= ? AND start < ? ORDER BY start";
    const rows = this.#schema.rows<{ start: number; body: string }>(select, width, from, until);
    return rows.map(({ start, body }) => ({ start, sums: sumsFrom(body) }));
  }

  /** Forgets the requests of a tenant. The sums name none. */
  eraseTenant(tenant: string): void {
    this.#schema.write("DELETE FROM requests WHERE tenant = ?", tenant);
  }
}

/** Creates of a WebSocket, and attempts at a request of a batch, share the id of their request. */
function isShared({ transport }: RequestSummary): boolean {
  return transport === "websocket" || transport === "batch";
}

function sumsFrom(body: string): Sums {
  return { ...noSums(), ...(JSON.parse(body) as Partial<Sums>) };
}

/** Counts a request that has ended, and its tokens. */
export function countInSums(
  sums: Sums,
  status: RequestSummary["status"],
  outcome: RequestOutcome,
  { input, output }: { input: number; output: number },
): void {
  const { isError, ms, firstTokenMs } = outcome;
  sums.requests += 1;
  sums.input += input;
  sums.output += output;
  sums.byStatus[status] = (sums.byStatus[status] ?? 0) + 1;
  countOutcome(sums, outcome);
  if (isError || firstTokenMs === undefined || output === 0) return;
  sums.generated += output;
  sums.generatingMs += ms - firstTokenMs;
}

/** Adds what a process saw. Changes `peaks`. */
export function addPeaks(peaks: Peaks, other: Readonly<Peaks>): void {
  for (const [process, [inFlight, waiting]] of Object.entries(other.load)) {
    const [mostInFlight, mostWaiting] = peaks.load[process] ?? [0, 0];
    peaks.load[process] = [Math.max(inFlight, mostInFlight), Math.max(waiting, mostWaiting)];
  }
  peaks.down = [...new Set([...peaks.down, ...other.down])];
  const { freeDisk = Number.POSITIVE_INFINITY } = peaks;
  if (other.freeDisk !== undefined) peaks.freeDisk = Math.min(freeDisk, other.freeDisk);
}

/** Adds sums to others. Gives `sum`, which it changes. */
export function addSums(sum: Sums, other: Readonly<Sums>): Sums {
  sum.requests += other.requests;
  sum.input += other.input;
  sum.output += other.output;
  sum.generated += other.generated;
  sum.generatingMs += other.generatingMs;
  addCounts(sum.byStatus, other.byStatus);
  addPeaks(sum.peaks, other.peaks);
  return addEnded(sum, other);
}
