import type { Usage } from "@responses-edge/responses-api/response";
import type { VllmUsage } from "../vllm-stream.ts";

/** Token counts that a server does not report as vLLM does. */

/** A piece of a streamed thought that is longer is more than a token. In characters. */
const MAX_TOKEN_LENGTH = 12;

/** The characters of a token, on average. */
const TOKEN_LENGTH = 4;

/**
 * Counts the tokens of an answer's thoughts, for a server that does not (llama.cpp, Ollama): the pieces in which they
 * come, if those are as short as tokens, or else an estimate by their length.
 */
export class ThoughtCount {
  #pieces = 0;
  #length = 0;

  add(thought: string): void {
    this.#pieces += 1;
    this.#length += thought.length;
  }

  /** A usage that says how many of its tokens are thoughts. */
  completed(usage: Usage): Usage {
    if (this.#pieces === 0 || usage.output_tokens_details.reasoning_tokens > 0) return usage;
    const isByToken = this.#length <= this.#pieces * MAX_TOKEN_LENGTH;
    const counted = isByToken ? this.#pieces : Math.ceil(this.#length / TOKEN_LENGTH);
    return { ...usage, output_tokens_details: { reasoning_tokens: Math.min(counted, usage.output_tokens) } };
  }
}

/** llama.cpp's counts beside a token (`timings_per_token`). */
export interface Timings {
  cache_n?: number;
  prompt_n?: number;
  predicted_n?: number;
}

/** The usage so far, by the counts beside a token; undefined without all of them. */
export function usageSoFar({ cache_n, prompt_n, predicted_n }: Timings): VllmUsage | undefined {
  if (typeof cache_n !== "number" || typeof prompt_n !== "number" || typeof predicted_n !== "number") return undefined;
  return {
    prompt_tokens: cache_n + prompt_n,
    completion_tokens: predicted_n,
    prompt_tokens_details: { cached_tokens: cache_n },
  };
}
