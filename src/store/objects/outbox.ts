import { logLine } from "@responses-edge/bounded-io/json-text";

/**
 * The messages of an object to other objects. Each is noted in the transaction of the change that it is about,
 * and delivered by the object's alarm, so a killed process loses none and no request waits for a receiver. A message may be
 * delivered twice.
 *
 * Most kinds of messages have a row each. A *state* is a kind that tells what other tables of the object hold, as it is at the time of
 * the delivery: many changes make one delivery. It needs no row, because the alarm that was set with the change shows that
 * something may have changed.
 */

export const OUTBOX_TABLE = `CREATE TABLE IF NOT EXISTS outbox (
  kind TEXT NOT NULL, key TEXT NOT NULL, due INTEGER NOT NULL, attempts INTEGER NOT NULL, payload TEXT NOT NULL,
  PRIMARY KEY (kind, key)) WITHOUT ROWID`;

/** The time in which changes of a state are gathered for one delivery. Milliseconds. */
export const GATHER_MS = 2_000;

/** First wait after a failed attempt; it doubles, up to the longest. */
const RETRY_BASE_MS = 5_000;
const RETRY_MAX_MS = 4 * 3_600_000;

/** About three days of attempts, as OpenAI makes for webhooks. */
export const MAX_ATTEMPTS = 30;

/** The wait after a failure that `attempts` others preceded, in milliseconds. */
export function retryWaitMs(attempts: number): number {
  return Math.min(RETRY_BASE_MS * 2 ** attempts, RETRY_MAX_MS);
}

/** The statements on the table (`Schema`, or `Tables` of a home). */
export interface OutboxSql {
  /** The rows of a statement; none if the table does not exist. */
  rows<Row extends Record<string, SqlStorageValue>>(statement: string, ...bindings: SqlStorageValue[]): Row[];
  /** Runs a statement on the table, which is made if it does not exist. */
  write(statement: string, ...bindings: SqlStorageValue[]): unknown;
}

/** The payload of each kind of message. */
type Payloads = Record<string, object>;

/** Delivers a message. Rejects if the receiver has not taken it. */
type Deliver<Payload> = (payload: Payload, key: string) => Promise<void>;

export interface OutboxOptions<Kinds extends Payloads> {
  sql: OutboxSql;
  deliver: { [Kind in keyof Kinds]: Deliver<Kinds[Kind]> };
  /** For each state: tells whether its receiver may not know it. A state has the empty key. */
  states?: { [Kind in keyof Kinds]?: () => boolean };
  /** Makes the object's alarm ring at this time (Unix milliseconds) or earlier, in the write that is in progress. */
  wake: (at: number) => void;
}

type Row = { kind: string; key: string; due: number; attempts: number; payload: string };

export class Outbox<Kinds extends Payloads> {
  readonly #options: OutboxOptions<Kinds>;
  /**
   * The messages that this instance of the object has noted and not attempted yet, with the time when they are due. Their first
   * attempt is not counted: if it ends the process, the next instance counts its own.
   */
  readonly #noted = new Map<string, number>();
  #delivering: Promise<void> | undefined;

  constructor(options: OutboxOptions<Kinds>) {
    this.#options = options;
  }

  /** Adds a message, or replaces the one with its kind and key. To be called within the transaction of the change. */
  add<Kind extends keyof Kinds & string>(kind: Kind, key: string, payload: Kinds[Kind], due = Date.now()): void {
    const insert = `INSERT INTO outbox (kind, key, due, attempts, payload) VALUES (?, ?, ?, 0, ?)
      ON CONFLICT (kind, key) DO UPDATE SET due = excluded.due, attempts = 0, payload = excluded.payload`;
    this.#options.sql.write(insert, kind, key, due, JSON.stringify(payload));
    this.#noted.set(nameOf(kind, key), due);
    this.#options.wake(due);
  }

  /** Notes a change of a state. To be called beside the write of the change, without waiting in between. */
  note(kind: keyof Kinds & string): void {
    if (this.#noted.has(nameOf(kind, ""))) return;
    const due = Date.now() + GATHER_MS;
    this.#noted.set(nameOf(kind, ""), due);
    this.#options.wake(due);
  }

  /** Tells whether nothing is to be delivered. */
  get isEmpty(): boolean {
    return this.#rows().length === 0 && this.#states().length === 0;
  }

  /** When the next delivery is due, Unix milliseconds; null if there is none. */
  nextDue(): number | null {
    const rows = this.#rows();
    const times = rows.map(({ due }) => due);
    for (const state of Object.keys(this.#options.states ?? {})) {
      const due = this.#noted.get(nameOf(state, ""));
      if (due !== undefined && !rows.some(({ kind }) => kind === state)) times.push(due);
    }
    return times.length === 0 ? null : Math.min(...times);
  }

  /** Delivers all messages, except those that wait after a failed attempt. A failed delivery is due again later. Never rejects because of a receiver. */
  deliver(): Promise<void> {
    this.#delivering ??= this.#deliverAll().finally(() => {
      this.#delivering = undefined;
    });
    return this.#delivering;
  }

  /** Forgets everything, because the object's storage is about to be deleted. Resolves when no delivery is under way. */
  async forget(): Promise<void> {
    this.#noted.clear();
    await this.#delivering;
    this.#noted.clear();
  }

  async #deliverAll(): Promise<void> {
    const now = Date.now();
    const rows = this.#rows();
    const waiting = new Set(rows.map(({ kind }) => kind));
    const states = this.#states().filter((kind) => !waiting.has(kind));
    // A state that has been delivered otherwise since it was noted.
    for (const kind of Object.keys(this.#options.states ?? {})) {
      if (!waiting.has(kind) && !states.includes(kind)) this.#noted.delete(nameOf(kind, ""));
    }
    const due = [
      // First attempts that are gathered need not wait for each other.
      ...rows.filter((row) => row.due <= now + (row.attempts === 0 ? GATHER_MS : 0)),
      ...states.map((kind) => ({ kind, key: "", due: now, attempts: 0, payload: "{}" })),
    ];
    // A receiver that is slow, or gone, delays its own kind only.
    const kinds = Map.groupBy(due, ({ kind }) => kind).values();
    await Promise.all(
      kinds.map(async (messages) => {
        for (const message of messages) await this.#attempt(message);
      }),
    );
  }

  async #attempt(message: Row): Promise<void> {
    const { kind, key, attempts, payload } = message;
    const isNoted = this.#noted.delete(nameOf(kind, key));
    if (attempts >= MAX_ATTEMPTS) return this.#giveUp(message);
    if (!isNoted) this.#count(message);
    try {
      await this.#options.deliver[kind]?.(JSON.parse(payload), key);
      this.#remove(message);
    } catch (error) {
      const name = error instanceof Error ? error.name : typeof error;
      console.error(logLine({ level: "error", outbox: kind, key, attempts: attempts + 1, error: name }));
      if (isNoted) this.#count(message);
    }
  }

  #giveUp(message: Row): void {
    const { kind, key, attempts } = message;
    console.error(logLine({ level: "error", outbox: kind, key, attempts, given_up: true }));
    this.#remove(message);
  }

  /** Removes a message, unless it was replaced during its delivery. */
  #remove({ kind, key }: Row): void {
    if (this.#noted.has(nameOf(kind, key))) return;
    this.#options.sql.rows("DELETE FROM outbox WHERE kind = ? AND key = ?", kind, key);
  }

  /** Counts an attempt, and makes the next one due later. */
  #count({ kind, key, attempts, payload }: Row): void {
    if (this.#noted.has(nameOf(kind, key))) return;
    const insert = `INSERT INTO outbox (kind, key, due, attempts, payload) VALUES (?, ?, ?, ?, ?)
      ON CONFLICT (kind, key) DO UPDATE SET due = excluded.due, attempts = excluded.attempts`;
    this.#options.sql.write(insert, kind, key, Date.now() + retryWaitMs(attempts), attempts + 1, payload);
  }

  #rows(): Row[] {
    return this.#options.sql.rows<Row>("SELECT kind, key, due, attempts, payload FROM outbox ORDER BY due");
  }

  /** The states that their receivers may not know. */
  #states(): string[] {
    const states = Object.entries<(() => boolean) | undefined>(this.#options.states ?? {});
    return states.filter(([, isPending]) => isPending?.()).map(([kind]) => kind);
  }
}

function nameOf(kind: string, key: string): string {
  return `${kind}:${key}`;
}
