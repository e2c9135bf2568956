/// <reference path="./vocabulary.d.ts" />

import type { Buffer } from "node:buffer";
import { gunzipSync } from "node:zlib";
import { LongWork, type Steps } from "@responses-edge/bounded-io/long-work";
import { creatingTokenizer, type Tokenizer } from "@responses-edge/harmony";

let tokenizer: Tokenizer | undefined;
let loading: Steps<Tokenizer> | undefined;

/**
 * The tokenizer. It takes more than a fifth of a second to load, so that only requests that need it load it: once per
 * isolate, in slices by a request that waits for it. If that request ends, its timers end, too, and any other one
 * continues. Rejects if the vocabulary cannot be loaded; the next call tries again.
 */
export async function loadTokenizer(): Promise<Tokenizer> {
  if (tokenizer) return tokenizer;
  // A module of bytes (wrangler.toml). As JavaScript, its megabytes would be parsed at every start of the Worker.
  const { default: packed } = await import("../../dist/o200k_base.gz");
  const work = new LongWork("");
  while (!tokenizer) {
    loading ??= creatingTokenizer(tokensOf(gunzipSync(new Uint8Array(packed))));
    const { done, value } = loading.next();
    if (done) {
      tokenizer = value;
      loading = undefined;
    } else await work.spend(value);
  }
  return tokenizer;
}

/** The tokens of the vocabulary as `build.js` writes it: the length of each in a byte, and its bytes. */
function* tokensOf(vocabulary: Buffer): Generator<string> {
  for (let at = 0; at < vocabulary.length; ) {
    const start = at + 1;
    at = start + vocabulary.readUInt8(at);
    yield vocabulary.toString("latin1", start, at);
  }
}
