import { recordLine } from "@responses-edge/turn/records";
import { fromCells, type StoredCell, toCells } from "../objects/row-pieces.ts";
import { SEALED_LENGTH } from "./event-log.ts";
import { type EventsLine, eventText, type KeptLine, type TurnLine, turnLine } from "./home-lines.ts";
import type { HomeRows } from "./home-rows.ts";
import type { Housekeeping } from "./housekeeping.ts";
import type { SettledTurn } from "./turn-store.ts";

/**
 * Writes an exported home into the rows of this one: everything or nothing, in one transaction, and only if nothing is
 * stored. A home that is longer than one call may carry comes in parts, which wait in a table of their own.
 *
 * The caller has checked each line and all of them together (`api/imported-home.ts`).
 */

/** A part of a home's lines. */
export interface ImportPart {
  /** Identifies one import of one home. */
  ticket: string;
  /** Counted from 0. */
  part: number;
  isLast: boolean;
  lines: string[];
  /** True if the tenant's storage is counted. */
  isCounted?: boolean;
}

/**
 * The outcome of a part. `waiting`: more parts are to come. `imported`: it was the last, and all are stored.
 * `unchanged`: the same content is stored already. `differs`: something else is stored; nothing was changed.
 * `interrupted`: the earlier parts are missing, because another import has begun since, or an hour has passed.
 */
export type ImportAnswer = "waiting" | "imported" | "unchanged" | "differs" | "interrupted";

/** Waiting lines, in pieces. The table exists only during an import, so no version of the schema has it. */
const CREATE_WAITING = `CREATE TABLE waiting_lines (
  part INTEGER NOT NULL, line INTEGER NOT NULL, piece INTEGER NOT NULL, ticket TEXT NOT NULL, body TEXT NOT NULL,
  PRIMARY KEY (part, line, piece)) WITHOUT ROWID`;
const DROP_WAITING = "DROP TABLE IF EXISTS waiting_lines";

/** The parts of a home that an import needs. */
interface ImportingHome {
  sql: SqlStorage;
  rows: HomeRows;
  housekeeping: Housekeeping;
}

/** Takes a part of an exported home. The last part writes all of them into the home's rows, or none. */
export async function importPart(home: ImportingHome, taken: ImportPart): Promise<ImportAnswer> {
  const { sql, rows, housekeeping } = home;
  const { ticket, part, isLast, lines, isCounted = false } = taken;
  if (!rows.isUnused()) return compare(rows, lines);
  // Nothing awaits from here on: the rows and their alarm are one write.
  await housekeeping.open();
  if (!rows.isUnused()) return compare(rows, lines);
  if (part > 0 && !hasWaiting(sql, ticket, part)) return "interrupted";
  if (!isLast) {
    const swept = housekeeping.sweepSoon();
    rows.transaction(() => keepWaiting(sql, ticket, part, lines));
    await swept;
    return "waiting";
  }
  const oldest = rows.transaction(() => insert(home, part, lines, isCounted ? "" : undefined));
  rows.noteImported(isCounted ? "" : undefined);
  await housekeeping.retain(oldest);
  return "imported";
}

/** Tells whether the content of these lines is stored here. The home may have got more since it was imported. */
function compare(rows: HomeRows, lines: readonly string[]): ImportAnswer {
  const { conversations, turns, items } = rows;
  const takenOut = items.takenOut();
  const shown = (settled: SettledTurn) => JSON.stringify(turnLine(settled, takenOut, undefined));
  const isKept = lines.every((text) => {
    const line = JSON.parse(text) as KeptLine;
    if (line.object === "conversation") return conversations.createdAt(line.id) === line.created_at_ms;
    if (line.object !== "response" && line.object !== "conversation.items") return true;
    const kept = turns.settled(line.turn.id);
    return kept !== undefined && shown(kept) === shown(settledTurn(line));
  });
  return isKept ? "unchanged" : "differs";
}

/** Tells whether the earlier parts are waiting, and belong to the same import. */
function hasWaiting(sql: SqlStorage, ticket: string, part: number): boolean {
  if (sql.exec("SELECT 1 FROM sqlite_schema WHERE name = 'waiting_lines'").toArray().length === 0) return false;
  const newest = "SELECT ticket, part FROM waiting_lines ORDER BY part DESC LIMIT 1";
  const [row] = sql.exec<{ ticket: string; part: number }>(newest).toArray();
  return row?.ticket === ticket && row.part === part - 1;
}

function keepWaiting(sql: SqlStorage, ticket: string, part: number, lines: readonly string[]): void {
  if (part === 0) {
    sql.exec(DROP_WAITING);
    sql.exec(CREATE_WAITING);
  }
  const add = "INSERT INTO waiting_lines (part, line, piece, ticket, body) VALUES (?, ?, ?, ?, ?)";
  for (const [line, text] of lines.entries()) {
    for (const [piece, body] of toCells(text).entries()) sql.exec(add, part, line, piece, ticket, body);
  }
}

function* allLines(sql: SqlStorage, parts: number, last: readonly string[]): Generator<KeptLine> {
  for (let part = 0; part < parts; part += 1) {
    for (let line = 0; ; line += 1) {
      const pieces = sql
        .exec<{ body: StoredCell }>(
          "SELECT body FROM waiting_lines WHERE part = ? AND line = ? ORDER BY piece",
          part,
          line,
        )
        .toArray();
      if (pieces.length === 0) break;
      // The home's rows reuse the space.
      sql.exec("DELETE FROM waiting_lines WHERE part = ? AND line = ?", part, line);
      yield JSON.parse(fromCells(pieces.map(({ body }) => body))) as KeptLine;
    }
  }
  for (const text of last) yield JSON.parse(text) as KeptLine;
}

/** Writes all rows, for an owner. Gives the creation time of the oldest turn, Unix milliseconds. */
function insert(
  { sql, rows }: ImportingHome,
  parts: number,
  last: readonly string[],
  owner: string | undefined,
): number {
  const { items, conversations } = rows;
  let oldest = Date.now();
  let turn: ImportedTurn | undefined;
  for (const line of allLines(sql, parts, last)) {
    switch (line.object) {
      case "home":
        for (const id of line.taken_out) items.delete(id);
        break;
      case "conversation":
        conversations.create(line.id, line.created_at_ms, line.metadata, owner);
        break;
      case "response.events":
        turn?.add(line);
        break;
      default:
        turn?.insert();
        turn = new ImportedTurn(rows, line, owner);
        oldest = Math.min(oldest, line.turn.created_at_ms);
    }
  }
  turn?.insert();
  sql.exec(DROP_WAITING);
  return oldest;
}

/** A turn that is being written, and its log. */
class ImportedTurn {
  readonly #rows: HomeRows;
  readonly #line: TurnLine;
  readonly #owner: string | undefined;
  /** The newest events of its log that are not written yet, and their total length. */
  #events: string[] = [];
  #length = 0;
  /** Number of its written events. */
  #written = 0;

  constructor(rows: HomeRows, line: TurnLine, owner: string | undefined) {
    this.#rows = rows;
    this.#line = line;
    this.#owner = owner;
  }

  /** Takes the next events of its log. */
  add({ events }: EventsLine): void {
    for (const event of events) {
      const text = eventText(event);
      if (this.#length > 0 && this.#length + text.length > SEALED_LENGTH) {
        this.#rows.log.append(this.#line.turn.id, this.#lines(), true);
        this.#written += this.#events.length;
        this.#events = [];
        this.#length = 0;
      }
      this.#events.push(text);
      this.#length += text.length;
    }
  }

  /** Writes the turn, and the end of its log in the form of an ended run's. */
  insert(): void {
    const settled = { ...settledTurn(this.#line), owner: this.#owner };
    const { failure, id } = this.#line.turn;
    if (this.#events.length === 0) {
      this.#rows.turns.insert(settled);
      return;
    }
    const last = this.#lines();
    if (failure) last.lines.push(recordLine({ failure }));
    this.#rows.turns.insert({ ...settled, log: this.#rows.log.end(id, last) });
  }

  #lines() {
    return { from: this.#written, to: this.#written + this.#events.length - 1, lines: this.#events };
  }
}

/** A turn as it is stored, except for its log. */
function settledTurn(line: TurnLine): SettledTurn {
  const { output, input, turn, ...head } = line;
  return {
    turn: turn.id,
    parent: turn.parent,
    createdAt: turn.created_at_ms,
    position: turn.position,
    base: turn.base,
    input: JSON.stringify(input),
    output: JSON.stringify(output),
    messages: turn.messages === null ? null : JSON.stringify(turn.messages),
    response: line.object === "response" ? JSON.stringify(head) : null,
    timing: turn.timing ?? null,
  };
}
