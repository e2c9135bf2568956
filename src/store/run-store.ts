import type { Affinity } from "../assembly/session.ts";
import type { Model } from "../contract/engine.ts";
import type { Policy } from "../contract/grants.ts";
import type { Item } from "../items/registry.ts";
import type { CreateRequest } from "../protocol/create-request.ts";
import { isJsonObject } from "../protocol/json.ts";
import type { KeptTrace } from "../telemetry/telemetry.ts";
import type { RunReservation } from "./quota/run-quota.ts";
import { fromCells, type StoredCell, toCells } from "./row-pieces.ts";
import type { Tables } from "./tables.ts";

/** Background runs that are not settled yet: all that is needed to take one up again. */

/** A run as it was accepted. */
export interface RunSpec {
  home: string;
  turn: string;
  parent: string | null;
  /** Unix milliseconds. */
  createdAt: number;
  request: CreateRequest;
  /** This turn's input, references resolved and with ids. */
  input: Item[];
  model: Model;
  cacheSalt: string;
  affinity?: Affinity | undefined;
  tenant?: string;
  /** Labels of MCP servers that cannot be reached again after a restart: their credentials are not kept. */
  withheld?: string[];
  inConversation: boolean;
  /** What its caller's key allows, and what it has reserved of its limits; runs of before, and of others, have neither. */
  policy?: Policy;
  reservation?: RunReservation;
  /** The key that stores it, where what is stored is counted. */
  owner?: string;
  /** The trace that the run belongs to, and its own span, where there are traces. */
  trace?: KeptTrace;
}

/** A run as its rows tell it; `spec` is undefined where they cannot be read. */
export interface NotedRun {
  turn: string;
  spec: RunSpec | undefined;
  /** Unix milliseconds. */
  createdAt: number;
  attempts: number;
}

function readSpec(cells: StoredCell[]): RunSpec | undefined {
  try {
    const spec = JSON.parse(fromCells(cells)) as Partial<RunSpec> | null;
    const isWhole = isJsonObject(spec?.request) && isJsonObject(spec.model) && Array.isArray(spec.input);
    return isWhole ? (spec as RunSpec) : undefined;
  } catch {
    return undefined;
  }
}

export class RunStore {
  readonly #sql: SqlStorage;
  readonly #tables: Tables;

  constructor(sql: SqlStorage, tables: Tables) {
    this.#sql = sql;
    this.#tables = tables;
  }

  insert(spec: RunSpec): void {
    this.#tables.make("runs");
    for (const [part, body] of toCells(JSON.stringify(spec)).entries()) {
      this.#sql.exec(
        "INSERT INTO runs (turn, part, created_at, attempts, body) VALUES (?, ?, ?, 0, ?)",
        spec.turn,
        part,
        spec.createdAt,
        body,
      );
    }
  }

  /** The turns of all runs that are not settled, oldest first. */
  turns(): string[] {
    if (!this.#tables.has("runs")) return [];
    return this.#sql
      .exec<{ turn: string }>("SELECT turn FROM runs WHERE part = 0 ORDER BY created_at")
      .toArray()
      .map((row) => row.turn);
  }

  /** Reads a run and counts one more attempt at taking it up. Undefined when it is settled. */
  takeUp(turn: string): NotedRun | undefined {
    const rows = this.#sql
      .exec<{ created_at: number; attempts: number; body: StoredCell }>(
        "SELECT created_at, attempts, body FROM runs WHERE turn = ? ORDER BY part",
        turn,
      )
      .toArray();
    const [first] = rows;
    if (!first) return undefined;
    this.#sql.exec("UPDATE runs SET attempts = attempts + 1 WHERE turn = ? AND part = 0", turn);
    const spec = readSpec(rows.map((row) => row.body));
    return { turn, spec, createdAt: first.created_at, attempts: first.attempts + 1 };
  }

  /** Counts the attempts at taking a run up anew. */
  forgive(turn: string): void {
    if (this.#tables.has("runs")) this.#sql.exec("UPDATE runs SET attempts = 0 WHERE turn = ? AND part = 0", turn);
  }

  delete(turn: string): void {
    if (this.#tables.has("runs")) this.#sql.exec("DELETE FROM runs WHERE turn = ?", turn);
  }
}
