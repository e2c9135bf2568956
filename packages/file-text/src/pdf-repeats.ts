import type { LaidOutLine } from "./pdf-layout.ts";

/**
 * Leaves out the headers and footers that a file's earlier pages have had: lines within the margin of the page, apart from its body, with
 * the same text at the same place, but for the page's number. Pages are read one by one, so that their first page has them. A line of
 * which any other number differs is given, and so is the head of a table that a page repeats in its body.
 */

/** Headers and footers stand within this part of the page's height, from its edges. */
const MARGIN = 0.08;

/** More than this is between them and the body. In font sizes. */
const BODY_GAP = 1.8;

/** Places that differ by less than this are the same. Points; along the line in font sizes, because numbers have different widths. */
const SAME_HEIGHT = 2;
const SAME_START = 2;

/** Lines that are remembered, and their longest text. */
const MAX_LINES = 64;
const MAX_LENGTH = 512;

interface KnownLine {
  text: string;
  page: number;
  baseline: number;
  from: number;
}

/** A page's number, and its height from the lower edge to the upper one, in points. */
export interface PageBox {
  page: number;
  bottom: number;
  top: number;
}

export class RepeatedLines {
  #known: KnownLine[] = [];

  /** The lines of a page without those that earlier pages have had. */
  withoutRepeated(lines: readonly LaidOutLine[], box: PageBox): readonly LaidOutLine[] {
    const upright = lines.filter(({ angle }) => angle === 0).toSorted((one, other) => other.baseline - one.baseline);
    const margin = MARGIN * (box.top - box.bottom);
    const header = edge(upright, ({ baseline }) => baseline > box.top - margin);
    const footer = edge(upright.toReversed(), ({ baseline }) => baseline < box.bottom + margin);
    const leftOut = new Set<LaidOutLine>();
    for (const line of new Set([...header, ...footer])) {
      const { text, baseline, from, size } = line;
      if (text.length > MAX_LENGTH || isData(text)) continue;
      const isKnown = this.#known.some(
        (known) =>
          Math.abs(known.baseline - baseline) < SAME_HEIGHT &&
          Math.abs(known.from - from) < SAME_START * size &&
          isRepeated(known, { text, page: box.page }),
      );
      if (isKnown) leftOut.add(line);
      else this.#known.push({ text, baseline, from, page: box.page });
    }
    this.#known = this.#known.slice(-MAX_LINES);
    return leftOut.size === 0 ? lines : lines.filter((line) => !leftOut.has(line));
  }
}

/** The lines from an edge of the page inward that are in its margin; none where the body goes on right beside them. */
function edge(lines: readonly LaidOutLine[], isInMargin: (line: LaidOutLine) => boolean): readonly LaidOutLine[] {
  const count = lines.findIndex((line) => !isInMargin(line));
  const inMargin = count === -1 ? lines : lines.slice(0, count);
  const [last, body] = [inMargin.at(-1), lines[inMargin.length]];
  const isApart = !last || !body || Math.abs(last.baseline - body.baseline) > BODY_GAP * Math.max(last.size, body.size);
  return isApart && inMargin.length <= MAX_IN_MARGIN ? inMargin : [];
}

/** A page with more lines in its margin has its body there. */
const MAX_IN_MARGIN = 6;

/** Tells whether a line has more digits than letters, and is longer than a page's number. */
function isData(text: string): boolean {
  const digits = text.match(/\p{Nd}/gu)?.length ?? 0;
  return digits > MAX_COUNT && digits > (text.match(/\p{L}/gu)?.length ?? 0);
}

/** Digits of the number of a page and of all pages. */
const MAX_COUNT = 8;

/** Tells whether a line is that of an earlier page: with the same words and numbers, but for the one that counts pages. */
function isRepeated(known: { text: string; page: number }, line: { text: string; page: number }): boolean {
  if (known.text === line.text) return true;
  const [earlier, now] = [known.text.split(NUMBER), line.text.split(NUMBER)];
  if (earlier.length !== now.length) return false;
  const different = now.filter((piece, at) => piece !== earlier[at]);
  const at = now.findIndex((piece, index) => piece !== earlier[index]);
  const [one = "", other = ""] = [earlier[at], now[at]];
  const isCount = PAGE_NUMBER.test(one) && PAGE_NUMBER.test(other);
  return different.length === 1 && isCount && Number(other) - Number(one) === line.page - known.page;
}

/** Numbers with the signs within them: a page's number has none. */
const NUMBER = /(\p{Nd}+(?:[.,:'-]\p{Nd}+)*)/u;
const PAGE_NUMBER = /^\d{1,5}$/;
