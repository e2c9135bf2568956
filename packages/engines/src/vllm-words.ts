import type { CreateRequest } from "@responses-edge/responses-api/create-request";
import type { Usage } from "@responses-edge/responses-api/response";
import type { FinishReason, Prompt } from "@responses-edge/turn/engine";
import type { RequestOptions } from "./model-server.ts";
import { answerAborted } from "./upstream-faults.ts";

/** The words that both of vLLM's completion routes share. Read leniently: its versions differ. */

export interface VllmUsage {
  prompt_tokens?: number;
  completion_tokens?: number;
  total_tokens?: number;
  prompt_tokens_details?: {
    cached_tokens?: number | null;
    cache_write_tokens?: number | null;
    /** The name that vLLM ≥ 0.32 has for them. */
    created_cache_tokens?: number | null;
  } | null;
  completion_tokens_details?: { reasoning_tokens?: number | null } | null;
}

/** Token counts as the API has them; what vLLM does not tell is 0. */
export function toUsage(usage: VllmUsage): Usage {
  const input = count(usage.prompt_tokens);
  const output = count(usage.completion_tokens);
  return {
    input_tokens: input,
    input_tokens_details: {
      cached_tokens: count(usage.prompt_tokens_details?.cached_tokens),
      cache_write_tokens: count(
        usage.prompt_tokens_details?.created_cache_tokens ?? usage.prompt_tokens_details?.cache_write_tokens,
      ),
    },
    output_tokens: output,
    output_tokens_details: { reasoning_tokens: count(usage.completion_tokens_details?.reasoning_tokens) },
    total_tokens: typeof usage.total_tokens === "number" ? usage.total_tokens : input + output,
  };
}

function count(value: number | null | undefined): number {
  return typeof value === "number" ? value : 0;
}

/**
 * Throws ApiError 502 for an answer that the server has given up: one that is shut down, paused or put to sleep aborts what it is
 * generating (vLLM, `EngineCore.shutdown`, `PauseMode`), and some of its streams hear of it.
 */
export function toFinishReason(reason: string): FinishReason {
  switch (reason) {
    case "abort":
      throw answerAborted();
    case "length":
    case "tool_calls":
    case "content_filter":
      return reason;
    default:
      return "stop";
  }
}

/** Tells whether an answer is asked for as a stream: vLLM hands KV transfer parameters over only in one that comes whole. */
export function isStreamed(request: CreateRequest): boolean {
  return request.stream === true || request.kv_transfer_params == null;
}

/** Tokens that come together where nobody watches. A server of a token in three seconds is still no silent one (`VLLM_IDLE_TIMEOUT_MS`). */
const UNWATCHED_INTERVAL = 16;

/**
 * vLLM's `stream_interval`: after the first token, so many come in one event. Each event costs this server and vLLM as much as many tokens
 * do. An answer that nobody watches is streamed all the same: its silences are noticed, no proxy gives it up, and what was said is known
 * when it breaks off. Where a stop string may end the answer, tokens come one by one: those behind it cost, too.
 */
export function streamInterval({ request, isUnwatched }: Prompt): number | undefined {
  const isMerged = isUnwatched && isStreamed(request) && request.stop == null;
  return request.stream_interval ?? (isMerged ? UNWATCHED_INTERVAL : undefined);
}

/** How an answer is asked for of which `interval` tokens come in an event, as far as that is said. */
export function askingFor({ request }: Prompt, interval: number | undefined): RequestOptions {
  const isWhole = !isStreamed(request);
  return { isWhole, isTokenStream: !isWhole && (interval ?? 1) < UNWATCHED_INTERVAL };
}
