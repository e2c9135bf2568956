import { createHash } from "node:crypto";
import { logLine } from "@responses-edge/bounded-io/json-text";
import { unixSeconds } from "@responses-edge/responses-api/response";
import {
  type Account,
  type Answer,
  type CountedLimits,
  EndUsers,
  isOfEndUser,
  Ledger,
  type LimitState,
  NOTHING_STORED,
  type Report,
  STORED_LIMITS,
  type Stored,
  type StoredLimit,
  TENANT,
  type UsageEntry,
  type UsageRow,
} from "@responses-edge/usage-limits";
import { loadConfig } from "../../config/index.ts";
import type { RawEnv } from "../../env.ts";
import { setAlarm } from "../objects/alarms.ts";
import { OUTBOX_TABLE, Outbox } from "../objects/outbox.ts";
import { OwnedObject } from "../objects/owned-object.ts";
import { OBJECTS } from "../objects/registry.ts";
import { Schema } from "../objects/schema.ts";
import { announce, isAnnounced } from "../tenant/webhooks/announcing.ts";
import type { WebhookNotice } from "../tenant/webhooks/sending.ts";
import { tellFullShare } from "./disk-share.ts";
import { USAGE_TABLES, type UsageQuery, UsageStore } from "./usage.ts";

/** The noted homes of a tenant that wants them noted. */
const HOMES_TABLE = "CREATE TABLE homes (home TEXT NOT NULL PRIMARY KEY, at INTEGER NOT NULL) WITHOUT ROWID";

/**
 * The stored amounts of a tenant: a row for each home and key, from the home's last report. A report has all amounts of a home,
 * and follows its last one, so that a repeated one makes no difference.
 */

/** The amounts that a home stores, by the key that stored them; unattributed ones under the empty key. */
export type StoredByKey = Readonly<Record<string, Stored>>;

const STORED_TABLE = `CREATE TABLE stored (
  home TEXT NOT NULL, key TEXT NOT NULL, bytes INTEGER NOT NULL, responses INTEGER NOT NULL, conversations INTEGER NOT NULL,
  PRIMARY KEY (home, key)) WITHOUT ROWID`;

type Row = { key: string } & Stored;

const FIGURES = "bytes AS stored_bytes, responses AS stored_responses, conversations AS stored_conversations";

class StoredTotals {
  readonly #schema: Schema;
  /** The sums by key; read once, and then updated with the rows. */
  #sums: Map<string, Stored> | undefined;

  constructor(schema: Schema) {
    this.#schema = schema;
  }

  /** The amounts that a key has stored; all of the tenant's for `TENANT`. */
  of(key: string): Stored {
    const sums = this.byKey();
    if (key !== TENANT) return sums.get(key) ?? NOTHING_STORED;
    return sums.values().reduce((sum, stored) => sumOf(sum, stored), NOTHING_STORED);
  }

  /** All stored amounts, by key. */
  byKey(): ReadonlyMap<string, Stored> {
    this.#sums ??= this.#read();
    return this.#sums;
  }

  /** Takes the present amounts of homes. Within a transaction. */
  take(homes: readonly string[], stored: StoredByKey): void {
    const sums = new Map(this.byKey());
    for (const home of homes) {
      const before = this.#schema.rows<Row>(`SELECT key, ${FIGURES} FROM stored WHERE home = ?`, home);
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

  #write(home: string, key: string, stored: Stored): void {
    if (STORED_LIMITS.every((kind) => stored[kind] === 0)) {
      this.#schema.write("DELETE FROM stored WHERE home = ? AND key = ?", home, key);
      return;
    }
    const { stored_bytes: bytes, stored_responses: responses, stored_conversations: conversations } = stored;
    this.#schema.write(
      `INSERT INTO stored (home, key, bytes, responses, conversations) VALUES (?, ?, ?, ?, ?)
       ON CONFLICT (home, key) DO UPDATE SET bytes = excluded.bytes, responses = excluded.responses,
         conversations = excluded.conversations`,
      ...[home, key, bytes, responses, conversations],
    );
  }

  #read(): Map<string, Stored> {
    const rows = this.#schema.rows<Row>(
      `SELECT key, SUM(bytes) AS stored_bytes, SUM(responses) AS stored_responses, SUM(conversations) AS stored_conversations
       FROM stored GROUP BY key`,
    );
    return new Map(rows.map(({ key, ...figures }) => [key, figures as Stored]));
  }
}

function sumOf(a: Stored, b: Stored, sign: 1 | -1 = 1): Stored {
  const sum: Record<StoredLimit, number> = { ...a };
  for (const kind of STORED_LIMITS) sum[kind] += sign * b[kind];
  return sum;
}

/** The tables of a quota. */
export const QUOTA_TABLES = [
  // The body is the use and the holds of a key, as JSON; the tenant's own row has an empty key. End users have their
  // own accounts (`EndUsers`).
  "CREATE TABLE accounts (key TEXT NOT NULL PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID",
  HOMES_TABLE,
  OUTBOX_TABLE,
  STORED_TABLE,
  ...USAGE_TABLES,
];

/**
 * The quota of a tenant: one Durable Object that counts the use of its keys. It has the tenant's name. Its answers are
 * durable: an object that dies forgets no hold that it has granted.
 */
export class Quota extends OwnedObject {
  readonly #schema: Schema;
  readonly #usage: UsageStore;
  readonly #stored: StoredTotals;
  /** Limits that are nearly used, to the tenant's webhooks. */
  readonly #outbox: Outbox<{ webhook: WebhookNotice }>;
  #counted: { ledger: Ledger; endUsers: EndUsers } | undefined;
  /** Tells whether the tenant has a storage limit of its own, as the last report said. */
  #hasOwnLimit = false;
  /** The directory knows the tenant, so that an operator finds its usage. */
  #isNoted = false;

  constructor(state: DurableObjectState, env: RawEnv) {
    super(state, env, "QUOTAS");
    this.#schema = new Schema(state.storage, QUOTA_TABLES, OBJECTS.QUOTAS.migrations);
    this.#usage = new UsageStore(this.#schema);
    this.#stored = new StoredTotals(this.#schema);
    this.#outbox = new Outbox({
      sql: this.#schema,
      deliver: { webhook: (notice) => announce(this.env, state.id.name ?? "", notice) },
      wake: (at) => void setAlarm(state.storage, at),
    });
  }

  /** Takes a holder's report, with the used amounts of each model, and grants what it asks for. */
  exchange(report: Report, usage: readonly UsageEntry[] = []): Answer {
    const now = Date.now();
    this.#counted ??= this.#read();
    const { ledger, endUsers } = this.#counted;
    if (report.endUser !== undefined) return this.#exchangeOfEndUser(report, endUsers, now);
    const isNew = ledger.isNew(report);
    const answer = ledger.take(report, now);
    this.#hasOwnLimit = report.limits.tenant?.stored_bytes != null;
    if (usage.length > 0) this.#noteTenant();
    this.#keep(ledger, report.key, report.limits, () => {
      if (isNew) this.#usage.add(report.key, usage, now, loadConfig(this.env).keys.usageRetentionMs);
    });
    return answer;
  }

  /** Makes the tenant known to the directory, where there is one. */
  #noteTenant(): void {
    const { name } = this.ctx.id;
    if (this.#isNoted || name === undefined || !loadConfig(this.env).hasAdminApi) return;
    this.#isNoted = true;
    const noted = this.env.KEYS.getByName().noteTenant(name);
    this.waitUntil(noted.catch(() => (this.#isNoted = false)));
  }

  /** Stores the changes of a ledger together with `others`, and tells which limits are nearly used. */
  #keep(ledger: Ledger, key: string, limits: CountedLimits, others?: () => void): void {
    const nearlyUsed = ledger.takeNearlyUsed(key, limits, Date.now());
    const changed = ledger.takeChanged();
    try {
      this.ctx.storage.transactionSync(() => {
        for (const near of nearlyUsed) this.#tell(key, near);
        for (const [name, account] of changed) this.#write(name, account);
        others?.();
      });
    } catch (error) {
      // The ledger in memory differs from the stored one.
      this.#counted = undefined;
      throw error;
    }
  }

  #exchangeOfEndUser(report: Report, endUsers: EndUsers, now: number): Answer {
    const answer = endUsers.take(report, now);
    const { accounts, forgotten } = endUsers.takeChanges();
    try {
      this.ctx.storage.transactionSync(() => {
        for (const [name, account] of accounts) this.#write(name, account);
        for (const beginning of forgotten) {
          this.#schema.write("DELETE FROM accounts WHERE key BETWEEN ? AND ?", beginning, `${beginning}~`);
        }
      });
    } catch (error) {
      this.#counted = undefined;
      throw error;
    }
    return answer;
  }

  /** Takes the present amounts of a home, as a whole. */
  takeStored(home: string, stored: StoredByKey): void {
    this.#takeStored([home], stored);
  }

  #takeStored(homes: readonly string[], stored: StoredByKey): void {
    try {
      this.ctx.storage.transactionSync(() => this.#stored.take(homes, stored));
    } catch (error) {
      this.#stored.forget();
      throw error;
    }
    const { diskShare } = loadConfig(this.env).keys;
    if (diskShare > 0) this.#checkShare(diskShare);
  }

  /** Tells the workers when the tenant's share of the disk is full, and the operator when it nearly is. */
  #checkShare(limit: number): void {
    const { name: tenant = "" } = this.ctx.id;
    const { stored_bytes: used } = this.#stored.of(TENANT);
    if (used >= limit) this.waitUntil(tellFullShare(tenant));
    if (this.#hasOwnLimit || (used < limit / 2 && !this.#counted)) return;
    this.#counted ??= this.#read();
    this.#keep(this.#counted.ledger, TENANT, { tenant: { stored_bytes: limit }, key: null });
  }

  /** The amounts that are stored now, by the key that stored them; unattributed ones under the empty key. */
  stored(): Record<string, Stored> {
    return Object.fromEntries(this.#stored.byKey());
  }

  /** The usage by hour, key and model. */
  usage(query: UsageQuery): UsageRow[] {
    return this.#usage.read(query);
  }

  /** All of it, as lines of an export. */
  exported(): object[] {
    return this.usage({ from: 0, until: Number.MAX_SAFE_INTEGER }).map((row) => ({ object: "usage", ...row }));
  }

  /** Notes the present size of a vector store; 0 of a deleted one. */
  noteStore(id: string, bytes: number): void {
    this.ctx.storage.transactionSync(() => this.#usage.noteStore(id, bytes, Date.now()));
  }

  /** The bytes in vector stores before each of these times, Unix milliseconds. */
  storeBytes(times: readonly number[]): number[] {
    return this.#usage.storeBytes(times);
  }

  /** Notes a home in which something is about to be stored. A noted home keeps its place. */
  noteHome(home: string): void {
    const add = "INSERT INTO homes (home, at) VALUES (?, ?) ON CONFLICT (home) DO UPDATE SET at = excluded.at";
    this.#schema.write(add, home, Date.now());
  }

  /** At most `limit` homes after `after`, by key: noted ones, and those that have reported stored amounts. No other homes are known. */
  homes(after: string, limit: number): string[] {
    const rows = this.#schema.rows<{ home: string }>(
      "SELECT home FROM homes WHERE home > ?1 UNION SELECT home FROM stored WHERE home > ?1 ORDER BY home LIMIT ?2",
      ...[after, limit],
    );
    return rows.map(({ home }) => home);
  }

  /** Forgets erased homes, except those that were used within `keepMs`, of which only the amounts are forgotten. True if none is left. */
  forgetHomes(homes: readonly string[], keepMs: number): boolean {
    this.#takeStored(homes, {});
    const unused = "DELETE FROM homes WHERE at < ? AND home IN (SELECT value FROM json_each(?))";
    this.#schema.rows(unused, Date.now() - keepMs, JSON.stringify(homes));
    return this.#schema.rows("SELECT 1 FROM homes UNION ALL SELECT 1 FROM stored LIMIT 1").length === 0;
  }

  protected override async ring(): Promise<void> {
    await this.#outbox.deliver();
    const next = this.#outbox.nextDue();
    if (next !== null) await setAlarm(this.ctx.storage, next);
  }

  /** Forgets everything counted. */
  async erase(): Promise<void> {
    await this.#outbox.forget();
    this.#counted = undefined;
    this.#isNoted = false;
    this.#stored.forget();
    const deleted = this.ctx.storage.deleteAll();
    this.#schema.forget();
    await deleted;
  }

  #tell(key: string, { of, obstacle, limit, used, resetsAt }: LimitState): void {
    const whose = { tenant: this.ctx.id.name, ...(of === "key" && { key_id: key }) };
    const until = resetsAt !== undefined && { resets_at: new Date(resetsAt).toISOString() };
    const told = { ...whose, limit: obstacle, used, most: limit, ...until };
    console.warn(logLine({ level: "warn", event: "limit_nearly_used", ...told }));
    const { name: tenant = "" } = this.ctx.id;
    if (!isAnnounced(loadConfig(this.env), tenant)) return;
    const about = of === "key" ? key : tenant;
    // The same id, should this object forget that it has sent the notice.
    const hash = createHash("sha256").update(`${tenant} ${about} ${obstacle} ${limit} ${resetsAt}`).digest("hex");
    const createdAt = unixSeconds();
    const notice = { id: `evt_${hash.slice(0, 32)}`, type: "limit.nearly_used" as const, createdAt, about };
    this.#outbox.add("webhook", notice.id, notice);
  }

  #read(): { ledger: Ledger; endUsers: EndUsers } {
    const stored = (key: string) => this.#stored.of(key);
    const rows = this.#schema.rows<{ key: string; body: string }>("SELECT key, body FROM accounts");
    const accounts = rows.map(({ key, body }) => [key, JSON.parse(body) as Account] as const);
    const ofKeys = accounts.filter(([name]) => !isOfEndUser(name));
    const ofEndUsers = accounts.filter(([name]) => isOfEndUser(name));
    return { ledger: new Ledger(ofKeys, stored), endUsers: new EndUsers(ofEndUsers, Date.now()) };
  }

  #write(key: string, account: Account): void {
    const { requests, reads, tokens, periods, holds, told } = account;
    if ([requests, reads, tokens, periods, holds, told].every(({ length }) => length === 0)) {
      this.#schema.write("DELETE FROM accounts WHERE key = ?", key);
      return;
    }
    this.#schema.write(
      "INSERT INTO accounts (key, body) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET body = excluded.body",
      ...[key, JSON.stringify(account)],
    );
  }
}

declare module "../objects/objects.ts" {
  interface ObjectClasses {
    QUOTAS: Quota;
  }
}

declare module "../tenant/webhooks/announcing.ts" {
  interface WebhookSenders {
    QUOTAS: "limit.nearly_used";
  }
}
