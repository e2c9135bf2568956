import type { Segment } from "./segments.ts";
import { FIRST_SPECIAL_ID } from "./vocabulary.ts";

/** Shares the tokens of a read out among its texts: only the text of a message counts, and a read may have several. */

/**
 * The number of text tokens that belong to a piece, or are left at the end; to be asked for one piece after another.
 */
export type TextTokens = (piece: Segment | undefined) => number;

/** By ids: those up to the next special one. */
export function countedByIds(ids: readonly number[]): TextTokens {
  let at = 0;
  return (piece) => {
    const from = at;
    while (at < ids.length && (ids[at] ?? 0) < FIRST_SPECIAL_ID) at += 1;
    const counted = at - from;
    if (typeof piece === "number") at += 1;
    return counted;
  };
}

/** Without ids: by the lengths of the texts; a special token is one. */
export function sharedOut(pieces: readonly Segment[], tokens: number): TextTokens {
  let characters = 0;
  let left = tokens;
  for (const piece of pieces) {
    if (typeof piece === "number") left -= 1;
    else characters += piece.length;
  }
  const each = characters === 0 ? 0 : Math.max(0, left) / characters;
  return (piece) => {
    if (piece === undefined) return pieces.length === 0 ? tokens : 0;
    return typeof piece === "number" ? 0 : piece.length * each;
  };
}
