import { createParser } from "eventsource-parser";
import { ApiFault, type Call, call } from "./api.ts";
import type { ApiObject } from "./json.ts";
import { session } from "./session.ts";

/** Events of responses as they come: over SSE, and over a WebSocket. */

/** An event as it came */
export interface Arrival {
  json: string;
  /** the same, parsed */
  event: ApiObject;
}

export function arrival(json: string): Arrival {
  return { json, event: JSON.parse(json) };
}

/**
 * The events of an SSE answer, in the batches in which they came. Ends when the stream does, with or without a terminal event.
 * @param opened Called when the server has accepted the request.
 */
export async function* eventBatches(path: string, options?: Call, opened = () => {}): AsyncGenerator<Arrival[]> {
  const response = await call(path, options);
  opened();
  if (!response.body) return;
  let batch: Arrival[] = [];
  const parser = createParser({ onEvent: ({ data }) => data !== "[DONE]" && batch.push(arrival(data)) });
  for await (const text of textOf(response.body)) {
    parser.feed(text);
    if (batch.length === 0) continue;
    yield batch;
    batch = [];
  }
}

/** The text of a body, in the parts in which it comes. */
export async function* textOf(body: ReadableStream<Uint8Array<ArrayBuffer>>) {
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
 */
export function openSocket(): WebSocket {
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
