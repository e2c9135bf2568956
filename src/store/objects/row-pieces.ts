import { Buffer } from "node:buffer";
import { constants, zstdCompressSync, zstdDecompressSync } from "node:zlib";

/**
 * Stores texts in rows. A text is cut into pieces, because a row must stay below 2 MB, and a piece is a cell: plain
 * text, or a blob of the text's UTF-8 compressed by zstd. The type of a cell says which of the two it is.
 */

/** A value that is written into a column. */
export type Cell = string | Uint8Array;

/** A value that such a column gives. */
export type StoredCell = string | ArrayBuffer;

/**
 * UTF-16 units of each of a row's texts. One unit is at most three bytes of UTF-8, and a blob is shorter than its text, so a row
 * of four texts stays below 4 × 3 × 150,000 = 1.8 MB, under Cloudflare's 2 MB (which the local runtime does not enforce).
 */
const PIECE_LENGTH = 150_000;

/** Most bytes of a decompressed blob: a text that would fit into its row uncompressed. */
const MAX_PIECE_BYTES = 1_800_000;

/** A shorter piece is not compressed: that costs 15 µs or more, and saves less than a page of the database. UTF-16 units. */
const MIN_COMPRESSED_LENGTH = 4_096;

/** A blob must be this much smaller than its text. Otherwise the text is stored, which is cheaper to read. */
const WORTHWHILE_RATIO = 0.9;

/** Level 1 takes 4 µs per kB of English; level 3 takes 6 µs for a fortieth less. */
const COMPRESSION = { params: { [constants.ZSTD_c_compressionLevel]: 1 } };

/** `text` as cells that fit into rows. The empty text is one empty cell. */
export function toCells(text: string, pieceLength = PIECE_LENGTH): Cell[] {
  notePassed(text.length);
  const cells: Cell[] = text.length <= pieceLength ? [text] : toPieces(text, pieceLength);
  for (const [index, piece] of cells.entries()) {
    if (piece.length < MIN_COMPRESSED_LENGTH) continue;
    const bytes = Buffer.from(piece);
    const blob = compressed(bytes);
    if (blob && blob.length < WORTHWHILE_RATIO * bytes.length) cells[index] = blob;
  }
  return cells;
}

/** Undefined if the runtime fails: workerd 1.20261102 throws "Unexpected end of file" if much is left, 1.20261117 does not. */
function compressed(bytes: Uint8Array): Uint8Array | undefined {
  try {
    return zstdCompressSync(bytes, COMPRESSION);
  } catch {
    return undefined;
  }
}

/** The piece of a cell. Throws a SyntaxError if a blob is unreadable, or longer than a piece may be. */
export function fromCell(cell: StoredCell): string {
  const piece = typeof cell === "string" ? cell : decompressed(cell);
  notePassed(piece.length);
  return piece;
}

function decompressed(blob: ArrayBuffer): string {
  try {
    return zstdDecompressSync(blob, { maxOutputLength: MAX_PIECE_BYTES }).toString();
  } catch (error) {
    throw new SyntaxError("A blob is not what was written.", { cause: error });
  }
}

/** The text whose cells these are, in order; null is a row without a piece of it. */
export function fromCells(cells: Iterable<StoredCell | null>): string {
  let text = "";
  for (const cell of cells) if (cell !== null) text += fromCell(cell);
  return text;
}

/** `text` in pieces, never cut within a surrogate pair. The empty text is one empty piece. */
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

/** Tells whether a row's piece is so long that the next part may continue it. */
export function mayContinue(piece: string): boolean {
  return piece.length >= PIECE_LENGTH - 1;
}

/**
 * Frees the memory of long texts that are no longer needed. On a self-hosted machine V8 may take gigabytes, and keeps
 * garbage in its old generation until nearly all of that is full: forty requests of 10 MB, one after another, left 1.2
 * GB. So the collector is called after a certain amount. The launcher's flags (`cli/serve/workerd.ts`) allow it; elsewhere
 * there is no `gc`, and the platform limits isolates.
 */

/** A shorter text dies in the young generation. UTF-16 units. */
const MIN_LENGTH = 64 * 1024;

/** The garbage that may accumulate. A request of 10 MB leaves three times its length; a collection takes tens of milliseconds. */
const MAX_GARBAGE_LENGTH = 64 * 1024 * 1024;

let passed = 0;

/** Notes that a text of this many UTF-16 units was read or written. */
export function notePassed(length: number): void {
  if (length < MIN_LENGTH) return;
  passed += length;
  if (passed < MAX_GARBAGE_LENGTH) return;
  passed = 0;
  globalThis.gc?.();
}
