import type { Dialect } from "@responses-edge/engines/dialects/dialect";
import { malformedAnswer } from "@responses-edge/engines/upstream-faults";
import { isJsonObject, type JsonObject } from "@responses-edge/responses-api/json";
import { MAX_DIMENSIONS } from "@responses-edge/vector-search";
import type { Config } from "../config/index.ts";
import type { OwnModel } from "../config/upstreams.ts";
import { askOwnModel, jsonOf } from "./own-model.ts";

export { loadTokenizer } from "@responses-edge/engines/harmony/load-tokenizer";

/** The models of vector stores, each at its own server or at one of the pool: embeddings, and reranking. */

export interface Embedded {
  /** In the order of the texts; all of one length. */
  embeddings: readonly Float32Array[];
  /** Tokens, as the server reports them; undefined if it does not. */
  tokens: number | undefined;
}

/** The caller for whom a model is asked. */
interface Asker {
  config: Config;
  /** Keeps the tenant's texts apart from others' in a server's cache. */
  cacheSalt: string;
  signal: AbortSignal;
}

/**
 * Embeds texts. Throws ApiError as `Upstream.request` does; errors about the texts keep the server's own text; 502 for
 * an invalid answer.
 */
export async function embed(model: OwnModel, texts: readonly string[], asker: Asker): Promise<Embedded> {
  const answer = await ask(model, "/embeddings", asker, (dialect) => ({
    input: texts,
    // As OpenAI's clients ask: base64 takes half the bytes of JSON numbers. Servers that do not support it answer with
    // numbers.
    encoding_format: "base64",
    // vLLM refuses texts longer than the model's window, unless it is told to truncate them.
    ...(dialect.name === "vllm" && { truncate_prompt_tokens: -1 }),
  }));
  const { data, usage } = answer;
  if (!Array.isArray(data) || data.length !== texts.length) throw malformedAnswer();
  const embeddings: Float32Array[] = [];
  for (const [position, each] of data.entries()) {
    const embedding = isJsonObject(each) ? embeddingIn(each.embedding) : undefined;
    if (!embedding) throw malformedAnswer();
    embeddings[typeof each.index === "number" ? each.index : position] = embedding;
  }
  const [first] = embeddings;
  for (let index = 0; index < texts.length; index += 1) {
    if (!first || embeddings[index]?.length !== first.length) throw malformedAnswer();
  }
  return { embeddings, tokens: tokensIn(usage) };
}

/** Scores of how well texts answer a query, in the order of the texts: from 0 to 1 with most models. Throws as `embed` does. */
export async function rerank(
  model: OwnModel,
  query: string,
  texts: readonly string[],
  asker: Asker,
): Promise<{ scores: readonly number[]; tokens: number | undefined }> {
  const answer = await ask(model, "/rerank", asker, (dialect) => ({
    query,
    documents: texts,
    top_n: texts.length,
    ...(dialect.name === "vllm" && { truncate_prompt_tokens: -1 }),
  }));
  const { results, usage } = answer;
  if (!Array.isArray(results)) throw malformedAnswer();
  const scores = texts.map(() => 0);
  for (const each of results) {
    if (!isJsonObject(each)) throw malformedAnswer();
    const { index, relevance_score: score } = each;
    if (typeof index !== "number" || scores[index] === undefined || typeof score !== "number") throw malformedAnswer();
    scores[index] = score;
  }
  return { scores, tokens: tokensIn(usage) };
}

async function ask(
  model: OwnModel,
  path: string,
  { config, cacheSalt, signal }: Asker,
  fieldsFor: (dialect: Dialect) => JsonObject,
): Promise<JsonObject> {
  const body = (dialect: Dialect) =>
    JSON.stringify({
      model: model.name,
      ...fieldsFor(dialect),
      ...(dialect.separatesTenants === true && { cache_salt: cacheSalt }),
    });
  return jsonOf(await askOwnModel(model, path, body, { config, signal }));
}

/** An embedding, as numbers or as base64 of little-endian 32-bit floats; undefined for anything else. */
function embeddingIn(value: unknown): Float32Array | undefined {
  const elements = typeof value === "string" ? floatsIn(value) : isNumbers(value) ? new Float32Array(value) : undefined;
  const isOne = elements && elements.length > 0 && elements.length <= MAX_DIMENSIONS && elements.every(Number.isFinite);
  return isOne ? elements : undefined;
}

function isNumbers(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((element) => typeof element === "number");
}

function floatsIn(base64: string): Float32Array | undefined {
  try {
    return new Float32Array(Uint8Array.fromBase64(base64).buffer);
  } catch {
    return undefined;
  }
}

function tokensIn(usage: unknown): number | undefined {
  if (!isJsonObject(usage)) return undefined;
  const tokens = usage.prompt_tokens ?? usage.total_tokens;
  return typeof tokens === "number" && tokens >= 0 ? tokens : undefined;
}
