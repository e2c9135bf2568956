import type { PagePicture, PicturesWanted, TextLimits, TextPage, UnreadableFile } from "@responses-edge/file-text";

/**
 * How a Worker under `serve` has a file read by a process of its own (`cli/serve/file-reading.ts`): a POST with the file's
 * bytes, and an answer with a line of JSON for each page, its text or its picture, and a last line that is no page.
 */

/** The header with what is known of the file: a `FileToRead` as JSON, percent-encoded. */
export const FILE_HEADER = "x-file";

export interface FileToRead {
  /** The owner: tenants' files are read in turn. */
  tenant: string;
  filename: string;
  mimeType?: string | undefined;
  limits: Partial<TextLimits>;
  /** Has pages drawn. Absent: the text is read. */
  pictures?: PicturesWanted;
}

/** The last line: all pages were sent; the file is unreadable; or the process died, and another one may read the file. */
export type LastLine = { end: true } | { unreadable: Pick<UnreadableFile, "code" | "message"> } | { died: true };

export type ReadLine = TextPage | PagePicture | LastLine;

/** The header's value for a file. */
export function headerOf(file: FileToRead): string {
  return encodeURIComponent(JSON.stringify(file));
}

/** The file that a header's value describes. */
export function fileOf(header: string | null | undefined): FileToRead {
  return JSON.parse(decodeURIComponent(header ?? "")) as FileToRead;
}
