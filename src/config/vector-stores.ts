import type { OperatorNetwork } from "./network.ts";
import type { ServerValues } from "./servers.ts";
import { ownModel } from "./upstreams.ts";
import { headerSecret, integer, modelName, serverUrl } from "./values.ts";
import { type Section, type ValuesOf, variable } from "./variable.ts";

/** Vector stores: the models that embed their chunks and rank what a search finds, and the size of a store. */

export const vectorStores = {
  title: "Vector stores",
  variables: {
    embeddingsModel: variable(
      "EMBEDDINGS_MODEL",
      modelName,
      "The model that embeds chunks and queries, asked by `/v1/embeddings`. Without it vector stores are searched only by words ([files.md](../files.md#vector-stores)).",
    ),
    embeddingsBaseUrl: variable(
      "EMBEDDINGS_BASE_URL",
      serverUrl.optional(),
      "The server of `EMBEDDINGS_MODEL`, such as `http://embeddings:8000/v1`. Without it a model server that lists the model is asked.",
    ),
    embeddingsApiKey: variable(
      "EMBEDDINGS_API_KEY",
      headerSecret.optional(),
      "Secret. The servers of `EMBEDDINGS_BASE_URL` and `RERANK_BASE_URL` receive it as `Authorization: Bearer`.",
    ),
    rerankModel: variable(
      "RERANK_MODEL",
      modelName,
      'A model that orders anew what was found, asked by `/v1/rerank`. A search with `ranker: "none"` goes without it.',
    ),
    rerankBaseUrl: variable(
      "RERANK_BASE_URL",
      serverUrl.optional(),
      "The server of `RERANK_MODEL`. Without it a model server that lists the model is asked.",
    ),
    maxChunks: variable(
      "VECTOR_STORE_CHUNKS",
      integer(500_000, 1, 10_000_000),
      "The maximum of chunks of a vector store. While it is searched, a bit for each dimension of each is in memory: 54 MB for 500,000 of 768 dimensions. On Cloudflare an isolate has 128 MB.",
    ),
    maxStores: variable(
      "VECTOR_STORES_PER_TENANT",
      integer(10_000, 1, 1_000_000),
      "The maximum of vector stores of a tenant.",
    ),
  },
} satisfies Section;

/** The settings of vector stores. A model has its own server, or one of the pool. */
export function vectorStoreConfig(
  values: ValuesOf<typeof vectorStores>,
  servers: ServerValues,
  network: OperatorNetwork,
) {
  const { embeddingsModel, embeddingsBaseUrl, embeddingsApiKey, rerankModel, rerankBaseUrl, ...bounds } = values;
  const modelAt = (name: string | undefined, url: string | undefined, serverName: string) =>
    ownModel(name, { url, apiKey: embeddingsApiKey }, serverName, network, servers);
  return {
    ...bounds,
    embeddings: modelAt(embeddingsModel, embeddingsBaseUrl, "embeddings"),
    rerank: modelAt(rerankModel, rerankBaseUrl, "rerank"),
  };
}
