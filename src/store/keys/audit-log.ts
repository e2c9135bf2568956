/** What administrators did, and what tenants have deleted: rows that are only ever added, until they are old. */

export const AUDIT_TABLES = [
  `CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, kind TEXT NOT NULL, type TEXT NOT NULL,
    tenant TEXT NOT NULL, body TEXT NOT NULL)`,
];

/** Something that was done. Never a secret: no key, no text of anybody's. */
export interface AuditEvent {
  /** In OpenAI's words where they have one: `api_key.created`. */
  type: string;
  /** Who did it: the name of a root key, or the id of a tenant's key. */
  actor: string;
  tenant: string;
  /** What it was done to. */
  target: string;
  /** What was asked for, by field; plain values. */
  changes?: Readonly<Record<string, unknown>> | undefined;
}

export interface AuditRow extends Omit<AuditEvent, "changes"> {
  /** JSON text. */
  changes: string | null;
  seq: number;
  /** Unix milliseconds. */
  at: number;
}

export interface AuditQuery {
  /** Rows before this one, newest first. */
  before?: number | undefined;
  limit: number;
  tenants?: readonly string[] | undefined;
  types?: readonly string[] | undefined;
  from?: number | undefined;
  until?: number | undefined;
}

/** Who acts: rows of tenants do not push out those of administrators. */
export type AuditKind = "admin" | "tenant";

/** Rows of each kind that are kept. */
const MAX_ROWS = 100_000;

/** Rows that are added between two looks at what is old. */
const SWEEP_EVERY = 128;

/** What one row may say of changes, in UTF-16 units. */
const MAX_CHANGES_LENGTH = 16_384;

type Row = { seq: number; at: number; type: string; tenant: string; body: string };

export class AuditLog {
  readonly #sql: SqlStorage;
  readonly #maxRows: number;
  #added = 0;

  /** `maxRows`: of each kind. */
  constructor(sql: SqlStorage, maxRows = MAX_ROWS) {
    this.#sql = sql;
    this.#maxRows = maxRows;
  }

  /** Adds a row, and now and then removes those that are older than `retentionMs`, or too many. */
  add({ type, tenant, actor, target, changes }: AuditEvent, kind: AuditKind, now: number, retentionMs: number): void {
    const json = changes ? JSON.stringify(changes) : null;
    const told = json !== null && json.length <= MAX_CHANGES_LENGTH ? json : null;
    const body = JSON.stringify({ actor, target, changes: told });
    this.#sql.exec(
      "INSERT INTO audit (at, kind, type, tenant, body) VALUES (?, ?, ?, ?, ?)",
      ...[now, kind, type, tenant, body],
    );
    this.#added += 1;
    if (this.#added % SWEEP_EVERY !== 1) return;
    this.#sql.exec("DELETE FROM audit WHERE at < ?", now - retentionMs);
    const [last] = this.#sql
      .exec<{ seq: number }>(
        "SELECT seq FROM audit WHERE kind = ? ORDER BY seq DESC LIMIT 1 OFFSET ?",
        kind,
        this.#maxRows,
      )
      .toArray();
    if (last) this.#sql.exec("DELETE FROM audit WHERE kind = ? AND seq <= ?", kind, last.seq);
  }

  /** Rows, newest first. */
  list({ before, limit, tenants, types, from = 0, until }: AuditQuery): AuditRow[] {
    const isAmong = (column: string, wanted: readonly string[] | undefined) =>
      wanted ? ` AND ${column} IN (SELECT value FROM json_each(?))` : "";
    const rows = this.#sql.exec<Row>(
      `SELECT seq, at, type, tenant, body FROM audit
       WHERE seq < ? AND at >= ? AND at < ?${isAmong("tenant", tenants)}${isAmong("type", types)}
       ORDER BY seq DESC LIMIT ?`,
      ...[before ?? Number.MAX_SAFE_INTEGER, from, until ?? Number.MAX_SAFE_INTEGER],
      ...[tenants, types].filter((each) => each !== undefined).map((each) => JSON.stringify(each)),
      limit,
    );
    return rows.toArray().map(({ body, ...row }) => {
      const { actor, target, changes } = JSON.parse(body) as Pick<AuditRow, "actor" | "target" | "changes">;
      return { ...row, actor, target, changes };
    });
  }
}
