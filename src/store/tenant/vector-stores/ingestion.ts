import { logLine } from "@responses-edge/bounded-io/json-text";
import { LongWork } from "@responses-edge/bounded-io/long-work";
import { ApiError } from "@responses-edge/responses-api/errors";
import { estimateTokens } from "@responses-edge/responses-api/estimate";
import type { FileStatus, LastError } from "@responses-edge/responses-api/platform/vector-stores";
import { type Chunk, Chunker } from "@responses-edge/vector-search";
import { tenantCacheSalt } from "../../../assembly/affinity.ts";
import { embed, loadTokenizer } from "../../../assembly/retrieval-models.ts";
import { type Config, loadConfig } from "../../../config/index.ts";
import type { Env } from "../../../env.ts";
import { INGESTED_CHUNKS, INGESTED_FILES } from "../../../telemetry/instruments.ts";
import { countedUse } from "../../limits/allowances.ts";
import { type Deaths, diedOf } from "../../objects/deaths.ts";
import { count } from "../counting.ts";
import { FileClient } from "../files/file-client.ts";
import type { ChunkIndex, PendingChunk } from "./chunk-index.ts";
import { states } from "./ingesting-stores.ts";
import { lastErrorOf, otherModel, partialText } from "./store-faults.ts";
import type { FileOwner, StoreFile, StoreFiles } from "./store-files.ts";
import type { StoreRow } from "./store-record.ts";

/** Chunks that one request embeds. */
const BATCH = 64;

/** Chunks that are stored, or indexed, in one transaction: as many as a slice of work. */
const KEPT_AT_ONCE = 32;
const INDEXED_AT_ONCE = 8;

/**
 * Units of work for cutting or indexing a UTF-16 unit of text. That is five times its real cost: slices are short,
 * because a search waits for one at each of its steps.
 */
const UNITS_PER_CHARACTER = 2.5;

/** Files that are read concurrently, so that small ones fill a batch. */
const READERS = 6;

/** Files that may be in progress together. */
const IN_PROGRESS = READERS + BATCH;

/** The first wait for an unreachable server, in milliseconds. It doubles, up to the longest. */
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 30_000;

/** Files fail after an outage of this length. Milliseconds. */
const GIVE_UP_MS = 15 * 60_000;

/** Files that one transaction resets, to be read again. */
const RESTARTED_AT_ONCE = 50;

/** Statuses by which an embedding server says that a text, not the server, is at fault. */
const ABOUT_TEXTS = new Set([400, 413, 422]);

/** Counts a file that is no longer in progress. */
export function countFile(host: IngestionHost, outcome: FileStatus): void {
  count(host, INGESTED_FILES, 1, { "responses_edge.outcome": outcome });
}

/** The parts of its store that ingestion needs. */
export interface IngestionHost {
  tenant: string;
  env: Env;
  row: StoreRow;
  files: StoreFiles;
  index: ChunkIndex;
  /** The deaths in the middle of work on files, by the numbers of their rows. */
  deaths: Deaths;
  /** Resolves when all writes are on the disk. */
  sync(): Promise<void>;
  /** Runs a transaction. Throws StoreGone if the store was deleted in the meantime. */
  change<T>(body: () => T): T;
  waitUntil(promise: Promise<unknown>): void;
}

/** The store was deleted while work on it was in progress. */
export class StoreGone extends Error {}

/** Ingestion must pause. */
class Wait extends Error {
  readonly until: number;

  constructor(until: number) {
    super("Ingestion waits.");
    this.until = until;
  }
}

/**
 * Makes files searchable: their text is cut into chunks, which are embedded and indexed in batches, and a file whose chunks are all
 * indexed is published in one row. Every step is stored in rows, so that after a crash nothing is lost and nothing is done twice.
 */
export class Ingestion {
  readonly #host: IngestionHost;
  readonly #config: Config;
  readonly #work: LongWork;
  readonly #reading = new Map<number, Promise<void>>();
  /** Number of indexed chunks. */
  #indexed = 0;
  #fault: unknown;
  #progress = Promise.withResolvers<void>();

  constructor(host: IngestionHost) {
    this.#host = host;
    this.#config = loadConfig(host.env);
    this.#work = new LongWork(host.tenant);
  }

  /** Works until nothing is left, or until `end` (Unix milliseconds). Gives the time to continue; undefined if all is done. */
  async run(end: number): Promise<number | undefined> {
    const id = this.#host.row.record?.id ?? "";
    states.set(id, "working");
    try {
      this.#host.change(() => this.#begin());
      await this.#host.sync();
      return await this.#run(end);
    } catch (error) {
      if (error instanceof StoreGone) return undefined;
      if (!(error instanceof Wait)) throw error;
      states.set(id, "waiting");
      return error.until;
    } finally {
      await Promise.allSettled(this.#reading.values());
      this.#host.deaths.end();
      if (states.get(id) === "working" || !this.#host.row.record) states.delete(id);
      count(this.#host, INGESTED_CHUNKS, this.#indexed);
    }
  }

  /** Begins work. Fails the files that have always ended their process. */
  #begin(): void {
    const { deaths, files, index, row } = this.#host;
    const first = (limit: number) => {
      const numbers = [...index.pending(BATCH).map(({ file }) => file), ...files.toRead(limit).map(({ no }) => no)];
      return [...new Set(numbers)].slice(0, limit).map(String);
    };
    deaths.begin(IN_PROGRESS, first);
    for (const key of first(IN_PROGRESS).filter((each) => deaths.isOver(each))) {
      const file = files.at(Number(key))?.id;
      console.error(logLine({ level: "error", vector_store: row.record?.id, file, given_up: true }));
      files.end(Number(key), "failed", { code: "server_error", message: diedOf("The file") });
      deaths.done(key);
    }
  }

  async #run(end: number): Promise<number | undefined> {
    const { index, files, change, deaths } = this.#host;
    while (change(() => this.#restart())) await this.#giveWay();
    for (;;) {
      while (change(() => index.sweep())) await this.#giveWay();
      const pending = index.pending(2 * BATCH);
      const { isAlone } = deaths;
      const isFull = pending.length >= (isAlone ? 1 : 2 * BATCH);
      if (Date.now() < end && !isFull) {
        for (const file of files.toRead(2 * READERS)) {
          if (this.#reading.size < (isAlone ? 1 : READERS) && !this.#reading.has(file.no)) this.#read(file);
        }
      }
      if (this.#fault !== undefined) throw this.#fault;
      if (pending.length >= BATCH || (pending.length > 0 && this.#reading.size === 0)) {
        const some = sameOwner(pending.slice(0, BATCH), files);
        await this.#ingest(isAlone ? some.filter(({ file }) => file === some[0]?.file) : some);
        if (Date.now() >= end) return Date.now();
      } else if (this.#reading.size > 0) {
        await this.#progress.promise;
        this.#progress = Promise.withResolvers();
      } else return Date.now() >= end && files.toRead(1).length > 0 ? Date.now() : undefined;
    }
  }

  /** Resets files that are to be indexed again, so that they are read. False if none is left. */
  #restart(): boolean {
    const { row, files } = this.#host;
    const until = row.record?.reindexUntil;
    if (!row.record || until === undefined) return false;
    if (files.restart(until, RESTARTED_AT_ONCE, Date.now())) return true;
    row.write({ ...row.record, reindexUntil: undefined });
    return false;
  }

  #read(file: StoreFile): void {
    const reading = this.#readFile(file)
      .catch((error: unknown) => {
        this.#fault ??= error;
      })
      .finally(() => {
        this.#reading.delete(file.no);
        this.#progress.resolve();
      });
    this.#reading.set(file.no, reading);
  }

  /** Cuts a file into chunks, continuing after an interruption. */
  async #readFile(file: StoreFile): Promise<void> {
    const { index, change, files, deaths } = this.#host;
    const { no } = file;
    const { max_chunk_size_tokens: max, chunk_overlap_tokens: overlap } = file.chunking.static;
    const chunker = new Chunker(await loadTokenizer(), { max, overlap });
    // The text and its chunks are the same as before.
    const kept = index.kept(no);
    let seq = 0;
    let chunks: Chunk[] = [];
    /** Pages of which not all could be read. */
    const partial: (number | null)[] = [];
    const keep = () => {
      if (chunks.length === 0) return true;
      const isKept = change(() => this.#keep(no, seq, chunks));
      seq += chunks.length;
      chunks = [];
      this.#progress.resolve();
      return isKept;
    };
    const take = async (made: Iterable<Chunk>) => {
      for (const chunk of made) {
        if (seq + chunks.length < kept) seq += 1;
        else chunks.push(chunk);
        if (chunks.length >= KEPT_AT_ONCE && !keep()) return false;
        await this.#giveWay(chunk.text.length * UNITS_PER_CHARACTER);
      }
      return true;
    };
    try {
      for await (const { text, page, isPartial } of this.#pages(file)) {
        if (isPartial) partial.push(page);
        if (!(await take(chunker.push(text, page)))) return;
      }
      if (!(await take(chunker.end())) || !keep()) return;
      change(() => {
        files.setRead(no, partialText(partial));
        deaths.done(String(no));
        if (files.publish(no)) index.publish(no);
      });
    } catch (error) {
      const last = lastErrorOf(error);
      if (last) change(() => files.end(no, "failed", last));
      else throw error instanceof StoreGone ? error : this.#outage(error);
    }
  }

  /** The text of a file, page by page. Throws ApiError as FileClient does, and UnreadableFile. */
  async *#pages({ id, no, filename: known }: StoreFile) {
    const { env, tenant, row, change, files } = this.#host;
    const client = new FileClient(env, tenant);
    if (row.record) await client.usedBy(id, row.record.id);
    const { filename } = await client.record(id);
    if (filename !== known) change(() => files.setFilename(no, filename));
    yield* client.text(id);
  }

  /** Stores chunks of a file, unless it was removed or cancelled, or is too much for the store. */
  #keep(no: number, seq: number, chunks: readonly Chunk[]): boolean {
    const { files, index, row, deaths } = this.#host;
    // It makes progress.
    deaths.done(String(no));
    if (files.at(no)?.status !== "in_progress") return false;
    const { maxChunks } = this.#config.vectorStores;
    if (!index.hasRoomFor(chunks.length, maxChunks, row.record?.embedding?.dimensions)) {
      const message = `The vector store is full: it has ${index.size} chunks (VECTOR_STORE_CHUNKS).`;
      files.end(no, "failed", { code: "invalid_file", message });
      return false;
    }
    files.addPending(no, chunks.length, index.keep(no, seq, chunks));
    return true;
  }

  /** Embeds and indexes chunks of files that one key has added. */
  async #ingest(chunks: readonly PendingChunk[]): Promise<void> {
    const { row, files, index, change, deaths } = this.#host;
    const { embeddings: model } = this.#config.vectorStores;
    let embeddings: readonly Float32Array[] | undefined;
    if (model) {
      const { record } = row;
      const known = record?.embedding;
      if (known && known.model !== model.name) return this.#failAll(otherModel(record, model.name));
      const embedded = await this.#embedded(chunks);
      if (!embedded) return;
      embeddings = embedded;
      const dimensions = embeddings[0]?.length ?? 0;
      if (known && known.dimensions !== dimensions) {
        return this.#failAll(otherModel(record, model.name, dimensions));
      }
      if (!known) {
        change(() => row.record && row.write({ ...row.record, embedding: { model: model.name, dimensions } }));
      }
    }
    for (let from = 0; from < chunks.length; from += INDEXED_AT_ONCE) {
      const some = chunks.slice(from, from + INDEXED_AT_ONCE);
      change(() => {
        const indexed = index.index(some, embeddings?.slice(from, from + INDEXED_AT_ONCE));
        for (const [no, { chunks: count, bytes }] of indexed) {
          files.addPending(no, -count, bytes);
          deaths.done(String(no));
          if (files.publish(no)) index.publish(no);
        }
      });
      this.#indexed += some.length;
      await this.#giveWay(some.reduce((sum, { text }) => sum + text.length, 0) * UNITS_PER_CHARACTER);
    }
  }

  /** Embeddings of chunks; undefined if a text was at fault, whose file has then failed. Throws Wait. */
  async #embedded(chunks: readonly PendingChunk[]): Promise<readonly Float32Array[] | undefined> {
    const { change, files } = this.#host;
    try {
      const embeddings = await this.#ask(chunks);
      const { row } = this.#host;
      if (row.outage) row.outage = undefined;
      return embeddings;
    } catch (error) {
      if (!(error instanceof ApiError) || !ABOUT_TEXTS.has(error.status) || error.code === "model_not_found") {
        throw this.#outage(error);
      }
      const [first] = chunks;
      if (chunks.length === 1 && first) {
        const message = `The embedding server refuses a part of the file: ${error.message}`;
        change(() => files.end(first.file, "failed", { code: "invalid_file", message }));
        return undefined;
      }
      // One of them is at fault. The others are embedded without it.
      const half = Math.ceil(chunks.length / 2);
      await this.#ingest(chunks.slice(0, half));
      await this.#ingest(chunks.slice(half).filter(({ file }) => files.at(file)?.status === "in_progress"));
      return undefined;
    }
  }

  /** Asks for embeddings, within the limits of the key that has added the files. */
  async #ask(chunks: readonly PendingChunk[]): Promise<readonly Float32Array[]> {
    const { tenant, env, files, waitUntil } = this.#host;
    const { vectorStores, keys } = this.#config;
    const { embeddings: model } = vectorStores;
    const owner = files.at(chunks[0]?.file ?? 0)?.owner;
    if (!model || !owner) return [];
    const texts = chunks.map(({ text }) => text);
    const estimated = texts.reduce((sum, text) => sum + estimateTokens(text), 0);
    const identity = { tenant, ...owner, policy: undefined, storingKey: undefined };
    const read = { kind: "embeddings", model: model.name, tokens: estimated, prices: keys.prices } as const;
    return countedUse({ identity, quotas: env.QUOTAS, waitUntil }, read, async () => {
      const asker = { config: this.#config, cacheSalt: tenantCacheSalt(tenant), signal: new AbortController().signal };
      const { embeddings, tokens } = await embed(model, texts, asker);
      return { value: embeddings, tokens };
    });
  }

  /**
   * Notes that a server could not be reached, or a limit is used up. Gives the error that pauses ingestion. Fails all
   * files after a long outage.
   */
  #outage(error: unknown): Wait {
    const now = Date.now();
    const { row } = this.#host;
    const retryAfter = error instanceof ApiError ? Number(error.headers["retry-after-ms"]) : Number.NaN;
    // A tenant's limit becomes available again.
    if (error instanceof ApiError && error.status === 429 && retryAfter >= 0) return new Wait(now + retryAfter + 100);
    const { since, failures } = row.outage ?? { since: now, failures: 0 };
    row.outage = { since, failures: failures + 1 };
    const code = error instanceof ApiError ? error.code : String(error);
    console.error(logLine({ level: "error", vector_store: row.record?.id, ingestion_waits: code, failures }));
    if (now - since > GIVE_UP_MS) {
      row.outage = undefined;
      const reason = error instanceof ApiError ? error.message : "The file could not be read.";
      this.#failAll({ code: "server_error", message: `Gave up after ${GIVE_UP_MS / 60_000} minutes: ${reason}` });
      return new Wait(now);
    }
    return new Wait(
      now + Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** Math.min(failures, 16)) * (0.5 + Math.random()),
    );
  }

  /** Ends all files in progress. */
  #failAll(error: LastError): void {
    const { change, files } = this.#host;
    change(() => {
      for (;;) {
        const page = files.list({ status: "in_progress", limit: 100, order: "asc" });
        for (const { no } of page?.data ?? []) files.end(no, "failed", error);
        if (!page?.hasMore) return;
      }
    });
  }

  async #giveWay(units = 1_000): Promise<void> {
    const slice = this.#work.spend(units);
    if (slice) await slice;
  }
}

/** The first chunks, as long as their files were added by one key. */
function sameOwner(chunks: readonly PendingChunk[], files: StoreFiles): PendingChunk[] {
  const owners = new Map<number, FileOwner["keyId"] | undefined>();
  const ownerOf = (no: number) => {
    if (!owners.has(no)) owners.set(no, files.at(no)?.owner.keyId);
    return owners.get(no);
  };
  const first = ownerOf(chunks[0]?.file ?? 0);
  const end = chunks.findIndex(({ file }) => ownerOf(file) !== first);
  return end === -1 ? [...chunks] : chunks.slice(0, end);
}
