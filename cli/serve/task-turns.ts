/**
 * Turns of tasks: a tenant has one at a time, and tenants get theirs in the order in which they came, so that many tasks of one
 * tenant delay another's no more than one does.
 */
export class TaskTurns {
  readonly #places: number;
  /** The tenants that have a turn. */
  readonly #doing = new Set<string>();
  /** The waiting tasks of each tenant. The tenant that is next is first. */
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
        this.#doing.delete(tenant);
        this.#toEnd(tenant);
        this.#give();
      },
    };
  }

  /** Lets a tenant's next task come after those of all who wait now. */
  #toEnd(tenant: string): void {
    const own = this.#waiting.get(tenant);
    this.#waiting.delete(tenant);
    if (own) this.#waiting.set(tenant, own);
  }

  #give(): void {
    for (const [tenant, own] of this.#waiting) {
      if (this.#doing.size >= this.#places) return;
      if (this.#doing.has(tenant)) continue;
      this.#doing.add(tenant);
      const first = own.shift();
      if (own.length === 0) this.#waiting.delete(tenant);
      first?.();
    }
  }
}
