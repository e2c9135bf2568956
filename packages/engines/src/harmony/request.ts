import { STOP_TOKEN_IDS } from "@responses-edge/harmony";
import { vllmFields } from "@responses-edge/responses-api/create-fields";
import type { Prompt } from "@responses-edge/turn/contract/engine";
import { againstRepetition } from "../repetition-penalty.ts";
import { deliveryOf } from "../vllm-stream.ts";
import { wantsLogprobs } from "./logprobs.ts";

/** A rendered prompt as the body of vLLM's `/v1/completions`. */

/** Fields of the chat route, and fields that Harmony or this server decides. */
const NOT_PASSED = new Set<string>([
  "cache_salt",
  "chat_template_kwargs",
  "ignore_eos",
  "include_reasoning",
  // vLLM would look for stop strings in reasoning and headers, too.
  "include_stop_str_in_output",
  "mm_processor_kwargs",
  "skip_special_tokens",
  "stop",
  "stop_token_ids",
  "structured_outputs",
  // vLLM finds no end of reasoning in Harmony.
  "thinking_token_budget",
]);

const PASSED_THROUGH = (Object.keys(vllmFields) as (keyof typeof vllmFields)[]).filter((name) => !NOT_PASSED.has(name));

/**
 * The body. `text` is a prompt as text, or as token ids; `maxTokens` comes from output-limit.ts; `structured` is the
 * value of vLLM's `structured_outputs`.
 */
export function toCompletionRequest(
  prompt: Prompt,
  text: string | readonly number[],
  maxTokens: number,
  structured: Record<string, unknown> | undefined,
): string {
  const { request } = prompt;
  const body: Record<string, unknown> = { ...request.vllm_fields };
  for (const field of PASSED_THROUGH) if (request[field] != null) body[field] = request[field];
  const { isWhole, interval } = deliveryOf(prompt);
  Object.assign(body, {
    model: prompt.model,
    prompt: text,
    stream: !isWhole,
    stream_options: isWhole ? undefined : { include_usage: true },
    stream_interval: interval,
    max_tokens: maxTokens,
    temperature: request.temperature ?? undefined,
    top_p: request.top_p ?? undefined,
    cache_salt: prompt.cacheSalt,
    structured_outputs: structured,
    ...againstRepetition(prompt),
    stop_token_ids: [...new Set([...STOP_TOKEN_IDS, ...(request.stop_token_ids ?? [])])],
    // The parser needs the ids of special tokens to distinguish them from text that looks like them.
    return_token_ids: true,
    // Several tokens may have the same text.
    ...(wantsLogprobs(request) && { logprobs: request.top_logprobs ?? 0, return_tokens_as_token_ids: true }),
    skip_special_tokens: false,
    spaces_between_special_tokens: false,
    add_special_tokens: false,
  });
  return JSON.stringify(body);
}
