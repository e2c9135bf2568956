import { logLine } from "@responses-edge/bounded-io/json-text";
import {
  type Chunk,
  Codes,
  indexedText,
  type Kernel,
  memoryOf,
  plainKernel,
  simdKernel,
  toCode,
  toInt8,
} from "@responses-edge/vector-search";
import type { Schema } from "../../objects/schema.ts";

/// <reference path="../../../../packages/vector-search/src/wasm.d.ts" />

/** The chunks of a store, and their indices: words, embeddings, and the codes of embeddings in memory. */

/** A chunk that is to be indexed. */
export interface PendingChunk {
  id: number;
  file: number;
  text: string;
}

/** Most memory for the codes of a store: half of an isolate's on Cloudflare. Bytes. */
const MAX_CODE_BYTES = 64 * 1024 ** 2;

/** Chunks that are removed in one transaction. */
const REMOVED_AT_ONCE = 64;

/** Rows of codes that are read between two slices. */
const ROWS_AT_ONCE = 1_000;

let makeKernel: (() => Kernel) | undefined;

/**
 * Makes a kernel: with SIMD if the runtime has it. (Objects may not share a promise: its continuations would run as the
 * object that made it.)
 */
export async function createKernel(): Promise<Kernel> {
  const { default: module } = await import("@responses-edge/vector-search/kernel.wasm");
  makeKernel ??= kernelOf(module);
  return makeKernel();
}

function kernelOf(module: WebAssembly.Module): () => Kernel {
  try {
    simdKernel(module);
    return () => simdKernel(module);
  } catch (error) {
    console.warn(logLine({ level: "warn", no_simd: String(error) }));
    return plainKernel;
  }
}

export class ChunkIndex {
  readonly #schema: Schema;
  #count: number | undefined;
  /** The published codes that are read into memory. */
  #codes: Codes | undefined;
  #reading: Promise<Codes> | undefined;
  /** Number of the last row of codes that was read. */
  #readUntil = 0;

  constructor(schema: Schema) {
    this.#schema = schema;
  }

  /** To be called when a transaction was rolled back, or all chunks were removed. */
  forget(): void {
    this.#count = undefined;
    this.#codes = undefined;
    this.#reading = undefined;
    this.#readUntil = 0;
  }

  /** The number of chunks, including those of unpublished files. */
  get size(): number {
    this.#count ??= this.#schema.rows<{ chunks: number }>("SELECT COUNT(*) AS chunks FROM chunk")[0]?.chunks ?? 0;
    return this.#count;
  }

  /** The number of stored chunks of a file, which are its first ones. */
  kept(file: number): number {
    const [row] = this.#schema.rows<{ seq: number | null }>("SELECT MAX(seq) AS seq FROM chunk WHERE file = ?", file);
    return row?.seq == null ? 0 : row.seq + 1;
  }

  /** Stores chunks of a file, from number `seq` on, to be indexed later. Gives the bytes that they take. */
  keep(file: number, seq: number, chunks: readonly Chunk[]): number {
    let bytes = 0;
    for (const [index, { text, page, lastPage }] of chunks.entries()) {
      this.#schema.write(
        "INSERT INTO chunk (file, seq, page, last_page, is_indexed, text) VALUES (?, ?, ?, ?, 0, ?)",
        ...[file, seq + index, page, lastPage, text],
      );
      bytes += text.length;
    }
    if (this.#count !== undefined) this.#count += chunks.length;
    return bytes;
  }

  /** Tells whether a store may have this many more chunks, with their embeddings. */
  hasRoomFor(chunks: number, maxChunks: number, dimensions: number | undefined): boolean {
    const size = this.size + chunks;
    return size <= maxChunks && (dimensions === undefined || memoryOf(size, dimensions) <= MAX_CODE_BYTES);
  }

  /** The next chunks to index, of files that are in progress. */
  pending(limit: number): PendingChunk[] {
    return this.#schema.rows<{ id: number; file: number; text: string }>(
      `SELECT chunk.id, chunk.file, chunk.text FROM chunk JOIN file ON file.no = chunk.file AND file.status = 'in_progress'
       WHERE chunk.is_indexed = 0 ORDER BY chunk.id LIMIT ?`,
      limit,
    );
  }

  /**
   * Indexes chunks, with their embeddings if there are any. Gives those that were still to be indexed, and the bytes of
   * their embeddings.
   */
  index(
    chunks: readonly PendingChunk[],
    embeddings: readonly Float32Array[] | undefined,
  ): Map<number, { chunks: number; bytes: number }> {
    const indexed = new Map<number, { chunks: number; bytes: number }>();
    let run: { file: number; first: number; codes: Uint8Array[] } | undefined;
    for (const [position, { id, file, text }] of chunks.entries()) {
      const mark = "UPDATE chunk SET is_indexed = 1 WHERE id = ? AND is_indexed = 0 RETURNING id";
      if (this.#schema.rows(mark, id).length === 0) continue;
      this.#schema.write("INSERT INTO words (rowid, text) VALUES (?, ?)", id, indexedText(text));
      const done = indexed.get(file) ?? { chunks: 0, bytes: 0 };
      done.chunks += 1;
      indexed.set(file, done);
      const embedding = embeddings?.[position];
      if (!embedding) continue;
      const vector = toInt8(embedding);
      const code = toCode(embedding);
      this.#schema.write("INSERT INTO vector (chunk, bytes) VALUES (?, ?)", id, vector.buffer);
      done.bytes += vector.length + code.length;
      if (run?.file === file && run.first + run.codes.length === id) run.codes.push(code);
      else {
        this.#keepCodes(run);
        run = { file, first: id, codes: [code] };
      }
    }
    this.#keepCodes(run);
    return indexed;
  }

  #keepCodes(run: { file: number; first: number; codes: readonly Uint8Array[] } | undefined): void {
    if (!run) return;
    const { file, first, codes } = run;
    const bytes = new Uint8Array(codes.reduce((sum, { length }) => sum + length, 0));
    let at = 0;
    for (const code of codes) {
      bytes.set(code, at);
      at += code.length;
    }
    this.#schema.write("INSERT INTO code (file, first, bytes) VALUES (?, ?, ?)", file, first, bytes.buffer);
  }

  /** Makes a file findable. Its codes are found once they are read into memory. */
  publish(file: number): void {
    const codes = this.#codes;
    if (!codes) return;
    const rows = "SELECT first, bytes FROM code WHERE file = ? AND seq <= ? ORDER BY seq";
    for (const { first, bytes } of this.#schema.rows<CodeRow>(rows, file, this.#readUntil)) {
      codes.add(file, first, new Uint8Array(bytes));
    }
  }

  /** Makes a file no longer findable. */
  withdraw(file: number): void {
    this.#codes?.remove(file);
  }

  /** The texts of a file's chunks in their order, up to a total of `maxLength` UTF-16 units. */
  texts(file: number, maxLength: number): { texts: string[]; hasMore: boolean } {
    const texts: string[] = [];
    let length = 0;
    for (let seq = 0; ; seq += 1) {
      const [row] = this.#schema.rows<{ text: string }>("SELECT text FROM chunk WHERE file = ? AND seq = ?", file, seq);
      if (!row) return { texts, hasMore: false };
      length += row.text.length;
      if (length > maxLength) return { texts, hasMore: true };
      texts.push(row.text);
    }
  }

  /** Tells whether there are still chunks of removed files. */
  get hasRemoved(): boolean {
    return this.#schema.rows("SELECT 1 FROM removed LIMIT 1").length > 0;
  }

  /** Removes some chunks of removed files. False if none is left. */
  sweep(): boolean {
    const [row] = this.#schema.rows<{ file: number }>("SELECT file FROM removed LIMIT 1");
    if (!row) return false;
    const some = "SELECT id FROM chunk WHERE file = ? LIMIT ?";
    const ids = this.#schema.rows<{ id: number }>(some, row.file, REMOVED_AT_ONCE).map(({ id }) => id);
    for (const id of ids) {
      const wasIndexed = "DELETE FROM chunk WHERE id = ? RETURNING is_indexed";
      if (this.#schema.rows<{ is_indexed: number }>(wasIndexed, id)[0]?.is_indexed !== 1) continue;
      this.#schema.write("DELETE FROM words WHERE rowid = ?", id);
      this.#schema.write("DELETE FROM vector WHERE chunk = ?", id);
    }
    if (this.#count !== undefined) this.#count -= ids.length;
    if (ids.length < REMOVED_AT_ONCE) {
      this.#schema.write("DELETE FROM code WHERE file = ?", row.file);
      this.#schema.write("DELETE FROM removed WHERE file = ?", row.file);
    }
    return true;
  }

  /**
   * The codes of all published chunks, which the first search reads. Files up to `reindexUntil` are left out, because
   * their codes are of another model. `step` lets other work run.
   */
  codes(dimensions: number, reindexUntil: number, step: () => Promise<void>): Promise<Codes> {
    this.#reading ??= this.#read(dimensions, reindexUntil, step).catch((error: unknown) => {
      this.forget();
      throw error;
    });
    return this.#reading;
  }

  async #read(dimensions: number, reindexUntil: number, step: () => Promise<void>): Promise<Codes> {
    const codes = new Codes(await createKernel(), dimensions);
    this.#codes = codes;
    const next = `SELECT code.seq, file, first, code.bytes FROM code JOIN file ON file.no = code.file AND status = 'completed'
      WHERE code.seq > ? AND file.no > ? ORDER BY code.seq LIMIT ?`;
    for (;;) {
      const rows = this.#schema.rows<CodeRow & { seq: number; file: number }>(
        next,
        ...[this.#readUntil, reindexUntil, ROWS_AT_ONCE],
      );
      for (const { file, first, bytes } of rows) codes.add(file, first, new Uint8Array(bytes));
      const isAll = rows.length < ROWS_AT_ONCE;
      this.#readUntil = isAll ? Number.MAX_SAFE_INTEGER : (rows.at(-1)?.seq ?? 0);
      if (isAll) return codes;
      await step();
    }
  }
}

type CodeRow = { first: number; bytes: ArrayBuffer };
