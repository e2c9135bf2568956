import { logLine } from "@responses-edge/json-text";
import { invalidRequest } from "@responses-edge/responses-api/errors";
import { fileId, parseStoreId } from "@responses-edge/responses-api/ids";
import { loadConfig, type Variables } from "../../config/index.ts";
import type { FileLimits } from "../../contract/grants.ts";
import { FILE_BYTES_STORED, FILES_STORED } from "../../telemetry/instruments.ts";
import { count } from "../counting.ts";
import { OwnedObject } from "../owned-object.ts";
import { type Result, refusalOf, refused } from "../rpc.ts";
import { Schema } from "../schema.ts";
import { type StoreIdPage, StoreList, type StoreQuery } from "../vector-stores/store-list.ts";
import { configuredBuckets } from "./configured-buckets.ts";
import { FILE_DIRECTORY_VERSIONS } from "./directory-tables.ts";
import type { FileBytes } from "./file-bytes.ts";
import { type FilePage, type FileQuery, type FileRecord, FileTable, type Removed } from "./file-table.ts";
import { type UploadRecord, UploadTable } from "./upload-table.ts";

/** Files that one ring of the alarm removes: each is an object to be asked. */
const REMOVED_AT_ONCE = 32;

type DirectoryEnv = Variables & {
  FILE_BYTES: DurableObjectNamespace<FileBytes>;
  VECTOR_STORES: DurableObjectNamespace;
};

/**
 * The directory of a tenant's files: one Durable Object, named as the tenant. It alone says which files there are. Their bytes are kept
 * elsewhere and have no rows here until all of them are there, and no longer than they are to be seen; its alarm removes bytes that
 * nobody can see.
 */
export class FileDirectory extends OwnedObject<DirectoryEnv> {
  readonly #schema: Schema;
  readonly #files: FileTable;
  readonly #uploads: UploadTable;
  readonly #stores: StoreList;

  constructor(state: DurableObjectState, env: DirectoryEnv) {
    super(state, env, "FILE_DIRECTORIES");
    this.#schema = new Schema(state.storage, FILE_DIRECTORY_VERSIONS);
    this.#files = new FileTable(this.#schema);
    this.#uploads = new UploadTable(this.#schema, this.#files);
    this.#stores = new StoreList(this.#schema);
  }

  /** Begins a file of the key `owner`: from now on its bytes may be kept. */
  begin(key: string, owner: string, limits: FileLimits): Promise<Result<null>> {
    return this.#change(() => {
      this.#files.begin({ key, part: 0, owner }, limits, Date.now());
      return null;
    });
  }

  /** Begins a file whose key is from elsewhere, unless there is one: gives what the key was before. */
  beginAs(key: string, owner: string, limits: FileLimits): Promise<Result<"file" | "busy" | "free">> {
    return this.#change(() => {
      const state = this.#files.state(key);
      if (state === "free") this.#files.begin({ key, part: 0, owner }, limits, Date.now());
      return state;
    });
  }

  /** Notes that so many bytes of a part have come. False where it was given up meanwhile. */
  touch(part: { key: string; part: number; bytes: number }, limits: FileLimits): Promise<Result<boolean>> {
    return this.#change(() => this.#files.touch(part, limits, Date.now()));
  }

  /** Makes a file of what was received. False where it was given up meanwhile. */
  commit(record: FileRecord, limits: FileLimits): Promise<Result<boolean>> {
    return this.#counted(record, () => this.#files.commit(record, limits));
  }

  record(key: string): FileRecord | null {
    return this.#files.find(key, Date.now());
  }

  list(query: FileQuery): Result<FilePage> {
    const page = this.#files.list(query, Date.now());
    if (page) return { ok: true, value: page };
    return refused(invalidRequest("after", `File with id '${fileId(query.after ?? "")}' not found.`, "file_not_found"));
  }

  /** Removes a file: it is not to be seen any more, and its bytes go soon. False where there is none. */
  remove(key: string): Promise<Result<boolean>> {
    return this.#change(() => this.#files.remove(key, Date.now()));
  }

  /** Removes what was received of a file. */
  async discard(key: string): Promise<void> {
    await this.#change(() => this.#files.discard(key, Date.now()));
  }

  /** Removes files and uploads, as `remove` does, at most `limit` and as many parts. Gives how many. */
  removeSome(limit: number): Promise<Result<number>> {
    return this.#change(() => this.#uploads.removeSome(limit) + this.#files.removeSome(limit, Date.now()));
  }

  /** Notes that a file is in a vector store, which is told when the file is removed. False where there is no such file. */
  use(key: string, store: string): boolean {
    return this.#files.use(key, store, Date.now());
  }

  disuse(key: string, store: string): void {
    this.#files.disuse(key, store);
  }

  // Uploads. Their callers look at the status first: what has ended meanwhile is null, or false.

  /** False where as many uploads are under way as may be. */
  createUpload(upload: UploadRecord, owner: string): Promise<Result<boolean>> {
    return this.#change(() => this.#uploads.create(upload, owner));
  }

  upload(key: string): { upload: UploadRecord; parts: Map<number, number> } | null {
    const upload = this.#uploads.find(key, Date.now());
    return upload && { upload, parts: this.#files.parts(key) };
  }

  /** Begins a part of the key `owner`, and gives its number. */
  beginPart(key: string, owner: string, limits: FileLimits): Promise<Result<number | null>> {
    return this.#change(() => {
      return this.#isPending(key) ? this.#uploads.beginPart(key, owner, limits, Date.now()) : null;
    });
  }

  finishPart(part: { key: string; part: number; bytes: number }): Promise<Result<boolean>> {
    return this.#change(() => this.#isPending(part.key) && this.#files.finish(part));
  }

  /** Removes what was received of a part that was not finished. While its upload is pending it stays until that ends. */
  async discardPart(key: string): Promise<void> {
    await this.#change(() => {
      const now = Date.now();
      if (!this.#isPending(key)) this.#files.noteRemoved(key, this.#files.find(key, now)?.parts ?? null, now);
    });
  }

  completeUpload(record: FileRecord, limits: FileLimits): Promise<Result<boolean>> {
    return this.#counted(record, () => {
      if (!this.#isPending(record.key)) return false;
      this.#uploads.complete(record, limits, Date.now());
      return true;
    });
  }

  cancelUpload(key: string): Promise<Result<boolean>> {
    return this.#change(() => {
      if (!this.#isPending(key)) return false;
      this.#uploads.cancel(key, Date.now());
      return true;
    });
  }

  override async alarm(): Promise<void> {
    const now = Date.now();
    await this.#change(() => {
      this.#files.sweep(now);
      this.#uploads.sweep(now);
    });
    for (const removed of this.#files.toRemove(REMOVED_AT_ONCE, now)) {
      try {
        await this.#removeBytes(removed);
        this.#files.forget(removed);
      } catch (error) {
        console.error(logLine({ level: "error", file_not_removed: fileId(removed.key), error: String(error) }));
        this.#files.postpone(removed, Date.now());
      }
    }
    await this.#wake();
  }

  /** Notes that the tenant has a vector store. False where it has as many as it may have. */
  addStore(id: string, max: number): boolean {
    return this.#stores.add(id, max);
  }

  hasStore(id: string): boolean {
    return this.#stores.has(id);
  }

  /** Notes that the tenant has a vector store no more. */
  removeStore(id: string): void {
    this.#stores.remove(id);
  }

  /** Null where a cursor is no store. */
  stores(query: StoreQuery): StoreIdPage | null {
    return this.#stores.list(query);
  }

  async #removeFromStores(key: string): Promise<void> {
    for (const id of this.#files.users(key)) {
      const stub = this.env.VECTOR_STORES.getByName(`${this.ctx.id.name}:${parseStoreId(id)}`);
      // The type of its class imports this one's.
      await (stub as unknown as { removeFile(id: string): Promise<boolean> }).removeFile(fileId(key));
    }
  }

  async #removeBytes({ key, kept }: Removed): Promise<void> {
    const bytes = this.env.FILE_BYTES.getByName(`${this.ctx.id.name}:${key}`);
    if (kept) await bytes.keep(kept);
    else {
      await this.#removeFromStores(key);
      await bytes.erase();
    }
    const buckets = configuredBuckets(loadConfig(this.env), this.ctx.id.name ?? "");
    for (const bucket of buckets) await bucket.remove(key, kept);
  }

  #isPending(key: string): boolean {
    return this.#uploads.find(key, Date.now())?.status === "pending";
  }

  /** Sets the alarm for what is due next, unless it rings before. */
  async #wake(): Promise<void> {
    const due = [this.#files.nextDue(), this.#uploads.nextDue()].filter((at) => at !== undefined);
    if (due.length === 0) return;
    const next = Math.min(...due);
    const set = await this.ctx.storage.getAlarm();
    if (set === null || next < set) await this.ctx.storage.setAlarm(next);
  }

  /** Changes rows so that there is a file more, unless `body` gives false, and counts it. */
  async #counted({ bytes }: FileRecord, body: () => boolean): Promise<Result<boolean>> {
    const result = await this.#change(body);
    if (!result.ok || !result.value) return result;
    const host = { env: this.env, waitUntil: (promise: Promise<unknown>) => this.ctx.waitUntil(promise) };
    count(host, FILES_STORED, 1);
    count(host, FILE_BYTES_STORED, bytes);
    return result;
  }

  /** Changes rows, all or none of them, and sees to it that what follows is done in time. Gives errors of the API as results. */
  async #change<T>(body: () => T): Promise<Result<T>> {
    this.#schema.open();
    let value: T;
    try {
      value = this.ctx.storage.transactionSync(body);
    } catch (error) {
      return refusalOf(error);
    }
    await this.#wake();
    return { ok: true, value };
  }
}
