/** Anything that JSON can hold. */
export type Json = null | boolean | number | string | Json[] | JsonObject;

/** A JSON object. A missing key reads as `undefined`. */
export interface JsonObject {
  [key: string]: Json | undefined;
}

/** True if `value` is a JSON object (not null and not an array). */
export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** `JSON.parse`, typed. Throws SyntaxError. */
export function parseJson(text: string): Json {
  return JSON.parse(text) as Json;
}
