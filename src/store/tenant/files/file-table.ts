import type { FileObject } from "@responses-edge/responses-api/platform/files";
import type { FileLimits } from "../../../contract/grants.ts";
import type { Schema } from "../../objects/schema.ts";
import { checkFileLimits } from "./file-limits.ts";

/** The record of a file, without its bytes. Times are Unix seconds. */
export interface FileRecord {
  /** Its id without the prefix. */
  key: string;
  filename: string;
  /** As the sender states it. */
  mimeType: string | null;
  purpose: FileObject["purpose"];
  bytes: number;
  createdAt: number;
  expiresAt: number | null;
  /** Its parts, in order. */
  parts: readonly number[];
  /** Where its bytes are stored: in rows of its object, or in a bucket. */
  at: "rows" | "r2" | "s3";
  /** The container for which it was made, and its path there. A program has written it, unless `source` says otherwise. */
  container?: { id: string; path: string; source?: "user" };
}

/** A page of the list. */
export interface FilePage {
  data: FileRecord[];
  hasMore: boolean;
}

export interface FileQuery {
  purpose?: string | undefined;
  limit: number;
  order: "asc" | "desc";
  /** The key of the file before the page. */
  after?: string | undefined;
}

export type Row = Pick<FileRecord, "key" | "purpose" | "bytes"> & {
  created_at: number;
  expires_at: number | null;
  body: string;
};

const COLUMNS = "key, purpose, bytes, created_at, expires_at, body";

/** Milliseconds without a byte after which a part is given up, because its sender or Worker has died. */
const ABANDONED_MS = 900_000;

/** The pauses between attempts to remove bytes. Milliseconds. */
const FIRST_PAUSE_MS = 5_000;
const LONGEST_PAUSE_MS = 3_600_000;

/** Bytes to remove: a whole file, or the parts that are not kept. */
export interface Removed {
  key: string;
  tries: number;
  kept: readonly number[] | null;
}

/**
 * The files of a directory. A file is in one of three tables: it is being received, it exists, or it is being removed.
 * It moves from one to the next in one transaction, so that nobody ever sees half a file, and all stored bytes have a
 * row that leads to them.
 */
export class FileTable {
  readonly #schema: Schema;

  constructor(schema: Schema) {
    this.#schema = schema;
  }

  /** Begins a part, before any of its bytes are stored, or begins it again. Throws as `checkFileLimits` does. */
  begin({ key, part, owner }: { key: string; part: number; owner: string }, limits: FileLimits, now: number): void {
    const insert = `INSERT INTO part (key, part, owner, bytes, touched_at, is_whole) VALUES (?, ?, ?, 0, ?, 0)
      ON CONFLICT (key, part) DO UPDATE SET owner = excluded.owner, bytes = 0, touched_at = excluded.touched_at, is_whole = 0`;
    this.#schema.write(insert, key, part, owner, now);
    this.check(limits, owner, { files: part === 0 ? 1 : 0, bytes: 0 });
  }

  /** Tells whether a key is that of a file, of one whose bytes are being removed, or of neither. */
  state(key: string): "file" | "removed" | "free" {
    const isIn = (table: string) => this.#schema.rows(`SELECT 1 FROM ${table} WHERE key = ? LIMIT 1`, key).length > 0;
    if (isIn("file")) return "file";
    return isIn("removed") ? "removed" : "free";
  }

  /** Notes how many bytes of a part have come. False if it was given up in the meantime. Throws as `checkFileLimits` does. */
  touch({ key, part, bytes }: { key: string; part: number; bytes: number }, limits: FileLimits, now: number): boolean {
    const update =
      "UPDATE part SET bytes = ?, touched_at = ? WHERE key = ? AND part = ? AND is_whole = 0 RETURNING owner";
    const [row] = this.#schema.rows<{ owner: string }>(update, bytes, now, key, part);
    if (row) this.check(limits, row.owner, { files: 0, bytes });
    return row !== undefined;
  }

  /** Notes that a part has come completely. False if it was given up in the meantime. */
  finish({ key, part, bytes }: { key: string; part: number; bytes: number }): boolean {
    const update = "UPDATE part SET bytes = ?, is_whole = 1 WHERE key = ? AND part = ? AND is_whole < 2 RETURNING key";
    return this.#schema.rows(update, bytes, key, part).length > 0;
  }

  /** Makes a file that was received as a whole. False if it was given up in the meantime. Throws as `checkFileLimits` does. */
  commit(record: FileRecord, limits: FileLimits): boolean {
    const { key, bytes } = record;
    const [begun] = this.#schema.rows<{ owner: string }>("DELETE FROM part WHERE key = ? RETURNING owner", key);
    // A repeated call finds the file.
    if (!begun) return this.#schema.rows("SELECT 1 FROM file WHERE key = ? AND bytes = ?", key, bytes).length > 0;
    this.add(record, begun.owner);
    this.check(limits, begun.owner, { files: 0, bytes });
    return true;
  }

  /** Adds a file whose bytes are all stored. */
  add({ key, purpose, bytes, createdAt, expiresAt, ...body }: FileRecord, owner: string): void {
    const insert =
      "INSERT INTO file (key, owner, purpose, bytes, created_at, expires_at, body, container) VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
    const values = [key, owner, purpose, bytes, createdAt, expiresAt, JSON.stringify(body)];
    this.#schema.write(insert, ...values, body.container?.id ?? null);
  }

  /** The parts of an upload that have come, with their lengths. */
  parts(key: string): Map<number, number> {
    const select = "SELECT part, bytes FROM part WHERE key = ? AND is_whole = 1";
    const rows = this.#schema.rows<{ part: number; bytes: number }>(select, key);
    return new Map(rows.map(({ part, bytes }) => [part, bytes]));
  }

  find(key: string, now: number): FileRecord | null {
    const select = `SELECT ${COLUMNS} FROM file WHERE key = ? AND ${VISIBLE}`;
    const [row] = this.#schema.rows<Row>(select, key, toSeconds(now));
    return row ? recordOf(row) : null;
  }

  /** Null if `after` is no file. */
  list({ purpose, limit, order, after }: FileQuery, now: number): FilePage | null {
    const isForward = order === "asc";
    let from = isForward ? 0 : Number.MAX_SAFE_INTEGER;
    if (after !== undefined) {
      const [row] = this.#schema.rows<{ seq: number }>("SELECT seq FROM file WHERE key = ?", after);
      if (!row) return null;
      from = row.seq;
    }
    const rows = this.#schema.rows<Row>(
      `SELECT ${COLUMNS} FROM file WHERE seq ${isForward ? ">" : "<"} ? AND ${VISIBLE}
       ${purpose === undefined ? "" : "AND purpose = ?"} ORDER BY seq ${isForward ? "ASC" : "DESC"} LIMIT ?`,
      ...[from, toSeconds(now), ...(purpose === undefined ? [] : [purpose]), limit + 1],
    );
    return { data: rows.slice(0, limit).map(recordOf), hasMore: rows.length > limit };
  }

  /** Removes a file. False if it does not exist. */
  remove(key: string, now: number): boolean {
    const gone = this.#schema.rows(`DELETE FROM file WHERE key = ? AND ${VISIBLE} RETURNING key`, key, toSeconds(now));
    if (gone.length > 0) this.noteRemoved(key, null, now);
    return gone.length > 0;
  }

  /** Removes the files that were made for a container. */
  removeOf(container: string, now: number): void {
    const gone = this.#schema.rows<{ key: string }>("DELETE FROM file WHERE container = ? RETURNING key", container);
    for (const { key } of gone) this.noteRemoved(key, null, now);
  }

  /** Removes the received bytes of a file or an upload. */
  discard(key: string, now: number): void {
    this.#schema.rows("DELETE FROM part WHERE key = ?", key);
    // A sender that was given up may have sent further bytes to a bucket.
    if (this.state(key) !== "file") this.noteRemoved(key, null, now);
  }

  /** Removes at most `limit` files, and at most as many parts of others. Gives the number of both. */
  removeSome(limit: number, now: number): number {
    const gone = [
      "file WHERE key IN (SELECT key FROM file",
      "part WHERE (key, part) IN (SELECT key, part FROM part",
    ].flatMap((rows) => this.#schema.rows<{ key: string }>(`DELETE FROM ${rows} LIMIT ?) RETURNING key`, limit));
    for (const key of new Set(gone.map(({ key }) => key))) this.noteRemoved(key, null, now);
    return gone.length;
  }

  /** Marks expired files and abandoned parts for removal. */
  sweep(now: number): void {
    const expired = "DELETE FROM file WHERE expires_at <= ? RETURNING key";
    for (const { key } of this.#schema.rows<{ key: string }>(expired, toSeconds(now))) this.noteRemoved(key, null, now);
    const abandoned = "DELETE FROM part WHERE touched_at <= ? AND is_whole = 0 AND part = 0 RETURNING key";
    for (const { key } of this.#schema.rows<{ key: string }>(abandoned, now - ABANDONED_MS)) {
      this.noteRemoved(key, null, now);
    }
    // The bytes of an upload's part are removed when the upload ends. Until then its number is not used again.
    const given = "UPDATE part SET bytes = 0, is_whole = 2 WHERE touched_at <= ? AND is_whole = 0";
    this.#schema.rows(given, now - ABANDONED_MS);
  }

  /** Marks bytes for removal: those of all parts that are not kept. */
  noteRemoved(key: string, kept: readonly number[] | null, now: number): void {
    const insert = `INSERT INTO removed (key, at, tries, kept) VALUES (?, ?, 0, ?)
      ON CONFLICT (key) DO UPDATE SET at = excluded.at, tries = 0, kept = excluded.kept`;
    this.#schema.write(insert, key, now, kept && JSON.stringify(kept));
  }

  /** At most `limit` files with bytes to remove now. */
  toRemove(limit: number, now: number): Removed[] {
    const select = "SELECT key, tries, kept FROM removed WHERE at <= ? ORDER BY at LIMIT ?";
    const rows = this.#schema.rows<{ key: string; tries: number; kept: string | null }>(select, now, limit);
    return rows.map((row) => ({ ...row, kept: row.kept === null ? null : (JSON.parse(row.kept) as number[]) }));
  }

  /**
   * Removes the entry of bytes that are removed, once the vector stores with the file were told. An entry that has got
   * more bytes since stays.
   */
  forget({ key, kept }: Removed): void {
    const text = kept && JSON.stringify(kept);
    this.#schema.write("DELETE FROM removed WHERE key = ? AND kept IS ?", key, text);
    if (kept === null) this.#schema.write("DELETE FROM used_by WHERE key = ?", key);
  }

  /** Schedules another attempt to remove bytes; the pause grows with the number of failures. */
  postpone({ key, tries }: Removed, now: number): void {
    const pause = Math.min(FIRST_PAUSE_MS * 2 ** Math.min(tries, 20), LONGEST_PAUSE_MS);
    this.#schema.write("UPDATE removed SET at = ?, tries = ? WHERE key = ?", now + pause, tries + 1, key);
  }

  /** When the next work is due, Unix milliseconds; undefined if there is none. */
  nextDue(): number | undefined {
    const [row] = this.#schema.rows<{ at: number | null }>(
      `SELECT MIN(at) AS at FROM (
         SELECT MIN(at) AS at FROM removed
         UNION ALL SELECT MIN(touched_at) + ? FROM part WHERE is_whole = 0
         UNION ALL SELECT MIN(expires_at) * 1000 FROM file WHERE expires_at IS NOT NULL)`,
      ABANDONED_MS,
    );
    return row?.at ?? undefined;
  }

  /** Notes that a file is in a vector store. False if the file does not exist. */
  use(key: string, store: string, now: number): boolean {
    if (!this.find(key, now)) return false;
    this.#schema.write("INSERT INTO used_by (key, store) VALUES (?, ?) ON CONFLICT DO NOTHING", key, store);
    return true;
  }

  /** Notes that a file is no longer in a vector store. */
  disuse(key: string, store: string): void {
    this.#schema.rows("DELETE FROM used_by WHERE key = ? AND store = ?", key, store);
  }

  /** The vector stores that a file is in. */
  users(key: string): string[] {
    const rows = this.#schema.rows<{ store: string }>("SELECT store FROM used_by WHERE key = ?", key);
    return rows.map(({ store }) => store);
  }

  /** Applies limits, as `checkFileLimits` does. */
  check(limits: FileLimits, owner: string, wanted: { files: number; bytes: number }): void {
    checkFileLimits(limits, (of) => this.#total(of), owner, wanted);
  }

  /** The total of the files under a key, or of all: stored ones and those that are being received. */
  #total(owner: string | undefined): { files: number; bytes: number } {
    const where = owner === undefined ? "" : "WHERE owner = ?";
    const [row] = this.#schema.rows<{ files: number | null; bytes: number | null }>(
      `SELECT SUM(files) AS files, SUM(bytes) AS bytes FROM total ${where}`,
      ...(owner === undefined ? [] : [owner]),
    );
    return { files: row?.files ?? 0, bytes: row?.bytes ?? 0 };
  }
}

const VISIBLE = "(expires_at IS NULL OR expires_at > ?)";

/** A record from its row. */
export function recordOf({ created_at: createdAt, expires_at: expiresAt, body, ...row }: Row): FileRecord {
  const rest = JSON.parse(body) as Pick<FileRecord, "filename" | "mimeType" | "parts" | "at" | "container">;
  return { ...row, ...rest, createdAt, expiresAt };
}

export function toSeconds(ms: number): number {
  return Math.floor(ms / 1000);
}
