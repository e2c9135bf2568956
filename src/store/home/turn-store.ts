import { type Cell, fromCell, fromCells, mayContinue, type StoredCell, toCells } from "../objects/row-pieces.ts";
import { MAX_READ_LENGTH } from "../objects/rpc.ts";
import { type ChainedTurn, Chains, readText } from "./chains.ts";
import { concatArrays, type History, historyTooLong, type KnownHistory } from "./history.ts";
import { fromStoredHead, toStoredHead } from "./response-head.ts";
import type { StoredResponse } from "./stored-response.ts";
import type { Tables } from "./tables.ts";

/**
 * The settled turns of a home, and the histories that they make. A row's items never change.
 *
 * Only this file decides whether a response exists for a caller. It does not if it was deleted (its rows are removed,
 * or have no `response`) or has expired (it was created at `oldest` or earlier). Two things outlive it: a younger
 * response keeps it in its history until it is deleted, and a conversation keeps its items.
 */

/** A settled turn. */
export interface SettledTurn extends ChainedTurn {
  /** Its own position in the conversation; null if it is in none. */
  position: number | null;
  /** The end of a run's event log, as `event-log.ts` gives it; null or absent if there is none, or if its blocks have all of it. */
  log?: Cell | null;
  /** Its times, as `keptTiming` gives them; null or absent without a response. */
  timing?: string | null;
  /** The key that its bytes are counted for, if they are counted (`home-stored.ts`). */
  owner?: string | null | undefined;
}

/** The first row of a turn with a response. Each text is complete, or its beginning. */
export interface NodeRow {
  turn: string;
  /** Unix milliseconds. */
  createdAt: number;
  position: number | null;
  base: number | null;
  input: string;
  output: string;
  response: string;
  timing: string | null;
}

type PartRow = { turn: string; input: StoredCell; output: StoredCell; messages: StoredCell | null };

/** The history of a response: its own items and those of all earlier turns. */
export interface ResponseHistory {
  /** The position in its conversation at which the history begins, if it began in one. */
  base: number | null;
  history: History;
}

/** SQL: the bytes of the texts of a row of `turns`, as they are written. */
export const TEXT_BYTES = ["input", "output", "response", "messages", "log", "timing"]
  .map((column) => `ifnull(octet_length(${column}), 0)`)
  .join(" + ");

export class TurnStore {
  readonly #tables: Tables;
  readonly #oldest: () => number;
  readonly chains: Chains;
  #removals = 0;

  /** `oldest` gives a creation time, Unix milliseconds: turns that were created then or earlier have expired. */
  constructor(tables: Tables, oldest: () => number) {
    this.#tables = tables;
    this.#oldest = oldest;
    this.chains = new Chains(tables, oldest);
  }

  /**
   * Writes a turn, in one row if it fits. With `mayExist`, a turn that exists is left as it is. Gives the rows that it took. To be
   * called within a transaction.
   */
  insert(turn: SettledTurn, mayExist = false): number {
    const input = toCells(turn.input);
    const output = toCells(turn.output);
    const response = turn.response === null ? [] : toCells(toStoredHead(turn.response));
    const messages = turn.messages === null ? [] : toCells(turn.messages);
    const parts = Math.max(input.length, output.length, response.length, messages.length);
    const insert = mayExist ? "INSERT OR IGNORE" : "INSERT";
    for (let part = 0; part < parts; part += 1) {
      const { rowsWritten } = this.#tables.write(
        "turns",
        `${insert} INTO turns (turn, part, parent, created_at, position, base, input, output, response, messages, log, timing, owner)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
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
        ...(part === 0 ? [turn.log ?? null, turn.timing ?? null] : [null, null]),
        turn.owner ?? null,
      );
      if (rowsWritten === 0) return 0;
    }
    this.chains.add(turn);
    return parts;
  }

  /** A response; null if it does not exist (any more). */
  response(turn: string): StoredResponse | null {
    const rows = this.#tables.rows<{ output: StoredCell; response: StoredCell; timing: string | null }>(
      "turns",
      "SELECT output, response, timing FROM turns WHERE turn = ? AND created_at > ? AND response IS NOT NULL ORDER BY part",
      ...[turn, this.#oldest()],
    );
    const [first] = rows;
    if (!first) return null;
    const head = fromStoredHead(fromCells(rows.map((row) => row.response)));
    return { head, output: fromCells(rows.map((row) => row.output)), keptTiming: first.timing };
  }

  /** The existing responses whose turns' names begin with `tree`, ordered by these names: those after `after`, read as they are taken. */
  nodes(tree: string, order: "asc" | "desc", after: string | undefined): Generator<NodeRow> {
    // No letter of a turn's name sorts after "~".
    const [from, to] = order === "asc" ? [after ?? tree, `${tree}~`] : [tree, after ?? `${tree}~`];
    return this.#nodes(`turn > ? AND turn < ? ORDER BY turn ${order === "asc" ? "ASC" : "DESC"}`, from, to);
  }

  /** An existing response; undefined if there is none. */
  node(turn: string): NodeRow | undefined {
    return this.#nodes("turn = ?", turn).next().value ?? undefined;
  }

  *#nodes(condition: string, ...bindings: string[]): Generator<NodeRow, undefined> {
    type Row = Omit<NodeRow, "input" | "output" | "response"> & Record<"input" | "output" | "response", StoredCell>;
    const rows = this.#tables.each<Row>(
      "turns",
      `SELECT turn, created_at AS createdAt, position, base, input, output, response, timing FROM turns
       WHERE part = 0 AND response IS NOT NULL AND created_at > ? AND ${condition}`,
      ...[this.#oldest(), ...bindings],
    );
    for (const { input, output, response, ...row } of rows) {
      yield { ...row, input: fromCell(input), output: fromCell(output), response: fromStoredHead(fromCell(response)) };
    }
    return undefined;
  }

  /** The complete response of a first row, without its output. */
  head({ turn, response }: NodeRow): string {
    if (!mayContinue(response)) return response;
    const whole = readText(this.#tables, turn, "response");
    return whole === undefined ? response : fromStoredHead(whole);
  }

  /**
   * Replaces a response, without its output. To be called within a transaction. `head`: its JSON text. False if the response does not
   * exist.
   */
  replaceHead(turn: string, head: string): boolean {
    if (!this.hasResponse(turn)) return false;
    const cells = toCells(toStoredHead(head));
    this.#tables.rows("turns", "UPDATE turns SET response = '' WHERE turn = ? AND part >= ?", turn, cells.length);
    for (const [part, cell] of cells.entries()) {
      // The text may need more rows than it had.
      this.#tables.write(
        "turns",
        `INSERT INTO turns (turn, part, parent, created_at, position, base, input, output, response, owner)
         SELECT turn, ?, parent, created_at, position, base, '', '', ?, owner FROM turns WHERE turn = ? AND part = 0
         ON CONFLICT (turn, part) DO UPDATE SET response = excluded.response`,
        ...[part, cell, turn],
      );
    }
    return true;
  }

  /** Tells whether a turn has an event log, or the end of one. */
  hasLog(turn: string): boolean {
    return this.#any("turn = ? AND part = 0 AND log IS NOT NULL", turn);
  }

  /** The event log, or the end of one, in a turn's row. */
  log(turn: string): string | undefined {
    return this.hasLog(turn) ? readText(this.#tables, turn, "log") : undefined;
  }

  /** A turn as it was written, expired or not, without its log; undefined if it does not exist. */
  settled(turn: string): SettledTurn | undefined {
    type Texts = { input: StoredCell; output: StoredCell; response: StoredCell | null; messages: StoredCell | null };
    type Row = Pick<SettledTurn, "turn" | "parent" | "createdAt" | "position" | "base" | "timing"> & Texts;
    const rows = this.#tables.rows<Row>(
      "turns",
      `SELECT turn, parent, created_at AS createdAt, position, base, input, output, response, messages, timing
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
      response: first.response === null ? null : fromStoredHead(whole("response")),
    };
  }

  /** Tells whether a response exists. */
  hasResponse(turn: string): boolean {
    return this.#any("turn = ? AND part = 0 AND created_at > ? AND response IS NOT NULL", turn, this.#oldest());
  }

  /** The turns of all existing responses. */
  responses(): string[] {
    const there = "SELECT turn FROM turns WHERE part = 0 AND created_at > ? AND response IS NOT NULL";
    return this.#tables.rows<{ turn: string }>("turns", there, this.#oldest()).map(({ turn }) => turn);
  }

  /** Tells whether a turn is stored, with its response or without, expired or not. */
  has(turn: string): boolean {
    return this.#tables.rows("turns", "SELECT 1 FROM turns WHERE turn = ? AND part = 0", turn).length > 0;
  }

  /** Tells whether a turn is part of the conversation. */
  isInConversation(turn: string): boolean {
    return this.#any("turn = ? AND part = 0 AND position IS NOT NULL", turn);
  }

  /** Tells whether there is an unexpired turn other than `except`. */
  hasLiving(except = ""): boolean {
    return this.#any("created_at > ? AND turn <> ?", this.#oldest(), except);
  }

  isEmpty(): boolean {
    return !this.#any("true");
  }

  /** Tells whether there is such a row. Reads only the first. */
  #any(condition: string, ...bindings: (string | number)[]): boolean {
    return this.#tables.rows("turns", `SELECT 1 FROM turns WHERE ${condition} LIMIT 1`, ...bindings).length > 0;
  }

  /** The input or output of a turn as the JSON text of an array; undefined if the turn does not exist, or has expired. */
  items(turn: string, side: "input" | "output"): string | undefined {
    return readText(this.#tables, turn, side, this.#oldest());
  }

  /** The same for a turn of the conversation, which keeps the items of expired turns, too. */
  conversationItems(turn: string, side: "input" | "output"): string | undefined {
    return readText(this.#tables, turn, side);
  }

  /** The history of a response. Undefined if the response does not exist (any more), or an earlier one was deleted. */
  history(previous: string): ResponseHistory | undefined {
    const chain = this.chains.of(previous);
    if (!chain || chain.createdAt <= this.#oldest()) return undefined;
    return { base: chain.base, history: chain.history.texts };
  }

  /** To be called when a transaction was rolled back. */
  forget(): void {
    this.chains.forget();
    this.#removals += 1;
  }

  /** Grows whenever turns may have been removed. */
  get removals(): number {
    return this.#removals;
  }

  /**
   * The items of the conversation's turns up to a position, oldest first, including items that were removed since.
   * Throws the 400 of a conversation that is too long.
   */
  conversationHistory(upTo: number): KnownHistory {
    return this.chains.conversation.history(upTo, () => {
      const rows = this.#tables.each<PartRow>(
        "turns",
        `SELECT turn, input, output, messages FROM turns
         WHERE position IS NOT NULL AND position <= ? ORDER BY position, part`,
        upTo,
      );
      return joinParts(rows);
    });
  }

  /** The turns of the conversation in the given order: all of them, or those from the turn `first` on. */
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

  /** The last position of the conversation; 0 if it is empty. */
  lastPosition(): number {
    return this.chains.conversation.lastPosition(() => {
      const last = "SELECT MAX(position) AS last FROM turns";
      return this.#tables.rows<{ last: number | null }>("turns", last)[0]?.last ?? 0;
    });
  }

  /** Removes a response. Its conversation keeps the items; outside a conversation nothing is kept. False if it does not exist. */
  delete(turn: string): boolean {
    if (!this.hasResponse(turn)) return false;
    this.forget();
    const emptied =
      "UPDATE turns SET response = NULL, log = NULL, timing = NULL WHERE turn = ? AND position IS NOT NULL";
    this.#tables.rows("turns", emptied, turn);
    this.#tables.rows("turns", "DELETE FROM turns WHERE turn = ? AND position IS NULL", turn);
    return true;
  }

  /** Tells whether there are turns without a response. */
  hasItemsOnly(): boolean {
    return this.#any("response IS NULL");
  }

  /** Tells whether there are expired turns. */
  hasExpired(): boolean {
    return this.#any("created_at <= ?", this.#oldest());
  }

  /** Removes the items of a deleted conversation, unless a stored response began in it: they are its history. */
  sweepItems(): void {
    if (this.#any("base IS NOT NULL AND response IS NOT NULL")) return;
    this.forget();
    this.#tables.rows("turns", "DELETE FROM turns WHERE response IS NULL");
  }

  /**
   * Removes expired turns. An expired turn stays as long as an unexpired one continues it and so has it as its history,
   * and as long as its conversation exists, or an unexpired turn that began in it.
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

  /** When the oldest unexpired turn was created (Unix milliseconds); null if there is none. */
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

/** The input and output of each turn, and the messages behind them, from rows in order. Throws the 400 if they are too long. */
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
