import { isPdf, isWithoutText, type TextPage, UnreadableFile } from "@responses-edge/file-text";
import { ApiError } from "@responses-edge/responses-api/errors";
import type { ReadPicture } from "../../../assembly/ocr.ts";
import { drawnPages, type FileToPages, readText } from "./read-text.ts";

/** Reads files whose scanned pages a model has to read from their pictures (`src/assembly/ocr.ts`). */

export interface Recognition {
  read: ReadPicture;
  /** The most pages of a file. */
  maxPages: number;
  /** The text of a page that was read before, perhaps by a process that has died; undefined if it was not. */
  known?(page: number): string | undefined;
  /** Takes the text of a page, so that it is not read again. */
  keep?(page: number, text: string): void;
}

/** The longer edge of a picture that is read, in pixels: an A4 page at 130 dots per inch. */
const EDGE = 1_536;

/** Pages that are drawn, and then read, together: their pictures are in memory, and no process that draws waits for a model. */
const AT_ONCE = 4;

/**
 * The text of a file as `readText` gives it, with the text of those pages that have none, or of which a part cannot be read, from their pictures.
 * Pages beyond the bound, and those that cannot be read, are told at the end of the last page. Throws as `readText` does, and as `read`
 * does when the model does not answer.
 */
export async function* readWithScans(
  file: FileToPages,
  { read, maxPages, known, keep }: Recognition,
): AsyncGenerator<TextPage> {
  const pages: TextPage[] = [];
  let fault: UnreadableFile | undefined;
  try {
    for await (const page of readText(file)) pages.push(page);
  } catch (error) {
    if (!(error instanceof UnreadableFile)) throw error;
    fault = error;
  }
  const scanned = isPdf(file.bytes) ? pages.flatMap(({ page, picture }) => (picture === "needed" && page) || []) : [];
  if (fault && (fault.code !== "unsupported_file" || scanned.length === 0)) throw fault;
  const texts = new Map<number, string>();
  const wanted = scanned.slice(0, maxPages);
  for (const page of wanted) {
    const text = known?.(page);
    if (text !== undefined) texts.set(page, text);
  }
  const unread = wanted.filter((page) => !texts.has(page));
  for (let at = 0; at < unread.length; at += AT_ONCE) {
    const drawn = await Array.fromAsync(drawnPages(file, { pages: unread.slice(at, at + AT_ONCE), edge: EDGE }));
    await Promise.all(
      drawn.map(async ({ page, jpeg }) => {
        const text = jpeg === null ? undefined : await read(jpeg).catch(refused);
        if (text === undefined) return;
        texts.set(page, text);
        keep?.(page, text);
      }),
    );
  }
  if (fault && [...texts.values()].every((text) => text === "")) throw fault;
  const left = scanned.length - wanted.length;
  const note = `[${left} further pages without text were not read from their pictures: the bound is ${maxPages} pages.]`;
  for (const [index, page] of pages.entries()) {
    const told = left > 0 && index === pages.length - 1 ? `\n${note}` : "";
    const found = page.page === null ? undefined : texts.get(page.page);
    const isPartial = page.isPartial === true && !found;
    yield { page: page.page, text: recognised(page, found) + told, ...(isPartial && { isPartial }) };
  }
}

/** The text of a page with what was read from its picture, which is marked as such. */
function recognised({ text }: TextPage, read: string | undefined): string {
  if (read === undefined) return text;
  if (read === "") return `${text}\n[Nothing was read from its picture.]`;
  const marked = `[Read from a picture of this page:]\n${read}`;
  return isWithoutText(text) ? marked : `${text}\n${marked}`;
}

/** Nothing, for a picture that the model server refuses. Throws all other faults. */
function refused(error: unknown): undefined {
  if (!(error instanceof ApiError) || error.status >= 500) throw error;
}
