/// <reference path="./tiktoken.d.ts" />
import { creatingTokenizer, type Tokenizer } from "@responses-edge/harmony";
import { LongWork, type Steps } from "@responses-edge/long-work";

let tokenizer: Tokenizer | undefined;
let loading: Steps<Tokenizer> | undefined;

/**
 * The tokenizer, which takes a good fifth of a second to load, so only requests that need it pay: once per isolate, in slices that
 * whoever waits for it does. A request's timers end with it: loading goes on with any other one.
 * Rejects when the vocabulary cannot be loaded; the next call tries again.
 */
export async function loadTokenizer(): Promise<Tokenizer> {
  if (tokenizer) return tokenizer;
  // A module of bytes (wrangler.toml): as JavaScript its megabytes would be parsed at every start of the Worker.
  const { default: vocabulary } = await import("gpt-tokenizer/data/o200k_base.tiktoken");
  const work = new LongWork("");
  while (!tokenizer) {
    loading ??= creatingTokenizer(vocabulary);
    const { done, value } = loading.next();
    if (done) {
      tokenizer = value;
      loading = undefined;
    } else await work.spend(value);
  }
  return tokenizer;
}
