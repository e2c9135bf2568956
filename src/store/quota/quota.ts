import { DurableObject } from "cloudflare:workers";
import { loadConfig, type Variables } from "../../config/index.ts";
import type { Stored } from "../../contract/grants.ts";
import { Schema, type Versions } from "../schema.ts";
import { type Account, type Answer, Ledger, type Report } from "./ledger.ts";
import { HOMES_TABLE, NotedHomes } from "./noted-homes.ts";
import { STORED_TABLE, type StoredReport, StoredTotals } from "./stored-totals.ts";
import { USAGE_TABLE, type UsageEntry, type UsageQuery, type UsageRow, UsageStore } from "./usage-store.ts";

/** The tables of a quota, by version. What was made once is never changed: a new version adds to it. */
export const QUOTA_VERSIONS: Versions = [
  [
    // What a key has used and is promised, as JSON; the tenant's own row has an empty key.
    "CREATE TABLE accounts (key TEXT NOT NULL PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID",
    USAGE_TABLE,
    HOMES_TABLE,
  ],
  [STORED_TABLE],
];

/**
 * The quota of a tenant: one Durable Object that counts what its keys use. Its name is the tenant's. What it answers is
 * durable: an object that dies forgets nothing of what it has promised.
 */
export class Quota extends DurableObject<Variables> {
  readonly #schema: Schema;
  readonly #usage: UsageStore;
  readonly #homes: NotedHomes;
  readonly #stored: StoredTotals;
  #ledger: Ledger | undefined;

  constructor(state: DurableObjectState, env: Variables) {
    super(state, env);
    this.#schema = new Schema(state.storage, QUOTA_VERSIONS);
    this.#usage = new UsageStore(state.storage.sql, this.#schema);
    this.#homes = new NotedHomes(state.storage.sql, this.#schema);
    this.#stored = new StoredTotals(state.storage.sql, this.#schema);
  }

  /** Takes what a holder reports, with what was used of which model, and grants what it wants. */
  exchange(report: Report, usage: readonly UsageEntry[] = []): Answer {
    const now = Date.now();
    this.#ledger ??= this.#read();
    const ledger = this.#ledger;
    const isNew = ledger.isNew(report);
    const answer = ledger.take(report, now);
    const changed = ledger.takeChanged();
    try {
      this.ctx.storage.transactionSync(() => {
        for (const [key, account] of changed) this.#write(key, account);
        if (isNew) this.#usage.add(report.key, usage, now, loadConfig(this.env).keys.usageRetentionMs);
      });
    } catch (error) {
      // What is in memory is not what is kept.
      this.#ledger = undefined;
      throw error;
    }
    return answer;
  }

  /** Takes what homes store now, each as a whole. */
  takeStored(reports: readonly StoredReport[]): void {
    try {
      this.ctx.storage.transactionSync(() => this.#stored.take(reports));
    } catch (error) {
      this.#stored.forget();
      throw error;
    }
  }

  /** What is stored now, by the key that has stored it; the empty key is that of what nobody is known to have stored. */
  stored(): Record<string, Stored> {
    return Object.fromEntries(this.#stored.byKey());
  }

  /** What was used, by hour, key and model. */
  usage(query: UsageQuery): UsageRow[] {
    return this.#usage.read(query);
  }

  /** Notes a home in which something is about to be kept. */
  noteHome(home: string): void {
    this.#homes.add(home, Date.now());
  }

  /** Homes that were noted, in the order of their keys. */
  homes(after: string, limit: number): string[] {
    return this.#homes.list(after, limit);
  }

  /** Forgets homes, but for those that were used within `keepMs`; whether none is left. */
  forgetHomes(homes: readonly string[], keepMs: number): boolean {
    this.#homes.forget(homes, Date.now() - keepMs);
    return this.#homes.isEmpty();
  }

  /** Forgets all that was counted. */
  async erase(): Promise<void> {
    this.#ledger = undefined;
    this.#stored.forget();
    const deleted = this.ctx.storage.deleteAll();
    this.#schema.forget();
    await deleted;
  }

  #read(): Ledger {
    const stored = (key: string) => this.#stored.of(key);
    if (!this.#schema.openIfMade()) return new Ledger([], stored);
    const rows = this.ctx.storage.sql.exec<{ key: string; body: string }>("SELECT key, body FROM accounts").toArray();
    return new Ledger(
      rows.map(({ key, body }) => [key, JSON.parse(body) as Account] as const),
      stored,
    );
  }

  #write(key: string, account: Account): void {
    this.#schema.open();
    const { requests, reads, tokens, periods, holds } = account;
    const { sql } = this.ctx.storage;
    if (requests.length + reads.length + tokens.length + periods.length + holds.length === 0) {
      sql.exec("DELETE FROM accounts WHERE key = ?", key);
      return;
    }
    sql.exec(
      "INSERT INTO accounts (key, body) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET body = excluded.body",
      ...[key, JSON.stringify(account)],
    );
  }
}
