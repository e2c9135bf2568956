import { env } from "cloudflare:workers";
import { linesOf } from "@responses-edge/bounded-io/body";
import { LongWork } from "@responses-edge/bounded-io/long-work";
import {
  type AboutFile,
  DEFAULT_LIMITS,
  drawPages,
  isShortText,
  type PagePicture,
  type PicturesWanted,
  type TextLimits,
  type TextPage,
  textOf,
  UnreadableFile,
} from "@responses-edge/file-text";
import { ApiError } from "@responses-edge/responses-api/errors";
import { FILE_HEADER, headerOf, type LastLine, type ReadLine } from "../../../contract/file-reading.ts";

/**
 * Reads files where a hostile one does no harm. Under `serve` that is a process of its own, which its launcher bounds and
 * ends (`cli/serve/file-reading.ts`). Cloudflare bounds each request itself, so that files are read in place there.
 */

/** The binding that `serve` adds (`cli/serve/workerd.ts`): its launcher, as a service. */
const { FILE_READER } = env as { FILE_READER?: Pick<Fetcher, "fetch"> };

/** A file is read this often: the process that reads it, and one that waits, may die for reasons of their own. */
const MAX_READS = 3;

export interface FileToPages {
  bytes: Uint8Array;
  about: AboutFile;
  tenant: string;
  /** The bounds of the cost, where they differ from `DEFAULT_LIMITS`. */
  limits?: Partial<TextLimits>;
}

/**
 * The text of a file, page by page. Throws an UnreadableFile for a file without readable text, and the 503 of a server
 * that cannot read files now.
 *
 * @param reader The service that reads files elsewhere; undefined reads them in place.
 */
export function readText(file: FileToPages, reader = FILE_READER): AsyncGenerator<TextPage> {
  const { bytes, about, tenant, limits } = file;
  if (!reader || isShortText(bytes, about)) return textOf(bytes, about, limits, new LongWork(tenant));
  const maxLineBytes = MAX_ESCAPED * (limits?.maxTextBytes ?? DEFAULT_LIMITS.maxTextBytes) + MAX_FRAME;
  return readElsewhere<TextPage>(file, reader, maxLineBytes);
}

/** The memory for drawing, in a process of its own and in the Worker: an isolate of Cloudflare has 128 MB. Bytes. */
const DRAWING_MEMORY = { elsewhere: 384 * 1024 * 1024, inPlace: 64 * 1024 * 1024 };

/** Pages to draw, as `PicturesWanted`. */
type Drawing = Pick<PicturesWanted, "pages" | "edge">;

/**
 * Pictures of a PDF's pages, in the order of `pages`; null for one that cannot be drawn, and none for those after one that took too much
 * time or memory. Throws the 503 of a server that cannot read files now.
 *
 * @param reader As in `readText`.
 */
export async function* drawnPages(
  file: FileToPages,
  { pages, edge }: Drawing,
  reader = FILE_READER,
): AsyncGenerator<PagePicture> {
  const { bytes, tenant } = file;
  const maxMemory = reader ? DRAWING_MEMORY.elsewhere : DRAWING_MEMORY.inPlace;
  const wanted = { pages, edge, maxMemory };
  if (!reader) return yield* drawPages(bytes, wanted, new LongWork(tenant));
  try {
    yield* readElsewhere<PagePicture>(file, reader, edge * edge * MAX_PIXEL_BYTES + MAX_FRAME, wanted);
  } catch (error) {
    if (!(error instanceof UnreadableFile)) throw error;
  }
}

/** A pixel of a JPEG as base64, at most. */
const MAX_PIXEL_BYTES = 4;

async function* readElsewhere<Page extends TextPage | PagePicture>(
  { bytes, about, tenant, limits = {} }: FileToPages,
  reader: Pick<Fetcher, "fetch">,
  maxLineBytes: number,
  pictures?: PicturesWanted,
): AsyncGenerator<Page> {
  const filename = about.filename.slice(-MAX_ABOUT);
  const mimeType = about.mimeType?.slice(0, MAX_ABOUT);
  const headers = { [FILE_HEADER]: headerOf({ tenant, filename, mimeType, limits, ...(pictures && { pictures }) }) };
  let given = 0;
  for (let reads = 0; reads < MAX_READS; reads += 1) {
    const answer = await reader.fetch("http://file-reader/", { method: "POST", headers, body: bytes }).catch(noReader);
    if (!(answer.ok && answer.body)) throw noReader();
    let read = 0;
    let last: LastLine | undefined;
    // To its end: a process whose answer is not wanted any more is killed.
    for await (const line of whole(linesOf(answer.body, maxLineBytes))) {
      if (!("page" in line)) last = line;
      else {
        read += 1;
        if (read <= given) continue;
        given = read;
        yield line as Page;
      }
    }
    if (last && "end" in last) return;
    if (last && "unreadable" in last) throw new UnreadableFile(last.unreadable.code, last.unreadable.message);
  }
  throw new UnreadableFile("invalid_file", "The file cannot be read: the process that reads it dies.");
}

/** The end of a name matters, and the beginning of a media type. UTF-16 units. */
const MAX_ABOUT = 255;

/** A byte of text as JSON takes six at most, and the rest of a line of a page less than this. */
const MAX_ESCAPED = 6;
const MAX_FRAME = 1_000;

/** Lines up to where the answer ends or breaks off. */
async function* whole(lines: AsyncGenerator<Uint8Array>): AsyncGenerator<ReadLine> {
  const decoder = new TextDecoder();
  for (;;) {
    const line = await lines.next().catch(() => undefined);
    if (!line || line.done) return;
    yield JSON.parse(decoder.decode(line.value)) as ReadLine;
  }
}

function noReader(): never {
  const message = "Files cannot be read at the moment. Please retry in a few seconds.";
  throw new ApiError({ status: 503, message, code: "file_reader_unavailable", headers: { "retry-after": "5" } });
}
