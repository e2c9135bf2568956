import type { MemoryLimit } from "@responses-edge/responses-api/platform/containers";
import { CONTAINER_FILE_SECONDS, type ContainerUse, type PendingFile } from "../../../contract/container-files.ts";
import type { Schema } from "../../objects/schema.ts";
import { type FileRecord, type Row as FileRow, type FileTable, recordOf, toSeconds } from "./file-table.ts";

/** The containers of a tenant: rows of its directory. Their programs and files live on the tool server. */

export const CONTAINER_TABLES = [
  // `state`: new; open, once the tool server has a session for it; lost, once the tool server has said that it has none.
  `CREATE TABLE container (
      seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL, created_at INTEGER NOT NULL,
      active_at INTEGER NOT NULL, minutes INTEGER NOT NULL, state TEXT NOT NULL, memory TEXT)`,
  // The present files of containers. `state`: to be written to the tool server, there, or to be removed there.
  `CREATE TABLE container_file (
      seq INTEGER PRIMARY KEY AUTOINCREMENT, container TEXT NOT NULL, path TEXT NOT NULL, key TEXT NOT NULL,
      source TEXT NOT NULL, created_at INTEGER NOT NULL, state TEXT NOT NULL, UNIQUE (container, path))`,
];

/** A container. Times are Unix seconds. */
export interface ContainerRecord {
  id: string;
  name: string;
  createdAt: number;
  activeAt: number;
  minutes: number;
  memory: MemoryLimit | null;
  isExpired: boolean;
}

/** A container that is to be made. */
export interface NewContainer {
  id: string;
  name: string;
  minutes: number;
  memory: MemoryLimit | null;
}

/** A file of a container: its record, its path below `/mnt/data`, and who has written it. */
export interface ContainerFile {
  record: FileRecord;
  path: string;
  source: "assistant" | "user";
  createdAt: number;
}

export interface ContainerQuery {
  limit: number;
  order: "asc" | "desc";
  /** The id of a container, or the key of a file, before the page. */
  after?: string | undefined;
  name?: string | undefined;
}

type Row = {
  seq: number;
  id: string;
  name: string;
  created_at: number;
  active_at: number;
  minutes: number;
  state: "new" | "open" | "lost";
  memory: MemoryLimit | null;
};

type FileOfRow = FileRow & { path: string; source: ContainerFile["source"]; added_at: number };

/** Seconds for which an expired container is remembered, so that a client that names it learns why it is gone. */
const KNOWN_SECONDS = 86_400;

const ACTIVE = "state <> 'lost' AND active_at + minutes * 60 > ?";

export class ContainerTable {
  readonly #schema: Schema;
  readonly #files: FileTable;

  constructor(schema: Schema, files: FileTable) {
    this.#schema = schema;
    this.#files = files;
  }

  /** Makes a container. False if `max` of them have not expired. A repeated call changes nothing. */
  create({ id, name, minutes, memory }: NewContainer, max: number, now: number): boolean {
    if (this.#row(id)) return true;
    const seconds = toSeconds(now);
    const count = `SELECT COUNT(*) AS count FROM container WHERE ${ACTIVE}`;
    const [active] = this.#schema.rows<{ count: number }>(count, seconds);
    if ((active?.count ?? 0) >= max) return false;
    const insert = `INSERT INTO container (id, name, created_at, active_at, minutes, state, memory)
      VALUES (?, ?, ?, ?, ?, 'new', ?)`;
    this.#schema.write(insert, id, name, seconds, seconds, minutes, memory);
    return true;
  }

  find(id: string, now: number): ContainerRecord | null {
    const row = this.#row(id);
    return row ? containerOf(row, now) : null;
  }

  /** Null if `after` is no container. */
  list(
    { limit, order, after, name }: ContainerQuery,
    now: number,
  ): { data: ContainerRecord[]; hasMore: boolean } | null {
    const isForward = order === "asc";
    const from = after === undefined ? (isForward ? 0 : Number.MAX_SAFE_INTEGER) : this.#row(after)?.seq;
    if (from === undefined) return null;
    const rows = this.#schema.rows<Row>(
      `SELECT * FROM container WHERE seq ${isForward ? ">" : "<"} ? ${name === undefined ? "" : "AND name = ?"}
       ORDER BY seq ${isForward ? "ASC" : "DESC"} LIMIT ?`,
      ...[from, ...(name === undefined ? [] : [name]), limit + 1],
    );
    return { data: rows.slice(0, limit).map((row) => containerOf(row, now)), hasMore: rows.length > limit };
  }

  /** Removes a container and the files that were made for it. False if it does not exist. */
  remove(id: string, now: number): boolean {
    if (!this.#row(id)) return false;
    this.#forget(id);
    this.#files.removeOf(id, now);
    return true;
  }

  /** Removes at most `limit` containers. Gives their ids. Their files stay. */
  removeSome(limit: number): string[] {
    const ids = this.#schema.rows<{ id: string }>("SELECT id FROM container LIMIT ?", limit).map(({ id }) => id);
    for (const id of ids) this.#forget(id);
    return ids;
  }

  /** Notes that a container is used, and gives what the tool server must be told. */
  use(id: string, now: number): ContainerUse {
    const row = this.#row(id);
    if (!row) return { kind: "missing" };
    if (containerOf(row, now).isExpired) return { kind: "expired" };
    const seconds = toSeconds(now);
    this.#schema.write("UPDATE container SET active_at = ? WHERE id = ?", seconds, id);
    this.#schema.write(
      `UPDATE file SET expires_at = ? WHERE container = ? AND expires_at < ?
       AND key IN (SELECT key FROM container_file WHERE container = ?)`,
      ...[seconds + CONTAINER_FILE_SECONDS, id, seconds + CONTAINER_FILE_SECONDS / 2, id],
    );
    const select = "SELECT key, path, state FROM container_file WHERE container = ? AND state <> 'there' ORDER BY seq";
    const pending = this.#schema.rows<{ key: string; path: string; state: "new" | "gone" }>(select, id);
    const { minutes, memory } = row;
    return { kind: "ready", isOpen: row.state === "open", minutes, memory, pending: pending.map(pendingOf) };
  }

  /** Notes that the tool server has a session for a container, and what it has been told of its files. */
  settle(id: string, pending: readonly PendingFile[]): void {
    this.#schema.rows("UPDATE container SET state = 'open' WHERE id = ? AND state = 'new'", id);
    for (const { key, path, isGone } of pending) {
      const change = isGone ? "DELETE FROM container_file" : "UPDATE container_file SET state = 'there'";
      this.#schema.rows(`${change} WHERE container = ? AND path = ? AND key = ?`, id, path, key);
    }
  }

  /** Notes that the use of a container has ended. */
  touch(id: string, now: number): void {
    this.#schema.rows(
      `UPDATE container SET active_at = ? WHERE id = ? AND ${ACTIVE}`,
      toSeconds(now),
      id,
      toSeconds(now),
    );
  }

  /** Notes that the tool server has lost a container. */
  lose(id: string): void {
    this.#schema.rows("UPDATE container SET state = 'lost' WHERE id = ?", id);
  }

  /** Gives a container the file of a path, in place of another one. */
  put(id: string, file: { key: string; path: string; source: ContainerFile["source"] }, now: number): void {
    const state = file.source === "assistant" ? "there" : "new";
    const insert = `INSERT INTO container_file (container, path, key, source, created_at, state) VALUES (?, ?, ?, ?, ?, ?)
      ON CONFLICT (container, path) DO UPDATE SET key = excluded.key, source = excluded.source,
      created_at = excluded.created_at, state = excluded.state`;
    this.#schema.write(insert, id, file.path, file.key, file.source, toSeconds(now), state);
  }

  /** Gives a container uploaded files, unless it has them. A file whose name is taken has its id before it. */
  give(id: string, given: readonly { key: string; id: string; filename: string }[], now: number): void {
    for (const { key, id: file, filename } of given) {
      const has = "SELECT 1 FROM container_file WHERE container = ? AND key = ? AND state <> 'gone'";
      if (this.#schema.rows(has, id, key).length > 0) continue;
      const taken = "SELECT 1 FROM container_file WHERE container = ? AND path = ?";
      const isFree = !/^\.+$/.test(filename) && this.#schema.rows(taken, id, filename).length === 0;
      this.put(id, { key, path: isFree ? filename : `${file}-${filename}`, source: "user" }, now);
    }
  }

  /** A present file of a container, or an earlier one that a program has overwritten. */
  file(id: string, key: string, now: number): ContainerFile | null {
    const [row] = this.#schema.rows<FileOfRow>(
      `${FILES_OF} AND file.key = ? AND container_file.state <> 'gone'`,
      ...[id, toSeconds(now), key],
    );
    if (row) return fileOf(row);
    const record = this.#files.find(key, now);
    if (!record?.container || record.container.id !== id || this.#isGone(id, key)) return null;
    const { path, source = "assistant" } = record.container;
    return { record, path, source, createdAt: record.createdAt };
  }

  /** The present files. Null if `after` is none of them. */
  files(
    id: string,
    { limit, order, after }: ContainerQuery,
    now: number,
  ): { data: ContainerFile[]; hasMore: boolean } | null {
    const isForward = order === "asc";
    let from = isForward ? 0 : Number.MAX_SAFE_INTEGER;
    if (after !== undefined) {
      const select = "SELECT seq FROM container_file WHERE container = ? AND key = ?";
      const [row] = this.#schema.rows<{ seq: number }>(select, id, after);
      if (!row) return null;
      from = row.seq;
    }
    const rows = this.#schema.rows<FileOfRow>(
      `${FILES_OF} AND container_file.state <> 'gone' AND container_file.seq ${isForward ? ">" : "<"} ?
       ORDER BY container_file.seq ${isForward ? "ASC" : "DESC"} LIMIT ?`,
      ...[id, toSeconds(now), from, limit + 1],
    );
    return { data: rows.slice(0, limit).map(fileOf), hasMore: rows.length > limit };
  }

  /** Removes a file from a container; the file itself, too, if it was made for it. False if the container does not have it. */
  removeFile(id: string, key: string, now: number): boolean {
    const found = this.file(id, key, now);
    if (!found) return false;
    // A file that the tool server does not have yet leaves nothing to be removed there.
    this.#schema.rows("DELETE FROM container_file WHERE container = ? AND key = ? AND state = 'new'", id, key);
    this.#schema.rows("UPDATE container_file SET state = 'gone' WHERE container = ? AND key = ?", id, key);
    if (found.record.container?.id === id) this.#files.remove(key, now);
    return true;
  }

  /** Forgets containers that have expired long ago. */
  sweep(now: number): void {
    const due = "SELECT id FROM container WHERE active_at + minutes * 60 + ? <= ?";
    for (const { id } of this.#schema.rows<{ id: string }>(due, KNOWN_SECONDS, toSeconds(now))) this.#forget(id);
  }

  /** When the next container is to be forgotten, Unix milliseconds; undefined if there is none. */
  nextDue(): number | undefined {
    const select = "SELECT MIN(active_at + minutes * 60) + ? AS at FROM container";
    const [row] = this.#schema.rows<{ at: number | null }>(select, KNOWN_SECONDS);
    return row?.at == null ? undefined : row.at * 1000;
  }

  #isGone(id: string, key: string): boolean {
    const select = "SELECT 1 FROM container_file WHERE container = ? AND key = ? AND state = 'gone'";
    return this.#schema.rows(select, id, key).length > 0;
  }

  #row(id: string): Row | undefined {
    return this.#schema.rows<Row>("SELECT * FROM container WHERE id = ?", id)[0];
  }

  #forget(id: string): void {
    this.#schema.rows("DELETE FROM container WHERE id = ?", id);
    this.#schema.rows("DELETE FROM container_file WHERE container = ?", id);
  }
}

/** The files of a container that are visible at a time. */
const FILES_OF = `SELECT file.key, file.purpose, file.bytes, file.created_at, file.expires_at, file.body,
    container_file.path, container_file.source, container_file.created_at AS added_at
  FROM container_file JOIN file ON file.key = container_file.key
  WHERE container_file.container = ? AND (file.expires_at IS NULL OR file.expires_at > ?)`;

function containerOf({ created_at: createdAt, active_at: activeAt, state, ...row }: Row, now: number): ContainerRecord {
  const { id, name, minutes, memory } = row;
  const isExpired = state === "lost" || activeAt + minutes * 60 <= toSeconds(now);
  return { id, name, minutes, memory, createdAt, activeAt, isExpired };
}

function fileOf({ path, source, added_at: createdAt, ...row }: FileOfRow): ContainerFile {
  return { record: recordOf(row), path, source, createdAt };
}

function pendingOf({ key, path, state }: { key: string; path: string; state: "new" | "gone" }): PendingFile {
  return { key, path, isGone: state === "gone" };
}
