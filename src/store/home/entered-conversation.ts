import { waitUntil } from "cloudflare:workers";
import { ApiError, conversationLocked } from "@responses-edge/responses-api/errors";
import type { Result } from "../objects/rpc.ts";
import type { History, ReadHistory } from "./history.ts";

/** How often a served process tries to enter a conversation whose process is ending, and its pauses. Milliseconds. */
const MAX_TRIES = 50;
const RETRY_MS = 200;

/** The socket by which a Worker holds a conversation, and the history that came on it. */
export interface Entry {
  socket: WebSocket;
  history: History;
  /** Its values. They may be frozen. */
  values: () => ReadHistory;
}

/**
 * A conversation that a foreground turn has entered, as its Worker holds it. In a served process it is entered again after its
 * home's process has ended, or handed the home over.
 */
export class EnteredConversation {
  readonly history: History;
  readonly values: () => ReadHistory;
  readonly #enter: () => Promise<Entry>;
  /** Undefined while it is entered again. */
  #socket: WebSocket | undefined;
  /** The last entry after the first one: false if the conversation has changed. */
  #again: Promise<boolean> | undefined;
  #isReleased = false;

  private constructor({ socket, history, values }: Entry, enter: () => Promise<Entry>, isServed: boolean) {
    this.#enter = enter;
    this.#socket = socket;
    this.history = history;
    this.values = values;
    if (isServed) this.#keep(socket);
  }

  /** Enters a conversation by `enter`. Throws its errors. */
  static async by(enter: () => Promise<Entry>, isServed: boolean): Promise<EnteredConversation> {
    return new EnteredConversation(isServed ? await repeated(enter, () => false) : await enter(), enter, isServed);
  }

  /**
   * Settles the turn by a call of the home, and leaves the conversation. Gives the rows that the turn took. Throws the 409 of a turn that
   * has lost its conversation.
   */
  async settle(call: () => Promise<Result<number>>): Promise<number> {
    for (let before: Promise<boolean> | null | undefined = null; before !== this.#again; ) {
      before = this.#again;
      // An entry that came after the settlement would lock the conversation for a turn that has ended.
      if (before && !(await before)) break;
      const kept = await call();
      if (!kept.ok) continue;
      this.release();
      return kept.value;
    }
    throw conversationLocked();
  }

  /** Leaves the conversation. A repeated call does nothing. */
  release(): void {
    this.#isReleased = true;
    this.#socket?.close();
    // If the platform ended an entry with the request, nobody would close its socket.
    if (this.#again) waitUntil(this.#again);
  }

  #keep(socket: WebSocket): void {
    const onLost = () => {
      if (this.#isReleased || this.#socket !== socket) return;
      this.#socket = undefined;
      // Without an entry the home decides whether the turn may be settled.
      this.#again = this.#enterAgain().catch(() => true);
    };
    this.#socket = socket;
    // A socket that fails also closes.
    socket.addEventListener("close", onLost);
    socket.addEventListener("error", onLost);
  }

  /** Tells whether the conversation is as before. */
  async #enterAgain(): Promise<boolean> {
    const { socket, history } = await repeated(this.#enter, () => this.#isReleased);
    const isSame = history.items === this.history.items && history.messages === this.history.messages;
    if (this.#isReleased || !isSame) socket.close();
    else this.#keep(socket);
    return isSame;
  }
}

/** Enters again where the home's process has ended, or handed the home over, before all was sent. */
async function repeated(enter: () => Promise<Entry>, isOver: () => boolean): Promise<Entry> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await enter();
    } catch (error) {
      if (isOver() || tries === MAX_TRIES || error instanceof ApiError) throw error;
      await scheduler.wait(RETRY_MS);
    }
  }
}
