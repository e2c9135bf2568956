import type { FoundChunk, SearchRequest } from "@responses-edge/responses-api/platform/vector-stores";

/**
 * Searches the tenant's vector stores: gives the best chunks of all of them, best first. Rejects with ApiError: the 404
 * of a missing store, the 429 of a limit, and as model servers fail.
 */
export type StoreSearch = (
  stores: readonly string[],
  request: SearchRequest,
  signal: AbortSignal,
) => Promise<readonly FoundChunk[]>;
