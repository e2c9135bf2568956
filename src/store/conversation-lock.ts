import { type ApiError, tooManyInProgress } from "../protocol/errors.ts";
import type { ObjectLoad } from "./tenant-load.ts";

/**
 * Who may take a turn in the conversation: one at a time, first come, first served.
 *
 * The lock is in memory only. When the object dies, a background run is taken up again and waits for the lock first. A
 * foreground turn in a Worker finds that its lease is of another life of the object, and may not settle. An object that
 * hibernates has a holder at most, which its next life finds by its socket (`lease-sockets.ts`).
 */

/**
 * The lock, as its holder has it. It frees itself at the end of the scope that holds it, whichever way that ends:
 * `using lease = await lock.acquire(…)`. Who hands it on, to a run or to a Worker, holds it in a `DisposableStack`, and
 * hands that on with `move()`.
 */
export interface Lease extends Disposable {
  /** Gives the lock to the next in line, as the end of the scope does. May be called more than once. */
  release(): void;
  readonly released: boolean;
}

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
   * Waits for the lock, at most `waitMs` (0: not at all). Gives undefined when the time is up, or `leave(ticket)` was
   * called meanwhile. Throws the 429 of a tenant that has `limit` holders and waiters already.
   */
  async acquire(ticket: string, waitMs: number, limit = Number.POSITIVE_INFINITY): Promise<Lease | undefined> {
    if (this.#holder && waitMs === 0) return undefined;
    const giveBack = this.#take(limit);
    if (!this.#holder) return this.#grant(giveBack);
    return new Promise((resolve) => {
      const timer = Number.isFinite(waitMs) ? setTimeout(() => this.leave(ticket), waitMs) : undefined;
      const grant = (lease: Lease | undefined) => {
        clearTimeout(timer);
        resolve(lease);
      };
      this.#waiting.push({ ticket, giveBack, grant });
    });
  }

  /** Has the lock at once, for the holder that it had when the object hibernated. Nobody may have it yet. */
  resume(): Lease {
    if (this.#holder) throw new Error("The lock is held.");
    return this.#grant(this.#take(Number.POSITIVE_INFINITY));
  }

  /** A waiter goes away. */
  leave(ticket: string): void {
    const index = this.#waiting.findIndex((waiter) => waiter.ticket === ticket);
    if (index === -1) return;
    const [waiter] = this.#waiting.splice(index, 1);
    waiter?.giveBack();
    waiter?.grant(undefined);
  }

  #take(limit: number): () => void {
    const giveBack = this.#load.take(limit);
    if (!giveBack) throw tooManyTurns();
    return giveBack;
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

function tooManyTurns(): ApiError {
  return tooManyInProgress("Too many turns of your conversations are in progress or waiting. Please retry later.");
}
