/** Incomplete JSON. */

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
const ARRAY = 0x5b;
const ARRAY_END = 0x5d;
const OBJECT = 0x7b;
const OBJECT_END = 0x7d;

/**
 * The beginning of a JSON text as a value: every complete value in it, and the last text as far as it goes. The text
 * must be an array or an object. One pass over it.
 */
export function parseJsonPrefix(text: string): unknown {
  /** The characters that close the open brackets. */
  let closing = "";
  /** The end of the complete part: a bracket, or a text that is no key. */
  let whole = { end: 0, closing: "" };
  let isKey = false;
  for (let index = 0; index < text.length; index += 1) {
    const code = text.charCodeAt(index);
    if (code === QUOTE) {
      const end = endOfText(text, index + 1);
      if (end === undefined) return JSON.parse(isKey ? upTo(text, whole) : cutText(text, index) + closing);
      index = end;
      if (!isKey) whole = { end: index + 1, closing };
    } else if (code === ARRAY || code === OBJECT) {
      closing = (code === ARRAY ? "]" : "}") + closing;
      isKey = code === OBJECT;
      whole = { end: index + 1, closing };
    } else if (code === ARRAY_END || code === OBJECT_END) {
      closing = closing.slice(1);
      if (closing === "") return JSON.parse(text.slice(0, index + 1));
      whole = { end: index + 1, closing };
    } else if (code === COMMA) {
      isKey = closing.startsWith("}");
      // Characters before a comma may be a number, whose end is visible only there.
      whole = { end: index, closing };
    } else if (code === COLON) isKey = false;
  }
  return JSON.parse(upTo(text, whole));
}

function upTo(text: string, { end, closing }: { end: number; closing: string }): string {
  return text.slice(0, end) + closing;
}

/** The position of the quote that ends the text at `start`; undefined if it is missing. */
function endOfText(text: string, start: number): number | undefined {
  for (let index = start; index < text.length; index += 1) {
    const code = text.charCodeAt(index);
    if (code === BACKSLASH) index += 1;
    else if (code === QUOTE) return index;
  }
  return undefined;
}

/** Everything up to the end, with the open text since `quote` closed; without a cut escape. */
function cutText(text: string, quote: number): string {
  const inside = text.slice(quote + 1);
  return `${text.slice(0, quote + 1)}${inside.replace(/(?<!\\)((?:\\\\)*)\\(u[0-9a-fA-F]{0,3})?$/, "$1")}"`;
}
