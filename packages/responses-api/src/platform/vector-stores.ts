import { list, map } from "@responses-edge/bounded-io/schemas/collections";
import { z } from "zod";
import type { AttributeFilter, Attributes } from "../attribute-filter.ts";
import { metadata } from "../create-fields.ts";
import { MAX_ID_LENGTH } from "../ids.ts";
import { once } from "../items/shapes.ts";
import { type RankingOptions, searchSettings } from "../search-settings.ts";

/** Vector stores in the API. Limits are OpenAI's if it has them. */

const [MIN_CHUNK_TOKENS, MAX_CHUNK_TOKENS] = [100, 4_096];
const MAX_DAYS = 365;

/** The maximum of files that one request adds. */
const MAX_FILES_AT_CREATION = 500;
const MAX_FILES_OF_BATCH = 2_000;

/** A longer query is refused, because an embedding model would not read it. UTF-16 units. */
const MAX_QUERY_LENGTH = 16_384;
const MAX_QUERIES = 16;

const name = z.string().max(256);
const description = z.string().max(512);
const fileId = z.string().min(1).max(MAX_ID_LENGTH);
const attributeKey = z.string().min(1).max(64);
const attributeValue = z.union([z.string().max(512), z.number(), z.boolean()]);
const attributes = map(attributeKey, attributeValue, { max: 16 });

const staticSizes = z
  .object({
    max_chunk_size_tokens: z.int().min(MIN_CHUNK_TOKENS).max(MAX_CHUNK_TOKENS),
    chunk_overlap_tokens: z.int().min(0),
  })
  .refine(({ max_chunk_size_tokens: max, chunk_overlap_tokens: overlap }) => 2 * overlap <= max, {
    path: ["chunk_overlap_tokens"],
    message: "Expected at most half of 'max_chunk_size_tokens'.",
  });
const staticChunking = z.object({ type: z.literal("static"), static: staticSizes });
const chunkingStrategy = z.discriminatedUnion("type", [z.object({ type: z.literal("auto") }), staticChunking]);

/** The chunking of a file, in answers. */
export type Chunking = z.output<typeof staticChunking>;

/** OpenAI's `auto`. */
const AUTO: Chunking = { type: "static", static: { max_chunk_size_tokens: 800, chunk_overlap_tokens: 400 } };

export function chunkingOf(given: z.output<typeof chunkingStrategy> | null | undefined): Chunking {
  return given?.type === "static" ? given : AUTO;
}

const expiresAfter = z.object({ anchor: z.literal("last_active_at"), days: z.int().min(1).max(MAX_DAYS) });
export type ExpiresAfter = z.output<typeof expiresAfter>;

export const createStoreBody = z.object({
  name: name.nullish(),
  description: description.nullish(),
  file_ids: list(fileId, { max: MAX_FILES_AT_CREATION }).nullish(),
  chunking_strategy: chunkingStrategy.nullish(),
  expires_after: expiresAfter.nullish(),
  metadata: metadata.nullish(),
});

export const updateStoreBody = z.object({
  name: name.nullish(),
  expires_after: expiresAfter.nullish(),
  metadata: metadata.nullish(),
});

export const addStoreFileBody = z.object({
  file_id: fileId,
  attributes: attributes.nullish(),
  chunking_strategy: chunkingStrategy.nullish(),
});
export type AddStoreFile = z.output<typeof addStoreFileBody>;

export const updateStoreFileBody = z.object({ attributes: attributes.nullable() });

export const createBatchBody = z
  .object({
    file_ids: list(fileId, { min: 1, max: MAX_FILES_OF_BATCH }).nullish(),
    files: list(addStoreFileBody, { min: 1, max: MAX_FILES_OF_BATCH }).nullish(),
    attributes: attributes.nullish(),
    chunking_strategy: chunkingStrategy.nullish(),
  })
  .refine(({ file_ids: ids, files }) => (ids == null) !== (files == null), {
    path: ["file_ids"],
    message: "Expected either 'file_ids' or 'files', and not both.",
  });

/** The files of a batch, each with its settings. The settings for all apply only to `file_ids`. */
export function filesOfBatch(body: z.output<typeof createBatchBody>): AddStoreFile[] {
  const { file_ids: ids, files, attributes: shared, chunking_strategy } = body;
  return files ?? (ids ?? []).map((file_id) => ({ file_id, attributes: shared, chunking_strategy }));
}

const query = z.string().min(1).max(MAX_QUERY_LENGTH);

export const searchBody = z.object({
  query: z.union([query, list(query, { min: 1, max: MAX_QUERIES })]),
  ...searchSettings,
  rewrite_query: z.boolean().nullish(),
  include: list(z.enum(["explanation"]), { max: 1 })
    .nullish()
    .describe("`explanation`: explains each result. OpenAI has no such value."),
});

/** A search, for the endpoint and the tool. */
export interface SearchRequest {
  queries: readonly string[];
  filters?: AttributeFilter | null | undefined;
  max_num_results?: number | null | undefined;
  ranking_options?: RankingOptions | null | undefined;
  /** True if chunks include an explanation. */
  isExplained?: boolean | undefined;
}

export const FILE_STATUSES = ["in_progress", "completed", "cancelled", "failed"] as const;
export type FileStatus = (typeof FILE_STATUSES)[number];

const count = z.int().min(0);
const seconds = z.int().min(0).describe("Unix seconds.");
const fileCounts = once(() =>
  z.object({ in_progress: count, completed: count, failed: count, cancelled: count, total: count }),
);
export type FileCounts = z.output<ReturnType<typeof fileCounts>>;

export const vectorStoreObject = once(() =>
  z.object({
    id: z.string(),
    object: z.literal("vector_store"),
    created_at: seconds,
    name: z.string(),
    description: z.string().nullable(),
    status: z.enum(["expired", "in_progress", "completed"]),
    usage_bytes: count,
    file_counts: fileCounts(),
    last_active_at: seconds.nullable(),
    metadata: z.record(z.string(), z.string()).nullable(),
    expires_after: expiresAfter.optional(),
    expires_at: seconds.nullable(),
    embedding_model: z
      .string()
      .nullable()
      .describe(
        "The model of its embeddings. Null while it has none: it is then searched only by words. OpenAI has no such field.",
      ),
    embedding_dimensions: count.nullable().describe("Not of OpenAI's."),
  }),
);
export type VectorStoreObject = z.output<ReturnType<typeof vectorStoreObject>>;

const lastError = once(() =>
  z.object({ code: z.enum(["server_error", "unsupported_file", "invalid_file"]), message: z.string() }),
);
export type LastError = z.output<ReturnType<typeof lastError>>;

export const storeFileObject = once(() =>
  z.object({
    id: z.string(),
    object: z.literal("vector_store.file"),
    vector_store_id: z.string(),
    created_at: seconds,
    status: z.enum(FILE_STATUSES),
    last_error: lastError().nullable(),
    usage_bytes: count,
    attributes: z.record(z.string(), attributeValue).nullable(),
    chunking_strategy: staticChunking,
  }),
);
export type StoreFileObject = z.output<ReturnType<typeof storeFileObject>>;

export const batchObject = once(() =>
  z.object({
    id: z.string(),
    object: z.literal("vector_store.files_batch"),
    vector_store_id: z.string(),
    created_at: seconds,
    status: z.enum(FILE_STATUSES),
    file_counts: fileCounts(),
  }),
);
export type BatchObject = z.output<ReturnType<typeof batchObject>>;

const textContent = once(() => z.object({ type: z.literal("text"), text: z.string() }));

const rank = z.int().min(1).nullable();

const explanation = once(() =>
  z.object({
    fusion_score: z.number().min(0).max(1).describe("By embeddings and words, before a reranker."),
    page: z.int().nullable(),
    last_page: z.int().nullable(),
    queries: z.array(
      z.object({
        embedding_rank: rank.describe("From 1. Null below the best hundred."),
        text_rank: rank.describe("The same by words."),
        words: z.array(z.string()).describe("Words of the query that its text has, in some form."),
      }),
    ),
  }),
);
/** The explanation of a chunk, for each query. */
export type Explanation = z.output<ReturnType<typeof explanation>>;

export const searchResult = once(() =>
  z.object({
    file_id: z.string(),
    filename: z.string(),
    score: z.number().min(0).max(1).describe("1 is the first by embeddings and by words; or the reranker's score."),
    attributes: z.record(z.string(), attributeValue).nullable(),
    content: z.array(textContent()),
    explanation: explanation().optional().describe("With `explanation` in `include`. OpenAI has no such field."),
  }),
);

export const searchPage = once(() =>
  z.object({
    object: z.literal("vector_store.search_results.page"),
    search_query: z.array(z.string()),
    data: z.array(searchResult()),
    has_more: z.boolean(),
    next_page: z.string().nullable(),
  }),
);

export const contentPage = once(() =>
  z.object({
    object: z.literal("vector_store.file_content.page"),
    data: z.array(textContent()),
    has_more: z.boolean(),
    next_page: z.string().nullable(),
  }),
);

/** A chunk that was found. */
export interface FoundChunk {
  fileId: string;
  filename: string;
  attributes: Attributes | null;
  score: number;
  text: string;
  /** The pages of its beginning and its end; null if its file has none. */
  page: number | null;
  lastPage: number | null;
  explanation?: Explanation;
}
