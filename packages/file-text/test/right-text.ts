import { unzipSync } from "fflate";

/** The cases of `corpus.bin`, and how the text that a reader gives is compared with the right one. */

export interface Case {
  /** The file's place in the archive. */
  path: string;
  group: string;
  filename: string;
  mimeType: string | null;
  /** The text that a person who opens the file sees, in its order. */
  text: string;
  /** The beginnings of the sentences that tell what could not be read. */
  told: string[];
  /** The words may be wrong, where that is told. */
  unsure: boolean;
  /** The code of the error of a file that cannot be read. */
  error: string | null;
}

/** The cases of the archive that `dev/quality/corpus/make.py` writes, with the bytes of their files. */
export function casesOf(archive: Uint8Array): { about: Case; bytes: Uint8Array }[] {
  const { "cases.json": list, ...files } = unzipSync(archive);
  const cases = JSON.parse(new TextDecoder().decode(list)) as Case[];
  return cases.map((about) => ({ about, bytes: files[about.path] ?? new Uint8Array() }));
}

/** Marks that are no words: those of Markdown for headings and cells, dots of lists, and rows of dots. */
const MARKS = /^(?:#{1,6}|\||[-–•*]|\|?-{2,}\|?|\.+)$/;

/** The words of a text. Bars of tables and marks of Markdown are none. */
export function wordsOf(text: string): string[] {
  return text
    .normalize("NFC")
    .split(/[\s|]+/)
    .filter((word) => word !== "" && !MARKS.test(word));
}

/** The numbers of a text: runs of digits with the signs within them. */
export function numbersOf(text: string): string[] {
  return text.normalize("NFKC").match(/\p{Nd}+(?:[.,:/'-]\p{Nd}+)*/gu) ?? [];
}

/** How many of the `right` pieces are among the `given` ones, each as often as it is there. */
export function shared(right: readonly string[], given: readonly string[]): number {
  const left = new Map<string, number>();
  for (const piece of given) left.set(piece, (left.get(piece) ?? 0) + 1);
  let found = 0;
  for (const piece of right) {
    const rest = left.get(piece) ?? 0;
    if (rest === 0) continue;
    left.set(piece, rest - 1);
    found += 1;
  }
  return found;
}
