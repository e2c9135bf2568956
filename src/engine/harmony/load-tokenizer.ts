/// <reference path="./tiktoken.d.ts" />
import { createTokenizer, type Tokenizer } from "@responses-edge/harmony";

let loading: Promise<Tokenizer> | undefined;

/**
 * The tokenizer, which takes a good fifth of a second to load, so only requests that need it pay: once per isolate.
 * Rejects when the vocabulary cannot be loaded; the next call tries again.
 */
export function loadTokenizer(): Promise<Tokenizer> {
  loading ??= load().catch((error: unknown) => {
    loading = undefined;
    throw error;
  });
  return loading;
}

async function load(): Promise<Tokenizer> {
  // A module of bytes (wrangler.toml): as JavaScript its megabytes would be parsed at every start of the Worker.
  const { default: vocabulary } = await import("gpt-tokenizer/data/o200k_base.tiktoken");
  return createTokenizer(vocabulary);
}
