import { DatabaseSync } from "node:sqlite";

/**
 * Files in a backup. A directory lists files whose bytes are in other objects, which are copied at other moments. So
 * each directory is read twice, before the bytes are copied and after: a file in both copies existed all the time, and
 * its bytes are complete. A file in only one of them was added or deleted meanwhile. The backup does not list it, and
 * lets the restored server remove its bytes.
 */

/** The compared tables of the two copies. */
const TABLES = ["file", "part", "removed", "used_by", "vector_store"];

/**
 * Removes from the later copy of a directory all rows that are not in the earlier one. `before` is a file that may not
 * exist. False if the copy stays unchanged: it lists nothing, or nothing was added or deleted.
 */
export function withdrawUnsure(after: string, before: string | undefined, now = Date.now()): boolean {
  using database = new DatabaseSync(after);
  if (!has(database, "main", "file")) return false;
  database.prepare("ATTACH DATABASE ? AS before").run(before ?? ":memory:");
  if (!has(database, "before", "file")) {
    for (const table of TABLES) database.exec(`CREATE TABLE before.${table} AS SELECT * FROM main.${table} LIMIT 0`);
  }
  database.exec("BEGIN");
  database.exec(`CREATE TEMP TABLE unsure AS
    SELECT key FROM main.file WHERE key NOT IN (SELECT key FROM before.file)
    UNION SELECT key FROM (SELECT key FROM before.file UNION SELECT key FROM before.part UNION SELECT key FROM before.removed)
      WHERE key NOT IN (SELECT key FROM main.file UNION SELECT key FROM main.part UNION SELECT key FROM main.removed)`);
  const changes = [
    "DELETE FROM main.file WHERE key IN (SELECT key FROM unsure)",
    // The vector stores that have the file learn that it was removed.
    "INSERT OR IGNORE INTO main.used_by (key, store) SELECT key, store FROM before.used_by",
    `INSERT OR REPLACE INTO main.removed (key, at, tries, kept) SELECT key, ${now}, 0, NULL FROM unsure`,
    // A part that became whole meanwhile may be missing in the copy of its bytes, so it is given up.
    `UPDATE main.part SET is_whole = 2, bytes = 0 WHERE is_whole = 1
      AND (key, part) NOT IN (SELECT key, part FROM before.part WHERE is_whole = 1)`,
    // A vector store that was deleted meanwhile may still be in the backup. If it is not, its first use finds that.
    "INSERT OR IGNORE INTO main.vector_store (id) SELECT id FROM before.vector_store",
  ].map((statement) => Number(database.prepare(statement).run().changes));
  const isChanged = changes.some((rows) => rows > 0);
  if (isChanged && has(database, "main", "_cf_METADATA")) {
    // The alarm is the first of an object's metadata, in nanoseconds.
    const set = "UPDATE main._cf_METADATA SET value = ? WHERE key = 1 AND value IS NOT NULL";
    database.prepare(set).run(BigInt(now) * 1_000_000n);
  }
  database.exec("COMMIT");
  return isChanged;
}

function has(database: DatabaseSync, schema: "main" | "before", table: string): boolean {
  return database.prepare(`SELECT 1 FROM ${schema}.sqlite_schema WHERE name = ?`).get(table) !== undefined;
}
