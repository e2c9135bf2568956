/** Texts without lone halves of surrogate pairs: no UTF-8 has these, so a model server refuses them, and readers break at them. */

/** An escaped half of a pair without its other half, or such a text after an escaped backslash. */
const LONE =
  /\\u[dD][89abAB][\da-fA-F]{2}(?!\\u[dD][c-fC-F][\da-fA-F]{2})|(?<!\\u[dD][89abAB][\da-fA-F]{2})\\u[dD][c-fC-F][\da-fA-F]{2}/;

/** A whole pair, a half, or the beginning of another escape. */
const ESCAPES = /(\\u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2})|(\\u[dD][89a-fA-F][\da-fA-F]{2})|\\[\s\S]/g;

/**
 * The value of a JSON text that has come as UTF-8, with U+FFFD for each lone half of a surrogate pair, as for other
 * bytes that are no characters. Throws as `JSON.parse` does.
 */
export function parseJson(text: string): unknown {
  if (!(text.includes("\\ud") || text.includes("\\uD")) || !LONE.test(text)) return JSON.parse(text);
  return JSON.parse(text.replace(ESCAPES, (found, _pair, half?: string) => (half ? "\\ufffd" : found)));
}

/** A text that comes in pieces, which may be cut within a surrogate pair. Half a pair at its end is no text. */
export class PairedText {
  #half = "";

  /** The piece up to its last whole character, with the half that was held back before. A lone half is U+FFFD. */
  push(piece: string): string {
    if (this.#half === "" && piece.isWellFormed()) return piece;
    const text = this.#half + piece;
    const last = text.charCodeAt(text.length - 1);
    const isCut = last >= 0xd800 && last < 0xdc00;
    this.#half = isCut ? text.slice(-1) : "";
    return (isCut ? text.slice(0, -1) : text).toWellFormed();
  }
}
