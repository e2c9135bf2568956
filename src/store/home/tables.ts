import { SCHEMA_VERSIONS } from "../objects/schema-versions.ts";

/**
 * The tables of a home in their present form (docs/storage.md). `migrate` brings tables of earlier versions to it.
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
   * `owner`: the key that its bytes are counted for, if they are counted; the empty key is nobody's.
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
  /** Webhooks that wait to be delivered. */
  webhooks: `CREATE TABLE IF NOT EXISTS webhooks (
    turn TEXT NOT NULL PRIMARY KEY, response TEXT NOT NULL, type TEXT NOT NULL, created_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL, due INTEGER NOT NULL) WITHOUT ROWID`,
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

/**
 * The versions of the schema. An object whose tables are of an earlier version is migrated when it opens.
 *
 * An object's columns show its version. Durable Objects refuse `PRAGMA user_version` (SQLITE_AUTH), and a table for the
 * version would cost every new object three more rows. So a version that changes tables must add a column by which it
 * is recognised. A version that adds none has nothing to migrate: version 5 has the tables of version 4, and the type
 * of a cell says how to read it (`row-pieces.ts`); version 8 has those of version 7, and the beginning of a stored log
 * says its form (`event-log.ts`). docs/storage.md lists the versions.
 */

interface Migration {
  /** The version that an object has after it. */
  version: number;
  table: TableName;
  column: string;
  type: string;
}

/** Oldest first. New tables have all of it. */
const MIGRATIONS: readonly Migration[] = [
  { version: 2, table: "turns", column: "messages", type: "TEXT" },
  { version: 3, table: "idempotency", column: "begun", type: "INTEGER NOT NULL DEFAULT 0" },
  { version: 4, table: "turns", column: "log", type: "TEXT" },
  { version: 6, table: "turns", column: "owner", type: "TEXT" },
  { version: 7, table: "conversation", column: "owner", type: "TEXT" },
];

/** The version of the present tables. */
export const SCHEMA_VERSION = SCHEMA_VERSIONS.Home;

/**
 * Brings an object's tables to the present version, all of them or none. To be called once, before anything is read.
 * Makes no table, and writes nothing if there is nothing to do. `tables` tells which tables exist: a new object, which
 * has none, is asked nothing more.
 */
export function migrate(
  storage: Pick<DurableObjectStorage, "sql" | "transactionSync">,
  tables: Pick<Tables, "has"> = new Tables(storage.sql),
): void {
  if (!MIGRATIONS.some(({ table }) => tables.has(table))) return;
  if (schemaVersion(storage.sql) === SCHEMA_VERSION) return;
  storage.transactionSync(() => {
    for (const { table, column, type } of missingIn(storage.sql)) {
      storage.sql.exec(`ALTER TABLE ${table} ADD COLUMN ${column} ${type}`);
    }
  });
}

/** The version of an object's tables; the present one for an object without tables. */
export function schemaVersion(sql: SqlStorage): number {
  const [first] = missingIn(sql);
  return first ? first.version - 1 : SCHEMA_VERSION;
}

/** The migrations that an object needs, oldest first. A missing table needs none: it is made in its present form. */
function missingIn(sql: SqlStorage): Migration[] {
  const rows = sql.exec<{ table: string; column: string }>(
    `SELECT tables.name AS "table", columns.name AS "column"
     FROM sqlite_schema AS tables JOIN pragma_table_info(tables.name) AS columns
     WHERE tables.name IN (${MIGRATIONS.map(({ table }) => `'${table}'`).join()})`,
  );
  const columns = Map.groupBy(rows, ({ table }) => table);
  return MIGRATIONS.filter(({ table, column }) => columns.get(table)?.some((row) => row.column === column) === false);
}
