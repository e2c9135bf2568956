/** Sends frames to the client, and notices a client that does not read them. */

/** The part of a socket that is needed here. workerd's `WebSocket` has it. */
export interface Wire {
  send(text: string): void;
  close(code: number, reason: string): void;
  /** Bytes that were sent and are still in this process. */
  readonly bufferedAmount: number;
}

/** Unsent bytes beyond which turns wait until the client has read. */
const HIGH_WATER_MARK = 256 * 1024;

/** Milliseconds between checks: workerd has no event for a socket that can take more. */
const LOOK_AGAIN_MS = 10;

export interface OutboxEvents {
  /** The client has read nothing for the longest time allowed, while more is unsent than may wait. */
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

  /** `sendTimeoutMs`: the longest time without a read of the client. */
  constructor(wire: Wire, sendTimeoutMs: number, events: OutboxEvents) {
    this.#wire = wire;
    this.#sendTimeoutMs = sendTimeoutMs;
    this.#events = events;
  }

  /** Sends a frame. Does nothing once the connection is closed. */
  send(text: string): void {
    if (this.#closed) return;
    try {
      this.#wire.send(text);
    } catch {
      // It was closed without an event so far.
      this.#events.onGone();
    }
  }

  /** A promise to wait for if the client lags far behind. It resolves when the client has caught up, or is gone. */
  drained(): Promise<void> | undefined {
    if (this.#draining || this.#closed) return this.#draining;
    if (this.#wire.bufferedAmount <= HIGH_WATER_MARK) return undefined;
    this.#draining = this.#drain().finally(() => {
      this.#draining = undefined;
    });
    return this.#draining;
  }

  /** Sends nothing from now on. */
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
