import { NOTHING_STORED, STORED_LIMITS, type Stored, type StoredLimit } from "../../contract/grants.ts";
import type { Schema } from "../schema.ts";
import { TENANT } from "./ledger.ts";

/**
 * What is stored of a tenant: a row for each home and key, as the home itself has told last. Figures are absolute: one that is
 * told twice, or not at all and later again, makes no difference in the end. What a home has told is told again by its alarm.
 */

/** What a home stores, by the key that has stored it; the empty key is that of what nobody is known to have stored. */
export type StoredByKey = Readonly<Record<string, Stored>>;

export interface StoredReport {
  home: string;
  stored: StoredByKey;
  /** When it was so, Unix milliseconds; later reports of an isolate have greater numbers. */
  at?: number;
}

/** A report that comes so long after a later one was overtaken by it. One that is older still comes of a clock that went back. */
const OVERTAKEN_MS = 60_000;

/** Homes whose latest report is remembered. */
const MAX_LATEST = 10_000;

export const STORED_TABLE = `CREATE TABLE stored (
  home TEXT NOT NULL, key TEXT NOT NULL, bytes INTEGER NOT NULL, responses INTEGER NOT NULL, conversations INTEGER NOT NULL,
  PRIMARY KEY (home, key)) WITHOUT ROWID`;

type Row = { key: string } & Stored;

const FIGURES = "bytes AS stored_bytes, responses AS stored_responses, conversations AS stored_conversations";

export class StoredTotals {
  readonly #sql: SqlStorage;
  readonly #schema: Schema;
  /** The sums by key; read once, and kept up with the rows. */
  #sums: Map<string, Stored> | undefined;
  /** When the latest report of a home was made, oldest first. Whoever has died with it gets no earlier one any more. */
  readonly #latest = new Map<string, number>();

  constructor(sql: SqlStorage, schema: Schema) {
    this.#sql = sql;
    this.#schema = schema;
  }

  /** What a key has stored; of the tenant (`TENANT`), all of it. */
  of(key: string): Stored {
    const sums = this.byKey();
    if (key !== TENANT) return sums.get(key) ?? NOTHING_STORED;
    return sums.values().reduce((sum, stored) => sumOf(sum, stored), NOTHING_STORED);
  }

  /** What is stored, by key. */
  byKey(): ReadonlyMap<string, Stored> {
    this.#sums ??= this.#read();
    return this.#sums;
  }

  /** Takes what homes store now. Within a transaction. */
  take(reports: readonly StoredReport[]): void {
    this.#schema.open();
    const sums = new Map(this.byKey());
    for (const { home, stored, at = Date.now() } of reports) {
      if (this.#isOvertaken(home, at)) continue;
      const before = this.#sql.exec<Row>(`SELECT key, ${FIGURES} FROM stored WHERE home = ?`, home).toArray();
      const known = new Map(before.map(({ key, ...figures }) => [key, figures as Stored]));
      for (const key of new Set([...known.keys(), ...Object.keys(stored)])) {
        const [was, is] = [known.get(key) ?? NOTHING_STORED, stored[key] ?? NOTHING_STORED];
        if (STORED_LIMITS.every((kind) => was[kind] === is[kind])) continue;
        this.#write(home, key, is);
        sums.set(key, sumOf(sumOf(sums.get(key) ?? NOTHING_STORED, was, -1), is));
      }
    }
    this.#sums = sums;
  }

  /** To be called when a transaction was rolled back, or everything was deleted. */
  forget(): void {
    this.#sums = undefined;
  }

  #isOvertaken(home: string, at: number): boolean {
    const latest = this.#latest.get(home) ?? Number.NEGATIVE_INFINITY;
    if (at < latest && latest - at < OVERTAKEN_MS) return true;
    this.#latest.delete(home);
    this.#latest.set(home, at);
    const [oldest] = this.#latest.keys();
    if (this.#latest.size > MAX_LATEST && oldest !== undefined) this.#latest.delete(oldest);
    return false;
  }

  #write(home: string, key: string, stored: Stored): void {
    if (STORED_LIMITS.every((kind) => stored[kind] === 0)) {
      this.#sql.exec("DELETE FROM stored WHERE home = ? AND key = ?", home, key);
      return;
    }
    const { stored_bytes: bytes, stored_responses: responses, stored_conversations: conversations } = stored;
    this.#sql.exec(
      `INSERT INTO stored (home, key, bytes, responses, conversations) VALUES (?, ?, ?, ?, ?)
       ON CONFLICT (home, key) DO UPDATE SET bytes = excluded.bytes, responses = excluded.responses,
         conversations = excluded.conversations`,
      ...[home, key, bytes, responses, conversations],
    );
  }

  #read(): Map<string, Stored> {
    if (!this.#schema.openIfMade()) return new Map();
    const rows = this.#sql.exec<Row>(
      `SELECT key, SUM(bytes) AS stored_bytes, SUM(responses) AS stored_responses, SUM(conversations) AS stored_conversations
       FROM stored GROUP BY key`,
    );
    return new Map(rows.toArray().map(({ key, ...figures }) => [key, figures as Stored]));
  }
}

function sumOf(a: Stored, b: Stored, sign: 1 | -1 = 1): Stored {
  const sum: Record<StoredLimit, number> = { ...a };
  for (const kind of STORED_LIMITS) sum[kind] += sign * b[kind];
  return sum;
}
