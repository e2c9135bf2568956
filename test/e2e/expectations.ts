import { expect } from "vitest";
import { parseEventStream } from "../conformance/event-stream.ts";

/** Checks of answers that several tests of failures share. */

/** The four fields of an error body. */
export interface ErrorFields {
  message: string;
  type: string;
  param: string | null;
  code: string | null;
}

/** The error in an answer, whose shape the gateway's own fetch has checked. */
export async function errorOf(response: Response): Promise<ErrorFields> {
  const { error } = (await response.json()) as { error: ErrorFields };
  return error;
}

/** Fails unless the answer is this error. The message may be a text, a pattern or absent. */
export async function expectError(
  response: Response,
  wanted: { status: number; message?: RegExp | string; type?: string; param?: string | null; code?: string },
): Promise<void> {
  const { status, ...fields } = wanted;
  const error = response.ok ? await response.text() : await errorOf(response);
  const { message } = fields;
  expect({ status: response.status, error }).toMatchObject({
    status,
    error: { ...fields, ...(message instanceof RegExp && { message: expect.stringMatching(message) }) },
  });
}

/** The fields of an event that these tests read. */
export interface StreamEvent {
  type: string;
  sequence_number: number;
  delta?: string;
  error?: ErrorFields;
  message?: string;
  response?: {
    id: string;
    status: string;
    error: { code: string; message: string } | null;
    output: { status: string; content: { text: string }[] }[];
    usage: unknown;
  };
}

export interface Streamed {
  events: StreamEvent[];
  types: string[];
  /** The texts of the comments. */
  comments: readonly string[];
  /** True if `[DONE]` came last. */
  done: boolean;
  /** The response of the first event. */
  id: string;
  /** All text deltas. */
  text: string;
}

/** Reads a stream to its end. */
export async function readStream(response: Response): Promise<Streamed> {
  expect({ status: response.status, type: response.headers.get("content-type") }).toEqual({
    status: 200,
    type: "text/event-stream; charset=utf-8",
  });
  const stream = parseEventStream(new Uint8Array(await response.arrayBuffer()), { partial: true });
  const events = stream.events.map((event) => event.data as StreamEvent);
  return {
    events,
    types: events.map((event) => event.type),
    comments: stream.comments,
    done: stream.done,
    id: events[0]?.response?.id ?? "",
    text: events.map((event) => (event.type === "response.output_text.delta" ? event.delta : "")).join(""),
  };
}

/** The reason of a promise's rejection. Fails if the promise resolves. */
export async function rejection(promise: Promise<unknown>): Promise<unknown> {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("Expected a rejection.");
}
