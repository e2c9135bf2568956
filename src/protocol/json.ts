import { isJsonObject, type JsonObject } from "@responses-edge/json-text";

export { isJson, isJsonObject, type JsonObject } from "@responses-edge/json-text";

/** The arguments of a call as a model has written them; a blank text is none. Undefined for what is no JSON object. */
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
 * A body as JSON text that is the same for the same request: without regard to the order of keys, and to fields that
 * are null, which the API takes for absent. Only the body's own fields: within a schema null means something.
 */
export function canonicalJson(body: unknown): string {
  const known = isJsonObject(body)
    ? Object.fromEntries(Object.entries(body).filter(([, value]) => value !== null))
    : body;
  return JSON.stringify(withSortedKeys(known));
}

/** No deeper than bodies may be (`readJson`). */
function withSortedKeys(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(withSortedKeys);
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(entries.map(([key, inner]) => [key, withSortedKeys(inner)]));
}

/** How long a text is as JSON, at most: what must be escaped counts as what it becomes. */
export function jsonLength(text: string): number {
  let length = text.length;
  for (let index = 0; index < text.length; index += 1) {
    const code = text.charCodeAt(index);
    if (code === 0x22 || code === 0x5c) length += 1;
    // Control characters, and halves of surrogate pairs, which may stand alone.
    else if (code < 0x20 || (code >= 0xd800 && code <= 0xdfff)) length += 5;
  }
  return length;
}
