import { logLine } from "@responses-edge/bounded-io/json-text";
import { notFound } from "@responses-edge/responses-api/errors";
import { fileId, parseStoreId } from "@responses-edge/responses-api/ids";
import { loadConfig } from "../../../config/index.ts";
import type { ContainerUse, PendingFile } from "../../../contract/container-files.ts";
import type { FileLimits } from "../../../contract/grants.ts";
import type { RawEnv } from "../../../env.ts";
import { FILE_BYTES_STORED, FILES_STORED } from "../../../telemetry/instruments.ts";
import { wakeBy } from "../../objects/alarms.ts";
import { OwnedObject } from "../../objects/owned-object.ts";
import { OBJECTS } from "../../objects/registry.ts";
import { type Result, refusalOf, refused } from "../../objects/rpc.ts";
import { Schema } from "../../objects/schema.ts";
import { count } from "../counting.ts";
import { type StoreIdPage, StoreList, type StoreQuery } from "../vector-stores/store-list.ts";
import { configuredBuckets } from "./configured-buckets.ts";
import {
  type ContainerFile,
  type ContainerQuery,
  type ContainerRecord,
  ContainerTable,
  type NewContainer,
} from "./container-table.ts";
import { FILE_DIRECTORY_TABLES } from "./directory-tables.ts";
import { type FilePage, type FileQuery, type FileRecord, FileTable, type Removed } from "./file-table.ts";
import { type UploadRecord, UploadTable } from "./upload-table.ts";

/** Files that one alarm removes: each is an object that is asked. */
const REMOVED_AT_ONCE = 32;

/**
 * The directory of a tenant's files: one Durable Object, named as the tenant. It alone decides which files exist. A file has a row
 * here from when all its bytes are stored until it is no longer visible; the directory's alarm removes bytes that nobody can see.
 */
export class FileDirectory extends OwnedObject {
  readonly #schema: Schema;
  readonly #files: FileTable;
  readonly #uploads: UploadTable;
  readonly #stores: StoreList;
  readonly #containers: ContainerTable;
  readonly #tenant: string;

  constructor(state: DurableObjectState, env: RawEnv) {
    super(state, env, "FILE_DIRECTORIES");
    this.#schema = new Schema(state.storage, FILE_DIRECTORY_TABLES, OBJECTS.FILE_DIRECTORIES.migrations);
    this.#files = new FileTable(this.#schema);
    this.#uploads = new UploadTable(this.#schema, this.#files);
    this.#stores = new StoreList(this.#schema);
    this.#containers = new ContainerTable(this.#schema, this.#files);
    this.#tenant = this.named.tenant ?? "";
  }

  /**
   * Begins a file of the key `owner`, or begins it again: its bytes may be stored from now on. Gives the state of the file's
   * key. Only a free one begins.
   */
  begin(key: string, owner: string, limits: FileLimits): Promise<Result<"file" | "removed" | "free">> {
    return this.#change(() => {
      const state = this.#files.state(key);
      if (state === "free") this.#files.begin({ key, part: 0, owner }, limits, Date.now());
      return state;
    });
  }

  /** Notes how many bytes of a part have come. False if it was given up in the meantime. */
  touch(part: { key: string; part: number; bytes: number }, limits: FileLimits): Promise<Result<boolean>> {
    return this.#change(() => this.#files.touch(part, limits, Date.now()));
  }

  /** Makes a file of the received bytes. False if they were given up in the meantime. */
  commit(record: FileRecord, limits: FileLimits): Promise<Result<boolean>> {
    return this.#counted(record, () => {
      if (!this.#files.commit(record, limits)) return false;
      const { key, container } = record;
      if (container) {
        const { id, path, source = "assistant" } = container;
        this.#containers.put(id, { key, path, source }, Date.now());
      }
      return true;
    });
  }

  record(key: string): FileRecord | null {
    return this.#files.find(key, Date.now());
  }

  list(query: FileQuery): Result<FilePage> {
    const page = this.#files.list(query, Date.now());
    if (page) return { ok: true, value: page };
    return refused(notFound("File", fileId(query.after ?? ""), "after", { status: 400 }));
  }

  /** Removes a file: it becomes invisible, and its bytes are removed soon. False if it does not exist. */
  remove(key: string): Promise<Result<boolean>> {
    return this.#change(() => this.#files.remove(key, Date.now()));
  }

  /** Removes the received bytes of a file. */
  async discard(key: string): Promise<void> {
    await this.#change(() => this.#files.discard(key, Date.now()));
  }

  /** Removes files and uploads, as `remove` does: at most `limit`, and as many parts. Gives the number. */
  removeSome(limit: number): Promise<Result<number>> {
    return this.#change(() => this.#uploads.removeSome(limit) + this.#files.removeSome(limit, Date.now()));
  }

  /** Notes that a file is in a vector store, which is told when the file is removed. False if the file does not exist. */
  use(key: string, store: string): boolean {
    return this.#files.use(key, store, Date.now());
  }

  disuse(key: string, store: string): void {
    this.#files.disuse(key, store);
  }

  // Uploads. Callers check the status first. An upload that has ended otherwise in the meantime gives null, or false.

  /** False if the tenant has as many pending uploads as it may. */
  createUpload(upload: UploadRecord, owner: string): Promise<Result<boolean>> {
    return this.#change(() => this.#uploads.create(upload, owner));
  }

  /** An upload, the lengths of its parts, and the file that it has become. */
  upload(key: string): { upload: UploadRecord; parts: Map<number, number>; file: FileRecord | null } | null {
    const now = Date.now();
    const upload = this.#uploads.find(key, now);
    return upload && { upload, parts: this.#files.parts(key), file: this.#files.find(key, now) };
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

  /** Removes the received bytes of an unfinished part. The part stays until its pending upload ends. */
  async discardPart(key: string): Promise<void> {
    await this.#change(() => {
      const now = Date.now();
      if (!this.#isPending(key)) this.#files.noteRemoved(key, this.#files.find(key, now)?.parts ?? null, now);
    });
  }

  completeUpload(record: FileRecord, limits: FileLimits): Promise<Result<boolean>> {
    return this.#counted(record, () => {
      // A repeated call finds the file of the same parts.
      if (!this.#isPending(record.key)) return this.record(record.key)?.parts.join() === record.parts.join();
      this.#uploads.complete(record, limits, Date.now());
      return true;
    });
  }

  cancelUpload(key: string): Promise<Result<boolean>> {
    return this.#change(() => {
      if (this.#isPending(key)) this.#uploads.cancel(key, Date.now());
      return this.#uploads.find(key, Date.now())?.status === "cancelled";
    });
  }

  // Containers.

  /** Makes a container, unless it exists, and gives it files. False if `max` of them have not expired. */
  createContainer(
    made: NewContainer,
    given: readonly { key: string; id: string; filename: string }[],
    max: number,
  ): Promise<Result<boolean>> {
    return this.#change(() => {
      const now = Date.now();
      const isMade = this.#containers.create(made, max, now);
      if (isMade) this.#containers.give(made.id, given, now);
      return isMade;
    });
  }

  container(id: string): ContainerRecord | null {
    return this.#containers.find(id, Date.now());
  }

  /** Null if the cursor is no container. */
  containers(query: ContainerQuery): { data: ContainerRecord[]; hasMore: boolean } | null {
    return this.#containers.list(query, Date.now());
  }

  removeContainer(id: string): Promise<Result<boolean>> {
    return this.#change(() => this.#containers.remove(id, Date.now()));
  }

  /** Removes at most `limit` containers. Gives their ids. */
  removeSomeContainers(limit: number): Promise<Result<string[]>> {
    return this.#change(() => this.#containers.removeSome(limit));
  }

  useContainer(id: string): Promise<Result<ContainerUse>> {
    return this.#change(() => this.#containers.use(id, Date.now()));
  }

  /** Notes that the tool server has a session for a container, and what it has been told of its files. */
  settleContainer(id: string, pending: readonly PendingFile[]): Promise<Result<void>> {
    return this.#change(() => this.#containers.settle(id, pending));
  }

  async touchContainer(id: string): Promise<void> {
    await this.#change(() => this.#containers.touch(id, Date.now()));
  }

  /** Notes that the tool server has lost a container. */
  async loseContainer(id: string): Promise<void> {
    await this.#change(() => this.#containers.lose(id));
  }

  giveToContainer(id: string, given: readonly { key: string; id: string; filename: string }[]): Promise<Result<void>> {
    return this.#change(() => this.#containers.give(id, given, Date.now()));
  }

  containerFile(id: string, key: string): ContainerFile | null {
    return this.#containers.file(id, key, Date.now());
  }

  /** Null if the cursor is no file of the container. */
  containerFiles(id: string, query: ContainerQuery): { data: ContainerFile[]; hasMore: boolean } | null {
    return this.#containers.files(id, query, Date.now());
  }

  removeContainerFile(id: string, key: string): Promise<Result<boolean>> {
    return this.#change(() => this.#containers.removeFile(id, key, Date.now()));
  }

  protected override async ring(): Promise<void> {
    const now = Date.now();
    await this.#change(() => {
      this.#files.sweep(now);
      this.#uploads.sweep(now);
      this.#containers.sweep(now);
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

  /** Notes that the tenant has a vector store. False if it has as many as it may. */
  addStore(id: string, max: number): boolean {
    return this.#stores.add(id, max);
  }

  hasStore(id: string): boolean {
    return this.#stores.has(id);
  }

  /** Notes that the tenant no longer has a vector store. */
  removeStore(id: string): void {
    this.#stores.remove(id);
  }

  /** Null if a cursor is no store. */
  stores(query: StoreQuery): StoreIdPage | null {
    return this.#stores.list(query);
  }

  async #removeFromStores(key: string): Promise<void> {
    for (const id of this.#files.users(key)) {
      await this.env.VECTOR_STORES.getByName(this.#tenant, parseStoreId(id) ?? "").removeFile(fileId(key));
    }
  }

  async #removeBytes({ key, kept }: Removed): Promise<void> {
    const bytes = this.env.FILE_BYTES.getByName(this.#tenant, key);
    if (kept) await bytes.keep(kept);
    else {
      await this.#removeFromStores(key);
      await bytes.erase();
    }
    const buckets = configuredBuckets(loadConfig(this.env), this.#tenant);
    for (const bucket of buckets) await bucket.remove(key, kept);
  }

  #isPending(key: string): boolean {
    return this.#uploads.find(key, Date.now())?.status === "pending";
  }

  /** Sets the alarm for the next due work, unless it rings earlier. */
  async #wake(): Promise<void> {
    const due = [this.#files.nextDue(), this.#uploads.nextDue(), this.#containers.nextDue()].filter(
      (at) => at !== undefined,
    );
    if (due.length === 0) return;
    await wakeBy(this.ctx.storage, Math.min(...due));
  }

  /** Changes rows so that a file is added, unless `body` gives false, and counts the file. */
  async #counted({ bytes }: FileRecord, body: () => boolean): Promise<Result<boolean>> {
    const result = await this.#change(body);
    if (!result.ok || !result.value) return result;
    const host = { env: this.env, waitUntil: (promise: Promise<unknown>) => this.waitUntil(promise) };
    count(host, FILES_STORED, 1);
    count(host, FILE_BYTES_STORED, bytes);
    return result;
  }

  /** Changes rows in one transaction, and sets the alarm for the work that follows. Gives the API's errors as results. */
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

declare module "../../objects/objects.ts" {
  interface ObjectClasses {
    FILE_DIRECTORIES: FileDirectory;
  }
}
