/**
 * Turns of reading files: a tenant has one at a time, and tenants get theirs in the order in which they came, so that
 * many files of one tenant delay another's no more than one does.
 */
export class ReadingTurns {
  readonly #places: number;
  /** The tenants that have a turn. */
  readonly #reading = new Set<string>();
  /** The waiting files of each tenant. The tenant that is next is first. */
  readonly #waiting = new Map<string, (() => void)[]>();

  /** @param places How many turns there are at the same time. */
  constructor(places: number) {
    this.#places = places;
  }

  /** Waits for the tenant's next turn, which lasts until it is disposed of. */
  async next(tenant: string): Promise<Disposable> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const own = this.#waiting.get(tenant);
    if (own) own.push(resolve);
    else this.#waiting.set(tenant, [resolve]);
    this.#give();
    await promise;
    return {
      [Symbol.dispose]: () => {
        this.#reading.delete(tenant);
        this.#toEnd(tenant);
        this.#give();
      },
    };
  }

  /** Lets a tenant's next file come after those of all who wait now. */
  #toEnd(tenant: string): void {
    const own = this.#waiting.get(tenant);
    this.#waiting.delete(tenant);
    if (own) this.#waiting.set(tenant, own);
  }

  #give(): void {
    for (const [tenant, own] of this.#waiting) {
      if (this.#reading.size >= this.#places) return;
      if (this.#reading.has(tenant)) continue;
      this.#reading.add(tenant);
      const first = own.shift();
      if (own.length === 0) this.#waiting.delete(tenant);
      first?.();
    }
  }
}
