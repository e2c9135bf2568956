import { tooManyInProgress } from "@responses-edge/responses-api/errors";
import type { ObjectLoad } from "../limits/permits.ts";
import { waiting } from "../objects/ownership.ts";
import { toPieces } from "../objects/row-pieces.ts";
import type { History, KnownHistory } from "./history.ts";

/**
 * The lock of a conversation lets one caller at a time take a turn in it: first come, first served.
 *
 * The lock is in memory only. When the object dies, a background run is resumed and waits for the lock first. A
 * foreground turn in a Worker finds that its lease belongs to an earlier instance of the object, and may not settle. A
 * hibernating object has at most one holder, which its next instance finds by its socket (`LeaseSockets`). An object that
 * is handed over passes its holder on.
 */

/**
 * The lock, as its holder has it. The end of the scope releases it: `using lease = await lock.acquire(…)`. A holder
 * that passes it to a run or a Worker keeps it in a `DisposableStack`, and passes that on with `move()`.
 */
export interface Lease extends Disposable {
  /** Gives the lock to the next in line, as the end of the scope does. A repeated call does nothing. */
  release(): void;
  readonly released: boolean;
}

/** The ticket of resumed runs, for which nobody waits. */
export const RESUMED = "resumed";

interface Waiter {
  ticket: string;
  giveBack: () => void;
  grant: (lease: Lease | undefined) => void;
}

export class ConversationLock {
  readonly #waiting: Waiter[] = [];
  readonly #load: ObjectLoad;
  #holder: Lease | undefined;

  /** `load` counts holders and waiters. */
  constructor(load: ObjectLoad) {
    this.#load = load;
  }

  get isHeld(): boolean {
    return this.#holder !== undefined;
  }

  /**
   * Waits for the lock, at most `waitMs` (0: not at all). Gives undefined if the time is up, or if `leave(ticket)` was
   * called. Throws the 429 of a tenant that already has `limit` holders and waiters.
   */
  async acquire(ticket: string, waitMs: number, limit = Number.POSITIVE_INFINITY): Promise<Lease | undefined> {
    if (this.#holder && waitMs === 0) return undefined;
    const giveBack = this.#take(limit);
    if (!this.#holder) return this.#grant(giveBack);
    const granted = new Promise<Lease | undefined>((resolve) => {
      const timer = Number.isFinite(waitMs) ? setTimeout(() => this.leave(ticket), waitMs) : undefined;
      const grant = (lease: Lease | undefined) => {
        clearTimeout(timer);
        resolve(lease);
      };
      this.#waiting.push({ ticket, giveBack, grant });
    });
    // A hand-over cuts this call off, and it is made again.
    return ticket === RESUMED ? granted : waiting(granted);
  }

  /** Takes the lock at once, for its holder from before the object hibernated. Nobody else may have it yet. */
  resume(): Lease {
    if (this.#holder) throw new Error("The lock is held.");
    return this.#grant(this.#take(Number.POSITIVE_INFINITY));
  }

  /** Removes a waiter. */
  leave(ticket: string): void {
    const index = this.#waiting.findIndex((waiter) => waiter.ticket === ticket);
    if (index === -1) return;
    const [waiter] = this.#waiting.splice(index, 1);
    waiter?.giveBack();
    waiter?.grant(undefined);
  }

  #take(limit: number): () => void {
    const giveBack = this.#load.take(limit);
    if (giveBack) return giveBack;
    throw tooManyInProgress("You have too many turns of conversations in progress or waiting. Please retry later.");
  }

  #grant(giveBack: () => void): Lease {
    let released = false;
    const release = () => {
      if (released) return;
      released = true;
      this.#holder = undefined;
      giveBack();
      const next = this.#waiting.shift();
      next?.grant(this.#grant(next.giveBack));
    };
    const lease: Lease = {
      get released() {
        return released;
      },
      release,
      [Symbol.dispose]: release,
    };
    this.#holder = lease;
    return lease;
  }
}

/**
 * The WebSockets by which Workers hold a conversation: each is open as long as its Worker lives. Its first message is
 * the conversation's history, and its only one.
 *
 * They are hibernatable. An object that only waits for their end costs no time awake and may leave memory; an RPC
 * object in a Worker would keep it awake for the whole turn (Cloudflare: Durable Objects, WebSocket Hibernation and
 * Pricing). The holder's lease is attached to its socket, where the object's next instance reads it. If the object dies
 * otherwise, its sockets end with it.
 */

/** Attached to the socket of a turn that has entered. */
export interface HeldLease {
  ticket: string;
  /** The last position of the conversation that the turn saw. */
  base: number;
}

/** Sent for a history that the Worker has. */
const NOTHING_NEW: History = { items: "", messages: "" };

/** Most UTF-16 units of a message: at most 12 MiB of UTF-8. A message may have 32 MiB. */
const MESSAGE_LENGTH = 4 * 1024 * 1024;

type SocketState = Pick<DurableObjectState, "acceptWebSocket" | "getWebSockets" | "getTags">;

export class LeaseSockets {
  readonly #state: SocketState;

  constructor(state: SocketState) {
    this.#state = state;
  }

  /** Admits a turn's Worker: 101, with its end of the socket. `known`: the id of the history that the Worker has. */
  open({ ticket, base }: HeldLease, history: KnownHistory, known: string | undefined): Response {
    const { 0: client, 1: socket } = new WebSocketPair();
    this.#state.acceptWebSocket(socket, [ticket]);
    socket.serializeAttachment(base);
    const isKnown = known !== undefined && known === history.id;
    const { items, messages } = isKnown ? NOTHING_NEW : history.texts;
    for (const piece of toPieces(`${items}\n${messages}\n`, MESSAGE_LENGTH)) socket.send(piece);
    return new Response(null, { status: 101, webSocket: client });
  }

  ticketOf(socket: WebSocket): string {
    return this.#state.getTags(socket)[0] ?? "";
  }

  /** Detaches the lease of the ticket: it no longer holds the conversation. */
  clear(ticket: string): void {
    for (const socket of this.#state.getWebSockets(ticket)) socket.serializeAttachment(null);
  }

  /** Tells whether the Worker of the ticket's turn holds its end of a socket. */
  isOpen(ticket: string): boolean {
    return this.#state.getWebSockets(ticket).some(({ readyState }) => readyState === WebSocket.OPEN);
  }

  /** Tells whether a turn's Worker holds its end of a socket. */
  get isAnyOpen(): boolean {
    return this.#state.getWebSockets().some(({ readyState }) => readyState === WebSocket.OPEN);
  }

  /** The lease that an earlier instance of the object has attached and not detached, if its Worker is still there. */
  held(): HeldLease | undefined {
    for (const socket of this.#state.getWebSockets()) {
      const base = socket.readyState === WebSocket.OPEN ? (socket.deserializeAttachment() as number | null) : null;
      if (base !== null) return { ticket: this.ticketOf(socket), base };
    }
    return undefined;
  }
}

/** The history that a Worker receives on its end of a socket; undefined if it has it. Rejects if the socket ends first. */
export function receiveHistory(socket: WebSocket): Promise<History | undefined> {
  const { promise, resolve, reject } = Promise.withResolvers<History | undefined>();
  let text = "";
  let lines = 0;
  socket.addEventListener("message", ({ data }) => {
    const piece = data as string;
    text += piece;
    for (let at = piece.indexOf("\n"); at !== -1; at = piece.indexOf("\n", at + 1)) lines += 1;
    if (lines < 2) return;
    // JSON texts have no line breaks.
    const [items = "", messages = ""] = text.split("\n");
    resolve(items === NOTHING_NEW.items ? undefined : { items, messages });
  });
  const lost = () => reject(new Error("The conversation's home has ended the socket."));
  socket.addEventListener("close", lost);
  socket.addEventListener("error", lost);
  socket.accept();
  return promise;
}
