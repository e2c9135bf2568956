/**
 * Extracts the input of a custom tool's call from the model's text while it is written. A model that only knows
 * functions writes `{"input": "…"}`, another one the bare text; both are understood from both.
 */

/** The beginning of the JSON form, up to the quote before the input. */
const OPENING = /^\s*\{\s*"input"\s*:\s*"/;
/** Matches a text that may become an opening. */
const MAY_OPEN = /^\s*(?:\{\s*(?:"(?:i(?:n(?:p(?:u(?:t(?:"\s*(?::\s*)?)?)?)?)?)?)?)?)?$/;

/** The longest opening, with its white space. A longer text is bare. */
const MAX_OPENING_LENGTH = 256;

/** The length after the input that shows whether the JSON object ends there. */
const MAX_ENDING_LENGTH = 256;

const ESCAPES: Readonly<Record<string, string>> = { b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" };

export class CustomInput {
  #form: "undecided" | "json" | "bare" = "undecided";
  /** Text that was read and not given yet: an opening, half an escape, or a high surrogate without its low one. */
  #held = "";
  #isClosed = false;
  #ending = "";

  /** Adds text of the model. Gives the new part of the input, which never ends in half a character. */
  push(text: string): string {
    if (this.#form === "undecided") {
      this.#held += text;
      const opening = OPENING.exec(this.#held);
      if (opening) {
        this.#form = "json";
        return this.#decode(this.#take().slice(opening[0].length));
      }
      if (this.#held.length <= MAX_OPENING_LENGTH && MAY_OPEN.test(this.#held)) return "";
      this.#form = "bare";
      return this.#withoutHalf(this.#take());
    }
    if (this.#isClosed) {
      this.#ending += text.slice(0, MAX_ENDING_LENGTH - this.#ending.length);
      return "";
    }
    const all = this.#take() + text;
    return this.#form === "bare" ? this.#withoutHalf(all) : this.#decode(all);
  }

  /** Ends the input. Gives the rest that was held back. */
  end(): string {
    const rest = this.#take();
    if (this.#form === "json") return rest === "" || rest.startsWith("\\") ? "" : "\uFFFD";
    // An incomplete opening is bare text.
    return rest.toWellFormed();
  }

  /** Tells whether the input is complete, as far as its form shows: a bare text may always continue. */
  get isWhole(): boolean {
    return this.#form === "json" && this.#isClosed && /^\s*\}\s*$/.test(this.#ending);
  }

  /** Tells whether the end of the input is missing. */
  get isCut(): boolean {
    return this.#form === "undecided" ? this.#held.includes('"') : this.#form === "json" && !this.isWhole;
  }

  #take(): string {
    const held = this.#held;
    this.#held = "";
    return held;
  }

  /** A text without a half character at its end, which is held back with a half escape that may belong to it. */
  #withoutHalf(text: string): string {
    const last = text.charCodeAt(text.length - 1);
    const isHalf = last >= 0xd800 && last < 0xdc00;
    if (isHalf) this.#held = text.slice(-1) + this.#held;
    return (isHalf ? text.slice(0, -1) : text).toWellFormed();
  }

  /** Decodes the inside of a JSON string. Invalid escapes and line ends are decoded as they are meant. */
  #decode(text: string): string {
    let decoded = "";
    let from = 0;
    while (from < text.length) {
      const at = nextSpecial(text, from);
      decoded += text.slice(from, at);
      if (at === text.length) break;
      if (text[at] === '"') {
        this.#isClosed = true;
        this.#ending = text.slice(at + 1, at + 1 + MAX_ENDING_LENGTH);
        return decoded.toWellFormed();
      }
      const [meant, length] = escapeAt(text, at);
      if (length === 0) {
        this.#held = text.slice(at);
        break;
      }
      decoded += meant;
      from = at + length;
    }
    return this.#withoutHalf(decoded);
  }
}

/** The input in a call's whole text; undefined if it is cut off. */
export function customInputOf(text: string): string | undefined {
  const input = new CustomInput();
  const read = input.push(text);
  return input.isCut && !isObjectWithInput(text) ? undefined : read + input.end();
}

/** Tells whether a text is JSON with more than the input. */
function isObjectWithInput(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && "input" in value;
  } catch {
    return false;
  }
}

/** The place of the next quote or backslash, or the end. */
function nextSpecial(text: string, from: number): number {
  for (let at = from; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code === 0x22 || code === 0x5c) return at;
  }
  return text.length;
}

/** The character of an escape, and the escape's length; zero for an incomplete one. */
function escapeAt(text: string, at: number): [meant: string, length: number] {
  const letter = text[at + 1];
  if (letter === undefined) return ["", 0];
  if (letter === "u") {
    const digits = text.slice(at + 2, at + 6);
    if (/^[0-9a-fA-F]{4}$/.test(digits)) return [String.fromCharCode(Number.parseInt(digits, 16)), 6];
    return digits.length < 4 && /^[0-9a-fA-F]*$/.test(digits) ? ["", 0] : ["\\u", 2];
  }
  if (letter === '"' || letter === "\\" || letter === "/") return [letter, 2];
  return [ESCAPES[letter] ?? `\\${letter}`, 2];
}
