import { createParser } from "eventsource-parser";
import { ApiFault, type Call, call } from "./api.ts";
import type { ApiObject } from "./json.ts";
import { session } from "./session.ts";

/** Events of responses as they arrive: over SSE, and over a WebSocket. */

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
 * The events of an SSE answer. Ends when the stream does, with or without a terminal event.
 * @param opened Called when the server has accepted the request.
 */
export async function* arrivals(path: string, options?: Call, opened = () => {}): AsyncGenerator<Arrival> {
  const response = await call(path, options);
  opened();
  if (!response.body) return;
  let come: Arrival[] = [];
  const parser = createParser({ onEvent: ({ data }) => data !== "[DONE]" && come.push(arrival(data)) });
  for await (const text of textOf(response.body)) {
    parser.feed(text);
    yield* come;
    come = [];
  }
}

/** The text of a body, in the parts in which it comes. */
export function textOf(body: ReadableStream<Uint8Array<ArrayBuffer>>) {
  return partsOf(body.pipeThrough(new TextDecoderStream()));
}

/** The parts of a stream. Not all browsers iterate over one. */
async function* partsOf<Part>(stream: ReadableStream<Part>): AsyncGenerator<Part> {
  const reader = stream.getReader();
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

export const CLOSED = "The WebSocket was closed. Is the server running, and does it accept this key?";

/**
 * The messages of a WebSocket from now on. Ends with an ApiFault when the socket is closed.
 * @param until ends the listening
 */
export async function* messagesOf(socket: WebSocket, until: AbortSignal): AsyncGenerator<Arrival> {
  let fault: ApiFault | undefined;
  const listen = (controller: ReadableStreamDefaultController<string>) => {
    socket.addEventListener("message", ({ data }) => controller.enqueue(String(data)), { signal: until });
    const closed = ({ code, reason }: CloseEvent) => {
      fault = new ApiFault(code === 1006 ? CLOSED : `The server has closed the WebSocket: ${reason || code}`);
      controller.close();
    };
    socket.addEventListener("close", closed, { signal: until, once: true });
  };
  for await (const json of partsOf(new ReadableStream<string>({ start: listen }))) yield arrival(json);
  throw fault;
}
