import { createParser } from "eventsource-parser";
import { ApiFault, call } from "./api.js";
import { session } from "./session.js";

/** Events of responses as they come: over SSE, and over a WebSocket. */

/**
 * @typedef {object} Arrival An event as it came
 * @property {string} json
 * @property {Record<string, any>} event the same, parsed
 */

/** @param {string} json @returns {Arrival} */
export function arrival(json) {
  return { json, event: JSON.parse(json) };
}

/**
 * The events of an SSE answer, in the batches in which they came. Ends when the stream does, with or without a terminal event.
 * @param {string} path
 * @param {import("./api.js").Call} [options]
 * @returns {AsyncGenerator<Arrival[]>}
 */
export async function* eventBatches(path, options) {
  const response = await call(path, options);
  if (!response.body) return;
  /** @type {Arrival[]} */
  let batch = [];
  const parser = createParser({ onEvent: ({ data }) => data !== "[DONE]" && batch.push(arrival(data)) });
  for await (const text of textOf(response.body)) {
    parser.feed(text);
    if (batch.length === 0) continue;
    yield batch;
    batch = [];
  }
}

/** The text of a body, in the parts in which it comes. @param {ReadableStream<Uint8Array<ArrayBuffer>>} body */
export async function* textOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/**
 * Opens a WebSocket to `/v1/responses`. A browser can set no header for it: the key goes in a subprotocol. Throws an ApiFault for a key
 * that cannot be written there.
 * @returns {WebSocket}
 */
export function openSocket() {
  const url = new URL("/v1/responses", location.href.replace(/^http/, "ws"));
  const protocols = ["responses"];
  if (session.key !== undefined) protocols.push(`openai-insecure-api-key.${session.key}`);
  try {
    return new WebSocket(url, protocols);
  } catch {
    throw new ApiFault(
      "This key has characters that a browser cannot send over a WebSocket. Choose another transport.",
    );
  }
}
