import type { Outcome } from "@responses-edge/turn/decide";
import type { ClosedResponse } from "@responses-edge/turn/response";
import type { UsageEntry } from "@responses-edge/usage-limits";
import type { ModelPrice } from "../../config/index.ts";
import type { Schema } from "../schema.ts";

/** The usage: a row for each hour, key and model. */

/** A usage, with when and by whom. */
export interface UsageRow extends UsageEntry {
  /** When its hour began, Unix milliseconds. */
  start: number;
  key: string;
}

export interface UsageQuery {
  /** Unix milliseconds: hours that begin at or after `from`, and before `until`. */
  from: number;
  until: number;
  keys?: readonly string[] | undefined;
  models?: readonly string[] | undefined;
}

export const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** Names of models that one hour has rows of; a client may invent as many as it likes. */
const MAX_MODELS = 1_000;
const OTHER_MODELS = "other";
const MAX_NAME_LENGTH = 256;

/** Rows that one answer carries. */
export const MAX_USAGE_ROWS = 50_000;

export const USAGE_TABLE = `CREATE TABLE usage (
  start INTEGER NOT NULL, key TEXT NOT NULL, model TEXT NOT NULL,
  requests INTEGER NOT NULL, input INTEGER NOT NULL, cached INTEGER NOT NULL, output INTEGER NOT NULL, cost REAL NOT NULL,
  PRIMARY KEY (start, key, model)) WITHOUT ROWID`;

export class UsageStore {
  readonly #schema: Schema;
  #models: { start: number; names: Set<string> } | undefined;
  #sweptAt = 0;

  constructor(schema: Schema) {
    this.#schema = schema;
  }

  /** Adds to the hour of `now`; of what is older than `retentionMs`, removes it once a day. Within a transaction. */
  add(key: string, entries: readonly UsageEntry[], now: number, retentionMs: number): void {
    if (entries.length === 0) return;
    const start = Math.floor(now / HOUR_MS) * HOUR_MS;
    for (const { model, requests, input, cached, output, cost } of entries) {
      this.#schema.write(
        `INSERT INTO usage (start, key, model, requests, input, cached, output, cost) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT (start, key, model) DO UPDATE SET requests = requests + excluded.requests,
           input = input + excluded.input, cached = cached + excluded.cached, output = output + excluded.output,
           cost = cost + excluded.cost`,
        ...[start, key, this.#nameOf(model, start), requests, input, cached, output, cost],
      );
    }
    if (Math.abs(now - this.#sweptAt) < DAY_MS) return;
    this.#sweptAt = now;
    this.#schema.write("DELETE FROM usage WHERE start < ?", start - retentionMs);
  }

  /** The rows of a query, oldest first; at most `MAX_USAGE_ROWS`. */
  read({ from, until, keys, models }: UsageQuery): UsageRow[] {
    const isAmong = (column: string, wanted: readonly string[] | undefined) =>
      wanted ? ` AND ${column} IN (SELECT value FROM json_each(?))` : "";
    return this.#schema.rows<UsageRow & Record<string, SqlStorageValue>>(
      `SELECT start, key, model, requests, input, cached, output, cost FROM usage
       WHERE start >= ? AND start < ?${isAmong("key", keys)}${isAmong("model", models)}
       ORDER BY start, key, model LIMIT ${MAX_USAGE_ROWS}`,
      ...[from, until, ...[keys, models].filter((each) => each !== undefined).map((each) => JSON.stringify(each))],
    );
  }

  #nameOf(model: string, start: number): string {
    if (this.#models?.start !== start) {
      const rows = this.#schema.rows<{ model: string }>("SELECT DISTINCT model FROM usage WHERE start = ?", start);
      this.#models = { start, names: new Set(rows.map((row) => row.model)) };
    }
    const { names } = this.#models;
    const name = model.slice(0, MAX_NAME_LENGTH);
    if (names.has(name)) return name;
    if (names.size >= MAX_MODELS) return OTHER_MODELS;
    names.add(name);
    return name;
  }
}

/** The usage of turns, before they begin and when they have ended: tokens, and their cost. */

export type Prices = Readonly<Record<string, ModelPrice>>;

/** The cost of a model's tokens, in millionths of a dollar. A model without a price costs nothing. */
export function costOf(
  model: string,
  { input, cached, output }: { input: number; cached: number; output: number },
  prices: Prices,
): number {
  const price = Object.hasOwn(prices, model) ? prices[model] : prices["*"];
  if (!price) return 0;
  const ofInput = Math.max(0, input - cached) * price.input + cached * (price.cached_input ?? price.input);
  return ofInput + output * price.output;
}

/** A turn that has ended, or what was asked like one, as far as its usage shows. */
export interface UsedTurn {
  outcome: Pick<Outcome, "status">;
  closed: Pick<ClosedResponse, "spent" | "head">;
}

/**
 * The usage of a turn: as the model server says; and of rounds that broke off before it did (a client that left), what
 * they have put out, and the prompt as it was estimated. Undefined of a turn of which nothing was used.
 */
export function usageOfTurn(
  { outcome, closed: { spent } }: UsedTurn,
  { model, estimatedInput }: { model: string; estimatedInput: () => number },
  prices: Prices,
): UsageEntry | undefined {
  const { usage, deltas, rounds } = spent;
  const isCut = outcome.status === "failed" || outcome.status === "cancelled";
  const reported = usage?.input_tokens_per_turn?.length ?? (usage ? 1 : 0);
  // A round that nobody has asked the model for uses nothing; that of a fault which came before its first word neither.
  const isAsked = deltas > (usage?.output_tokens ?? 0) || outcome.status === "cancelled";
  const unreported = isCut && isAsked && rounds >= reported;
  const lastInput = usage?.input_tokens_per_turn?.at(-1) ?? usage?.input_tokens;
  const input = (usage?.input_tokens ?? 0) + (unreported ? (lastInput ?? estimatedInput()) : 0);
  const output = Math.max(usage?.output_tokens ?? 0, isCut || !usage ? deltas : 0);
  if (input === 0 && output === 0) return undefined;
  const cached = usage?.input_tokens_details.cached_tokens ?? 0;
  const tokens = { input, cached, output };
  return { model, requests: 1, ...tokens, cost: costOf(model, tokens, prices) };
}
