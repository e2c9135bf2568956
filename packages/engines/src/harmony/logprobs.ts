import type { Tokenizer } from "@responses-edge/harmony";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import type { TokenLogprob } from "@responses-edge/turn/contract/engine";
import type { WireLogprobs } from "./chunks.ts";

/** Logprobs of vLLM's completions in the form of OpenAI's `output_text.logprobs`. */

export function wantsLogprobs({ include }: CreateRequest): boolean {
  return include?.includes("message.output_text.logprobs") === true;
}

/** vLLM's value for a token of probability zero, whose logarithm JSON cannot express. */
const IMPOSSIBLE = -9999;

/** An entry per token of an event, with as many alternatives as `top_logprobs` asks for, likeliest first. */
export function toTokenLogprobs(
  ids: readonly number[],
  { token_logprobs: own, top_logprobs: top }: WireLogprobs,
  { top_logprobs: count }: CreateRequest,
  tokenizer: Tokenizer,
): TokenLogprob[] {
  return ids.map((id, index) => ({
    ...toEntry(tokenizer.bytes(id), own?.[index]),
    top_logprobs: Object.entries(top?.[index] ?? {})
      .sort(([, a], [, b]) => b - a)
      // vLLM adds the sampled token if it is not among the likeliest.
      .slice(0, count ?? 0)
      .map(([name, logprob]) => toEntry(bytesOf(name, tokenizer), logprob)),
  }));
}

function bytesOf(name: string, tokenizer: Tokenizer): Uint8Array {
  const [, id] = /^token_id:(\d+)$/.exec(name) ?? [];
  return id === undefined ? new TextEncoder().encode(name) : tokenizer.bytes(Number(id));
}

function toEntry(bytes: Uint8Array, logprob: number | null | undefined): Omit<TokenLogprob, "top_logprobs"> {
  return { token: textOf(bytes), logprob: logprob ?? IMPOSSIBLE, bytes: [...bytes] };
}

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** A token's text. The bytes of one that begins or ends within a character are written out, as OpenAI shows them. */
function textOf(bytes: Uint8Array): string {
  try {
    return decoder.decode(bytes);
  } catch {
    return Array.from(bytes, (byte) =>
      byte < 0x80 ? String.fromCharCode(byte) : `\\x${byte.toString(16).padStart(2, "0")}`,
    ).join("");
  }
}
