import type { BatchSink } from "@responses-edge/turn/output-events";
import { recordLine, type TurnRecord } from "@responses-edge/turn/records";
import type { Config } from "../../config/index.ts";
import type { Cell } from "../objects/row-pieces.ts";
import { type EventLogStore, SEALED_LENGTH } from "./event-log.ts";

/** A block larger than this is written at once. UTF-16 units. */
const MAX_BLOCK_LENGTH = 64 * 1024;

/**
 * Takes a live run's events to its log, and wakes those who read it. Written rows cost the most here. So a block is
 * written after an event that is no delta, when it is large, or after an interval, which is short while there are
 * readers and long without them. A crash loses at most the last block, which nobody has seen.
 */
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
  /** UTF-16 units of the blocks that this writer has written since blocks were last sealed. */
  #openLength = 0;
  #fault: unknown;
  #stopped = false;

  /** `next`: the sequence number of the next event. */
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

  /** Number of events so far. */
  get events(): number {
    return this.#next + this.#pendingEvents;
  }

  event(type: string, json: string): void {
    this.#pending.push(json);
    this.#pendingEvents += 1;
    this.#length += json.length;
    if (!type.endsWith(".delta")) this.#urgent = true;
  }

  /** Keeps a record between the events before and after it. It is written with the next event, if one comes soon. */
  record(record: TurnRecord): void {
    const line = recordLine(record);
    this.#pending.push(line);
    this.#length += line.length;
  }

  /** Writes everything pending now, before an action that must not be repeated. */
  commit(): void {
    if (this.#fault) throw this.#fault;
    this.write();
    if (this.#pending.length === 0 || this.#stopped) return;
    this.#store.appendRecords(this.#turn, this.#next, this.#pending);
    this.#pending = [];
    this.#length = 0;
    this.#writtenAt = Date.now();
  }

  /** Writes now, later, or not yet. Throws the errors of the storage, including that of an earlier write by the timer. */
  flush(): undefined {
    if (this.#fault) throw this.#fault;
    if (this.#pending.length === 0 || this.#stopped) return;
    // Nobody reads records without events.
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

  /** Writes everything pending, if it has an event, within the caller's transaction if there is one. */
  write(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#pendingEvents === 0 || this.#stopped) return;
    const from = this.#next;
    const next = from + this.#pendingEvents;
    const isLong = this.#length >= SEALED_LENGTH;
    // Sealed before the new block is written, because the run's followers read that next.
    if (isLong || this.#openLength + this.#length > SEALED_LENGTH) {
      this.#store.seal(this.#turn);
      this.#openLength = 0;
    }
    this.#store.append(this.#turn, { from, to: next - 1, lines: this.#pending }, isLong);
    if (!isLong) this.#openLength += this.#length;
    this.#next = next;
    this.#pending = [];
    this.#pendingEvents = 0;
    this.#length = 0;
    this.#urgent = false;
    this.#writtenAt = Date.now();
    this.wake();
  }

  /** Ends the log with everything pending, within the caller's transaction. Gives the part of it that its turn stores, if any. */
  end(): Cell | null {
    clearTimeout(this.#timer);
    if (this.#stopped) return null;
    const next = this.#next + this.#pendingEvents;
    const kept = this.#store.end(this.#turn, { from: this.#next, to: next - 1, lines: this.#pending });
    this.#next = next;
    this.#pending = [];
    this.#pendingEvents = 0;
    this.wake();
    return kept;
  }

  #writeLate(): void {
    try {
      this.commit();
    } catch (error) {
      // The run gets the error at its next flush.
      this.#fault = error;
    }
  }

  /** Adds a reader: from now on blocks are written soon. Gives the function that removes it. */
  attach(): () => void {
    this.#readers += 1;
    if (this.#readers === 1 && this.#pendingEvents > 0) this.#writeLate();
    return () => {
      this.#readers -= 1;
    };
  }

  /** Resolves when there is more to read, or the run has ended. */
  changed(): Promise<void> {
    return new Promise((resolve) => this.#wake.push(resolve));
  }

  wake(): void {
    const waiting = this.#wake;
    this.#wake = [];
    for (const resolve of waiting) resolve();
  }

  /** Stops writing, because the run has ended or its writing has failed, and wakes the waiting readers. */
  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
    this.wake();
  }
}
