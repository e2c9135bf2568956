import { ApiError, tooManyInProgress } from "@responses-edge/responses-api/errors";

/** Permits: counts how much of this process's capacity each tenant has taken. */

/** Permits that belong together. */
interface Holder<Label = undefined> {
  readonly tenant: string;
  readonly owner: WeakRef<object>;
  readonly label: Label;
  permits: number;
  /** True if it takes no more permits. */
  hasEnded: boolean;
}

/**
 * A semaphore whose permits are counted by tenant, in the memory of this process. Holders may die silently: the
 * platform drops a request whose client has left without running its `finally` blocks, and an object likewise. So the
 * permits of a holder whose owner was garbage-collected are taken back when they are needed.
 */
export class Semaphore<Label = undefined> {
  readonly #holders = new Map<WeakRef<object>, Holder<Label>>();
  /** Permits that each tenant holds. */
  readonly takenBy = new Map<string, number>();
  /** Permits that all tenants hold together. */
  taken = 0;

  /** Sets a holder's number of permits. Does nothing after its end. */
  set(holder: Holder<Label>, permits: number): void {
    const { tenant, owner } = holder;
    const change = permits - holder.permits;
    if (change === 0 || holder.hasEnded) return;
    holder.permits = permits;
    this.taken += change;
    const left = (this.takenBy.get(tenant) ?? 0) + change;
    if (left === 0) this.takenBy.delete(tenant);
    else this.takenBy.set(tenant, left);
    if (permits === 0) this.#holders.delete(owner);
    else this.#holders.set(owner, holder);
  }

  /** Gives back all permits of a holder, finally. */
  end(holder: Holder<Label>): void {
    this.set(holder, 0);
    holder.hasEnded = true;
  }

  /** The labels of all holders with permits. */
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
 * The memory permits of this isolate: a semaphore that all requests share. An isolate that runs out of memory loses all
 * its work (Cloudflare gives it 128 MB), so new work is refused before that. There are `MAX_OPEN_TURNS` permits.
 *
 * No tenant may take them all. A tenant may hold at most `SHARE_FACTOR` times the permits that remain free: the dynamic
 * threshold of shared buffers (Choudhury and Hahne, 1998). Each tenant that takes as many as it can thus leaves a
 * quarter of those it has found to later ones. As work ends, n such tenants come to hold equal numbers, and leave 1 /
 * (3n + 1) of all permits.
 */

/** The tenant that takes permits, and the configured total. */
export interface PermitOwner {
  tenant: string;
  config: { maxOpenTurns: number };
}

/** The length that one permit stands for, in addition to the turn itself. Bytes, or UTF-16 units of text. */
const PERMIT_LENGTH = 256 * 1024;

/** While it is read, a body is in memory as bytes, as text and as values. */
const BODY_COPIES = 3;

/** The part of a permit that a connection holds before any of its body has come. */
const OPEN_BODY = 1 / 8;

/** A tenant may hold this many times the permits that remain free. */
const SHARE_FACTOR = 3;

/**
 * The permits of each kind of work: a fixed number, and a number for each `PERMIT_LENGTH` of its content; `isWhole`: a
 * fraction of a further one is free.
 */
const NEEDED = {
  /** A foreground turn. */
  turn: { fixed: 1, copies: 1, isWhole: true },
  /** A run, in its home. */
  run: { fixed: 1, copies: 1, isWhole: true },
  /** A body that is being read. */
  body: { fixed: OPEN_BODY, copies: BODY_COPIES, isWhole: false },
  /** Text that waits. */
  text: { fixed: 0, copies: 1, isWhole: true },
};

type Kind = keyof typeof NEEDED;
const KINDS = Object.keys(NEEDED) as Kind[];

const memory = new Semaphore<Kind>();

/** The permits of one piece of work. They are given back when it is disposed of, or no longer reachable. */
export class Permits implements Disposable {
  readonly #owner: PermitOwner;
  readonly #holder: Holder<Kind>;

  /** Without `length`, takes none yet; otherwise takes the number that is needed, and throws as `resize` does. */
  constructor(kind: Kind, owner: PermitOwner, length?: number) {
    this.#owner = owner;
    this.#holder = { tenant: owner.tenant, owner: new WeakRef(this), label: kind, permits: 0, hasEnded: false };
    if (length !== undefined) this.resize(length);
  }

  /**
   * Replaces the permits with the number that `length` needs. No work needs more than a tenant that is alone may hold. Throws the
   * 503 of an isolate without free permits and the 429 of a tenant above its share; the number then stays as it was. `isAccepted`: the
   * work was accepted before and must not be refused. Does nothing after disposal.
   */
  resize(length: number, isAccepted = false): void {
    const { label, permits, hasEnded } = this.#holder;
    const { fixed, copies, isWhole } = NEEDED[label];
    const ofLength = (copies * length) / PERMIT_LENGTH;
    const most = Math.max(1, (this.#owner.config.maxOpenTurns * SHARE_FACTOR) / (SHARE_FACTOR + 1));
    const needed = Math.min(most, fixed + (isWhole ? Math.floor(ofLength) : ofLength));
    const more = needed - permits;
    if (more > 0 && !isAccepted && !hasEnded && refusalOf(this.#owner, more)) {
      memory.forgetLost();
      const refusal = refusalOf(this.#owner, more);
      if (refusal) throw refusal;
    }
    memory.set(this.#holder, needed);
  }

  [Symbol.dispose](): void {
    memory.set(this.#holder, 0);
    this.#holder.hasEnded = true;
  }
}

/** The amount of work in progress, by kind. */
export function workUnderWay(): ReadonlyMap<Kind, number> {
  const counts = new Map<Kind, number>(KINDS.map((kind) => [kind, 0]));
  for (const kind of memory.labels()) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  return counts;
}

/** The number of foreground turns. */
export function turnsBesideClients(): number {
  return workUnderWay().get("turn") ?? 0;
}

/** The number of turns: in the foreground, and of runs. */
export function turnsUnderWay(): number {
  const work = workUnderWay();
  return (work.get("turn") ?? 0) + (work.get("run") ?? 0);
}

/** The number of taken permits, out of `MAX_OPEN_TURNS`. */
export function permitsTaken(): number {
  return memory.taken;
}

/** The error that refuses the owner more permits; undefined if they may be taken. */
function refusalOf({ tenant, config }: PermitOwner, more: number): ApiError | undefined {
  const free = config.maxOpenTurns - memory.taken - more;
  if (free < 0) return overloaded();
  const held = memory.takenBy.get(tenant) ?? 0;
  // The last free permit goes to a tenant that has none.
  if (held + more <= Math.max(1, SHARE_FACTOR * free)) return undefined;
  if (held === 0) return overloaded();
  return tooManyInProgress(
    "Your requests in progress use your part of this server's memory. Please retry in a few seconds.",
  );
}

/** OpenAI's code and status of an overloaded server. Clients try again after `retry-after`. */
function overloaded(): ApiError {
  return new ApiError({
    status: 503,
    message:
      "The server is overloaded: it has the maximum number of responses in progress. Please retry in a few seconds.",
    code: "server_is_overloaded",
    // Seconds. By then other turns have ended, or another isolate takes the request.
    headers: { "retry-after": "2" },
  });
}

/**
 * Counts in this process the work in progress of each tenant's objects, so that no tenant fills the process. Another
 * process counts its own.
 *
 * An object that dies (its storage fails, the platform moves it) gives nothing back. So its next instance begins at
 * zero, and the work of the dead one no longer counts.
 */
export class TenantLoad {
  readonly #semaphore = new Semaphore();
  /** The instances of objects that have work in progress, by tenant and name. */
  readonly #lives = new Map<string, Holder>();

  /** The load of an object of a tenant; `owner` is this instance of it. */
  of(tenant: string, object: string, owner: object): ObjectLoad {
    const name = `${tenant}:${object}`;
    const dead = this.#lives.get(name);
    if (dead) this.#semaphore.end(dead);
    this.#lives.delete(name);
    const life: Holder = { tenant, owner: new WeakRef(owner), label: undefined, permits: 0, hasEnded: false };
    return {
      take: (limit) => {
        if (this.takenBy(tenant) >= limit) {
          this.#semaphore.forgetLost();
          for (const [other, { hasEnded }] of this.#lives) if (hasEnded) this.#lives.delete(other);
        }
        if (this.takenBy(tenant) >= limit) return undefined;
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

  /** The tenant's work in progress. */
  takenBy(tenant: string): number {
    return this.#semaphore.takenBy.get(tenant) ?? 0;
  }
}

export interface ObjectLoad {
  /**
   * Counts one more, and gives the function that ends it, which may be called repeatedly. Undefined if the tenant has
   * `limit` already; `Infinity` only counts.
   */
  take(limit: number): (() => void) | undefined;
}

/** Live runs of homes. */
export const tenantRuns = new TenantLoad();

/** Turns that hold a conversation or wait for one. */
export const tenantConversations = new TenantLoad();

/** Open WebSockets. Each connection is an object of its own. */
export const tenantSockets = new TenantLoad();
