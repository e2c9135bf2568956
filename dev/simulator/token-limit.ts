import { badField, badRequest, type VllmError } from "./errors.ts";
import { tooFewTokens } from "./sampling.ts";
import type { Settings } from "./settings.ts";

/** The maximum number of tokens after a prompt: the requested number, limited by the window. Throws vLLM's 400s. */
export function tokenLimit(
  promptTokens: number,
  wanted: { maxTokens: number | undefined; maxTokensName: string },
  contextLength: number,
  { version }: Settings,
): number {
  const { maxTokens, maxTokensName: name } = wanted;
  const room = contextLength - promptTokens;
  if (version === "0.19") return oldLimit(promptTokens, maxTokens, contextLength);
  if (maxTokens !== undefined && maxTokens > contextLength) {
    throw badField(
      `${name}=${maxTokens} cannot be greater than max_model_len=${contextLength}. Please request fewer output tokens.`,
      name,
      String(maxTokens),
    );
  }
  if (room < 0) throw tooLong(contextLength);
  if (room === 0) throw tooFewTokens(0);
  return Math.min(maxTokens ?? room, room);
}

/** vLLM up to 0.19 does not reduce `max_tokens` to the rest of the window. */
function oldLimit(promptTokens: number, maxTokens: number | undefined, contextLength: number): number {
  const total = promptTokens + (maxTokens ?? 1);
  if (total > contextLength) {
    throw badRequest(
      `This model's maximum context length is ${contextLength} tokens. However, you requested ${total} tokens (${promptTokens} in the messages, ${maxTokens ?? 1} in the completion). Please reduce the length of the messages or completion.`,
    );
  }
  return maxTokens ?? contextLength - promptTokens;
}

/** It stops counting at the first token too many. */
function tooLong(contextLength: number): VllmError {
  const least = contextLength + 1;
  return badField(
    `This model's maximum context length is ${contextLength} tokens. However, your prompt contains at least ${least} input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt.`,
    "input_tokens",
    String(least),
  );
}
