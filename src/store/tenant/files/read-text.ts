import { env } from "cloudflare:workers";
import { linesOf } from "@responses-edge/bounded-io/body";
import { LongWork } from "@responses-edge/bounded-io/long-work";
import {
  type AboutFile,
  DEFAULT_LIMITS,
  isShortText,
  type TextLimits,
  type TextPage,
  textOf,
  UnreadableFile,
} from "@responses-edge/file-text";
import { ApiError } from "@responses-edge/responses-api/errors";
import { FILE_HEADER, headerOf, type LastLine, type TextLine } from "../../../contract/file-reading.ts";

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
  if (reader && !isShortText(bytes, about)) return readElsewhere(file, reader);
  return textOf(bytes, about, limits, new LongWork(tenant));
}

async function* readElsewhere(
  { bytes, about, tenant, limits = {} }: FileToPages,
  reader: Pick<Fetcher, "fetch">,
): AsyncGenerator<TextPage> {
  const filename = about.filename.slice(-MAX_ABOUT);
  const mimeType = about.mimeType?.slice(0, MAX_ABOUT);
  const headers = { [FILE_HEADER]: headerOf({ tenant, filename, mimeType, limits }) };
  const maxLineBytes = MAX_ESCAPED * (limits.maxTextBytes ?? DEFAULT_LIMITS.maxTextBytes) + MAX_FRAME;
  let given = 0;
  for (let reads = 0; reads < MAX_READS; reads += 1) {
    const answer = await reader.fetch("http://file-reader/", { method: "POST", headers, body: bytes }).catch(noReader);
    if (!(answer.ok && answer.body)) throw noReader();
    let read = 0;
    let last: LastLine | undefined;
    // To its end: a process whose answer is not wanted any more is killed.
    for await (const line of whole(linesOf(answer.body, maxLineBytes))) {
      if (!("text" in line)) last = line;
      else {
        read += 1;
        if (read <= given) continue;
        given = read;
        yield line;
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
async function* whole(lines: AsyncGenerator<Uint8Array>): AsyncGenerator<TextLine> {
  const decoder = new TextDecoder();
  for (;;) {
    const line = await lines.next().catch(() => undefined);
    if (!line || line.done) return;
    yield JSON.parse(decoder.decode(line.value)) as TextLine;
  }
}

function noReader(): never {
  const message = "Files cannot be read at the moment. Please retry in a few seconds.";
  throw new ApiError({ status: 503, message, code: "file_reader_unavailable", headers: { "retry-after": "5" } });
}
