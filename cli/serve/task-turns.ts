/**
 * Turns of tasks: a tenant has few at a time, and tenants get theirs in the order in which they came, so that many tasks of one
 * tenant delay another's no more than those few do.
 */
export class TaskTurns {
  readonly #places: number;
  readonly #perTenant: number;
  /** The tenant of each turn. */
  readonly #doing: string[] = [];
  /** The waiting tasks of each tenant. The tenant that is next is first. */
  readonly #waiting = new Map<string, (() => void)[]>();

  /**
   * @param places How many turns there are at the same time.
   * @param perTenant How many of them a tenant may have.
   */
  constructor(places: number, perTenant = 1) {
    this.#places = places;
    this.#perTenant = perTenant;
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
        this.#doing.splice(this.#doing.indexOf(tenant), 1);
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
      if (!this.#mayBegin(tenant)) continue;
      this.#doing.push(tenant);
      own.shift()?.();
      if (own.length === 0) this.#waiting.delete(tenant);
    }
  }

  #mayBegin(tenant: string): boolean {
    const own = this.#doing.filter((each) => each === tenant).length;
    return this.#doing.length < this.#places && own < this.#perTenant;
  }
}
