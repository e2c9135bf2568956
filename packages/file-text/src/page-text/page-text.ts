import { decodeAttribute, decodeText } from "./entities.ts";
import type { Attributes, HtmlSink } from "./html-tokens.ts";
import { domainOf, linkMark, oneLine, withoutMarks } from "./marks.ts";

/**
 * The text of an HTML page for gpt-oss: blocks on lines of their own, headings, lists and quotes as in Markdown, links
 * as `【id†text】`, images as `[Image n: alt]`. Follows openai/gpt-oss (`page_contents.py`, which uses html2text), except
 * that bars separate the cells of tables here.
 */

export interface PageTextLimits {
  /** The maximum of characters of text; the rest is left out. */
  maxTextChars: number;
  /** The maximum of characters of all link targets together; links beyond become plain text. */
  maxLinkChars: number;
}

/** Elements that are not shown, with their content. */
const HIDDEN = new Set([
  ...["script", "style", "noscript", "template", "svg", "math", "iframe", "noembed", "noframes", "object"],
  ...["canvas", "audio", "video", "datalist"],
]);

/** HTML tags that end `<svg>` and `<math>` if these were never closed (HTML standard §13.2.6.5, the common ones). */
const ENDS_FOREIGN = new Set([
  ...["blockquote", "body", "br", "center", "dd", "div", "dl", "dt", "h1", "h2", "h3", "h4", "h5", "h6", "img", "li"],
  ...["ol", "p", "pre", "table", "ul"],
]);

/** Elements of SVG and MathML that contain HTML, which then ends nothing. */
const HOLDS_HTML = new Set(["foreignobject", "desc", "title", "annotation-xml", "mtext"]);

/** Line breaks before and after a block: two make an empty line. */
const BREAKS = new Map<string, 1 | 2>([
  ...both(2, "p h1 h2 h3 h4 h5 h6 table blockquote pre hr dl figure fieldset"),
  ...both(1, "address article aside body caption center dd details dialog div dt figcaption footer form header hgroup"),
  ...both(1, "html legend li main menu nav optgroup search section summary tbody tfoot thead tr ul ol"),
]);

/** Inline elements that pages separate only by style. */
const SPACED = new Set(["button", "option", "label", "select", "input", "textarea", "output"]);

const HEADING = /^h[1-6]$/;

/** The maximum depth of indentation: a hostile page may nest by the million. */
const MAX_LIST_DEPTH = 16;
const MAX_QUOTE_DEPTH = 8;

const MAX_EMPTY_CELLS = 50;
const MAX_ANCHOR_IMAGES = 50;

const MAX_TITLE_CHARS = 300;
const MAX_ALT_CHARS = 500;
const MAX_URL_CHARS = 2048;

/** An anchor with more text was never closed. */
const MAX_ANCHOR_CHARS = 2000;

function both(breaks: 1 | 2, names: string): [string, 1 | 2][] {
  return names.split(" ").map((name) => [name, breaks]);
}

/** Builds the text while the page is read. Keeps only the shown part of the page. */
export class PageText implements HtmlSink {
  /** Targets by link id. */
  readonly links: string[] = [];
  readonly #ids = new Map<string, number>();
  readonly #domain: string;
  readonly #limits: PageTextLimits;
  #linkChars = 0;
  #base: string;
  #hasBase = false;

  #title: string | undefined;
  #inTitle = false;
  #images = 0;
  /** The open hidden element: its nesting in itself, and the number of its elements with HTML. */
  #hidden: { name: string; depth: number; holdsHtml: number } | undefined;

  #text = "";
  /** The marks before the next text: breaks, a space, bars of table cells, the marker of a list item or heading. */
  #breaks = 0;
  #space = false;
  #bars = 0;
  #marker = "";
  #isLineEmpty = true;

  readonly #lists: { ordered: boolean; next: number }[] = [];
  #listsTooDeep = 0;
  #quotes = 0;
  #pre = 0;
  #isPreStart = false;
  #cells = 0;
  #isCellStart = false;
  /** `^` or `_` directly after a `<sup>` or `<sub>`. */
  #script = "";
  #anchor: { url: string; text: string; images: string[] } | undefined;

  /** @param url Where the page comes from: base of its links, and the domain that links are compared with. */
  constructor(url: string, limits: PageTextLimits) {
    this.#base = url;
    this.#domain = domainOf(url);
    this.#limits = limits;
  }

  get full(): boolean {
    return this.#text.length > this.#limits.maxTextChars;
  }

  /** The page's title, `""` if it has none. */
  get title(): string {
    return oneLine(withoutMarks(decodeText(this.#title ?? "")))
      .slice(0, MAX_TITLE_CHARS)
      .toWellFormed();
  }

  /** The text. To be read once, at the end. */
  finish(): string {
    this.#endAnchor();
    // Line by line: a regular expression for spaces before a line's end would take quadratic time.
    const shown = this.#text.slice(0, 2 * this.#limits.maxTextChars);
    const lines = shown.split("\n").map((line) => line.trimEnd());
    return lines
      .join("\n")
      .replace(/\n{3,}/g, "\n\n")
      .trim();
  }

  text(raw: string): void {
    if (this.#hidden) return;
    if (this.#inTitle) {
      this.#title ??= raw.slice(0, 4 * MAX_TITLE_CHARS);
      return;
    }
    // The maximum of kept text: white space and entities shrink it, rarely by this much.
    const left = 8 * Math.max(0, this.#limits.maxTextChars - this.#text.length) + 64;
    const text = withoutMarks(decodeText(raw.slice(0, left)));
    if (this.#pre > 0 && !this.#anchor) this.#preformatted(text);
    else this.#inline(text.replace(/\s+/g, " "));
  }

  open(name: string, attributes: Attributes): void {
    if (this.#hidden && !this.#endsHidden(name)) return;
    this.#script = "";
    if (HIDDEN.has(name)) {
      this.#hidden = { name, depth: 1, holdsHtml: 0 };
      return;
    }
    if (name === "a") this.#openAnchor(attributes);
    else if (name === "img") this.#image(attributes);
    else if (name === "title") this.#inTitle = true;
    else if (name === "base") this.#setBase(attributes);
    else if (name === "br") this.#lineBreak();
    else if (name === "sup") this.#script = "^";
    else if (name === "sub") this.#script = "_";
    else if (name === "code" && this.#pre === 0) this.#inline("`");
    else if (name === "td" || name === "th") this.#openCell();
    else if (SPACED.has(name)) this.#inline(" ");
    else if (BREAKS.has(name)) this.#openBlock(name, attributes);
  }

  close(name: string): void {
    if (this.#hidden) {
      if (HOLDS_HTML.has(name) && this.#hidden.holdsHtml > 0) this.#hidden.holdsHtml--;
      if (name === this.#hidden.name && --this.#hidden.depth === 0) this.#hidden = undefined;
      return;
    }
    this.#script = "";
    if (name === "a") this.#endAnchor();
    else if (name === "title") this.#inTitle = false;
    else if (name === "code" && this.#pre === 0) this.#inline("`");
    else if (name === "td" || name === "th") this.#endAnchor();
    else if (name === "br") this.#lineBreak();
    else if (SPACED.has(name)) this.#inline(" ");
    else if (BREAKS.has(name)) this.#closeBlock(name);
  }

  /** Records a tag within a hidden element; true if it ends the element. */
  #endsHidden(name: string): boolean {
    const hidden = this.#hidden;
    if (!hidden) return true;
    if (name === hidden.name) hidden.depth++;
    else if (HOLDS_HTML.has(name)) hidden.holdsHtml++;
    else if ((hidden.name === "svg" || hidden.name === "math") && hidden.holdsHtml === 0 && ENDS_FOREIGN.has(name)) {
      this.#hidden = undefined;
    }
    return this.#hidden === undefined;
  }

  #openBlock(name: string, attributes: Attributes): void {
    const breaks = BREAKS.get(name) ?? 1;
    if (name === "tr" || name === "table") {
      this.#endAnchor();
      this.#isCellStart = false;
    }
    if (name === "ul" || name === "ol") {
      this.#break(this.#lists.length === 0 ? 2 : 1);
      if (this.#lists.length === MAX_LIST_DEPTH) this.#listsTooDeep++;
      else this.#lists.push({ ordered: name === "ol", next: Number.parseInt(attributes.get("start") ?? "1", 10) || 1 });
      return;
    }
    this.#break(breaks);
    if (this.#anchor) return;
    if (name === "li") this.#marker = this.#listMarker();
    else if (HEADING.test(name)) this.#openHeading(Number(name[1]));
    else if (name === "dd") this.#marker = "    ";
    else if (name === "tr") this.#openRow();
    else if (name === "blockquote" && this.#quotes < MAX_QUOTE_DEPTH) this.#quotes++;
    else if (name === "pre") {
      this.#pre++;
      this.#isPreStart = true;
    } else if (name === "hr") {
      this.#write("* * *");
      this.#break(2);
    }
  }

  #closeBlock(name: string): void {
    if (name === "tr" || name === "table") {
      this.#endAnchor();
      this.#isCellStart = false;
    }
    if (name === "pre" && this.#pre > 0) this.#pre--;
    if (name === "blockquote" && this.#quotes > 0) this.#quotes--;
    if (name === "ul" || name === "ol") {
      if (this.#listsTooDeep > 0) this.#listsTooDeep--;
      else this.#lists.pop();
      this.#marker = "";
      this.#break(this.#lists.length === 0 ? 2 : 1);
      return;
    }
    if (HEADING.test(name) || name === "li" || name === "dd") this.#marker = "";
    this.#break(BREAKS.get(name) ?? 1);
  }

  #listMarker(): string {
    const list = this.#lists.at(-1);
    const indent = "  ".repeat(Math.max(this.#lists.length, 1));
    return list?.ordered ? `${indent}${list.next++}. ` : `${indent}* `;
  }

  #openHeading(level: number): void {
    const before = this.#marker.endsWith("# ") ? "" : this.#marker;
    this.#marker = `${before}${"#".repeat(level)} `;
  }

  #openRow(): void {
    this.#cells = 0;
    this.#bars = 0;
  }

  #openCell(): void {
    this.#endAnchor();
    if (this.#cells > 0) {
      // The breaks are those of blocks in the cell before.
      this.#breaks = 0;
      if (this.#bars < MAX_EMPTY_CELLS) this.#bars++;
    }
    this.#cells++;
    this.#isCellStart = true;
  }

  #openAnchor(attributes: Attributes): void {
    this.#endAnchor();
    const href = decodeAttribute(attributes.get("href") ?? "").trim();
    if (href === "" || href.startsWith("#") || href.length > MAX_URL_CHARS) return;
    const url = httpUrl(href, this.#base);
    if (url !== undefined && url.length <= MAX_URL_CHARS) this.#anchor = { url, text: "", images: [] };
  }

  #endAnchor(): void {
    const anchor = this.#anchor;
    if (!anchor) return;
    this.#anchor = undefined;
    if (anchor.text.startsWith(" ")) this.#space = true;
    const text = oneLine(anchor.text);
    if (text !== "") this.#write(this.#link(anchor.url, text));
    // As in gpt-oss: an image beside the text of a link is not shown, and one alone makes no link.
    else for (const image of anchor.images) this.#inline(image);
    if (anchor.text.endsWith(" ")) this.#space = true;
  }

  #link(url: string, text: string): string {
    let id = this.#ids.get(url);
    if (id === undefined) {
      if (this.#linkChars + url.length > this.#limits.maxLinkChars) return text;
      this.#linkChars += url.length;
      id = this.links.push(url) - 1;
      this.#ids.set(url, id);
    }
    return linkMark(id, text, domainOf(url), this.#domain);
  }

  #image(attributes: Attributes): void {
    const alt = attributes.get("alt") ?? attributes.get("title") ?? "";
    const name = oneLine(withoutMarks(decodeAttribute(alt.slice(0, MAX_ALT_CHARS))));
    const image = name === "" ? `[Image ${this.#images}]` : `[Image ${this.#images}: ${name}]`;
    this.#images++;
    if (!this.#anchor) this.#inline(image);
    else if (this.#anchor.images.length < MAX_ANCHOR_IMAGES) this.#anchor.images.push(image);
  }

  #setBase(attributes: Attributes): void {
    const base = httpUrl(decodeAttribute(attributes.get("href") ?? ""), this.#base);
    if (this.#hasBase || base === undefined) return;
    this.#hasBase = true;
    this.#base = base;
  }

  #lineBreak(): void {
    if (this.#pre > 0 && !this.#anchor) this.#preformatted("\n");
    else if (!this.#anchor && this.#breaks === 1 && !this.#isCellStart) this.#breaks = 2;
    else this.#break(1);
  }

  #break(breaks: number): void {
    if (this.#anchor) this.#inline(" ");
    else if (this.#isCellStart) this.#space = true;
    // Blocks at the start of a list item belong on its line.
    else if (this.#marker === "") this.#breaks = Math.max(this.#breaks, breaks);
  }

  #preformatted(text: string): void {
    let lines = text.replace(/\r\n?/g, "\n");
    if (this.#isPreStart) lines = lines.replace(/^\n/, "");
    this.#isPreStart = false;
    lines = lines.slice(0, Math.max(0, this.#limits.maxTextChars - this.#text.length) + 1);
    if (lines !== "") this.#write(this.#quotes > 0 ? lines.replaceAll("\n", `\n${this.#quoteMarks()}`) : lines);
  }

  /** Text whose white space is already single spaces. */
  #inline(text: string): void {
    if (this.#anchor) {
      if (text !== " " || !this.#anchor.text.endsWith(" ")) this.#anchor.text += text;
      if (this.#anchor.text.length > MAX_ANCHOR_CHARS) this.#releaseAnchor(this.#anchor.text);
      return;
    }
    const content = text.trim();
    if (text.startsWith(" ")) this.#space = true;
    if (content !== "")
      this.#write(this.#script !== "" && /^[\w-]+$/.test(content) ? this.#scripted(content) : content);
    if (text.endsWith(" ")) this.#space = true;
    this.#script = "";
  }

  /** `^{2}`, gpt-oss's form of exponents and indices. */
  #scripted(content: string): string {
    return `${this.#script}{${content}}`;
  }

  #releaseAnchor(text: string): void {
    this.#anchor = undefined;
    this.#inline(text.replace(/ +/g, " "));
  }

  #write(text: string): void {
    if (this.#breaks > 0 && this.#text !== "") {
      this.#text += this.#breaks === 1 ? "\n" : "\n\n";
      this.#isLineEmpty = true;
    }
    if (this.#isLineEmpty) this.#text += this.#quoteMarks() + this.#marker;
    else if (this.#space || this.#bars > 0) this.#text += " ";
    this.#text += "| ".repeat(this.#bars) + text;
    this.#marker = "";
    this.#breaks = 0;
    this.#bars = 0;
    this.#space = false;
    this.#isLineEmpty = false;
    this.#isCellStart = false;
  }

  #quoteMarks(): string {
    return "> ".repeat(this.#quotes);
  }
}

/** The absolute http(s) URL of a reference, if it has one. */
function httpUrl(reference: string, base: string): string | undefined {
  try {
    const url = new URL(reference, base);
    return url.protocol === "https:" || url.protocol === "http:" ? url.href : undefined;
  } catch {
    return undefined;
  }
}
