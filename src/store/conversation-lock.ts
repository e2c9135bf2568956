/**
 * Who may take a turn in the conversation: one at a time, first come, first served.
 *
 * In memory only. What survives the object's death is what the holders do about it: a background run is taken up again
 * and takes the lock first; a foreground turn in a Worker finds that its lease is of another life and may not settle.
 */

export interface Lease {
  /** Gives the lock to the next in line. May be called more than once. */
  release(): void;
  readonly released: boolean;
}

interface Waiter {
  ticket: string;
  grant: (lease: Lease | undefined) => void;
}

export class ConversationLock {
  readonly #waiting: Waiter[] = [];
  #holder: Lease | undefined;

  get isHeld(): boolean {
    return this.#holder !== undefined;
  }

  /**
   * Waits for the lock, at most `waitMs` (0: not at all). Gives undefined when the time is up, or `leave(ticket)` was
   * called meanwhile.
   */
  async acquire(ticket: string, waitMs: number): Promise<Lease | undefined> {
    if (!this.#holder) return this.#grant();
    if (waitMs === 0) return undefined;
    return new Promise((resolve) => {
      const timer = Number.isFinite(waitMs) ? setTimeout(() => this.leave(ticket), waitMs) : undefined;
      const grant = (lease: Lease | undefined) => {
        clearTimeout(timer);
        resolve(lease);
      };
      this.#waiting.push({ ticket, grant });
    });
  }

  /** A waiter goes away. */
  leave(ticket: string): void {
    const index = this.#waiting.findIndex((waiter) => waiter.ticket === ticket);
    if (index === -1) return;
    const [waiter] = this.#waiting.splice(index, 1);
    waiter?.grant(undefined);
  }

  #grant(): Lease {
    let released = false;
    const lease: Lease = {
      get released() {
        return released;
      },
      release: () => {
        if (released) return;
        released = true;
        this.#holder = undefined;
        const next = this.#waiting.shift();
        next?.grant(this.#grant());
      },
    };
    this.#holder = lease;
    return lease;
  }
}
