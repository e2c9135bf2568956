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
  const matches = matching(schema, ["no", "id", "responses"], near, order, MAX_MATCHES + 1);
  const found = new Map<number, TreeRow>();
  const seen = new Set<string>();
  for (const { no, id, responses } of matches) {
    const tag = treeTag(id);
    if (responses !== null) seen.add(tag);
    if (responses !== null && no >= range.least && no < range.below) found.set(no, { no, id, responses });
    if (seen.has(tag)) continue;
    seen.add(tag);
    const newest = newestOf(schema, tag) ?? -1;
    const within = overlapOf(range, { least: newest, below: newest + 1 });
    for (const row of treeRows(schema, { range: within, order, limit: 1 })) found.set(row.no, row);
  }
  const sign = order === "desc" ? -1 : 1;
  const last = matches.at(-1)?.no ?? 0;
  if (matches.length > MAX_MATCHES) {
    const page: TreeRow[] = [];
    for (const row of treeRows(schema, { range, order, limit: MAX_COMPARED_TREES })) {
      // All matches before the last one are known, and so are those among single responses.
      const isKnown = found.has(row.no) || (row.responses === 1 && sign * (row.no - last) < 0);
      if (isKnown ? found.has(row.no) : hasMatch(schema, row, filter)) page.push(row);
      if (page.length === limit) return page;
    }
    for (const row of page) found.set(row.no, row);
  }
  return [...found.values()].sort((one, other) => sign * (one.no - other.no)).slice(0, limit);
}

/** Tells whether a response of a tree matches. */
function hasMatch(schema: Schema, { id }: TreeRow, filter: Filter): boolean {
  const words = [tagged(treeTag(id)), filter.words].filter((each) => each !== "").join(" AND ");
  return firstNumber(schema, { ...filter, words }, "desc") !== undefined;
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
