import type { LongWork } from "@responses-edge/bounded-io/long-work";
import { Allowance, type TextLimits, UnreadableFile } from "./limits.ts";
import type { TextPage } from "./text-page.ts";
import { readXml, type XmlSink } from "./xml.ts";
import { Zip } from "./zip.ts";

/** The text of Office Open XML (ECMA-376): documents, workbooks and presentations. */

/** Reads a zip archive with one of them. Throws an UnreadableFile for any other. */
export async function* officeText(bytes: Uint8Array, limits: TextLimits, work: LongWork): AsyncGenerator<TextPage> {
  const zip = new Zip(bytes, limits, work);
  const file: OfficeFile = { zip, limits, text: new Allowance(limits.maxTextBytes, "bytes of text") };
  if (zip.has("word/document.xml")) yield* documentText(file);
  else if (zip.has("xl/workbook.xml")) yield* workbookText(file);
  else if (zip.has("ppt/presentation.xml")) yield* presentationText(file);
  else {
    throw new UnreadableFile(
      "unsupported_file",
      "The file is an unsupported archive. Supported Office formats are .docx, .xlsx and .pptx.",
    );
  }
}

interface OfficeFile {
  zip: Zip;
  limits: TextLimits;
  /** The rest of the text's limit. */
  text: Allowance;
}

/** Reads one part; a missing one is empty. */
function readPart({ zip, limits }: OfficeFile, name: string, sink: XmlSink): Promise<void> {
  return readXml(zip.read(name), sink, limits.maxDepth);
}

/** A growing text, within the rest of its limit. */
class Text {
  readonly #allowance: Allowance;
  #text = "";

  constructor(allowance: Allowance) {
    this.#allowance = allowance;
  }

  /**
   * Throws an UnreadableFile, `too_large`. UTF-8 has at least a byte for each UTF-16 unit, so units are counted while
   * the text grows.
   */
  add(text: string): void {
    this.#allowance.take(text.length);
    this.#text += text;
  }

  finish(): string {
    // Line by line: a regular expression for spaces before a line's end would take quadratic time.
    const lines = this.#text.split("\n").map((line) => line.trimEnd());
    return lines
      .join("\n")
      .replace(/\n{3,}/g, "\n\n")
      .trim();
  }
}

/** Paragraphs on lines of their own; headings as in Markdown; rows of tables on a line, with bars between their cells. */
async function* documentText(file: OfficeFile): AsyncGenerator<TextPage> {
  const text = new Text(file.text);
  for (const part of ["document", "footnotes", "endnotes"]) {
    await readPart(file, `word/${part}.xml`, wordSink(text));
    text.add("\n");
  }
  yield { page: null, text: text.finish() };
}

function wordSink(text: Text): XmlSink {
  let isText = false;
  /** Cells that are open. */
  let cells = 0;
  /** The number of open `Fallback` elements, which repeat a content for older programs. */
  let fallbacks = 0;
  return {
    open(name, attributes) {
      if (name === "t") isText = true;
      else if (name === "tab") text.add("\t");
      else if (name === "br" || name === "cr") text.add(cells > 0 ? " " : "\n");
      else if (name === "tc") cells++;
      else if (name === "Fallback") fallbacks++;
      else if (name === "pStyle" && cells === 0) {
        const level = /^heading\s?([1-6])$/i.exec(attributes("w:val") ?? "")?.[1];
        if (level) text.add(`${"#".repeat(Number(level))} `);
      }
    },
    close(name) {
      if (name === "t") isText = false;
      else if (name === "p") text.add(cells > 0 ? " " : "\n");
      else if (name === "tc") {
        cells--;
        text.add("| ");
      } else if (name === "tr" && cells === 0) text.add("\n");
      else if (name === "tbl" && cells === 0) text.add("\n");
      else if (name === "Fallback") fallbacks--;
    },
    text(piece) {
      if (isText && fallbacks === 0) text.add(piece);
    },
  };
}

/** A list of parts in their order: names, and the parts that their relationships name. */
async function partsOf(
  file: OfficeFile,
  { folder, list, element }: { folder: string; list: string; element: string },
): Promise<{ name: string; part: string }[]> {
  const targets = new Map<string, string>();
  await readPart(file, `${folder}/_rels/${list}.rels`, {
    open(name, attributes) {
      if (name !== "Relationship" || targets.size > file.limits.maxEntries) return;
      const target = attributes("Target") ?? "";
      targets.set(attributes("Id") ?? "", target.startsWith("/") ? target.slice(1) : `${folder}/${target}`);
    },
    close() {},
    text() {},
  });
  const parts: { name: string; part: string }[] = [];
  const pages = new Allowance(file.limits.maxPages, "pages");
  await readPart(file, `${folder}/${list}`, {
    open(name, attributes) {
      if (name !== element) return;
      pages.take(1);
      parts.push({ name: attributes("name") ?? "", part: targets.get(attributes("r:id") ?? "") ?? "" });
    },
    close() {},
    text() {},
  });
  return parts;
}

/** Each sheet is a page: its name, then a line for each row, with tabs between the cells. */
async function* workbookText(file: OfficeFile): AsyncGenerator<TextPage> {
  const strings = await sharedStrings(file);
  const isDate = await dateStyles(file);
  const sheets = await partsOf(file, { folder: "xl", list: "workbook.xml", element: "sheet" });
  for (const [index, { name, part }] of sheets.entries()) {
    const text = new Text(file.text);
    text.add(`# ${name}\n`);
    await readPart(file, part, sheetSink(text, strings, isDate));
    yield { page: index + 1, text: text.finish() };
  }
}

async function sharedStrings(file: OfficeFile): Promise<string[]> {
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

/** Which styles of cells show a number as a date (ECMA-376 part 1, 18.8.30: the formats that every program knows, and those that name a day or an hour). */
async function dateStyles(file: OfficeFile): Promise<(style: number) => boolean> {
  const custom = new Map<number, boolean>();
  const styles: boolean[] = [];
  let inCells = false;
  await readPart(file, "xl/styles.xml", {
    open(name, attributes) {
      if (custom.size + styles.length > MAX_STYLES) return;
      const format = Number(attributes("numFmtId"));
      if (name === "numFmt") custom.set(format, isDateFormat(attributes("formatCode") ?? ""));
      else if (name === "cellXfs") inCells = true;
      else if (name === "xf" && inCells) {
        styles.push(custom.get(format) ?? ((format >= 14 && format <= 22) || (format >= 45 && format <= 47)));
      }
    },
    close(name) {
      if (name === "cellXfs") inCells = false;
    },
    text() {},
  });
  return (style) => styles[style] ?? false;
}

/** Excel's limit is 65,490. */
const MAX_STYLES = 131_072;

function isDateFormat(format: string): boolean {
  return /[dyhs]/i.test(format.slice(0, 256).replace(/"[^"]*"|\[[^\]]*\]|\\./g, ""));
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

function sheetSink(text: Text, strings: readonly string[], isDate: (style: number) => boolean): XmlSink {
  let isValue = false;
  let type: string | undefined;
  let style = 0;
  let value = "";
  let column = 0;
  let shown = 0;
  return {
    open(name, attributes) {
      if (name === "row") shown = column = 0;
      else if (name === "c") {
        type = attributes("t");
        style = Number(attributes("s") ?? 0);
        column = columnOf(attributes("r")) ?? column + 1;
        value = "";
      } else if (name === "v" || name === "t") isValue = true;
    },
    close(name) {
      if (name === "v" || name === "t") isValue = false;
      else if (name === "row") text.add("\n");
      else if (name === "c") {
        const cell = shownValue(value, type, isDate(style), strings);
        if (cell === "") return;
        text.add("\t".repeat(Math.max(0, column - Math.max(shown, 1))) + oneLine(cell));
        shown = Math.max(column, 1);
      }
    },
    text(piece) {
      if (!isValue) return;
      if (value.length + piece.length > MAX_CELL)
        throw new UnreadableFile("too_large", "A cell of the file is too long.");
      value += piece;
    },
  };
}

/** Excel's limit is 32,767 characters. */
const MAX_CELL = 1_048_576;

/** Excel's limit of columns. */
const MAX_COLUMN = 16_384;

function columnOf(cell: string | undefined): number | undefined {
  const letters = /^([A-Z]{1,3})\d/.exec(cell ?? "")?.[1];
  if (letters === undefined) return undefined;
  let column = 0;
  for (const letter of letters) column = column * 26 + letter.charCodeAt(0) - 64;
  return Math.min(column, MAX_COLUMN);
}

function shownValue(value: string, type: string | undefined, isDate: boolean, strings: readonly string[]): string {
  if (type === "s") return strings[Number(value)] ?? "";
  if (type === "b") return value === "1" ? "TRUE" : "FALSE";
  return isDate && (type === undefined || type === "n") ? dateOf(value) : value;
}

function oneLine(text: string): string {
  return text.replace(/[\t\r\n]+/g, " ");
}

/** Each slide is a page, without its notes. */
async function* presentationText(file: OfficeFile): AsyncGenerator<TextPage> {
  const slides = await partsOf(file, { folder: "ppt", list: "presentation.xml", element: "sldId" });
  for (const [index, { part }] of slides.entries()) {
    const text = new Text(file.text);
    await readPart(file, part, slideSink(text));
    yield { page: index + 1, text: text.finish() };
  }
}

function slideSink(text: Text): XmlSink {
  let isText = false;
  let cells = 0;
  let fallbacks = 0;
  return {
    open(name) {
      if (name === "t") isText = true;
      else if (name === "br") text.add("\n");
      else if (name === "tc") cells++;
      else if (name === "Fallback") fallbacks++;
    },
    close(name) {
      if (name === "t") isText = false;
      else if (name === "p") text.add(cells > 0 ? " " : "\n");
      else if (name === "tc") {
        cells--;
        text.add("| ");
      } else if (name === "tr") text.add("\n");
      else if (name === "sp") text.add("\n");
      else if (name === "Fallback") fallbacks--;
    },
    text(piece) {
      if (isText && fallbacks === 0) text.add(piece);
    },
  };
}
