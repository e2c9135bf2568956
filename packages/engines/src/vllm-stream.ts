import { concatBytes } from "@responses-edge/bounded-io/body";
import type { HttpAnswer } from "@responses-edge/outgoing-fetch/socket";
import { ApiError } from "@responses-edge/responses-api/errors";
import { isJson } from "@responses-edge/responses-api/json";
import type { Usage } from "@responses-edge/responses-api/response";
import type { FinishReason, ModelDelta, Prompt } from "@responses-edge/turn/contract/engine";
import type { ModelServer, RequestOptions } from "./model-server.ts";
import type { Meter } from "./pool/admission.ts";
import { meterTokens } from "./pool/admitted.ts";
import { noteUnusable, noteUsable, STATUSES } from "./server-status.ts";
import type { Upstream } from "./upstream.ts";
import { answerAborted, connectionLost } from "./upstream-faults.ts";

/**
 * The stream that both of vLLM's completion routes send: how it is asked for, how it is cut into payloads, and the fields that the two share,
 * which are read leniently, because versions differ.
 */

export interface VllmUsage {
  prompt_tokens?: number;
  completion_tokens?: number;
  total_tokens?: number;
  prompt_tokens_details?: {
    cached_tokens?: number | null;
    cache_write_tokens?: number | null;
    /** Its name in vLLM ≥ 0.32. */
    created_cache_tokens?: number | null;
  } | null;
  completion_tokens_details?: { reasoning_tokens?: number | null } | null;
}

/** Token counts in the API's form; counts that vLLM does not report are 0. */
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
 * Throws ApiError 502 for an answer that the server has aborted: a server that is shut down, paused or put to sleep
 * aborts its generations (vLLM, `EngineCore.shutdown`, `PauseMode`), and some of its streams say so.
 */
export function toFinishReason(reason: string): FinishReason {
  switch (reason) {
    case "abort":
    // A server's own failure, which is no end of an answer.
    case "error":
      throw answerAborted();
    case "length":
    case "tool_calls":
    case "content_filter":
    case "repetition":
      return reason;
    default:
      return "stop";
  }
}

/**
 * Tokens in one event of an answer that the client gets as a whole. With 16 tokens, a model that takes three seconds for
 * each still sends an event before `VLLM_IDLE_TIMEOUT_MS`.
 */
const UNWATCHED_INTERVAL = 16;

/** How an answer comes. */
export interface Delivery extends Required<Pick<RequestOptions, "isWhole" | "isTokenStream">> {
  /** vLLM's `stream_interval`: after the first token, each event has this number of tokens. Undefined: not set. */
  interval: number | undefined;
}

/**
 * How the answer to a prompt is asked for. vLLM hands KV transfer parameters over only in one that comes whole. Each event costs this server
 * and vLLM as much as many tokens do. An answer that nobody watches is streamed all the same: its silences are noticed, no proxy gives it up,
 * and what was said is known when it breaks off. Tokens come one by one where a stop string may end the answer, because those behind it cost,
 * too; and beside tools (`hasTools`), because vLLM's parsers of calls go by events: the fewer tokens one has, the fewer of their cases it meets.
 */
export function deliveryOf({ request, isUnwatched }: Prompt, hasTools = false): Delivery {
  const isWhole = request.stream !== true && request.kv_transfer_params != null;
  const isMerged = isUnwatched && !isWhole && request.stop == null && !hasTools;
  const interval = request.stream_interval ?? (isMerged ? UNWATCHED_INTERVAL : undefined);
  return { isWhole, isTokenStream: !isWhole && (interval ?? 1) < UNWATCHED_INTERVAL, interval };
}

/** The longest line: the ids of a million-token prompt are 8 million. Bytes. */
const MAX_LINE_LENGTH = 16 * 1024 * 1024;

/** Pieces that are joined into one, so that a line that comes byte by byte does not cost a buffer per byte. */
const JOINED_PIECES = 1024;

const NEWLINE = 10;

/** It gets whole lines, so that it keeps no state: one decoder serves all streams. */
const decoder = new TextDecoder();

/**
 * Cuts an SSE byte stream into the payloads of its `data:` lines, at any read boundaries: inside a UTF-8 character, a
 * CRLF or a line. Other lines (comments, `event:`, blank) are not needed for vLLM's streams, and vLLM writes one
 * `data:` line per event, so a payload is a line.
 */
export class SseDecoder {
  /** The pieces of the unfinished last line, which are joined once, however many reads it takes. */
  #pieces: Uint8Array[] = [];
  /** Its last pieces, fewer than `JOINED_PIECES`. */
  #latest: Uint8Array[] = [];
  #length = 0;

  /** The payloads completed by `bytes`, which are not kept. Throws ApiError 502 for a line that is too long. */
  push(bytes: Uint8Array): string[] {
    const end = bytes.lastIndexOf(NEWLINE) + 1;
    if (end === 0) {
      this.#keep(bytes);
      return [];
    }
    let lines = end === bytes.length ? bytes : bytes.subarray(0, end);
    if (this.#length > 0) {
      this.#latest.push(lines);
      lines = concatBytes([...this.#pieces, ...this.#latest]);
      this.#pieces = [];
      this.#latest = [];
      this.#length = 0;
    }
    if (end < bytes.length) this.#keep(bytes.subarray(end));
    return payloadsOf(decoder.decode(lines));
  }

  /** The payload of a last line without a newline, unless it was cut off. */
  end(): string[] {
    return this.push(Uint8Array.of(NEWLINE)).filter((payload) => payload === "[DONE]" || isJson(payload));
  }

  #keep(bytes: Uint8Array): void {
    this.#length += bytes.length;
    if (this.#length > MAX_LINE_LENGTH) throw malformedStream();
    if (this.#latest.push(bytes.slice()) < JOINED_PIECES) return;
    this.#pieces.push(concatBytes(this.#latest));
    this.#latest = [];
  }
}

/** The payloads of lines, each of which ends with a newline. */
function payloadsOf(text: string): string[] {
  const payloads: string[] = [];
  let start = 0;
  for (;;) {
    const newline = text.indexOf("\n", start);
    if (newline === -1) return payloads;
    if (text.startsWith("data:", start)) {
      const from = text.charCodeAt(start + 5) === 32 ? start + 6 : start + 5;
      const to = text.charCodeAt(newline - 1) === 13 ? newline - 1 : newline;
      if (to > from) payloads.push(text.slice(from, to));
    }
    start = newline + 1;
  }
}

/** Reads an answer, and tells what is known of it so far. */
export interface AnswerReader {
  /** The finish reason has come: the answer is complete, except perhaps for its usage. */
  readonly isFinished: boolean;
  /** The rest of the answer is not wanted. */
  readonly isOver: boolean;
  /** Adds the deltas of some payloads to `deltas`, up to a faulty one, whose fault it gives, also as a promise. */
  readAll(payloads: readonly string[], deltas: ModelDelta[]): unknown;
  /** Adds the deltas of the end of a stream. */
  end(deltas: ModelDelta[]): void;
}

/**
 * The deltas of a streamed answer, for each read those that it has completed. Earlier deltas count, even if a fault comes in the same read.
 * Throws the fault of a payload, and the 502 of a stream that ends before its finish reason. The server's state has whether it was usable.
 */
export async function* streamedAnswer(
  upstream: Upstream,
  response: HttpAnswer,
  reader: AnswerReader,
  signal: AbortSignal,
): AsyncGenerator<ModelDelta[]> {
  const { server } = upstream;
  const meter = upstream.meterOf(response);
  const decoder = new SseDecoder();
  try {
    for await (const bytes of upstream.reads(response, signal)) {
      const deltas: ModelDelta[] = [];
      const fault = await reader.readAll(decoder.push(bytes), deltas);
      if (meter) meterDeltas(meter, deltas);
      if (deltas.length > 0) yield deltas;
      if (fault) throw fault;
      // Leaving closes the upstream request.
      if (reader.isOver) break;
    }
  } catch (error) {
    // The answer is complete; only its usage may be missing.
    if (signal.aborted) throw error;
    if (!reader.isFinished) throw unusable(server, error);
  }
  const deltas: ModelDelta[] = [];
  const fault = reader.isOver ? undefined : await reader.readAll(decoder.end(), deltas);
  reader.end(deltas);
  if (meter) meterDeltas(meter, deltas);
  if (deltas.length > 0) yield deltas;
  if (fault) throw unusable(server, fault);
  // Some versions end without `[DONE]`; without a finish reason the answer is incomplete.
  if (!reader.isFinished) throw unusable(server, connectionLost());
  if (STATUSES.get(server.baseUrl)?.unusable) noteUsable(server);
}

/** Counts the tokens of an event's deltas, or, if they have the usage of the answer, those that the server has computed for it. */
export function meterDeltas(meter: Meter, deltas: readonly ModelDelta[]): void {
  const last = deltas.at(-1);
  if (last?.kind === "usage") {
    const { input_tokens: input, input_tokens_details: details, output_tokens: output } = last.usage;
    meterTokens(meter, Math.max(0, input - details.cached_tokens) + output);
  } else if (last && !meter.isExact) meter.tokens += meter.perEvent;
}

/** Notes that an answer cannot be used. Gives its fault. */
export function unusable(server: ModelServer, fault: unknown): unknown {
  if (fault instanceof ApiError) noteUnusable(server, fault);
  return fault;
}

/** 502: the upstream's stream is not what vLLM sends. */
export function malformedStream(): ApiError {
  return new ApiError({
    status: 502,
    message: "The model server sent a malformed stream.",
    code: "upstream_malformed_response",
  });
}
