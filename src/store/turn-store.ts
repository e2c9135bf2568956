import { type ChainedTurn, Chains, concatArrays, type History, historyTooLong, readText } from "./history.ts";
import { type Cell, fromCell, fromCells, mayContinue, type StoredCell, toCells } from "./row-pieces.ts";
import { MAX_READ_LENGTH } from "./rpc.ts";
import type { Tables } from "./tables.ts";

/**
 * The settled turns of a home: immutable rows, and the histories that they make up.
 *
 * This file alone decides whether a response is there for those who ask. It is not when it was deleted (its rows
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
  readonly #tables: Tables;
  readonly #oldest: () => number;
  readonly #chains: Chains;

  /** `oldest` gives a creation time, Unix milliseconds: what was created then or before has expired. */
  constructor(tables: Tables, oldest: () => number) {
    this.#tables = tables;
    this.#oldest = oldest;
    this.#chains = new Chains(tables);
  }

  /** Writes a turn: one row where it fits. Gives how many there are. To be called within a transaction. */
  insert(turn: SettledTurn): number {
    const input = toCells(turn.input);
    const output = toCells(turn.output);
    const response = turn.response === null ? [] : toCells(turn.response);
    const messages = turn.messages === null ? [] : toCells(turn.messages);
    const parts = Math.max(input.length, output.length, response.length, messages.length);
    for (let part = 0; part < parts; part += 1) {
      this.#tables.write(
        "turns",
        `INSERT INTO turns (turn, part, parent, created_at, position, base, input, output, response, messages, log, owner)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
        ...[
          turn.turn,
          part,
          turn.parent,
          turn.createdAt,
          turn.position,
          turn.base,
          input[part] ?? "",
          output[part] ?? "",
        ],
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
    const rows = this.#tables.rows<{ output: StoredCell; response: StoredCell }>(
      "turns",
      "SELECT output, response FROM turns WHERE turn = ? AND created_at > ? AND response IS NOT NULL ORDER BY part",
      ...[turn, this.#oldest()],
    );
    if (rows.length === 0) return null;
    return { head: fromCells(rows.map((row) => row.response)), output: fromCells(rows.map((row) => row.output)) };
  }

  /**
   * The responses that are there and whose turns' names begin with `tree`, in the order of these: those past `after`, read as they
   * are taken.
   */
  *nodes(tree: string, order: "asc" | "desc", after: string | undefined): Generator<NodeRow> {
    // No letter of a turn's name comes after "~".
    const [from, to] = order === "asc" ? [after ?? tree, `${tree}~`] : [tree, after ?? `${tree}~`];
    type Row = Omit<NodeRow, "input" | "output" | "response"> & Record<"input" | "output" | "response", StoredCell>;
    const rows = this.#tables.each<Row>(
      "turns",
      `SELECT turn, created_at AS createdAt, position, base, input, output, response FROM turns
       WHERE turn > ? AND turn < ? AND part = 0 AND response IS NOT NULL AND created_at > ?
       ORDER BY turn ${order === "asc" ? "ASC" : "DESC"}`,
      ...[from, to, this.#oldest()],
    );
    for (const { input, output, response, ...row } of rows) {
      yield { ...row, input: fromCell(input), output: fromCell(output), response: fromCell(response) };
    }
  }

  /** The whole response of a first row, but its output. */
  head({ turn, response }: NodeRow): string {
    return mayContinue(response) ? (readText(this.#tables, turn, "response") ?? response) : response;
  }

  /** Tells whether a turn keeps an event log, or the end of one. */
  hasLog(turn: string): boolean {
    return this.#any("turn = ? AND part = 0 AND log IS NOT NULL", turn);
  }

  /** The event log, or the end of one, that a turn keeps, if it does. */
  log(turn: string): string | undefined {
    return this.hasLog(turn) ? readText(this.#tables, turn, "log") : undefined;
  }

  /** Response and output of a turn, one after the other, expired or not. */
  texts(turn: string): string {
    return (readText(this.#tables, turn, "response") ?? "") + (readText(this.#tables, turn, "output") ?? "");
  }

  /** A turn as it was written, expired or not, but for its log; undefined when there is none. */
  settled(turn: string): SettledTurn | undefined {
    type Texts = { input: StoredCell; output: StoredCell; response: StoredCell | null; messages: StoredCell | null };
    type Row = Pick<SettledTurn, "turn" | "parent" | "createdAt" | "position" | "base"> & Texts;
    const rows = this.#tables.rows<Row>(
      "turns",
      `SELECT turn, parent, created_at AS createdAt, position, base, input, output, response, messages
       FROM turns WHERE turn = ? ORDER BY part`,
      turn,
    );
    const [first] = rows;
    if (!first) return undefined;
    const whole = (column: keyof Texts) => fromCells(rows.map((row) => row[column]));
    return {
      ...first,
      input: whole("input"),
      output: whole("output"),
      messages: first.messages === null ? null : whole("messages"),
      response: first.response === null ? null : whole("response"),
    };
  }

  /** Tells whether a response is there. */
  hasResponse(turn: string): boolean {
    return this.#any("turn = ? AND part = 0 AND created_at > ? AND response IS NOT NULL", turn, this.#oldest());
  }

  /** The turns of all responses that are there. */
  responses(): string[] {
    const there = "SELECT turn FROM turns WHERE part = 0 AND created_at > ? AND response IS NOT NULL";
    return this.#tables.rows<{ turn: string }>("turns", there, this.#oldest()).map(({ turn }) => turn);
  }

  /** Tells whether a turn is kept, with its response or without, expired or not. */
  has(turn: string): boolean {
    return this.#tables.rows("turns", "SELECT 1 FROM turns WHERE turn = ? AND part = 0", turn).length > 0;
  }

  /** Tells whether a turn is part of the conversation. */
  isInConversation(turn: string): boolean {
    return this.#any("turn = ? AND part = 0 AND position IS NOT NULL", turn);
  }

  /** Tells whether there is a turn that has not expired, but perhaps `except`. */
  hasLiving(except = ""): boolean {
    return this.#any("created_at > ? AND turn <> ?", this.#oldest(), except);
  }

  isEmpty(): boolean {
    return !this.#any("true");
  }

  /** Tells whether there is such a row. Reads the first one that it finds. */
  #any(condition: string, ...bindings: (string | number)[]): boolean {
    return this.#tables.rows("turns", `SELECT 1 FROM turns WHERE ${condition} LIMIT 1`, ...bindings).length > 0;
  }

  /** One side of a turn as the JSON text of an array, or undefined when there is no such turn, or it has expired. */
  items(turn: string, side: "input" | "output"): string | undefined {
    return readText(this.#tables, turn, side, this.#oldest());
  }

  /** The same for a turn of the conversation, which keeps the items of its turns also when these have expired. */
  conversationItems(turn: string, side: "input" | "output"): string | undefined {
    return readText(this.#tables, turn, side);
  }

  /** The history of a response. Undefined when the response is not there (any more), or one before it was deleted. */
  history(previous: string): ResponseHistory | undefined {
    const chain = this.#chains.of(previous);
    if (!chain || chain.createdAt <= this.#oldest()) return undefined;
    return { base: chain.base, history: { items: `[${chain.items}]`, messages: `[${chain.messages}]` } };
  }

  /** To be called when a transaction was rolled back. */
  forget(): void {
    this.#chains.clear();
  }

  /**
   * The items that the conversation's turns up to a position brought, oldest first, with the items that were taken out of it since.
   * Throws the 400 of a conversation that is too long to be read.
   */
  conversationHistory(upTo: number): History {
    const rows = this.#tables.each<PartRow>(
      "turns",
      `SELECT turn, input, output, messages FROM turns
       WHERE position IS NOT NULL AND position <= ? ORDER BY position, part`,
      upTo,
    );
    return joinParts(rows);
  }

  /** The turns of the conversation in the order asked for: all of them, or those from the turn `first` on. */
  conversationTurns(order: "asc" | "desc", first?: string): string[] {
    const [sorting, atOrPast] = order === "asc" ? ["ASC", ">="] : ["DESC", "<="];
    const from = `position ${atOrPast} (SELECT position FROM turns WHERE turn = ? AND part = 0)`;
    const rows = this.#tables.rows<{ turn: string }>(
      "turns",
      `SELECT turn FROM turns WHERE part = 0 AND ${first === undefined ? "position IS NOT NULL" : from}
       ORDER BY position ${sorting}`,
      ...(first === undefined ? [] : [first]),
    );
    return rows.map(({ turn }) => turn);
  }

  /** The last position taken in the conversation; 0 when it is empty. */
  lastPosition(): number {
    const last = "SELECT MAX(position) AS last FROM turns";
    return this.#tables.rows<{ last: number | null }>("turns", last)[0]?.last ?? 0;
  }

  /** Removes a response. Its conversation keeps the items; outside of a conversation nothing is kept. False when there was none. */
  delete(turn: string): boolean {
    if (!this.hasResponse(turn)) return false;
    this.forget();
    const emptied = "UPDATE turns SET response = NULL, log = NULL WHERE turn = ? AND position IS NOT NULL";
    this.#tables.rows("turns", emptied, turn);
    this.#tables.rows("turns", "DELETE FROM turns WHERE turn = ? AND position IS NULL", turn);
    return true;
  }

  /**
   * Removes the items that a conversation kept which is gone, unless a response is kept that began in it: then they are its history.
   */
  sweepItems(): void {
    if (this.#any("base IS NOT NULL AND response IS NOT NULL")) return;
    this.forget();
    this.#tables.rows("turns", "DELETE FROM turns WHERE response IS NULL");
  }

  /**
   * Removes what has expired. An expired turn stays as long as a living one continues it, being that one's history, and
   * as long as its conversation, or a living turn that began in it, does.
   */
  sweep(conversationLives: boolean): void {
    this.forget();
    const oldest = this.#oldest();
    const conversationNeeded = conversationLives || this.#any("base IS NOT NULL AND created_at > ?", oldest);
    this.#tables.rows(
      "turns",
      `WITH RECURSIVE needed(turn) AS (
         SELECT turn FROM turns WHERE part = 0 AND (created_at > ? OR (position IS NOT NULL AND ?))
         UNION
         SELECT turns.parent FROM needed JOIN turns ON turns.turn = needed.turn AND turns.part = 0
         WHERE turns.parent IS NOT NULL
       )
       DELETE FROM turns WHERE turn NOT IN (SELECT turn FROM needed)`,
      ...[oldest, conversationNeeded ? 1 : 0],
    );
  }

  /** When the oldest turn that has not expired was created (Unix milliseconds), or null when there is none. */
  oldestLiving(): number | null {
    const oldest = "SELECT MIN(created_at) AS next FROM turns WHERE created_at > ?";
    return this.#tables.rows<{ next: number | null }>("turns", oldest, this.#oldest())[0]?.next ?? null;
  }

  /** All turns, oldest first. */
  all(): string[] {
    const all = "SELECT turn FROM turns WHERE part = 0 ORDER BY created_at, turn";
    return this.#tables.rows<{ turn: string }>("turns", all).map(({ turn }) => turn);
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
