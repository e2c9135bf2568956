import {
  isJsonObject,
  type JsonObject,
  MAX_VALUES,
  nestedTooDeeply,
  parseJson,
  structureFault,
} from "@responses-edge/bounded-io/json-text";
import { LongWork } from "@responses-edge/bounded-io/long-work";
import { ApiError, invalidRequest } from "./errors.ts";

export { isJson, isJsonObject, type JsonObject, parseJson } from "@responses-edge/bounded-io/json-text";

/**
 * The arguments of a call that a model has written; a blank text is no arguments. Undefined for a text that is no JSON
 * object.
 */
export function parseArguments(json: string): JsonObject | undefined {
  if (json.trim() === "") return {};
  try {
    const value: unknown = JSON.parse(json);
    return isJsonObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/**
 * A body as JSON text that is equal for equal requests: without the order of keys, and without null fields, which the
 * API treats as absent. This concerns only the body's own fields: within a schema null has a meaning.
 */
export function canonicalJson(body: unknown): string {
  const known = isJsonObject(body)
    ? Object.fromEntries(Object.entries(body).filter(([, value]) => value !== null))
    : body;
  return JSON.stringify(withSortedKeys(known));
}

/** No deeper than the limit of bodies (`readJson`). */
function withSortedKeys(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(withSortedKeys);
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(entries.map(([key, inner]) => [key, withSortedKeys(inner)]));
}

/** The maximum length of a text as JSON: escaped characters count as their escapes. */
export function jsonLength(text: string): number {
  let length = text.length;
  for (let index = 0; index < text.length; index += 1) {
    const code = text.charCodeAt(index);
    if (code === 0x22 || code === 0x5c) length += 1;
    // Control characters, and lone halves of surrogate pairs.
    else if (code < 0x20 || (code >= 0xd800 && code <= 0xdfff)) length += 5;
  }
  return length;
}

/** Bytes of a body per microsecond: for the scan, and for the parse. */
const BYTES_PER_UNIT = 100;

/** Reading a body of this length takes less than a slice of long work. Bytes. */
const MAX_SHORT_BODY = 256 * 1024;

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: false });

/**
 * The value of a request's body within `MAX_REQUEST_BYTES`, for any transport. A long one is read in slices of its
 * tenant's work. Throws ApiError: 413 for more than `MAX_VALUES` values, 400 for anything that is not UTF-8 JSON or is
 * nested too deeply.
 */
export async function parseBody(body: Uint8Array, tenant: string): Promise<unknown> {
  const work = body.byteLength > MAX_SHORT_BODY ? new LongWork(tenant) : undefined;
  // Decoding and `JSON.parse` cannot pause in the middle, so their time is spent in advance.
  const units = body.byteLength / BYTES_PER_UNIT;
  if (work) await work.spend(units);
  const fault = structureFault(body);
  if (fault === "depth") {
    throw invalidRequest(null, nestedTooDeeply("The body"), "invalid_json");
  }
  if (fault === "values") {
    const message = `The request body has too many values. The limit is ${MAX_VALUES} array elements and object members.`;
    throw new ApiError({ status: 413, message, code: "request_too_large" });
  }
  if (work) await work.spend(units);
  let value: unknown;
  try {
    value = parseJson(decoder.decode(body));
  } catch {
    // The parser's own message quotes the body; prompts do not belong in errors.
    const message = "We could not parse the JSON body of your request. The body must be valid JSON in UTF-8.";
    throw invalidRequest(null, message, "invalid_json");
  }
  if (work) await work.spend(units);
  return value;
}

/** The 413 of a body of more than `maxBytes`. */
export function bodyTooLarge(maxBytes: number): ApiError {
  return new ApiError({
    status: 413,
    message: `The request body is too large. The limit is ${maxBytes} bytes.`,
    code: "request_too_large",
  });
}
