import { LongWork } from "@responses-edge/bounded-io/long-work";
import type { Attributes } from "@responses-edge/responses-api/attribute-filter";
import { invalidRequest, notFound } from "@responses-edge/responses-api/errors";
import type {
  BatchObject,
  FoundChunk,
  StoreFileObject,
  VectorStoreObject,
} from "@responses-edge/responses-api/platform/vector-stores";
import type { RawEnv } from "../../../env.ts";
import { setAlarm, wakeBy } from "../../objects/alarms.ts";
import { Deaths } from "../../objects/deaths.ts";
import { Outbox } from "../../objects/outbox.ts";
import { OwnedObject } from "../../objects/owned-object.ts";
import { OBJECTS } from "../../objects/registry.ts";
import { type Result, refused } from "../../objects/rpc.ts";
import { Schema } from "../../objects/schema.ts";
import { ChunkIndex } from "./chunk-index.ts";
import { forgetIngestion } from "./ingesting-stores.ts";
import { countFile, Ingestion, type IngestionHost, StoreGone } from "./ingestion.ts";
import { expired, otherEmbedding } from "./store-faults.ts";
import {
  type FileOwner,
  type NewStoreFile,
  type ShownStoreFiles,
  type StoreFile,
  type StoreFileQuery,
  StoreFiles,
  shownFile,
  statusOfBatch,
} from "./store-files.ts";
import { expiryOf, type NewStore, type StoreChange, type StoreRecord, StoreRow } from "./store-record.ts";
import { StoreSearch, type StoreSearchRequest } from "./store-search.ts";
import { VECTOR_STORE_TABLES } from "./tables.ts";

/** The longest work of one alarm. The platform ends an alarm that runs too long. Milliseconds. */
const WORK_MS = 60_000;

/** Milliseconds after its beginning at which the work of a dead process is resumed. */
const RESUMED_AFTER_MS = 30_000;

/** A search is noted as activity of its store at most this often. Seconds. */
const ACTIVE_SECONDS = 60;

/** Most files of one store. */
const MAX_FILES = 100_000;

/** Most UTF-16 units of a file's content in one answer. */
const MAX_CONTENT_LENGTH = 8 * 1024 * 1024;

/**
 * A vector store: one Durable Object, named tenant + key, with its files, their chunks and the indices. Its alarm makes files
 * searchable, and removes deleted ones. A method that gives null, or false, has found no such store, file or batch.
 */
export class VectorStore extends OwnedObject {
  readonly #schema: Schema;
  readonly #row: StoreRow;
  readonly #files: StoreFiles;
  readonly #index: ChunkIndex;
  readonly #search: StoreSearch;
  readonly #host: IngestionHost;
  readonly #outbox: Outbox<{ size: object }>;
  #isWorking = false;

  constructor(state: DurableObjectState, env: RawEnv) {
    super(state, env, "VECTOR_STORES");
    this.#schema = new Schema(state.storage, VECTOR_STORE_TABLES, OBJECTS.VECTOR_STORES.migrations);
    this.#row = new StoreRow(this.#schema);
    this.#files = new StoreFiles(this.#schema, (outcome) => countFile(this.#host, outcome));
    this.#index = new ChunkIndex(this.#schema);
    this.#search = new StoreSearch(this.#schema, this.#index);
    this.deaths = new Deaths(this.#schema);
    this.#host = {
      tenant: this.named.tenant ?? "",
      env: this.env,
      row: this.#row,
      files: this.#files,
      index: this.#index,
      deaths: this.deaths,
      sync: () => state.storage.sync(),
      change: (body) => this.#change(body),
      waitUntil: (promise) => this.waitUntil(promise),
    };
    this.#outbox = new Outbox<{ size: object }>({
      sql: this.#schema,
      deliver: { size: () => this.#reportSize(this.#files.totals().bytes) },
      states: { size: () => this.#isSizeUnknown },
      // The alarm's work delivers it.
      wake: () => {},
    });
  }

  /** Creates the store, with first files. A repeated call is harmless. */
  async create(store: NewStore, files: readonly NewStoreFile[], owner: FileOwner): Promise<VectorStoreObject> {
    this.#schema.open();
    const now = Date.now();
    const seconds = Math.floor(now / 1000);
    const made = this.ctx.storage.transactionSync(() => {
      const record: StoreRecord = {
        ...store,
        createdAt: seconds,
        lastActiveAt: seconds,
        isExpired: false,
        embedding: null,
      };
      this.#row.write(this.#row.record ?? record);
      for (const file of files) this.#files.add(file, owner, now);
      return this.#shown(this.#row.record ?? record);
    });
    await this.#wake();
    return made;
  }

  object(): VectorStoreObject | null {
    const record = this.#current();
    return record && this.#shown(record);
  }

  /** The facts of a store that its searches need. */
  facts(): { embedding: StoreRecord["embedding"]; isExpired: boolean } | null {
    const record = this.#current();
    return record && { embedding: record.embedding, isExpired: record.isExpired };
  }

  async update(change: StoreChange): Promise<VectorStoreObject | null> {
    const record = this.#current();
    if (!record) return null;
    const { name = record.name, metadata = record.metadata, expiresAfter = record.expiresAfter } = change;
    const changed = { ...record, name, metadata, expiresAfter, lastActiveAt: Math.floor(Date.now() / 1000) };
    this.#row.write(changed);
    await this.#wake();
    return this.#shown(changed);
  }

  /** Removes the store and its content. */
  async delete(): Promise<boolean> {
    const record = this.#current();
    if (!record) return false;
    await this.#reportSize(0);
    forgetIngestion(record.id);
    this.#index.forget();
    this.#row.forget();
    this.#files.forget();
    await this.ctx.storage.deleteAlarm();
    const deleted = this.ctx.storage.deleteAll();
    this.#schema.forget();
    await deleted;
    return true;
  }

  /** Adds files. Their status says when they are searchable. */
  async addFiles(files: readonly NewStoreFile[], owner: FileOwner): Promise<Result<StoreFileObject[]> | null> {
    const added = this.#add(files, owner);
    await this.#wake();
    return added && (added.ok ? { ok: true, value: added.value.map((file) => this.#shownFile(file)) } : added);
  }

  /** The same, as a batch with this id. */
  async addBatch(id: string, files: readonly NewStoreFile[], owner: FileOwner): Promise<Result<BatchObject> | null> {
    const added = this.#add(files, owner, id);
    await this.#wake();
    if (!added?.ok) return added;
    const batch = this.batch(id);
    return batch && { ok: true, value: batch };
  }

  file(id: string): StoreFileObject | null {
    const file = this.#current() && this.#files.find(id);
    return file ? this.#shownFile(file) : null;
  }

  files(query: StoreFileQuery): Result<ShownStoreFiles> | null {
    if (!this.#current()) return null;
    if (query.batch !== undefined && !this.#files.batch(query.batch)) return null;
    const page = this.#files.list(query);
    if (!page) {
      const [field, id] = query.after === undefined ? ["before", query.before] : ["after", query.after];
      return refused(notFound("File", id ?? "", field ?? "after", { status: 400, where: " in this vector store" }));
    }
    return { ok: true, value: { data: page.data.map((file) => this.#shownFile(file)), hasMore: page.hasMore } };
  }

  updateFile(id: string, attributes: Attributes | null): StoreFileObject | null {
    const file = this.#current() && this.#files.find(id);
    if (!file) return null;
    this.#files.setAttributes(file.no, attributes);
    return this.#shownFile({ ...file, attributes });
  }

  /** Removes a file from the store, even while it is being indexed. */
  async removeFile(id: string): Promise<boolean> {
    const file = this.#current() && this.#files.find(id);
    if (!file) return false;
    this.#change(() => this.#files.remove(file));
    this.#index.withdraw(file.no);
    await this.#wake();
    return true;
  }

  /** The chunks of a file, in their order. */
  content(id: string): { texts: string[]; hasMore: boolean } | null {
    const file = this.#current() && this.#files.find(id);
    if (!file) return null;
    const { texts, hasMore } = this.#index.texts(file.no, MAX_CONTENT_LENGTH);
    return { texts, hasMore };
  }

  batch(id: string): BatchObject | null {
    const record = this.#current();
    const batch = record && this.#files.batch(id);
    if (!batch) return null;
    const { createdAt, counts } = batch;
    return {
      id,
      object: "vector_store.files_batch",
      vector_store_id: record.id,
      created_at: createdAt,
      status: statusOfBatch(counts),
      file_counts: counts,
    };
  }

  /** Ends the files of a batch that are not searchable yet. */
  async cancelBatch(id: string): Promise<BatchObject | null> {
    if (!this.batch(id)) return null;
    this.#change(() => this.#files.cancelBatch(id));
    await this.#wake();
    return this.batch(id);
  }

  /** Reads, cuts and embeds all files again, with the present model. They become searchable one by one. */
  async reindex(): Promise<VectorStoreObject | null> {
    const record = this.#current();
    if (!record) return null;
    const changed = { ...record, embedding: null, outage: undefined, reindexUntil: this.#files.last };
    this.#change(() => this.#row.write(changed));
    this.#index.forget();
    await this.#wake();
    return this.object();
  }

  /** The best chunks of files that pass the filters. */
  async search(request: StoreSearchRequest): Promise<Result<FoundChunk[]> | null> {
    const record = this.#current();
    if (!record) return null;
    if (record.isExpired) return refused(expired(record.id));
    const { embedding, reindexUntil = 0 } = record;
    const { queries, model, filters, weights, limit, isExplained } = request;
    const dimensions = queries[0]?.embedding?.length;
    if (dimensions !== undefined && (embedding?.model !== model || embedding?.dimensions !== dimensions)) {
      return refused(otherEmbedding(record, model ?? "", dimensions));
    }
    const now = Math.floor(Date.now() / 1000);
    if (now - record.lastActiveAt >= ACTIVE_SECONDS) this.#row.write({ ...record, lastActiveAt: now });
    const work = new LongWork(this.#host.tenant);
    const step = async () => {
      await work.spend(10_000);
    };
    const files = filters ? await this.#files.passing(filters, step) : undefined;
    const options = { weights, limit, isExplained, files, dimensions: embedding?.dimensions ?? 0, reindexUntil };
    return { ok: true, value: await this.#search.search(queries, options, step) };
  }

  protected override async ring(): Promise<void> {
    if (!this.#current() || this.#isWorking) return;
    this.#isWorking = true;
    let next: number | undefined;
    try {
      // Should this process die, another one resumes.
      await setAlarm(this.ctx.storage, Date.now() + RESUMED_AFTER_MS);
      next = await new Ingestion(this.#host).run(Date.now() + WORK_MS);
      if (this.#row.record) await this.#outbox.deliver();
    } finally {
      this.#isWorking = false;
    }
    if (!this.#row.record) return;
    const due = next ?? this.#due();
    if (due === undefined) await this.ctx.storage.deleteAlarm();
    else await setAlarm(this.ctx.storage, due);
  }

  /** Adds files, and notes them as a batch. Null if the store does not exist. */
  #add(files: readonly NewStoreFile[], owner: FileOwner, batch?: string): Result<StoreFile[]> | null {
    const record = this.#current();
    if (!record) return null;
    if (record.isExpired) return refused(expired(record.id));
    if (this.#files.totals().counts.total + files.length > MAX_FILES) {
      return refused(invalidRequest("file_id", `A vector store has at most ${MAX_FILES} files.`, "vector_store_full"));
    }
    const now = Date.now();
    return this.#change(() => {
      const value = files.map((file) => {
        const before = this.#files.find(file.id);
        const added = this.#files.add(file, owner, now);
        if (before && before.no !== added.no) this.#index.withdraw(before.no);
        return added;
      });
      if (batch !== undefined) this.#files.createBatch(batch, value, now);
      this.#row.write({ ...record, lastActiveAt: Math.floor(now / 1000) });
      return { ok: true, value };
    });
  }

  /** The present store. Removes a store whose time is over. */
  #current(): StoreRecord | null {
    const { record } = this.#row;
    const expiry = record && !record.isExpired ? expiryOf(record) : null;
    if (!record || expiry === null || expiry * 1000 > Date.now()) return record;
    return this.#change(() => {
      const last = { ...record, isExpired: true };
      this.#row.write(last);
      this.#files.removeAll();
      this.#index.forget();
      return last;
    });
  }

  /** True if the tenant's usage has another size of the store. */
  get #isSizeUnknown(): boolean {
    const { record } = this.#row;
    return record !== null && (record.notedBytes ?? 0) !== this.#files.totals().bytes;
  }

  /** Reports the store's size to the tenant's usage. A repeated report is harmless. */
  async #reportSize(bytes: number): Promise<void> {
    const { record } = this.#row;
    if (!record || bytes === (record.notedBytes ?? 0)) return;
    await this.env.QUOTAS.getByName(this.#host.tenant).noteStore(record.id, bytes);
    if (this.#row.record) this.#row.write({ ...this.#row.record, notedBytes: bytes });
  }

  /** When the alarm is to ring, Unix milliseconds; undefined if there is nothing to do. */
  #due(): number | undefined {
    const { record } = this.#row;
    if (!record) return undefined;
    const hasWork =
      record.reindexUntil !== undefined ||
      this.#index.hasRemoved ||
      this.#files.toRead(1).length > 0 ||
      this.#index.pending(1).length > 0;
    if (hasWork) return Date.now();
    const expiry = record.isExpired ? null : expiryOf(record);
    const times = [expiry && expiry * 1000, this.#outbox.nextDue()].filter((time) => time !== null);
    return times.length === 0 ? undefined : Math.min(...times);
  }

  /** Sets the alarm for the next due work, unless it rings earlier. */
  async #wake(): Promise<void> {
    // The work in progress finds everything that is due.
    const due = this.#isWorking ? undefined : this.#due();
    if (due !== undefined) await wakeBy(this.ctx.storage, due);
  }

  #change<T>(body: () => T): T {
    if (!this.#row.record) throw new StoreGone();
    try {
      return this.ctx.storage.transactionSync(body);
    } catch (error) {
      this.#row.forget();
      this.#files.forget();
      this.#index.forget();
      throw error;
    }
  }

  #shownFile(file: StoreFile): StoreFileObject {
    return shownFile(file, this.#row.record?.id ?? "");
  }

  #shown(record: StoreRecord): VectorStoreObject {
    const { counts, bytes } = this.#files.totals();
    const { id, name, description, metadata, createdAt, lastActiveAt, expiresAfter, isExpired, embedding } = record;
    const isBusy = counts.in_progress > 0 || record.reindexUntil !== undefined;
    return {
      id,
      object: "vector_store",
      created_at: createdAt,
      name,
      description,
      status: isExpired ? "expired" : isBusy ? "in_progress" : "completed",
      usage_bytes: bytes,
      file_counts: counts,
      last_active_at: lastActiveAt,
      metadata,
      ...(expiresAfter && { expires_after: expiresAfter }),
      expires_at: expiryOf(record),
      embedding_model: embedding?.model ?? null,
      embedding_dimensions: embedding?.dimensions ?? null,
    };
  }
}

declare module "../../objects/objects.ts" {
  interface ObjectClasses {
    VECTOR_STORES: VectorStore;
  }
}
