import { SCHEMA_VERSIONS } from "./schema-versions.ts";
import { type TableName, Tables } from "./tables.ts";

/**
 * The versions of the schema. An object whose tables an earlier version made gets what they lack when it opens.
 *
 * The version of an object is told by its columns. Durable Objects refuse `PRAGMA user_version` (SQLITE_AUTH), and a
 * table for the version would cost every new object three rows more. So a version that changes tables must bring a column that
 * tells it. One that does not has nothing to migrate: version 5 has the tables of version 4, and a cell tells by its type how to
 * read it (`row-pieces.ts`); version 8 has those of version 7, and a kept log tells by its beginning (`event-log.ts`). docs/storage.md lists the versions.
 */

interface Migration {
  /** The version that an object has after it. */
  version: number;
  table: TableName;
  column: string;
  type: string;
}

/** Oldest first. `tables.ts` makes new tables with all of it. */
const MIGRATIONS: readonly Migration[] = [
  { version: 2, table: "turns", column: "messages", type: "TEXT" },
  { version: 3, table: "idempotency", column: "begun", type: "INTEGER NOT NULL DEFAULT 0" },
  { version: 4, table: "turns", column: "log", type: "TEXT" },
  { version: 6, table: "turns", column: "owner", type: "TEXT" },
  { version: 7, table: "conversation", column: "owner", type: "TEXT" },
];

/** The version of the tables that are made today. */
export const SCHEMA_VERSION = SCHEMA_VERSIONS.Home;

/**
 * Brings an object's tables to today's version, all of them or none. To be called once, before anything is read. Makes
 * no table, and writes nothing where nothing is to be done. `tables` tells which tables there are: a new object, which
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

/** The version of an object's tables; today's for an object without tables. */
export function schemaVersion(sql: SqlStorage): number {
  const [first] = missingIn(sql);
  return first ? first.version - 1 : SCHEMA_VERSION;
}

/** The migrations that an object needs, oldest first. A table that is not there needs none: it is made as it is today. */
function missingIn(sql: SqlStorage): Migration[] {
  const rows = sql.exec<{ table: string; column: string }>(
    `SELECT tables.name AS "table", columns.name AS "column"
     FROM sqlite_schema AS tables JOIN pragma_table_info(tables.name) AS columns
     WHERE tables.name IN (${MIGRATIONS.map(({ table }) => `'${table}'`).join()})`,
  );
  const columns = Map.groupBy(rows, ({ table }) => table);
  return MIGRATIONS.filter(({ table, column }) => columns.get(table)?.some((row) => row.column === column) === false);
}
