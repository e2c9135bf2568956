import { NOTHING_STORED, type Stored } from "@responses-edge/usage-limits";
import type { Env } from "../../env.ts";
import type { StoredByKey, StoredReport } from "../limits/quota-object.ts";
import { tellStored, tellStoredSoon } from "../objects/stored-reports.ts";
import type { Tables } from "./tables.ts";
import { type SettledTurn, TEXT_BYTES } from "./turn-store.ts";

/**
 * Reports to the tenant's quota how much a home stores. A home is counted if one of its rows has an `owner`: the key of
 * a caller whose storage is limited. A counted home counts everything that it stores, including earlier rows.
 */

/** Bytes that each turn and each conversation counts beside its texts: a page of the file, because each takes at least one. */
export const ROW_BYTES = 4_096;

/** Exists only until the quota knows that nothing is left, so no version of the schema has it. */
const MARK = "CREATE TABLE IF NOT EXISTS untold (at INTEGER)";
const UNMARK = "DROP TABLE IF EXISTS untold";

const TURNS = `SELECT ifnull(owner, '') AS key, SUM(${TEXT_BYTES} + iif(part = 0, ${ROW_BYTES}, 0)) AS bytes,
  SUM(part = 0 AND response IS NOT NULL) AS responses FROM turns WHERE true`;

/** The event logs of ended runs, without the parts in their turns' rows. */
const LOGS = `SELECT ifnull(owner, '') AS key, SUM(octet_length(body)) AS bytes, 0 AS responses
  FROM turns JOIN events USING (turn) WHERE turns.part = 0`;

type TurnSums = { key: string; bytes: number; responses: number };

export class HomeStored {
  readonly #sql: SqlStorage;
  readonly #tables: Tables;
  readonly #who: { tenant: string; home: string };
  readonly #env: Env;
  /** The amounts in the rows; undefined: to be read. */
  #now: Record<string, Stored> | undefined;
  /** The newest report. Only its arrival shows that the quota knows it. */
  #latest: StoredReport | undefined;
  /** The figures that the quota has, as JSON. */
  #told: string | undefined;

  constructor(sql: SqlStorage, tables: Tables, who: { tenant: string; home: string }, env: Env) {
    this.#sql = sql;
    this.#tables = tables;
    this.#who = who;
    this.#env = env;
  }

  /** Tells whether the home is counted, or was until its last counted row was removed. Reads its rows up to the first counted one. */
  isCounted(): boolean {
    return this.#hasOwned() || this.#isMarked();
  }

  #hasOwned(): boolean {
    const has = (table: "turns" | "conversation") =>
      this.#tables.rows(table, `SELECT 1 FROM ${table} WHERE owner IS NOT NULL LIMIT 1`).length > 0;
    return has("turns") || has("conversation");
  }

  #isMarked(): boolean {
    return this.#sql.exec("SELECT 1 FROM sqlite_schema WHERE name = 'untold'").toArray().length > 0;
  }

  /** Runs a removal of rows within a transaction. If no counted row is left, the home is marked until the quota knows. */
  removing<T>(remove: () => T): T {
    const hadOwned = this.#hasOwned();
    const removed = remove();
    this.#now = undefined;
    if (hadOwned && !this.#hasOwned()) this.#sql.exec(MARK);
    return removed;
  }

  /** A turn without an event log was inserted: nothing is read. `bytes`: those of its texts, as they are written. */
  addedTurn({ owner, response }: Pick<SettledTurn, "owner" | "response">, bytes: number): void {
    if (!this.#now) return;
    const key = owner ?? "";
    const { stored_bytes: before, stored_responses: responses, ...rest } = this.#now[key] ?? NOTHING_STORED;
    const more = Number(response !== null);
    this.#now[key] = { ...rest, stored_bytes: before + bytes + ROW_BYTES, stored_responses: responses + more };
  }

  /** A turn was inserted: only that turn is read. */
  added(turn: string): void {
    if (this.#now) this.#addTurns(this.#now, turn);
  }

  /** Adds the amounts of turns: all of them, or these. */
  #addTurns(stored: Record<string, Stored>, ...turns: string[]): void {
    if (!this.#tables.has("turns")) return;
    const only = turns.length === 0 ? "" : `AND turn IN (${turns.map(() => "?").join()})`;
    const ofTable = (table: "turns" | "events", sums: string) =>
      this.#tables.rows<TurnSums>(table, `${sums} ${only} GROUP BY owner`, ...turns);
    for (const { key, bytes, responses } of [...ofTable("turns", TURNS), ...ofTable("events", LOGS)]) {
      const before = stored[key] ?? NOTHING_STORED;
      const stored_bytes = before.stored_bytes + bytes;
      stored[key] = { ...before, stored_bytes, stored_responses: before.stored_responses + responses };
    }
  }

  /** Forgets the amounts, because the rows have changed otherwise. */
  forget(): void {
    this.#now = undefined;
  }

  /** The stored amounts, by the key that stored them. */
  byKey(): StoredByKey {
    this.#now ??= this.#read();
    return this.#now;
  }

  /** Reports the stored amounts soon, together with other homes of the tenant. Never rejects. */
  async tellSoon(): Promise<void> {
    const stored = { ...this.byKey() };
    if (JSON.stringify(stored) === this.#told || !this.#env.QUOTAS) return;
    const report = this.#newReport(stored);
    await tellStoredSoon(this.#env.QUOTAS, this.#who.tenant, { report, onTold: () => this.#noteTold(report) });
  }

  /** Reports the amounts that are stored now, or will be in a moment. True if the quota knows them. Never rejects. */
  async tell(stored: StoredByKey = this.byKey()): Promise<boolean> {
    if (!this.#env.QUOTAS || (JSON.stringify(stored) === this.#told && !this.#isMarked())) return true;
    const report = this.#newReport(stored);
    const isTold = await tellStored(this.#env.QUOTAS, this.#who.tenant, report);
    if (isTold) this.#noteTold(report);
    if (isTold && !this.#hasOwned()) this.#sql.exec(UNMARK);
    return isTold;
  }

  #newReport(stored: StoredByKey): StoredReport {
    const report = { home: this.#who.home, stored: { ...stored } };
    this.#latest = report;
    this.#told = undefined;
    return report;
  }

  #noteTold(report: StoredReport): void {
    if (report === this.#latest) this.#told = JSON.stringify(report.stored);
  }

  #read(): Record<string, Stored> {
    const stored: Record<string, Stored> = {};
    this.#addTurns(stored);
    const conversations = this.#tables.rows<{ key: string; bytes: number; count: number }>(
      "conversation",
      `SELECT ifnull(owner, '') AS key, SUM(octet_length(metadata)) + ${ROW_BYTES} * COUNT(*) AS bytes, COUNT(*) AS count
       FROM conversation GROUP BY owner`,
    );
    for (const { key, bytes, count } of conversations) {
      const { stored_bytes: before, ...rest } = stored[key] ?? NOTHING_STORED;
      stored[key] = { ...rest, stored_bytes: before + bytes, stored_conversations: count };
    }
    return stored;
  }
}
