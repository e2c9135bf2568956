import { ApiError, invalidRequest } from "./errors.ts";

/** Reads the JSON of a request within limits, whatever brought it. */

/** Nesting beyond this serves nobody, and breaks recursive readers further on (Python's own limit is near 1000). */
const MAX_DEPTH = 256;

/**
 * Array elements and object members of a body. Each becomes a value in memory whatever it takes in the text: 12 MB of
 * `{},{},` would be 200 MB. A prompt of many parts needs about one for every 20 bytes.
 */
const MAX_VALUES = 500_000;

/** A body of this size takes milliseconds at each step: between two of them other requests get their turn. */
const LONG_BODY_BYTES = 1024 * 1024;

/**
 * The value of a body that is within `MAX_REQUEST_BYTES`. Throws ApiError: 413 for more than `MAX_VALUES` values, 400 for
 * anything that is not UTF-8 JSON or is nested too deeply.
 */
export async function parseBody(body: Uint8Array): Promise<unknown> {
  const isLong = body.byteLength > LONG_BODY_BYTES;
  if (isLong) await giveWay();
  checkStructure(body);
  if (isLong) await giveWay();
  const value = parseJson(body);
  if (isLong) await giveWay();
  return value;
}

function parseJson(body: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: false }).decode(body));
  } catch {
    // The parser's own message quotes the body; prompts do not belong in errors.
    throw invalidRequest(
      null,
      "We could not parse the JSON body of your request. The body must be valid JSON in UTF-8.",
      "invalid_json",
    );
  }
}

/** Lets what else this process has to do be done first. */
function giveWay(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 0));
}

/** The 413 of a body of more than `maxBytes`. */
export function bodyTooLarge(maxBytes: number): ApiError {
  return new ApiError({
    status: 413,
    message: `The request body is too large. The limit is ${maxBytes} bytes.`,
    code: "request_too_large",
  });
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;

/**
 * Throws what refuses a body whose brackets nest too deeply (400) or that holds too many values (413): one pass over
 * its bytes, before anything is made of them.
 */
function checkStructure(json: Uint8Array): void {
  let depth = 0;
  let values = 0;
  let inString = false;
  for (let index = 0; index < json.length; index += 1) {
    const byte = json[index];
    if (inString) {
      if (byte === BACKSLASH) index += 1;
      else if (byte === QUOTE) inString = false;
    } else if (byte === QUOTE) inString = true;
    else if (byte === COMMA) values += 1;
    else if (byte === 0x7b || byte === 0x5b) {
      depth += 1;
      // Its first element; an empty one is counted all the same.
      values += 1;
      if (depth > MAX_DEPTH) {
        throw invalidRequest(null, `The body is nested deeper than ${MAX_DEPTH} levels.`, "invalid_json");
      }
    } else if (byte === 0x7d || byte === 0x5d) depth -= 1;
    if (values > MAX_VALUES) throw tooManyValues();
  }
}

function tooManyValues(): ApiError {
  return new ApiError({
    status: 413,
    message: `The request body holds too many values. The limit is ${MAX_VALUES} array elements and object members.`,
    code: "request_too_large",
  });
}
