import { UnreadableFile } from "./limits.ts";
import { OpenDocumentLists } from "./opendocument-lists.ts";
import { type PackedFile, readPart, Text } from "./packed-file.ts";
import type { TextPage } from "./text-page.ts";

/**
 * The text of OpenDocument files (ISO 26300): texts as one page; workbooks with a page for each sheet, tabs between the cells; presentations with
 * a page for each slide, with its notes.
 */
export async function* openDocumentText(file: PackedFile): AsyncGenerator<TextPage> {
  const pages: { text: Text; name: string }[] = [];
  let text: Text | undefined;
  let kind: "text" | "spreadsheet" | "presentation" | undefined;
  /** Open paragraphs, cells and tables, and annotations' metadata, whose text is not shown. */
  let paragraphs = 0;
  let cells = 0;
  let hidden = 0;
  /** Empty cells before the next one with text, and whether the row has had one. */
  let gap = 0;
  let hasCell = false;
  let hasText = false;
  let repeats = 1;
  /** The definitions of styles, which come before the body, have elements of the same names. */
  let isBody = false;
  let notes = 0;
  let link: string | undefined;
  const lists = new OpenDocumentLists();
  await readPart(file, "styles.xml", {
    open: (name, attributes) => {
      if (/^list-(?:style|level-style)/.test(name)) lists.onOpen(name, attributes);
    },
    close: (name) => lists.onClose(name),
    text() {},
  });
  const { headers, footers } = await repeatedTexts(file);
  const begin = (name: string) => {
    if (pages.length >= file.limits.maxPages)
      throw new UnreadableFile("too_large", `The file has more than ${file.limits.maxPages} pages.`);
    text = new Text(file.text);
    if (name !== "") text.add(`# ${name}\n`);
    pages.push({ text, name });
  };
  await readPart(file, "content.xml", {
    open(name, attributes) {
      lists.onOpen(name, attributes);
      if (name === "body") isBody = true;
      if (!isBody) return;
      switch (name) {
        case "text":
        case "spreadsheet":
        case "presentation":
          if (kind) break;
          kind = name;
          if (name === "text") {
            begin("");
            for (const header of headers) text?.add(`${header}\n\n`);
          }
          break;
        case "table":
          if (kind === "spreadsheet") begin(attributes("table:name") ?? "");
          break;
        case "page":
          if (kind === "presentation") begin("");
          break;
        case "table-row":
          gap = 0;
          hasCell = false;
          break;
        case "table-cell":
        case "covered-table-cell":
          cells++;
          hasText = false;
          repeats = Math.min(MAX_REPEATED, Math.max(1, Number(attributes("table:number-columns-repeated") ?? 1) || 1));
          break;
        case "h":
          if (cells === 0) text?.add(`${"#".repeat(Math.min(6, Number(attributes("text:outline-level") ?? 1) || 1))} `);
          paragraphs++;
          break;
        case "p":
          if (kind === "spreadsheet" && hasText) text?.add(" ");
          if (cells === 0) text?.add(lists.next());
          paragraphs++;
          break;
        case "tab":
          text?.add(cells > 0 ? " " : "\t");
          break;
        case "line-break":
          text?.add(cells > 0 ? " " : "\n");
          break;
        case "s":
          text?.add(" ".repeat(Math.min(MAX_REPEATED, Number(attributes("text:c") ?? 1) || 1)));
          break;
        case "notes":
          text?.add("\nNotes: ");
          break;
        case "note-body":
          text?.add(" [");
          notes++;
          break;
        case "a":
          link = attributes("xlink:href");
          break;
        case "page-number":
          hidden++;
          break;
        case "creator":
        case "date":
        case "note-citation":
        case "tracked-changes":
          hidden++;
          break;
      }
    },
    close(name) {
      lists.onClose(name);
      switch (name) {
        case "note-body":
          text?.add("]");
          notes--;
          break;
        case "a":
          if (link !== undefined && /^(?:https?|mailto):/i.test(link)) text?.add(` <${link}>`);
          link = undefined;
          break;
        case "page-number":
          hidden--;
          break;
        case "h":
        case "p":
          paragraphs--;
          // The paragraph of a note stands within another one.
          if (notes > 0 && paragraphs > 0) break;
          if (cells === 0) text?.add("\n");
          else if (kind !== "spreadsheet") text?.add(" ");
          break;
        case "table-cell":
        case "covered-table-cell":
          cells--;
          if (kind !== "spreadsheet") text?.add("| ");
          else if (!hasText) gap += repeats;
          else gap = repeats;
          break;
        case "table-row":
          if (kind !== "spreadsheet" || hasCell) text?.add("\n");
          break;
        case "creator":
        case "date":
        case "note-citation":
        case "tracked-changes":
          hidden--;
          break;
      }
    },
    text(piece) {
      if (paragraphs === 0 || hidden > 0 || !text) return;
      if (kind === "spreadsheet" && cells > 0 && !hasText) {
        text.add("\t".repeat(Math.min(MAX_REPEATED, gap)));
        gap = 0;
        hasCell = hasText = true;
      }
      text.add(cells > 0 ? piece.replace(/[\t\r\n]+/g, " ") : piece);
    },
  });
  if (!kind)
    throw new UnreadableFile(
      "unsupported_file",
      "The file is an unsupported kind of OpenDocument: save it as .odt, .ods, .odp or PDF.",
    );
  if (kind === "text") for (const footer of footers) text?.add(`\n${footer}\n`);
  for (const [index, page] of pages.entries()) {
    yield { page: kind === "text" ? null : index + 1, text: page.text.finish() };
  }
}

/** The headers and footers of a text's pages, each once. */
async function repeatedTexts(file: PackedFile): Promise<{ headers: Set<string>; footers: Set<string> }> {
  const texts = { headers: new Set<string>(), footers: new Set<string>() };
  let open: { of: Set<string>; text: Text } | undefined;
  let paragraphs = 0;
  await readPart(file, "styles.xml", {
    open(name) {
      if (/^header(?:-left|-first)?$/.test(name)) open = { of: texts.headers, text: new Text(file.text) };
      else if (/^footer(?:-left|-first)?$/.test(name)) open = { of: texts.footers, text: new Text(file.text) };
      else if (name === "p") paragraphs += 1;
    },
    close(name) {
      if (name === "p") {
        paragraphs -= 1;
        open?.text.add("\n");
      } else if (open && /^(?:header|footer)(?:-left|-first)?$/.test(name)) {
        open.of.add(open.text.finish());
        open = undefined;
      }
    },
    text(piece) {
      if (paragraphs > 0) open?.text.add(piece);
    },
  });
  texts.headers.delete("");
  texts.footers.delete("");
  return texts;
}

/** Repeated cells and spaces up to this number are shown. */
const MAX_REPEATED = 16_384;
