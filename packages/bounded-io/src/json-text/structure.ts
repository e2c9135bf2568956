/** The structure of JSON: of text before it is parsed, and of values. */

/** No user needs deeper nesting, and it breaks later recursive readers (Python's own limit is near 1000). */
export const MAX_DEPTH = 256;

/**
 * The maximum of array elements and object members of a text. Each becomes a value in memory, however short it is in
 * the text: 12 MB of `{},{},` would be 200 MB. A prompt of many parts needs about one for every 20 bytes.
 */
export const MAX_VALUES = 500_000;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;

/**
 * The fault for which JSON is not parsed: brackets that nest too deeply, or more than `maxValues` values. One pass over
 * its bytes.
 */
export function structureFault(json: Uint8Array, maxValues = MAX_VALUES): "depth" | "values" | undefined {
  let depth = 0;
  let values = 0;
  for (let index = 0; index < json.length; index += 1) {
    const byte = json[index];
    if (byte === QUOTE) index = stringEnd(json, index + 1);
    else if (byte === COMMA) values += 1;
    else if (byte === 0x7b || byte === 0x5b) {
      depth += 1;
      // Its first element; an empty one counts, too.
      values += 1;
      if (depth > MAX_DEPTH) return "depth";
    } else if (byte === 0x7d || byte === 0x5d) depth -= 1;
    if (values > maxValues) return "values";
  }
  return undefined;
}

/** Says that a text, such as `The body`, nests too deeply. */
export function nestedTooDeeply(text: string): string {
  return `${text} is nested deeper than ${MAX_DEPTH} levels.`;
}

/** A string of more bytes is searched by the runtime, which is faster for long ones, and slower for short ones. */
const SHORT_STRING = 32;

/**
 * Where the string ends whose first byte is at `from`. Most of a body is in strings, so their bytes have loops of their
 * own.
 */
function stringEnd(json: Uint8Array, from: number): number {
  const near = Math.min(json.length, from + SHORT_STRING);
  let index = from;
  for (; index < near; index += 1) {
    const byte = json[index];
    if (byte === QUOTE) return index;
    if (byte === BACKSLASH) index += 1;
  }
  while (index < json.length) {
    const quote = json.indexOf(QUOTE, index);
    if (quote === -1) break;
    let backslashes = 0;
    while (quote - backslashes > index && json[quote - backslashes - 1] === BACKSLASH) backslashes += 1;
    if (backslashes % 2 === 0) return quote;
    index = quote + 1;
  }
  return json.length;
}

export type JsonObject = Record<string, unknown>;

export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Tells whether a text is JSON, of whatever type. */
export function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
