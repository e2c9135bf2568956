/** The step to the next version of a class's tables. */
export interface Migration {
  /** The table that it changes. An object without this table does not need the migration. */
  table: string;
  /** A column of the table that only this version and later ones have. One of the statements adds it. */
  column: string;
  statements: readonly string[];
}

/**
 * The migrations of each class's tables, by the class's name, oldest first. Version 1 has none: its tables are those
 * that the class creates. The content of `Board` renews itself, and has no versions.
 */
export const MIGRATIONS = {
  Home: [],
  KeyDirectory: [],
  Quota: [],
  FileDirectory: [],
  FileBytes: [],
  VectorStore: [],
  Webhooks: [],
  Batches: [],
  ResponseIndex: [],
} satisfies Record<string, readonly Migration[]>;

/**
 * The present version of the tables of each class. Programs beside the Worker read it, too: they must not touch data of
 * a newer version.
 */
export const SCHEMA_VERSIONS: Readonly<Record<string, number>> = Object.fromEntries(
  Object.entries<readonly Migration[]>(MIGRATIONS).map(([name, migrations]) => [name, 1 + migrations.length]),
);
