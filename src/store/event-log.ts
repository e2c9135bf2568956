import type { BatchSink } from "../turn/turn.ts";
import { type Tables, toPieces } from "./tables.ts";

/**
 * The durable log of a background run's events, and the way they reach readers: only from the log, only what is in it.
 *
 * Rows are the dearest thing here, so events are packed: a block is written when something other than a delta happens,
 * when it is large, or when its time has come, which is soon while somebody reads and late while nobody does. A crash
 * loses at most the block that nobody has seen.
 */

/** Between two blocks of mere deltas. At 50 tokens/s: 50 rows per 1,000 deltas with a reader, 5 without. */
const READ_INTERVAL_MS = 400;
const UNREAD_INTERVAL_MS = 4_000;

/** A block larger than this is written at once. UTF-16 units. */
const MAX_BLOCK_LENGTH = 64 * 1024;

/** Events `from` to `to`, as JSON texts. */
export interface EventBlock {
  from: number;
  to: number;
  events: string[];
}

/** Reads and writes the logs of a home's runs. */
export class EventLogStore {
  readonly #sql: SqlStorage;
  readonly #tables: Tables;

  constructor(sql: SqlStorage, tables: Tables) {
    this.#sql = sql;
    this.#tables = tables;
  }

  /** Writes a block, or, when it throws, nothing of it. */
  append(turn: string, block: EventBlock): void {
    this.#tables.make("events");
    const pieces = toPieces(block.events.join("\n"));
    try {
      for (const [part, body] of pieces.entries()) {
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
      if (pieces.length > 1) this.#sql.exec("DELETE FROM events WHERE turn = ? AND seq_from = ?", turn, block.from);
      throw error;
    }
  }

  /** The block that has the event after `after`, from that event on; undefined at the log's end. */
  next(turn: string, after: number): EventBlock | undefined {
    if (!this.#tables.has("events")) return undefined;
    const rows = this.#sql
      .exec<{ seq_from: number; seq_to: number; body: string }>(
        `SELECT seq_from, seq_to, body FROM events
         WHERE turn = ?1 AND seq_to > ?2 AND seq_from = (
           SELECT MAX(seq_from) FROM events WHERE turn = ?1 AND seq_from <= ?2 + 1)
         ORDER BY part`,
        turn,
        after,
      )
      .toArray();
    const [first] = rows;
    if (!first) return undefined;
    const events = rows
      .map((row) => row.body)
      .join("")
      .split("\n");
    const from = Math.max(first.seq_from, after + 1);
    return { from, to: first.seq_to, events: events.slice(from - first.seq_from) };
  }

  /** All events of a log, in order. */
  *all(turn: string): Generator<string> {
    let after = -1;
    for (;;) {
      const block = this.next(turn, after);
      if (!block) return;
      yield* block.events;
      after = block.to;
    }
  }

  has(turn: string): boolean {
    return this.next(turn, -1) !== undefined;
  }

  delete(turn: string): void {
    if (this.#tables.has("events")) this.#sql.exec("DELETE FROM events WHERE turn = ?", turn);
  }

  /** Removes the logs of turns that are gone. */
  sweep(): void {
    if (!this.#tables.has("events")) return;
    const runs = this.#tables.has("runs") ? "UNION SELECT turn FROM runs" : "";
    this.#sql.exec(`DELETE FROM events WHERE turn NOT IN (SELECT turn FROM turns ${runs})`);
  }
}

/** Takes a live run's events to its log, and wakes those who read it. */
export class EventLogWriter implements BatchSink {
  readonly #store: EventLogStore;
  readonly #turn: string;
  #next: number;
  #pending: string[] = [];
  #length = 0;
  #urgent = false;
  #writtenAt = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #readers = 0;
  #wake: (() => void)[] = [];
  #fault: unknown;
  #stopped = false;

  /** `next`: the sequence number of the first event that will come. */
  constructor(store: EventLogStore, turn: string, next: number) {
    this.#store = store;
    this.#turn = turn;
    this.#next = next;
  }

  event(type: string, json: string): void {
    this.#pending.push(json);
    this.#length += json.length;
    if (!type.endsWith(".delta")) this.#urgent = true;
  }

  /** Writes now, later, or not yet. Throws what the storage throws, also that of an earlier write by the timer. */
  flush(): undefined {
    if (this.#fault) throw this.#fault;
    if (this.#pending.length === 0 || this.#stopped) return;
    const interval = this.#readers > 0 ? READ_INTERVAL_MS : UNREAD_INTERVAL_MS;
    const due = this.#writtenAt + interval - Date.now();
    if (due <= 0 || this.#length > MAX_BLOCK_LENGTH || (this.#urgent && this.#readers > 0)) this.write();
    else this.#timer ??= setTimeout(() => this.#writeLate(), due);
  }

  /** Writes what is pending, within the caller's transaction if there is one. */
  write(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#pending.length === 0 || this.#stopped) return;
    const events = this.#pending;
    const from = this.#next;
    this.#store.append(this.#turn, { from, to: from + events.length - 1, events });
    this.#next += events.length;
    this.#pending = [];
    this.#length = 0;
    this.#urgent = false;
    this.#writtenAt = Date.now();
    this.wake();
  }

  #writeLate(): void {
    try {
      this.write();
    } catch (error) {
      // The run learns of it at its next flush.
      this.#fault = error;
    }
  }

  /** Somebody begins to read: from now on blocks come soon. Returns what tells that they have left. */
  attach(): () => void {
    this.#readers += 1;
    if (this.#readers === 1) this.#writeLate();
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

  /** The run has ended or is given up: nothing more is written, and who waits for more is woken. */
  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
    this.wake();
  }
}
