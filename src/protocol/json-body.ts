import { MAX_DEPTH, MAX_VALUES, structureFault } from "@responses-edge/json-text";
import type { LongWork, Steps } from "@responses-edge/long-work";
import { ApiError, invalidRequest } from "./errors.ts";

/** Reads the JSON of a request within limits, whatever brought it. */

/** So many bytes take a microsecond: to be looked at, and to become values. */
const BYTES_PER_UNIT = 100;

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: false });

/**
 * The value of a body that is within `MAX_REQUEST_BYTES`. Throws ApiError: 413 for more than `MAX_VALUES` values, 400 for
 * anything that is not UTF-8 JSON or is nested too deeply.
 */
export function parseBody(body: Uint8Array, work: LongWork): Promise<unknown> {
  return work.run(parsing(body));
}

function* parsing(body: Uint8Array): Steps<unknown> {
  // Paid before: neither can be done in part.
  const units = body.byteLength / BYTES_PER_UNIT;
  yield units;
  checkStructure(body);
  yield units;
  const value = parseJson(body);
  yield units;
  return value;
}

function parseJson(body: Uint8Array): unknown {
  try {
    return JSON.parse(decoder.decode(body));
  } catch {
    // The parser's own message quotes the body; prompts do not belong in errors.
    throw invalidRequest(
      null,
      "We could not parse the JSON body of your request. The body must be valid JSON in UTF-8.",
      "invalid_json",
    );
  }
}

/** The 413 of a body of more than `maxBytes`. */
export function bodyTooLarge(maxBytes: number): ApiError {
  return new ApiError({
    status: 413,
    message: `The request body is too large. The limit is ${maxBytes} bytes.`,
    code: "request_too_large",
  });
}

/** Throws what refuses a body whose brackets nest too deeply (400) or that holds too many values (413). */
function checkStructure(json: Uint8Array): void {
  const fault = structureFault(json);
  if (fault === "depth")
    throw invalidRequest(null, `The body is nested deeper than ${MAX_DEPTH} levels.`, "invalid_json");
  if (fault === "values") throw tooManyValues();
}

function tooManyValues(): ApiError {
  return new ApiError({
    status: 413,
    message: `The request body holds too many values. The limit is ${MAX_VALUES} array elements and object members.`,
    code: "request_too_large",
  });
}
