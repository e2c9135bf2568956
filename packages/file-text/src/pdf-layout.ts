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

/** A line of the page with its place: its direction (0 is upright), where it begins along it, its height on the page, and its size. Points. */
export interface LaidOutLine {
  text: string;
  /** More room is before it than between the lines of a paragraph. */
  isParagraph: boolean;
  angle: number;
  from: number;
  baseline: number;
  size: number;
}

interface Cell {
  text: string;
  from: number;
  to: number;
  baseline: number;
  size: number;
  isRightToLeft: boolean;
  /** The text before it in the file, if white space is between them. */
  apartFrom: Cell | undefined;
  /** It was put into the line: a word of its own. */
  isNote?: boolean;
  /** The cells that are first and last in it, where it is several. */
  ends?: readonly [Cell, Cell];
}

interface Line {
  angle: number;
  /** Across the direction of writing; upwards. */
  baseline: number;
  size: number;
  cells: Cell[];
}

export class PageLayout {
  readonly #lines: Line[] = [];
  /** The lines by their height on the page, in strips. */
  readonly #strips = new Map<number, Line[]>();
  /** Where each text was drawn last: bold letters may be drawn twice. */
  readonly #drawn = new Map<string, Place>();
  #last: Cell | undefined;
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
    const before = this.#drawn.get(str);
    this.#drawn.set(str, { angle, along, baseline });
    if (before && isSamePlace(before, { angle, along, baseline }, size)) return;
    const isRightToLeft = dir === "rtl";
    const apartFrom = this.#isApart ? this.#last : undefined;
    const cell = { text: str, from: along, to: along + width, baseline, size, isRightToLeft, apartFrom };
    this.#last = cell;
    this.#isApart = false;
    const last = this.#lines.at(-1);
    if (last && (isOnLine(last, angle, baseline, size) || isIndex(last, cell, angle))) {
      last.cells.push(cell);
      last.size = Math.max(last.size, size);
      return;
    }
    const line = { angle, baseline, size, cells: [cell] };
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
      const { baseline } = line;
      // A note without width follows the words before it.
      const from = left < right ? left : Math.max(...line.cells.map(({ to }) => (to <= left + line.size / 2 ? to : 0)));
      const { size } = line;
      line.cells.push({
        text,
        from,
        to: Math.max(from, right),
        baseline,
        size,
        isRightToLeft: false,
        apartFrom: undefined,
        isNote: true,
      });
      return true;
    }
    return false;
  }

  /** The lines, in the order of the file. */
  lines(): LaidOutLine[] {
    let before: Line | undefined;
    return this.#lines.map((line) => {
      const isTurned = before !== undefined && Math.abs(before.angle - line.angle) >= SAME_DIRECTION;
      const distance = before === undefined ? 0 : Math.abs(before.baseline - line.baseline);
      const isParagraph =
        before !== undefined && (isTurned || distance > PARAGRAPH_GAP * Math.max(before.size, line.size));
      before = line;
      const angle = Math.abs(line.angle) < SAME_DIRECTION ? 0 : line.angle;
      const from = line.cells.reduce((least, cell) => Math.min(least, cell.from), Number.POSITIVE_INFINITY);
      return { text: textOfLine(line), isParagraph, angle, from, baseline: line.baseline, size: line.size };
    });
  }
}

/**
 * Puts texts into a layout. Texts that stand for another one (ISO 32000-1, 14.9.4) are replaced by it, at their place, where their font does
 * not say which characters they are, and where it is a soft hyphen. Elsewhere the font is right, and the other text may be only a part of it.
 */
export class ActualText {
  readonly #layout: PageLayout;
  #text = "";
  /** Texts that stand for others may have such within them: the outer one counts. */
  #open = 0;
  #items: PlacedText[] = [];

  constructor(layout: PageLayout) {
    this.#layout = layout;
  }

  begin(text: string): void {
    this.#open += 1;
    if (this.#open === 1) this.#text = text;
  }

  add(item: PlacedText): void {
    if (this.#open > 0) this.#items.push(item);
    else this.#layout.add(item);
  }

  end(): void {
    this.#open -= 1;
    if (this.#open === 0) this.finish();
  }

  /** To be called at the end of the page. */
  finish(): void {
    const items = this.#items;
    this.#items = [];
    this.#open = 0;
    const isReplaced = this.#text === "\u00ad" || items.some(({ str }) => MEANINGLESS.test(str));
    if (!isReplaced) for (const item of items) this.#layout.add(item);
    else this.#addReplaced(items);
  }

  #addReplaced(items: readonly PlacedText[]): void {
    const first = items.findIndex(({ str }) => str.trim() !== "");
    const last = items.findLastIndex(({ str }) => str.trim() !== "");
    // White space stays around the text.
    for (const item of items.slice(0, first)) this.#layout.add(item);
    const place = items[first];
    if (!place) return;
    const width = items.slice(first, last + 1).reduce((most, item) => Math.max(most, endOf(item, place)), 0);
    const dir = this.#text.search(RIGHT_TO_LEFT) >= 0 ? "rtl" : "ltr";
    this.#layout.add({ ...place, width, str: this.#text, dir });
    for (const item of items.slice(last + 1)) this.#layout.add(item);
  }
}

/** Codes without a meaning: none, and the private ones of a font. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are looked for.
const MEANINGLESS = /[\u0000\ufffd\ue000-\uf8ff]/;

/** How far a text goes, from where another one begins. Points. */
function endOf({ transform, width }: PlacedText, from: PlacedText): number {
  const [a = 1, b = 0, , , x = 0, y = 0] = from.transform;
  const angle = Math.atan2(b, a);
  return ((transform[4] ?? 0) - x) * Math.cos(angle) + ((transform[5] ?? 0) - y) * Math.sin(angle) + width;
}

interface Place {
  angle: number;
  along: number;
  baseline: number;
}

/** A text that is drawn again within this distance is bold, or has a shadow. In font sizes. */
const SAME_PLACE = 0.15;

function isSamePlace(one: Place, other: Place, size: number): boolean {
  return (
    Math.abs(one.angle - other.angle) < SAME_DIRECTION &&
    Math.abs(one.along - other.along) < SAME_PLACE * size &&
    Math.abs(one.baseline - other.baseline) < SAME_PLACE * size
  );
}

function isOnLine(line: Line, angle: number, baseline: number, size: number): boolean {
  return (
    Math.abs(line.angle - angle) < SAME_DIRECTION &&
    Math.abs(line.baseline - baseline) < SAME_LINE * Math.max(line.size, size)
  );
}

/** Letters that are written from right to left, and others. */
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/g;
const LEFT_TO_RIGHT = /(?![\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc])[\p{L}\p{Nd}]/u;

const LETTER = /\p{L}/u;

/** Arabic and Hebrew letters in the forms that a font has for their place in a word. */
const PRESENTATION_FORMS = /[\ufb1d-\ufdff\ufe70-\ufefc]+/g;

/** Tells whether a text is an exponent or an index: smaller than the text that ends where it begins, and above or below its line. */
function isIndex(line: Line, { from, baseline, size }: Cell, angle: number): boolean {
  const before = line.cells.at(-1);
  return (
    before !== undefined &&
    Math.abs(line.angle - angle) < SAME_DIRECTION &&
    size < RAISED_SIZE * line.size &&
    Math.abs(from - before.to) < WORD_GAP * line.size &&
    Math.abs(line.baseline - baseline) < INDEX_WITHIN * line.size
  );
}

/** An exponent stands this high at most. In font sizes. */
const INDEX_WITHIN = 0.7;

function textOfLine({ cells, size }: Line): string {
  // A stable sort: pieces at one place stay in their order.
  const sorted = cells.toSorted((one, other) => one.from - other.from);
  if (!cells.some(({ isRightToLeft }) => isRightToLeft)) return joinCells(sorted, size, false).trimEnd();
  const count = (pattern: RegExp) => cells.reduce((sum, { text }) => sum + (text.match(pattern)?.length ?? 0), 0);
  const isRightToLeft = count(RIGHT_TO_LEFT) >= count(/[A-Za-z\u00c0-\u058f]/g);
  const text = joinCells(inReadingOrder(sorted, size, isRightToLeft), size, isRightToLeft);
  return text.replace(PRESENTATION_FORMS, (forms) => forms.normalize("NFKC")).trimEnd();
}

/** Cells from left to right in the order in which they are read; those of the other direction together, in their own order. */
function inReadingOrder(cells: readonly Cell[], size: number, isRightToLeft: boolean): Cell[] {
  const isOther = ({ text, isRightToLeft: is }: Cell) => (isRightToLeft ? !is && LEFT_TO_RIGHT.test(text) : is);
  const isNeutral = ({ text, isRightToLeft: is }: Cell) => !is && !LEFT_TO_RIGHT.test(text);
  const ordered: Cell[] = [];
  let run: Cell[] = [];
  /** Signs after the run, which belong to it only if it goes on. */
  let signs: Cell[] = [];
  let hasLetter = false;
  const end = () => {
    const [first] = run;
    if (first) {
      const own = isRightToLeft ? run : run.toReversed();
      const text = joinCells(own, size, !isRightToLeft);
      const to = run.reduce((most, cell) => Math.max(most, cell.to), first.to);
      ordered.push({ ...first, text, to, ends: [own[0] ?? first, own.at(-1) ?? first] });
    }
    for (const sign of signs) ordered.push(sign);
    run = [];
    signs = [];
    hasLetter = false;
  };
  for (const cell of cells) {
    const last = signs.at(-1) ?? run.at(-1);
    const isWord = last !== undefined && ((cell.from - last.to) / size > WORD_GAP || isApart(last, cell));
    // Numbers beside each other are in the order of the line, and those after letters in the letters' order.
    if (isWord && (cell.from - last.to > CELL_GAP * size || (isRightToLeft && !hasLetter))) end();
    if (isOther(cell)) {
      for (const sign of signs) run.push(sign);
      run.push(cell);
      signs = [];
      hasLetter ||= LETTER.test(cell.text);
    } else if (run.length > 0 && isNeutral(cell)) signs.push(cell);
    else {
      end();
      ordered.push(cell);
    }
  }
  end();
  return isRightToLeft ? ordered.reverse() : ordered;
}

/** The text of cells in the order in which they are read: with spaces between words, and tabs between the cells of a table. */
function joinCells(cells: readonly Cell[], size: number, isRightToLeft: boolean): string {
  // A line may have any number of cells: only the last piece is looked at.
  const pieces: string[] = [];
  let before: Cell | undefined;
  for (const cell of cells) {
    const last = pieces.pop();
    if (!before || last === undefined) pieces.push(cell.text);
    else {
      const gap = (isRightToLeft ? before.from - cell.to : cell.from - before.to) / size;
      const isSpaced = last.trimEnd() !== last;
      if (gap > CELL_GAP) pieces.push(last.trimEnd(), "\t", cell.text.trimStart());
      else if (isSpaced) pieces.push(last, cell.text.trimStart());
      else if (gap > WORD_GAP || isApart(before, cell)) pieces.push(last, " ", cell.text.trimStart());
      else if (isRaised(before, cell) && /\p{Nd}$/u.test(last) && /^\p{Nd}/u.test(cell.text))
        pieces.push(last, "^", cell.text);
      else pieces.push(last, cell.text);
    }
    before = cell;
  }
  return pieces.join("");
}

/** Tells whether white space is between two cells. */
function isApart(one: Cell, other: Cell): boolean {
  const [first, last] = [one.ends?.[1] ?? one, other.ends?.[0] ?? other];
  if (first.isNote || last.isNote || last.apartFrom === first || first.apartFrom === last) return true;
  // From left to right, white space before a text of the file is before it on the page.
  return last.apartFrom !== undefined && !first.isRightToLeft && !last.isRightToLeft;
}

/** Tells whether a cell is an exponent, or the number of a note, after another cell. */
function isRaised(before: Cell, { size, baseline }: Cell): boolean {
  return size < RAISED_SIZE * before.size && baseline > before.baseline + RAISED_BY * before.size;
}

/** A raised text is smaller than this, and stands higher by this. In sizes of the font before it. */
const RAISED_SIZE = 0.85;
const RAISED_BY = 0.15;

/** A hyphen that the layout has put where a line ends: a soft one, or the one that browsers draw for it. One that the writer has typed is another. */
const LINE_HYPHEN = /[\u00ad\u2010]$/;

/** Joins lines. A soft hyphen at the end of a line joins the two parts of its word; elsewhere it is not shown. */
export function joinLines(lines: readonly { text: string; isParagraph: boolean }[]): string {
  const pieces = lines.map(({ text, isParagraph }, index) => {
    const isCut = LINE_HYPHEN.test(text) && index + 1 < lines.length;
    const own = isCut ? text.slice(0, -1) : text;
    const before = lines[index - 1]?.text ?? "\u00ad";
    return LINE_HYPHEN.test(before) ? own : `${isParagraph ? "\n\n" : "\n"}${own}`;
  });
  return pieces.join("").replaceAll("\u00ad", "");
}
