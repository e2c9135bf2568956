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

/** The error of files that another embedding model would have to embed. */
export function otherModel(record: StoreRecord, model: string, dimensions?: number): LastError {
  return { code: "server_error", message: otherEmbedding(record, model, dimensions).message };
}
