import { DurableObject } from "cloudflare:workers";
import type { Variables } from "../../config/index.ts";
import { invalidRequest } from "../../protocol/errors.ts";
import { fileId, parseStoreId } from "../../protocol/ids.ts";
import { logLine } from "../../protocol/log-line.ts";
import { type Result, refused } from "../rpc.ts";
import { Schema } from "../schema.ts";
import { type StoreIdPage, StoreList, type StoreQuery } from "../vector-stores/store-list.ts";
import type { FileBytes } from "./file-bytes.ts";
import { FILE_DIRECTORY_VERSIONS, type FilePage, type FileQuery, type FileRecord, FileTable } from "./file-table.ts";

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
export class FileDirectory extends DurableObject<DirectoryEnv> {
  readonly #schema: Schema;
  readonly #files: FileTable;
  readonly #stores: StoreList;

  constructor(state: DurableObjectState, env: DirectoryEnv) {
    super(state, env);
    this.#schema = new Schema(state.storage, FILE_DIRECTORY_VERSIONS);
    this.#files = new FileTable(this.#schema);
    this.#stores = new StoreList(this.#schema);
  }

  /** Begins a file of the key `owner`: from now on its bytes may be kept. */
  async begin(key: string, owner: string): Promise<void> {
    this.#change(() => this.#files.begin(key, owner, Date.now()));
    await this.#wake();
  }

  /** Notes that the bytes of a file come, at most `bytes` of them. False where it was given up meanwhile. */
  touch(key: string, bytes: number): boolean {
    return this.#files.touch(key, bytes, Date.now());
  }

  /** Makes a file of what was received. False where it was given up meanwhile. */
  async commit(record: FileRecord): Promise<boolean> {
    const isThere = this.#change(() => this.#files.commit(record));
    await this.#wake();
    return isThere;
  }

  record(key: string): FileRecord | null {
    return this.#files.find(key, Date.now());
  }

  list(query: FileQuery): Result<FilePage> {
    const page = this.#files.list(query, Date.now());
    if (page) return { ok: true, value: page };
    return refused(invalidRequest("after", `File with id '${fileId(query.after ?? "")}' not found.`, "file_not_found"));
  }

  /** Removes a file, or what was received of one: it is not to be seen any more, and what is kept of it goes soon. False where there is none. */
  async remove(key: string): Promise<boolean> {
    const isGone = this.#change(() => this.#files.remove(key, Date.now()));
    await this.#wake();
    return isGone;
  }

  /** Removes at most `limit` files, as `remove` does, and what was received of others. Gives how many. */
  async removeSome(limit: number): Promise<number> {
    const removed = this.ctx.storage.transactionSync(() => this.#files.removeSome(limit, Date.now()));
    await this.#wake();
    return removed;
  }

  /** Notes that a file is in a vector store, which is told when the file is removed. False where there is no such file. */
  use(key: string, store: string): boolean {
    return this.#change(() => this.#files.use(key, store, Date.now()));
  }

  disuse(key: string, store: string): void {
    this.#files.disuse(key, store);
  }

  override async alarm(): Promise<void> {
    const now = Date.now();
    this.#change(() => this.#files.sweep(now));
    for (const { key, tries } of this.#files.toRemove(REMOVED_AT_ONCE, now)) {
      try {
        await this.#removeFromStores(key);
        await this.env.FILE_BYTES.getByName(`${this.ctx.id.name}:${key}`).erase();
        this.#change(() => this.#files.forget(key));
      } catch (error) {
        console.error(logLine({ level: "error", file_not_removed: fileId(key), error: String(error) }));
        this.#files.postpone(key, tries, Date.now());
      }
    }
    await this.#wake();
  }

  /** Notes that the tenant has a vector store. False where it has as many as it may have. */
  addStore(id: string, max: number): boolean {
    return this.#change(() => this.#stores.add(id, max));
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

  /** Sets the alarm for what is due next, unless it rings before. */
  async #wake(): Promise<void> {
    const due = this.#files.nextDue();
    if (due === undefined) return;
    const set = await this.ctx.storage.getAlarm();
    if (set === null || due < set) await this.ctx.storage.setAlarm(due);
  }

  #change<T>(body: () => T): T {
    this.#schema.open();
    return this.ctx.storage.transactionSync(body);
  }
}
