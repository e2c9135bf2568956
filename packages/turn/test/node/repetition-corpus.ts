import { readdirSync, readFileSync, realpathSync, statSync } from "node:fs";
import { join } from "node:path";
import { type RepeatedKind, RepetitionWatch } from "@responses-edge/turn/repetition";

/** Texts that people and programs have written, in pieces as long as answers: none of them is a repetition. */

/** Files with text: prose, code, data, tables and logs. */
const TEXT =
  /\.(md|mdx|txt|rst|ts|mts|cts|js|mjs|cjs|py|c|h|cpp|json|jsonl|yaml|yml|toml|csv|tsv|html|css|svg|sql|sh|log|flf)$|LICENSE|README/i;

/** Characters of a piece, and of a file that is read. */
const PIECE_LENGTH = 24_000;
const MAX_FILE_LENGTH = 2_000_000;

/** Characters of a delta. */
const DELTA_LENGTH = 16;

/** A piece of text, and where it comes from. */
export interface Piece {
  source: string;
  text: string;
}

/** The pieces of the files in a folder and the folders below it, in the order of their names, without hidden ones. */
export function* piecesIn(folder: string, seen = new Set<string>()): Generator<Piece> {
  const real = realpathSync(folder);
  if (seen.has(real)) return;
  seen.add(real);
  for (const entry of readdirSync(folder, { withFileTypes: true }).sort((a, b) => (a.name < b.name ? -1 : 1))) {
    // Caches, which differ from one checkout to another.
    if (entry.name.startsWith(".")) continue;
    const source = join(folder, entry.name);
    if (entry.isDirectory()) yield* piecesIn(source, seen);
    if (!entry.isFile() || !TEXT.test(entry.name) || statSync(source).size > MAX_FILE_LENGTH) continue;
    const text = readFileSync(source, "utf8");
    for (let at = 0; at < text.length; at += PIECE_LENGTH) {
      yield { source: `${source}:${at}`, text: text.slice(at, at + PIECE_LENGTH) };
    }
  }
}

/** The number of characters after which a text is taken for a repetition; undefined if it never is. */
export function foundAfter(kind: RepeatedKind, text: string): number | undefined {
  const watch = new RepetitionWatch(true);
  for (let at = 0; at < text.length; at += DELTA_LENGTH) {
    if (watch.read(kind, text.slice(at, at + DELTA_LENGTH))) return at + DELTA_LENGTH;
  }
  return undefined;
}
