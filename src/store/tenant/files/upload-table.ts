import type { FileFields } from "@responses-edge/responses-api/platform/files";
import type { FileLimits } from "../../../contract/grants.ts";
import type { Schema } from "../../objects/schema.ts";
import { type FileRecord, type FileTable, toSeconds } from "./file-table.ts";

/** An upload: a file that comes in parts. Times are Unix seconds. */
export interface UploadRecord {
  /** Also the key of the file that it becomes. */
  key: string;
  /** The total that its parts must have. */
  bytes: number;
  filename: string;
  mimeType: string;
  about: FileFields;
  createdAt: number;
  expiresAt: number;
  status: "pending" | "completed" | "cancelled" | "expired";
}

/** Seconds for which an ended upload is remembered, so that a client that asks again learns its end. */
const KNOWN_SECONDS = 86_400;

/** Most parts of one upload: OpenAI's 8 GB in parts of 64 MB are 128. */
const MAX_PARTS = 10_000;

/** Most pending uploads of a tenant. Each expires in an hour. */
const MAX_PENDING = 1_000;

/** The uploads of a directory. */
export class UploadTable {
  readonly #schema: Schema;
  readonly #files: FileTable;

  constructor(schema: Schema, files: FileTable) {
    this.#schema = schema;
    this.#files = files;
  }

  /** Begins an upload. False if the tenant has as many pending ones as it may. */
  create({ key, expiresAt, status, ...body }: UploadRecord, owner: string): boolean {
    const [pending] = this.#schema.rows<{ count: number }>(
      "SELECT COUNT(*) AS count FROM upload WHERE status = 'pending' AND key <> ?",
      key,
    );
    if ((pending?.count ?? 0) >= MAX_PENDING) return false;
    const insert =
      "INSERT INTO upload (key, owner, expires_at, status, body) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING";
    this.#schema.write(insert, key, owner, expiresAt, status, JSON.stringify(body));
    return true;
  }

  find(key: string, now: number): UploadRecord | null {
    const select = "SELECT expires_at, status, body FROM upload WHERE key = ?";
    const [row] = this.#schema.rows<{ expires_at: number; status: UploadRecord["status"]; body: string }>(select, key);
    if (!row) return null;
    const { expires_at: expiresAt, status } = row;
    const hasExpired = status === "pending" && expiresAt <= toSeconds(now);
    const body = JSON.parse(row.body) as Omit<UploadRecord, "key" | "expiresAt" | "status">;
    return { ...body, key, expiresAt, status: hasExpired ? "expired" : status };
  }

  /** Begins a part of a pending upload, and gives its number; null if it has as many as it may. Throws as `FileTable.begin` does. */
  beginPart(key: string, owner: string, limits: FileLimits, now: number): number | null {
    const [last] = this.#schema.rows<{ part: number | null }>("SELECT MAX(part) AS part FROM part WHERE key = ?", key);
    const part = (last?.part ?? 0) + 1;
    if (part > MAX_PARTS) return null;
    this.#files.begin({ key, part, owner }, limits, now);
    return part;
  }

  /** Makes a file of the parts of a pending upload. The other parts are removed. Throws as `FileTable.begin` does. */
  complete(record: FileRecord, limits: FileLimits, now: number): void {
    const { key, parts } = record;
    const [upload] = this.#schema.rows<{ owner: string }>(
      "UPDATE upload SET status = 'completed' WHERE key = ? RETURNING owner",
      key,
    );
    this.#schema.write("DELETE FROM part WHERE key = ?", key);
    const { owner = "" } = upload ?? {};
    this.#files.add(record, owner);
    this.#files.check(limits, owner, { files: 1, bytes: record.bytes });
    this.#files.noteRemoved(key, parts, now);
  }

  cancel(key: string, now: number): void {
    this.#schema.write("UPDATE upload SET status = 'cancelled' WHERE key = ?", key);
    this.#files.discard(key, now);
  }

  /** Ends uploads that nobody has completed in time, and forgets those that ended long ago. */
  sweep(now: number): void {
    const expired = "UPDATE upload SET status = 'expired' WHERE status = 'pending' AND expires_at <= ? RETURNING key";
    for (const { key } of this.#schema.rows<{ key: string }>(expired, toSeconds(now))) this.#files.discard(key, now);
    this.#schema.rows(
      "DELETE FROM upload WHERE status <> 'pending' AND expires_at <= ?",
      toSeconds(now) - KNOWN_SECONDS,
    );
  }

  /** Removes at most `limit` uploads. The table of files removes their bytes. Gives the number. */
  removeSome(limit: number): number {
    const select = "SELECT key FROM upload LIMIT ?";
    return this.#schema.rows(`DELETE FROM upload WHERE key IN (${select}) RETURNING key`, limit).length;
  }

  /** When the next work is due, Unix milliseconds; undefined if there is none. */
  nextDue(): number | undefined {
    const [row] = this.#schema.rows<{ at: number | null }>(
      "SELECT MIN(expires_at + CASE status WHEN 'pending' THEN 0 ELSE ? END) * 1000 AS at FROM upload",
      KNOWN_SECONDS,
    );
    return row?.at ?? undefined;
  }
}
