import type { CountedTool } from "@responses-edge/responses-api/response";
import type { Outcome } from "@responses-edge/turn/decide";
import type { ClosedResponse } from "@responses-edge/turn/response";
import {
  addEnded,
  costOf,
  type Durations,
  type EndedRequests,
  noRequests,
  OTHER_MODELS,
  type Prices,
  type UsageEntry,
  type UsageKind,
  type UsageRow,
} from "@responses-edge/usage-limits";
import type { Schema } from "../objects/schema.ts";

/** The usage: a row for each hour, key, kind and model. */

export interface UsageQuery {
  /** Unix milliseconds: hours that begin at or after `from`, and before `until`. */
  from: number;
  until: number;
  keys?: readonly string[] | undefined;
  models?: readonly string[] | undefined;
  kinds?: readonly UsageKind[] | undefined;
}

export const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** Most models with rows in one hour, and most before one that was never used gets no row: clients may invent any number of names. */
const MAX_MODELS = 1_000;
const MAX_UNUSED_MODELS = 100;
const MAX_NAME_LENGTH = 256;

/** Most rows of one answer. */
export const MAX_USAGE_ROWS = 50_000;

/**
 * `used`: the usage. The bytes in vector stores: `store_bytes` has each store's present size, `stores_bytes` their sum
 * after the changes of an hour. A time's sum is then one row, however often the sizes have changed.
 */
export const USAGE_TABLES = [
  `CREATE TABLE used (
    start INTEGER NOT NULL, key TEXT NOT NULL, kind TEXT NOT NULL, model TEXT NOT NULL,
    requests INTEGER NOT NULL, input INTEGER NOT NULL, cached INTEGER NOT NULL, output INTEGER NOT NULL,
    units REAL NOT NULL, cost REAL NOT NULL,
    errors INTEGER NOT NULL, ms INTEGER NOT NULL, durations TEXT NOT NULL, first_tokens TEXT NOT NULL,
    PRIMARY KEY (start, key, kind, model)) WITHOUT ROWID`,
  "CREATE TABLE store_bytes (store TEXT NOT NULL PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID",
  "CREATE TABLE stores_bytes (start INTEGER NOT NULL PRIMARY KEY, bytes INTEGER NOT NULL)",
];

export class UsageStore {
  readonly #schema: Schema;
  #models: { start: number; names: Set<string> } | undefined;
  #sweptAt = 0;

  constructor(schema: Schema) {
    this.#schema = schema;
  }

  /** Adds to the hour of `now`. Once a day, removes rows older than `retentionMs`. Within a transaction. */
  add(key: string, entries: readonly UsageEntry[], now: number, retentionMs: number): void {
    if (entries.length === 0) return;
    const start = Math.floor(now / HOUR_MS) * HOUR_MS;
    for (const { kind = "completions", requests, input, cached, output, units = 0, cost, ...entry } of entries) {
      const row = [start, key, kind, this.#nameOf(entry.model, start, requests > 0 ? MAX_MODELS : MAX_UNUSED_MODELS)];
      const { errors, ms, durations, firstTokens } = this.#endedIn(row, entry.ended);
      this.#schema.write(
        `INSERT INTO used (start, key, kind, model, requests, input, cached, output, units, cost, errors, ms, durations, first_tokens)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT (start, key, kind, model) DO UPDATE SET requests = requests + excluded.requests,
           input = input + excluded.input, cached = cached + excluded.cached, output = output + excluded.output,
           units = units + excluded.units, cost = cost + excluded.cost, errors = excluded.errors, ms = excluded.ms,
           durations = excluded.durations, first_tokens = excluded.first_tokens`,
        ...[...row, requests, input, cached, output, units, cost],
        ...[errors, ms, JSON.stringify(durations), JSON.stringify(firstTokens)],
      );
    }
    if (Math.abs(now - this.#sweptAt) < DAY_MS) return;
    this.#sweptAt = now;
    const oldest = start - retentionMs;
    this.#schema.write("DELETE FROM used WHERE start < ?", oldest);
    // The last sum holds until the next one.
    this.#schema.write(
      "DELETE FROM stores_bytes WHERE start < (SELECT MAX(start) FROM stores_bytes WHERE start < ?)",
      oldest,
    );
  }

  /** The ended requests of a row, with further ones. */
  #endedIn(row: readonly (string | number)[], ended: EndedRequests | undefined): EndedRequests {
    const select = `SELECT ${ENDED} FROM used WHERE start = ? AND key = ? AND kind = ? AND model = ?`;
    const [before] = this.#schema.rows<EndedCells>(select, ...row);
    const sum = before ? fromCells(before) : noRequests();
    return ended ? addEnded(sum, ended) : sum;
  }

  /** Notes the size of a vector store at `now`. Within a transaction. */
  noteStore(id: string, bytes: number, now: number): void {
    const [before] = this.#schema.rows<{ bytes: number }>("SELECT bytes FROM store_bytes WHERE store = ?", id);
    const change = bytes - (before?.bytes ?? 0);
    if (change === 0) return;
    if (bytes === 0) this.#schema.write("DELETE FROM store_bytes WHERE store = ?", id);
    else this.#schema.write("INSERT OR REPLACE INTO store_bytes (store, bytes) VALUES (?, ?)", id, bytes);
    const [last] = this.#schema.rows<{ start: number; bytes: number }>(
      "SELECT start, bytes FROM stores_bytes ORDER BY start DESC LIMIT 1",
    );
    // A clock that went back changes the last sum.
    const start = Math.max(Math.floor(now / HOUR_MS) * HOUR_MS, last?.start ?? 0);
    this.#schema.write(
      "INSERT OR REPLACE INTO stores_bytes (start, bytes) VALUES (?, ?)",
      ...[start, (last?.bytes ?? 0) + change],
    );
  }

  /** The bytes in vector stores before each of these times, Unix milliseconds. */
  storeBytes(times: readonly number[]): number[] {
    const select = "SELECT bytes FROM stores_bytes WHERE start < ? ORDER BY start DESC LIMIT 1";
    return times.map((time) => this.#schema.rows<{ bytes: number }>(select, time)[0]?.bytes ?? 0);
  }

  /** The rows of a query, oldest first; at most `MAX_USAGE_ROWS`. */
  read({ from, until, ...among }: UsageQuery): UsageRow[] {
    const columns = [
      ["key", among.keys],
      ["model", among.models],
      ["kind", among.kinds],
    ] as const;
    const wanted = columns.filter(([, values]) => values !== undefined);
    const conditions = wanted.map(([column]) => ` AND ${column} IN (SELECT value FROM json_each(?))`);
    const rows = this.#schema.rows<Omit<UsageRow, "ended"> & EndedCells>(
      `SELECT start, key, kind, model, requests, input, cached, output, units, cost, ${ENDED} FROM used
       WHERE start >= ? AND start < ?${conditions.join("")} ORDER BY start, key, kind, model LIMIT ${MAX_USAGE_ROWS}`,
      ...[from, until, ...wanted.map(([, values]) => JSON.stringify(values))],
    );
    return rows.map(({ errors, ms, durations, first_tokens, ...row }) => {
      return { ...row, ended: fromCells({ errors, ms, durations, first_tokens }) };
    });
  }

  #nameOf(model: string, start: number, maxModels: number): string {
    if (this.#models?.start !== start) {
      const rows = this.#schema.rows<{ model: string }>("SELECT DISTINCT model FROM used WHERE start = ?", start);
      this.#models = { start, names: new Set(rows.map((row) => row.model)) };
    }
    const { names } = this.#models;
    const name = model.slice(0, MAX_NAME_LENGTH);
    if (names.has(name)) return name;
    if (names.size >= maxModels) return OTHER_MODELS;
    names.add(name);
    return name;
  }
}

const ENDED = "errors, ms, durations, first_tokens";

type EndedCells = { errors: number; ms: number; durations: string; first_tokens: string };

function fromCells({ errors, ms, durations, first_tokens: firstTokens }: EndedCells): EndedRequests {
  return {
    errors,
    ms,
    durations: JSON.parse(durations) as Durations,
    firstTokens: JSON.parse(firstTokens) as Durations,
  };
}

/** A turn that has ended, or a passed request, with the parts that show its usage. */
export interface UsedTurn {
  outcome: Pick<Outcome, "status">;
  closed: Pick<ClosedResponse, "spent" | "head">;
  /** Absent: completions. */
  kind?: UsageKind;
}

/** The kinds of the tools whose use is counted. */
const TOOLS: Readonly<Record<CountedTool, UsageKind>> = {
  code_interpreter: "code_interpreter_sessions",
  file_search: "file_searches",
  image_generation: "images",
  web_search: "web_searches",
};

/**
 * The usage of a turn and its tools: as the model server reports it. Rounds that were cut off before their report
 * (because the client left) count their output and the estimated prompt. Empty for a turn that used nothing.
 */
export function usageOfTurn(
  { outcome, closed: { spent }, kind }: UsedTurn,
  { model, estimatedInput }: { model: string; estimatedInput: () => number },
  prices: Prices,
): UsageEntry[] {
  const { usage, deltas, rounds, toolCalls, guarded } = spent;
  const isCut = outcome.status === "failed" || outcome.status === "cancelled";
  const reported = usage?.input_tokens_per_turn?.length ?? (usage ? 1 : 0);
  // A round that never reached the model uses nothing, and neither does one that failed before its first word.
  const isAsked = deltas > (usage?.output_tokens ?? 0) || outcome.status === "cancelled";
  const unreported = isCut && isAsked && rounds >= reported;
  const lastInput = usage?.input_tokens_per_turn?.at(-1) ?? usage?.input_tokens;
  const input = (usage?.input_tokens ?? 0) + (unreported ? (lastInput ?? estimatedInput()) : 0);
  const output = Math.max(usage?.output_tokens ?? 0, isCut || !usage ? deltas : 0);
  const entries: UsageEntry[] = [];
  if (input > 0 || output > 0) {
    const tokens = { input, cached: usage?.input_tokens_details.cached_tokens ?? 0, output };
    entries.push({ ...(kind && { kind }), model, requests: 1, ...tokens, cost: costOf(model, tokens, prices) });
  }
  for (const tool in toolCalls) {
    if (!isCounted(tool) || toolCalls[tool] === 0) continue;
    const used = { ...NO_TOKENS, units: toolCalls[tool] };
    entries.push({ kind: TOOLS[tool], model: tool, requests: 1, ...used, cost: costOf(tool, used, prices) });
  }
  if (guarded && guarded.tokens > 0) {
    const used = { ...NO_TOKENS, input: guarded.tokens };
    const { model: guard } = guarded;
    entries.push({ kind: "moderations", model: guard, requests: 1, ...used, cost: costOf(guard, used, prices) });
  }
  return entries;
}

function isCounted(tool: string): tool is CountedTool {
  return Object.hasOwn(TOOLS, tool);
}

const NO_TOKENS = { input: 0, cached: 0, output: 0 };
