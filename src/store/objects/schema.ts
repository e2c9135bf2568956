/**
 * The schema of a class with few objects: its version stands in a table of its own. (A home shows its version by its
 * columns, because a row in each of millions would be expensive: `tables.ts`.)
 */

/** The statements that bring an object from each version to the next; the first ones make version 1. */
export type Versions = readonly (readonly string[])[];

export class Schema {
  readonly #storage: Pick<DurableObjectStorage, "sql" | "transactionSync">;
  readonly #versions: Versions;
  #isOpen = false;

  constructor(storage: Pick<DurableObjectStorage, "sql" | "transactionSync">, versions: Versions) {
    this.#storage = storage;
    this.#versions = versions;
  }

  /** The version of the present tables; 0 without any. Writes nothing. */
  get version(): number {
    const { sql } = this.#storage;
    const has = sql.exec("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'schema_version'").toArray();
    if (has.length === 0) return 0;
    return sql.exec<{ version: number }>("SELECT version FROM schema_version").one().version;
  }

  /** Brings the tables to the present version, all of them or none. To be called before anything is written. */
  open(): void {
    if (this.#isOpen) return;
    const { sql, transactionSync } = this.#storage;
    const version = this.version;
    if (version < this.#versions.length) {
      transactionSync.call(this.#storage, () => {
        for (const statement of this.#versions.slice(version).flat()) sql.exec(statement);
        sql.exec("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL)");
        sql.exec("DELETE FROM schema_version");
        sql.exec("INSERT INTO schema_version (version) VALUES (?)", this.#versions.length);
      });
    }
    this.#isOpen = true;
  }

  /** Runs a statement, and gives its rows; none if there are no tables. */
  rows<Row extends Record<string, SqlStorageValue>>(statement: string, ...bindings: SqlStorageValue[]): Row[] {
    if (!this.#isOpen && this.version === 0) return [];
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
