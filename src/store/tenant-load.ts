/** Permits that belong together. */
export interface Holder<Label = undefined> {
  readonly tenant: string;
  readonly owner: WeakRef<object>;
  readonly label: Label;
  permits: number;
  /** It takes no more permits. */
  hasEnded: boolean;
}

/**
 * A semaphore whose permits are counted by tenant, in the memory of this process. Their holders may die without a word: the platform
 * drops a request whose client has left without running its `finally` blocks, and an object likewise. The permits of a holder whose
 * owner was garbage-collected are therefore given back when somebody needs them.
 */
export class Semaphore<Label = undefined> {
  readonly #holders = new Map<WeakRef<object>, Holder<Label>>();
  readonly #takenBy = new Map<string, number>();
  /** Permits that all tenants hold. */
  taken = 0;

  /** Permits that a tenant holds. */
  takenBy(tenant: string): number {
    return this.#takenBy.get(tenant) ?? 0;
  }

  /** A holder without permits. It lives as long as `owner`. */
  holder(tenant: string, owner: object, label: Label): Holder<Label> {
    return { tenant, owner: new WeakRef(owner), label, permits: 0, hasEnded: false };
  }

  /** Has a holder hold so many permits. Does nothing after its end. */
  set(holder: Holder<Label>, permits: number): void {
    const { tenant, owner } = holder;
    const change = permits - holder.permits;
    if (change === 0 || holder.hasEnded) return;
    holder.permits = permits;
    this.taken += change;
    const left = this.takenBy(tenant) + change;
    if (left === 0) this.#takenBy.delete(tenant);
    else this.#takenBy.set(tenant, left);
    if (permits === 0) this.#holders.delete(owner);
    else this.#holders.set(owner, holder);
  }

  /** Gives all permits of a holder back, for good. */
  end(holder: Holder<Label>): void {
    this.set(holder, 0);
    holder.hasEnded = true;
  }

  /** The labels of all that hold permits. */
  labels(): Iterable<Label> {
    this.forgetLost();
    return this.#holders.values().map(({ label }) => label);
  }

  /** Takes back the permits of lost holders. */
  forgetLost(): void {
    for (const [owner, holder] of this.#holders) if (owner.deref() === undefined) this.end(holder);
  }
}

/**
 * Counts in this process what a tenant's objects have in progress, so that no tenant fills it. Another process counts its own.
 *
 * An object that dies (its storage fails, the platform moves it) gives nothing back. Its next life therefore begins with nothing, and what
 * the dead one had in progress does not count any more.
 */
export class TenantLoad {
  readonly #semaphore = new Semaphore();
  /** The lives of objects that have something in progress, by tenant and name. */
  readonly #lives = new Map<string, Holder>();

  /** The load of an object of a tenant; `owner` is this life of it. */
  of(tenant: string, object: string, owner: object): ObjectLoad {
    const name = `${tenant}:${object}`;
    const dead = this.#lives.get(name);
    if (dead) this.#semaphore.end(dead);
    this.#lives.delete(name);
    const life = this.#semaphore.holder(tenant, owner, undefined);
    return {
      take: (limit) => {
        if (this.#semaphore.takenBy(tenant) >= limit) {
          this.#semaphore.forgetLost();
          for (const [other, { hasEnded }] of this.#lives) if (hasEnded) this.#lives.delete(other);
        }
        if (this.#semaphore.takenBy(tenant) >= limit) return undefined;
        this.#semaphore.set(life, life.permits + 1);
        this.#lives.set(name, life);
        let isTaken = true;
        return () => {
          if (!isTaken) return;
          isTaken = false;
          this.#semaphore.set(life, life.permits - 1);
          if (life.permits === 0 && this.#lives.get(name) === life) this.#lives.delete(name);
        };
      },
    };
  }

  /** How much of a tenant's is in progress. */
  takenBy(tenant: string): number {
    return this.#semaphore.takenBy(tenant);
  }
}

export interface ObjectLoad {
  /**
   * Counts one more, and gives a function that ends that, and may be called more than once. Undefined when the tenant has
   * `limit` already; with `Infinity` it is only counted.
   */
  take(limit: number): (() => void) | undefined;
}

/** Runs that live in homes. */
export const tenantRuns = new TenantLoad();

/** Turns that hold a conversation or wait for one. */
export const tenantConversations = new TenantLoad();

/** Open WebSockets. Each connection is an object of its own. */
export const tenantSockets = new TenantLoad();
