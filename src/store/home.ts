import { DurableObject } from "cloudflare:workers";
import { type Env, loadConfig } from "../config.ts";
import type { Item } from "../protocol/items.ts";
import { SCHEMA, toPieces } from "./schema.ts";

/**
 * The home of a conversation tree: one Durable Object that keeps every turn of it as an immutable row. Its name is
 * tenant + home key, so another tenant's key addresses another, empty object.
 *
 * Reading never creates a table; the first settled turn does.
 */

/** A settled turn. `input`, `output` and `response` are JSON text; `response` lacks `output`. */
export interface SettledTurn {
  turn: string;
  /** The turn that this one continues, in the same home. */
  parent: string | null;
  /** Unix milliseconds. */
  createdAt: number;
  input: string;
  output: string;
  response: string;
}

/** What a new turn needs from the past: the items of a chain of turns and of single references, as JSON texts. */
export type Snapshot =
  | { found: true; history: string; references: Record<string, string> }
  | { found: false; missing: "previous" }
  | { found: false; missing: "item"; id: string }
  | { found: false; missing: "room" };

export interface ItemKey {
  id: string;
  turn: string;
}

/** A page of a turn's input items; `data` is the JSON text of their array. */
export interface ItemPage {
  data: string;
  firstId: string | null;
  lastId: string | null;
  hasMore: boolean;
}

/** Largest history given to one turn, in UTF-16 units: an RPC message may have 32 MiB, at up to two bytes a unit. */
const MAX_HISTORY_LENGTH = 12 * 1024 * 1024;

/** The sweep runs no oftener than this. */
const MIN_SWEEP_INTERVAL_MS = 3_600_000;

type TurnRow = { turn: string; part: number; parent: string | null; input: string; output: string };

export class Home extends DurableObject<Env> {
  readonly #sql: SqlStorage;
  #hasTables: boolean | undefined;
  #hasAlarm = false;

  constructor(state: DurableObjectState, env: Env) {
    super(state, env);
    this.#sql = state.storage.sql;
  }

  /**
   * The items of `previous` and all turns before it, oldest first, and of each reference. The whole chain must be
   * there: a turn whose ancestor was deleted cannot be continued.
   */
  snapshot(previous: string | null, references: readonly ItemKey[]): Snapshot {
    const history = previous === null ? "[]" : this.#history(previous);
    if (history === undefined) return { found: false, missing: "previous" };
    if (history.length > MAX_HISTORY_LENGTH) return { found: false, missing: "room" };
    const found: Record<string, string> = {};
    for (const { id, turn } of references) {
      const item = this.#item(id, turn);
      if (item === undefined) return { found: false, missing: "item", id };
      found[id] = item;
    }
    return { found: true, history, references: found };
  }

  /** Keeps a turn for good: one row where it fits, in one transaction. Again is harmless: a caller may not know. */
  async settle(turn: SettledTurn): Promise<void> {
    const { retentionMs } = loadConfig(this.env);
    if (retentionMs > 0 && !this.#hasAlarm) {
      if ((await this.ctx.storage.getAlarm()) === null) await this.ctx.storage.setAlarm(turn.createdAt + retentionMs);
      this.#hasAlarm = true;
    }
    const input = toPieces(turn.input);
    const output = toPieces(turn.output);
    const response = toPieces(turn.response);
    const parts = Math.max(input.length, output.length, response.length);
    this.ctx.storage.transactionSync(() => {
      if (!this.#exists()) this.#sql.exec(SCHEMA);
      for (let part = 0; part < parts; part += 1) {
        this.#sql.exec(
          `INSERT INTO turns (turn, part, parent, created_at, input, output, response) VALUES (?, ?, ?, ?, ?, ?, ?)
           ON CONFLICT DO NOTHING`,
          turn.turn,
          part,
          turn.parent,
          turn.createdAt,
          input[part] ?? "",
          output[part] ?? "",
          response[part] ?? "",
        );
      }
    });
    this.#hasTables = true;
  }

  /** A response's JSON in its two halves, or null when there is none (any more). */
  retrieve(turn: string): { head: string; output: string } | null {
    if (!this.#exists()) return null;
    const rows = this.#sql
      .exec<{ output: string; response: string }>(
        "SELECT output, response FROM turns WHERE turn = ? AND created_at > ? ORDER BY part",
        turn,
        this.#oldest(),
      )
      .toArray();
    if (rows.length === 0) return null;
    return { head: rows.map((row) => row.response).join(""), output: rows.map((row) => row.output).join("") };
  }

  /** A page of a turn's own input, or null when there is no such turn; `after` unknown starts at the beginning. */
  inputItems(turn: string, page: { limit: number; order: "asc" | "desc"; after?: string }): ItemPage | null {
    const rows = this.#turnRows(turn);
    if (rows.length === 0) return null;
    const items = JSON.parse(rows.map((row) => row.input).join("")) as Item[];
    if (page.order === "desc") items.reverse();
    const start = page.after === undefined ? 0 : items.findIndex((item) => item.id === page.after) + 1;
    const data = items.slice(start, start + page.limit);
    return {
      data: JSON.stringify(data),
      firstId: data.at(0)?.id ?? null,
      lastId: data.at(-1)?.id ?? null,
      hasMore: items.length > start + page.limit,
    };
  }

  /** Removes a turn's content. False when there was none. */
  async delete(turn: string): Promise<boolean> {
    if (this.#turnRows(turn).length === 0) return false;
    this.#sql.exec("DELETE FROM turns WHERE turn = ?", turn);
    await this.#releaseIfEmpty();
    return true;
  }

  /** The retention sweep: removes what has outlived `RETENTION_DAYS`, and sets the time of the next one. */
  override async alarm(): Promise<void> {
    this.#hasAlarm = false;
    const { retentionMs } = loadConfig(this.env);
    if (retentionMs === 0 || !this.#exists()) return;
    // An expired turn stays as long as a living one continues it: it is that one's history.
    this.#sql.exec(
      `WITH RECURSIVE needed(turn) AS (
         SELECT turn FROM turns WHERE part = 0 AND created_at > ?1
         UNION
         SELECT turns.parent FROM needed JOIN turns ON turns.turn = needed.turn AND turns.part = 0
         WHERE turns.parent IS NOT NULL
       )
       DELETE FROM turns WHERE turn NOT IN (SELECT turn FROM needed)`,
      this.#oldest(),
    );
    if (await this.#releaseIfEmpty()) return;
    const { next } = this.#sql
      .exec<{ next: number | null }>("SELECT MIN(created_at) AS next FROM turns WHERE created_at > ?", this.#oldest())
      .one();
    const due = (next ?? Date.now()) + retentionMs;
    await this.ctx.storage.setAlarm(Math.max(due, Date.now() + MIN_SWEEP_INTERVAL_MS));
    this.#hasAlarm = true;
  }

  /** Gives the object's storage back when nothing is left in it. */
  async #releaseIfEmpty(): Promise<boolean> {
    if (this.#sql.exec("SELECT 1 FROM turns LIMIT 1").toArray().length > 0) return false;
    await this.ctx.storage.deleteAll();
    this.#hasTables = false;
    this.#hasAlarm = false;
    return true;
  }

  /** A creation time that is just too old to be shown. */
  #oldest(): number {
    const { retentionMs } = loadConfig(this.env);
    return retentionMs === 0 ? -1 : Date.now() - retentionMs;
  }

  /** Whether anything was ever stored here. Asking must not create the table. */
  #exists(): boolean {
    this.#hasTables ??=
      this.#sql.exec("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'turns'").toArray().length > 0;
    return this.#hasTables;
  }

  #turnRows(turn: string): TurnRow[] {
    if (!this.#exists()) return [];
    return this.#sql
      .exec<TurnRow>(
        "SELECT turn, part, parent, input, output FROM turns WHERE turn = ? AND created_at > ? ORDER BY part",
        turn,
        this.#oldest(),
      )
      .toArray();
  }

  /** The items of a chain of turns as one JSON array, or undefined when a link is missing. */
  #history(previous: string): string | undefined {
    if (this.#turnRows(previous).length === 0) return undefined;
    const rows = this.#sql.exec<TurnRow>(
      `WITH RECURSIVE chain(turn, parent, depth) AS (
         SELECT turn, parent, 0 FROM turns WHERE turn = ? AND part = 0
         UNION ALL
         SELECT turns.turn, turns.parent, depth + 1 FROM chain
         JOIN turns ON turns.turn = chain.parent AND turns.part = 0
       )
       SELECT turns.turn, part, turns.parent, input, output FROM chain
       JOIN turns ON turns.turn = chain.turn ORDER BY depth DESC, part`,
      previous,
    );
    const arrays: string[] = [];
    let current: { turn: string; input: string; output: string } | undefined;
    const take = () => {
      if (current) arrays.push(current.input, current.output);
    };
    let isRoot = true;
    for (const row of rows) {
      if (isRoot && row.parent !== null) return undefined;
      isRoot = false;
      if (current?.turn === row.turn) {
        current.input += row.input;
        current.output += row.output;
      } else {
        take();
        current = { turn: row.turn, input: row.input, output: row.output };
      }
    }
    take();
    return `[${arrays
      .map((array) => array.slice(1, -1))
      .filter((inner) => inner !== "")
      .join(",")}]`;
  }

  #item(id: string, turn: string): string | undefined {
    const rows = this.#turnRows(turn);
    if (rows.length === 0) return undefined;
    for (const column of ["output", "input"] as const) {
      const items = JSON.parse(rows.map((row) => row[column]).join("")) as Item[];
      const item = items.find((candidate) => candidate.id === id);
      if (item) return JSON.stringify(item);
    }
    return undefined;
  }
}
