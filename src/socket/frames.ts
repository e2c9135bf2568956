import type { ApiError } from "@responses-edge/responses-api/errors";
import { invalidRequest } from "@responses-edge/responses-api/errors";
import { MAX_ID_LENGTH } from "@responses-edge/responses-api/ids";
import { isJsonObject, type JsonObject } from "@responses-edge/responses-api/json";
import type { AsideEvent } from "@responses-edge/turn/steering";

/**
 * The frames of WebSocket mode: those of clients, and those that clients are sent beside the events of their responses. Types:
 * `ResponsesClientEvent`, `ResponsesServerEvent`, `ResponseWsError`, `ResponseSteerFailedEvent` and
 * `BetaResponseInjectFailedEvent` of the openai package.
 */

/** A client's frame, parsed as far as is needed before its turn in its lane. */
export type ClientFrame =
  | { kind: "create"; lane: string | undefined; body: JsonObject }
  /** For a response that is under way. */
  | { kind: "steer" | "inject"; response: string; event: JsonObject }
  /** Older versions of Codex send it after a turn. It asks for nothing. */
  | { kind: "processed" };

const LANE = /^[A-Za-z0-9_.-]{1,256}$/;

/** Reads the JSON value of a frame. Throws the 400s of a value that is no client event. */
export function readFrame(value: unknown): ClientFrame {
  if (!isJsonObject(value)) throw invalidRequest(null, "Expected a JSON object with a 'type'.", "invalid_type");
  switch (value.type) {
    case "response.create": {
      const { type: _, stream_id: lane, ...body } = value;
      return { kind: "create", lane: laneName(lane), body };
    }
    case "response.steer":
      return readSubmission("steer", value, "previous_response_id");
    case "response.inject":
      return readSubmission("inject", value, "response_id");
    case "response.processed":
      return { kind: "processed" };
    default:
      throw invalidRequest(
        "type",
        "Unknown type of event. Supported are: 'response.create', 'response.steer', 'response.inject'.",
      );
  }
}

function laneName(value: unknown): string | undefined {
  if (value == null) return undefined;
  if (typeof value === "string" && LANE.test(value)) return value;
  throw invalidRequest(
    "stream_id",
    "Invalid 'stream_id': expected 1 to 256 letters, digits, '_', '.' or '-'.",
    "invalid_stream_id",
  );
}

function readSubmission(kind: "steer" | "inject", event: JsonObject, field: string): ClientFrame {
  const response = event[field];
  if (typeof response !== "string" || response.length > MAX_ID_LENGTH) {
    throw invalidRequest(field, "Expected the id of a response that is under way.");
  }
  if (event.input === undefined) {
    throw invalidRequest("input", "Missing required parameter: 'input'.", "missing_required_parameter");
  }
  return { kind, response, event };
}

/**
 * The create in a frame's body, in the form of an HTTP body. It always streams, whatever `stream` says. Throws the 400
 * of fields that no socket serves.
 */
export function readCreate(fields: JsonObject): JsonObject {
  if (fields.background === true) {
    throw invalidRequest(
      "background",
      "'background' is not supported over WebSocket: the response would end with the connection. Create it over HTTP.",
      "unsupported_parameter",
    );
  }
  return { ...fields, stream: true };
}

/** Replaces the opening brace of the events of a lane's responses. */
export function laneHead(lane: string | undefined): string | undefined {
  return lane === undefined ? undefined : `{"stream_id":"${lane}",`;
}

/**
 * An error as a frame. Codex ignores one without a numeric `status`. It reads headers beside the error; OpenAI's type
 * has them within it.
 */
export function errorFrame(error: ApiError, lane?: string): string {
  const { status, type, code, message, param, headers } = error;
  const hasHeaders = Object.keys(headers).length > 0;
  return JSON.stringify({
    type: "error",
    ...(lane !== undefined && { stream_id: lane }),
    status,
    error: { type, code, message, param, ...(hasHeaders && { headers }) },
    ...(hasHeaders && { headers }),
  });
}

/**
 * A `response.steer` or `response.inject` that is refused, or whose input no response takes. `id`: of a `response.steer`
 * that was accepted.
 */
export interface SubmissionFailure {
  kind: "steer" | "inject";
  id?: string;
  response: string;
  input: unknown;
  code: string;
  message: string;
}

/** It as an event, which gives the input back. */
export function failedEvent({ kind, id, response, input, code, message }: SubmissionFailure): AsideEvent {
  if (kind === "inject") {
    return { type: "response.inject.failed", error: { code, message }, response_id: response, input };
  }
  return {
    type: "response.steer.failed",
    error: { type: "invalid_request_error", code, message },
    steer: { ...(id !== undefined && { id }), previous_response_id: response, input },
  };
}

/** It as a frame beside all responses. `lane`: that of its response, where it is known. */
export function failedFrame(failure: SubmissionFailure, lane?: string): string {
  const { type, ...event } = failedEvent(failure);
  return JSON.stringify({ type, ...(lane !== undefined && { stream_id: lane }), sequence_number: 0, ...event });
}
