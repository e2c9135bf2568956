/// <reference path="./pdfjs.d.ts" />

import { Buffer } from "node:buffer";
import type { LongWork } from "@responses-edge/bounded-io/long-work";
import { CharacterMaps } from "./character-maps.ts";
import { Allowance, type TextLimits, UnreadableFile } from "./limits.ts";
import { ActualText, joinLines, PageLayout } from "./pdf-layout.ts";
import { RepeatedLines } from "./pdf-repeats.ts";
import { NO_TEXT, type TextPage } from "./text-page.ts";

type PdfDocument = Awaited<ReturnType<PdfReader["getDocument"]>["promise"]>;
type Annotation = Awaited<ReturnType<Awaited<ReturnType<PdfDocument["getPage"]>>["getAnnotations"]>>[number];
type PdfReader = ReturnType<typeof import("../dist/pdfjs.js")["newReader"]>;

/** Reading a token of PDF syntax takes about a microsecond. */
const UNITS_PER_TOKEN = 1;

/** Finding a page, its fonts and its resources, and keeping its text, takes about three milliseconds. */
const UNITS_PER_PAGE = 3_000;

/** Expanding a kilobyte takes about ten microseconds. */
const UNITS_PER_BYTE = 0.01;

/** A page ends with these words where a part of it cannot be read. */
const UNREAD = "[A part of this page cannot be read.]";

/**
 * Readers that have come to the end of their files: making one takes some milliseconds. One that is given up is not among
 * them.
 */
const idle: PdfReader[] = [];
const MAX_IDLE = 4;

/** Loads pdf.js, at the first call. */
export function loadPdfReader() {
  return import("../dist/pdfjs.js");
}

/** A page with so many lines and curves has a drawing, such as a chart. Underlines and the rules of a table are fewer. */
const MIN_STROKES = 100;

/**
 * The pages of a PDF that have anything. Throws an UnreadableFile for one that is unreadable or has a password, and, after all of its
 * pages, for one that has no text at all.
 */
export async function* pdfText(bytes: Uint8Array, limits: TextLimits, work: LongWork): AsyncGenerator<TextPage> {
  const { newReader } = await loadPdfReader();
  const reader = idle.pop() ?? newReader();
  const expanded = new Allowance(limits.maxExpandedBytes, "bytes when it is expanded");
  const text = new Allowance(limits.maxTextBytes, "bytes of text");
  const bounded = <Result>(read: () => Promise<Result>) => within(reader, limits, expanded, work, read);
  await work.spend(bytes.length * UNITS_PER_BYTE);
  // The reader detaches the bytes from their owner.
  const options = {
    BinaryDataFactory: CharacterMaps,
    cMapUrl: "cmaps/",
    cMapPacked: true,
    useWorkerFetch: false,
    disableFontFace: true,
    useSystemFonts: false,
    isEvalSupported: false,
    useWasm: false,
    verbosity: 0,
  };
  const opening = await bounded(async () => {
    const open = async (data: Uint8Array) => {
      const task = reader.getDocument({ data, ...options });
      try {
        return { task, file: await task.promise };
      } catch (error) {
        await task.destroy();
        throw error;
      }
    };
    try {
      return await open(bytes.slice());
    } catch (error) {
      const repaired = error instanceof Error && error.name === "InvalidPDFException" ? withTrailer(bytes) : undefined;
      if (!repaired) throw error;
      return await open(repaired);
    }
  });
  const { task, file } = opening;
  try {
    if (file.numPages > limits.maxPages)
      throw new UnreadableFile("too_large", `The file has more than ${limits.maxPages} pages.`);
    const repeated = new RepeatedLines();
    let hasText = false;
    for (let number = 1; number <= file.numPages; number++) {
      const page = await bounded(() => pageText(file, number, text, repeated));
      await work.spend(UNITS_PER_PAGE);
      const { images, strokes, faults } = reader.budget;
      const isDrawn = images > 0 || strokes >= MIN_STROKES;
      const why = faults > 0 || isNoText(page) ? UNREAD : page === "" && isDrawn ? NO_TEXT : "";
      const picture = why !== "" ? ("needed" as const) : isDrawn ? ("useful" as const) : undefined;
      hasText ||= page !== "";
      const told = [page, why].filter((each) => each !== "").join("\n");
      if (told === "") continue;
      yield { page: number, text: told, ...(why !== "" && { isPartial: true }), ...(picture && { picture }) };
    }
    if (!hasText)
      throw new UnreadableFile("unsupported_file", "The PDF has no text: its pages are images, as from a scanner.");
  } finally {
    await task.destroy();
    if (idle.length < MAX_IDLE) idle.push(reader);
  }
}

/** A file with a trailer that names its catalogue, which was cut off; undefined if it has none. */
function withTrailer(bytes: Uint8Array): Uint8Array | undefined {
  const source = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("latin1");
  const at = source.search(/\/Type\s*\/Catalog\b/);
  const object =
    at < 0
      ? null
      : [...source.slice(Math.max(0, at - MAX_BEFORE), at).matchAll(/(\d{1,10})\s+(\d{1,5})\s+obj\b/g)].at(-1);
  if (!object) return undefined;
  const trailer = `\ntrailer\n<< /Root ${object[1]} ${object[2]} R >>\nstartxref\n0\n%%EOF\n`;
  return new Uint8Array(Buffer.concat([bytes, Buffer.from(trailer, "latin1")]));
}

/** An object's number stands within this many bytes before what it is. */
const MAX_BEFORE = 4_096;

/** Reads something of a file within its budget. Throws an UnreadableFile for what the reader cannot read. */
async function within<Result>(
  { budget }: PdfReader,
  limits: TextLimits,
  expanded: Allowance,
  work: LongWork,
  read: () => Promise<Result>,
): Promise<Result> {
  const { left } = expanded;
  const { maxPageTokens } = limits;
  budget.images = 0;
  budget.strokes = 0;
  budget.faults = 0;
  budget.bytes = left;
  budget.tokens = maxPageTokens;
  let spentUnits = 0;
  /** Records the work since the last call. */
  const spend = () => {
    const units = (maxPageTokens - budget.tokens) * UNITS_PER_TOKEN + (left - budget.bytes) * UNITS_PER_BYTE;
    const since = units - spentUnits;
    spentUnits = units;
    return work.spend(since);
  };
  budget.giveWay = spend;
  let result: Result | undefined;
  let error: unknown;
  try {
    result = await read();
  } catch (thrown) {
    error = thrown;
  }
  await spend();
  // The reader passes over what it could not read of a page: what has run out tells.
  if (budget.tokens < 0) throw new UnreadableFile("too_large", "A page of the file takes too much work to read.");
  expanded.take(left - budget.bytes);
  if (error instanceof UnreadableFile) throw error;
  if (error !== undefined || result === undefined) throw unreadable(error);
  return result;
}

function unreadable(error: unknown): UnreadableFile {
  if (error instanceof Error && error.name === "PasswordException") {
    return new UnreadableFile("unsupported_file", "The PDF wants a password.");
  }
  return new UnreadableFile("invalid_file", "The PDF is damaged, or cut off: it cannot be read.");
}

async function pageText(
  file: PdfDocument,
  number: number,
  allowance: Allowance,
  repeated: RepeatedLines,
): Promise<string> {
  const page = await file.getPage(number);
  const layout = new PageLayout();
  const actual = new ActualText(layout);
  /** Texts without a place in a line. */
  const notes: string[] = [];
  try {
    for await (const { items } of page.streamTextContent()) {
      for (const item of items) {
        if ("str" in item) {
          allowance.take(item.str.length + 1);
          actual.add(item);
        } else if (item.type === "actualText") {
          allowance.take(item.text.length);
          actual.begin(item.text);
        } else if (item.type === "endActualText") actual.end();
      }
    }
    actual.finish();
    for (const annotation of await page.getAnnotations()) {
      const text = textOfAnnotation(annotation);
      if (text === "") continue;
      const { rect, subtype, fieldName } = annotation;
      allowance.take(text.length + 1);
      // The target of a link follows its words.
      const place = subtype === "Link" ? [rect[2] ?? 0, rect[1] ?? 0, rect[2] ?? 0, rect[3] ?? 0] : rect;
      if (layout.addNote({ text, rect: place })) continue;
      notes.push(subtype === "Widget" && fieldName ? `${fieldName}: ${text}` : text);
    }
  } finally {
    page.cleanup();
  }
  // A PDF may itself contain text that is not well-formed UTF-16, and U+0000.
  const [, bottom = 0, , top = 0] = page.view;
  const lines =
    page.rotate === 0 ? repeated.withoutRepeated(layout.lines(), { page: number, bottom, top }) : layout.lines();
  return [joinLines(lines), ...notes].join("\n").toWellFormed().replace(CONTROLS, "\ufffd").trim();
}

/** Control characters of a text: codes of a font that does not say which characters they are. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for.
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;

/** Codes without a meaning: those, and the private ones of a font. */
const MEANINGLESS = /[\ufffd\ue000-\uf8ff]/g;

/** This part of a page's characters, at least, is meaningless where its font does not say what they are. A sign in a text is less. */
const NO_TEXT_SHARE = 0.05;

function isNoText(page: string): boolean {
  return (page.match(MEANINGLESS)?.length ?? 0) > NO_TEXT_SHARE * page.length;
}

/** What a person does not see: hidden, or not to be shown on a screen (ISO 32000-1, 12.5.3). */
const HIDDEN = 2 | 32;

/** The text of what lies on a page: a field's value, a note, or where a link leads. */
function textOfAnnotation(annotation: Annotation): string {
  const { subtype, contentsObj, url, annotationFlags = 0, textContent = [] } = annotation;
  // A popup repeats its note.
  if ((annotationFlags & HIDDEN) !== 0 || subtype === "Popup") return "";
  if (subtype === "Widget") return textOfField(annotation);
  if (subtype === "Link") return url === undefined ? "" : `<${url}>`;
  return contentsObj?.str || textContent.join("\n").trim();
}

function textOfField({
  fieldType,
  fieldValue,
  checkBox,
  radioButton,
  exportValue,
  buttonValue,
  options = [],
  textContent = [],
}: Annotation): string {
  if (radioButton) return fieldValue && fieldValue === buttonValue ? "[x]" : "[ ]";
  if (checkBox) {
    return fieldValue && fieldValue !== "Off" && (!exportValue || fieldValue === exportValue) ? "[x]" : "[ ]";
  }
  if (fieldType === "Tx") return [fieldValue ?? []].flat().join(", ") || textContent.join("\n").trim();
  if (fieldType !== "Ch") return "";
  const shown = new Map(options.map((option) => [option.exportValue, option.displayValue]));
  return [fieldValue ?? []]
    .flat()
    .map((value) => shown.get(value) ?? value)
    .join(", ");
}
