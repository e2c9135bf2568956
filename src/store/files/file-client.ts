import { type TextPage, UnreadableFile } from "@responses-edge/file-text";
import { ApiError } from "../../protocol/errors.ts";
import { newFileKey, parseFileId } from "../../protocol/ids.ts";
import { checkDisk } from "../free-disk.ts";
import { type PermitOwner, Permits } from "../memory.ts";
import type { Result } from "../rpc.ts";
import type { FileObjects } from "./bindings.ts";
import { type FileBytes, fileRequest, PIECE_BYTES } from "./file-bytes.ts";
import type { FileDirectory } from "./file-directory.ts";
import type { FilePage, FileQuery, FileRecord } from "./file-table.ts";

/** What a file that is received is to be, beside its bytes. */
export type FileAbout = Pick<FileRecord, "filename" | "mimeType" | "purpose" | "createdAt" | "expiresAt">;

/** A directory as its callers see it. (The type of a stub gives an answer that is a union as a union of promises.) */
type DirectoryStub = {
  [Name in "begin" | "touch" | "commit" | "record" | "remove" | "removeSome" | "use" | "disuse"]: (
    ...args: Parameters<FileDirectory[Name]>
  ) => Promise<Awaited<ReturnType<FileDirectory[Name]>>>;
} & { list(query: FileQuery): Promise<Result<FilePage>> };

/** A tenant's files, as the Worker and objects see them. An id is looked up in the tenant's own directory: another tenant's is in none. */
export class FileClient {
  readonly #tenant: string;
  readonly #objects: FileObjects;

  constructor({ FILE_DIRECTORIES, FILE_BYTES }: FileObjects, tenant: string) {
    this.#tenant = tenant;
    this.#objects = { FILE_DIRECTORIES, FILE_BYTES };
  }

  /** What is known of a file. Throws the 404 of one that is unknown, deleted, expired or another tenant's. */
  async record(id: string): Promise<FileRecord> {
    const key = parseFileId(id);
    const record = key === undefined ? null : await this.#directory.record(key);
    if (!record) throw fileNotFound(id);
    return record;
  }

  /** A file and its bytes, as they are read. Throws as `record` does. A body that ends too early was removed meanwhile. */
  async content(id: string): Promise<{ record: FileRecord; body: ReadableStream<Uint8Array> }> {
    const record = await this.record(id);
    const { body, status } = await this.#bytes(record.key).fetch(fileRequest("content", record));
    if (status !== 200 || !body) throw fileNotFound(id);
    return { record, body: body.pipeThrough(new FixedLengthStream(record.bytes)) };
  }

  /**
   * The text of a file, page by page, as it was read when somebody first asked for it. Throws as `record` does, an UnreadableFile where it
   * has none, and the 503 and the 429 of a server that has no memory for reading it now.
   */
  async *text(id: string): AsyncGenerator<TextPage, void> {
    const record = await this.record(id);
    const answer = await this.#bytes(record.key).fetch(fileRequest("text", record));
    if (answer.status === 404) throw fileNotFound(id);
    if (answer.status === 503) throw new ApiError(await answer.json());
    if (answer.status === 422) {
      const { code, message } = await answer.json<Pick<UnreadableFile, "code" | "message">>();
      throw new UnreadableFile(code, message);
    }
    let line = "";
    for await (const text of answer.body?.pipeThrough(new TextDecoderStream()) ?? []) {
      const [first = "", ...others] = text.split("\n");
      line += first;
      for (const next of others) {
        yield JSON.parse(line) as TextPage;
        line = next;
      }
    }
  }

  async list(query: FileQuery): Promise<FilePage> {
    const page = await this.#directory.list(query);
    if (!page.ok) throw new ApiError(page.error);
    return page.value;
  }

  /** Removes a file. Throws as `record` does. */
  async remove(id: string): Promise<void> {
    const key = parseFileId(id);
    if (key === undefined || !(await this.#directory.remove(key))) throw fileNotFound(id);
  }

  /** Removes at most `limit` files. Gives how many. */
  removeSome(limit: number): Promise<number> {
    return this.#directory.removeSome(limit);
  }

  /** Notes that a file is in a vector store, which is then told when the file is removed. Throws as `record` does. */
  async usedBy(id: string, store: string): Promise<void> {
    const key = parseFileId(id);
    if (key === undefined || !(await this.#directory.use(key, store))) throw fileNotFound(id);
  }

  /** Notes that a file is in a vector store no more. */
  async notUsedBy(id: string, store: string): Promise<void> {
    const key = parseFileId(id);
    if (key !== undefined) await this.#directory.disuse(key, store);
  }

  /** Begins to receive a file of the key `owner`. Throws the 507 of a full disk. */
  async receive(owner: string, limits: ReceivedLimits): Promise<ReceivedFile> {
    checkDisk();
    const key = newFileKey();
    await this.#directory.begin(key, owner);
    return new ReceivedFile(key, this.#directory, this.#bytes(key), limits);
  }

  get #directory(): DirectoryStub {
    return this.#objects.FILE_DIRECTORIES.getByName(this.#tenant) as unknown as DirectoryStub;
  }

  #bytes(key: string): DurableObjectStub<FileBytes> {
    return this.#objects.FILE_BYTES.getByName(`${this.#tenant}:${key}`);
  }
}

interface ReceivedLimits extends PermitOwner {
  config: PermitOwner["config"] & { files: { maxFileBytes: number } };
}

/** How often the directory hears that a file still comes: after so many bytes, or so much time. */
const TOUCH_BYTES = 16 * PIECE_BYTES;
const TOUCH_MS = 60_000;

/** The buffer of a file begins so small: most files are. */
const FIRST_BUFFER_BYTES = 64 * 1024;

/** A file that is being received. No more than one piece of it is in memory. Nobody sees it before `end`; without that it is removed. */
export class ReceivedFile implements Disposable {
  readonly #key: string;
  readonly #directory: DirectoryStub;
  readonly #bytes: Pick<DurableObjectStub<FileBytes>, "append">;
  readonly #permits: Permits;
  readonly #maxBytes: number;
  #buffer = new Uint8Array(FIRST_BUFFER_BYTES);
  #buffered = 0;
  #length = 0;
  #pieces = 0;
  #noted = 0;
  #touchedAt = Date.now();

  constructor(
    key: string,
    directory: DirectoryStub,
    bytes: Pick<DurableObjectStub<FileBytes>, "append">,
    limits: ReceivedLimits,
  ) {
    this.#key = key;
    this.#directory = directory;
    this.#bytes = bytes;
    this.#maxBytes = limits.config.files.maxFileBytes;
    this.#permits = new Permits("body", limits, this.#buffer.length);
  }

  /** Takes bytes, which may be overwritten when it has ended. Throws the 413 of a file that is too large. */
  async write(bytes: Uint8Array): Promise<void> {
    this.#length += bytes.length;
    if (this.#length > this.#maxBytes) throw fileTooLarge(this.#maxBytes);
    for (let at = 0; at < bytes.length; ) {
      if (this.#buffered === PIECE_BYTES) await this.#flush();
      this.#grow(bytes.length - at);
      const part = bytes.subarray(at, at + this.#buffer.length - this.#buffered);
      this.#buffer.set(part, this.#buffered);
      this.#buffered += part.length;
      at += part.length;
    }
    if (this.#length > this.#noted || Date.now() - this.#touchedAt > TOUCH_MS) await this.#touch();
  }

  /** Makes a file of it. Throws as `write` does. */
  async end(about: FileAbout): Promise<FileRecord> {
    // An empty file is one empty piece.
    if (this.#buffered > 0 || this.#pieces === 0) await this.#flush();
    const record: FileRecord = { ...about, key: this.#key, bytes: this.#length, parts: [0] };
    if (!(await this.#directory.commit(record))) throw givenUp();
    return record;
  }

  /** Removes what was received. */
  async discard(): Promise<void> {
    await this.#directory.remove(this.#key);
  }

  [Symbol.dispose](): void {
    this.#permits[Symbol.dispose]();
  }

  /** Makes the buffer larger where so many more bytes would not fit, up to a piece. */
  #grow(more: number): void {
    const wanted = Math.min(PIECE_BYTES, this.#buffered + more);
    if (wanted <= this.#buffer.length) return;
    const length = Math.min(PIECE_BYTES, Math.max(2 * this.#buffer.length, wanted));
    this.#permits.resize(length);
    const larger = new Uint8Array(length);
    larger.set(this.#buffer.subarray(0, this.#buffered));
    this.#buffer = larger;
  }

  async #flush(): Promise<void> {
    // A view is sent with all of its buffer.
    await this.#bytes.append(0, this.#pieces, this.#buffer.slice(0, this.#buffered));
    this.#pieces += 1;
    this.#buffered = 0;
  }

  async #touch(): Promise<void> {
    this.#noted = this.#length + TOUCH_BYTES;
    this.#touchedAt = Date.now();
    if (!(await this.#directory.touch(this.#key, this.#noted))) throw givenUp();
  }
}

/** The 404 of a file that is unknown, deleted, expired or another tenant's: always the same. */
export function fileNotFound(id: string): ApiError {
  return new ApiError({
    status: 404,
    message: `File with id '${id}' not found.`,
    param: "file_id",
    code: "file_not_found",
  });
}

function fileTooLarge(maxBytes: number): ApiError {
  const message = `The file is too large: this server takes files of up to ${maxBytes} bytes (MAX_FILE_BYTES).`;
  return new ApiError({ status: 413, message, param: "file", code: "file_too_large" });
}

/** The 409 of a file whose sender was not heard of for so long that what has come of it is removed. */
function givenUp(): ApiError {
  const message = "The upload was given up, because nothing of it has come for too long. Please send the file again.";
  return new ApiError({ status: 409, message, param: "file", code: "upload_abandoned" });
}
