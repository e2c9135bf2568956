import { type AttributeFilter, type Attributes, passes } from "@responses-edge/responses-api/attribute-filter";
import type {
  BatchObject,
  Chunking,
  FileCounts,
  FileStatus,
  LastError,
  StoreFileObject,
} from "@responses-edge/responses-api/platform/vector-stores";
import type { CountedLimits } from "@responses-edge/usage-limits";
import type { Schema } from "../../objects/schema.ts";

/** The files of a store, and the batches that they came in. */

/** The key that has added a file. Its embeddings count in that key's limits. */
export interface FileOwner {
  keyId: string;
  counted: CountedLimits | undefined;
}

/** A file that is to be added. */
export interface NewStoreFile {
  id: string;
  /** Null if nobody has looked yet. */
  filename: string | null;
  attributes: Attributes | null;
  chunking: Chunking;
}

export interface StoreFile extends NewStoreFile {
  /** The number of its row. */
  no: number;
  status: FileStatus;
  error: LastError | null;
  /** The size of its chunks and embeddings. */
  bytes: number;
  /** Unix seconds. */
  createdAt: number;
  owner: FileOwner;
  pending: number;
  isRead: boolean;
}

export interface StoreFileQuery {
  status?: FileStatus | undefined;
  batch?: string | undefined;
  limit: number;
  order: "asc" | "desc";
  /** Ids of files: after, or before, these. */
  after?: string | undefined;
  before?: string | undefined;
}

export interface StoreFilePage {
  data: StoreFile[];
  hasMore: boolean;
}

type Row = {
  no: number;
  id: string;
  filename: string | null;
  status: FileStatus;
  error: string | null;
  bytes: number;
  created_at: number;
  attributes: string | null;
  chunking: string;
  owner: string;
  pending: number;
  is_read: number;
};

/** Remembered until a file changes. */
interface Known {
  counts: FileCounts;
  bytes: number;
}

/** Filters whose files are remembered. */
const MAX_FILTERS = 8;

/** Rows that a filter reads between two slices. */
const ROWS_AT_ONCE = 2_000;

/** A page of the files of a store. */
export interface ShownStoreFiles {
  data: StoreFileObject[];
  hasMore: boolean;
}

export class StoreFiles {
  readonly #schema: Schema;
  readonly #onEnd: (status: FileStatus) => void;
  #known: Known | undefined;
  readonly #passing = new Map<string, ReadonlySet<number>>();
  #changes = 0;

  /** `onEnd` is called for each file that is no longer in progress. */
  constructor(schema: Schema, onEnd: (status: FileStatus) => void) {
    this.#schema = schema;
    this.#onEnd = onEnd;
  }

  /** Forgets everything remembered about all files. */
  forget(): void {
    this.#known = undefined;
    this.#passing.clear();
    this.#changes += 1;
  }

  /** Adds a file, which replaces one with the same id. If the same file is already there, only its attributes change. */
  add(file: NewStoreFile, owner: FileOwner, now: number): StoreFile {
    this.forget();
    const chunking = JSON.stringify(file.chunking);
    const attributes = file.attributes && JSON.stringify(file.attributes);
    const there = this.find(file.id);
    const isSame = there && JSON.stringify(there.chunking) === chunking;
    if (there && isSame && (there.status === "completed" || there.status === "in_progress")) {
      this.#schema.write("UPDATE file SET attributes = ? WHERE no = ?", attributes, there.no);
      return { ...there, attributes: file.attributes };
    }
    if (there) this.remove(there);
    this.#schema.write(
      `INSERT INTO file (id, filename, status, error, bytes, created_at, attributes, chunking, owner, pending, is_read)
       VALUES (?, ?, 'in_progress', NULL, 0, ?, ?, ?, ?, 0, 0)`,
      ...[file.id, file.filename, Math.floor(now / 1000), attributes, chunking, JSON.stringify(owner)],
    );
    const added = this.find(file.id);
    if (!added) throw new TypeError("A row that was inserted is not there.");
    return added;
  }

  find(id: string): StoreFile | null {
    const [row] = this.#schema.rows<Row>("SELECT * FROM file WHERE id = ?", id);
    return row ? toFile(row) : null;
  }

  at(no: number): StoreFile | null {
    const [row] = this.#schema.rows<Row>("SELECT * FROM file WHERE no = ?", no);
    return row ? toFile(row) : null;
  }

  /** Null if a cursor is no file of the list. */
  list({ status, batch, limit, order, after, before }: StoreFileQuery): StoreFilePage | null {
    const conditions: string[] = [];
    const values: (string | number)[] = [];
    for (const [cursor, isAfter] of [[after, true] as const, [before, false] as const]) {
      if (cursor === undefined) continue;
      const file = this.find(cursor);
      if (!file) return null;
      conditions.push(`no ${isAfter === (order === "asc") ? ">" : "<"} ?`);
      values.push(file.no);
    }
    if (status !== undefined) {
      conditions.push("status = ?");
      values.push(status);
    }
    if (batch !== undefined) {
      conditions.push("no IN (SELECT file FROM batch_file WHERE batch = ?)");
      values.push(batch);
    }
    // With `before`, the page is the one next to that file.
    const isBackward = before !== undefined && after === undefined;
    const isAscending = (order === "asc") !== isBackward;
    const rows = this.#schema.rows<Row>(
      `SELECT * FROM file ${conditions.length > 0 ? `WHERE ${conditions.join(" AND ")}` : ""}
       ORDER BY no ${isAscending ? "ASC" : "DESC"} LIMIT ?`,
      ...[...values, limit + 1],
    );
    const data = rows.slice(0, limit).map(toFile);
    return { data: isBackward ? data.reverse() : data, hasMore: rows.length > limit };
  }

  /** The next files to read, in the order in which they came. */
  toRead(limit: number): StoreFile[] {
    const unread = "SELECT * FROM file WHERE status = 'in_progress' AND is_read = 0 ORDER BY no LIMIT ?";
    return this.#schema.rows<Row>(unread, limit).map(toFile);
  }

  setFilename(no: number, filename: string): void {
    this.#schema.write("UPDATE file SET filename = ? WHERE no = ?", filename, no);
  }

  setAttributes(no: number, attributes: Attributes | null): void {
    this.forget();
    this.#schema.write("UPDATE file SET attributes = ? WHERE no = ?", attributes && JSON.stringify(attributes), no);
  }

  /** Adds chunks that were stored, or subtracts indexed ones (a negative number), and their bytes. */
  addPending(no: number, chunks: number, bytes: number): void {
    this.#known = undefined;
    this.#schema.write("UPDATE file SET pending = pending + ?, bytes = bytes + ? WHERE no = ?", chunks, bytes, no);
  }

  /** Notes that a file was read, and what of it could not be. */
  setRead(no: number, error: LastError | null): void {
    this.#schema.write("UPDATE file SET is_read = 1, error = ? WHERE no = ?", error && JSON.stringify(error), no);
  }

  /** Publishes a file if all its chunks are indexed. False otherwise. */
  publish(no: number): boolean {
    const publish = `UPDATE file SET status = 'completed'
      WHERE no = ? AND status = 'in_progress' AND is_read = 1 AND pending = 0 RETURNING no`;
    const isPublished = this.#schema.rows(publish, no).length > 0;
    if (!isPublished) return false;
    this.forget();
    this.#onEnd("completed");
    return true;
  }

  /** Ends a file in progress without success. Its chunks are removed later. */
  end(no: number, status: "cancelled" | "failed", error: LastError | null): void {
    this.forget();
    const end = "UPDATE file SET status = ?, error = ?, bytes = 0 WHERE no = ? AND status = 'in_progress' RETURNING no";
    const ended = this.#schema.rows(end, status, error && JSON.stringify(error), no);
    if (ended.length === 0) return;
    this.#schema.write("INSERT OR IGNORE INTO removed (file) VALUES (?)", no);
    this.#onEnd(status);
  }

  /** Resets some of the files up to a number, to be read and indexed again under new numbers. False if none is left. */
  restart(until: number, limit: number, now: number): boolean {
    const rows = this.#schema.rows<Row>("SELECT * FROM file WHERE no <= ? ORDER BY no LIMIT ?", until, limit);
    for (const file of rows.map(toFile)) {
      const batches = "SELECT batch FROM batch_file WHERE file = ?";
      const ids = this.#schema.rows<{ batch: string }>(batches, file.no).map(({ batch }) => batch);
      this.remove(file);
      const { no } = this.add(file, file.owner, now);
      for (const id of ids) this.#schema.write("INSERT INTO batch_file (batch, file) VALUES (?, ?)", id, no);
    }
    return rows.length > 0;
  }

  /** The number of the last file; 0 if there are none. */
  get last(): number {
    return this.#schema.rows<{ no: number | null }>("SELECT MAX(no) AS no FROM file")[0]?.no ?? 0;
  }

  removeAll(): void {
    this.forget();
    this.#schema.write("INSERT OR IGNORE INTO removed (file) SELECT no FROM file");
    this.#schema.write("DELETE FROM file");
    this.#schema.write("DELETE FROM batch_file");
  }

  remove({ no }: StoreFile): void {
    this.forget();
    this.#schema.write("DELETE FROM file WHERE no = ?", no);
    this.#schema.write("DELETE FROM batch_file WHERE file = ?", no);
    this.#schema.write("INSERT OR IGNORE INTO removed (file) VALUES (?)", no);
  }

  /** The number of files of each status, and their total size. */
  totals(): Known {
    this.#known ??= this.#count("");
    return this.#known;
  }

  createBatch(id: string, files: readonly StoreFile[], now: number): void {
    this.#schema.write("INSERT INTO batch (id, created_at) VALUES (?, ?)", id, Math.floor(now / 1000));
    const numbers = JSON.stringify(files.map(({ no }) => no));
    this.#schema.write("INSERT OR IGNORE INTO batch_file (batch, file) SELECT ?, value FROM json_each(?)", id, numbers);
  }

  /** Null if the batch does not exist. */
  batch(id: string): { createdAt: number; counts: FileCounts } | null {
    const [row] = this.#schema.rows<{ created_at: number }>("SELECT created_at FROM batch WHERE id = ?", id);
    if (!row) return null;
    const { counts } = this.#count("WHERE no IN (SELECT file FROM batch_file WHERE batch = ?)", id);
    return { createdAt: row.created_at, counts };
  }

  cancelBatch(id: string): void {
    const open = `SELECT no FROM file JOIN batch_file ON batch_file.file = file.no
      WHERE batch_file.batch = ? AND status = 'in_progress'`;
    for (const { no } of this.#schema.rows<{ no: number }>(open, id)) this.end(no, "cancelled", null);
  }

  /** The numbers of the published files that pass a filter. `step` lets other work run. */
  async passing(filter: AttributeFilter, step: () => Promise<void>): Promise<ReadonlySet<number>> {
    const name = JSON.stringify(filter);
    const known = this.#passing.get(name);
    if (known) return known;
    const changes = this.#changes;
    const found = new Set<number>();
    const rows = "SELECT no, attributes FROM file WHERE status = 'completed' AND no > ? ORDER BY no LIMIT ?";
    for (let after = 0; ; await step()) {
      const read = this.#schema.rows<Pick<Row, "no" | "attributes">>(rows, after, ROWS_AT_ONCE);
      for (const { no, attributes } of read) {
        if (passes(filter, attributes === null ? {} : (JSON.parse(attributes) as Attributes))) found.add(no);
        after = no;
      }
      if (read.length < ROWS_AT_ONCE) break;
    }
    // Kept only if nothing has changed. The next search sees later changes.
    if (changes === this.#changes) {
      const [oldest] = this.#passing.keys();
      if (this.#passing.size >= MAX_FILTERS && oldest !== undefined) this.#passing.delete(oldest);
      this.#passing.set(name, found);
    }
    return found;
  }

  #count(condition: string, ...values: string[]): Known {
    const counts: FileCounts = { in_progress: 0, completed: 0, failed: 0, cancelled: 0, total: 0 };
    let bytes = 0;
    const rows = this.#schema.rows<{ status: FileStatus; files: number; bytes: number }>(
      `SELECT status, COUNT(*) AS files, SUM(bytes) AS bytes FROM file ${condition} GROUP BY status`,
      ...values,
    );
    for (const row of rows) {
      counts[row.status] = row.files;
      counts.total += row.files;
      bytes += row.bytes;
    }
    return { counts, bytes };
  }
}

function toFile(row: Row): StoreFile {
  const { created_at, attributes, chunking, owner, error, is_read, ...rest } = row;
  return {
    ...rest,
    createdAt: created_at,
    attributes: attributes === null ? null : (JSON.parse(attributes) as Attributes),
    chunking: JSON.parse(chunking) as Chunking,
    owner: JSON.parse(owner) as FileOwner,
    error: error === null ? null : (JSON.parse(error) as LastError),
    isRead: is_read === 1,
  };
}

/** A file of a store as the API shows it. */
export function shownFile(
  { id, createdAt, status, error, bytes, attributes, chunking }: StoreFile,
  store: string,
): StoreFileObject {
  return {
    id,
    object: "vector_store.file",
    vector_store_id: store,
    created_at: createdAt,
    status,
    last_error: error,
    usage_bytes: bytes,
    attributes,
    chunking_strategy: chunking,
  };
}

/** The status of a batch of files with these counts. */
export function statusOfBatch({ in_progress, completed, cancelled, total }: FileCounts): BatchObject["status"] {
  if (in_progress > 0) return "in_progress";
  if (cancelled > 0) return "cancelled";
  return completed > 0 || total === 0 ? "completed" : "failed";
}
