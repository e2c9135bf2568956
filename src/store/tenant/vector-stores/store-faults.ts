import { UnreadableFile } from "@responses-edge/file-text";
import { ApiError } from "@responses-edge/responses-api/errors";
import type { LastError } from "@responses-edge/responses-api/platform/vector-stores";
import type { StoreRecord } from "./store-record.ts";

/** The errors of a vector store. */

/** The 400 of an expired store. */
export function expired(id: string): ApiError {
  return new ApiError({
    status: 400,
    message: `Vector store '${id}' has expired.`,
    param: null,
    code: "vector_store_expired",
  });
}

/** The 409 of a store whose embeddings are of another model than this server's, or of other `dimensions`. */
export function otherEmbedding({ id, embedding }: StoreRecord, model: string, dimensions?: number): ApiError {
  const named = (name: string, size: number | undefined) =>
    `'${name}'${size === undefined ? "" : ` (${size} dimensions)`}`;
  const known = embedding ? named(embedding.model, embedding.dimensions) : "none";
  const message = `The embeddings of vector store '${id}' are from ${known}, but this server uses ${named(model, dimensions)}. Reindex it: POST /v1/vector_stores/${id}/reindex.`;
  return new ApiError({ status: 409, message, param: null, code: "embedding_model_mismatch" });
}

/** The error with which a file fails; undefined if it may be read later. */
export function lastErrorOf(error: unknown): LastError | undefined {
  if (error instanceof UnreadableFile) {
    return { code: error.code === "unsupported_file" ? "unsupported_file" : "invalid_file", message: error.message };
  }
  if (error instanceof ApiError && error.status === 404) return { code: "invalid_file", message: error.message };
  return undefined;
}

/** Ranges of pages that a message names. */
const MAX_RANGES = 20;

/** What is told of a searchable file of which some pages could not be read, by their numbers (null without numbers); null if all could. */
export function partialText(pages: readonly (number | null)[]): LastError | null {
  if (pages.length === 0) return null;
  const ranges: [from: number, to: number][] = [];
  for (const page of pages) {
    const last = ranges.at(-1);
    if (page === null) continue;
    if (last && page === last[1] + 1) last[1] = page;
    else ranges.push([page, page]);
  }
  const named = ranges.slice(0, MAX_RANGES).map(([from, to]) => (from === to ? `${from}` : `${from} to ${to}`));
  if (ranges.length > MAX_RANGES) named.push(`${ranges.length - MAX_RANGES} other ranges`);
  const what = named.length === 0 ? "A part of the file" : `A part of the file (pages ${named.join(", ")})`;
  return { code: "unsupported_file", message: `${what} cannot be read. The rest of it can be searched.` };
}

/** The error of files that another embedding model would have to embed. */
export function otherModel(record: StoreRecord, model: string, dimensions?: number): LastError {
  return { code: "server_error", message: otherEmbedding(record, model, dimensions).message };
}
