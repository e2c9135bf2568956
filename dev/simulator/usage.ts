import type { JsonObject } from "./json.ts";
import type { Settings } from "./settings.ts";

/** The usage of the prompt. `created`: the tokens that were added to the prefix cache. */
export type PromptUsage = { promptTokens: number; cachedTokens: number; createdCacheTokens: number };

/** The `system_fingerprint`: the version, and a hash of the server's start options. */
export function fingerprint({ version }: Settings): string {
  return `vllm-${version}.0-5133a70e`;
}

/**
 * vLLM's `usage`. Its details depend on its place: a body, the last chunk of a stream, or (`undefined`, for
 * `continuous_usage_stats`) any chunk, with the tokens so far.
 */
export function usageBody(
  place: "chat" | "chat stream" | "completion" | "completion stream" | "completion chunk" | undefined,
  prompt: PromptUsage,
  generated: { completionTokens: number; reasoningTokens: number },
  settings: Settings,
): JsonObject {
  const usage: JsonObject = {
    prompt_tokens: prompt.promptTokens,
    total_tokens: prompt.promptTokens + generated.completionTokens,
    completion_tokens: generated.completionTokens,
  };
  const { cachedTokens: cached_tokens, createdCacheTokens: created } = prompt;
  const whole = place === "chat" || place === "completion";
  if (settings.cached && place !== undefined && place !== "completion chunk") {
    const details: JsonObject = { cached_tokens };
    if (place !== "completion stream") details.created_cache_tokens = place === "completion" ? null : created;
    if (whole) details.multimodal_tokens = null;
    usage.prompt_tokens_details = details;
  } else if (whole) usage.prompt_tokens_details = null;
  if (place === "completion") usage.completion_tokens_details = null;
  else if (settings.thoughtTokens && place !== "completion stream" && place !== "completion chunk") {
    usage.completion_tokens_details = { reasoning_tokens: generated.reasoningTokens };
  }
  return usage;
}

/** llama.cpp's counts beside a token. */
export function timingsOf(
  { promptTokens, cachedTokens }: PromptUsage,
  { completionTokens }: { completionTokens: number },
): JsonObject {
  return { cache_n: cachedTokens, prompt_n: promptTokens - cachedTokens, predicted_n: completionTokens };
}
