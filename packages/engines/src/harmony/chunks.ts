import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import type { FinishReason } from "@responses-edge/turn/contract/engine";
import { clientFault } from "../client-faults.ts";
import { readFault, toFaultError } from "../upstream-faults.ts";
import { malformedStream, toFinishReason, type VllmUsage } from "../vllm-stream.ts";

/**
 * Logprobs in the form of vLLM's completions: an entry for each token. Tokens are named `token_id:N`, or by their text.
 */
export interface WireLogprobs {
  token_logprobs?: (number | null)[] | null;
  top_logprobs?: (Record<string, number> | null)[] | null;
}

/** One event of vLLM's completions stream, or a whole completion. Fields that vLLM leaves out are absent. */
export interface CompletionChunk {
  text: string;
  ids: number[] | undefined;
  logprobs: WireLogprobs | undefined;
  /** Tokens of the prompt, only in the first event. */
  promptTokens: number | undefined;
  finish: FinishReason | undefined;
  usage: VllmUsage | undefined;
  kvTransferParams: unknown;
}

interface WireChoice {
  text?: string | null;
  token_ids?: number[] | null;
  logprobs?: WireLogprobs | null;
  prompt_token_ids?: number[] | null;
  finish_reason?: string | null;
}

interface WireChunk {
  object?: string;
  error?: unknown;
  choices?: WireChoice[] | null;
  usage?: VllmUsage | null;
  kv_transfer_params?: unknown;
}

/**
 * Reads a `data:` payload, or a whole answer. Throws ApiError for an error in it, and for anything that is not a
 * completion.
 */
export function readCompletionChunk(payload: string, request: CreateRequest): CompletionChunk {
  let chunk: unknown;
  try {
    chunk = JSON.parse(payload);
  } catch {
    throw malformedStream();
  }
  if (typeof chunk !== "object" || chunk === null) throw malformedStream();
  const { object, error, choices, usage, kv_transfer_params: kvTransferParams } = chunk as WireChunk;
  if (error != null || object === "error") {
    const fault = readFault(chunk);
    throw clientFault(toFaultError(fault?.status ?? 500, fault), request);
  }
  if (choices != null && !Array.isArray(choices)) throw malformedStream();
  const choice = choices?.[0];
  if (!choice && !choices && !usage) throw malformedStream();
  const text = choice?.text ?? "";
  const ids = choice?.token_ids ?? undefined;
  if (typeof text !== "string" || (ids !== undefined && !Array.isArray(ids))) throw malformedStream();
  const reason = choice?.finish_reason;
  return {
    text,
    ids,
    logprobs: choice?.logprobs ?? undefined,
    promptTokens: Array.isArray(choice?.prompt_token_ids) ? choice.prompt_token_ids.length : undefined,
    finish: typeof reason === "string" && reason !== "" ? toFinishReason(reason) : undefined,
    usage: usage ?? undefined,
    kvTransferParams: kvTransferParams ?? undefined,
  };
}
