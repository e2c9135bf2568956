import { EventLogStore } from "./event-log.ts";
import { HomeStored } from "./home-stored.ts";
import { ItemStore } from "./item-store.ts";
import type { QuotaBinding } from "./quota/run-quota.ts";
import { RunStore } from "./run-store.ts";
import { migrate, Tables } from "./tables.ts";
import { TurnStore } from "./turn-store.ts";
import { WebhookStore } from "./webhooks.ts";

/** All that a home keeps in its storage: a store for each kind of row, and what concerns all of them together. */
export class HomeRows {
  readonly turns: TurnStore;
  readonly items: ItemStore;
  readonly log: EventLogStore;
  readonly runs: RunStore;
  readonly conversations: ConversationStore;
  readonly idempotency: IdempotencyStore;
  readonly webhooks: WebhookStore;
  readonly stored: HomeStored;
  readonly #storage: DurableObjectStorage;
  readonly #tables: Tables;

  /**
   * Opens the rows, and brings tables of an earlier version up to today's. `oldest` gives a creation time, Unix
   * milliseconds: a response that was created then or before has expired. `who` and `env` are for telling what is stored.
   */
  constructor(
    storage: DurableObjectStorage,
    oldest: () => number,
    who: { tenant: string; home: string },
    env: QuotaBinding,
  ) {
    const { sql } = storage;
    this.#storage = storage;
    this.#tables = new Tables(sql);
    migrate(storage, this.#tables);
    this.turns = new TurnStore(sql, this.#tables, oldest);
    this.items = new ItemStore(sql, this.#tables, this.turns);
    this.log = new EventLogStore(storage, this.#tables, this.turns);
    this.runs = new RunStore(sql, this.#tables);
    this.conversations = new ConversationStore(sql, this.#tables);
    this.idempotency = new IdempotencyStore(sql, this.#tables);
    this.webhooks = new WebhookStore(sql, this.#tables);
    this.stored = new HomeStored(sql, this.#tables, who, env);
  }

  /** Runs `body` in a transaction. When it throws, nothing of it stays: not in the tables, and not in memory. */
  transaction<T>(body: () => T): T {
    try {
      return this.#storage.transactionSync(body);
    } catch (error) {
      this.#forget();
      throw error;
    }
  }

  /** Whether nothing is kept that is still needed, but perhaps the turn `except`. What has expired may be there. */
  isEmpty(except?: string): boolean {
    return (
      !this.turns.hasLiving(except) &&
      this.runs.turns().length === 0 &&
      !this.conversations.exists() &&
      this.idempotency.isEmpty() &&
      this.webhooks.nextDue() === null
    );
  }

  /** Whether nothing was ever written, or all was given back. */
  isVacant(): boolean {
    return this.#tables.isNone();
  }

  /** Whether that may be so, as far as is known without looking. */
  get mayBeVacant(): boolean {
    return this.#tables.mayBeNone;
  }

  /** Whether there is neither a turn, also of those that have expired, nor a run or a conversation. */
  isUnused(): boolean {
    return this.turns.isEmpty() && this.runs.turns().length === 0 && !this.conversations.exists();
  }

  /** Removes a response with its event log, and what only it needed of a conversation that is gone. False when there was none. */
  deleteResponse(turn: string): boolean {
    return this.#removing(() => {
      if (!this.turns.delete(turn)) return false;
      this.log.delete(turn);
      if (!this.conversations.exists()) this.turns.sweepItems();
      return true;
    });
  }

  /** Removes a conversation; and its items, unless a turn `isUnderWay` that has them for its history. */
  deleteConversation(id: string, isUnderWay: boolean): void {
    this.#removing(() => {
      this.conversations.delete(id);
      if (!isUnderWay) this.turns.sweepItems();
    });
  }

  /** Removes what is left of a conversation that is gone, and nobody needs any more. */
  sweepItems(): void {
    if (!this.conversations.exists()) this.#removing(() => this.turns.sweepItems());
  }

  /** Removes what has expired, with the logs of the turns that were removed. */
  sweepTurns(): void {
    this.#removing(() => {
      this.turns.sweep(this.conversations.exists());
      if (this.#tables.has("turns")) this.log.sweep();
    });
  }

  #removing<T>(remove: () => T): T {
    return this.transaction(() => this.stored.removing(remove));
  }

  /** Gives the storage back, with its tables and its alarm. */
  async deleteAll(): Promise<void> {
    const deleted = this.#storage.deleteAll();
    // At once: whoever comes while this waits finds an object without tables.
    this.#forget();
    await deleted;
  }

  #forget(): void {
    this.#tables.forget();
    this.turns.forget();
    this.stored.forget();
  }
}

/** The object of the conversation that lives in a home. Its items are those of its turns (`item-store.ts`). */

export interface Conversation {
  id: string;
  object: "conversation";
  /** Unix seconds. */
  created_at: number;
  metadata: Record<string, string>;
}

export class ConversationStore {
  readonly #sql: SqlStorage;
  readonly #tables: Tables;

  constructor(sql: SqlStorage, tables: Tables) {
    this.#sql = sql;
    this.#tables = tables;
  }

  /** `createdAt` in Unix milliseconds. `owner`: the key that stores it, where what is stored is counted (`home-stored.ts`). */
  create(id: string, createdAt: number, metadata: Record<string, string>, owner?: string | null): Conversation {
    this.#tables.make("conversation");
    this.#sql.exec(
      "INSERT INTO conversation (id, created_at, metadata, owner) VALUES (?, ?, ?, ?)",
      id,
      createdAt,
      JSON.stringify(metadata),
      owner ?? null,
    );
    return conversationObject(id, createdAt, metadata);
  }

  /** The conversation, or null when there is none of that id. */
  get(id: string): Conversation | null {
    if (!this.#tables.has("conversation")) return null;
    const [row] = this.#sql
      .exec<{ id: string; created_at: number; metadata: string }>("SELECT * FROM conversation WHERE id = ?", id)
      .toArray();
    return row ? conversationObject(row.id, row.created_at, JSON.parse(row.metadata) as Record<string, string>) : null;
  }

  /** The conversation, whatever its id; null when there is none. */
  only(): Conversation | null {
    if (!this.#tables.has("conversation")) return null;
    const [row] = this.#sql.exec<{ id: string }>("SELECT id FROM conversation").toArray();
    return row ? this.get(row.id) : null;
  }

  /** When the conversation was created, Unix milliseconds; 0 when there is none of that id. */
  createdAt(id: string): number {
    if (!this.#tables.has("conversation")) return 0;
    const rows = this.#sql.exec<{ at: number }>("SELECT created_at AS at FROM conversation WHERE id = ?", id).toArray();
    return rows[0]?.at ?? 0;
  }

  exists(): boolean {
    return this.#tables.has("conversation") && this.#sql.exec("SELECT 1 FROM conversation").toArray().length > 0;
  }

  setMetadata(id: string, metadata: Record<string, string>): void {
    this.#sql.exec("UPDATE conversation SET metadata = ? WHERE id = ?", JSON.stringify(metadata), id);
  }

  /** Removes the conversation. Its turns are responses of their own, and stay until their time has come. */
  delete(id: string): void {
    this.#sql.exec("DELETE FROM conversation WHERE id = ?", id);
  }
}

function conversationObject(id: string, createdAt: number, metadata: Record<string, string>): Conversation {
  return { id, object: "conversation", created_at: Math.floor(createdAt / 1000), metadata };
}

/** Idempotency keys, each in the object that tenant and key name: which turn a key stands for, and for what request. */

export type IdempotencyClaim =
  /** The key is this request's now. */
  | { kind: "claimed" }
  /** The same request was made before: its turn, and whether that has begun. */
  | { kind: "known"; home: string; turn: string; begun: boolean }
  /** The key belongs to another request. */
  | { kind: "conflict" };

export class IdempotencyStore {
  /** How long a key is remembered. */
  static readonly LIFETIME_MS = 86_400_000;

  readonly #sql: SqlStorage;
  readonly #tables: Tables;

  constructor(sql: SqlStorage, tables: Tables) {
    this.#sql = sql;
    this.#tables = tables;
  }

  claim(fingerprint: string, home: string, turn: string, now: number): IdempotencyClaim {
    const known = this.#current(now);
    if (known) {
      if (known.fingerprint !== fingerprint) return { kind: "conflict" };
      return { kind: "known", home: known.home, turn: known.turn, begun: known.begun === 1 };
    }
    this.#insert(fingerprint, home, turn, now, false);
    return { kind: "claimed" };
  }

  #insert(fingerprint: string, home: string, turn: string, now: number, begun: boolean): void {
    this.#tables.make("idempotency");
    this.#sql.exec("DELETE FROM idempotency");
    this.#sql.exec(
      "INSERT INTO idempotency (fingerprint, home, turn, created_at, begun) VALUES (?, ?, ?, ?, ?)",
      fingerprint,
      home,
      turn,
      now,
      begun ? 1 : 0,
    );
  }

  /**
   * The key's turn has begun. When it is not there any more later, it was deleted, and does not begin again. Another of
   * the same requests may have been refused meanwhile, and have unclaimed the key: then the key stands for the turn again.
   */
  begin(fingerprint: string, home: string, turn: string, now: number): void {
    const known = this.#current(now);
    if (!known) this.#insert(fingerprint, home, turn, now, true);
    else if (known.turn === turn && known.begun === 0) {
      this.#sql.exec("UPDATE idempotency SET begun = 1 WHERE turn = ?", turn);
    }
  }

  /** Gives a key back whose turn has not begun. */
  unclaim(fingerprint: string, turn: string): void {
    if (!this.#tables.has("idempotency")) return;
    this.#sql.exec("DELETE FROM idempotency WHERE fingerprint = ? AND turn = ? AND begun = 0", fingerprint, turn);
  }

  /** Forgets an old key; returns when the present one will be old. */
  sweep(now: number): number | null {
    if (!this.#tables.has("idempotency")) return null;
    this.#sql.exec("DELETE FROM idempotency WHERE created_at <= ?", now - IdempotencyStore.LIFETIME_MS);
    const current = this.#current(now);
    return current ? current.created_at + IdempotencyStore.LIFETIME_MS : null;
  }

  isEmpty(): boolean {
    return !this.#tables.has("idempotency") || this.#sql.exec("SELECT 1 FROM idempotency").toArray().length === 0;
  }

  #current(now: number) {
    if (!this.#tables.has("idempotency")) return undefined;
    const [row] = this.#sql
      .exec<{ fingerprint: string; home: string; turn: string; created_at: number; begun: number }>(
        "SELECT * FROM idempotency WHERE created_at > ?",
        now - IdempotencyStore.LIFETIME_MS,
      )
      .toArray();
    return row;
  }
}
