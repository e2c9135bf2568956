import { conversationLocked, conversationNotFound } from "@responses-edge/responses-api/errors";
import { parseItemId } from "@responses-edge/responses-api/ids";
import type { Item } from "@responses-edge/responses-api/items/registry";
import { type HomeRequest, type Result, refusalOf, refused } from "../objects/rpc.ts";
import { type ConversationLock, type HeldLease, type Lease, type LeaseSockets, RESUMED } from "./conversation-lock.ts";
import { conversationHistory } from "./history-reader.ts";
import type { Conversation, HomeRows } from "./home-rows.ts";
import { type ItemPage, pageOf } from "./item-store.ts";

/** The turns of the conversation of a home. Each turn, and each change of the items, waits for its lock. */

/**
 * The foreground turn that has entered the conversation. It holds the conversation until its lease is released, or its
 * Worker is gone.
 */
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
  /** The last turn that has entered. Its lease may have been released since. */
  #entered: EnteredTurn | undefined;

  /** `maxOpen` gives the number of a tenant's turns that may hold or wait for a conversation. */
  constructor(rows: HomeRows, lock: ConversationLock, sockets: LeaseSockets, maxOpen: () => number) {
    this.#rows = rows;
    this.#lock = lock;
    this.#sockets = sockets;
    this.#maxOpen = maxOpen;
    const held = sockets.held();
    if (held) this.#entered = { ...held, lease: lock.resume() };
  }

  /**
   * Waits for the conversation, at most `waitMs`. Undefined if the time is up or `leave(ticket)` was called. Throws the
   * 429 of a tenant with too many turns.
   */
  acquire(ticket: string, waitMs: number): Promise<Lease | undefined> {
    return this.#lock.acquire(ticket, waitMs, this.#maxOpen());
  }

  /** Waits for the conversation without a limit, for a run that was accepted before its process died. */
  acquireToResume(): Promise<Lease | undefined> {
    return this.#lock.acquire(RESUMED, Number.POSITIVE_INFINITY);
  }

  /**
   * Waits for the conversation. Gives the answer to the Worker of a foreground turn, with the socket that holds the
   * conversation and sends its history.
   */
  async enter({ id, ticket, waitMs, known }: HomeRequest & { kind: "conversation" }): Promise<Result<Response>> {
    if (!this.#rows.conversations.get(id)) return refused(conversationNotFound(id));
    try {
      // It has entered in another process.
      const held = this.held();
      if (held?.ticket === ticket) {
        return { ok: true, value: this.#sockets.open(held, conversationHistory(this.#rows, held.base), known) };
      }
      using scope = new DisposableStack();
      const lease = scope.use(await this.acquire(ticket, waitMs));
      if (!lease) throw conversationLocked();
      // Deleted while this turn waited.
      if (!this.#rows.conversations.get(id)) throw conversationNotFound(id);
      const base = this.#rows.turns.lastPosition();
      const answer = this.#sockets.open({ ticket, base }, conversationHistory(this.#rows, base), known);
      this.#entered = { ticket, base, lease };
      scope.move();
      return { ok: true, value: answer };
    } catch (error) {
      return refusalOf(error);
    }
  }

  /** Ends a caller's wait for the conversation, or its hold of it, because it has left. */
  leave(ticket: string): void {
    this.#lock.leave(ticket);
    this.release(ticket);
  }

  /** Ends the turn whose socket has closed. */
  lose(socket: WebSocket): void {
    // The platform does not answer the close of a hibernatable socket, and keeps all of the Worker's request until both ends have closed.
    socket.close();
    this.loseUnlessOpen(this.#sockets.ticketOf(socket));
  }

  /** Ends the turn with the ticket if its Worker holds no socket. */
  loseUnlessOpen(ticket: string): void {
    if (!this.#sockets.isOpen(ticket)) this.leave(ticket);
  }

  /** The turn that holds the conversation, if one does. */
  held(): HeldLease | undefined {
    const turn = this.#entered;
    return turn && !turn.lease.released ? { ticket: turn.ticket, base: turn.base } : undefined;
  }

  /** Lets a turn hold the conversation that held it in another process. */
  restore(held: HeldLease): void {
    this.#entered ??= { ...held, lease: this.#lock.resume() };
  }

  /** Gives the conversation of the ticket's turn to the next in line. */
  release(ticket: string): void {
    if (!this.entered(ticket)) return;
    this.#sockets.clear(ticket);
    this.#entered?.lease.release();
  }

  /**
   * The foreground turn that has entered with the ticket. Undefined if it no longer holds the conversation: its object
   * has died, or it has released its lease, and another turn may have had the conversation since.
   */
  entered(ticket: string): Pick<EnteredTurn, "base"> | undefined {
    const turn = this.#entered;
    return turn?.ticket !== ticket || turn.lease.released ? undefined : turn;
  }

  /** Tells whether a foreground turn has entered, and not left. */
  get isEntered(): boolean {
    return this.#entered?.lease.released === false;
  }

  /** Creates the conversation, with first items (a JSON array) if there are any. */
  create(
    id: string,
    turn: string,
    metadata: Record<string, string>,
    itemsJson: string,
    owner: string | undefined,
  ): Conversation {
    const createdAt = Date.now();
    this.#rows.transaction(() => {
      this.#insertItems(turn, createdAt, itemsJson, owner);
      this.#rows.conversations.create(id, createdAt, metadata, owner);
    });
    return { id, object: "conversation", created_at: Math.floor(createdAt / 1000), metadata };
  }

  /** Adds items, and gives them as a page; null if the conversation does not exist. */
  addItems(
    id: string,
    turn: string,
    itemsJson: string,
    ticket: string,
    waitMs: number,
    owner: string | undefined,
  ): Promise<Result<ItemPage> | null> {
    return this.#change(id, ticket, waitMs, () => {
      // The call may be made again.
      if (!this.#rows.turns.has(turn)) {
        this.#rows.transaction(() => this.#insertItems(turn, Date.now(), itemsJson, owner));
        this.#rows.noteStored(owner);
      }
      const items = JSON.parse(itemsJson) as Item[];
      return pageOf(items, items.length);
    });
  }

  /** Removes an item. Gives the conversation; null if it or the item does not exist. */
  deleteItem(id: string, itemId: string, ticket: string, waitMs: number): Promise<Result<Conversation | null> | null> {
    return this.#change(id, ticket, waitMs, () => {
      if (!this.#rows.items.ofConversation(itemId)) return null;
      const turn = parseItemId(itemId)?.turn;
      this.#rows.transaction(() => {
        this.#rows.items.delete(itemId);
        if (turn !== undefined && this.#rows.turns.hasResponse(turn)) this.#rows.noteChanged(turn);
      });
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

  /** Runs `work` while no other turn has the conversation; null if it does not exist. */
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
