import { badRequest } from "./errors.ts";
import { booleanField, integerField, objectField } from "./fields.ts";
import type { Json, JsonObject } from "./json.ts";
import { type AnswerFormat, maxTokensField, parseFormat, parseSampling, type Sampling } from "./sampling.ts";

const DEFAULT_MAX_TOKENS = 16;

/** A checked text completion request: one prompt per choice, as text or token ids. */
export type CompletionRequest = Sampling & {
  prompts: (string | number[])[];
  /** `undefined` is up to the context length, which is what an explicit null means. */
  maxTokens: number | undefined;
  echo: boolean;
  logprobs: number | undefined;
  skipSpecialTokens: boolean;
  format: AnswerFormat;
  /** `structured_outputs.structural_tag`; the format is text then. */
  structuralTag: Json | undefined;
};

/** Checks the body of POST /v1/completions. Throws vLLM's 400s. */
export function parseCompletionRequest(body: JsonObject): CompletionRequest {
  if ((body.suffix ?? "") !== "") throw badRequest("suffix is not currently supported");
  const logprobs = integerField(body, "logprobs");
  if (logprobs !== undefined && logprobs < 0) throw badRequest("`logprobs` must be a positive value.", "logprobs");
  const structuralTag = onlyStructuralTag(body);
  return {
    ...parseSampling(body),
    prompts: parsePrompts(body.prompt),
    maxTokens: body.max_tokens === undefined ? DEFAULT_MAX_TOKENS : maxTokensField(body, "max_tokens"),
    echo: booleanField(body, "echo") ?? false,
    logprobs,
    skipSpecialTokens: booleanField(body, "skip_special_tokens") ?? true,
    format: structuralTag === undefined ? parseFormat(body) : { kind: "text" },
    structuralTag,
  };
}

/** How many tokens may follow a prompt. Throws vLLM's 400 if prompt and completion do not fit into the context. */
export function tokenLimit(promptTokens: number, maxTokens: number | undefined, contextLength: number): number {
  const total = promptTokens + (maxTokens ?? 1);
  if (total > contextLength) {
    throw badRequest(
      `This model's maximum context length is ${contextLength} tokens. However, you requested ${total} tokens (${promptTokens} in the messages, ${maxTokens ?? 1} in the completion). Please reduce the length of the messages or completion.`,
    );
  }
  return maxTokens ?? contextLength - promptTokens;
}

function onlyStructuralTag(body: JsonObject): Json | undefined {
  const { structural_tag: tag, ...others } = objectField(body, "structured_outputs") ?? {};
  const alone = Object.values(others).every((value) => (value ?? false) === false);
  return alone ? (tag ?? undefined) : undefined;
}

function parsePrompts(prompt: Json | undefined): (string | number[])[] {
  if (typeof prompt === "string" && prompt !== "") return [prompt];
  if (!Array.isArray(prompt) || prompt.length === 0) {
    throw badRequest("Either prompt or prompt_embeds must be provided and non-empty.", "prompt");
  }
  if (prompt.every((entry) => typeof entry === "number")) return [tokenIds(prompt)];
  return prompt.map((entry) => {
    if (typeof entry === "string") return entry;
    if (Array.isArray(entry) && entry.every((id) => typeof id === "number")) return tokenIds(entry);
    throw badRequest("prompt: Input should be a string, a list of token ids, or a list of either", "prompt");
  });
}

function tokenIds(ids: number[]): number[] {
  const wrong = ids.find((id) => !Number.isInteger(id) || id < 0);
  if (wrong !== undefined) throw badRequest(`Token id ${wrong} is out of vocabulary`, "prompt");
  return ids;
}
