/** Anything that JSON can hold. */
export type Json = null | boolean | number | string | Json[] | JsonObject;

/** A JSON object; a key that is not there reads as `undefined`. */
export interface JsonObject {
  [key: string]: Json | undefined;
}

/** Whether `value` is a JSON object (and not null or an array). */
export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** `JSON.parse`, typed. Throws SyntaxError. */
export function parseJson(text: string): Json {
  return JSON.parse(text) as Json;
}
