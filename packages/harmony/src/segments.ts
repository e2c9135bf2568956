import { specialTokenName } from "./vocabulary.ts";

/**
 * A rendered prompt, before it is text or token ids: numbers are special tokens from the renderer; strings are text,
 * which never becomes structure. Only the renderer can make a number, so no text can make a role.
 */
export type Segment = string | number;

/** Anything that a tokenizer might take for a special token. Wider than the vocabulary, on purpose. */
const SPECIAL_LITERAL = /<\|[^\s<>|]{1,40}\|>/;

/** One character less than the longest literal: the maximum reach into either of two neighbours. */
const REACH = 43;

/** Tells whether some text would become structure if the prompt were sent as one text. */
export function hasSpecialLiteral(segments: readonly Segment[]): boolean {
  // The end of the text just before a segment, which may come from several segments.
  let before = "";
  for (const segment of segments) {
    if (typeof segment === "number") {
      before = "";
    } else {
      const isAcross = before !== "" && SPECIAL_LITERAL.test(before + segment.slice(0, REACH));
      if (isAcross || SPECIAL_LITERAL.test(segment)) return true;
      before = (before + segment.slice(-REACH)).slice(-REACH);
    }
  }
  return false;
}

/** The prompt as one text. Only for segments without special-token literals. */
export function toText(segments: readonly Segment[]): string {
  return segments.map((segment) => (typeof segment === "number" ? specialTokenName(segment) : segment)).join("");
}
