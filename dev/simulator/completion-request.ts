import { badField, badRequest, type Finding, invalidBody, VllmError } from "./errors.ts";
import { booleanField, integerField, objectField } from "./fields.ts";
import type { Json, JsonObject } from "./json.ts";
import {
  type AnswerFormat,
  checkLogprobs,
  maxTokensField,
  parseFormat,
  parseSampling,
  type Sampling,
} from "./sampling.ts";
import type { Settings } from "./settings.ts";

const DEFAULT_MAX_TOKENS = 16;

/** A checked text completion request: one prompt per choice, as text or token ids. */
export type CompletionRequest = Sampling & {
  prompts: (string | number[])[];
  /** `undefined` means up to the context length. */
  maxTokens: number | undefined;
  echo: boolean;
  logprobs: number | undefined;
  skipSpecialTokens: boolean;
  format: AnswerFormat;
  /** `structured_outputs.structural_tag`. `format` is then text. */
  structuralTag: Json | undefined;
};

/** Checks the body of POST /v1/completions. Throws vLLM's 400s. An explicit null for `max_tokens` was no limit up to 0.23. */
export function parseCompletionRequest(body: JsonObject, { version }: Settings): CompletionRequest {
  if ((body.suffix ?? "") !== "") {
    throw new VllmError(400, "suffix is only supported for models with FIM completion rendering", "suffix");
  }
  const logprobs = integerField(body, "logprobs");
  if (logprobs !== undefined && logprobs < -1) throw badField("`logprobs` must be a positive value.", "logprobs");
  checkLogprobs(logprobs);
  const structuralTag = onlyStructuralTag(body);
  const unlimited = version === "0.19" && body.max_tokens === null;
  return {
    ...parseSampling(body),
    prompts: parsePrompts(body.prompt),
    maxTokens: maxTokensField(body, ["max_tokens"]).maxTokens ?? (unlimited ? undefined : DEFAULT_MAX_TOKENS),
    echo: booleanField(body, "echo") ?? false,
    logprobs,
    skipSpecialTokens: booleanField(body, "skip_special_tokens") ?? true,
    format: structuralTag === undefined ? parseFormat(body) : { kind: "text" },
    structuralTag,
  };
}

function onlyStructuralTag(body: JsonObject): Json | undefined {
  const { structural_tag: tag, ...others } = objectField(body, "structured_outputs") ?? {};
  const alone = Object.values(others).every((value) => (value ?? false) === false);
  return alone ? (tag ?? undefined) : undefined;
}

function parsePrompts(prompt: Json | undefined): (string | number[])[] {
  if (typeof prompt === "string" && prompt !== "") return [prompt];
  if (Array.isArray(prompt) && prompt.length === 0) throw badRequest("You must pass at least one prompt");
  if (!Array.isArray(prompt)) {
    throw badField("Either prompt or prompt_embeds must be provided and non-empty.", "prompt");
  }
  if (prompt.every((entry) => typeof entry === "number")) return [tokenIds(prompt)];
  return prompt.map((entry) => {
    if (typeof entry === "string") return entry;
    if (Array.isArray(entry) && entry.every((id) => typeof id === "number")) return tokenIds(entry);
    throw invalidBody({
      type: "string_type",
      loc: "body.prompt",
      msg: "Input should be a valid string",
      input: prompt,
    });
  });
}

function tokenIds(ids: number[]): number[] {
  const at = ids.findIndex((id) => !Number.isInteger(id) || id < 0);
  if (at >= 0) throw badTokenId(ids, at);
  return ids;
}

/** pydantic tried the prompt as text, as a list of texts, and as lists of token ids. */
function badTokenId(ids: number[], at: number): Error {
  const loc = `body.prompt.${at}`;
  const input = ids[at];
  const text: Finding = { type: "string_type", loc, msg: "Input should be a valid string", input };
  return invalidBody(
    { type: "greater_than_equal", loc, msg: "Input should be greater than or equal to 0", input, ctx: { ge: 0 } },
    { type: "list_type", loc, msg: "Input should be a valid list", input },
    { ...text, loc: "body.prompt", input: ids },
    text,
  );
}
