/// <reference path="./pdfjs.d.ts" />

import type { LongWork } from "@responses-edge/bounded-io/long-work";
import { Allowance, type TextLimits, UnreadableFile } from "./limits.ts";
import type { TextPage } from "./text-page.ts";

type PdfReader = typeof import("../dist/pdfjs.js");

/** Reading a token of PDF syntax takes about a microsecond. */
const UNITS_PER_TOKEN = 1;

/** Finding a page, its fonts and its resources, and keeping its text, takes about three milliseconds. */
const UNITS_PER_PAGE = 3_000;

/** Expanding a kilobyte takes about ten microseconds. */
const UNITS_PER_BYTE = 0.01;

/**
 * A file that holds the reader for this long without a step is abandoned: the platform has ended its request.
 * Milliseconds.
 */
const MAX_STEP_MS = 60_000;

/** The interval of checks whether the reader is free. Milliseconds. */
const POLL_MS = 2;

/** The holder of the reader, by the time of its last step. */
let reading: { at: number } | undefined;

/**
 * One file at a time uses the reader, for one page: the budget belongs to the reader, not to the file. Each waits by
 * timers of its own: in workerd, the continuation of a promise that another object made would run as that object.
 */
async function alone<Result>(read: () => Promise<Result>): Promise<Result> {
  while (reading && Date.now() - reading.at < MAX_STEP_MS) await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  const own = { at: Date.now() };
  reading = own;
  try {
    return await read();
  } finally {
    if (reading === own) reading = undefined;
  }
}

/**
 * The pages of a PDF that have text. Throws an UnreadableFile for one that is unreadable, has a password, or has no
 * text at all.
 */
export async function* pdfText(bytes: Uint8Array, limits: TextLimits, work: LongWork): AsyncGenerator<TextPage> {
  const reader = await import("../dist/pdfjs.js");
  const expanded = new Allowance(limits.maxExpandedBytes, "bytes when it is expanded");
  const text = new Allowance(limits.maxTextBytes, "bytes of text");
  const bounded = <Result>(read: () => Promise<Result>) => alone(() => within(reader, limits, expanded, work, read));
  await work.spend(bytes.length * UNITS_PER_BYTE);
  // The reader detaches the bytes from their owner.
  const options = {
    disableFontFace: true,
    useSystemFonts: false,
    isEvalSupported: false,
    useWasm: false,
    verbosity: 0,
  };
  const opening = await bounded(async () => {
    const task = reader.getDocument({ data: bytes.slice(), ...options });
    return {
      task,
      file: await task.promise.catch(async (error) => {
        await task.destroy();
        throw error;
      }),
    };
  });
  const { task, file } = opening;
  try {
    if (file.numPages > limits.maxPages)
      throw new UnreadableFile("too_large", `The file has more than ${limits.maxPages} pages.`);
    let hasText = false;
    for (let number = 1; number <= file.numPages; number++) {
      const page = await bounded(() => pageText(file, number, text));
      await work.spend(UNITS_PER_PAGE);
      if (page === "") continue;
      hasText = true;
      yield { page: number, text: page };
    }
    if (!hasText) {
      throw new UnreadableFile(
        "unsupported_file",
        "The PDF has no text: its pages are images, as from a scanner. Use OCR first, or send them as input_image.",
      );
    }
  } finally {
    await alone(() => task.destroy());
  }
}

/** Reads something of a file within its budget. Throws an UnreadableFile for what the reader cannot read. */
async function within<Result>(
  { budget }: PdfReader,
  limits: TextLimits,
  expanded: Allowance,
  work: LongWork,
  read: () => Promise<Result>,
): Promise<Result> {
  const bytes = expanded.left;
  let tokens = limits.maxPageTokens;
  budget.bytes = bytes;
  budget.tokens = tokens;
  budget.giveWay = () => {
    const read = tokens - budget.tokens;
    tokens = budget.tokens;
    if (reading) reading.at = Date.now();
    return work.spend(read * UNITS_PER_TOKEN);
  };
  let result: Result | undefined;
  let error: unknown;
  try {
    result = await read();
  } catch (thrown) {
    error = thrown;
  }
  const spent = bytes - budget.bytes;
  await work.spend((tokens - budget.tokens) * UNITS_PER_TOKEN + spent * UNITS_PER_BYTE);
  // The reader passes over what it could not read of a page: what has run out tells.
  if (budget.tokens < 0) throw new UnreadableFile("too_large", "A page of the file takes too much work to read.");
  expanded.take(spent);
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
  file: Awaited<ReturnType<PdfReader["getDocument"]>["promise"]>,
  number: number,
  allowance: Allowance,
): Promise<string> {
  const page = await file.getPage(number);
  let text = "";
  try {
    for await (const { items } of page.streamTextContent()) {
      for (const item of items) {
        if (!("str" in item)) continue;
        const piece = item.hasEOL ? `${item.str}\n` : item.str;
        allowance.take(piece.length);
        text += piece;
      }
    }
  } finally {
    page.cleanup();
  }
  // A PDF may itself contain text that is not well-formed UTF-16, and U+0000.
  return text.replaceAll("\0", "").toWellFormed().trim();
}
