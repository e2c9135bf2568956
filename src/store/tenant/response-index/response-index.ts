import { indexedText, TOKENIZER, termsOf } from "@responses-edge/vector-search";
import { loadConfig } from "../../../config/index.ts";
import type { RawEnv } from "../../../env.ts";
import { OwnedObject } from "../../objects/owned-object.ts";
import { OBJECTS } from "../../objects/registry.ts";
import { Schema } from "../../objects/schema.ts";
import type { IndexEntry } from "./entry.ts";

const TABLES = [
  // `no` begins with the time of creation, so that the rows have the order of the list.
  "CREATE TABLE response (no INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, status TEXT NOT NULL, body TEXT NOT NULL)",
  `CREATE VIRTUAL TABLE words USING fts5 (tags, text, content = '', contentless_delete = 1, tokenize = "${TOKENIZER}")`,
];

/** Most numbers of one millisecond. */
const PER_MS = 1_000;

/** Most missing responses of a home in one answer. */
export const MAX_MISSING = 100;

/** Rows that are removed at once, and the pause before the next ones. */
const SWEPT_AT_ONCE = 1_000;
const SWEEP_AGAIN_MS = 1_000;
const MIN_SWEEP_INTERVAL_MS = 3_600_000;

export interface IndexQuery {
  order: "asc" | "desc";
  limit: number;
  /** The id of a listed response. */
  after?: string | undefined;
  /** The only response to list. */
  id?: string | undefined;
  /** Tags (`tagOf`). A response must have all of them. */
  tags: readonly string[];
  /** A user's words. A response must have all of them. */
  text?: string | undefined;
  /** Unix milliseconds: created at or after `from`, and before `until`. */
  from: number;
  until: number;
}

/**
 * The list of a tenant's stored responses: one Durable Object, named as the tenant. Homes report what they store, each one report
 * after the other (`home-index.ts`). Expired responses are not listed.
 */
export class ResponseIndex extends OwnedObject {
  readonly #schema: Schema;
  #hasAlarm = false;

  constructor(state: DurableObjectState, env: RawEnv) {
    super(state, env, "RESPONSE_INDEXES");
    this.#schema = new Schema(state.storage, TABLES, OBJECTS.RESPONSE_INDEXES.migrations);
  }

  /** Takes the present state of responses; `gone` are ids of those that do not exist any more. */
  async take(entries: readonly IndexEntry[], gone: readonly string[]): Promise<void> {
    const { retentionMs } = loadConfig(this.env);
    if (entries.length > 0) this.#schema.open();
    this.ctx.storage.transactionSync(() => {
      for (const entry of entries) this.#put(entry);
      for (const id of gone) this.#delete(this.#rowOf(id)?.no);
    });
    if (retentionMs === 0 || this.#hasAlarm || entries.length === 0) return;
    this.#hasAlarm = true;
    if ((await this.ctx.storage.getAlarm()) === null) await this.#sweepAt(Date.now() + retentionMs);
  }

  /**
   * Compares the listed responses of a home with the ids of the stored ones: drops those that are not stored, and gives those that are
   * missing, or ended and listed as running; at most `MAX_MISSING`.
   */
  compare(prefix: string, ended: readonly string[], running: readonly string[]): string[] {
    const select = "SELECT no, id, status FROM response WHERE id > ? AND id < ?";
    // No letter of an id sorts after "~".
    const rows = this.#schema.rows<{ no: number; id: string; status: string }>(select, prefix, `${prefix}~`);
    const listed = new Map(rows.map(({ id, status }) => [id, status]));
    const stored = new Set([...ended, ...running]);
    const extra = rows.filter(({ id }) => !stored.has(id));
    if (extra.length > 0) {
      this.ctx.storage.transactionSync(() => {
        for (const { no } of extra) this.#delete(no);
      });
    }
    const missing = ended.filter((id) => isRunning(listed.get(id) ?? "queued"));
    return [...missing, ...running.filter((id) => !listed.has(id))].slice(0, MAX_MISSING);
  }

  /** The bodies of a page, at most `limit`; null if `after` is not listed. */
  list({ order, limit, after, id, tags, text, from, until }: IndexQuery): string[] | null {
    const cursor = after === undefined ? undefined : this.#rowOf(after);
    if (after !== undefined && !cursor) return null;
    let [least, below] = [Math.max(from, this.#oldest()) * PER_MS, Math.min(until * PER_MS, Number.MAX_SAFE_INTEGER)];
    if (cursor && order === "desc") below = Math.min(below, cursor.no);
    if (cursor && order === "asc") least = Math.max(least, cursor.no + 1);
    if (id !== undefined) {
      const no = this.#rowOf(id)?.no ?? -1;
      [least, below] = [Math.max(least, no), Math.min(below, no + 1)];
    }
    const terms = text === undefined ? [] : termsOf(text);
    if (text !== undefined && terms.length === 0) return [];
    const matches = [...tags.map((tag) => `tags : "${tag}"`), ...terms.map((term) => `text : ${term}`)].join(" AND ");
    const direction = order === "desc" ? "DESC" : "ASC";
    const isWithin = (column: string) =>
      `${column} >= ? AND ${column} < ? ORDER BY ${column} ${direction} LIMIT ${limit}`;
    const rows = this.#schema.rows<{ body: string }>(
      matches === ""
        ? `SELECT body FROM response WHERE ${isWithin("no")}`
        : `SELECT body FROM (SELECT rowid AS no FROM words WHERE words MATCH ? AND ${isWithin("rowid")}) AS found
           JOIN response USING (no) ORDER BY no ${direction}`,
      ...(matches === "" ? [] : [matches]),
      ...[least, below],
    );
    return rows.map(({ body }) => body);
  }

  /** Removes expired responses. */
  protected override async ring(): Promise<void> {
    const { retentionMs } = loadConfig(this.env);
    if (retentionMs === 0) return;
    const expired = this.#schema.rows<{ no: number }>(
      "SELECT no FROM response WHERE no < ? ORDER BY no LIMIT ?",
      ...[this.#oldest() * PER_MS, SWEPT_AT_ONCE],
    );
    this.ctx.storage.transactionSync(() => {
      for (const { no } of expired) this.#delete(no);
    });
    const [next] = this.#schema.rows<{ no: number }>("SELECT no FROM response ORDER BY no LIMIT 1");
    this.#hasAlarm = next !== undefined;
    if (!next) return;
    const due = next.no / PER_MS + retentionMs;
    const isBehind = expired.length === SWEPT_AT_ONCE;
    await this.#sweepAt(isBehind ? Date.now() + SWEEP_AGAIN_MS : Math.max(due, Date.now() + MIN_SWEEP_INTERVAL_MS));
  }

  /** Removes everything. */
  async erase(): Promise<void> {
    this.#hasAlarm = false;
    await this.ctx.storage.deleteAll();
    this.#schema.forget();
  }

  /** The earliest creation time of an unexpired response, Unix milliseconds. */
  #oldest(): number {
    const { retentionMs } = loadConfig(this.env);
    return retentionMs === 0 ? 0 : Date.now() - retentionMs + 1;
  }

  #put({ id, createdAt, status, body, tags, text }: IndexEntry): void {
    const row = "INTO response (no, id, status, body) VALUES (?, ?, ?, ?)";
    let no = createdAt * PER_MS;
    // Most often the response is new, and the first of its millisecond.
    if (this.#schema.write(`INSERT OR IGNORE ${row}`, no, id, status, body) === 0) {
      const known = this.#rowOf(id);
      this.#delete(known?.no);
      no = known?.no ?? this.#newNumber(createdAt);
      this.#schema.write(`INSERT ${row}`, no, id, status, body);
    }
    const words = "INSERT INTO words (rowid, tags, text) VALUES (?, ?, ?)";
    this.#schema.write(words, no, tags.join(" "), indexedText(text));
  }

  #delete(no: number | undefined): void {
    if (no === undefined) return;
    this.#schema.write("DELETE FROM words WHERE rowid = ?", no);
    this.#schema.write("DELETE FROM response WHERE no = ?", no);
  }

  #rowOf(id: string): { no: number } | undefined {
    return this.#schema.rows<{ no: number }>("SELECT no FROM response WHERE id = ?", id)[0];
  }

  /** The next number of a millisecond, or of a later one if it has none left. */
  #newNumber(createdAt: number): number {
    for (let first = createdAt * PER_MS; ; first += PER_MS) {
      const last = "SELECT MAX(no) AS last FROM response WHERE no >= ? AND no < ?";
      const taken = this.#schema.rows<{ last: number | null }>(last, first, first + PER_MS)[0]?.last ?? null;
      if (taken === null) return first;
      if (taken + 1 < first + PER_MS) return taken + 1;
    }
  }

  #sweepAt(time: number): Promise<void> {
    this.#hasAlarm = true;
    return this.ctx.storage.setAlarm(time);
  }
}

declare module "../../objects/objects.ts" {
  interface ObjectClasses {
    RESPONSE_INDEXES: ResponseIndex;
  }
}

function isRunning(status: string): boolean {
  return status === "queued" || status === "in_progress";
}
