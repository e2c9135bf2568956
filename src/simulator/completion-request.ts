import { badRequest } from "./errors.ts";
import { booleanField, integerField } from "./fields.ts";
import type { Json, JsonObject } from "./json.ts";
import { type AnswerFormat, maxTokensField, parseFormat, parseSampling, type Sampling } from "./sampling.ts";
import { splitTokens, type Vocabulary } from "./tokenizer.ts";

const DEFAULT_MAX_TOKENS = 16;

/** A checked text completion request: one prompt per choice, in tokens. */
export type CompletionRequest = Sampling & {
  prompts: string[][];
  maxTokens: number;
  echo: boolean;
  logprobs: number | undefined;
  format: AnswerFormat;
};

/** Checks the body of POST /v1/completions. Throws vLLM's 400s. */
export function parseCompletionRequest(body: JsonObject, vocabulary: Vocabulary): CompletionRequest {
  if ((body.suffix ?? "") !== "") throw badRequest("suffix is not currently supported");
  const logprobs = integerField(body, "logprobs");
  if (logprobs !== undefined && logprobs < 0) throw badRequest("`logprobs` must be a positive value.", "logprobs");
  return {
    ...parseSampling(body),
    prompts: parsePrompts(body.prompt, vocabulary),
    maxTokens: maxTokensField(body, "max_tokens") ?? DEFAULT_MAX_TOKENS,
    echo: booleanField(body, "echo") ?? false,
    logprobs,
    format: parseFormat(body),
  };
}

function parsePrompts(prompt: Json | undefined, vocabulary: Vocabulary): string[][] {
  if (typeof prompt === "string" && prompt !== "") return [splitTokens(prompt)];
  if (!Array.isArray(prompt) || prompt.length === 0) {
    throw badRequest("Either prompt or prompt_embeds must be provided and non-empty.", "prompt");
  }
  if (prompt.every((entry) => typeof entry === "number")) return [tokensOf(prompt, vocabulary)];
  return prompt.map((entry) => {
    if (typeof entry === "string") return splitTokens(entry);
    if (Array.isArray(entry) && entry.every((id) => typeof id === "number")) return tokensOf(entry, vocabulary);
    throw badRequest("prompt: Input should be a string, a list of token ids, or a list of either", "prompt");
  });
}

function tokensOf(ids: readonly number[], vocabulary: Vocabulary): string[] {
  return ids.map((id) => {
    if (!Number.isInteger(id) || id < 0) throw badRequest(`Token id ${id} is out of vocabulary`, "prompt");
    return vocabulary.token(id);
  });
}
