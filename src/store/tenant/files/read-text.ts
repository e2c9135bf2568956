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
import { BOUNDED_TASKS, linesOfTask, type TaskService } from "../../../assembly/bounded-tasks.ts";

/** Reads files where a hostile one does no harm (`src/assembly/bounded-tasks.ts`). */

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
export function readText(file: FileToPages, reader = BOUNDED_TASKS): AsyncGenerator<TextPage> {
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
  reader = BOUNDED_TASKS,
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
  reader: TaskService,
  maxLineBytes: number,
  pictures?: PicturesWanted,
): AsyncGenerator<Page> {
  const filename = about.filename.slice(-MAX_ABOUT);
  const mimeType = about.mimeType?.slice(0, MAX_ABOUT);
  const task = { type: "file", tenant, filename, mimeType, limits, ...(pictures && { pictures }) } as const;
  const end = yield* linesOfTask<Page>(reader, task, bytes as Uint8Array<ArrayBuffer>, maxLineBytes);
  if (!end) throw new UnreadableFile("invalid_file", "The file cannot be read: the process that reads it dies.");
  if ("unreadable" in end) throw new UnreadableFile(end.unreadable.code, end.unreadable.message);
  if ("passed" in end) throw new UnreadableFile("too_large", `The file takes too much ${end.passed} to read.`);
}

/** The end of a name matters, and the beginning of a media type. UTF-16 units. */
const MAX_ABOUT = 255;

/** A byte of text as JSON takes six at most, and the rest of a line of a page less than this. */
const MAX_ESCAPED = 6;
const MAX_FRAME = 1_000;
