import { indexedText, TOKENIZER } from "@responses-edge/vector-search";
import { loadConfig } from "../../../config/index.ts";
import type { RawEnv } from "../../../env.ts";
import { setAlarm, wakeBy } from "../../objects/alarms.ts";
import { OwnedObject } from "../../objects/owned-object.ts";
import { OBJECTS } from "../../objects/registry.ts";
import { Schema } from "../../objects/schema.ts";
import type { IndexEntry } from "./entry.ts";
import { filterOf, type IndexQuery, matching, numberOf, overlapOf, PER_MS, pageRange } from "./index-query.ts";
import { type ListedTree, listTrees } from "./tree-list.ts";
import { TREE_TABLE, TreeChanges } from "./tree-table.ts";

const TABLES = [
  // `no` begins with the time of creation, so that the rows have the order of the list.
  "CREATE TABLE response (no INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, status TEXT NOT NULL, body TEXT NOT NULL)",
  TREE_TABLE,
  `CREATE VIRTUAL TABLE words USING fts5 (tags, text, content = '', contentless_delete = 1, tokenize = "${TOKENIZER}")`,
];

/** Most missing responses of a home in one answer. */
export const MAX_MISSING = 100;

/** Rows that are removed at once, and the pause before the next ones. */
const SWEPT_AT_ONCE = 1_000;
const SWEEP_AGAIN_MS = 1_000;
const MIN_SWEEP_INTERVAL_MS = 3_600_000;

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
      const trees = new TreeChanges(this.#schema, [...entries.map(({ id }) => id), ...gone]);
      for (const entry of entries) this.#put(entry, trees);
      for (const id of gone) this.#remove(id, numberOf(this.#schema, id), trees);
      trees.write();
    });
    if (retentionMs === 0 || this.#hasAlarm || entries.length === 0) return;
    this.#hasAlarm = true;
    await wakeBy(this.ctx.storage, Date.now() + retentionMs);
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
    this.#removeAll(extra);
    const missing = ended.filter((id) => isRunning(listed.get(id) ?? "queued"));
    return [...missing, ...running.filter((id) => !listed.has(id))].slice(0, MAX_MISSING);
  }

  /** The bodies of a page, at most `limit`; null if `after` is not listed. */
  list(query: IndexQuery): string[] | null {
    const page = pageRange(this.#schema, query);
    const filter = filterOf(this.#schema, query, this.#oldest());
    if (!page || !filter) return page ? [] : null;
    const within = { ...filter, ...overlapOf(filter, page) };
    return matching(this.#schema, ["body"], within, query.order, query.limit).map(({ body }) => body);
  }

  /** A page of the trees of which a response matches, at most `limit`; null if `after` is not listed. */
  listTrees(query: IndexQuery): ListedTree[] | null {
    return listTrees(this.#schema, query, this.#oldest());
  }

  /** Removes expired responses. */
  protected override async ring(): Promise<void> {
    const { retentionMs } = loadConfig(this.env);
    if (retentionMs === 0) return;
    const expired = this.#schema.rows<{ no: number; id: string }>(
      "SELECT no, id FROM response WHERE no < ? ORDER BY no LIMIT ?",
      ...[this.#oldest() * PER_MS, SWEPT_AT_ONCE],
    );
    this.#removeAll(expired);
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

  #put({ id, createdAt, status, body, tags, text }: IndexEntry, trees: TreeChanges): void {
    const row = "INTO response (no, id, status, body) VALUES (?, ?, ?, ?)";
    let no = createdAt * PER_MS;
    // Most often the response is new, and the first of its millisecond.
    let isNew = this.#schema.write(`INSERT OR IGNORE ${row}`, no, id, status, body) > 0;
    if (!isNew) {
      const known = numberOf(this.#schema, id);
      isNew = known === undefined;
      this.#delete(known);
      no = known ?? this.#newNumber(createdAt);
      this.#schema.write(`INSERT ${row}`, no, id, status, body);
    }
    const words = "INSERT INTO words (rowid, tags, text) VALUES (?, ?, ?)";
    this.#schema.write(words, no, tags.join(" "), indexedText(text));
    if (isNew) trees.add(id, no);
  }

  #removeAll(responses: readonly { id: string; no: number }[]): void {
    if (responses.length === 0) return;
    this.ctx.storage.transactionSync(() => {
      const ids = responses.map(({ id }) => id);
      const trees = new TreeChanges(this.#schema, ids);
      for (const { id, no } of responses) this.#remove(id, no, trees);
      trees.write();
    });
  }

  #remove(id: string, no: number | undefined, trees: TreeChanges): void {
    if (no === undefined) return;
    this.#delete(no);
    trees.remove(id, no);
  }

  #delete(no: number | undefined): void {
    if (no === undefined) return;
    this.#schema.write("DELETE FROM words WHERE rowid = ?", no);
    this.#schema.write("DELETE FROM response WHERE no = ?", no);
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
    return setAlarm(this.ctx.storage, time);
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
