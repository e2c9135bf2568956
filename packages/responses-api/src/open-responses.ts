/**
 * The names that Open Responses (spec 2026-04-24) has for events which OpenAI's API calls otherwise. Events are made and kept under OpenAI's
 * names, and renamed where they leave, for clients that ask for it.
 */

/** The header by which a client says which version of Open Responses it speaks. */
export const OPEN_RESPONSES_VERSION = "OpenResponses-Version";

/** The beginning of such an event's JSON, or of its two lines in a stream; what a model has said has no bare quotation marks and no bare newlines in it. */
const IN_JSON = /^\{"type":"response\.reasoning_text\./;
const IN_LINES = /(^|\n)(event: |data: \{"type":")response\.reasoning_text\./g;

/** An event's JSON under Open Responses' name for it. */
export function inOpenResponses(json: string): string {
  return json.replace(IN_JSON, '{"type":"response.reasoning.');
}

/** A stream of server-sent events under Open Responses' names for them. Takes the bytes as they come, and gives whole lines. */
export function openResponsesStream(events: ReadableStream<Uint8Array>): ReadableStream<Uint8Array> {
  const decoder = new TextDecoder();
  const encoder = new TextEncoder();
  let line = "";
  const lines = new TransformStream<Uint8Array, Uint8Array>({
    transform(bytes, controller) {
      const text = decoder.decode(bytes, { stream: true });
      const end = text.lastIndexOf("\n") + 1;
      if (end > 0) {
        const whole = line + text.slice(0, end);
        controller.enqueue(encoder.encode(whole.replaceAll(IN_LINES, "$1$2response.reasoning.")));
        line = "";
      }
      line += text.slice(end);
    },
    flush(controller) {
      if (line !== "") controller.enqueue(encoder.encode(line));
    },
  });
  return events.pipeThrough(lines);
}
