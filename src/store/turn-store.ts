import {
  type ChainedTurn,
  Chains,
  type Column,
  concatArrays,
  EMPTY_HISTORY,
  type History,
  historyTooLong,
  readText,
} from "./history.ts";
import { MAX_READ_LENGTH } from "./limits.ts";
import { type Cell, fromCell, fromCells, mayContinue, type StoredCell, toCells } from "./row-pieces.ts";
import type { Tables } from "./tables.ts";

/**
 * The settled turns of a home: immutable rows, and the histories that they make up.
 *
 * Whether a response is there for those who ask is decided here, and only here. It is not when it was deleted (its rows
 * are removed, or have no `response`) or has expired (it was created at `oldest` or before). Two things outlive it: a
 * younger response goes on to have it in its history until it is deleted, and a conversation keeps its items.
 */

/** A settled turn. */
export interface SettledTurn extends ChainedTurn {
  /** Its own position in the conversation; null when it is no part of one. */
  position: number | null;
  /** The end of a run's event log, as `event-log.ts` gives it; null or absent where it has none, or its blocks have all of it. */
  log?: Cell | null;
  /** The key that stores it, where what is stored is counted (`home-stored.ts`). */
  owner?: string | null | undefined;
}

/** A response as two JSON texts: all of it but `output`, and `output`. */
export interface StoredResponse {
  head: string;
  output: string;
}

/** The first row of a turn with a response: each text is whole, or its beginning. */
export interface NodeRow {
  turn: string;
  /** Unix milliseconds. */
  createdAt: number;
  position: number | null;
  base: number | null;
  input: string;
  output: string;
  response: string;
}

type PartRow = { turn: string; input: StoredCell; output: StoredCell; messages: StoredCell | null };

/** The history of a response: its own items and those of all turns before it. */
export interface ResponseHistory {
  /** The position up to which its conversation came before all of that, when it began in one. */
  base: number | null;
  history: History;
}

/** SQL: the bytes that the texts of a row of `turns` take, as they are written. */
export const TEXT_BYTES = ["input", "output", "response", "messages", "log"]
  .map((column) => `ifnull(octet_length(${column}), 0)`)
  .join(" + ");

export class TurnStore {
  readonly #sql: SqlStorage;
  readonly #tables: Tables;
  readonly #oldest: () => number;
  readonly #chains: Chains;

  /** `oldest` gives a creation time, Unix milliseconds: what was created then or before has expired. */
  constructor(sql: SqlStorage, tables: Tables, oldest: () => number) {
    this.#sql = sql;
    this.#tables = tables;
    this.#oldest = oldest;
    this.#chains = new Chains(sql);
  }

  /** Writes a turn: one row where it fits. Gives how many there are. To be called within a transaction. */
  insert(turn: SettledTurn): number {
    this.#tables.make("turns");
    const input = toCells(turn.input);
    const output = toCells(turn.output);
    const response = turn.response === null ? [] : toCells(turn.response);
    const messages = turn.messages === null ? [] : toCells(turn.messages);
    const parts = Math.max(input.length, output.length, response.length, messages.length);
    for (let part = 0; part < parts; part += 1) {
      this.#sql.exec(
        `INSERT INTO turns (turn, part, parent, created_at, position, base, input, output, response, messages, log, owner)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
        turn.turn,
        part,
        turn.parent,
        turn.createdAt,
        turn.position,
        turn.base,
        input[part] ?? "",
        output[part] ?? "",
        response[part] ?? (turn.response === null ? null : ""),
        messages[part] ?? null,
        part === 0 ? (turn.log ?? null) : null,
        turn.owner ?? null,
      );
    }
    this.#chains.add(turn);
    return parts;
  }

  /** A response, or null when there is none, or none any more. */
  response(turn: string): StoredResponse | null {
    if (!this.#tables.has("turns")) return null;
    const rows = this.#sql
      .exec<{ output: StoredCell; response: StoredCell }>(
        "SELECT output, response FROM turns WHERE turn = ? AND created_at > ? AND response IS NOT NULL ORDER BY part",
        turn,
        this.#oldest(),
      )
      .toArray();
    if (rows.length === 0) return null;
    return { head: fromCells(rows.map((row) => row.response)), output: fromCells(rows.map((row) => row.output)) };
  }

  /**
   * The responses that are there and whose turns' names begin with `tree`, in the order of these: those past `after`, read as they
   * are taken.
   */
  *nodes(tree: string, order: "asc" | "desc", after: string | undefined): Generator<NodeRow> {
    if (!this.#tables.has("turns")) return;
    // No letter of a turn's name comes after "~".
    const [from, to] = order === "asc" ? [after ?? tree, `${tree}~`] : [tree, after ?? `${tree}~`];
    type Row = Omit<NodeRow, "input" | "output" | "response"> & Record<"input" | "output" | "response", StoredCell>;
    const rows = this.#sql.exec<Row>(
      `SELECT turn, created_at AS createdAt, position, base, input, output, response FROM turns
       WHERE turn > ? AND turn < ? AND part = 0 AND response IS NOT NULL AND created_at > ?
       ORDER BY turn ${order === "asc" ? "ASC" : "DESC"}`,
      from,
      to,
      this.#oldest(),
    );
    for (const { input, output, response, ...row } of rows) {
      yield { ...row, input: fromCell(input), output: fromCell(output), response: fromCell(response) };
    }
  }

  /** The whole response of a first row, but its output. */
  head({ turn, response }: NodeRow): string {
    return mayContinue(response) ? (this.#text(turn, "response") ?? response) : response;
  }

  /** Whether a turn keeps an event log, or the end of one. */
  hasLog(turn: string): boolean {
    if (!this.#tables.has("turns")) return false;
    const kept = "SELECT 1 FROM turns WHERE turn = ? AND part = 0 AND log IS NOT NULL";
    return this.#sql.exec(kept, turn).toArray().length > 0;
  }

  /** The event log, or the end of one, that a turn keeps, if it does. */
  log(turn: string): string | undefined {
    return this.hasLog(turn) ? this.#text(turn, "log") : undefined;
  }

  /** Response and output of a turn, one after the other, expired or not. */
  texts(turn: string): string {
    return (this.#text(turn, "response") ?? "") + (this.#text(turn, "output") ?? "");
  }

  /** A turn as it was written, expired or not, but for its log; undefined when there is none. */
  settled(turn: string): SettledTurn | undefined {
    if (!this.#tables.has("turns")) return undefined;
    type Texts = { input: StoredCell; output: StoredCell; response: StoredCell | null; messages: StoredCell | null };
    type Row = Pick<SettledTurn, "turn" | "parent" | "position" | "base"> & Texts & { created_at: number };
    const rows = this.#sql
      .exec<Row>(
        `SELECT turn, parent, created_at, position, base, input, output, response, messages
         FROM turns WHERE turn = ? ORDER BY part`,
        turn,
      )
      .toArray();
    const [first] = rows;
    if (!first) return undefined;
    const whole = (column: keyof Texts) => fromCells(rows.map((row) => row[column]));
    const { parent, created_at: createdAt, position, base, response, messages } = first;
    return {
      ...{ turn, parent, createdAt, position, base },
      input: whole("input"),
      output: whole("output"),
      messages: messages === null ? null : whole("messages"),
      response: response === null ? null : whole("response"),
    };
  }

  /** Whether a response is there. */
  hasResponse(turn: string): boolean {
    if (!this.#tables.has("turns")) return false;
    const there = "SELECT 1 FROM turns WHERE turn = ? AND part = 0 AND created_at > ? AND response IS NOT NULL";
    return this.#sql.exec(there, turn, this.#oldest()).toArray().length > 0;
  }

  /** Whether a turn is kept, with its response or without, expired or not. */
  has(turn: string): boolean {
    if (!this.#tables.has("turns")) return false;
    return this.#sql.exec("SELECT 1 FROM turns WHERE turn = ? AND part = 0", turn).toArray().length > 0;
  }

  /** One side of a turn as the JSON text of an array, or undefined when there is no such turn, or it has expired. */
  items(turn: string, side: "input" | "output"): string | undefined {
    return this.#text(turn, side, this.#oldest());
  }

  /** The same for a turn of the conversation, which keeps the items of its turns also when these have expired. */
  conversationItems(turn: string, side: "input" | "output"): string | undefined {
    return this.#text(turn, side);
  }

  #text(turn: string, column: Column, oldest?: number): string | undefined {
    return this.#tables.has("turns") ? readText(this.#sql, turn, column, oldest) : undefined;
  }

  /** Whether a turn is part of the conversation. */
  isInConversation(turn: string): boolean {
    if (!this.#tables.has("turns")) return false;
    const rows = this.#sql.exec("SELECT 1 FROM turns WHERE turn = ? AND part = 0 AND position IS NOT NULL", turn);
    return rows.toArray().length > 0;
  }

  /** The history of a response. Undefined when the response is not there (any more), or one before it was deleted. */
  history(previous: string): ResponseHistory | undefined {
    const chain = this.#tables.has("turns") ? this.#chains.of(previous) : undefined;
    if (!chain || chain.createdAt <= this.#oldest()) return undefined;
    return { base: chain.base, history: { items: `[${chain.items}]`, messages: `[${chain.messages}]` } };
  }

  /** To be called when a transaction was rolled back. */
  forget(): void {
    this.#chains.clear();
  }

  /**
   * What the conversation's turns up to a position brought, oldest first, with the items that were taken out of it since.
   * Throws the 400 of a conversation that is too long to be read.
   */
  conversationHistory(upTo: number): History {
    if (!this.#tables.has("turns")) return EMPTY_HISTORY;
    const rows = this.#sql.exec<PartRow>(
      `SELECT turn, input, output, messages FROM turns
       WHERE position IS NOT NULL AND position <= ? ORDER BY position, part`,
      upTo,
    );
    return joinParts(rows);
  }

  /** The turns of the conversation in the order asked for: all of them, or those from the turn `first` on. */
  conversationTurns(order: "asc" | "desc", first?: string): string[] {
    if (!this.#tables.has("turns")) return [];
    const [sorting, atOrPast] = order === "asc" ? ["ASC", ">="] : ["DESC", "<="];
    const from =
      first === undefined
        ? "position IS NOT NULL"
        : `position ${atOrPast} (SELECT position FROM turns WHERE turn = ? AND part = 0)`;
    return this.#sql
      .exec<{ turn: string }>(
        `SELECT turn FROM turns WHERE part = 0 AND ${from} ORDER BY position ${sorting}`,
        ...(first === undefined ? [] : [first]),
      )
      .toArray()
      .map((row) => row.turn);
  }

  /** The last position taken in the conversation; 0 when it is empty. */
  lastPosition(): number {
    if (!this.#tables.has("turns")) return 0;
    return this.#sql.exec<{ last: number | null }>("SELECT MAX(position) AS last FROM turns").one().last ?? 0;
  }

  /**
   * Removes a response. What its conversation keeps are the items; outside of one nothing is kept.
   * False when there was none.
   */
  delete(turn: string): boolean {
    if (!this.response(turn)) return false;
    this.forget();
    this.#sql.exec("UPDATE turns SET response = NULL, log = NULL WHERE turn = ? AND position IS NOT NULL", turn);
    this.#sql.exec("DELETE FROM turns WHERE turn = ? AND position IS NULL", turn);
    return true;
  }

  /**
   * Removes the items that a conversation kept which is gone, unless a response is kept that began in it: then they are its history.
   */
  sweepItems(): void {
    if (!this.#tables.has("turns")) return;
    const needed = "SELECT 1 FROM turns WHERE base IS NOT NULL AND response IS NOT NULL LIMIT 1";
    if (this.#sql.exec(needed).toArray().length > 0) return;
    this.forget();
    this.#sql.exec("DELETE FROM turns WHERE response IS NULL");
  }

  /**
   * Removes what has expired. An expired turn stays as long as a living one continues it, being that one's history, and
   * as long as its conversation, or a living turn that began in it, does.
   */
  sweep(conversationLives: boolean): void {
    if (!this.#tables.has("turns")) return;
    this.forget();
    const oldest = this.#oldest();
    const conversationNeeded =
      conversationLives ||
      this.#sql.exec("SELECT 1 FROM turns WHERE base IS NOT NULL AND created_at > ? LIMIT 1", oldest).toArray().length >
        0;
    this.#sql.exec(
      `WITH RECURSIVE needed(turn) AS (
         SELECT turn FROM turns WHERE part = 0 AND (created_at > ? OR (position IS NOT NULL AND ?))
         UNION
         SELECT turns.parent FROM needed JOIN turns ON turns.turn = needed.turn AND turns.part = 0
         WHERE turns.parent IS NOT NULL
       )
       DELETE FROM turns WHERE turn NOT IN (SELECT turn FROM needed)`,
      oldest,
      conversationNeeded ? 1 : 0,
    );
  }

  /** When the oldest turn that has not expired was created (Unix milliseconds), or null when there is none. */
  oldestLiving(): number | null {
    if (!this.#tables.has("turns")) return null;
    const oldest = "SELECT MIN(created_at) AS next FROM turns WHERE created_at > ?";
    return this.#sql.exec<{ next: number | null }>(oldest, this.#oldest()).one().next;
  }

  /** Whether there is a turn that has not expired, but perhaps `except`. Reads the first one that it finds. */
  hasLiving(except = ""): boolean {
    if (!this.#tables.has("turns")) return false;
    const living = "SELECT 1 FROM turns WHERE created_at > ? AND turn <> ? LIMIT 1";
    return this.#sql.exec(living, this.#oldest(), except).toArray().length > 0;
  }

  /** Bytes that a turn's texts take in its rows; 0 where there is no such turn. Reads none of them. */
  bytes(turn: string): number {
    if (!this.#tables.has("turns")) return 0;
    const sum = `SELECT ifnull(SUM(${TEXT_BYTES}), 0) AS bytes FROM turns WHERE turn = ?`;
    return this.#sql.exec<{ bytes: number }>(sum, turn).one().bytes;
  }

  /** All turns, oldest first. */
  all(): string[] {
    if (!this.#tables.has("turns")) return [];
    const rows = this.#sql.exec<{ turn: string }>("SELECT turn FROM turns WHERE part = 0 ORDER BY created_at, turn");
    return rows.toArray().map(({ turn }) => turn);
  }

  isEmpty(): boolean {
    return !this.#tables.has("turns") || this.#sql.exec("SELECT 1 FROM turns LIMIT 1").toArray().length === 0;
  }
}

/** The input and output of each turn, and the messages behind them, of rows in order. Throws the 400 when they are too long to be read. */
function joinParts(rows: Iterable<PartRow>): History {
  const arrays: string[] = [];
  const messages: string[] = [];
  let length = 0;
  let turn: string | undefined;
  for (const row of rows) {
    const [input, output] = [fromCell(row.input), fromCell(row.output)];
    const raw = row.messages === null ? "" : fromCell(row.messages);
    length += input.length + output.length + raw.length;
    if (length > MAX_READ_LENGTH) throw historyTooLong();
    if (row.turn === turn) {
      arrays[arrays.length - 2] += input;
      arrays[arrays.length - 1] += output;
      messages[messages.length - 1] += raw;
      continue;
    }
    turn = row.turn;
    arrays.push(input, output);
    messages.push(raw);
  }
  return { items: concatArrays(arrays), messages: concatArrays(messages) };
}
