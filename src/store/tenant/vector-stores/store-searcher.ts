import { logLine } from "@responses-edge/bounded-io/json-text";
import { ApiError } from "@responses-edge/responses-api/errors";
import { estimateTokens } from "@responses-edge/responses-api/estimate";
import type { FoundChunk, SearchRequest } from "@responses-edge/responses-api/platform/vector-stores";
import { MAX_RESULTS } from "@responses-edge/responses-api/search-settings";
import type { UsageKind } from "@responses-edge/usage-limits";
import { tenantCacheSalt } from "../../../assembly/affinity.ts";
import { embed, rerank } from "../../../assembly/retrieval-models.ts";
import type { Config } from "../../../config/index.ts";
import type { OwnModel } from "../../../config/upstreams.ts";
import type { Identity } from "../../../contract/grants.ts";
import type { StoreSearch } from "../../../contract/store-search.ts";
import type { Env } from "../../../env.ts";
import { countedUse } from "../../limits/allowances.ts";
import { unwrap } from "../../objects/rpc.ts";
import type { StoreClient } from "./store-client.ts";

/** The caller of a search. */
export interface Searcher {
  config: Config;
  stores: StoreClient;
  identity: Identity;
  quotas: Env["QUOTAS"] | undefined;
  waitUntil: (promise: Promise<unknown>) => void;
  signal: AbortSignal;
}

/** Number of results by default. */
const RESULTS = 10;

/**
 * The best chunks of stores for a request's queries, best first. Embeds the queries once for all stores of the model,
 * and reorders the results if there is a reranker. Throws ApiError: the 404 of a store, the 409 of one with another
 * embedding model, the 429 of a limit, and as the model servers do.
 */
export async function searchStores(
  searcher: Searcher,
  ids: readonly string[],
  { queries, filters, max_num_results: wanted, ranking_options: ranking, isExplained }: SearchRequest,
): Promise<FoundChunk[]> {
  const { config, stores } = searcher;
  const { embeddings: model, rerank: reranker } = config.vectorStores;
  const limit = wanted ?? RESULTS;
  const { embedding_weight: embedding = 1, text_weight: text = 1 } = ranking?.hybrid_search ?? {};
  const facts = await Promise.all(ids.map((id) => stores.ask(id, (store) => store.facts())));
  const areEmbedded = facts.map((each) => each.embedding !== null);
  // A store without embeddings is searched by words, even while the embedding server is down.
  const isEmbedding = model !== undefined && embedding > 0 && areEmbedded.includes(true);
  const embedded = isEmbedding ? await embedQueries(searcher, model, queries) : undefined;
  const isReranked = reranker !== undefined && ranking?.ranker !== "none";
  const found = await Promise.all(
    ids.map(async (id, index) => {
      const embeddings = areEmbedded[index] ? embedded : undefined;
      const request = {
        queries: queries.map((query, at) => ({ text: query, embedding: embeddings?.[at] })),
        model: model?.name,
        filters,
        weights: { embedding, text },
        limit: isReranked ? MAX_RESULTS : limit,
        isExplained,
      };
      return unwrap(await stores.ask(id, (store) => store.search(request)));
    }),
  );
  const all = found.flat();
  const ranked = isReranked ? await reranked(searcher, reranker, queries, all) : all;
  const least = ranking?.score_threshold ?? 0;
  return ranked
    .toSorted((one, other) => other.score - one.score)
    .filter(({ score }) => score >= least)
    .slice(0, limit);
}

/** The search for a turn's tools. */
export function storeSearch(searcher: Omit<Searcher, "signal">): StoreSearch {
  return (ids, request, signal) => searchStores({ ...searcher, signal }, ids, request);
}

async function embedQueries(searcher: Searcher, model: OwnModel, queries: readonly string[]) {
  return counted(searcher, { kind: "embeddings", model }, queries, async (asker) => {
    const { embeddings, tokens } = await embed(model, queries, asker);
    return { value: embeddings, tokens };
  });
}

/**
 * Chunks with a reranker's scores, from 0 to 1. If it fails, they keep their first scores: the order is worse, but the
 * search is answered. Throws the 429 of a limit, and the signal's reason when it is aborted.
 */
async function reranked(
  searcher: Searcher,
  model: OwnModel,
  queries: readonly string[],
  chunks: readonly FoundChunk[],
): Promise<FoundChunk[]> {
  if (chunks.length === 0) return [];
  const texts = chunks.map(({ text }) => text);
  const query = queries.join("\n");
  const scores = await counted(
    searcher,
    { kind: "completions", model },
    [...texts, ...texts.map(() => query)],
    async (asker) => {
      try {
        const { scores, tokens } = await rerank(model, query, texts, asker);
        return { value: scores, tokens };
      } catch (error) {
        searcher.signal.throwIfAborted();
        if (!(error instanceof ApiError)) throw error;
        console.warn(logLine({ level: "warn", reranker_failed: model.name, error: error.code }));
        return { value: undefined, tokens: 0 };
      }
    },
  );
  if (!scores) return [...chunks];
  return chunks.map((chunk, index) => ({ ...chunk, score: Math.min(1, Math.max(0, scores[index] ?? 0)) }));
}

/** Asks a model, within the limits of the caller's key. */
async function counted<T>(
  { config, signal, ...owner }: Searcher,
  { kind, model: { name: model } }: { kind: UsageKind; model: OwnModel },
  texts: readonly string[],
  ask: (asker: Parameters<typeof embed>[2]) => Promise<{ value: T; tokens: number | undefined }>,
): Promise<T> {
  const tokens = texts.reduce((sum, text) => sum + estimateTokens(text), 0);
  const asker = { config, cacheSalt: tenantCacheSalt(owner.identity.tenant), signal };
  return countedUse(owner, { kind, model, tokens, prices: config.keys.prices }, () => ask(asker));
}
