import { Buffer } from "node:buffer";
import { LongWork } from "@responses-edge/bounded-io/long-work";
import { archiveText, loadPdfReader, pdfText, readMail } from "#file-formats";
import { DEFAULT_LIMITS, type TextLimits, UnreadableFile } from "./limits.ts";
import { isMail, isNamedMail } from "./mail-names.ts";
import { decodePage, PageText, tokenizeHtml } from "./page-text/index.ts";
import { charsetOf, plainText } from "./plain.ts";
import { rtfText } from "./rtf.ts";
import type { TextPage } from "./text-page.ts";

/** The given name and media type of a file. Its content decides. */
export interface AboutFile {
  filename: string;
  mimeType?: string | undefined;
}

/**
 * The text of a file, page by page.
 *
 * @param limits The bounds of the cost, where they differ from `DEFAULT_LIMITS`.
 * @param work The tenant's work, which takes turns with other tenants'.
 * @throws UnreadableFile, and nothing else.
 */
export async function* textOf(
  bytes: Uint8Array,
  about: AboutFile,
  limits: Partial<TextLimits> = {},
  work: LongWork = new LongWork(""),
): AsyncGenerator<TextPage> {
  const bounds = { ...DEFAULT_LIMITS, ...limits };
  if (bytes.length > bounds.maxBytes) {
    throw new UnreadableFile("too_large", `The file has more than ${bounds.maxBytes} bytes.`);
  }
  const pages = read(bytes, about, bounds, work);
  try {
    yield* pages;
  } catch (error) {
    if (error instanceof UnreadableFile) throw error;
    // The reader of its format has failed.
    throw new UnreadableFile("invalid_file", "The file is damaged: it cannot be read.");
  }
}

/** Bytes that any reader of text takes a few milliseconds for. */
const SHORT_BYTES = 64 * 1024;

/**
 * Tells whether a file is a text, and so short that reading it takes a few milliseconds at most, whatever its content. A mail may have
 * other files in it.
 */
export function isShortText(bytes: Uint8Array, about: AboutFile): boolean {
  return bytes.length <= SHORT_BYTES && !isPdf(bytes) && !isArchive(bytes) && !isNamedMail(about);
}

/** Loads what reading the first PDF would load. */
export async function warmUp(): Promise<void> {
  const { newReader } = await loadPdfReader();
  newReader();
}

async function* read(
  bytes: Uint8Array,
  about: AboutFile,
  limits: TextLimits,
  work: LongWork,
): AsyncGenerator<TextPage> {
  if (isPdf(bytes)) yield* pdfText(bytes, limits, work);
  else if (isArchive(bytes)) yield* archiveText(bytes, limits, work);
  else {
    refuseKnown(bytes);
    await work.spend(bytes.length * UNITS_PER_BYTE);
    if (beginsWith(bytes, "{\\rtf")) {
      yield { page: null, text: bounded(rtfText(latin1(bytes)), limits) };
      return;
    }
    const text = plainText(bytes, about.mimeType);
    if (isMail(text, about)) {
      yield* mailText(bytes, limits, work);
      return;
    }
    const shown = isHtml(text, about) ? htmlText(decodePage(bytes, charsetOf(about.mimeType), false), limits) : text;
    yield { page: null, text: bounded(shown, limits) };
  }
}

/** Throws the UnreadableFile of a text that is too long. */
function bounded(text: string, limits: TextLimits): string {
  // A UTF-16 unit is at most three bytes of UTF-8.
  if (text.length * 3 <= limits.maxTextBytes || new TextEncoder().encode(text).length <= limits.maxTextBytes)
    return text;
  throw tooLong(limits);
}

/** Further attachments of a mail are only named, and mails in mails deeper than this are texts. */
const MAX_ATTACHMENTS = 32;
const MAX_MAILS = 4;

/** The text of a mail as one page, and each page of its attachments, under their names. */
async function* mailText(bytes: Uint8Array, limits: TextLimits, work: LongWork, depth = 1): AsyncGenerator<TextPage> {
  const { head, text, html, attachments } = await readMail(bytes);
  const body = text?.trim() || (html === undefined ? "" : htmlText(html, limits));
  const first = bounded(`${head}\n\n${body}`.trim(), limits);
  yield { page: null, text: first };
  // They share the bounds of the mail.
  const shared = Math.min(attachments.length, MAX_ATTACHMENTS);
  let left = limits.maxTextBytes - first.length;
  for (const [index, { filename, mimeType, bytes: content }] of attachments.entries()) {
    yield { page: null, text: `[attachment: ${filename}]` };
    if (index >= MAX_ATTACHMENTS) {
      yield { page: null, text: "[It was not read: a mail has at most 32 attachments that are.]", isPartial: true };
      continue;
    }
    const own = { ...limits, maxTextBytes: left, maxExpandedBytes: limits.maxExpandedBytes / shared };
    const isMessage = /^message\//i.test(mimeType) || /\.eml$/i.test(filename);
    const about = isMessage ? { filename: "mail.txt", mimeType: "text/plain" } : { filename, mimeType };
    const pages =
      isMessage && depth < MAX_MAILS ? mailText(content, own, work, depth + 1) : read(content, about, own, work);
    try {
      // Only pages of the file itself are drawn.
      for await (const { picture: _, ...page } of pages) {
        left -= page.text.length;
        yield page;
      }
    } catch (error) {
      if (!(error instanceof UnreadableFile) || error.code === "too_large") throw error;
      yield { page: null, text: `[It cannot be read: ${error.message}]`, isPartial: true };
    }
  }
}

/** Reading a kilobyte of text takes about ten microseconds. */
const UNITS_PER_BYTE = 0.01;

/** Readers find a PDF by a header within the first kilobyte (ISO 32000-1, implementation note 13). */
const PDF_HEADER_WITHIN = 1024;

/** Tells whether a file is a PDF, by its content. */
export function isPdf(bytes: Uint8Array): boolean {
  if (beginsWith(bytes, "%PDF-")) return true;
  const head = latin1(bytes.subarray(0, PDF_HEADER_WITHIN));
  const at = head.indexOf("%PDF-");
  if (at <= 0 || head.slice(at).search(/%PDF-\d\.\d[\r\n]/) !== 0) return false;
  // A text may speak of it. Mail programs have left their headers before it.
  return !/[A-Za-z]{3}/.test(head.slice(0, at)) || latin1(bytes.subarray(-PDF_HEADER_WITHIN)).includes("startxref");
}

function isArchive(bytes: Uint8Array): boolean {
  return beginsWith(bytes, "PK\u0003\u0004");
}

/** Formats that are recognised by their first bytes and not supported. */
const KNOWN: readonly [first: string, message: string][] = [
  [
    "\u00d0\u00cf\u0011\u00e0",
    "The file has an old Office format, or a password. Save it as .docx, .xlsx or .pptx without one.",
  ],
  ["\u0089PNG", "The file is an image: give it as input_image."],
  ["\u00ff\u00d8\u00ff", "The file is an image: give it as input_image."],
  ["GIF8", "The file is an image: give it as input_image."],
  ["PK\u0005\u0006", "The file is an empty archive."],
];

function refuseKnown(bytes: Uint8Array): void {
  const known = KNOWN.find(([first]) => beginsWith(bytes, first));
  if (known) throw new UnreadableFile("unsupported_file", known[1]);
}

function beginsWith(bytes: Uint8Array, first: string): boolean {
  return latin1(bytes.subarray(0, first.length)) === first;
}

function latin1(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("latin1");
}

const HTML_TYPE = /^\s*(?:text\/html|application\/xhtml\+xml)\b/i;
const HTML_NAME = /\.x?html?$/i;
/** Names without information about a text. */
const UNTOLD_NAME = /^[^.]*$|\.(?:pdf|docx?|xlsx?|pptx?)$/i;

/** Tells whether a text is a page: by its media type or its name, or without those by its beginning. */
function isHtml(text: string, { filename, mimeType = "" }: AboutFile): boolean {
  if (HTML_TYPE.test(mimeType.slice(0, 64)) || HTML_NAME.test(filename)) return true;
  return (
    UNTOLD_NAME.test(filename) &&
    !/^\s*text\//i.test(mimeType.slice(0, 64)) &&
    /^\s*<(?:!doctype html|html)\b/i.test(text.slice(0, 1024))
  );
}

function htmlText(html: string, limits: TextLimits): string {
  const page = new PageText("", { maxTextChars: limits.maxTextBytes, maxLinkChars: 0 });
  tokenizeHtml(html, page);
  const text = page.finish();
  return page.title === "" ? text : `${page.title}\n\n${text}`;
}

function tooLong({ maxTextBytes }: TextLimits): UnreadableFile {
  return new UnreadableFile("too_large", `The file has more than ${maxTextBytes} bytes of text.`);
}
