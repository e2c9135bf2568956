import type { Env } from "../../env.ts";
import { endRun, type RunUse } from "../limits/run-quota.ts";
import { noteChange } from "../limits/unreported-homes.ts";
import { GATHER_MS, Outbox } from "../objects/outbox.ts";
import { OBJECTS } from "../objects/registry.ts";
import { migrate } from "../objects/schema.ts";
import { HomeIndex } from "../tenant/response-index/home-index.ts";
import { announce } from "../tenant/webhooks/announcing.ts";
import type { WebhookNotice } from "../tenant/webhooks/sending.ts";
import { EventLogStore } from "./event-log.ts";
import { HomeStored } from "./home-stored.ts";
import { ItemStore } from "./item-store.ts";
import { RunStore } from "./run-store.ts";
import { Tables } from "./tables.ts";
import { TurnStore } from "./turn-store.ts";

/** The messages of a home to other objects. `list` and `stored` are states. */
type HomeMessages = {
  /** The end of a background run, to the tenant's webhooks. The key is the event's id. */
  webhook: WebhookNotice;
  /** The use of a run, to the tenant's quota. The key is the holder of its reservation. */
  usage: RunUse;
  /** The removal of a response with `store: false` from this home. The key is its turn. */
  removal: Record<string, never>;
  /** Changed responses, to the tenant's list. The key is the turn of a response whose content has changed; empty for all others. */
  list: Record<string, never>;
  /** The stored amounts, to the tenant's quota. Its row says that amounts which were counted were removed. */
  stored: Record<string, never>;
};

/** Everything that a home stores: a store for each kind of row, and the operations on all of them together. */
export class HomeRows {
  readonly turns: TurnStore;
  readonly items: ItemStore;
  readonly log: EventLogStore;
  readonly runs: RunStore;
  readonly conversations: ConversationStore;
  readonly idempotency: IdempotencyStore;
  readonly outbox: Outbox<HomeMessages>;
  readonly stored: HomeStored;
  readonly index: HomeIndex;
  readonly #storage: DurableObjectStorage;
  readonly #who: { tenant: string; home: string };
  readonly #tables: Tables;

  /**
   * Opens the rows, and migrates tables of an earlier version. `oldest` gives a creation time, Unix milliseconds: a
   * response that was created then or earlier has expired. `who` and `env` are used to report what is stored; `wake` makes the alarm ring
   * at a time (Unix milliseconds) or earlier.
   */
  constructor(
    storage: DurableObjectStorage,
    oldest: () => number,
    who: { tenant: string; home: string },
    { env, wake }: { env: Env; wake: (at: number) => void },
  ) {
    this.#storage = storage;
    this.#who = who;
    this.#tables = new Tables(storage.sql);
    migrate(storage, OBJECTS.HOME.migrations);
    this.turns = new TurnStore(this.#tables, oldest);
    this.items = new ItemStore(this.#tables, this.turns);
    this.log = new EventLogStore(storage, this.#tables, this.turns);
    this.runs = new RunStore(this.#tables);
    this.conversations = new ConversationStore(this.#tables);
    this.idempotency = new IdempotencyStore(this.#tables);
    const isNew = !this.#tables.has("turns") && !this.#tables.has("runs");
    this.stored = new HomeStored(this.#tables, who, { env, isEmpty: () => this.isEmpty() });
    this.index = new HomeIndex(this, who, { env, isNew });
    this.outbox = new Outbox<HomeMessages>({
      sql: {
        rows: (statement, ...bindings) => this.#tables.rows("outbox", statement, ...bindings),
        write: (statement, ...bindings) => this.#tables.write("outbox", statement, ...bindings),
      },
      deliver: {
        webhook: (notice) => announce(env, who.tenant, notice),
        usage: async (use) => {
          const quota = env.QUOTAS?.getByName(use.reservation.tenant);
          if (quota) await endRun(use, quota);
        },
        removal: async (_, turn) => void this.deleteResponse(turn),
        list: (_, turn) => {
          if (turn !== "") this.index.note(turn);
          return this.index.report();
        },
        stored: () => this.stored.report(),
      },
      states: { list: () => this.index.isPending(), stored: () => this.stored.isPending() },
      wake,
    });
  }

  /** Notes that a response was stored or deleted. */
  noteResponse(turn: string): void {
    if (!this.index.isOn) return;
    this.index.note(turn);
    this.outbox.note("list");
  }

  /**
   * Notes that the content of a response that is listed has changed. To be called within the transaction of the change: a comparison with
   * the list would not find it.
   */
  noteChanged(turn: string): void {
    if (this.index.isOn && !this.isUnstored(turn)) this.outbox.add("list", turn, {}, Date.now() + GATHER_MS);
  }

  /** Replaces the metadata of a response. False if it does not exist. */
  setMetadata(turn: string, metadata: Record<string, string>): boolean {
    const stored = this.turns.response(turn);
    if (!stored) return false;
    const head = JSON.stringify({ ...(JSON.parse(stored.head) as object), metadata });
    this.transaction(() => {
      this.turns.replaceHead(turn, head);
      this.noteChanged(turn);
    });
    this.stored.changes += 1;
    return true;
  }

  /** The turns of ended responses with `store: false`, which are removed soon. */
  unstored(): Set<string> {
    const rows = this.#tables.rows<{ key: string }>("outbox", "SELECT key FROM outbox WHERE kind = 'removal'");
    return new Set(rows.map(({ key }) => key));
  }

  /** Tells whether a response was created with `store: false`, and has ended. */
  isUnstored(turn: string): boolean {
    return this.#tables.rows("outbox", "SELECT 1 FROM outbox WHERE kind = 'removal' AND key = ?", turn).length > 0;
  }

  /** Notes that something was stored: it is to be reported if it is for a key whose storage is counted. */
  noteStored(owner: string | null | undefined): void {
    this.stored.changes += 1;
    if (owner == null) return;
    noteChange(this.#who.tenant, this.#who.home);
    this.outbox.note("stored");
  }

  /** To be called after rows were imported. */
  noteImported(owner: string | undefined): void {
    this.noteStored(owner);
    this.index.forget();
    if (this.index.isOn) this.outbox.note("list");
  }

  /** Tells whether other objects know what is stored here. */
  get isReported(): boolean {
    return this.index.isOn || this.stored.isCounted();
  }

  /** Runs `body` in a transaction. If it throws, all its changes are undone, in the tables and in memory. */
  transaction<T>(body: () => T): T {
    try {
      return this.#storage.transactionSync(body);
    } catch (error) {
      this.#forget();
      throw error;
    }
  }

  /** Tells whether nothing needed is stored, except perhaps the turn `except`. Expired turns may still be there. */
  isEmpty(except?: string): boolean {
    return (
      !this.turns.hasLiving(except) &&
      this.runs.turns().length === 0 &&
      !this.conversations.exists() &&
      this.idempotency.isEmpty()
    );
  }

  /** Tells whether nothing was ever written, or everything was removed. */
  isVacant(): boolean {
    return this.#tables.isNone();
  }

  /** Tells whether the home may be vacant, as far as is known without reading. */
  get mayBeVacant(): boolean {
    return this.#tables.mayBeNone;
  }

  /** Tells whether there is no turn (not even an expired one), no run and no conversation. */
  isUnused(): boolean {
    return this.turns.isEmpty() && this.runs.turns().length === 0 && !this.conversations.exists();
  }

  /** Removes a response with its event log, and items of a deleted conversation that only it needed. False if it does not exist. */
  deleteResponse(turn: string): boolean {
    const isDeleted = this.#removing(() => {
      if (!this.turns.delete(turn)) return false;
      this.log.delete(turn);
      if (!this.conversations.exists()) this.turns.sweepItems();
      return true;
    });
    if (isDeleted) this.noteResponse(turn);
    return isDeleted;
  }

  /** Removes a conversation; and its items, unless a turn `isUnderWay` that has them as its history. */
  deleteConversation(id: string, isUnderWay: boolean): void {
    this.#removing(() => {
      this.conversations.delete(id);
      if (!isUnderWay) this.turns.sweepItems();
    });
  }

  /** Removes the rest of a deleted conversation that nothing needs any more. */
  sweepItems(): void {
    if (!this.conversations.exists() && this.turns.hasItemsOnly()) this.#removing(() => this.turns.sweepItems());
  }

  /** Removes expired turns and their logs. */
  sweepTurns(): void {
    if (!this.turns.hasExpired()) return;
    this.#removing(() => {
      this.turns.sweep(this.conversations.exists());
      this.log.sweep();
    });
  }

  #removing<T>(remove: () => T): T {
    return this.transaction(() => {
      const wasCounted = this.stored.isCounted();
      const removed = remove();
      if (wasCounted) {
        this.stored.changes += 1;
        noteChange(this.#who.tenant, this.#who.home);
        // Without a counted row nothing else shows that the quota counts this home.
        if (this.stored.isCounted()) this.outbox.note("stored");
        else this.outbox.add("stored", "", {}, Date.now() + GATHER_MS);
      }
      return removed;
    });
  }

  /** Removes all storage, with its tables and its alarm. */
  async deleteAll(): Promise<void> {
    const deleted = this.#storage.deleteAll();
    // At once: a call that comes during the wait finds an object without tables.
    this.#forget();
    this.index.clear();
    await deleted;
  }

  #forget(): void {
    this.#tables.forget();
    this.turns.forget();
  }
}

export interface Conversation {
  id: string;
  object: "conversation";
  /** Unix seconds. */
  created_at: number;
  metadata: Record<string, string>;
}

/** The record of the conversation of a home. Its items are those of its turns (`item-store.ts`). */
class ConversationStore {
  readonly #tables: Tables;

  constructor(tables: Tables) {
    this.#tables = tables;
  }

  /** `createdAt` in Unix milliseconds. `owner`: the key that its bytes are counted for, if they are counted (`home-stored.ts`). */
  create(id: string, createdAt: number, metadata: Record<string, string>, owner?: string | null): void {
    const insert = "INSERT INTO conversation (id, created_at, metadata, owner) VALUES (?, ?, ?, ?)";
    this.#tables.write("conversation", insert, id, createdAt, JSON.stringify(metadata), owner ?? null);
  }

  /** The conversation; null if there is none with that id. */
  get(id: string): Conversation | null {
    const [row] = this.#rows("WHERE id = ?", id);
    return row ? conversationOf(row) : null;
  }

  /** The conversation, whatever its id; null if there is none. */
  only(): Conversation | null {
    const [row] = this.#rows("");
    return row ? conversationOf(row) : null;
  }

  /** When the conversation was created, Unix milliseconds; 0 if there is none with that id. */
  createdAt(id: string): number {
    return this.#rows("WHERE id = ?", id)[0]?.created_at ?? 0;
  }

  exists(): boolean {
    return this.#rows("").length > 0;
  }

  #rows(condition: string, ...bindings: string[]): ConversationRow[] {
    return this.#tables.rows(
      "conversation",
      `SELECT id, created_at, metadata FROM conversation ${condition}`,
      ...bindings,
    );
  }

  setMetadata(id: string, metadata: Record<string, string>): void {
    const update = "UPDATE conversation SET metadata = ? WHERE id = ?";
    this.#tables.rows("conversation", update, JSON.stringify(metadata), id);
  }

  /** Removes the conversation. Its turns are responses of their own, and stay until they expire. */
  delete(id: string): void {
    this.#tables.rows("conversation", "DELETE FROM conversation WHERE id = ?", id);
  }
}

type ConversationRow = { id: string; created_at: number; metadata: string };

function conversationOf({ id, created_at, metadata }: ConversationRow): Conversation {
  const created = Math.floor(created_at / 1000);
  return { id, object: "conversation", created_at: created, metadata: JSON.parse(metadata) as Record<string, string> };
}

export type IdempotencyClaim =
  /** This request has the key now. */
  | { kind: "claimed" }
  /** The same request was made before: its turn, and whether that has begun. */
  | { kind: "known"; home: string; turn: string; begun: boolean }
  /** The key belongs to another request. */
  | { kind: "conflict" };

/** How long an idempotency key is remembered. */
export const KEY_LIFETIME_MS = 86_400_000;

/** Idempotency keys, each in the object that tenant and key name: the turn that a key stands for, and the request. */
class IdempotencyStore {
  readonly #tables: Tables;

  constructor(tables: Tables) {
    this.#tables = tables;
  }

  claim(fingerprint: string, home: string, turn: string, now: number): IdempotencyClaim {
    const known = this.#current(now);
    if (known) {
      if (known.fingerprint !== fingerprint) return { kind: "conflict" };
      return { kind: "known", home: known.home, turn: known.turn, begun: known.begun === 1 };
    }
    this.#insert(fingerprint, home, turn, now, 0);
    return { kind: "claimed" };
  }

  #insert(fingerprint: string, home: string, turn: string, now: number, begun: 0 | 1): void {
    this.#tables.write("idempotency", "DELETE FROM idempotency");
    const insert = "INSERT INTO idempotency (fingerprint, home, turn, created_at, begun) VALUES (?, ?, ?, ?, ?)";
    this.#tables.write("idempotency", insert, fingerprint, home, turn, now, begun);
  }

  /**
   * Notes that the key's turn has begun. If the turn is gone later, it was deleted, and does not begin again. Another identical
   * request may have been refused in the meantime and have unclaimed the key: the key then stands for the turn again.
   */
  begin(fingerprint: string, home: string, turn: string, now: number): void {
    const known = this.#current(now);
    if (!known) this.#insert(fingerprint, home, turn, now, 1);
    else if (known.turn === turn && known.begun === 0) {
      this.#tables.rows("idempotency", "UPDATE idempotency SET begun = 1 WHERE turn = ?", turn);
    }
  }

  /** Gives back a key whose turn has not begun. */
  unclaim(fingerprint: string, turn: string): void {
    const unclaimed = "DELETE FROM idempotency WHERE fingerprint = ? AND turn = ? AND begun = 0";
    this.#tables.rows("idempotency", unclaimed, fingerprint, turn);
  }

  /** Forgets an old key. Gives the time when the present one will be old. */
  sweep(now: number): number | null {
    this.#tables.rows("idempotency", "DELETE FROM idempotency WHERE created_at <= ?", now - KEY_LIFETIME_MS);
    const current = this.#current(now);
    return current ? current.created_at + KEY_LIFETIME_MS : null;
  }

  isEmpty(): boolean {
    return this.#tables.rows("idempotency", "SELECT 1 FROM idempotency").length === 0;
  }

  #current(now: number) {
    type Row = { fingerprint: string; home: string; turn: string; created_at: number; begun: number };
    const young = "SELECT * FROM idempotency WHERE created_at > ?";
    return this.#tables.rows<Row>("idempotency", young, now - KEY_LIFETIME_MS)[0];
  }
}
