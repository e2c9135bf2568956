import { format as formatted, getFormatFromId, isDateFormat } from "numfmt";
import { addDrawings } from "./drawings.ts";
import { Allowance, UnreadableFile } from "./limits.ts";
import { type PackedFile, readPart, Text } from "./packed-file.ts";
import { linksOf, type Relation, relationsOf } from "./relations.ts";
import type { TextPage } from "./text-page.ts";
import type { XmlSink } from "./xml.ts";

/** The text of workbooks and presentations of Office Open XML (ECMA-376). */

/** A list of parts in their order: names, and the parts that their relationships name. */
async function partsOf(
  file: PackedFile,
  { folder, list, element }: { folder: string; list: string; element: string },
): Promise<{ name: string; part: string; isHidden: boolean }[]> {
  const targets = new Map<string, string>();
  for (const { id, target } of await relationsOf(file, `${folder}/${list}`)) targets.set(id, target);
  const parts: { name: string; part: string; isHidden: boolean }[] = [];
  const pages = new Allowance(file.limits.maxPages, "pages");
  await readPart(file, `${folder}/${list}`, {
    open(name, attributes) {
      if (name !== element) return;
      pages.take(1);
      const isHidden = /hidden/i.test(attributes("state") ?? "");
      parts.push({ name: attributes("name") ?? "", part: targets.get(attributes("r:id") ?? "") ?? "", isHidden });
    },
    close() {},
    text() {},
  });
  return parts;
}

/** Each sheet is a page: its name, then a line for each row, with tabs between the cells. */
export async function* workbookText(file: PackedFile): AsyncGenerator<TextPage> {
  const strings = await sharedStrings(file);
  const formatOf = await cellFormats(file);
  const sheets = await partsOf(file, { folder: "xl", list: "workbook.xml", element: "sheet" });
  const { maxRows } = file.limits;
  for (const [index, { name, part, isHidden }] of sheets.entries()) {
    const text = new Text(file.text);
    text.add(`# ${name}${isHidden ? " (hidden)" : ""}\n`);
    const relations = await relationsOf(file, part);
    const links = new Map(relations.filter(({ isExternal }) => isExternal).map(({ id, target }) => [id, target]));
    const sheet = sheetSink(text, { strings, formatOf, maxRows, links });
    await readPart(file, part, sheet);
    const more = sheet.rows() - maxRows;
    if (more > 0) text.add(`[${more} more rows of this sheet are left out.]\n`);
    for (const { cell, target } of sheet.links()) text.add(`[link of ${cell}: ${target}]\n`);
    await addComments(file, relations, text);
    await addDrawings(file, relations, text);
    yield { page: index + 1, text: text.finish() };
  }
}

async function sharedStrings(file: PackedFile): Promise<string[]> {
  const strings: string[] = [];
  const held = new Allowance(file.limits.maxTextBytes, "bytes of text");
  let isText = false;
  let isPhonetic = false;
  let current = "";
  await readPart(file, "xl/sharedStrings.xml", {
    open(name) {
      if (name === "si") current = "";
      // How words are pronounced is no text of the cell.
      else if (name === "rPh") isPhonetic = true;
      else if (name === "t") isText = !isPhonetic;
    },
    close(name) {
      if (name === "t") isText = false;
      else if (name === "rPh") isPhonetic = false;
      else if (name === "si") {
        held.take(1);
        strings.push(current);
      }
    },
    text(piece) {
      if (!isText) return;
      held.take(piece.length);
      current += piece;
    },
  });
  return strings;
}

/** The number formats of the cells' styles (ECMA-376 part 1, 18.8.30). */
async function cellFormats(file: PackedFile): Promise<(style: number) => string> {
  const custom = new Map<number, string>();
  const styles: string[] = [];
  let inCells = false;
  await readPart(file, "xl/styles.xml", {
    open(name, attributes) {
      if (custom.size + styles.length > MAX_STYLES) return;
      const id = Number(attributes("numFmtId"));
      if (name === "numFmt") custom.set(id, (attributes("formatCode") ?? "").slice(0, MAX_FORMAT));
      else if (name === "cellXfs") inCells = true;
      else if (name === "xf" && inCells) styles.push(custom.get(id) ?? getFormatFromId(id) ?? GENERAL);
    },
    close(name) {
      if (name === "cellXfs") inCells = false;
    },
    text() {},
  });
  return (style) => styles[style] ?? GENERAL;
}

/** Excel's limits are 65,490 styles, and 255 characters of a format. */
const MAX_STYLES = 131_072;
const MAX_FORMAT = 256;

const GENERAL = "General";

/** A number as its cell shows it; dates and times always in the order of ISO 8601. */
function shownNumber(value: string, format: string): string {
  if (format === GENERAL || value.trim() === "" || Number.isNaN(Number(value))) return value;
  try {
    const isElapsed = /\[[hms]+\]/i.test(format);
    return isDateFormat(format) && !isElapsed ? dateOf(value) : formatted(format, Number(value)).trim();
  } catch {
    return value;
  }
}

/** Day 0 of a sheet's dates, in milliseconds; a day that never was, 29 February 1900, is among them. */
const DAY_ZERO = Date.UTC(1899, 11, 30);
const DAY_MS = 86_400_000;

function dateOf(value: string): string {
  const date = new Date(Math.round(DAY_ZERO + Number(value) * DAY_MS));
  if (value.trim() === "" || Number.isNaN(date.getTime())) return value;
  const [day = "", time = ""] = date.toISOString().split("T");
  if (Number(value) < 1) return time.slice(0, 8);
  return Number.isInteger(Number(value)) ? day : `${day} ${time.slice(0, 8)}`;
}

interface SheetContext {
  strings: readonly string[];
  formatOf: (style: number) => string;
  maxRows: number;
  /** The targets of links by their ids. */
  links: ReadonlyMap<string, string>;
}

/** The cells of a sheet, of at most `maxRows` rows. `rows` gives the number of rows, `links` the cells that are links. */
function sheetSink(
  text: Text,
  { strings, formatOf, maxRows, links }: SheetContext,
): XmlSink & { rows(): number; links(): readonly { cell: string; target: string }[] } {
  const linked: { cell: string; target: string }[] = [];
  let rows = 0;
  let isFormula = false;
  let formula = "";
  let isValue = false;
  let type: string | undefined;
  let style = 0;
  let value = "";
  let column = 0;
  let shown = 0;
  return {
    open(name, attributes) {
      if (name === "row") {
        rows += 1;
        shown = column = 0;
      } else if (name === "c") {
        formula = "";
        type = attributes("t");
        style = Number(attributes("s") ?? 0);
        column = columnOf(attributes("r")) ?? column + 1;
        value = "";
      } else if (name === "v" || name === "t") isValue = true;
      else if (name === "f") isFormula = true;
      else if (name === "hyperlink") {
        const target = links.get(attributes("r:id") ?? "");
        if (target !== undefined && linked.length < MAX_LINKS) linked.push({ cell: attributes("ref") ?? "", target });
      }
    },
    close(name) {
      if (name === "v" || name === "t") isValue = false;
      else if (name === "f") isFormula = false;
      else if (rows > maxRows) return;
      else if (name === "row") text.add("\n");
      else if (name === "c") {
        // A formula that no program has calculated has no value.
        const cell = value === "" && formula !== "" ? `=${formula}` : shownValue(value, type, formatOf(style), strings);
        if (cell === "") return;
        text.add("\t".repeat(Math.max(0, column - Math.max(shown, 1))) + oneLine(cell));
        shown = Math.max(column, 1);
      }
    },
    rows: () => rows,
    links: () => linked,
    text(piece) {
      if (isFormula && formula.length < MAX_FORMULA) formula += piece;
      if (!isValue) return;
      if (value.length + piece.length > MAX_CELL)
        throw new UnreadableFile("too_large", "A cell of the file is too long.");
      value += piece;
    },
  };
}

/** Links of a sheet that are shown. */
const MAX_LINKS = 10_000;

/** Adds the comments of a sheet, each with its cell and its author. */
async function addComments(file: PackedFile, relations: readonly Relation[], text: Text): Promise<void> {
  const part = relations.find(({ type }) => type.endsWith("/comments"))?.target;
  if (part === undefined) return;
  const authors: string[] = [];
  let author: string | undefined;
  let isText = false;
  let isInside = false;
  await readPart(file, part, {
    open(name, attributes) {
      if (name === "author") author = "";
      else if (name === "t") isText = true;
      else if (name === "comment") {
        isInside = true;
        const by = authors[Number(attributes("authorId"))];
        text.add(`[comment on ${attributes("ref") ?? "a cell"}${by ? ` by ${by}` : ""}: `);
      }
    },
    close(name) {
      if (name === "t") isText = false;
      else if (name === "author") {
        if (authors.length < MAX_LINKS) authors.push(author ?? "");
        author = undefined;
      } else if (name === "comment") {
        isInside = false;
        text.add("]\n");
      }
    },
    text(piece) {
      if (author !== undefined) author += piece.slice(0, MAX_FORMAT);
      else if (isText && isInside) text.add(oneLine(piece));
    },
  });
}

/** Excel's limit is 32,767 characters. */
const MAX_CELL = 1_048_576;

/** Excel's limit of characters in a formula. */
const MAX_FORMULA = 8_192;

/** Excel's limit of columns. */
const MAX_COLUMN = 16_384;

function columnOf(cell: string | undefined): number | undefined {
  const letters = /^([A-Z]{1,3})\d/.exec(cell ?? "")?.[1];
  if (letters === undefined) return undefined;
  let column = 0;
  for (const letter of letters) column = column * 26 + letter.charCodeAt(0) - 64;
  return Math.min(column, MAX_COLUMN);
}

function shownValue(value: string, type: string | undefined, format: string, strings: readonly string[]): string {
  if (type === "s") return strings[Number(value)] ?? "";
  if (type === "b") return value === "1" ? "TRUE" : "FALSE";
  return type === undefined || type === "n" ? shownNumber(value, format) : value;
}

function oneLine(text: string): string {
  return text.replace(/[\t\r\n]+/g, " ");
}

/** Each slide is a page, with its notes at the end. */
export async function* presentationText(file: PackedFile): AsyncGenerator<TextPage> {
  const slides = await partsOf(file, { folder: "ppt", list: "presentation.xml", element: "sldId" });
  for (const [index, { part }] of slides.entries()) {
    const text = new Text(file.text);
    const relations = await relationsOf(file, part);
    await readPart(file, part, slideSink(text, { links: await linksOf(file, part) }));
    await addDrawings(file, relations, text);
    const notes = relations.find(({ type }) => type.endsWith("/notesSlide"));
    if (notes) {
      const spoken = new Text(file.text);
      await readPart(file, notes.target, slideSink(spoken, { isNotes: true }));
      const words = spoken.finish();
      if (words !== "") text.add(`\nNotes: ${words}`);
    }
    yield { page: index + 1, text: text.finish() };
  }
}

/** `isNotes`: only the text that its author has written, without the slide's number and date. */
function slideSink(
  text: Text,
  { isNotes = false, links = new Map() }: { isNotes?: boolean; links?: ReadonlyMap<string, string> },
): XmlSink {
  let link: string | undefined;
  let isShown = !isNotes;
  let isText = false;
  let cells = 0;
  let fallbacks = 0;
  return {
    open(name, attributes) {
      if (name === "t") isText = true;
      else if (name === "br") text.add("\n");
      else if (name === "hlinkClick") link = links.get(attributes("r:id") ?? "");
      else if (name === "tc") cells++;
      else if (name === "Fallback") fallbacks++;
      else if (isNotes && name === "sp") isShown = false;
      else if (isNotes && name === "ph") isShown = attributes("type") === "body";
    },
    close(name) {
      if (name === "t") isText = false;
      else if (name === "r") {
        if (link !== undefined && isShown && fallbacks === 0) text.add(` <${link}>`);
        link = undefined;
      } else if (name === "p") text.add(cells > 0 ? " " : "\n");
      else if (name === "tc") {
        cells--;
        text.add("| ");
      } else if (name === "tr") text.add("\n");
      else if (name === "sp") text.add("\n");
      else if (name === "Fallback") fallbacks--;
    },
    text(piece) {
      if (isText && isShown && fallbacks === 0) text.add(piece);
    },
  };
}
