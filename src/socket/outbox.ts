/** Sends frames to the client, and notices when it does not read them. */

/** The socket, as far as it is needed: workerd's `WebSocket` is one. */
export interface Wire {
  send(text: string): void;
  close(code: number, reason: string): void;
  /** Bytes that were sent and have not left this process. */
  readonly bufferedAmount: number;
}

/** Unsent bytes beyond this hold turns back until the client has read. */
const HIGH_WATER_MARK = 256 * 1024;

/** workerd has no event for a socket that can take more. Milliseconds. */
const LOOK_AGAIN_MS = 10;

export interface OutboxEvents {
  /** The client has read nothing for as long as it may, though more is unsent than may wait. */
  onUnread(): void;
  /** The socket takes nothing any more. */
  onGone(): void;
}

export class Outbox {
  readonly #wire: Wire;
  readonly #sendTimeoutMs: number;
  readonly #events: OutboxEvents;
  #draining: Promise<void> | undefined;
  #closed = false;

  /** `sendTimeoutMs`: how long the client may read nothing. */
  constructor(wire: Wire, sendTimeoutMs: number, events: OutboxEvents) {
    this.#wire = wire;
    this.#sendTimeoutMs = sendTimeoutMs;
    this.#events = events;
  }

  /** Sends a frame; none any more once the connection is closed. */
  send(text: string): void {
    if (this.#closed) return;
    try {
      this.#wire.send(text);
    } catch {
      // It was closed, and nobody has said so yet.
      this.#events.onGone();
    }
  }

  /** A promise to wait for when the client lags far behind. It resolves when it has caught up, or is gone. */
  drained(): Promise<void> | undefined {
    if (this.#draining || this.#closed) return this.#draining;
    if (this.#wire.bufferedAmount <= HIGH_WATER_MARK) return undefined;
    this.#draining = this.#drain().finally(() => {
      this.#draining = undefined;
    });
    return this.#draining;
  }

  /** Says no more. */
  close(): void {
    this.#closed = true;
  }

  async #drain(): Promise<void> {
    let least = this.#wire.bufferedAmount;
    let unreadMs = 0;
    while (!this.#closed && this.#wire.bufferedAmount > HIGH_WATER_MARK) {
      await new Promise((resolve) => setTimeout(resolve, LOOK_AGAIN_MS));
      const unsent = this.#wire.bufferedAmount;
      unreadMs = unsent < least ? 0 : unreadMs + LOOK_AGAIN_MS;
      least = unsent;
      if (unreadMs >= this.#sendTimeoutMs) this.#events.onUnread();
    }
  }
}
