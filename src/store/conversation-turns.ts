import { RpcTarget } from "cloudflare:workers";
import { conversationLocked, conversationNotFound } from "../protocol/errors.ts";
import type { Item } from "../protocol/items.ts";
import type { ConversationLock, Lease } from "./conversation-lock.ts";
import type { Conversation } from "./conversation-store.ts";
import type { History } from "./history.ts";
import type { HistoryReader } from "./history-reader.ts";
import type { HomeRows } from "./home-rows.ts";
import { type ItemPage, pageOf } from "./item-page.ts";
import { accepted, type Result, refusalOf, refused } from "./result.ts";

/** The turns of the conversation that lives in a home: each of them, and each change of its items, waits for its lock. */

/** The right to take a turn in the conversation, as the Worker holds it: disposing of it, or dying, gives it back. */
export class TurnLease extends RpcTarget {
  readonly #scope: Disposable;

  /** `scope` holds the lease, and nobody else frees it. */
  constructor(scope: Disposable) {
    super();
    this.#scope = scope;
  }

  release(): void {
    this.#scope[Symbol.dispose]();
  }

  [Symbol.dispose](): void {
    this.release();
  }
}

/** A foreground turn that has entered the conversation. */
interface EnteredTurn {
  lease: Lease;
  /** The last position of the conversation that it saw. */
  base: number;
}

export class ConversationTurns {
  readonly #rows: HomeRows;
  readonly #history: HistoryReader;
  readonly #lock: ConversationLock;
  readonly #maxOpen: () => number;
  /** By ticket. */
  readonly #entered = new Map<string, EnteredTurn>();

  /** `maxOpen` gives how many turns of a tenant may hold a conversation or wait for one. */
  constructor(rows: HomeRows, history: HistoryReader, lock: ConversationLock, maxOpen: () => number) {
    this.#rows = rows;
    this.#history = history;
    this.#lock = lock;
    this.#maxOpen = maxOpen;
  }

  /**
   * Waits for the conversation, at most `waitMs`. Undefined when the time is up or `leave(ticket)` was called.
   * Throws the 429 of a tenant that holds enough.
   */
  acquire(ticket: string, waitMs: number): Promise<Lease | undefined> {
    return this.#lock.acquire(ticket, waitMs, this.#maxOpen());
  }

  /** Waits for the conversation for as long as it takes, for a run that was accepted before its process died. */
  acquireForOrphan(): Promise<Lease | undefined> {
    return this.#lock.acquire("orphan", Number.POSITIVE_INFINITY);
  }

  /** Waits for the conversation and gives its history, with the lease under which a foreground turn may be settled. */
  async enter(id: string, ticket: string, waitMs: number): Promise<Result<{ lease: TurnLease; history: History }>> {
    if (!this.#rows.conversations.get(id)) return refused(conversationNotFound(id));
    try {
      using scope = new DisposableStack();
      const lease = scope.use(await this.acquire(ticket, waitMs));
      if (!lease) throw conversationLocked();
      // Deleted while this turn waited.
      if (!this.#rows.conversations.get(id)) throw conversationNotFound(id);
      const base = this.#rows.turns.lastPosition();
      const history = this.#history.ofConversation(base);
      this.#forgetReleased();
      this.#entered.set(ticket, { lease, base });
      return accepted({ lease: new TurnLease(scope.move()), history });
    } catch (error) {
      return refusalOf(error);
    }
  }

  /** A caller that waits for the conversation, or has just entered it, has left. */
  leave(ticket: string): void {
    this.#lock.leave(ticket);
    this.#entered.get(ticket)?.lease.release();
  }

  /**
   * The foreground turn that has entered with the ticket. Undefined when it does not hold the conversation any more: it
   * entered in another life of the object, or gave its lease back, and somebody else may have had the conversation since.
   */
  entered(ticket: string): EnteredTurn | undefined {
    const turn = this.#entered.get(ticket);
    return turn?.lease.released ? undefined : turn;
  }

  #forgetReleased(): void {
    for (const [ticket, { lease }] of this.#entered) if (lease.released) this.#entered.delete(ticket);
  }

  /** Makes the conversation, with first items (a JSON array) if there are any. */
  create(id: string, turn: string, metadata: Record<string, string>, itemsJson: string): Conversation {
    const createdAt = Date.now();
    return this.#rows.transaction(() => {
      this.#insertItems(turn, createdAt, itemsJson);
      return this.#rows.conversations.create(id, createdAt, metadata);
    });
  }

  /** Adds items, and gives them as a page; null when there is no such conversation. */
  addItems(
    id: string,
    turn: string,
    itemsJson: string,
    ticket: string,
    waitMs: number,
  ): Promise<Result<ItemPage> | null> {
    return this.#change(id, ticket, waitMs, () => {
      this.#rows.transaction(() => this.#insertItems(turn, Date.now(), itemsJson));
      const items = JSON.parse(itemsJson) as Item[];
      return pageOf(items, items.length);
    });
  }

  /** Takes an item out. Gives the conversation, or null when there is no such conversation or item. */
  deleteItem(id: string, itemId: string, ticket: string, waitMs: number): Promise<Result<Conversation | null> | null> {
    return this.#change(id, ticket, waitMs, () => {
      if (!this.#rows.items.ofConversation(itemId)) return null;
      this.#rows.items.delete(itemId);
      return this.#rows.conversations.get(id);
    });
  }

  /** Items that a client adds are a turn without a response. */
  #insertItems(turn: string, createdAt: number, itemsJson: string): void {
    if (itemsJson === "[]") return;
    const position = this.#rows.turns.lastPosition() + 1;
    const items = { input: itemsJson, output: "[]", messages: null, response: null };
    this.#rows.turns.insert({ turn, parent: null, createdAt, base: null, position, ...items });
  }

  /** Runs `work` while nobody else has the conversation; null when there is no such conversation. */
  async #change<T>(id: string, ticket: string, waitMs: number, work: () => T): Promise<Result<T> | null> {
    if (!this.#rows.conversations.get(id)) return null;
    try {
      using lease = await this.acquire(ticket, waitMs);
      if (!lease) return refused(conversationLocked());
      // Deleted while this change waited.
      return this.#rows.conversations.get(id) ? accepted(work()) : null;
    } catch (error) {
      return refusalOf(error);
    }
  }
}
