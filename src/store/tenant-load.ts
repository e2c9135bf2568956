/**
 * What a tenant's objects hold in this process, so that no tenant fills it: counted in memory, without a call. Another
 * process counts its own.
 *
 * An object may die without a word (its storage fails, the platform moves it or drops its request), and then gives back nothing. Its next
 * life therefore holds nothing, and what the dead one holds is forgotten with it.
 */

/** What one life of an object holds. */
class Holding {
  count = 0;
  readonly #owner: WeakRef<object>;

  constructor(owner: object) {
    this.#owner = new WeakRef(owner);
  }

  get isDead(): boolean {
    return this.#owner.deref() === undefined;
  }
}

export class TenantLoad {
  /** By tenant, then by the object's name. */
  readonly #tenants = new Map<string, Map<string, Holding>>();
  #most = 0;

  /** What the object holds from now on; `owner` is this life of it. */
  of(tenant: string, object: string, owner: object): ObjectLoad {
    this.#forget(tenant, object);
    const holding = new Holding(owner);
    return {
      take: (limit) => {
        if (this.heldBy(tenant) >= limit) return undefined;
        let objects = this.#tenants.get(tenant);
        if (!objects) {
          objects = new Map();
          this.#tenants.set(tenant, objects);
        }
        objects.set(object, holding);
        holding.count += 1;
        this.#most += 1;
        let isHeld = true;
        return () => {
          if (!isHeld) return;
          isHeld = false;
          holding.count -= 1;
          if (this.#tenants.get(tenant)?.get(object) !== holding) return;
          this.#most -= 1;
          if (holding.count === 0) this.#forget(tenant, object);
        };
      },
    };
  }

  /** What the objects of all tenants hold; with what is not known to be dead yet. */
  get most(): number {
    return this.#most;
  }

  /** What the objects of all tenants hold. */
  total(): number {
    this.#most = [...this.#tenants.keys()].reduce((sum, tenant) => sum + this.heldBy(tenant), 0);
    return this.#most;
  }

  /** What a tenant's objects hold. */
  heldBy(tenant: string): number {
    let count = 0;
    for (const [object, holding] of this.#tenants.get(tenant) ?? []) {
      if (holding.isDead) this.#forget(tenant, object);
      else count += holding.count;
    }
    return count;
  }

  #forget(tenant: string, object: string): void {
    const objects = this.#tenants.get(tenant);
    this.#most -= objects?.get(object)?.count ?? 0;
    objects?.delete(object);
    if (objects?.size === 0) this.#tenants.delete(tenant);
  }
}

export interface ObjectLoad {
  /**
   * Holds one more, and gives what gives it back, which may be called more than once. Undefined when the tenant holds
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
