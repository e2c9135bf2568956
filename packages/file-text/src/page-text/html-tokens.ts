/**
 * HTML as a flat run of tags and text, as the tokenizer of the HTML standard (§13.2.5) sees it, in one pass.
 *
 * Not workerd's HTMLRewriter: that costs about 35 µs for every tag and text node (measured), so that an ordinary page of
 * 40,000 elements takes seconds of CPU time, and it gives up at some 16,000 nested elements. This takes milliseconds,
 * and keeps no stack. The tests compare the two.
 */

export interface HtmlSink {
  /** Text as it is in the source, references not decoded. One run may arrive in several pieces. */
  text(text: string): void;
  /** A start tag, its name in lower case. */
  open(name: string, attributes: Attributes): void;
  /** An end tag, also without an open element. */
  close(name: string): void;
  /** True once nothing more is wanted. */
  readonly full: boolean;
}

/** Attributes of one tag: names in lower case, the first of equal names; values with their references not decoded. */
export type Attributes = ReadonlyMap<string, string>;

/** Elements whose content holds no tags. RCDATA elements of HTML (`title`, `textarea`) differ only in their references. */
const RAW_TEXT = new Set([
  "script",
  "style",
  "title",
  "textarea",
  "xmp",
  "iframe",
  "noembed",
  "noframes",
  // As with scripting on, for which the page was written.
  "noscript",
]);

const NO_ATTRIBUTES: Attributes = new Map();

/**
 * Gives `sink` the content of `html`, in order, until its end or until `sink.full`. Any text is valid HTML: there are
 * no errors.
 */
export function tokenizeHtml(html: string, sink: HtmlSink): void {
  let at = 0;
  while (at < html.length && !sink.full) {
    const tag = html.indexOf("<", at);
    if (tag !== at) sink.text(tag === -1 ? html.slice(at) : html.slice(at, tag));
    if (tag === -1) return;
    at = readMarkup(html, tag, sink);
  }
}

/**
 * Reads the markup that begins with the `<` at `start`; gives its end. Markup that the end of the page cuts off is
 * ignored.
 */
function readMarkup(html: string, start: number, sink: HtmlSink): number {
  const next = html.charCodeAt(start + 1);
  if (isLetter(next)) return readStartTag(html, start, sink);
  if (next === SLASH) {
    if (isLetter(html.charCodeAt(start + 2))) return readEndTag(html, start, sink);
    if (start + 2 < html.length) return after(html, ">", start + 2);
  }
  if (next === BANG)
    return html.startsWith("--", start + 2) ? commentEnd(html, start + 4) : after(html, ">", start + 2);
  if (next === QUESTION) return after(html, ">", start + 2);
  sink.text("<");
  return start + 1;
}

function readStartTag(html: string, start: number, sink: HtmlSink): number {
  const nameEnd = tagNameEnd(html, start + 1);
  const name = html.slice(start + 1, nameEnd).toLowerCase();
  const { attributes, end } = readAttributes(html, nameEnd);
  if (end === undefined) return html.length;
  sink.open(name, attributes);
  if (name === "plaintext") {
    sink.text(html.slice(end));
    return html.length;
  }
  if (!RAW_TEXT.has(name)) return end;
  const closing = new RegExp(`</${name}(?=[\\t\\n\\f\\r />])`, "gi");
  closing.lastIndex = end;
  const close = closing.exec(html)?.index ?? html.length;
  if (close > end) sink.text(html.slice(end, close));
  return close;
}

function readEndTag(html: string, start: number, sink: HtmlSink): number {
  const nameEnd = tagNameEnd(html, start + 2);
  const { end } = readAttributes(html, nameEnd);
  if (end === undefined) return html.length;
  sink.close(html.slice(start + 2, nameEnd).toLowerCase());
  return end;
}

/** The attributes from `at` on, and where the tag ends: `undefined` when the page ends first. */
function readAttributes(html: string, at: number): { attributes: Attributes; end: number | undefined } {
  let attributes: Map<string, string> | undefined;
  for (;;) {
    at = skip(html, at, isSpaceOrSlash);
    if (at >= html.length) return { attributes: NO_ATTRIBUTES, end: undefined };
    if (html.charCodeAt(at) === CLOSE) return { attributes: attributes ?? NO_ATTRIBUTES, end: at + 1 };
    // A leading equals sign is part of the name.
    const nameEnd = skip(html, at + 1, isAttributeName);
    const name = html.slice(at, nameEnd).toLowerCase();
    at = skip(html, nameEnd, isSpace);
    let value = "";
    if (html.charCodeAt(at) === EQUALS) {
      at = skip(html, at + 1, isSpace);
      const first = html.charCodeAt(at);
      if (first === DOUBLE_QUOTE || first === SINGLE_QUOTE) {
        const close = html.indexOf(first === DOUBLE_QUOTE ? '"' : "'", at + 1);
        if (close === -1) return { attributes: NO_ATTRIBUTES, end: undefined };
        value = html.slice(at + 1, close);
        at = close + 1;
      } else {
        const end = skip(html, at, isUnquoted);
        value = html.slice(at, end);
        at = end;
      }
    }
    attributes ??= new Map();
    if (attributes.size < MAX_ATTRIBUTES && !attributes.has(name)) attributes.set(name, value);
  }
}

/** The maximum of attributes of one element: no page needs more. */
const MAX_ATTRIBUTES = 256;

function commentEnd(html: string, at: number): number {
  if (html.startsWith(">", at)) return at + 1;
  if (html.startsWith("->", at)) return at + 2;
  const closing = /--!?>/g;
  closing.lastIndex = at;
  return closing.exec(html) ? closing.lastIndex : html.length;
}

function after(html: string, mark: string, at: number): number {
  const found = html.indexOf(mark, at);
  return found === -1 ? html.length : found + mark.length;
}

function tagNameEnd(html: string, at: number): number {
  return skip(html, at, isTagName);
}

function skip(html: string, at: number, belongs: (code: number) => boolean): number {
  while (at < html.length && belongs(html.charCodeAt(at))) at++;
  return at;
}

const BANG = 0x21;
const DOUBLE_QUOTE = 0x22;
const SINGLE_QUOTE = 0x27;
const SLASH = 0x2f;
const EQUALS = 0x3d;
const CLOSE = 0x3e;
const QUESTION = 0x3f;

function isLetter(code: number): boolean {
  return (code >= 0x41 && code <= 0x5a) || (code >= 0x61 && code <= 0x7a);
}

function isSpace(code: number): boolean {
  return code === 0x20 || code === 0x0a || code === 0x09 || code === 0x0d || code === 0x0c;
}

function isSpaceOrSlash(code: number): boolean {
  return isSpace(code) || code === SLASH;
}

function isTagName(code: number): boolean {
  return !isSpaceOrSlash(code) && code !== CLOSE;
}

function isAttributeName(code: number): boolean {
  return isTagName(code) && code !== EQUALS;
}

function isUnquoted(code: number): boolean {
  return !isSpace(code) && code !== CLOSE;
}
