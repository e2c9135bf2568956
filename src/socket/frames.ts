import type { ApiError } from "@responses-edge/responses-api/errors";
import { invalidRequest } from "@responses-edge/responses-api/errors";
import { MAX_ID_LENGTH } from "@responses-edge/responses-api/ids";
import { isJsonObject, type JsonObject } from "@responses-edge/responses-api/json";

/**
 * The frames of WebSocket mode: those of clients, and those that clients are sent beside the events of their responses. Types:
 * `ResponsesClientEvent`, `ResponsesServerEvent`, `ResponseWsError`, `ResponseSteerFailedEvent` of the openai package.
 */

/** A client's frame, parsed as far as is needed before its turn in its lane. */
export type ClientFrame =
  | { kind: "create"; lane: string | undefined; body: JsonObject }
  | { kind: "steer"; previous: string; event: JsonObject }
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
      return readSteer(value);
    case "response.processed":
      return { kind: "processed" };
    default:
      throw invalidRequest("type", "Unknown type of event. Supported are: 'response.create', 'response.steer'.");
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

function readSteer(event: JsonObject): ClientFrame {
  const { previous_response_id: previous, input } = event;
  if (typeof previous !== "string" || previous.length > MAX_ID_LENGTH) {
    throw invalidRequest("previous_response_id", "Expected the id of the response to steer.");
  }
  if (input === undefined) {
    throw invalidRequest("input", "Missing required parameter: 'input'.", "missing_required_parameter");
  }
  return { kind: "steer", previous, event };
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

/** A `response.steer` that is refused, or whose words nothing answers. `id`: of one that was accepted. */
export interface SteerFailure {
  id?: string;
  previous: string;
  input: unknown;
  code: string;
  message: string;
}

/** It as a frame, which gives the input back. `lane`: that of the response, where it is known. */
export function steerFailedFrame({ id, previous, input, code, message }: SteerFailure, lane?: string): string {
  return JSON.stringify({
    type: "response.steer.failed",
    ...(lane !== undefined && { stream_id: lane }),
    sequence_number: 0,
    error: { type: "invalid_request_error", code, message },
    steer: { ...(id !== undefined && { id }), previous_response_id: previous, input },
  });
}
