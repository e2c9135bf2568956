import { termsOf } from "@responses-edge/vector-search";
import type { Schema } from "../../objects/schema.ts";

/** The search by words. Ranking a match takes some microseconds, so the number of ranked chunks is limited, however large a store is. */

/** A word in more chunks than this is common. */
const COMMON = 2_000;

/** Most matches that one query ranks. */
const MAX_RANKED = 4_000;

/** Multiples of the wanted matches that are looked at, if a filter leaves too few. */
const LOOKS = [1, 10, Number.POSITIVE_INFINITY];

/** Matches that are counted between two slices. */
const COUNTED_AT_ONCE = 20_000;

/**
 * Chunks of published files that match a query's words, best first (BM25), at most `depth`; only of the given files, if
 * there are any.
 */
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
  /** The expression in FTS5's syntax. */
  expression: string;
  /** Most matches to rank; all if undefined. */
  ranked?: number;
}

/**
 * Searches by the rare words of the query, as many as do not have too many matches together. Common words add little
 * beside them: BM25 gives a word in half of the chunks no weight. If all words are common, chunks with all of them rank
 * before those with the rarest.
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

/** The number of chunks that have a word. Stops counting once the word is known to be common. */
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
  // FTS5 sorts faster than SQLite, but ranks all matches.
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
