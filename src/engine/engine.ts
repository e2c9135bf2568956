import type { CreateRequest } from "../protocol/create-request.ts";
import type { Item } from "../protocol/items.ts";
import type { Usage } from "../protocol/response.ts";

/** One token of a text with its logprob, as OpenAI's `output_text.logprobs` has it. */
export interface TokenLogprob {
  token: string;
  logprob: number;
  bytes: number[];
  top_logprobs: { token: string; logprob: number; bytes: number[] }[];
}

/** Why a model stopped. `abort`: the server gave the request up. */
export type FinishReason = "stop" | "length" | "tool_calls" | "content_filter" | "abort";

/**
 * What a model does, in the smallest words that every engine can say. An engine cannot emit events, choose ids or
 * indices; the turn's builder makes those from these deltas, so that all engines obey one order.
 */
export type ModelDelta =
  | { kind: "reasoning"; text: string }
  | { kind: "text"; text: string; logprobs?: TokenLogprob[] }
  | { kind: "refusal"; text: string }
  /** `index` tells parallel calls of one round apart; `name` and `callId` come with the first delta of an index. */
  | { kind: "tool_call"; index: number; callId?: string; name?: string; arguments: string }
  | { kind: "usage"; usage: Usage }
  | { kind: "kv_transfer_params"; value: unknown }
  | { kind: "finish"; reason: FinishReason };

/** The prompt of one round: what the model is to answer. */
export interface Prompt {
  /** The model's name at vLLM. */
  model: string;
  /** History and input, oldest first. */
  items: Item[];
  request: CreateRequest;
  /** Names the tenant's part of vLLM's prefix cache. */
  cacheSalt: string;
  /** Output tokens that earlier attempts at this turn have used up of `max_output_tokens`. */
  spentTokens?: number;
}

/** A prompt that ends with what was generated before an upstream died, for the model to go on with. */
export interface Continuation {
  prompt: Prompt;
  /** Text that was generated but could not stand at the end of the prompt: the model will say it again. */
  repeated: string;
}

/** Tokens of a prompt as the engine would render it, and the model's context window. */
export interface PromptSize {
  tokens: number;
  contextWindow: number;
}

/** A way to make a model speak: `chat` over vLLM's chat completions. */
export interface Engine {
  /**
   * Starts one round. Resolves when the upstream has accepted it, with the deltas of each upstream read together.
   * Aborting `signal` closes the upstream request at once and ends the iteration with the signal's reason.
   * Throws ApiError: 4xx for a prompt that the model refuses, 502/503/504 for an upstream that fails, and the same
   * from the iteration when it fails after the start.
   */
  generate(prompt: Prompt, signal: AbortSignal): Promise<AsyncIterable<ModelDelta[]>>;

  /**
   * The prompt to go on with after `partial` (items generated so far, the last one unfinished), or undefined where this
   * engine cannot put a model back into that state.
   */
  continuation(prompt: Prompt, partial: readonly Item[]): Continuation | undefined;

  /** The size of a prompt. Throws ApiError as `generate` does. */
  measure(prompt: Prompt, signal: AbortSignal): Promise<PromptSize>;
}
