import type { Usage } from "../../protocol/response.ts";
import type { FinishReason, ModelDelta, TokenLogprob } from "../engine.ts";
import { malformedStream } from "../sse-decoder.ts";
import { readFault, toFaultError } from "../upstream.ts";

/**
 * Chunks of vLLM's chat completions, and its whole completions, as model deltas.
 *
 * Read leniently, because vLLM's versions differ (docs/deviations.md): fields may be absent, null or empty, and
 * `reasoning` was `reasoning_content` before 0.16.
 */

interface ChatToolCall {
  index?: number;
  id?: string | null;
  function?: { name?: string | null; arguments?: string | null };
}

interface ChatMessageDelta {
  content?: string | null;
  reasoning?: string | null;
  reasoning_content?: string | null;
  refusal?: string | null;
  tool_calls?: ChatToolCall[] | null;
}

interface ChatLogprob {
  token: string;
  logprob: number | null;
  bytes?: number[] | null;
  top_logprobs?: ChatLogprob[];
}

interface ChatChoice {
  delta?: ChatMessageDelta | null;
  message?: ChatMessageDelta | null;
  logprobs?: { content?: ChatLogprob[] | null } | null;
  finish_reason?: string | null;
}

interface ChatUsage {
  prompt_tokens?: number;
  completion_tokens?: number;
  total_tokens?: number;
  prompt_tokens_details?: { cached_tokens?: number | null; cache_write_tokens?: number | null } | null;
  completion_tokens_details?: { reasoning_tokens?: number | null } | null;
}

interface ChatChunk {
  choices?: ChatChoice[] | null;
  usage?: ChatUsage | null;
  kv_transfer_params?: unknown;
}

/** vLLM writes this for a logprob of minus infinity, which JSON cannot carry. */
const LOGPROB_FLOOR = -9999;

/** Adds the deltas of one `data:` payload to `deltas`. Throws ApiError for an error in the stream and for non-JSON. */
export function readChunk(payload: string, deltas: ModelDelta[]): void {
  let chunk: unknown;
  try {
    chunk = JSON.parse(payload);
  } catch {
    throw malformedStream();
  }
  readCompletion(chunk, deltas);
}

/** Adds the deltas of a chunk, or of a completion that came whole, to `deltas`. Throws ApiError as `readChunk`. */
export function readCompletion(body: unknown, deltas: ModelDelta[]): void {
  if (typeof body !== "object" || body === null) throw malformedStream();
  if ("error" in body || ("object" in body && body.object === "error")) {
    const fault = readFault(body);
    throw toFaultError(fault?.status ?? 500, fault);
  }
  const chunk = body as ChatChunk;
  const choice = chunk.choices?.[0];
  if (choice) {
    const delta = choice.delta ?? choice.message;
    if (delta) readDelta(delta, choice, deltas);
    if (choice.finish_reason) deltas.push({ kind: "finish", reason: toFinishReason(choice.finish_reason) });
  } else if (!chunk.choices && !chunk.usage) {
    throw malformedStream();
  }
  // With `continuous_usage_stats` every chunk has usage; only the one without choices counts them all. A completion
  // that came whole has both in one.
  if (chunk.usage && (!choice || choice.message)) deltas.push({ kind: "usage", usage: toUsage(chunk.usage) });
  if (chunk.kv_transfer_params != null) deltas.push({ kind: "kv_transfer_params", value: chunk.kv_transfer_params });
}

function readDelta(delta: ChatMessageDelta, choice: ChatChoice, deltas: ModelDelta[]): void {
  const reasoning = delta.reasoning ?? delta.reasoning_content;
  if (reasoning) deltas.push({ kind: "reasoning", text: reasoning });
  if (delta.content) {
    const logprobs = choice.logprobs?.content;
    deltas.push(
      logprobs?.length
        ? { kind: "text", text: delta.content, logprobs: logprobs.map(toTokenLogprob) }
        : { kind: "text", text: delta.content },
    );
  }
  if (delta.refusal) deltas.push({ kind: "refusal", text: delta.refusal });
  if (!delta.tool_calls) return;
  for (const [position, call] of delta.tool_calls.entries()) {
    deltas.push({
      kind: "tool_call",
      index: call.index ?? position,
      callId: call.id ?? undefined,
      name: call.function?.name ?? undefined,
      arguments: call.function?.arguments ?? "",
    });
  }
}

function toFinishReason(reason: string): FinishReason {
  switch (reason) {
    case "length":
    case "tool_calls":
    case "content_filter":
    case "abort":
      return reason;
    default:
      return "stop";
  }
}

function toTokenLogprob(entry: ChatLogprob): TokenLogprob {
  return { ...toLogprob(entry), top_logprobs: (entry.top_logprobs ?? []).map(toLogprob) };
}

function toLogprob(entry: ChatLogprob) {
  return {
    token: entry.token,
    logprob: entry.logprob ?? LOGPROB_FLOOR,
    bytes: entry.bytes ?? [...new TextEncoder().encode(entry.token)],
  };
}

function toUsage(usage: ChatUsage): Usage {
  const input = usage.prompt_tokens ?? 0;
  const output = usage.completion_tokens ?? 0;
  return {
    input_tokens: input,
    input_tokens_details: {
      cached_tokens: usage.prompt_tokens_details?.cached_tokens ?? 0,
      cache_write_tokens: usage.prompt_tokens_details?.cache_write_tokens ?? 0,
    },
    output_tokens: output,
    output_tokens_details: { reasoning_tokens: usage.completion_tokens_details?.reasoning_tokens ?? 0 },
    total_tokens: usage.total_tokens ?? input + output,
  };
}
