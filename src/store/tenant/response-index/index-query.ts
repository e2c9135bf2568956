import { termsOf } from "@responses-edge/vector-search";
import type { Schema } from "../../objects/schema.ts";

/** Queries of the list of responses, in SQL. */

/** Most numbers of responses that were created in one millisecond. */
export const PER_MS = 1_000;

export type Order = "asc" | "desc";

export interface IndexQuery {
  order: Order;
  limit: number;
  /** The id of a listed response. */
  after?: string | undefined;
  /** The only response to list. */
  id?: string | undefined;
  /** Tags (`tagOf`). A response must have all of them. */
  tags: readonly string[];
  /** A user's words. A response must have all of them. */
  text?: string | undefined;
  /** Unix milliseconds: created at or after `from`, and before `until`. */
  from: number;
  until: number;
}

/** Numbers of responses: `least` or greater, and less than `below`. */
export interface NumberRange {
  least: number;
  below: number;
}

/** The responses that match a query. `words` is an FTS5 expression; empty for all responses. */
export interface Filter extends NumberRange {
  words: string;
}

/** All responses that were created at `oldest` (Unix milliseconds) or later. */
export const unexpired = (oldest: number): NumberRange => ({ least: oldest * PER_MS, below: Number.MAX_SAFE_INTEGER });

export const overlapOf = (one: NumberRange, other: NumberRange): NumberRange => ({
  least: Math.max(one.least, other.least),
  below: Math.min(one.below, other.below),
});

/** The FTS5 expression of responses that have all tags. */
export const tagged = (...tags: string[]): string => tags.map((tag) => `tags : "${tag}"`).join(" AND ");

/** The filter of a query, without its cursor; undefined if nothing can match. */
export function filterOf(
  schema: Schema,
  { id, tags, text, from, until }: IndexQuery,
  oldest: number,
): Filter | undefined {
  const terms = text === undefined ? [] : termsOf(text);
  if (text !== undefined && terms.length === 0) return undefined;
  const times = { least: from * PER_MS, below: until * PER_MS };
  const range = overlapOf(unexpired(oldest), times);
  const words = [...tags.map((tag) => tagged(tag)), ...terms.map((term) => `text : ${term}`)].join(" AND ");
  if (id === undefined) return { ...range, words };
  const no = numberOf(schema, id);
  return no === undefined ? undefined : { ...overlapOf(range, { least: no, below: no + 1 }), words };
}

/** The numbers that follow the cursor of a query; undefined if the cursor is not listed. */
export function pageRange(schema: Schema, { order, after }: IndexQuery): NumberRange | undefined {
  const all = { least: 0, below: Number.MAX_SAFE_INTEGER };
  if (after === undefined) return all;
  const cursor = numberOf(schema, after);
  if (cursor === undefined) return undefined;
  return order === "desc" ? { ...all, below: cursor } : { ...all, least: cursor + 1 };
}

/** SQL: a number of a response as FTS5 gets it. It reads from there only if the number is an integer, and numbers are bound as floats. */
export const NUMBER = "CAST(? AS INTEGER)";

/** A response that matches. `responses`: how many its tree has, if it is the newest of them. */
export type Match = { no: number; id: string; body: string; responses: number | null };

/** Columns of the first `limit` responses that match. */
export function matching<Column extends keyof Match>(
  schema: Schema,
  columns: readonly Column[],
  { least, below, words }: Filter,
  order: Order,
  limit: number,
): Pick<Match, Column>[] {
  const direction = order === "desc" ? "DESC" : "ASC";
  const isWithin = (no: string) =>
    `${no} >= ${NUMBER} AND ${no} < ${NUMBER} ORDER BY ${no} ${direction} LIMIT ${limit}`;
  const found =
    words === ""
      ? `SELECT no FROM response WHERE ${isWithin("no")}`
      : `SELECT rowid AS no FROM words WHERE words MATCH ? AND ${isWithin("rowid")}`;
  return schema.rows<Pick<Match, Column>>(
    `SELECT ${columns.join(", ")} FROM (${found}) AS found JOIN response USING (no) LEFT JOIN tree ON newest = no
     ORDER BY no ${direction}`,
    ...(words === "" ? [] : [words]),
    ...[least, below],
  );
}

/** The number of the first response with the words of an FTS5 expression; undefined if there is none. */
export function firstNumber(schema: Schema, { least, below, words }: Filter, order: Order): number | undefined {
  const direction = order === "desc" ? "DESC" : "ASC";
  const first = `SELECT rowid AS no FROM words WHERE words MATCH ? AND rowid >= ${NUMBER} AND rowid < ${NUMBER} ORDER BY rowid ${direction} LIMIT 1`;
  return schema.rows<{ no: number }>(first, words, least, below)[0]?.no;
}

/** The number of a listed response. */
export function numberOf(schema: Schema, id: string): number | undefined {
  return schema.rows<{ no: number }>("SELECT no FROM response WHERE id = ?", id)[0]?.no;
}
