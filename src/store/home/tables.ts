import { OUTBOX_TABLE } from "../objects/outbox.ts";

/**
 * The tables of a home in their present form (docs/storage.md).
 *
 * Columns whose texts may be long (`input`, `output`, `response`, `messages`, `log`, `body`) have cells of
 * `row-pieces.ts`: text, or a blob.
 *
 * All are `WITHOUT ROWID` with the key that they are read by, so that a row costs one row written. Each is made by the
 * first write that needs it; reading never makes one.
 */

const CREATE = {
  /**
   * Settled turns. `position`: the turn's number in its conversation. `base`: the last position that the turn saw. `messages`:
   * the raw messages behind the items, if there are any. `response` is null if only the items are stored. `log`: the event log of
   * a run, or the end of one whose beginning is in `events` (`event-log.ts`); null if there is none, or all of it is there.
   * `timing`: its times (`packages/turn/src/timing.ts`), in the first part.
   * `owner`: the key that its bytes are counted for, if they are counted; the empty key is nobody's.
   */
  turns: `CREATE TABLE IF NOT EXISTS turns (
    turn TEXT NOT NULL, part INTEGER NOT NULL, parent TEXT, created_at INTEGER NOT NULL,
    position INTEGER, base INTEGER, timing TEXT,
    input TEXT NOT NULL, output TEXT NOT NULL, response TEXT, messages TEXT, log TEXT, owner TEXT,
    PRIMARY KEY (turn, part)) WITHOUT ROWID`,
  /** Background runs that are not settled yet. */
  runs: `CREATE TABLE IF NOT EXISTS runs (
    turn TEXT NOT NULL, part INTEGER NOT NULL, created_at INTEGER NOT NULL, attempts INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (turn, part)) WITHOUT ROWID`,
  /**
   * Event logs, packed: events `seq_from` to `seq_to` as JSON lines; a larger block continues in the next `part`.
   * Sealed ones begin at part 1,000,000.
   */
  events: `CREATE TABLE IF NOT EXISTS events (
    turn TEXT NOT NULL, seq_from INTEGER NOT NULL, part INTEGER NOT NULL, seq_to INTEGER NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (turn, seq_from, part)) WITHOUT ROWID`,
  /** The conversation of this home, if there is one. */
  conversation: `CREATE TABLE IF NOT EXISTS conversation (
    id TEXT NOT NULL PRIMARY KEY, created_at INTEGER NOT NULL, metadata TEXT NOT NULL, owner TEXT) WITHOUT ROWID`,
  /** Items removed from the conversation. */
  deleted_items: "CREATE TABLE IF NOT EXISTS deleted_items (id TEXT NOT NULL PRIMARY KEY) WITHOUT ROWID",
  /** Idempotency keys of the last day, in the object that the key names; `begun`: their turn exists or existed here. */
  idempotency: `CREATE TABLE IF NOT EXISTS idempotency (
    fingerprint TEXT NOT NULL PRIMARY KEY, home TEXT NOT NULL, turn TEXT NOT NULL,
    created_at INTEGER NOT NULL, begun INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID`,
  /** Messages to other objects (`outbox.ts`). */
  outbox: OUTBOX_TABLE,
} as const;

export type TableName = keyof typeof CREATE;

type Row = Record<string, SqlStorageValue>;

/** The existing tables, read once, and the statements on them. */
export class Tables {
  readonly #sql: SqlStorage;
  #present: Set<string> | undefined;

  constructor(sql: SqlStorage) {
    this.#sql = sql;
  }

  has(table: TableName): boolean {
    this.#present ??= this.#look();
    return this.#present.has(table);
  }

  /** Tells whether there may be no table, as far as is known without reading. */
  get mayBeNone(): boolean {
    return this.#present === undefined || this.#present.size === 0;
  }

  /** Tells whether there is no table at all, not even one that is not listed here. */
  isNone(): boolean {
    return this.#look().size === 0;
  }

  #look(): Set<string> {
    const tables = this.#sql.exec<{ name: string }>("SELECT name FROM sqlite_schema WHERE type = 'table'").toArray();
    // Tables of the runtime: its alarm.
    return new Set(tables.map(({ name }) => name).filter((name) => !name.startsWith("_cf_")));
  }

  /** Runs a statement on a table, and gives its rows; none if the table does not exist. */
  rows<R extends Row = Row>(table: TableName, statement: string, ...bindings: SqlStorageValue[]): R[] {
    return this.has(table) ? this.#sql.exec<R>(statement, ...bindings).toArray() : [];
  }

  /** The same, reading the rows as they are taken. */
  each<R extends Row>(table: TableName, statement: string, ...bindings: SqlStorageValue[]): Iterable<R> {
    return this.has(table) ? this.#sql.exec<R>(statement, ...bindings) : [];
  }

  /** Runs a statement on a table, which is made if it does not exist. */
  write(
    table: TableName,
    statement: string,
    ...bindings: (SqlStorageValue | Uint8Array)[]
  ): Pick<SqlStorageCursor<Row>, "rowsWritten"> {
    if (!this.has(table)) this.make(table);
    return this.#sql.exec(statement, ...bindings);
  }

  /** Makes a table if it does not exist. */
  make(table: TableName): void {
    if (this.has(table)) return;
    this.#sql.exec(CREATE[table]);
    this.#present?.add(table);
  }

  /** To be called when a transaction that may have made tables was rolled back, or everything was deleted. */
  forget(): void {
    this.#present = undefined;
  }
}
