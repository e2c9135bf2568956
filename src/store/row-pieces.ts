/** The split of texts over rows: a row must stay below 2 MB. */

/**
 * UTF-16 units of each of a row's texts. One unit is at most three bytes of UTF-8, so a row of four texts stays below
 * 4 × 3 × 150,000 = 1.8 MB, under Cloudflare's 2 MB (which the local runtime does not enforce).
 */
const PIECE_LENGTH = 150_000;

/** `text` in pieces that fit into a row, never cut within a surrogate pair. The empty text is one empty piece. */
export function toPieces(text: string, pieceLength = PIECE_LENGTH): string[] {
  if (text.length <= pieceLength) return [text];
  const pieces: string[] = [];
  let start = 0;
  while (start < text.length) {
    let end = Math.min(start + pieceLength, text.length);
    const last = text.charCodeAt(end - 1);
    if (end < text.length && last >= 0xd800 && last <= 0xdbff) end -= 1;
    pieces.push(text.slice(start, end));
    start = end;
  }
  return pieces;
}

/** Whether a row's piece is so long that the next part may go on with it. */
export function mayContinue(piece: string): boolean {
  return piece.length >= PIECE_LENGTH - 1;
}
