import type { FileFields } from "../../protocol/files.ts";
import type { Schema, Versions } from "../schema.ts";
import { STORE_LIST_TABLES } from "../vector-stores/store-list.ts";

/** What is kept of a file beside its bytes. Times are Unix seconds. */
export interface FileRecord {
  /** Its id without the prefix. */
  key: string;
  filename: string;
  /** As its sender says it. */
  mimeType: string | null;
  purpose: FileFields["purpose"];
  bytes: number;
  createdAt: number;
  expiresAt: number | null;
  /** The parts of it, in their order. */
  parts: readonly number[];
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

/** The tables of a directory, by version. What was made once is never changed: a new version adds to it. */
export const FILE_DIRECTORY_VERSIONS: Versions = [
  [
    `CREATE TABLE file (
      seq INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, purpose TEXT NOT NULL,
      bytes INTEGER NOT NULL, created_at INTEGER NOT NULL, expires_at INTEGER, body TEXT NOT NULL)`,
    "CREATE INDEX file_purpose ON file (purpose, seq)",
    "CREATE INDEX file_expiry ON file (expires_at) WHERE expires_at IS NOT NULL",
    // Files that are being received. Nobody sees them.
    `CREATE TABLE unfinished (
      key TEXT NOT NULL PRIMARY KEY, owner TEXT NOT NULL, bytes INTEGER NOT NULL, touched_at INTEGER NOT NULL) WITHOUT ROWID`,
    // Files that are gone, and what of them is still to be removed elsewhere.
    "CREATE TABLE removed (key TEXT NOT NULL PRIMARY KEY, at INTEGER NOT NULL, tries INTEGER NOT NULL) WITHOUT ROWID",
    // The vector stores that a file is in.
    "CREATE TABLE used_by (key TEXT NOT NULL, store TEXT NOT NULL, PRIMARY KEY (key, store)) WITHOUT ROWID",
  ],
  STORE_LIST_TABLES,
];

type Row = Pick<FileRecord, "key" | "purpose" | "bytes"> & {
  created_at: number;
  expires_at: number | null;
  body: string;
};

const COLUMNS = "key, purpose, bytes, created_at, expires_at, body";

/** Nobody has touched a file for so long whose sender, or whose Worker, has died. Milliseconds. */
export const ABANDONED_MS = 900_000;

/** The pauses between tries to remove what cannot be removed. Milliseconds. */
const FIRST_PAUSE_MS = 5_000;
const LONGEST_PAUSE_MS = 3_600_000;

/**
 * The rows of a directory. A file is in one of three tables: it is received, it is there, or it is being removed. It goes from one to
 * the next in one transaction, so that nobody ever sees half a file, and no bytes are without a row that leads to them.
 */
export class FileTable {
  readonly #schema: Schema;

  constructor(schema: Schema) {
    this.#schema = schema;
  }

  /** Begins a file. Before any of its bytes are kept. */
  begin(key: string, owner: string, now: number): void {
    this.#schema.write("INSERT INTO unfinished (key, owner, bytes, touched_at) VALUES (?, ?, 0, ?)", key, owner, now);
  }

  /** Notes that bytes of a file come, at most `bytes` of them. False where it was given up meanwhile. */
  touch(key: string, bytes: number, now: number): boolean {
    const update = "UPDATE unfinished SET bytes = ?, touched_at = ? WHERE key = ? RETURNING key";
    return this.#schema.rows(update, bytes, now, key).length > 0;
  }

  /** Makes a file of what was received. False where it was given up meanwhile. */
  commit({ key, purpose, bytes, createdAt, expiresAt, ...body }: FileRecord): boolean {
    const [begun] = this.#schema.rows<{ owner: string }>("DELETE FROM unfinished WHERE key = ? RETURNING owner", key);
    if (!begun) return false;
    const insert =
      "INSERT INTO file (key, owner, purpose, bytes, created_at, expires_at, body) VALUES (?, ?, ?, ?, ?, ?, ?)";
    this.#schema.write(insert, key, begun.owner, purpose, bytes, createdAt, expiresAt, JSON.stringify(body));
    return true;
  }

  find(key: string, now: number): FileRecord | null {
    const select = `SELECT ${COLUMNS} FROM file WHERE key = ? AND ${VISIBLE}`;
    const [row] = this.#schema.rows<Row>(select, key, toSeconds(now));
    return row ? recordOf(row) : null;
  }

  /** Null where `after` is no file. */
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

  /** Removes a file, or what was received of one. False where there is none. */
  remove(key: string, now: number): boolean {
    const was = this.#schema.rows(
      `DELETE FROM file WHERE key = ? AND ${VISIBLE} RETURNING key`,
      ...[key, toSeconds(now)],
    );
    const gone =
      was.length > 0 || this.#schema.rows("DELETE FROM unfinished WHERE key = ? RETURNING key", key).length > 0;
    if (gone) this.#note(key, now);
    return gone;
  }

  /** Removes at most `limit` files, and what was received of others. Gives how many. */
  removeSome(limit: number, now: number): number {
    const keys = ["file", "unfinished"].flatMap((table) =>
      this.#schema.rows<{ key: string }>(
        `DELETE FROM ${table} WHERE key IN (SELECT key FROM ${table} LIMIT ?) RETURNING key`,
        limit,
      ),
    );
    for (const { key } of keys) this.#note(key, now);
    return keys.length;
  }

  /** Has what has expired, and what was given up, be removed. */
  sweep(now: number): void {
    const expired = "DELETE FROM file WHERE expires_at <= ? RETURNING key";
    const abandoned = "DELETE FROM unfinished WHERE touched_at <= ? RETURNING key";
    for (const { key } of this.#schema.rows<{ key: string }>(expired, toSeconds(now))) this.#note(key, now);
    for (const { key } of this.#schema.rows<{ key: string }>(abandoned, now - ABANDONED_MS)) this.#note(key, now);
  }

  /** At most `limit` files whose bytes are to be removed now. */
  toRemove(limit: number, now: number): { key: string; tries: number }[] {
    return this.#schema.rows("SELECT key, tries FROM removed WHERE at <= ? ORDER BY at LIMIT ?", now, limit);
  }

  /** A file's bytes are removed, and who used it knows. */
  forget(key: string): void {
    this.#schema.write("DELETE FROM removed WHERE key = ?", key);
    this.#schema.write("DELETE FROM used_by WHERE key = ?", key);
  }

  /** A file's bytes could not be removed: it is tried again, the later the oftener it has failed. */
  postpone(key: string, tries: number, now: number): void {
    const pause = Math.min(FIRST_PAUSE_MS * 2 ** Math.min(tries, 20), LONGEST_PAUSE_MS);
    this.#schema.write("UPDATE removed SET at = ?, tries = ? WHERE key = ?", now + pause, tries + 1, key);
  }

  /** When there is something to do next, Unix milliseconds; undefined where nothing is. */
  nextDue(): number | undefined {
    const [row] = this.#schema.rows<{ at: number | null }>(
      `SELECT MIN(at) AS at FROM (
         SELECT MIN(at) AS at FROM removed
         UNION ALL SELECT MIN(touched_at) + ? FROM unfinished
         UNION ALL SELECT MIN(expires_at) * 1000 FROM file WHERE expires_at IS NOT NULL)`,
      ABANDONED_MS,
    );
    return row?.at ?? undefined;
  }

  /** Notes that a file is in a vector store. False where there is no such file. */
  use(key: string, store: string, now: number): boolean {
    if (!this.find(key, now)) return false;
    this.#schema.write("INSERT INTO used_by (key, store) VALUES (?, ?) ON CONFLICT DO NOTHING", key, store);
    return true;
  }

  /** Notes that a file is in a vector store no more. */
  disuse(key: string, store: string): void {
    this.#schema.rows("DELETE FROM used_by WHERE key = ? AND store = ?", key, store);
  }

  /** The vector stores that a file is in. */
  users(key: string): string[] {
    return this.#schema
      .rows<{ store: string }>("SELECT store FROM used_by WHERE key = ?", key)
      .map(({ store }) => store);
  }

  #note(key: string, now: number): void {
    this.#schema.write("INSERT INTO removed (key, at, tries) VALUES (?, ?, 0)", key, now);
  }
}

const VISIBLE = "(expires_at IS NULL OR expires_at > ?)";

function recordOf({ created_at: createdAt, expires_at: expiresAt, body, ...row }: Row): FileRecord {
  const rest = JSON.parse(body) as Pick<FileRecord, "filename" | "mimeType" | "parts">;
  return { ...row, ...rest, createdAt, expiresAt };
}

function toSeconds(ms: number): number {
  return Math.floor(ms / 1000);
}
