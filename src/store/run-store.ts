import type { Model } from "../engine/models.ts";
import type { CreateRequest } from "../protocol/create-request.ts";
import type { Item } from "../protocol/items.ts";
import { type Tables, toPieces } from "./tables.ts";

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
  tenant?: string;
  /** Labels of MCP servers that cannot be reached again after a restart: their credentials are not kept. */
  withheld?: string[];
  inConversation: boolean;
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
    for (const [part, body] of toPieces(JSON.stringify(spec)).entries()) {
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
  takeUp(turn: string): { spec: RunSpec; attempts: number } | undefined {
    const rows = this.#sql
      .exec<{ attempts: number; body: string }>("SELECT attempts, body FROM runs WHERE turn = ? ORDER BY part", turn)
      .toArray();
    const [first] = rows;
    if (!first) return undefined;
    this.#sql.exec("UPDATE runs SET attempts = attempts + 1 WHERE turn = ? AND part = 0", turn);
    return { spec: JSON.parse(rows.map((row) => row.body).join("")) as RunSpec, attempts: first.attempts + 1 };
  }

  delete(turn: string): void {
    if (this.#tables.has("runs")) this.#sql.exec("DELETE FROM runs WHERE turn = ?", turn);
  }
}
