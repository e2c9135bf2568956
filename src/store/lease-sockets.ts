import type { History } from "./history.ts";
import { toPieces } from "./row-pieces.ts";

/**
 * The WebSockets by which Workers hold a conversation: each is open for as long as its Worker is there. The first that is said
 * on it is the conversation's history, and nothing else is.
 *
 * They are hibernatable. An object that waits for nothing but their end costs no time awake and may leave memory, where an RPC
 * object in a Worker would keep it awake for the whole turn (Cloudflare: Durable Objects, WebSocket Hibernation and Pricing).
 * What the holder has is written on its socket, and the object's next life reads it there. Sockets end with the object when it
 * dies otherwise.
 */

/** What is written on the socket of a turn that has entered. */
export interface HeldLease {
  ticket: string;
  /** The last position of the conversation that the turn saw. */
  base: number;
}

/** UTF-16 units of a message: at most 12 MiB of UTF-8, of the 32 MiB that a message may have. */
const MESSAGE_LENGTH = 4 * 1024 * 1024;

type SocketState = Pick<DurableObjectState, "acceptWebSocket" | "getWebSockets" | "getTags">;

export class LeaseSockets {
  readonly #state: SocketState;

  constructor(state: SocketState) {
    this.#state = state;
  }

  /** Lets a turn's Worker in: 101, with its end of the socket. */
  open({ ticket, base }: HeldLease, { items, messages }: History): Response {
    const { 0: client, 1: socket } = new WebSocketPair();
    this.#state.acceptWebSocket(socket, [ticket]);
    socket.serializeAttachment(base);
    for (const piece of toPieces(`${items}\n${messages}\n`, MESSAGE_LENGTH)) socket.send(piece);
    return new Response(null, { status: 101, webSocket: client });
  }

  ticketOf(socket: WebSocket): string {
    return this.#state.getTags(socket)[0] ?? "";
  }

  /** The conversation is not held by the ticket any more. */
  clear(ticket: string): void {
    for (const socket of this.#state.getWebSockets(ticket)) socket.serializeAttachment(null);
  }

  /** Whether a turn's Worker has its end of one. */
  get isAnyOpen(): boolean {
    return this.#state.getWebSockets().some(({ readyState }) => readyState === WebSocket.OPEN);
  }

  /** What an earlier life of the object has written and not cleared, where its Worker is still there. */
  held(): HeldLease | undefined {
    for (const socket of this.#state.getWebSockets()) {
      const base = socket.readyState === WebSocket.OPEN ? (socket.deserializeAttachment() as number | null) : null;
      if (base !== null) return { ticket: this.ticketOf(socket), base };
    }
    return undefined;
  }
}

/** The history that a Worker is told on its end of a socket. Rejects when the socket ends before. */
export function receiveHistory(socket: WebSocket): Promise<History> {
  const { promise, resolve, reject } = Promise.withResolvers<History>();
  let text = "";
  let lines = 0;
  socket.addEventListener("message", ({ data }) => {
    const piece = data as string;
    text += piece;
    for (let at = piece.indexOf("\n"); at !== -1; at = piece.indexOf("\n", at + 1)) lines += 1;
    if (lines < 2) return;
    // JSON texts have no line breaks.
    const [items = "", messages = ""] = text.split("\n");
    resolve({ items, messages });
  });
  const lost = () => reject(new Error("The conversation's home has ended the socket."));
  socket.addEventListener("close", lost);
  socket.addEventListener("error", lost);
  socket.accept();
  return promise;
}
