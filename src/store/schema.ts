/**
 * The tables of a home (docs/storage.md), and the split of bodies over rows.
 *
 * A turn is one row, found by its key without a secondary index: `WITHOUT ROWID` makes it one row written. A turn
 * larger than a row may be continues in rows with the next `part`, each carrying the next piece of every column.
 */

export const SCHEMA = `
CREATE TABLE IF NOT EXISTS turns (
  turn TEXT NOT NULL,
  part INTEGER NOT NULL,
  parent TEXT,
  created_at INTEGER NOT NULL,
  input TEXT NOT NULL,
  output TEXT NOT NULL,
  response TEXT NOT NULL,
  PRIMARY KEY (turn, part)
) WITHOUT ROWID`;

/**
 * UTF-16 units of each of a row's three texts. One unit is at most three bytes of UTF-8, so a row stays below
 * 3 × 3 × 200,000 = 1.8 MB, under Cloudflare's 2 MB (which the local runtime does not enforce).
 */
const PIECE_LENGTH = 200_000;

/** `text` in pieces that fit into a row, never cut within a surrogate pair. The empty text is one empty piece. */
export function toPieces(text: string): string[] {
  if (text.length <= PIECE_LENGTH) return [text];
  const pieces: string[] = [];
  let start = 0;
  while (start < text.length) {
    let end = Math.min(start + PIECE_LENGTH, text.length);
    const last = text.charCodeAt(end - 1);
    if (end < text.length && last >= 0xd800 && last <= 0xdbff) end -= 1;
    pieces.push(text.slice(start, end));
    start = end;
  }
  return pieces;
}
