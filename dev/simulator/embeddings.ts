import { invalidBody } from "./errors.ts";
import { stringField } from "./fields.ts";
import type { JsonObject } from "./json.ts";

/**
 * Embeddings without a model. Texts that share words, or words with one stem, are near each other. The same text always
 * has the same embedding.
 */

const DIMENSIONS = 256;

/** The number of dimensions that each word sets. */
const PER_WORD = 4;

/** Words are compared by this many letters: `wings` is `wing`. */
const STEM = 5;

/** The unit vector of a text's words. */
export function embeddingOf(text: string): number[] {
  const vector = new Array<number>(DIMENSIONS).fill(0);
  for (const word of wordsIn(text)) {
    let state = hash(word);
    for (let index = 0; index < PER_WORD; index += 1) {
      state = Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) ^ index;
      const at = (state >>> 8) % DIMENSIONS;
      vector[at] = (vector[at] ?? 0) + (state & 1 ? 1 : -1);
    }
  }
  const length = Math.hypot(...vector) || 1;
  return vector.map((element) => element / length);
}

function wordsIn(text: string): string[] {
  return (text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []).map((word) => word.slice(0, STEM));
}

function hash(text: string): number {
  let state = 0x811c9dc5;
  for (let index = 0; index < text.length; index += 1) state = Math.imul(state ^ text.charCodeAt(index), 0x01000193);
  return state >>> 0;
}

/** The answer of `/v1/embeddings`, as vLLM makes it. */
export function embeddingsBody(body: JsonObject, model: string, created: number): JsonObject {
  const { input, encoding_format: format } = body;
  const texts = typeof input === "string" ? [input] : input;
  if (!Array.isArray(texts) || texts.some((text) => typeof text !== "string")) {
    throw invalidBody({ type: "missing", loc: "body.input", msg: "Field required", input: body });
  }
  const tokens = texts.reduce((sum: number, text) => sum + wordsIn(String(text)).length, 0);
  return {
    id: "embd-simulated",
    object: "list",
    created,
    model,
    data: texts.map((text, index) => {
      const embedding = embeddingOf(String(text));
      return { index, object: "embedding", embedding: format === "base64" ? base64Of(embedding) : embedding };
    }),
    usage: { prompt_tokens: tokens, total_tokens: tokens, completion_tokens: 0, prompt_tokens_details: null },
  };
}

/** 32-bit floats, least significant byte first. */
function base64Of(embedding: readonly number[]): string {
  return Buffer.from(Float32Array.from(embedding).buffer).toString("base64");
}

/** The answer of `/v1/rerank`: the share of the query's words that a document contains. */
export function rerankBody(body: JsonObject, model: string): JsonObject {
  const query = new Set(wordsIn(stringField(body, "query") ?? ""));
  const documents = Array.isArray(body.documents) ? body.documents.map(String) : [];
  const results = documents.map((text, index) => {
    const words = new Set(wordsIn(text));
    return { index, document: { text }, relevance_score: query.intersection(words).size / Math.max(1, query.size) };
  });
  const tokens = documents.reduce((sum, text) => sum + wordsIn(text).length + query.size, 0);
  return {
    id: "rerank-simulated",
    model,
    usage: { total_tokens: tokens },
    results: results.toSorted((one, other) => other.relevance_score - one.relevance_score),
  };
}
