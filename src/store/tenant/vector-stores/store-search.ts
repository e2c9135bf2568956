import type { AttributeFilter, Attributes } from "@responses-edge/responses-api/attribute-filter";
import type { Explanation, FoundChunk } from "@responses-edge/responses-api/platform/vector-stores";
import {
  cosines,
  type Fused,
  fuse,
  type Kernel,
  type RankedList,
  termsOf,
  toCode,
  toInt8,
} from "@responses-edge/vector-search";
import type { Schema } from "../../objects/schema.ts";
import { type ChunkIndex, createKernel } from "./chunk-index.ts";
import { chunksByWords } from "./word-search.ts";

/** The query of a search in a store. */
export interface StoreQuery {
  text: string;
  /** Its embedding. If it is absent, only words are searched. */
  embedding?: Float32Array | undefined;
}

/** The weights of embeddings and words. */
export interface Weights {
  embedding: number;
  text: number;
}

/** A search of a store. */
export interface StoreSearchRequest {
  queries: readonly StoreQuery[];
  /** The model of the queries' embeddings. */
  model: string | undefined;
  filters: AttributeFilter | null | undefined;
  weights: Weights;
  limit: number;
  /** True if the results should say why chunks were found. */
  isExplained: boolean | undefined;
}

/** One way to search for one query, and its results. */
interface QueryList extends RankedList {
  /** The query's index. */
  query: number;
  by: "embedding" | "text";
}

/** Number of nearest codes that are compared by their embeddings. */
const RESCORED = 200;

/** Results of one way to search that count. Lower ranks make no difference (RRF). */
const DEPTH = 100;

export class StoreSearch {
  readonly #schema: Schema;
  readonly #index: ChunkIndex;
  #kernel: Promise<Kernel> | undefined;

  constructor(schema: Schema, index: ChunkIndex) {
    this.#schema = schema;
    this.#index = index;
  }

  /**
   * The best chunks for all queries together, best first. `isWanted` selects published files; all of them without it.
   * `step` lets other work run between queries.
   */
  async search(
    queries: readonly StoreQuery[],
    { weights, limit, isExplained, ...options }: SearchOptions,
    step: () => Promise<void>,
  ): Promise<FoundChunk[]> {
    const lists: QueryList[] = [];
    for (const [query, { text, embedding }] of queries.entries()) {
      if (lists.length > 0) await step();
      if (embedding && weights.embedding > 0) {
        const ids = await this.#nearest(embedding, options, step);
        lists.push({ query, by: "embedding", ids, weight: weights.embedding });
      }
      // Without an embedding, only words count.
      const weight = embedding ? weights.text : 1;
      if (weight > 0) {
        const within = { files: options.files, depth: DEPTH };
        lists.push({ query, by: "text", ids: await chunksByWords(this.#schema, text, within, step), weight });
      }
    }
    const fused = fuse(lists).slice(0, limit);
    const found: FoundChunk[] = [];
    for (const each of fused) {
      const chunk = this.#found(each);
      if (!chunk) continue;
      found.push(isExplained ? { ...chunk, explanation: this.#explanation(each, chunk, queries, lists) } : chunk);
      if (isExplained) await step();
    }
    return found;
  }

  #explanation(
    { id, score, ranks }: Fused,
    { page, lastPage }: FoundChunk,
    queries: readonly StoreQuery[],
    lists: readonly QueryList[],
  ): Explanation {
    const rankOf = (query: number, by: QueryList["by"]) =>
      ranks[lists.findIndex((list) => list.query === query && list.by === by)] ?? null;
    return {
      fusion_score: score,
      page,
      last_page: lastPage,
      queries: queries.map(({ text }, query) => {
        const [embedding_rank, text_rank] = [rankOf(query, "embedding"), rankOf(query, "text")];
        return { embedding_rank, text_rank, words: this.#wordsIn(id, text) };
      }),
    };
  }

  /** The words of a query that a chunk contains. */
  #wordsIn(chunk: number, query: string): string[] {
    // FTS5 ignores a row number that is not an integer, and bound numbers are not.
    const has = "SELECT 1 FROM words WHERE words MATCH ? AND rowid = CAST(? AS INTEGER)";
    const terms = termsOf(query).filter((term) => this.#schema.rows(has, term, chunk).length > 0);
    return terms.map((term) => term.replaceAll(/["* ]/g, ""));
  }

  async #nearest(
    embedding: Float32Array,
    { files, dimensions, reindexUntil }: Pick<SearchOptions, "files" | "dimensions" | "reindexUntil">,
    step: () => Promise<void>,
  ): Promise<number[]> {
    const codes = await this.#index.codes(dimensions, reindexUntil, step);
    if (codes.size === 0) return [];
    this.#kernel ??= createKernel();
    const kernel = await this.#kernel;
    const near = codes.nearest(toCode(embedding), RESCORED, files && ((file) => files.has(file)));
    const ids = JSON.stringify(near.map(({ chunk }) => chunk));
    const rows = this.#schema.rows<{ chunk: number; bytes: ArrayBuffer }>(
      "SELECT chunk, bytes FROM vector WHERE chunk IN (SELECT value FROM json_each(?))",
      ids,
    );
    const vectors = rows.map(({ bytes }) => new Int8Array(bytes));
    const scores = cosines(kernel, toInt8(embedding), vectors);
    return rows
      .map(({ chunk }, index) => ({ chunk, score: scores[index] ?? 0 }))
      .sort((one, other) => other.score - one.score || one.chunk - other.chunk)
      .slice(0, DEPTH)
      .map(({ chunk }) => chunk);
  }

  #found({ id, score }: Fused): FoundChunk | undefined {
    const [row] = this.#schema.rows<{
      file_id: string;
      filename: string | null;
      attributes: string | null;
      text: string;
      page: number | null;
      last_page: number | null;
    }>(
      `SELECT file.id AS file_id, filename, attributes, text, page, last_page
       FROM chunk JOIN file ON file.no = chunk.file WHERE chunk.id = ?`,
      id,
    );
    if (!row) return undefined;
    return {
      fileId: row.file_id,
      filename: row.filename ?? "",
      attributes: row.attributes === null ? null : (JSON.parse(row.attributes) as Attributes),
      score,
      text: row.text,
      page: row.page,
      lastPage: row.last_page,
    };
  }
}

interface SearchOptions {
  weights: Weights;
  limit: number;
  isExplained: boolean | undefined;
  /** The published files to search; undefined: all. */
  files: ReadonlySet<number> | undefined;
  /** The dimensions of the store's embeddings; 0 if it has none. */
  dimensions: number;
  /** Files up to this number have no embeddings of this model. */
  reindexUntil: number;
}
