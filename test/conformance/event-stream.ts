/** Checks a recorded Responses stream: its framing, the shape of each event, and their order. */
import OpenAI from "openai";
import type { Response, ResponseOutputItem, ResponseStreamEvent } from "openai/resources/responses/responses";
import { eventViolations } from "./schemas.ts";
import type { EventStream, WireEvent } from "./sse-parser.ts";
import { STREAM_RULES } from "./stream-rules.ts";
import { type Placed, type StreamOptions, traceStream } from "./stream-trace.ts";
import { ConformanceError, runRules, throwIfAny } from "./violations.ts";

export { type EventStream, parseEventStream, type WireEvent } from "./sse-parser.ts";
export type { StreamOptions } from "./stream-trace.ts";

export interface CheckedStream {
  /** The response of the terminal event; undefined when the stream was cut off before, or cancelled. */
  readonly response: Response | undefined;
  /** The items of `output_item.done`, by `output_index`. */
  readonly items: readonly ResponseOutputItem[];
  readonly events: readonly ResponseStreamEvent[];
}

/**
 * Checks the events of one stream.
 *
 * @throws {ConformanceError} with every violation: those of the shapes, or, when all shapes are right, those of the rules.
 */
export function checkEventStream(stream: EventStream, options: StreamOptions = {}): CheckedStream {
  const placed = typed(stream.events);
  const trace = traceStream(placed, stream.done, options);
  const rules = STREAM_RULES.filter((rule) => options.startingAfter === undefined || !rule.fromStart);
  throwIfAny("The event stream", runRules(rules, trace));
  return {
    response: trace.terminal?.event.response,
    items: trace.items.flatMap((item) => (item.done === undefined ? [] : [item.done])),
    events: placed.map(({ event }) => event),
  };
}

/** The events as typed events, after the schema has accepted them. */
function typed(events: readonly WireEvent[]): Placed[] {
  throwIfAny(
    "The event stream",
    events.flatMap(({ name, data }, position) =>
      eventViolations(data).map((message) => `#4 schema: event ${position} (${name}): ${message}`),
    ),
  );
  return events.map(({ name, data }, position) => ({ position, name, event: data as ResponseStreamEvent }));
}

/**
 * Runs the recorded bytes of a whole stream through openai-node's `responses.stream()`, the strictest public reader.
 * `fails`: true if it has an `error` event.
 *
 * @returns what `finalResponse()` gives; undefined for a stream with an `error` event, where it must throw
 * @throws {ConformanceError} when openai-node cannot read the stream, or reads an error event without throwing
 */
export async function checkWithOpenAiNode(bytes: Uint8Array | string, fails = false): Promise<Response | undefined> {
  const client = new OpenAI({
    apiKey: "none",
    baseURL: "http://recorded.invalid/v1",
    maxRetries: 0,
    fetch: async () =>
      new globalThis.Response(recordedBody(bytes), { headers: { "content-type": "text/event-stream" } }),
  });
  let response: Response | undefined;
  try {
    response = await client.responses.stream({ model: "recorded", input: "recorded" }).finalResponse();
  } catch (error) {
    if (fails && error instanceof OpenAI.APIError) return undefined;
    throw new ConformanceError("The event stream", [`openai-node: ${String(error)}`]);
  }
  if (fails) throw new ConformanceError("The event stream", ["openai-node: read the error event without throwing"]);
  return response;
}

function recordedBody(bytes: Uint8Array | string): ArrayBuffer {
  const copy = typeof bytes === "string" ? new TextEncoder().encode(bytes) : bytes;
  return new Uint8Array(copy).buffer;
}
