/**
 * The names of Open Responses (spec 2026-04-24) for events with other names in OpenAI's API. Events are made and stored
 * under OpenAI's names, and renamed when they are sent to clients that ask for it.
 */

/** The header with a client's version of Open Responses. */
export const OPEN_RESPONSES_VERSION = "OpenResponses-Version";

/**
 * The beginning of such an event's JSON, or of its two lines in a stream; a model's text has no unescaped quotation
 * marks and newlines in it.
 */
const IN_JSON = /^\{"type":"response\.reasoning_text\./;
const IN_LINES = /(^|\n)(event: |data: \{"type":")response\.reasoning_text\./g;

/** An event's JSON with Open Responses' name. */
export function inOpenResponses(json: string): string {
  return json.replace(IN_JSON, '{"type":"response.reasoning.');
}

/** A stream of server-sent events with Open Responses' names. Takes bytes as they arrive, and gives whole lines. */
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
