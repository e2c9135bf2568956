/**
 * A semaphore whose permits are counted by tenant, in the memory of this process. Their holders may die without a word: the platform
 * drops a request whose client has left without running its `finally` blocks, and an object likewise. The permits of a holder whose
 * owner was garbage-collected are therefore given back when somebody needs them.
 */
export class Semaphore<Label = undefined> {
  readonly #holders = new Map<WeakRef<object>, Holder<Label>>();
  readonly #takenBy = new Map<string, number>();
  #taken = 0;

  /** Permits that all tenants hold. */
  get taken(): number {
    return this.#taken;
  }

  /** Permits that a tenant holds. */
  takenBy(tenant: string): number {
    return this.#takenBy.get(tenant) ?? 0;
  }

  /** A holder without permits. It must not refer to `owner`, and lives as long as that. */
  holder(tenant: string, owner: object, label: Label): Holder<Label> {
    const key = new WeakRef(owner);
    const holder = new Holder(label, (change) => {
      this.#taken += change;
      const left = this.takenBy(tenant) + change;
      if (left === 0) this.#takenBy.delete(tenant);
      else this.#takenBy.set(tenant, left);
      if (holder.permits === 0) this.#holders.delete(key);
      else this.#holders.set(key, holder);
    });
    return holder;
  }

  /** The labels of all that hold permits. */
  labels(): Iterable<Label> {
    this.forgetLost();
    return this.#holders.values().map(({ label }) => label);
  }

  /** Takes back the permits of lost holders. */
  forgetLost(): void {
    for (const [owner, holder] of this.#holders) if (owner.deref() === undefined) holder.end();
  }
}

/** Permits that belong together. */
export class Holder<Label = undefined> {
  readonly label: Label;
  readonly #changed: (by: number) => void;
  #permits = 0;
  /** It takes no more permits. */
  hasEnded = false;

  constructor(label: Label, changed: (by: number) => void) {
    this.label = label;
    this.#changed = changed;
  }

  get permits(): number {
    return this.#permits;
  }

  /** Has it hold so many permits. Does nothing after its end. */
  set(permits: number): void {
    const change = permits - this.#permits;
    if (change === 0 || this.hasEnded) return;
    this.#permits = permits;
    this.#changed(change);
  }

  /** Gives all permits back, for good. */
  end(): void {
    this.set(0);
    this.hasEnded = true;
  }
}
