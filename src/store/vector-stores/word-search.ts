import { termsOf } from "@responses-edge/vector-search";
import type { Schema } from "../schema.ts";

/** The search by words. Ranking a match takes some microseconds, so that the chunks that are ranked have a bound, however large a store is. */

/** A word of more chunks than this is common. */
const COMMON = 2_000;

/** Matches that one query has ranked. */
const MAX_RANKED = 4_000;

/** Matches that are looked at of the best, where a filter leaves too few. */
const LOOKS = [1, 10, Number.POSITIVE_INFINITY];

/** Matches that are counted between two slices. */
const COUNTED_AT_ONCE = 20_000;

/** Chunks of published files that a query's words find, best first (BM25), at most `depth`; of some files alone where they are given. */
export async function chunksByWords(
  schema: Schema,
  text: string,
  { files, depth }: { files: ReadonlySet<number> | undefined; depth: number },
  step: () => Promise<void>,
): Promise<number[]> {
  const found = new Set<number>();
  for (const { expression, ranked } of await expressionsOf(schema, termsOf(text), step)) {
    for (const id of matches(schema, expression, { files, depth, ranked })) found.add(id);
    if (found.size >= depth) break;
  }
  return [...found].slice(0, depth);
}

/** An expression that finds a query's words. */
interface Expression {
  /** The expression in FTS5's language. */
  expression: string;
  /** So many of its matches are ranked; all where it is undefined. */
  ranked?: number;
}

/**
 * The words that few chunks have, as many as have not too many together: those that many have are worth little beside them, and
 * BM25 has a word of half the chunks count nothing. Where all are common, chunks with all of them go before those with the rarest.
 */
async function expressionsOf(
  schema: Schema,
  terms: readonly string[],
  step: () => Promise<void>,
): Promise<Expression[]> {
  const counted: { term: string; chunks: number }[] = [];
  let since = 0;
  for (const term of terms) {
    const chunks = countOf(schema, term);
    if (chunks > 0) counted.push({ term, chunks });
    since += chunks;
    if (since < COUNTED_AT_ONCE) continue;
    since = 0;
    await step();
  }
  counted.sort((one, other) => one.chunks - other.chunks);
  const [rarest] = counted;
  if (!rarest) return [];
  let sum = 0;
  const rare = counted.filter(({ chunks }) => {
    sum += chunks;
    return chunks <= COMMON && sum <= MAX_RANKED;
  });
  if (rare.length > 0) return [{ expression: rare.map(({ term }) => term).join(" OR ") }];
  return [
    { expression: counted.map(({ term }) => term).join(" AND "), ranked: MAX_RANKED / 2 },
    { expression: rarest.term, ranked: MAX_RANKED / 2 },
  ];
}

/** How many chunks have a word, counted as far as it takes to know it a common one. */
function countOf(schema: Schema, term: string): number {
  const count = "SELECT COUNT(*) AS chunks FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)";
  return schema.rows<{ chunks: number }>(count, term, COMMON + 1)[0]?.chunks ?? 0;
}

function matches(
  schema: Schema,
  expression: string,
  { files, depth, ranked }: { files: ReadonlySet<number> | undefined; depth: number; ranked: number | undefined },
): number[] {
  const all = "SELECT rowid AS id, rank AS score FROM words WHERE words MATCH ?";
  // FTS5 sorts faster than SQLite does, but ranks all.
  const best =
    ranked === undefined ? `${all} ORDER BY rank` : `SELECT id, score FROM (${all} LIMIT ${ranked}) ORDER BY score`;
  for (const look of LOOKS) {
    const looked = Math.min(look * depth, MAX_RANKED);
    const rows = schema.rows<{ id: number; file: number | null }>(
      `SELECT found.id, file.no AS file
       FROM (${best} LIMIT ?) AS found
       LEFT JOIN chunk ON chunk.id = found.id
       LEFT JOIN file ON file.no = chunk.file AND file.status = 'completed' ORDER BY found.score, found.id`,
      ...[expression, looked],
    );
    const wanted = rows.filter(({ file }) => file !== null && (files?.has(file) ?? true));
    if (wanted.length >= depth || rows.length < looked || looked === MAX_RANKED) {
      return wanted.slice(0, depth).map(({ id }) => id);
    }
  }
  return [];
}
