/** Texts without lone halves of surrogate pairs: no UTF-8 has these, so a model server refuses them, and readers break at them. */

/** An escaped half of a pair, or the same text after an escaped backslash. */
const HALF = /\\u[dD][89a-fA-F][\da-fA-F]{2}/g;

/** The second half of a pair. */
const SECOND = /\\u[dD][c-fC-F][\da-fA-F]{2}/y;

/** A whole pair, a half, or the beginning of another escape. */
const ESCAPES = /(\\u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2})|(\\u[dD][89a-fA-F][\da-fA-F]{2})|\\[\s\S]/g;

const BACKSLASH = 0x5c;

/**
 * The value of a JSON text that has come as UTF-8, with U+FFFD for each lone half of a surrogate pair, as for other
 * bytes that are no characters. Throws as `JSON.parse` does.
 */
export function parseJson(text: string): unknown {
  if (!hasLoneHalf(text)) return JSON.parse(text);
  return JSON.parse(text.replace(ESCAPES, (found, _pair, half?: string) => (half ? "\\ufffd" : found)));
}

/** Tells whether a JSON text has an escaped half of a pair without the other one. Most texts have no such escapes. */
function hasLoneHalf(text: string): boolean {
  if (!(text.includes("\\ud") || text.includes("\\uD"))) return false;
  HALF.lastIndex = 0;
  for (let found = HALF.exec(text); found; found = HALF.exec(text)) {
    const { index } = found;
    let before = index;
    while (text.charCodeAt(before - 1) === BACKSLASH) before -= 1;
    // The backslash is itself escaped.
    if ((index - before) % 2 === 1) continue;
    SECOND.lastIndex = HALF.lastIndex;
    const isFirst = /[89abAB]/.test(text.charAt(index + 3));
    if (!isFirst || !SECOND.test(text)) return true;
    HALF.lastIndex = SECOND.lastIndex;
  }
  return false;
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
