import type { Generation } from "./generation.ts";
import type { JsonObject } from "./json.ts";
import type { Settings } from "./settings.ts";

/** What the prompt cost. */
export type PromptUsage = { promptTokens: number; cachedTokens: number };

/** vLLM's `usage`; `completionTokens` and `reasoningTokens` so far for `continuous_usage_stats`. */
export function usageBody(
  prompt: PromptUsage,
  generated: Pick<Generation, "completionTokens" | "reasoningTokens">,
  settings: Settings,
): JsonObject {
  const usage: JsonObject = {
    prompt_tokens: prompt.promptTokens,
    total_tokens: prompt.promptTokens + generated.completionTokens,
    completion_tokens: generated.completionTokens,
  };
  if (settings.cached) usage.prompt_tokens_details = { cached_tokens: prompt.cachedTokens };
  if (generated.reasoningTokens > 0) {
    usage.completion_tokens_details = { reasoning_tokens: generated.reasoningTokens };
  }
  return usage;
}
