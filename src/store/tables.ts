/**
 * The tables of a home as they are made today (docs/storage.md). `migrations.ts` brings tables of earlier versions up to
 * these.
 *
 * Columns of texts that may be long (`input`, `output`, `response`, `messages`, `log`, `body`) have cells of `row-pieces.ts`: text,
 * or a blob.
 *
 * All are `WITHOUT ROWID` with the key that they are read by, so that a row costs one row written. Each is made by the
 * first write that needs it; reading never makes one.
 */

const CREATE = {
  /**
   * Settled turns. `position`: the turn's number in its conversation. `base`: the last position that the turn saw.
   * `messages`: the raw messages behind the items, if there are any. `response` is null when only the items are kept.
   * `log`: the event log of a run, or the end of one whose beginning is in `events` (`event-log.ts`); null where there is none, or all is there.
   * `owner`: the key that has stored it, where what is stored is counted; the empty one is nobody's.
   */
  turns: `CREATE TABLE IF NOT EXISTS turns (
    turn TEXT NOT NULL, part INTEGER NOT NULL, parent TEXT, created_at INTEGER NOT NULL,
    position INTEGER, base INTEGER,
    input TEXT NOT NULL, output TEXT NOT NULL, response TEXT, messages TEXT, log TEXT, owner TEXT,
    PRIMARY KEY (turn, part)) WITHOUT ROWID`,
  /** Background runs that are not settled yet. */
  runs: `CREATE TABLE IF NOT EXISTS runs (
    turn TEXT NOT NULL, part INTEGER NOT NULL, created_at INTEGER NOT NULL, attempts INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (turn, part)) WITHOUT ROWID`,
  /** Event logs, packed: events `seq_from` to `seq_to` as JSON lines; a larger block goes on in the next `part`. Sealed ones begin at part 1,000,000. */
  events: `CREATE TABLE IF NOT EXISTS events (
    turn TEXT NOT NULL, seq_from INTEGER NOT NULL, part INTEGER NOT NULL, seq_to INTEGER NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (turn, seq_from, part)) WITHOUT ROWID`,
  /** The conversation that lives here, if one does. */
  conversation: `CREATE TABLE IF NOT EXISTS conversation (
    id TEXT NOT NULL PRIMARY KEY, created_at INTEGER NOT NULL, metadata TEXT NOT NULL, owner TEXT) WITHOUT ROWID`,
  /** Items taken out of the conversation. */
  deleted_items: "CREATE TABLE IF NOT EXISTS deleted_items (id TEXT NOT NULL PRIMARY KEY) WITHOUT ROWID",
  /** Idempotency keys seen in the last day, in the object that the key names; `begun`: their turn is or was there. */
  idempotency: `CREATE TABLE IF NOT EXISTS idempotency (
    fingerprint TEXT NOT NULL PRIMARY KEY, home TEXT NOT NULL, turn TEXT NOT NULL,
    created_at INTEGER NOT NULL, begun INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID`,
  /** Webhooks that wait to be delivered. */
  webhooks: `CREATE TABLE IF NOT EXISTS webhooks (
    turn TEXT NOT NULL PRIMARY KEY, response TEXT NOT NULL, type TEXT NOT NULL, created_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL, due INTEGER NOT NULL) WITHOUT ROWID`,
} as const;

export type TableName = keyof typeof CREATE;

/** Which tables are there, asked once, and their making. */
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

  /** Whether there may be no table at all, as far as is known without looking. */
  get mayBeNone(): boolean {
    return this.#present === undefined || this.#present.size === 0;
  }

  /** Whether there is no table at all, also none that is not of these. */
  isNone(): boolean {
    return this.#look().size === 0;
  }

  #look(): Set<string> {
    const tables = this.#sql.exec<{ name: string }>("SELECT name FROM sqlite_schema WHERE type = 'table'").toArray();
    // The runtime's own: its alarm.
    return new Set(tables.map(({ name }) => name).filter((name) => !name.startsWith("_cf_")));
  }

  /** Makes a table if it is not there. */
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
