import type { Config } from "../config/index.ts";
import type { ErrorFields } from "../protocol/errors.ts";
import { isJsonObject } from "../protocol/json.ts";
import type { BatchSink } from "../turn/output-events.ts";
import { isRecord, recordLine, type TurnRecord } from "../turn/records.ts";
import { type EventBlock, failureIn, keepLog, readKeptLog } from "./kept-log.ts";
import { fromCells, type StoredCell, toCells } from "./row-pieces.ts";
import type { Tables } from "./tables.ts";
import type { TurnLog } from "./turn-store.ts";

/**
 * The durable log of a background run's events, and the way they reach readers: only from the log, only what is in it.
 *
 * Rows are the dearest thing here, so events are packed: a block is written when something other than a delta happens,
 * when it is large, or when its time has come, which is soon while somebody reads and late while nobody does. A crash
 * loses at most the block that nobody has seen. When the run ends its log goes to its turn (`kept-log.ts`): the blocks of
 * one that has ended are those of one too long for that, or of an earlier version.
 */

/** A block larger than this is written at once. UTF-16 units. */
const MAX_BLOCK_LENGTH = 64 * 1024;

/** Records without an event have negative parts, counted up from here. */
const FIRST_RECORD_PART = -1_000_000;

/** The logs of runs that have ended, as they are kept with their turns. */
interface KeptLogs {
  hasLog(turn: string): boolean;
  log(turn: string): TurnLog | undefined;
}

type BlockRow = { seq_from: number; seq_to: number; body: StoredCell };
type PartRow = BlockRow & { part: number };

/** Reads and writes the logs of a home's runs. */
export class EventLogStore {
  readonly #sql: SqlStorage;
  readonly #tables: Tables;
  readonly #turns: KeptLogs;

  /** `turns` has the logs of runs that have ended. */
  constructor(sql: SqlStorage, tables: Tables, turns: KeptLogs) {
    this.#sql = sql;
    this.#tables = tables;
    this.#turns = turns;
  }

  /** Writes events `from` to `to`, with records between them (`lines`), or, when it throws, nothing of it. */
  append(turn: string, block: { from: number; to: number; lines: string[] }): void {
    this.#tables.make("events");
    const cells = toCells(block.lines.join("\n"));
    try {
      for (const [part, body] of cells.entries()) {
        this.#sql.exec(
          "INSERT INTO events (turn, seq_from, part, seq_to, body) VALUES (?, ?, ?, ?, ?)",
          turn,
          block.from,
          part,
          block.to,
          body,
        );
      }
    } catch (error) {
      this.#sql.exec("DELETE FROM events WHERE turn = ? AND seq_from = ? AND part >= 0", turn, block.from);
      throw error;
    }
  }

  /** The block that has the event after `after`, from that event on; undefined at the log's end. */
  next(turn: string, after: number): EventBlock | undefined {
    const rows = this.#block(turn, after);
    const [first] = rows;
    if (!first) {
      const log = this.#turns.log(turn);
      return log && readKeptLog(log.kept, log.text, after);
    }
    const events = linesOf(rows).filter((line) => !isRecord(line));
    const from = Math.max(first.seq_from, after + 1);
    return { from, to: first.seq_to, events: events.slice(from - first.seq_from) };
  }

  /**
   * Writes records that cannot wait for the event `next`, or, when it throws, nothing of them: in rows of their own
   * before its block, which no reader sees.
   */
  appendRecords(turn: string, next: number, lines: string[]): void {
    this.#tables.make("events");
    const [last] = this.#sql
      .exec<{ part: number }>(
        "SELECT part FROM events WHERE turn = ? AND seq_from = ? AND part < 0 ORDER BY part DESC LIMIT 1",
        turn,
        next,
      )
      .toArray();
    const first = last ? last.part + 1 : FIRST_RECORD_PART;
    try {
      for (const [index, body] of toCells(`${lines.join("\n")}\n`).entries()) {
        this.#sql.exec(
          "INSERT INTO events (turn, seq_from, part, seq_to, body) VALUES (?, ?, ?, ?, ?)",
          turn,
          next,
          first + index,
          next - 1,
          body,
        );
      }
    } catch (error) {
      const rest = "DELETE FROM events WHERE turn = ? AND seq_from = ? AND part >= ? AND part < 0";
      this.#sql.exec(rest, turn, next, first);
      throw error;
    }
  }

  /** All lines of a log, events and records, in order. */
  *all(turn: string): Generator<string> {
    for (const block of this.#blocks(turn)) yield* linesOf(block);
  }

  /** The rows of each block, and of the records before it. */
  *#blocks(turn: string): Generator<PartRow[]> {
    if (!this.#tables.has("events")) return;
    const rows = this.#sql.exec<PartRow>(
      "SELECT seq_from, part, seq_to, body FROM events WHERE turn = ? ORDER BY seq_from, part",
      turn,
    );
    let block: PartRow[] = [];
    for (const row of rows) {
      const [first] = block;
      // A block's rows are pieces of one text; so are those of records before it.
      if (first && (first.seq_from !== row.seq_from || first.seq_to !== row.seq_to)) {
        yield block;
        block = [];
      }
      block.push(row);
    }
    if (block.length > 0) yield block;
  }

  /** Removes a log's end, from the first block on that cannot be read or does not follow the one before it. */
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
      this.#sql.exec(
        "DELETE FROM events WHERE turn = ?1 AND (seq_from > ?2 OR (seq_from = ?2 AND part >= ?3))",
        turn,
        first.seq_from,
        first.part,
      );
      return;
    }
  }

  /** The rows of the block that has the event after `after`. */
  #block(turn: string, after: number): BlockRow[] {
    if (!this.#tables.has("events")) return [];
    return this.#sql
      .exec<BlockRow>(
        `SELECT seq_from, seq_to, body FROM events
         WHERE turn = ?1 AND seq_to > ?2 AND seq_from = (
           SELECT MAX(seq_from) FROM events WHERE turn = ?1 AND seq_from <= ?2 + 1)
         ORDER BY part`,
        turn,
        after,
      )
      .toArray();
  }

  /** Why the run that has ended failed, with status and headers; undefined where it did not, or was logged before these were kept. */
  failure(turn: string): ErrorFields | undefined {
    const log = this.#turns.log(turn);
    if (log) return failureIn(log.kept);
    if (!this.#tables.has("events")) return undefined;
    const last = this.#sql
      .exec<BlockRow>(
        `SELECT seq_from, seq_to, body FROM events
         WHERE turn = ?1 AND part >= 0 AND seq_from = (SELECT MAX(seq_from) FROM events WHERE turn = ?1 AND part >= 0)
         ORDER BY part`,
        turn,
      )
      .toArray();
    for (const line of linesOf(last)) {
      if (!isRecord(line)) continue;
      const [record] = JSON.parse(line) as [TurnRecord];
      if ("failure" in record) return record.failure;
    }
    return undefined;
  }

  has(turn: string): boolean {
    return this.#block(turn, -1).length > 0 || this.#turns.hasLog(turn);
  }

  /** Removes the blocks of a log. */
  delete(turn: string): void {
    if (this.#tables.has("events")) this.#sql.exec("DELETE FROM events WHERE turn = ?", turn);
  }

  /** Removes the logs of turns that are not kept any more, and are no runs either. */
  sweep(): void {
    if (!this.#tables.has("events")) return;
    const runs = this.#tables.has("runs") ? "UNION SELECT turn FROM runs" : "";
    this.#sql.exec(`DELETE FROM events WHERE turn NOT IN (SELECT turn FROM turns ${runs})`);
  }
}

/** How many of a block's lines are events, counted up from `first`; undefined where one is neither event nor record, or cannot be read. */
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

function* chained<T>(...lists: Iterable<T>[]): Generator<T> {
  for (const list of lists) yield* list;
}

function linesOf(rows: readonly BlockRow[]): string[] {
  return fromCells(rows.map((row) => row.body))
    .split("\n")
    .filter((line) => line !== "");
}

/** Takes a live run's events to its log, and wakes those who read it. */
export class EventLogWriter implements BatchSink {
  readonly #store: EventLogStore;
  readonly #turn: string;
  readonly #config: Config["eventLog"];
  #next: number;
  #pending: string[] = [];
  #pendingEvents = 0;
  #length = 0;
  #urgent = false;
  #writtenAt = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #timerDue = 0;
  #readers = 0;
  #wake: (() => void)[] = [];
  #fault: unknown;
  #stopped = false;

  /** `next`: the sequence number of the first event that will come. */
  constructor(store: EventLogStore, turn: string, next: number, config: Config["eventLog"]) {
    this.#store = store;
    this.#turn = turn;
    this.#config = config;
    this.#next = next;
  }

  /** No event has come yet. */
  get isNew(): boolean {
    return this.#next === 0 && this.#pendingEvents === 0;
  }

  /** Events so far. */
  get events(): number {
    return this.#next + this.#pendingEvents;
  }

  event(type: string, json: string): void {
    this.#pending.push(json);
    this.#pendingEvents += 1;
    this.#length += json.length;
    if (!type.endsWith(".delta")) this.#urgent = true;
  }

  /** Keeps a record between the events that come before and after it. It is written with the next event, if one comes soon. */
  record(record: TurnRecord): void {
    const line = recordLine(record);
    this.#pending.push(line);
    this.#length += line.length;
  }

  /** Writes what is pending, now: something is about to be done that must not be done twice. */
  commit(): void {
    if (this.#fault) throw this.#fault;
    this.write();
    if (this.#pending.length === 0 || this.#stopped) return;
    this.#store.appendRecords(this.#turn, this.#next, this.#pending);
    this.#pending = [];
    this.#length = 0;
    this.#writtenAt = Date.now();
  }

  /** Writes now, later, or not yet. Throws what the storage throws, also that of an earlier write by the timer. */
  flush(): undefined {
    if (this.#fault) throw this.#fault;
    if (this.#pending.length === 0 || this.#stopped) return;
    // Records alone are read by nobody.
    const { intervalMs, unreadIntervalMs } = this.#config;
    const interval = this.#readers > 0 && this.#pendingEvents > 0 ? intervalMs : unreadIntervalMs;
    const due = this.#writtenAt + interval;
    if (due <= Date.now() || this.#length > MAX_BLOCK_LENGTH || (this.#urgent && this.#readers > 0)) this.commit();
    else this.#writeAt(due);
  }

  #writeAt(due: number): void {
    if (this.#timer !== undefined && this.#timerDue <= due) return;
    clearTimeout(this.#timer);
    this.#timerDue = due;
    this.#timer = setTimeout(() => this.#writeLate(), due - Date.now());
  }

  /** Writes what is pending, if there is an event in it, within the caller's transaction if there is one. */
  write(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#pendingEvents === 0 || this.#stopped) return;
    const from = this.#next;
    const next = from + this.#pendingEvents;
    this.#store.append(this.#turn, { from, to: next - 1, lines: this.#pending });
    this.#next = next;
    this.#pending = [];
    this.#pendingEvents = 0;
    this.#length = 0;
    this.#urgent = false;
    this.#writtenAt = Date.now();
    this.wake();
  }

  /**
   * The run ends, within the caller's transaction. Gives its log as it is kept with its turn, whose texts are `text`, and
   * removes its blocks; null where the log cannot be kept so: then it stays as it is, and what is pending is written.
   */
  end(text: string): string | null {
    clearTimeout(this.#timer);
    if (this.#stopped) return null;
    const lines = this.#store.all(this.#turn);
    const kept = keepLog(chained(lines, this.#pending), this.#next + this.#pendingEvents, text);
    if (kept === undefined) {
      this.write();
      return null;
    }
    this.#store.delete(this.#turn);
    this.#next += this.#pendingEvents;
    this.#pending = [];
    this.#pendingEvents = 0;
    this.wake();
    return kept;
  }

  #writeLate(): void {
    try {
      this.commit();
    } catch (error) {
      // The run learns of it at its next flush.
      this.#fault = error;
    }
  }

  /** Somebody begins to read: from now on blocks come soon. Returns what tells that they have left. */
  attach(): () => void {
    this.#readers += 1;
    if (this.#readers === 1 && this.#pendingEvents > 0) this.#writeLate();
    return () => {
      this.#readers -= 1;
    };
  }

  /** Resolves when there is more to read, or when the run has ended. */
  changed(): Promise<void> {
    return new Promise((resolve) => this.#wake.push(resolve));
  }

  wake(): void {
    const waiting = this.#wake;
    this.#wake = [];
    for (const resolve of waiting) resolve();
  }

  /** The run has ended, or its writing has failed: nothing more is written, and who waits for more is woken. */
  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
    this.wake();
  }
}
