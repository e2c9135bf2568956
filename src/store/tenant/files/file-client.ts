import { type TextPage, UnreadableFile } from "@responses-edge/file-text";
import { ApiError, fileNotFound, notFound } from "@responses-edge/responses-api/errors";
import { fileId, newFileKey, parseFileId, parseUploadId } from "@responses-edge/responses-api/ids";
import { loadConfig } from "../../../config/index.ts";
import type { FileLimits } from "../../../contract/grants.ts";
import type { Env } from "../../../env.ts";
import type { Stub } from "../../objects/objects.ts";
import { checkDisk } from "../../objects/process-state.ts";
import { unwrap } from "../../objects/rpc.ts";
import { bucketFault } from "./bucket.ts";
import type { BytesAtRest } from "./bytes-at-rest.ts";
import { bytesInRows } from "./bytes-in-rows.ts";
import { configuredBuckets } from "./configured-buckets.ts";
import { ContainerClient } from "./container-client.ts";
import { askFile } from "./file-bytes.ts";
import type { FilePage, FileQuery, FileRecord } from "./file-table.ts";
import { givenUp, ReceivedPart, type Receiver } from "./received-part.ts";
import { uploadOver, uploadsFull } from "./upload-faults.ts";
import type { UploadRecord } from "./upload-table.ts";

/** The attributes of a received file, without its bytes. */
export type FileAbout = Pick<FileRecord, "filename" | "mimeType" | "purpose" | "createdAt" | "expiresAt" | "container">;

/**
 * A tenant's files, as the Worker and objects see them. An id is looked up in the tenant's own directory, which has no
 * other tenant's files.
 */
export class FileClient {
  readonly #tenant: string;
  readonly #objects: Env;

  constructor(objects: Env, tenant: string) {
    this.#tenant = tenant;
    this.#objects = objects;
  }

  /** The tenant's containers. */
  get containers(): ContainerClient {
    return new ContainerClient(this.#objects, this.#tenant);
  }

  /** Gives the record of a file. Throws the 404 of one that is unknown, deleted, expired or another tenant's. */
  async record(id: string): Promise<FileRecord> {
    const key = parseFileId(id);
    const record = key === undefined ? null : await this.#directory.record(key);
    if (!record) throw fileNotFound(id);
    return record;
  }

  /** A file and its bytes as a stream. Throws as `record` does. The body ends early if the file was removed in the meantime. */
  async content(id: string): Promise<{ record: FileRecord; body: ReadableStream<Uint8Array> }> {
    const record = await this.record(id);
    return { record, body: await this.#read(record, id) };
  }

  /**
   * The text of a file, page by page. The first request for it reads the file. Throws as `record` does, an
   * UnreadableFile if it has no text, and the 503 and the 429 of a server without memory to read it now.
   */
  async *text(id: string): AsyncGenerator<TextPage, void> {
    const record = await this.record(id);
    const object = this.#objects.FILE_BYTES.getByName(this.#tenant, record.key);
    const answer = await askFile(object, "text", record);
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
    return unwrap(await this.#directory.list(query));
  }

  /** Removes a file. Throws as `record` does. */
  async remove(id: string): Promise<void> {
    const key = parseFileId(id);
    if (key === undefined || !unwrap(await this.#directory.remove(key))) throw fileNotFound(id);
  }

  /** Removes files and uploads: at most `limit`, and as many parts. Gives the number. */
  async removeSome(limit: number): Promise<number> {
    return unwrap(await this.#directory.removeSome(limit));
  }

  /** Notes that a file is in a vector store, which is told when the file is removed. Throws as `record` does. */
  async usedBy(id: string, store: string): Promise<void> {
    const key = parseFileId(id);
    if (key === undefined || !(await this.#directory.use(key, store))) throw fileNotFound(id);
  }

  /** Notes that a file is no longer in a vector store. */
  async notUsedBy(id: string, store: string): Promise<void> {
    const key = parseFileId(id);
    if (key !== undefined) await this.#directory.disuse(key, store);
  }

  /** Begins to receive a file of the key `owner`. Throws the 507 of a full disk, and the 429 of a limit. */
  async receive(owner: string, receiver: Receiver): Promise<ReceivedPart> {
    checkDisk();
    const key = newFileKey();
    unwrap(await this.#directory.begin(key, owner, receiver.limits));
    return this.#receive(key, 0, receiver);
  }

  /**
   * Begins to receive a file with a given key; null if it exists already. An earlier attempt that was interrupted begins
   * again: its caller stores the same bytes. Throws as `receive` does, and the 409 of a file that is being removed.
   */
  async receiveAs(key: string, owner: string, receiver: Receiver): Promise<ReceivedPart | null> {
    checkDisk();
    const state = unwrap(await this.#directory.begin(key, owner, receiver.limits));
    if (state === "removed") throw fileBusy(fileId(key));
    return state === "file" ? null : this.#receive(key, 0, receiver);
  }

  /** Makes a file of the received bytes. Throws the 429 and the 413 of a limit, and the 409 if they were given up. */
  async commit(received: ReceivedPart, about: FileAbout, limits: FileLimits): Promise<FileRecord> {
    await received.end();
    const { key, length: bytes } = received;
    const record: FileRecord = { ...about, key, bytes, parts: [0], at: this.#placeOfNew.at };
    if (!unwrap(await this.#directory.commit(record, limits))) throw givenUp();
    return record;
  }

  /** Removes the received bytes of a file. */
  async discard({ key }: ReceivedPart): Promise<void> {
    await this.#directory.discard(key);
  }

  // Uploads. Every function that takes an id throws the 404 of one that is unknown or another tenant's.

  /** Throws the 429 of a tenant with as many pending uploads as it may have. */
  async createUpload(upload: Omit<UploadRecord, "key" | "status">, owner: string): Promise<UploadRecord> {
    checkDisk();
    const record: UploadRecord = { ...upload, key: newFileKey(), status: "pending" };
    if (!unwrap(await this.#directory.createUpload(record, owner))) throw uploadsFull();
    return record;
  }

  /** An upload, the length of each part by its number, and the file that it has become. */
  async upload(
    id: string,
  ): Promise<{ upload: UploadRecord; parts: ReadonlyMap<number, number>; file: FileRecord | null }> {
    const key = parseUploadId(id);
    const found = key === undefined ? null : await this.#directory.upload(key);
    if (!found) throw notFound("Upload", id, "upload_id");
    return found;
  }

  /** An upload that takes parts. Throws the 400 of one that has ended. */
  async pendingUpload(id: string): Promise<UploadRecord> {
    const { upload } = await this.upload(id);
    if (upload.status !== "pending") throw uploadOver(id, upload.status);
    return upload;
  }

  /** Begins to receive a part of a pending upload. Throws as `receive` does. */
  async receivePart({ key }: UploadRecord, owner: string, receiver: Receiver): Promise<ReceivedPart> {
    checkDisk();
    const part = unwrap(await this.#directory.beginPart(key, owner, receiver.limits));
    if (part === null) throw uploadsFull();
    return this.#receive(key, part, receiver);
  }

  async finishPart(received: ReceivedPart): Promise<void> {
    await received.end();
    const { key, part, length: bytes } = received;
    if (!unwrap(await this.#directory.finishPart({ key, part, bytes }))) throw givenUp();
  }

  /** Removes the received bytes of an unfinished part. */
  async discardPart({ key }: ReceivedPart): Promise<void> {
    await this.#directory.discardPart(key);
  }

  /** Makes a file of the parts of a pending upload, in this order. `check` gets their bytes, and throws if they are wrong. */
  async completeUpload(
    { key, bytes, filename, mimeType, about }: UploadRecord,
    parts: readonly number[],
    {
      limits,
      dates,
      check,
    }: {
      limits: FileLimits;
      dates: Pick<FileRecord, "createdAt" | "expiresAt">;
      check: ((bytes: ReadableStream<Uint8Array>) => Promise<void>) | undefined;
    },
  ): Promise<FileRecord | null> {
    const { purpose } = about;
    const record: FileRecord = { key, bytes, filename, mimeType, purpose, ...dates, parts, at: this.#placeOfNew.at };
    if (check) await check(await this.#read(record, key));
    return unwrap(await this.#directory.completeUpload(record, limits)) ? record : null;
  }

  async cancelUpload({ key }: UploadRecord): Promise<boolean> {
    return unwrap(await this.#directory.cancelUpload(key));
  }

  async #read(record: FileRecord, id: string): Promise<ReadableStream<Uint8Array>> {
    const place = this.#places.find(({ at }) => at === record.at);
    if (!place) throw bucketFault();
    const body = await place.read(record);
    if (!body) throw fileNotFound(id);
    return body.pipeThrough(new FixedLengthStream(record.bytes));
  }

  #receive(key: string, part: number, receiver: Receiver): ReceivedPart {
    return new ReceivedPart({ key, part }, this.#directory, this.#placeOfNew.sink(key, part), receiver);
  }

  /** All stores of bytes. Those of new files go to the first. */
  get #places(): BytesAtRest[] {
    const buckets = configuredBuckets(loadConfig(this.#objects), this.#tenant);
    return [...buckets, bytesInRows(this.#objects, this.#tenant)];
  }

  get #placeOfNew(): BytesAtRest {
    return this.#places[0] as BytesAtRest;
  }

  get #directory(): Stub<"FILE_DIRECTORIES"> {
    return this.#objects.FILE_DIRECTORIES.getByName(this.#tenant);
  }
}

function fileBusy(id: string): ApiError {
  const message = `File '${id}' is being deleted. Please try again in a moment.`;
  return new ApiError({ status: 409, message, param: "id", code: "file_busy" });
}
