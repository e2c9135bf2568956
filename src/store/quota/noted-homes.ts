import type { Schema } from "../schema.ts";

/**
 * The homes of a tenant: those that are noted, where it wants them noted, and those that have told what they store. Nothing else
 * tells which there are.
 */

export const HOMES_TABLE = "CREATE TABLE homes (home TEXT NOT NULL PRIMARY KEY, at INTEGER NOT NULL) WITHOUT ROWID";

export class NotedHomes {
  readonly #sql: SqlStorage;
  readonly #schema: Schema;

  constructor(sql: SqlStorage, schema: Schema) {
    this.#sql = sql;
    this.#schema = schema;
  }

  /** Notes a home; one that is noted keeps its place, and has been used at `now` (Unix milliseconds). */
  add(home: string, now: number): void {
    this.#schema.open();
    this.#sql.exec(
      "INSERT INTO homes (home, at) VALUES (?, ?) ON CONFLICT (home) DO UPDATE SET at = excluded.at",
      home,
      now,
    );
  }

  /** At most `limit` homes after `after`, in the order of their keys. */
  list(after: string, limit: number): string[] {
    if (!this.#schema.openIfMade()) return [];
    return this.#sql
      .exec<{ home: string }>(
        "SELECT home FROM homes WHERE home > ?1 UNION SELECT home FROM stored WHERE home > ?1 ORDER BY home LIMIT ?2",
        after,
        limit,
      )
      .toArray()
      .map(({ home }) => home);
  }

  /** Forgets those of these homes that were last used before `until`. */
  forget(homes: readonly string[], until: number): void {
    if (!this.#schema.openIfMade()) return;
    this.#sql.exec(
      "DELETE FROM homes WHERE at < ? AND home IN (SELECT value FROM json_each(?))",
      until,
      JSON.stringify(homes),
    );
  }

  isEmpty(): boolean {
    if (!this.#schema.openIfMade()) return true;
    return this.#sql.exec("SELECT 1 FROM homes UNION ALL SELECT 1 FROM stored LIMIT 1").toArray().length === 0;
  }
}
