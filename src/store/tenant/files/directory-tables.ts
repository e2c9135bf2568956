import { STORE_LIST_TABLES } from "../vector-stores/store-list.ts";
import { CONTAINER_TABLES } from "./container-table.ts";

/** The tables of a directory. */
export const FILE_DIRECTORY_TABLES = [
  `CREATE TABLE file (
      seq INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, purpose TEXT NOT NULL,
      bytes INTEGER NOT NULL, created_at INTEGER NOT NULL, expires_at INTEGER, body TEXT NOT NULL, container TEXT)`,
  "CREATE INDEX file_purpose ON file (purpose, seq)",
  "CREATE INDEX file_expiry ON file (expires_at) WHERE expires_at IS NOT NULL",
  "CREATE INDEX file_container ON file (container) WHERE container IS NOT NULL",
  ...CONTAINER_TABLES,
  // Files that were removed, or completed, and whose bytes are partly still to be removed; `kept`: the parts that are
  // kept.
  `CREATE TABLE removed (
      key TEXT NOT NULL PRIMARY KEY, at INTEGER NOT NULL, tries INTEGER NOT NULL, kept TEXT) WITHOUT ROWID`,
  // The vector stores that a file is in.
  "CREATE TABLE used_by (key TEXT NOT NULL, store TEXT NOT NULL, PRIMARY KEY (key, store)) WITHOUT ROWID",
  ...STORE_LIST_TABLES,
  // Parts that are being received, and those of uploads: complete (1), or given up (2). Nobody sees them. Part 0 is a
  // file that comes as a whole.
  `CREATE TABLE part (
      key TEXT NOT NULL, part INTEGER NOT NULL, owner TEXT NOT NULL, bytes INTEGER NOT NULL, touched_at INTEGER NOT NULL,
      is_whole INTEGER NOT NULL, PRIMARY KEY (key, part)) WITHOUT ROWID`,
  "CREATE TABLE total (owner TEXT NOT NULL PRIMARY KEY, files INTEGER NOT NULL, bytes INTEGER NOT NULL) WITHOUT ROWID",
  ...totalsOf("file", "1"),
  ...totalsOf("part", "part = 0"),
  // Files that come in parts. An ended upload is remembered for a day.
  `CREATE TABLE upload (
      key TEXT NOT NULL PRIMARY KEY, owner TEXT NOT NULL, expires_at INTEGER NOT NULL, status TEXT NOT NULL, body TEXT NOT NULL) WITHOUT ROWID`,
];

/** Triggers that maintain the totals of a table's rows; `files`: the number of files that a row counts as. */
function totalsOf(table: string, files: string): string[] {
  const filesOf = (row: string) => files.replace("part", `${row}.part`);
  const add = `INSERT INTO total (owner, files, bytes) VALUES (NEW.owner, ${filesOf("NEW")}, NEW.bytes)
    ON CONFLICT (owner) DO UPDATE SET files = files + excluded.files, bytes = bytes + excluded.bytes;`;
  const subtract = `UPDATE total SET files = files - (${filesOf("OLD")}), bytes = bytes - OLD.bytes WHERE owner = OLD.owner;`;
  return [
    `CREATE TRIGGER ${table}_in AFTER INSERT ON ${table} BEGIN ${add} END`,
    `CREATE TRIGGER ${table}_out AFTER DELETE ON ${table} BEGIN ${subtract} END`,
    `CREATE TRIGGER ${table}_changed AFTER UPDATE OF bytes ON ${table} BEGIN ${subtract} ${add} END`,
  ];
}
