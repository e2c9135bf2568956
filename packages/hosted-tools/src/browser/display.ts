import { domainOf, linkMark, oneLine, shortened, withoutMarks, wrapLines } from "@responses-edge/file-text/page-text";
import type { SearchHit } from "./search-provider.ts";

/** A page as the model sees it. Texts and numbers are those of openai/gpt-oss, `simple_browser_tool.py`. */

export interface View {
  /** First line to show. */
  loc: number;
  /** The number of lines; 0 or less for as many as fit the viewport. */
  numLines: number;
  /** The viewport, and the maximum of `numLines`. */
  viewTokens: number;
  maxViewTokens: number;
}

export interface Shown {
  cursor: number;
  url: string;
  title: string;
  lines: string[];
}

/**
 * A stretch of a page under its heading, each line with its number.
 *
 * @throws RangeError with the message for the model when `loc` is beyond the page.
 */
export function display({ cursor, url, title, lines }: Shown, view: View): string {
  const last = lines.length - 1;
  if (view.loc > last) {
    throw new RangeError(`Invalid location parameter: \`${view.loc}\`. Cannot exceed page maximum of ${last}.`);
  }
  const wanted = view.numLines > 0 ? Math.min(view.loc + view.numLines, lines.length) : lines.length;
  const end = visibleEnd(lines, view.loc, wanted, view.numLines > 0 ? view.maxViewTokens : view.viewTokens);
  const body = lines.slice(view.loc, end).map((line, index) => `L${view.loc + index}: ${line}`);
  const address = url === "" ? "" : ` (${shortened(unquoted(url))})`;
  const heading = `[${cursor}] ${title}${address}\n**viewing lines [${view.loc} - ${end - 1}] of ${last}**\n\n`;
  return heading + body.join("\n");
}

/** Where the line ends in which the viewport is full: it is shown whole, as in gpt-oss's browser. */
function visibleEnd(lines: string[], start: number, end: number, tokens: number): number {
  let left = tokens;
  for (let index = start; index < end; index++) {
    left -= approximateTokens(lines[index] ?? "") + LINE_TOKENS;
    if (left <= 0) return index + 1;
  }
  return end;
}

/** `L12: ` and the line break. */
const LINE_TOKENS = 3;

/**
 * Tokens without a tokenizer, which would cost a megabyte of code: about four characters each in what is written in
 * ASCII, two in other alphabets, one in Chinese and beyond.
 */
function approximateTokens(line: string): number {
  let quarters = 0;
  for (let index = 0; index < line.length; index++) {
    const code = line.charCodeAt(index);
    quarters += code < 0x80 ? 1 : code < 0x2e80 ? 2 : 4;
  }
  return quarters / 4;
}

/** `URL: ` is empty, since a search has none: this is what gpt-oss's browser shows. */
export function searchResults(hits: SearchHit[]): { text: string; links: string[] } {
  const items = hits.map(({ url, title, snippet }, id) => {
    const name = oneLine(withoutMarks(title)) || domainOf(url);
    return `  * ${linkMark(id, name, domainOf(url), "")} ${oneLine(withoutMarks(snippet))}`.trimEnd();
  });
  const list = items.length === 0 ? "No results." : items.join("\n");
  return { text: `\nURL: \n# Search Results\n\n${list}`, links: hits.map(({ url }) => url) };
}

const MAX_MATCHES = 50;
const LINES_PER_MATCH = 4;

export interface FoundPage {
  url: string;
  title: string;
  text: string;
  /** Lines of the matches by their id. */
  matches: number[];
}

/** The page of matches of `pattern` in a page, upper and lower case alike. A match hides those in the lines it shows. */
export function findResults(pattern: string, page: { url: string; title: string; text: string }): FoundPage {
  const wanted = pattern.toLowerCase();
  const lines = withoutLinks(wrapLines(page.text).join("\n")).split("\n");
  const matches: number[] = [];
  const chunks: string[] = [];
  for (let line = 0; line < lines.length && matches.length < MAX_MATCHES; line++) {
    if (!lines[line]?.toLowerCase().includes(wanted)) continue;
    const excerpt = lines.slice(line, line + LINES_PER_MATCH).join("\n");
    chunks.push(`# 【${matches.length}†match at L${line}】\n${excerpt}`);
    matches.push(line);
    line += LINES_PER_MATCH - 1;
  }
  return {
    url: `${page.url}/find?pattern=${encodeURIComponent(wanted.toWellFormed()).replaceAll("%2F", "/")}`,
    title: `Find results for text: \`${wanted}\` in \`${page.title}\``,
    text: chunks.length > 0 ? chunks.join("\n\n") : `No \`find\` results for pattern: \`${wanted}\``,
    matches,
  };
}

/** Links as plain text. A line break in a removed part is kept, so that line numbers hold. */
function withoutLinks(text: string): string {
  return text.replace(/【\d+†([^†】]+)(†[^†】]+)?】/g, (_mark, shown: string, domain = "") =>
    domain.includes("\n") ? `${shown}\n` : shown,
  );
}

function unquoted(url: string): string {
  try {
    return decodeURIComponent(url);
  } catch {
    return url;
  }
}
