import type { Schema } from "../../objects/schema.ts";

/** The vector stores of a tenant: rows of its directory. The object of a store answers all other questions about it. */

export const STORE_LIST_TABLES = [
  "CREATE TABLE vector_store (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE)",
  "CREATE INDEX used_by_store ON used_by (store)",
];

export interface StoreQuery {
  limit: number;
  order: "asc" | "desc";
  /** Ids of stores: after, or before, these. */
  after?: string | undefined;
  before?: string | undefined;
}

export interface StoreIdPage {
  ids: string[];
  hasMore: boolean;
}

export class StoreList {
  readonly #schema: Schema;

  constructor(schema: Schema) {
    this.#schema = schema;
  }

  /** Adds a store. False if there are as many as allowed. */
  add(id: string, max: number): boolean {
    if (this.has(id)) return true;
    const [row] = this.#schema.rows<{ stores: number }>("SELECT COUNT(*) AS stores FROM vector_store");
    if ((row?.stores ?? 0) >= max) return false;
    this.#schema.write("INSERT INTO vector_store (id) VALUES (?)", id);
    return true;
  }

  has(id: string): boolean {
    return this.#schema.rows("SELECT 1 FROM vector_store WHERE id = ?", id).length > 0;
  }

  /** Removes a store, and the notes of its files. */
  remove(id: string): void {
    this.#schema.rows("DELETE FROM vector_store WHERE id = ?", id);
    this.#schema.rows("DELETE FROM used_by WHERE store = ?", id);
  }

  /** Null if a cursor is no store. */
  list({ limit, order, after, before }: StoreQuery): StoreIdPage | null {
    const conditions = ["1"];
    const values: number[] = [];
    for (const [cursor, isAfter] of [[after, true] as const, [before, false] as const]) {
      if (cursor === undefined) continue;
      const [row] = this.#schema.rows<{ seq: number }>("SELECT seq FROM vector_store WHERE id = ?", cursor);
      if (!row) return null;
      conditions.push(`seq ${isAfter === (order === "asc") ? ">" : "<"} ?`);
      values.push(row.seq);
    }
    // With `before`, the page is the one next to that store.
    const isBackward = before !== undefined && after === undefined;
    const isAscending = (order === "asc") !== isBackward;
    const rows = this.#schema.rows<{ id: string }>(
      `SELECT id FROM vector_store WHERE ${conditions.join(" AND ")} ORDER BY seq ${isAscending ? "ASC" : "DESC"} LIMIT ?`,
      ...[...values, limit + 1],
    );
    const ids = rows.slice(0, limit).map(({ id }) => id);
    return { ids: isBackward ? ids.reverse() : ids, hasMore: rows.length > limit };
  }
}
