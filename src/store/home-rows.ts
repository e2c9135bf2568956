import { ConversationStore } from "./conversation-store.ts";
import { EventLogStore } from "./event-log.ts";
import { HomeStored } from "./home-stored.ts";
import { IdempotencyStore } from "./idempotency-store.ts";
import { ItemStore } from "./item-store.ts";
import { migrate } from "./migrations.ts";
import type { QuotaBinding } from "./quota/run-quota.ts";
import { RunStore } from "./run-store.ts";
import { Tables } from "./tables.ts";
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
