import { Buffer } from "node:buffer";
import type { CreateRequest } from "./create-bodies.ts";

/** Estimates the tokens of a prompt before they are counted, for reservations of limits. */

/** Bytes of a token: about four of English, four or fewer of other scripts. */
export const BYTES_PER_TOKEN = 4;

/** An image, a sound or a file as a data URL is not text: it counts as the tokens of a usual image. */
const TOKENS_OF_MEDIA = 1_000;

/** Deeper values are ignored: requests have no deeper texts. */
const MAX_DEPTH = 16;

/** An estimate of the tokens of all texts in a value. Reads each once. */
export function estimateTokens(value: unknown): number {
  return Math.ceil(bytesIn(value, 0) / BYTES_PER_TOKEN);
}

/** The part of a request beside its items: instructions and tools. */
export function estimateFrame({ instructions, tools, text }: CreateRequest): number {
  return estimateTokens([instructions, tools, text?.format]);
}

function bytesIn(value: unknown, depth: number): number {
  if (typeof value === "string") {
    return value.startsWith("data:") && value.length > TOKENS_OF_MEDIA * BYTES_PER_TOKEN
      ? TOKENS_OF_MEDIA * BYTES_PER_TOKEN
      : Buffer.byteLength(value);
  }
  if (typeof value !== "object" || value === null) return 1;
  if (depth >= MAX_DEPTH) return 0;
  // The model sees a description of it, not itself.
  if ("type" in value && value.type === "image_generation_call") return TOKENS_OF_MEDIA;
  let sum = BYTES_PER_TOKEN;
  // A number in a list may be a token's id.
  if (Array.isArray(value))
    for (const each of value) sum += typeof each === "number" ? BYTES_PER_TOKEN : bytesIn(each, depth + 1);
  else for (const key in value) sum += bytesIn((value as Record<string, unknown>)[key], depth + 1);
  return sum;
}
