import type { ErrorFields } from "@responses-edge/responses-api/errors";
import { isJsonObject } from "@responses-edge/responses-api/json";
import { isRecord, parseRecord } from "@responses-edge/turn/records";
import { type Cell, fromCells, type StoredCell, toCells } from "../objects/row-pieces.ts";
import type { Tables } from "./tables.ts";

/**
 * The durable log of a run's events. Readers get events only from it.
 *
 * Its rows are blocks. A live run writes small ones (`log-writer.ts`). From time to time they are sealed: one long
 * block replaces them, which compresses to a twentieth. When the run ends, the unsealed events go to the turn's row, if
 * they fit: the log of a short run takes no row of its own.
 */

/** A block is sealed before it gets longer than this, unless one write is longer. A reader holds one block. UTF-16 units. */
export const SEALED_LENGTH = 192 * 1024;

/** UTF-16 units of a cell of a block. Even uncompressed it fits into a row. */
const CELL_LENGTH = 600_000;

/** Maximum bytes of the end of a log in its turn's row, in addition to the turn's texts. */
const MAX_KEPT_BYTES = 180_000;

/** Records without an event have negative parts, counted up from here. */
const FIRST_RECORD_PART = -1_000_000;

/** The parts of a sealed block are counted up from here. */
const FIRST_SEALED_PART = 1_000_000;

/** How the record of a failure begins. */
const FAILURE = '[{"failure":';

/** The rows of a turn after its last sealed block. */
const OPEN = `turn = ?1 AND seq_from > ifnull((SELECT seq_from FROM events WHERE turn = ?1 AND part >= ${FIRST_SEALED_PART}
  ORDER BY seq_from DESC LIMIT 1), -1)`;

/** Turns that keep the logs of ended runs. */
interface KeptLogs {
  hasLog(turn: string): boolean;
  /** The end of a turn's log: events and records as lines. */
  log(turn: string): string | undefined;
}

/** Events `from` to `to` as lines, with records between them. */
interface Lines {
  from: number;
  to: number;
  lines: readonly string[];
}

/** Events `from` to `to`, as JSON texts. */
interface EventBlock {
  from: number;
  to: number;
  events: string[];
}

type BlockRow = { seq_from: number; seq_to: number; body: StoredCell };
type PartRow = BlockRow & { part: number };

/** Reads and writes the logs of a home's runs. */
export class EventLogStore {
  readonly #storage: Pick<DurableObjectStorage, "transactionSync">;
  readonly #tables: Tables;
  readonly #turns: KeptLogs;

  constructor(storage: Pick<DurableObjectStorage, "transactionSync">, tables: Tables, turns: KeptLogs) {
    this.#storage = storage;
    this.#tables = tables;
    this.#turns = turns;
  }

  /** Writes a block completely; if it throws, nothing is written. A block that `isSealed` is final. */
  append(turn: string, { from, to, lines }: Lines, isSealed = false): void {
    this.#insert(turn, from, to, isSealed ? FIRST_SEALED_PART : 0, lines.join("\n"));
  }

  /**
   * Writes records that cannot wait for the event `next`, in rows before its block, which no reader sees. If it throws,
   * nothing is written.
   */
  appendRecords(turn: string, next: number, lines: string[]): void {
    const records = "SELECT part FROM events WHERE turn = ? AND seq_from = ? AND part < 0 ORDER BY part DESC LIMIT 1";
    const [last] = this.#tables.rows<{ part: number }>("events", records, turn, next);
    this.#insert(turn, next, next - 1, last ? last.part + 1 : FIRST_RECORD_PART, `${lines.join("\n")}\n`);
  }

  /** Writes the beginning of a log, events and records in order. To be called within a transaction. */
  write(turn: string, lines: readonly string[]): void {
    let block = { from: 0, to: -1, lines: [] as string[] };
    let length = 0;
    for (const line of lines) {
      const isEvent = !isRecord(line);
      // A block begins with an event.
      if (isEvent && length > SEALED_LENGTH) {
        this.append(turn, block, true);
        block = { from: block.to + 1, to: block.to, lines: [] };
        length = 0;
      }
      block.lines.push(line);
      if (isEvent) block.to += 1;
      length += line.length;
    }
    this.append(turn, block);
  }

  #insert(turn: string, from: number, to: number, firstPart: number, text: string): void {
    const cells = toCells(text, CELL_LENGTH);
    try {
      for (const [index, body] of cells.entries()) {
        const insert = "INSERT INTO events (turn, seq_from, part, seq_to, body) VALUES (?, ?, ?, ?, ?)";
        this.#tables.write("events", insert, turn, from, firstPart + index, to, body);
      }
    } catch (error) {
      const rest = "DELETE FROM events WHERE turn = ? AND seq_from = ? AND part >= ? AND part < ?";
      this.#tables.rows("events", rest, turn, from, firstPart, firstPart + cells.length);
      throw error;
    }
  }

  /** Replaces the unsealed blocks, if any, by one block. */
  seal(turn: string): void {
    this.#storage.transactionSync(() => {
      const open = this.#takeOpen(turn);
      if (!open) return;
      // Records without an event belong to the next block.
      const part = open.to < open.from ? FIRST_RECORD_PART : FIRST_SEALED_PART;
      this.#insert(turn, open.from, open.to, part, `${open.lines.join("\n")}\n`);
    });
  }

  /**
   * Ends the log of a run with a last block. Gives the end that its turn's row is to keep, with no record but the
   * failure; null if it is too long, and was written as a block. To be called within a transaction.
   */
  end(turn: string, last: Lines): Cell | null {
    const open = this.#takeOpen(turn);
    const all = [...(open?.lines ?? []), ...last.lines];
    const failures = all.filter((line) => line.startsWith(FAILURE));
    const lines = [...all.filter((line) => !isRecord(line)), ...failures];
    const [cell = "", ...more] = toCells(lines.join("\n"), CELL_LENGTH);
    const bytes = typeof cell === "string" ? 3 * cell.length : cell.length;
    if (more.length === 0 && bytes <= MAX_KEPT_BYTES) return cell;
    this.append(turn, { from: open?.from ?? last.from, to: last.to, lines }, true);
    return null;
  }

  /** Removes the unsealed blocks, with the records before them, and gives their lines. */
  #takeOpen(turn: string): Lines | undefined {
    const open = `SELECT seq_from, seq_to, body FROM events WHERE ${OPEN} ORDER BY seq_from, part`;
    const rows = this.#tables.rows<BlockRow>("events", open, turn);
    const [first, last] = [rows[0], rows.at(-1)];
    if (!first || !last) return undefined;
    this.#tables.rows("events", "DELETE FROM events WHERE turn = ? AND seq_from >= ?", turn, first.seq_from);
    return { from: first.seq_from, to: last.seq_to, lines: blocksOf(rows).flatMap(linesOf).toArray() };
  }

  /** The block that has the event after `after`, from that event on; undefined at the log's end. */
  next(turn: string, after: number): EventBlock | undefined {
    const rows = this.#block(turn, after);
    const [first] = rows;
    if (first) return eventsAfter(after, first.seq_from, linesOf(rows));
    const kept = this.#turns.log(turn);
    if (kept === undefined) return undefined;
    // The turn's row keeps the events after the last block.
    const inBlocks = "SELECT MAX(seq_to) AS last FROM events WHERE turn = ?";
    const [count] = this.#tables.rows<{ last: number | null }>("events", inBlocks, turn);
    return eventsAfter(after, (count?.last ?? -1) + 1, toLines(kept));
  }

  /** All lines of an unfinished log, events and records, in order. */
  *all(turn: string): Generator<string> {
    for (const block of this.#blocks(turn)) yield* linesOf(block);
  }

  #blocks(turn: string): Iterable<PartRow[]> {
    const rows = "SELECT seq_from, part, seq_to, body FROM events WHERE turn = ? ORDER BY seq_from, part";
    return blocksOf(this.#tables.each<PartRow>("events", rows, turn));
  }

  /** Removes the end of a log, from the first block that is unreadable or does not follow the one before it. */
  cutUnreadable(turn: string): void {
    let next = 0;
    for (const block of this.#blocks(turn)) {
      const [first] = block;
      if (!first) return;
      const count = countEvents(block, next);
      if (first.seq_from === next && first.seq_to - first.seq_from + 1 === count) {
        next += count;
        continue;
      }
      const rest = "DELETE FROM events WHERE turn = ?1 AND (seq_from > ?2 OR (seq_from = ?2 AND part >= ?3))";
      this.#tables.rows("events", rest, turn, first.seq_from, first.part);
      return;
    }
  }

  /** The rows of the block that has the event after `after`. */
  #block(turn: string, after: number): BlockRow[] {
    return this.#tables.rows<BlockRow>(
      "events",
      `SELECT seq_from, seq_to, body FROM events
       WHERE turn = ?1 AND seq_to > ?2 AND seq_from = (
         SELECT MAX(seq_from) FROM events WHERE turn = ?1 AND seq_from <= ?2 + 1)
       ORDER BY part`,
      ...[turn, after],
    );
  }

  /** Why an ended run failed, with status and headers; undefined if it did not. */
  failure(turn: string): ErrorFields | undefined {
    const kept = this.#turns.log(turn);
    if (kept !== undefined) return toLines(kept).map(failureIn).find(Boolean);
    const last = this.#tables.rows<BlockRow>(
      "events",
      `SELECT seq_from, seq_to, body FROM events
       WHERE turn = ?1 AND part >= 0 AND seq_from = (SELECT MAX(seq_from) FROM events WHERE turn = ?1 AND part >= 0)
       ORDER BY part`,
      turn,
    );
    return linesOf(last).map(failureIn).find(Boolean);
  }

  has(turn: string): boolean {
    return this.#block(turn, -1).length > 0 || this.#turns.hasLog(turn);
  }

  /** Removes the blocks of a log. */
  delete(turn: string): void {
    this.#tables.rows("events", "DELETE FROM events WHERE turn = ?", turn);
  }

  /** Removes the logs of turns that are neither stored nor runs any more. */
  sweep(): void {
    if (!this.#tables.has("turns")) return;
    const runs = this.#tables.has("runs") ? "UNION SELECT turn FROM runs" : "";
    this.#tables.rows("events", `DELETE FROM events WHERE turn NOT IN (SELECT turn FROM turns ${runs})`);
  }
}

/** Groups the rows of each block, and those of the records before it. The rows of a group are pieces of one text. */
function* blocksOf<Row extends BlockRow>(rows: Iterable<Row>): Generator<Row[]> {
  let block: Row[] = [];
  for (const row of rows) {
    const [first] = block;
    if (first && (first.seq_from !== row.seq_from || first.seq_to !== row.seq_to)) {
      yield block;
      block = [];
    }
    block.push(row);
  }
  if (block.length > 0) yield block;
}

function linesOf(rows: readonly BlockRow[]): string[] {
  return toLines(fromCells(rows.map((row) => row.body)));
}

function toLines(text: string): string[] {
  return text.split("\n").filter((line) => line !== "");
}

/** The events after `after`, from lines whose first event is `first`; undefined if there are none. */
function eventsAfter(after: number, first: number, lines: readonly string[]): EventBlock | undefined {
  const from = Math.max(first, after + 1);
  const events = lines.filter((line) => !isRecord(line)).slice(from - first);
  return events.length === 0 ? undefined : { from, to: from + events.length - 1, events };
}

/** The number of events among a block's lines, numbered from `first`; undefined if a line is neither event nor record, or unreadable. */
function countEvents(block: readonly BlockRow[], first: number): number | undefined {
  let next = first;
  try {
    for (const line of linesOf(block)) {
      const value = JSON.parse(line) as unknown;
      if (Array.isArray(value)) continue;
      if (!isJsonObject(value) || value.sequence_number !== next) return undefined;
      next += 1;
    }
  } catch {
    return undefined;
  }
  return next - first;
}

/** The failure of a line that records one. */
function failureIn(line: string): ErrorFields | undefined {
  if (!line.startsWith(FAILURE)) return undefined;
  const record = parseRecord(line);
  return "failure" in record ? record.failure : undefined;
}
