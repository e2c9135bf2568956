import type { Schema } from "../../objects/schema.ts";
import { treeTag } from "./entry.ts";
import {
  type Filter,
  filterOf,
  firstNumber,
  type IndexQuery,
  matching,
  NUMBER,
  type NumberRange,
  type Order,
  overlapOf,
  pageRange,
  tagged,
  unexpired,
} from "./index-query.ts";
import { newestOf } from "./tree-table.ts";

/** The list of trees, by the time of their newest response. A page of it reads its own trees, whatever the others have. */

/**
 * Most matching responses whose trees a page looks up, and, where more responses match, most trees that it compares with the filters one
 * by one.
 */
const MAX_MATCHES = 500;
const MAX_COMPARED_TREES = 250;

/** A tree; the bodies of its newest and its oldest response. */
export interface ListedTree {
  newest: string;
  root: string;
  /** How many responses it has. */
  responses: number;
}

interface TreeRow {
  /** The number and the id of its newest response. */
  no: number;
  id: string;
  responses: number;
}

/** The trees that a page may have. */
interface TreePage {
  range: NumberRange;
  order: Order;
  limit: number;
}

/**
 * A page of the trees of which a response matches, at most `limit`; null if `after` is not listed. `oldest`: the creation time of the
 * oldest unexpired response, Unix milliseconds.
 */
export function listTrees(schema: Schema, query: IndexQuery, oldest: number): ListedTree[] | null {
  const range = pageRange(schema, query);
  const filter = filterOf(schema, query, oldest);
  if (!range || !filter) return range ? [] : null;
  const { order, limit } = query;
  // A tree with a response at or after `least` has its newest response there.
  const page = { range: { ...range, least: Math.max(range.least, filter.least) }, order, limit };
  const isNarrow = filter.words !== "" || filter.below < unexpired(0).below;
  const rows = isNarrow ? matchingTrees(schema, filter, page) : treeRows(schema, page);
  return rows.map((row) => listed(schema, row, oldest));
}

/**
 * All trees with a match, if at most `MAX_MATCHES` responses match, or if enough of the next `MAX_COMPARED_TREES` trees do. Otherwise
 * those among these trees, and those of `MAX_MATCHES` matches.
 */
function matchingTrees(schema: Schema, filter: Filter, { range, order, limit }: TreePage): TreeRow[] {
  // The responses of a tree that follows the cursor are before the cursor, too.
  const near = order === "desc" ? { ...filter, below: Math.min(filter.below, range.below) } : filter;
  const matches = matching(schema, "id", near, order, MAX_MATCHES + 1);
  const found = new Map<number, TreeRow>();
  if (matches.length > MAX_MATCHES) {
    for (const row of treeRows(schema, { range, order, limit: MAX_COMPARED_TREES })) {
      const words = [tagged(treeTag(row.id)), filter.words].filter((each) => each !== "").join(" AND ");
      if (firstNumber(schema, { ...filter, words }, "desc") !== undefined) found.set(row.no, row);
      if (found.size === limit) return [...found.values()];
    }
  }
  for (const tag of new Set(matches.map(treeTag))) {
    const no = newestOf(schema, tag) ?? -1;
    const [row] = treeRows(schema, { range: overlapOf(range, { least: no, below: no + 1 }), order, limit: 1 });
    if (row) found.set(no, row);
  }
  const sign = order === "desc" ? -1 : 1;
  return [...found.values()].sort((one, other) => sign * (one.no - other.no)).slice(0, limit);
}

function treeRows(schema: Schema, { range, order, limit }: TreePage): TreeRow[] {
  return schema.rows<TreeRow & Record<string, SqlStorageValue>>(
    `SELECT no, id, responses FROM tree JOIN response ON no = newest
     WHERE newest >= ? AND newest < ? ORDER BY newest ${order === "desc" ? "DESC" : "ASC"} LIMIT ?`,
    ...[range.least, range.below, limit],
  );
}

function listed(schema: Schema, { no, id, responses }: TreeRow, oldest: number): ListedTree {
  const words = tagged(treeTag(id));
  const bodyOf = (each: number) =>
    schema.rows<{ body: string }>("SELECT body FROM response WHERE no = ?", each)[0]?.body ?? "";
  const root = firstNumber(schema, { ...unexpired(oldest), words }, "asc") ?? no;
  // Expired responses are removed within an hour.
  const expired = `SELECT COUNT(*) AS count FROM words WHERE words MATCH ? AND rowid < ${NUMBER}`;
  const [gone] = schema.rows<{ count: number }>(expired, words, unexpired(oldest).least);
  return { newest: bodyOf(no), root: bodyOf(root), responses: responses - (gone?.count ?? 0) };
}
