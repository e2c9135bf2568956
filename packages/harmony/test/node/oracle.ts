import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import type { HarmonyMessage } from "@responses-edge/harmony";
import type { Conversation, JsHarmonyEncoding } from "openai-harmony";

/** openai/harmony itself, as WebAssembly, for comparison with our renderer and tokenizer. */
export interface Oracle {
  /** The ids of a conversation and of the start of the assistant's next message. */
  render(messages: readonly HarmonyMessage[], options?: { autoDropAnalysis?: boolean }): number[];
  encode(text: string): number[];
  decode(ids: readonly number[]): string;
}

const VOCABULARY_URL = "http://vocabulary.invalid";

/** Loads it without a network, with the vocabulary that gpt-tokenizer ships. Takes a good half second. */
export async function loadOracle(): Promise<Oracle> {
  const realFetch = globalThis.fetch;
  globalThis.fetch = fetchLocally;
  let encoding: JsHarmonyEncoding;
  try {
    const { load_harmony_encoding } = await import("openai-harmony");
    encoding = await load_harmony_encoding("HarmonyGptOss", VOCABULARY_URL);
  } finally {
    globalThis.fetch = realFetch;
  }
  return {
    render(messages, { autoDropAnalysis = false } = {}) {
      // Its types have no optional fields where its JSON has.
      const conversation = { messages } as unknown as Conversation;
      const config = { auto_drop_analysis: autoDropAnalysis };
      return [...encoding.renderConversationForCompletion(conversation, "assistant", config)];
    },
    encode: (text) => [...encoding.encode(text, [])],
    decode: (ids) => encoding.decodeUtf8(Uint32Array.from(ids)),
  };
}

/** It fetches its WebAssembly from a `file:` URL, which Node's fetch does not know, and its vocabulary from the network. */
async function fetchLocally(input: RequestInfo | URL): Promise<Response> {
  const url = input instanceof Request ? input.url : String(input);
  if (url.startsWith("file:")) {
    return new Response(await readFile(new URL(url)), { headers: { "Content-Type": "application/wasm" } });
  }
  if (!url.startsWith(VOCABULARY_URL)) throw new Error(`The oracle wants ${url}.`);
  // A Response of our own making has no URL, which it insists on.
  return Object.defineProperty(new Response(await readVocabulary()), "url", { value: url });
}

/** The file `o200k_base.tiktoken`. */
export async function readVocabulary(): Promise<ArrayBuffer> {
  const file = await readFile(createRequire(import.meta.url).resolve("gpt-tokenizer/data/o200k_base.tiktoken"));
  return new Uint8Array(file).buffer;
}
