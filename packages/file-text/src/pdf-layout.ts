/**
 * The text of a page from the places of its pieces: lines, the words of a line, and the cells of a table apart, as tabs. A PDF
 * need not contain the spaces and line ends that a reader sees. Lines stay in the file's own order, which is the reading
 * order of nearly all producers, also where a page has columns.
 */

/** A piece of text as pdf.js gives it. */
export interface PlacedText {
  str: string;
  /** The text's matrix: its writing direction and size, and where its baseline begins. Points. */
  transform: readonly number[];
  /** Along the baseline. Points. */
  width: number;
  /** The size of the font. Points. */
  height: number;
  dir: string;
}

/** Text of the page that belongs somewhere, such as the value of a form's field. */
export interface PlacedNote {
  text: string;
  /** Left, bottom, right and top. Points. */
  rect: readonly number[];
}

/** Distances within a line, in units of the font's size: of words, and of cells. */
const WORD_GAP = 0.15;
const CELL_GAP = 1.5;

/** Pieces whose baselines differ by less than this stand on one line: indices and exponents, too. In font sizes. */
const SAME_LINE = 0.45;

/** More than this between two baselines is a new paragraph. In font sizes. */
const PARAGRAPH_GAP = 2;

/** Directions that differ by less than this are the same. Radians. */
const SAME_DIRECTION = 0.05;

/** The height of a strip, in points, and the most strips, lines and cells among which a place is looked for. */
const STRIP = 12;
const MOST_BESIDE = 50;

interface Cell {
  text: string;
  from: number;
  to: number;
  /** White space came before it. */
  isApart: boolean;
}

interface Line {
  angle: number;
  /** Across the direction of writing; upwards. */
  baseline: number;
  size: number;
  cells: Cell[];
  isRightToLeft: boolean;
}

export class PageLayout {
  readonly #lines: Line[] = [];
  /** The lines by their height on the page, in strips. */
  readonly #strips = new Map<number, Line[]>();
  #isApart = false;

  add({ str, transform, width, height, dir }: PlacedText): void {
    const [a = 1, b = 0, c = 0, d = 1, x = 0, y = 0] = transform;
    if (str.trim() === "") {
      if (str !== "") this.#isApart = true;
      return;
    }
    const angle = Math.atan2(b, a);
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    const along = x * cos + y * sin;
    const baseline = y * cos - x * sin;
    const size = height || Math.hypot(c, d) || 1;
    const cell = { text: str, from: along, to: along + width, isApart: this.#isApart };
    this.#isApart = false;
    const isRightToLeft = dir === "rtl";
    const last = this.#lines.at(-1);
    if (last && isOnLine(last, angle, baseline, size)) {
      last.cells.push(cell);
      last.size = Math.max(last.size, size);
      last.isRightToLeft &&= isRightToLeft;
      return;
    }
    const line = { angle, baseline, size, cells: [cell], isRightToLeft };
    this.#lines.push(line);
    const strip = Math.floor(baseline / STRIP);
    const known = this.#strips.get(strip);
    if (known) known.push(line);
    else this.#strips.set(strip, [line]);
  }

  /** Adds text to a line in which there is room at its place. False if there is none. */
  addNote({ text, rect }: PlacedNote): boolean {
    const [left = 0, bottom = 0, right = 0, top = 0] = rect;
    const isBeside = ({ angle, baseline, size, cells }: Line) =>
      Math.abs(angle) < SAME_DIRECTION &&
      baseline > bottom - size / 2 &&
      baseline < top &&
      cells.length < MOST_BESIDE &&
      cells.every(({ from, to }) => to <= left + size / 2 || from >= right - size / 2);
    const least = Math.floor((bottom - STRIP) / STRIP);
    const most = Math.min(Math.floor(top / STRIP), least + MOST_BESIDE);
    for (let strip = most; strip >= least; strip -= 1) {
      const line = this.#strips.get(strip)?.slice(-MOST_BESIDE).findLast(isBeside);
      if (!line) continue;
      // A note without width follows the words before it.
      const from = left < right ? left : Math.max(...line.cells.map(({ to }) => (to <= left + line.size / 2 ? to : 0)));
      line.cells.push({ text, from, to: Math.max(from, right), isApart: true });
      return true;
    }
    return false;
  }

  /** The lines, each with its distance from the one before it. */
  lines(): { text: string; isParagraph: boolean }[] {
    let before: Line | undefined;
    return this.#lines.map((line) => {
      const isTurned = before !== undefined && Math.abs(before.angle - line.angle) >= SAME_DIRECTION;
      const distance = before === undefined ? 0 : Math.abs(before.baseline - line.baseline);
      const isParagraph =
        before !== undefined && (isTurned || distance > PARAGRAPH_GAP * Math.max(before.size, line.size));
      before = line;
      return { text: textOfLine(line), isParagraph };
    });
  }
}

function isOnLine(line: Line, angle: number, baseline: number, size: number): boolean {
  return (
    Math.abs(line.angle - angle) < SAME_DIRECTION &&
    Math.abs(line.baseline - baseline) < SAME_LINE * Math.max(line.size, size)
  );
}

function textOfLine({ cells, size, isRightToLeft }: Line): string {
  // A stable sort: pieces at one place stay in their order.
  const sorted = cells.toSorted((one, other) => (isRightToLeft ? other.to - one.to : one.from - other.from));
  // A line may have any number of cells: only the last piece is looked at.
  const pieces: string[] = [];
  let before: Cell | undefined;
  for (const cell of sorted) {
    const last = pieces.pop();
    if (!before || last === undefined) pieces.push(cell.text);
    else {
      const gap = (isRightToLeft ? before.from - cell.to : cell.from - before.to) / size;
      const isSpaced = last.trimEnd() !== last;
      if (gap > CELL_GAP) pieces.push(last.trimEnd(), "\t", cell.text.trimStart());
      else if (isSpaced) pieces.push(last, cell.text.trimStart());
      else if (gap > WORD_GAP || cell.isApart) pieces.push(last, " ", cell.text.trimStart());
      else pieces.push(last, cell.text);
    }
    before = cell;
  }
  return pieces.join("").trimEnd();
}

/** Joins lines. A soft hyphen at the end of a line joins the two parts of its word; elsewhere it is not shown. */
export function joinLines(lines: readonly { text: string; isParagraph: boolean }[]): string {
  const pieces = lines.map(({ text, isParagraph }, index) => {
    const before = lines[index - 1]?.text ?? "\u00ad";
    return before.endsWith("\u00ad") ? text : `${isParagraph ? "\n\n" : "\n"}${text}`;
  });
  return pieces.join("").replaceAll("\u00ad", "");
}
