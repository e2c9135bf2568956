import { type ApiError, tooManyInProgress } from "../protocol/errors.ts";
import type { ObjectLoad } from "./tenant-load.ts";

/**
 * Who may take a turn in the conversation: one at a time, first come, first served.
 *
 * The lock is in memory only. When the object dies, a background run is taken up again and waits for the lock first. A
 * foreground turn in a Worker finds that its lease is of another life of the object, and may not settle.
 *
 * Who holds the lock from outside of the object has it for a term, and renews it. Between two renewals the object has
 * nothing to do, and is not paid for: no timer runs unless somebody waits.
 */

/** The term of who holds the lock from outside: a dead holder frees it within this time. Milliseconds. */
export const LEASE_TERM_MS = 15_000;

/** How often such a lease is renewed: two renewals may be lost, and the object stays in memory (10 s without a call). */
export const LEASE_RENEWAL_MS = 4_000;

/**
 * The lock, as its holder has it. It frees itself at the end of the scope that holds it, whichever way that ends:
 * `using lease = await lock.acquire(…)`. Who hands it on, to a run or to a Worker, holds it in a `DisposableStack`, and
 * hands that on with `move()`.
 */
export interface Lease extends Disposable {
  /** Gives the lock to the next in line, as the end of the scope does. May be called more than once. */
  release(): void;
  readonly released: boolean;
  /** Begins its term anew. */
  renew(): void;
  /** When its term is over, Unix milliseconds: then who waits for the lock gets it. */
  readonly until: number;
}

interface Waiter {
  ticket: string;
  termMs: number;
  giveBack: () => void;
  grant: (lease: Lease | undefined) => void;
}

export class ConversationLock {
  readonly #waiting: Waiter[] = [];
  readonly #load: ObjectLoad;
  #holder: Lease | undefined;
  /** Looks after the holder's term while somebody waits. */
  #watch: ReturnType<typeof setTimeout> | undefined;

  /** `load` counts holders and waiters. */
  constructor(load: ObjectLoad) {
    this.#load = load;
  }

  get isHeld(): boolean {
    return this.#holder !== undefined;
  }

  /**
   * Waits for the lock, at most `waitMs` (0: not at all). Gives undefined when the time is up, or `leave(ticket)` was
   * called meanwhile. Throws the 429 of a tenant that has `limit` holders and waiters already. A lease that is not
   * renewed for `termMs` is over as soon as somebody else wants the lock.
   */
  async acquire(
    ticket: string,
    waitMs: number,
    limit = Number.POSITIVE_INFINITY,
    termMs = Number.POSITIVE_INFINITY,
  ): Promise<Lease | undefined> {
    this.#endTerm();
    if (this.#holder && waitMs === 0) return undefined;
    const giveBack = this.#load.take(limit);
    if (!giveBack) throw noRoom();
    if (!this.#holder) return this.#grant(giveBack, termMs);
    return new Promise((resolve) => {
      const timer = Number.isFinite(waitMs) ? setTimeout(() => this.leave(ticket), waitMs) : undefined;
      const grant = (lease: Lease | undefined) => {
        clearTimeout(timer);
        resolve(lease);
      };
      this.#waiting.push({ ticket, termMs, giveBack, grant });
      this.#watchTerm();
    });
  }

  /** A waiter goes away. */
  leave(ticket: string): void {
    const index = this.#waiting.findIndex((waiter) => waiter.ticket === ticket);
    if (index === -1) return;
    const [waiter] = this.#waiting.splice(index, 1);
    waiter?.giveBack();
    waiter?.grant(undefined);
  }

  /** Takes the lock from a holder whose term is over. */
  #endTerm(): void {
    if (this.#holder && this.#holder.until <= Date.now()) this.#holder.release();
  }

  #watchTerm(): void {
    clearTimeout(this.#watch);
    const { until = Number.POSITIVE_INFINITY } = this.#holder ?? {};
    if (this.#waiting.length === 0 || !Number.isFinite(until)) return;
    this.#watch = setTimeout(
      () => {
        this.#endTerm();
        this.#watchTerm();
      },
      Math.max(0, until - Date.now()),
    );
  }

  #grant(giveBack: () => void, termMs: number): Lease {
    let released = false;
    let until = Date.now() + termMs;
    const release = () => {
      if (released) return;
      released = true;
      this.#holder = undefined;
      giveBack();
      const next = this.#waiting.shift();
      next?.grant(this.#grant(next.giveBack, next.termMs));
      this.#watchTerm();
    };
    const lease: Lease = {
      get released() {
        return released;
      },
      get until() {
        return until;
      },
      renew() {
        until = Date.now() + termMs;
      },
      release,
      [Symbol.dispose]: release,
    };
    this.#holder = lease;
    return lease;
  }
}

function noRoom(): ApiError {
  return tooManyInProgress("Too many turns of your conversations are in progress or waiting. Please retry later.");
}
