import { decodePage } from "./charset.ts";
import { tokenizeHtml } from "./html-tokens.ts";
import { domainOf, withoutMarks } from "./marks.ts";
import { PageText, type PageTextLimits } from "./page-text.ts";

/** The displayed form of a page: its text with marks for links, and their targets. */
export interface PageContent {
  /** Its address, after redirects. */
  url: string;
  title: string;
  text: string;
  /** Targets of links by their id in the text. */
  links: string[];
}

export interface PageLimits extends PageTextLimits {
  /** The maximum bytes of a page; the rest is left out. */
  maxBytes: number;
}

/** Content that cannot be shown. The message is for the model. */
export class PageError extends Error {}

const HTML = new Set(["text/html", "application/xhtml+xml"]);

/** Further types than `text/…` and `…+json`, `…+xml` that are text. */
const TEXT = new Set([
  ...["application/json", "application/xml", "application/javascript", "application/ecmascript", "application/yaml"],
  ...["application/x-yaml", "application/toml", "application/x-ndjson", "application/jsonl", "application/x-sh"],
  ...["application/sql", "application/graphql", "application/x-javascript", "application/typescript"],
]);

/**
 * Reads the answer to a page's URL, and frees its body.
 *
 * Text begins with an empty line and `URL: …`, as gpt-oss's browser shows every page. HTML becomes text with link ids;
 * other text is shown as it is, and so is HTML with `viewSource`.
 *
 * @param response The answer, of any status and type; only the first `maxBytes` of it are read.
 * @param requested The URL that was asked for, for an answer that does not tell its own.
 * @throws PageError for a failure status and for what is no text. Network errors and aborts of the body as they come.
 */
export async function readPage(
  response: Response,
  requested: string,
  limits: PageLimits,
  viewSource = false,
): Promise<PageContent> {
  try {
    if (!response.ok) throw new PageError(`HTTP ${response.status} ${response.statusText}`.trim());
    const { type, charset } = contentType(response.headers.get("content-type"));
    if (type !== undefined && !isText(type)) throw new PageError(unreadable(type));
    const { bytes, isCut } = await readBytes(response, limits.maxBytes);
    if (type === undefined && bytes.includes(0)) throw new PageError(unreadable("application/octet-stream"));
    const source = decodePage(bytes, charset, isCut);
    const isHtml = type === undefined ? /^\s*</.test(source) : HTML.has(type);
    const url = response.url || requested;
    const page = isHtml && !viewSource ? htmlPage(source, url, limits) : plainPage(source, url, limits);
    return isCut && !page.isCut ? { ...page, text: page.text + CUT } : page;
  } finally {
    if (response.body && !response.bodyUsed) await response.body.cancel().catch(() => {});
  }
}

const CUT = "\n\n[The page goes on; the rest of it is too long to be shown.]";

function htmlPage(html: string, url: string, limits: PageLimits): PageContent & { isCut: boolean } {
  const page = new PageText(url, limits);
  tokenizeHtml(html, page);
  return { url, title: page.title || domainOf(url), links: page.links, ...framed(url, page.finish(), limits) };
}

function plainPage(text: string, url: string, limits: PageLimits): PageContent & { isCut: boolean } {
  // One character more than fits shows that there is more.
  const clean = withoutMarks(text.slice(0, limits.maxTextChars + 1).replace(/\r\n?/g, "\n"));
  return { url, title: domainOf(url), links: [], ...framed(url, clean, limits) };
}

function framed(url: string, text: string, { maxTextChars }: PageLimits): { text: string; isCut: boolean } {
  const isCut = text.length > maxTextChars;
  const shown = isCut ? text.slice(0, maxTextChars).toWellFormed() + CUT : text;
  return { text: `\nURL: ${url}\n${shown}`, isCut };
}

function contentType(header: string | null): { type: string | undefined; charset: string | undefined } {
  const [type = "", ...parameters] = (header ?? "").split(";");
  const charset = parameters.map((parameter) => /^\s*charset\s*=\s*["']?([^"'\s]+)/i.exec(parameter)?.[1]);
  return { type: type.trim().toLowerCase() || undefined, charset: charset.find((label) => label !== undefined) };
}

function isText(type: string): boolean {
  return type.startsWith("text/") || HTML.has(type) || TEXT.has(type) || /\+(json|xml|yaml)$/.test(type);
}

function unreadable(type: string): string {
  return `the content is of type ${type}, and only web pages and plain text can be opened`;
}

/** The body up to `maxBytes`; the rest is not asked for. */
async function readBytes(response: Response, maxBytes: number): Promise<{ bytes: Uint8Array; isCut: boolean }> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  const reader = response.body?.getReader();
  while (reader && length <= maxBytes) {
    const { done, value } = await reader.read();
    if (done) break;
    chunks.push(value);
    length += value.byteLength;
  }
  await reader?.cancel();
  const bytes = new Uint8Array(Math.min(length, maxBytes));
  let at = 0;
  for (const chunk of chunks) {
    bytes.set(chunk.subarray(0, bytes.length - at), at);
    at = Math.min(at + chunk.length, bytes.length);
  }
  return { bytes, isCut: length > maxBytes };
}
