import { expect } from "vitest";
import { checkEventStream, parseEventStream } from "../conformance/event-stream.ts";
import { fetchAnew } from "../workerd/tools.ts";

/** One client's part of a response: the bytes of all complete events that it received, over all its connections. */
export interface Reader {
  id: string;
  text: string;
}

/**
 * Creates a background response with the server at `url`, and reads it to its end or until it breaks. `headers` are
 * sent, too.
 */
export function create(url: string, reader: Reader, request: object, headers = {}): Promise<void> {
  const body = JSON.stringify({ ...request, background: true, stream: true });
  const init = { method: "POST", headers: { "content-type": "application/json", ...headers }, body };
  return readInto(reader, fetchAnew(`${url}/v1/responses`, init));
}

/** Continues after the last event that the reader has. */
export function resume(url: string, reader: Reader, headers = {}): Promise<void> {
  const last = [...reader.text.matchAll(/"sequence_number":(\d+)/g)].at(-1)?.[1];
  const query = last === undefined ? "stream=true" : `stream=true&starting_after=${last}`;
  return readInto(reader, fetchAnew(`${url}/v1/responses/${reader.id}?${query}`, { headers }));
}

/** Reads a stream to its end or until it breaks, keeping whole events only. */
async function readInto(reader: Reader, answering: Promise<Response>): Promise<void> {
  const decoder = new TextDecoder();
  let buffer = "";
  try {
    for await (const bytes of (await answering).body ?? []) {
      buffer += decoder.decode(bytes, { stream: true });
      const end = buffer.lastIndexOf("\n\n") + 2;
      if (end < 2) continue;
      // Heartbeats are not events.
      reader.text += buffer.slice(0, end).replaceAll(/^: .*\n\n/gm, "");
      buffer = buffer.slice(end);
      reader.id ||= /"id":"(resp_\w+)"/.exec(reader.text)?.[1] ?? "";
    }
  } catch {
    // The process died.
  }
}

export const hasEnded = ({ text }: Reader) => text.endsWith("data: [DONE]\n\n");

/** Checks a stream from its first event to its last by the rules of every stream. */
export function streamOf({ text }: Reader): ReturnType<typeof checkEventStream> {
  const stream = checkEventStream(parseEventStream(text), { background: true });
  expect(stream.events.map((event) => event.sequence_number)).toEqual(stream.events.map((_, index) => index));
  return stream;
}
