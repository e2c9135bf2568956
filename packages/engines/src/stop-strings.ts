import type { Prompt } from "@responses-edge/turn/contract/engine";

/**
 * The strings that end the answer to a prompt (`stop`), if there are any. They do not apply to other text, such as
 * summaries.
 */
export function stopStringsOf({ request, asksForText }: Prompt): StopStrings | undefined {
  const { stop, include_stop_str_in_output: included } = request;
  if (stop == null || asksForText) return undefined;
  const strings = typeof stop === "string" ? [stop] : stop;
  return strings.length > 0 ? new StopStrings(strings, included === true) : undefined;
}

/**
 * Finds the first of some strings in a text that comes in parts. Work per character does not depend on their length
 * (Knuth, Morris and Pratt), and the result does not depend on how the text is cut.
 */
export class StopStrings {
  readonly #strings: readonly { text: string; fallback: Int32Array }[];
  readonly #included: boolean;
  /** The length of each string's prefix at the end of the text. */
  readonly #matched: number[];

  /** `included`: a found string belongs to the text before it (vLLM's `include_stop_str_in_output`). */
  constructor(strings: readonly string[], included: boolean) {
    this.#strings = strings.map((text) => ({ text, fallback: fallbacks(text) }));
    this.#included = included;
    this.#matched = strings.map(() => 0);
  }

  /** The number of characters at the end of the text that may begin a string. */
  get buffered(): number {
    return Math.max(...this.#matched);
  }

  /**
   * The position in `part` where the reader's text ends, once one of the strings is complete: before the string,
   * possibly before the part (less than 0), or after it. The longest counts among several that end with the same
   * character.
   */
  push(part: string): number | undefined {
    for (let at = 0; at < part.length; at++) {
      const unit = part.charCodeAt(at);
      let longest = 0;
      for (const [index, { text, fallback }] of this.#strings.entries()) {
        let length = this.#matched[index] ?? 0;
        while (length > 0 && text.charCodeAt(length) !== unit) length = fallback[length - 1] ?? 0;
        if (text.charCodeAt(length) === unit) length += 1;
        this.#matched[index] = length;
        if (length === text.length) longest = Math.max(longest, length);
      }
      if (longest > 0) return this.#included ? at + 1 : at + 1 - longest;
    }
    return undefined;
  }

  /** Forgets the text, because another one begins. */
  reset(): void {
    this.#matched.fill(0);
  }
}

/** For each prefix of a string, the length of its longest proper suffix that is also a prefix. */
function fallbacks(text: string): Int32Array {
  const lengths = new Int32Array(text.length);
  let length = 0;
  for (let at = 1; at < text.length; at++) {
    while (length > 0 && text.charCodeAt(at) !== text.charCodeAt(length)) length = lengths[length - 1] ?? 0;
    if (text.charCodeAt(at) === text.charCodeAt(length)) length += 1;
    lengths[at] = length;
  }
  return lengths;
}
