import { Numbering } from "./docx-numbering.ts";
import { addDrawings } from "./drawings.ts";
import { type PackedFile, readPart, Text } from "./packed-file.ts";
import { linksOf, relationsOf } from "./relations.ts";
import type { TextPage } from "./text-page.ts";
import type { XmlSink } from "./xml.ts";

/**
 * The text of a document of Office Open XML (ECMA-376): paragraphs on lines of their own, with the numbers of lists; headings as in
 * Markdown; rows of tables on a line, with bars between their cells; comments in brackets where they stand; headers first and footers
 * last, each once. Insertions that an editor has proposed are read, and proposed deletions are not.
 */
export async function* documentText(file: PackedFile): AsyncGenerator<TextPage> {
  const text = new Text(file.text);
  const numbering = await Numbering.read(file);
  const comments = await commentsOf(file);
  const repeated = async (kind: "header" | "footer") => {
    const known = new Set<string>();
    for (const name of file.zip.names(new RegExp(`^word/${kind}\\d*\\.xml$`))) {
      const part = new Text(file.text);
      await readPart(file, name, wordSink(part, { numbering, comments, links: await linksOf(file, name) }));
      known.add(part.finish());
    }
    known.delete("");
    return [...known];
  };
  for (const header of await repeated("header")) text.add(`${header}\n\n`);
  for (const part of ["document", "footnotes", "endnotes"]) {
    const name = `word/${part}.xml`;
    await readPart(file, name, wordSink(text, { numbering, comments, links: await linksOf(file, name) }));
    text.add("\n");
  }
  await addDrawings(file, await relationsOf(file, "word/document.xml"), text);
  for (const footer of await repeated("footer")) text.add(`\n${footer}\n`);
  yield { page: null, text: text.finish() };
}

/** The comments by their ids, each with its author. */
async function commentsOf(file: PackedFile): Promise<ReadonlyMap<string, string>> {
  const comments = new Map<string, string>();
  let open: { id: string; author: string; text: Text } | undefined;
  let isText = false;
  await readPart(file, "word/comments.xml", {
    open(name, attributes) {
      if (name === "comment") {
        open = { id: attributes("w:id") ?? "", author: attributes("w:author") ?? "", text: new Text(file.text) };
      } else if (name === "t") isText = true;
    },
    close(name) {
      if (name === "t") isText = false;
      else if (name === "p") open?.text.add(" ");
      else if (name === "comment" && open) {
        const who = open.author === "" ? "comment" : `comment by ${open.author}`;
        comments.set(open.id, ` [${who}: ${open.text.finish()}]`);
        open = undefined;
      }
    },
    text(piece) {
      if (isText) open?.text.add(piece);
    },
  });
  return comments;
}

interface WordContext {
  numbering: Numbering;
  /** The comments, and the targets of links, by their ids. */
  comments: ReadonlyMap<string, string>;
  links: ReadonlyMap<string, string>;
}

/** Signs of the font Wingdings that documents use as marks. Its other signs are pictures. */
const SIGNS: Readonly<Record<string, string>> = {
  ...{
    F0FE: "☒",
    FE: "☒",
    F0A8: "☐",
    F06F: "☐",
    F0FC: "✓",
    F0FB: "✗",
    F052: "☑",
    F0FD: "☒",
    F0E0: "→",
    F0B7: "•",
    F0A7: "▪",
  },
};

function wordSink(text: Text, { numbering, comments, links }: WordContext): XmlSink {
  /** The target of the link that is open. */
  let link: string | undefined;
  let isText = false;
  /** Cells that are open. */
  let cells = 0;
  /** The number of open `Fallback` elements, which repeat a content for older programs. */
  let fallbacks = 0;
  /** The style and the list of the paragraph, until its first text. */
  let style: string | undefined;
  let list: { id: string; level: number } | undefined;
  let isBegun = true;
  const begin = () => {
    if (isBegun) return;
    isBegun = true;
    const level = /^heading\s?([1-6])$/i.exec(style ?? "")?.[1];
    if (level && cells === 0) text.add(`${"#".repeat(Number(level))} `);
    text.add(numbering.next(list, style));
  };
  return {
    open(name, attributes) {
      switch (name) {
        case "t":
          isText = true;
          break;
        case "tab":
          text.add("\t");
          break;
        case "br":
        case "cr":
          text.add(cells > 0 ? " " : "\n");
          break;
        case "noBreakHyphen":
          text.add("-");
          break;
        case "sym":
          begin();
          text.add(SIGNS[(attributes("w:char") ?? "").toUpperCase()] ?? "\ufffd");
          break;
        case "hyperlink":
          link = links.get(attributes("r:id") ?? "");
          break;
        case "tc":
          cells++;
          break;
        case "Fallback":
          fallbacks++;
          break;
        case "p":
          style = list = undefined;
          isBegun = false;
          break;
        case "pStyle":
          style = attributes("w:val");
          break;
        case "numId":
          list = { level: 0, ...list, id: attributes("w:val") ?? "" };
          break;
        case "ilvl":
          list = { id: "", ...list, level: Number(attributes("w:val") ?? 0) };
          break;
        case "commentReference":
          text.add(comments.get(attributes("w:id") ?? "") ?? "");
          break;
      }
    },
    close(name) {
      if (name === "t") isText = false;
      else if (name === "hyperlink") {
        if (link !== undefined && fallbacks === 0) text.add(` <${link}>`);
        link = undefined;
      } else if (name === "p") text.add(cells > 0 ? " " : "\n");
      else if (name === "tc") {
        cells--;
        text.add("| ");
      } else if (name === "tr" && cells === 0) text.add("\n");
      else if (name === "tbl" && cells === 0) text.add("\n");
      else if (name === "Fallback") fallbacks--;
    },
    text(piece) {
      if (!isText || fallbacks > 0) return;
      begin();
      text.add(piece);
    },
  };
}
