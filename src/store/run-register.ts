import { Schema } from "./schema.ts";

/**
 * Which runs live in which homes, for the operator: objects cannot be listed. A home says so of each of its runs
 * (`announced-run.ts`). What else there is to know of a run its home tells whoever asks.
 */

/** A run that was announced, by the id of its response. */
export interface AnnouncedRun {
  id: string;
  tenant: string;
}

/** What the register is asked for. */
export interface RunQuery {
  tenant?: string | undefined;
  /** Runs whose ids come after this one. */
  after?: string | undefined;
  limit: number;
}

/** The tables, by version. What was made once is never changed: a new version adds to it. */
const VERSIONS = [["CREATE TABLE runs (id TEXT PRIMARY KEY, tenant TEXT NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID"]];

/** Runs that are known at the same time. */
const MAX_RUNS = 10_000;

/** Where there are more, as many of the oldest are forgotten together as this: not one with each that comes. */
const FORGOTTEN_TOGETHER = 1_000;

export class RunRegister {
  readonly #sql: SqlStorage;
  readonly #schema: Schema;
  readonly #maxRuns: number;
  #count: number | undefined;

  constructor(storage: DurableObjectStorage, maxRuns = MAX_RUNS) {
    this.#sql = storage.sql;
    this.#schema = new Schema(storage, VERSIONS);
    this.#maxRuns = maxRuns;
  }

  /** Again is harmless. `now`: Unix milliseconds. */
  add({ id, tenant }: AnnouncedRun, now: number): void {
    this.#schema.open();
    this.#count ??= this.#sql.exec<{ count: number }>("SELECT COUNT(*) AS count FROM runs").one().count;
    const added = "INSERT OR IGNORE INTO runs (id, tenant, at) VALUES (?, ?, ?)";
    this.#count += this.#sql.exec(added, id, tenant, now).rowsWritten;
    if (this.#count <= this.#maxRuns) return;
    const oldest = "DELETE FROM runs WHERE id IN (SELECT id FROM runs ORDER BY at LIMIT ?)";
    this.#sql.exec(oldest, Math.min(FORGOTTEN_TOGETHER, this.#maxRuns));
    this.#count = undefined;
  }

  /** Those that are not there are no matter. */
  remove(ids: readonly string[]): void {
    if (!this.#schema.openIfMade()) return;
    const ended = "DELETE FROM runs WHERE id IN (SELECT value FROM json_each(?))";
    const { rowsWritten } = this.#sql.exec(ended, JSON.stringify(ids));
    if (this.#count !== undefined) this.#count -= rowsWritten;
  }

  /** The run of an id; null where none was announced, or it has ended. */
  get(id: string): AnnouncedRun | null {
    if (!this.#schema.openIfMade()) return null;
    const rows = this.#sql.exec<{ id: string; tenant: string }>("SELECT id, tenant FROM runs WHERE id = ?", id);
    return rows.toArray()[0] ?? null;
  }

  /** Runs in the order of their ids. */
  list({ tenant, after = "", limit }: RunQuery): AnnouncedRun[] {
    if (!this.#schema.openIfMade()) return [];
    const ofTenant = tenant === undefined ? "" : "AND tenant = ?";
    return this.#sql
      .exec<{ id: string; tenant: string }>(
        `SELECT id, tenant FROM runs WHERE id > ? ${ofTenant} ORDER BY id LIMIT ?`,
        ...[after, ...(tenant === undefined ? [] : [tenant]), limit],
      )
      .toArray();
  }
}
