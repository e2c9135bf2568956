/**
 * The requests that are under way to a server. A request that the platform gives up runs none of its last words: what nobody
 * holds any more is none.
 */
export class InFlight {
  readonly #places = new Set<WeakRef<object>>();
  #sweptAt = 0;

  get count(): number {
    return this.#places.size;
  }

  /** Counts a request, until what it gives is called or no longer held. */
  enter(now: number): Leave {
    if (now - this.#sweptAt > SWEEP_MS) this.#sweep(now);
    const leave: Leave = () => {
      this.#places.delete(held);
    };
    const held = new WeakRef<object>(leave);
    this.#places.add(held);
    return leave;
  }

  #sweep(now: number): void {
    this.#sweptAt = now;
    for (const held of this.#places) if (held.deref() === undefined) this.#places.delete(held);
  }
}

/** Ends a request. May be called more than once. */
export type Leave = () => void;

/** How often, in milliseconds, places are looked for that nobody holds. */
const SWEEP_MS = 10_000;
