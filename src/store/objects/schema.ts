import type { Migration } from "./registry.ts";

/**
 * Versions of tables. A class creates its tables in their present form; a migration brings tables of the version before
 * to it. The columns of an object's tables show its version: Durable Objects refuse `PRAGMA user_version` (SQLITE_AUTH),
 * and a table for the version would cost each of millions of objects three more rows.
 */

type Storage = Pick<DurableObjectStorage, "sql" | "transactionSync">;

/**
 * Brings an object's tables to the present version, all of them or none. To be called before anything is read. Creates
 * no table that does not exist, and writes nothing if there is nothing to do.
 */
export function migrate(storage: Storage, migrations: readonly Migration[]): void {
  const { sql } = storage;
  const isNeeded = ({ table, column }: Migration) => {
    const columns = sql.exec<{ name: string }>("SELECT name FROM pragma_table_info(?)", table).toArray();
    return columns.length > 0 && columns.every(({ name }) => name !== column);
  };
  const needed = migrations.filter(isNeeded);
  if (needed.length === 0) return;
  storage.transactionSync(() => {
    for (const statement of needed.flatMap(({ statements }) => statements)) sql.exec(statement);
  });
}

/** The tables of an object that creates all of them together, with its first write. */
export class Schema {
  readonly #storage: Storage;
  readonly #tables: readonly string[];
  readonly #migrations: readonly Migration[];
  #isOpen = false;

  /** `tables`: the statements that create the tables in their present form. */
  constructor(storage: Storage, tables: readonly string[], migrations: readonly Migration[] = []) {
    this.#storage = storage;
    this.#tables = tables;
    this.#migrations = migrations;
  }

  /** Creates the tables, or brings them to the present version. To be called before anything is written. */
  open(): void {
    if (this.#isOpen) return;
    if (this.#exists()) migrate(this.#storage, this.#migrations);
    else {
      this.#storage.transactionSync(() => {
        for (const statement of this.#tables) this.#storage.sql.exec(statement);
      });
    }
    this.#isOpen = true;
  }

  #exists(): boolean {
    // `_cf_` begins the names of the runtime's tables, such as that of the alarm.
    const own = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND substr(name, 1, 4) <> '_cf_' LIMIT 1";
    return this.#storage.sql.exec(own).toArray().length > 0;
  }

  /** Runs a statement, and gives its rows; none if there are no tables. */
  rows<Row extends Record<string, SqlStorageValue>>(statement: string, ...bindings: SqlStorageValue[]): Row[] {
    if (!this.#isOpen && !this.#exists()) return [];
    this.open();
    return this.#storage.sql.exec<Row>(statement, ...bindings).toArray();
  }

  /** Runs a statement on the tables, which are made if they do not exist. Gives the number of rows it has written. */
  write(statement: string, ...bindings: SqlStorageValue[]): number {
    this.open();
    return this.#storage.sql.exec(statement, ...bindings).rowsWritten;
  }

  /** To be called when everything was deleted. */
  forget(): void {
    this.#isOpen = false;
  }
}
