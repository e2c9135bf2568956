import { type Holder, Semaphore } from "./semaphore.ts";

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
    this.#lives.get(name)?.end();
    this.#lives.delete(name);
    const life = this.#semaphore.holder(tenant, owner, undefined);
    return {
      take: (limit) => {
        if (this.#semaphore.takenBy(tenant) >= limit) this.#forgetLost();
        if (this.#semaphore.takenBy(tenant) >= limit) return undefined;
        life.set(life.permits + 1);
        this.#lives.set(name, life);
        let isTaken = true;
        return () => {
          if (!isTaken) return;
          isTaken = false;
          life.set(life.permits - 1);
          if (life.permits === 0 && this.#lives.get(name) === life) this.#lives.delete(name);
        };
      },
    };
  }

  #forgetLost(): void {
    this.#semaphore.forgetLost();
    for (const [name, { hasEnded }] of this.#lives) if (hasEnded) this.#lives.delete(name);
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
