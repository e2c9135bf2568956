/**
 * The requests in progress to a server. The platform may drop a request without running its `finally` blocks, so a
 * request whose `Leave` was garbage-collected no longer counts.
 */
export class InFlight {
  /** The requests, with the function that is called at the end of each. */
  readonly #requests = new Map<WeakRef<object>, (() => void) | undefined>();
  #sweptAt = 0;
  /** Called after the end of a request. */
  onFree: (() => void) | undefined;

  get count(): number {
    return this.#requests.size;
  }

  /** Counts a request, until the returned function is called or garbage-collected. `onEnd` is called then. */
  enter(now: number, onEnd?: () => void): Leave {
    this.sweep(now);
    const leave: Leave = () => this.#end(held);
    const held = new WeakRef<object>(leave);
    this.#requests.set(held, onEnd);
    return leave;
  }

  /** Looks for dropped requests from time to time. */
  sweep(now: number): void {
    if (now - this.#sweptAt <= SWEEP_MS) return;
    this.#sweptAt = now;
    for (const held of this.#requests.keys()) if (held.deref() === undefined) this.#end(held);
  }

  #end(held: WeakRef<object>): void {
    const onEnd = this.#requests.get(held);
    if (!this.#requests.delete(held)) return;
    onEnd?.();
    this.onFree?.();
  }
}

/** Ends a request. A repeated call does nothing. */
export type Leave = () => void;

/** How often, in milliseconds, dropped requests are looked for. */
const SWEEP_MS = 10_000;
