import { LongWork } from "@responses-edge/bounded-io/long-work";
import { type TextPage, UnreadableFile } from "@responses-edge/file-text";
import { imageFormatOf } from "@responses-edge/hosted-tools/image-generation";
import { ApiError, invalidRequest } from "@responses-edge/responses-api/errors";
import { type FilePicture, fileDataOf, type InputPart } from "@responses-edge/responses-api/items/parts";
import { type InputItem, partsOf } from "@responses-edge/responses-api/items/registry";
import { pictureReader } from "../assembly/ocr.ts";
import { type FileBytes, fetchFile, tooLarge } from "../assembly/remote-file.ts";
import { readText } from "../store/tenant/files/read-text.ts";
import { type Recognition, readWithScans } from "../store/tenant/files/scanned-pages.ts";
import { PagePictures, type ShownPages } from "./page-pictures.ts";
import type { Caller } from "./transport.ts";

/**
 * The text that a model gets of the files and images that a request names: `input_file` by its data, URL or id, and
 * `input_image` by its id. They are read once, when the request is accepted, and their text is stored with the item:
 * later turns have the same prompt, even if the file was deleted.
 */

/** The most files of one request. */
const MAX_FILES = 32;

/** Rows of a sheet that a model is given: as many as OpenAI gives. A vector store has all of them. */
const MAX_ROWS = 1_000;

/** A part whose file is to be read, and its position. */
interface UnreadPart {
  /** The item's index. */
  index: number;
  field: "content" | "output";
  /** The part's index in the item. */
  at: number;
  part: ReadablePart;
}

type ReadablePart = Extract<InputPart, { type: "input_file" | "input_image" }>;
type FilePart = Extract<InputPart, { type: "input_file" }>;

/** Items whose files were read. */
export interface ReadItems {
  items: InputItem[];
  /** UTF-16 units of all that was read. */
  length: number;
}

interface Reading {
  signal: AbortSignal;
  /** Takes the memory for a number of bytes, and may throw. */
  hold?: (length: number) => void;
  /** Tells whether the model reads images. Called only if there are files, and once. */
  sees: () => Promise<boolean>;
}

/**
 * Reads the files that the items name. `field` is the field of the items. Throws the 400 of a file that does not exist, cannot be read, or is too large; it names the field.
 */
export async function readInputFiles(
  caller: Caller,
  items: InputItem[],
  { field, signal, hold, sees }: Reading & { field: "input" | "items" },
): Promise<ReadItems> {
  const unread: UnreadPart[] = [];
  for (const [index, item] of items.entries()) {
    const { field: name, parts } = partsOf(item);
    for (const [at, part] of parts.entries()) {
      if ((part.type === "input_file" || part.type === "input_image") && isUnread(part))
        unread.push({ index, field: name, at, part });
    }
  }
  if (unread.length === 0) return { items, length: 0 };
  if (unread.length > MAX_FILES) throw invalidRequest(field, `A request may have at most ${MAX_FILES} files.`);
  const seesImages = unread.some(({ part }) => part.type === "input_file") && (await sees());
  const reader = new FileReader(caller, { signal, hold, seesImages });
  const read = items.slice();
  for (const { index, field: name, at, part } of unread) {
    const content = await reader.read(part, `${field}[${index}].${name}[${at}]`);
    read[index] = withPart(read[index] as InputItem, name, at, { ...part, ...content });
  }
  return { items: read, length: reader.length };
}

/** The model server gets an image's URL as it is. */
function isUnread(part: ReadablePart): boolean {
  return part.type === "input_file" || part.file_id !== undefined;
}

function withPart(item: InputItem, field: "content" | "output", at: number, part: ReadablePart): InputItem {
  const { parts } = partsOf(item);
  return { ...item, [field]: parts.with(at, part) } as InputItem;
}

/** The content of a part, as `items/parts.ts` has it. */
type Content = Required<Pick<ReadablePart, "file_content">> & Pick<ReadablePart, "file_pictures">;

class FileReader {
  readonly #caller: Caller;
  readonly #signal: AbortSignal;
  readonly #hold: ((length: number) => void) | undefined;
  readonly #work: LongWork;
  /** Undefined for a model that does not see. */
  readonly #pictures: PagePictures | undefined;
  /** Reads scanned pages for such a model. Undefined without a model for it. */
  readonly #ocr: Recognition | undefined;
  /** UTF-16 units of all that was read. */
  length = 0;

  constructor(
    caller: Caller,
    { signal, hold, seesImages }: Pick<Reading, "signal"> & { hold: Reading["hold"]; seesImages: boolean },
  ) {
    this.#caller = caller;
    this.#signal = signal;
    this.#hold = hold;
    this.#work = new LongWork(caller.tenant);
    const { files } = caller.config;
    this.#pictures = seesImages && PagePictures.isOn(files) ? new PagePictures(files) : undefined;
    const read = this.#pictures ? undefined : pictureReader(caller.config, caller.tenant, signal);
    this.#ocr = read && { read, maxPages: files.maxOcrPages };
  }

  /** Gives what the model reads of the part at `path`. */
  async read(part: ReadablePart, path: string): Promise<Content> {
    const { maxReadBytes, maxImageBytes } = this.#caller.config.files;
    const content =
      part.type === "input_image"
        ? { file_content: await this.#image(part.file_id ?? "", maxImageBytes, `${path}.file_id`) }
        : part.file_id !== undefined
          ? await this.#stored(part.file_id, part, maxReadBytes, `${path}.file_id`)
          : part.file_url !== undefined
            ? await this.#remote(part.file_url, part, maxReadBytes, `${path}.file_url`)
            : await this.#given(part.file_data ?? "", part, `${path}.file_data`);
    this.length += content.file_content.length;
    for (const { url } of content.file_pictures ?? []) this.length += url.length;
    this.#hold?.(this.length);
    return content;
  }

  async #image(id: string, maxBytes: number, param: string): Promise<string> {
    const { bytes } = await this.#bytesOf(id, maxBytes, param);
    const format = imageFormatOf(bytes);
    if (format === undefined) {
      throw invalidRequest(param, "Expected an image: PNG, JPEG, GIF or WebP.", "invalid_image");
    }
    await this.#work.spend(bytes.length * UNITS_PER_BYTE);
    return `data:image/${format};base64,${bytes.toBase64()}`;
  }

  async #stored(id: string, { filename, detail }: FilePart, maxBytes: number, param: string): Promise<Content> {
    const file = await this.#bytesOf(id, maxBytes, param);
    return await this.#content({ ...file, filename: filename ?? file.filename }, detail, param);
  }

  async #remote(url: string, { filename, detail }: FilePart, maxBytes: number, param: string): Promise<Content> {
    const hold = (length: number) => this.#hold?.(this.length + length);
    const file = await fetchFile(url, { config: this.#caller.config, signal: this.#signal, maxBytes, hold, param });
    return await this.#content({ ...file, filename: filename ?? file.filename }, detail, param);
  }

  async #given(data: string, { filename = "unnamed", detail }: FilePart, param: string): Promise<Content> {
    const { base64 = "", mimeType } = fileDataOf(data) ?? {};
    await this.#work.spend(base64.length * UNITS_PER_BYTE);
    return await this.#content({ bytes: Uint8Array.fromBase64(base64), filename, mimeType }, detail, param);
  }

  /** The text of a file as it stands in a prompt, and pictures of its pages for a model that sees. */
  async #content(
    { bytes, filename, mimeType }: FileBytes,
    detail: FilePart["detail"],
    param: string,
  ): Promise<Content> {
    const { maxReadBytes, maxReadText, maxReadPages } = this.#caller.config.files;
    const limits = {
      maxBytes: maxReadBytes,
      maxTextBytes: Math.max(0, maxReadText - this.length),
      maxPages: maxReadPages,
      maxRows: MAX_ROWS,
    };
    const file = { bytes, about: { filename, mimeType }, tenant: this.#caller.tenant, limits };
    const pages: TextPage[] = [];
    let fault: UnreadableFile | undefined;
    try {
      for await (const page of this.#ocr ? readWithScans(file, this.#ocr) : readText(file)) pages.push(page);
    } catch (error) {
      if (!(error instanceof UnreadableFile)) throw error;
      fault = error;
    }
    // The pages of a scan are known all the same.
    const isScan = fault?.code === "unsupported_file" && pages.some(({ picture }) => picture !== undefined);
    if (fault && !(isScan && this.#pictures)) throw unreadable(fault, param, isScan ? BLIND : "");
    const read = pages.reduce((sum, { text }) => sum + text.length, 0);
    if (this.#ocr && read > limits.maxTextBytes) throw tooLong(maxReadText, param);
    const shown = await this.#pictures?.of(file, pages, detail);
    if (fault && shown?.pictures.size === 0) throw unreadable(fault, param, shown.notes.join(" "));
    return contentOf(filename, pages, shown);
  }

  /** A file of the tenant's. Throws the 400 of one that does not exist: unknown, deleted and other tenants' files look alike. */
  async #bytesOf(id: string, maxBytes: number, param: string): Promise<FileBytes> {
    try {
      const { record, body } = await this.#caller.files.content(id);
      if (record.bytes > maxBytes) {
        await body.cancel();
        throw tooLarge(maxBytes, param);
      }
      this.#hold?.(this.length + record.bytes);
      const bytes = new Uint8Array(await new Response(body).arrayBuffer());
      return { bytes, filename: record.filename, mimeType: record.mimeType ?? undefined };
    } catch (error) {
      if (error instanceof ApiError && error.status === 404)
        throw invalidRequest(param, error.message, "file_not_found");
      throw error;
    }
  }
}

/** Decoding or encoding a kilobyte of base64 takes about two microseconds. */
const UNITS_PER_BYTE = 0.002;

const MAX_NAME_LENGTH = 255;

/** The name of a file, then its pages, each under its number and before its picture, then the notes on them. */
function contentOf(filename: string, pages: readonly TextPage[], shown?: ShownPages): Content {
  const { pictures, notes = [] } = shown ?? {};
  const file_pictures: FilePicture[] = [];
  const head = `[file: ${filename.replace(/\p{Cc}/gu, " ").slice(0, MAX_NAME_LENGTH)}]\n`;
  const parts: string[] = [];
  let { length } = head;
  for (const { page, text: said } of pages) {
    const part = page === null ? said : `[page ${page}]\n${said}\n`;
    parts.push(part);
    length += part.length + 1;
    const url = page === null ? undefined : pictures?.get(page);
    if (url !== undefined) file_pictures.push({ after: length, url });
  }
  return {
    file_content: head + [...parts, ...notes].join("\n").trimEnd(),
    ...(file_pictures.length > 0 && { file_pictures }),
  };
}

/** Says how a scan can be read. */
const BLIND =
  "Use a model that reads images, send its pages as input_image to one, or recognise its text (OCR) first. A model reads images if its card, or CODEX_MODELS, names 'image' among its input_modalities.";

function tooLong(maxText: number, param: string): ApiError {
  return invalidRequest(param, `The files have more than ${maxText} bytes of text.`, "file_too_large");
}

function unreadable({ code, message }: UnreadableFile, param: string, hint = ""): ApiError {
  return invalidRequest(param, `${message} ${hint}`.trim(), code === "too_large" ? "file_too_large" : code);
}
