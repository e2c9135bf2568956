import { conversationLocked, conversationNotFound } from "@responses-edge/responses-api/errors";
import type { Item } from "@responses-edge/responses-api/items/registry";
import type { ConversationLock, Lease, LeaseSockets } from "./conversation-lock.ts";
import { conversationHistory } from "./history-reader.ts";
import type { Conversation, HomeRows } from "./home-rows.ts";
import { type ItemPage, pageOf } from "./item-store.ts";
import { type Result, refusalOf, refused } from "./rpc.ts";

/** The turns of the conversation that lives in a home: each of them, and each change of its items, waits for its lock. */

/** The foreground turn that has entered the conversation. It has it until its lease is released, or its Worker is gone. */
interface EnteredTurn {
  ticket: string;
  lease: Lease;
  /** The last position of the conversation that it saw. */
  base: number;
}

export class ConversationTurns {
  readonly #rows: HomeRows;
  readonly #lock: ConversationLock;
  readonly #maxOpen: () => number;
  readonly #sockets: LeaseSockets;
  /** The last turn that has entered; its lease may have been released meanwhile. */
  #entered: EnteredTurn | undefined;

  /** `maxOpen` gives how many turns of a tenant may hold a conversation or wait for one. */
  constructor(rows: HomeRows, lock: ConversationLock, sockets: LeaseSockets, maxOpen: () => number) {
    this.#rows = rows;
    this.#lock = lock;
    this.#sockets = sockets;
    this.#maxOpen = maxOpen;
    const held = sockets.held();
    if (held) this.#entered = { ...held, lease: lock.resume() };
  }

  /**
   * Waits for the conversation, at most `waitMs`. Undefined when the time is up or `leave(ticket)` was called.
   * Throws the 429 of a tenant that holds enough.
   */
  acquire(ticket: string, waitMs: number): Promise<Lease | undefined> {
    return this.#lock.acquire(ticket, waitMs, this.#maxOpen());
  }

  /** Waits for the conversation for as long as it takes, for a run that was accepted before its process died. */
  acquireToResume(): Promise<Lease | undefined> {
    return this.#lock.acquire("resumed", Number.POSITIVE_INFINITY);
  }

  /**
   * Waits for the conversation. Gives the answer to the Worker of a foreground turn, with the socket by which it holds the
   * conversation, and on which it is told the history.
   */
  async enter(id: string, ticket: string, waitMs: number): Promise<Result<Response>> {
    if (!this.#rows.conversations.get(id)) return refused(conversationNotFound(id));
    try {
      using scope = new DisposableStack();
      const lease = scope.use(await this.acquire(ticket, waitMs));
      if (!lease) throw conversationLocked();
      // Deleted while this turn waited.
      if (!this.#rows.conversations.get(id)) throw conversationNotFound(id);
      const base = this.#rows.turns.lastPosition();
      const answer = this.#sockets.open({ ticket, base }, conversationHistory(this.#rows, base));
      this.#entered = { ticket, base, lease };
      scope.move();
      return { ok: true, value: answer };
    } catch (error) {
      return refusalOf(error);
    }
  }

  /** A caller that waits for the conversation, or has entered it, has left. */
  leave(ticket: string): void {
    this.#lock.leave(ticket);
    this.release(ticket);
  }

  /** The socket of a turn has ended. */
  lose(socket: WebSocket): void {
    this.leave(this.#sockets.ticketOf(socket));
  }

  /** The turn that has entered with the ticket gives the conversation to the next in line. */
  release(ticket: string): void {
    if (!this.entered(ticket)) return;
    this.#sockets.clear(ticket);
    this.#entered?.lease.release();
  }

  /**
   * The foreground turn that has entered with the ticket. Undefined when it does not hold the conversation any more: its
   * object has died since, or it gave its lease back, and somebody else may have had the conversation since.
   */
  entered(ticket: string): Pick<EnteredTurn, "base"> | undefined {
    const turn = this.#entered;
    return turn?.ticket !== ticket || turn.lease.released ? undefined : turn;
  }

  /** Tells whether a foreground turn has entered, and not left. */
  get isEntered(): boolean {
    return this.#entered?.lease.released === false;
  }

  /** Makes the conversation, with first items (a JSON array) if there are any. */
  create(
    id: string,
    turn: string,
    metadata: Record<string, string>,
    itemsJson: string,
    owner: string | undefined,
  ): Conversation {
    const createdAt = Date.now();
    this.#rows.stored.forget();
    this.#rows.transaction(() => {
      this.#insertItems(turn, createdAt, itemsJson, owner);
      this.#rows.conversations.create(id, createdAt, metadata, owner);
    });
    return { id, object: "conversation", created_at: Math.floor(createdAt / 1000), metadata };
  }

  /** Adds items, and gives them as a page; null when there is no such conversation. */
  addItems(
    id: string,
    turn: string,
    itemsJson: string,
    ticket: string,
    waitMs: number,
    owner: string | undefined,
  ): Promise<Result<ItemPage> | null> {
    return this.#change(id, ticket, waitMs, () => {
      this.#rows.transaction(() => this.#insertItems(turn, Date.now(), itemsJson, owner));
      this.#rows.stored.added(turn);
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
  #insertItems(turn: string, createdAt: number, itemsJson: string, owner: string | undefined): void {
    if (itemsJson === "[]") return;
    const position = this.#rows.turns.lastPosition() + 1;
    const items = { input: itemsJson, output: "[]", messages: null, response: null };
    this.#rows.turns.insert({ turn, parent: null, createdAt, base: null, position, owner, ...items });
  }

  /** Runs `work` while nobody else has the conversation; null when there is no such conversation. */
  async #change<T>(id: string, ticket: string, waitMs: number, work: () => T): Promise<Result<T> | null> {
    if (!this.#rows.conversations.get(id)) return null;
    try {
      using lease = await this.acquire(ticket, waitMs);
      if (!lease) return refused(conversationLocked());
      // Deleted while this change waited.
      return this.#rows.conversations.get(id) ? { ok: true, value: work() } : null;
    } catch (error) {
      return refusalOf(error);
    }
  }
}
