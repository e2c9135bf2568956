import { ApiError, tooManyInProgress } from "@responses-edge/responses-api/errors";

/** Permits: so much of what this process can do is taken, by which tenant. */

/** Permits that belong together. */
interface Holder<Label = undefined> {
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
 * The memory permits of this isolate: a semaphore that all requests share. An isolate that runs out of memory loses everything it
 * does (Cloudflare gives it 128 MB), so new work is refused before that. There are `MAX_OPEN_TURNS` permits.
 *
 * No tenant takes them all. A tenant may hold at most `SHARE_FACTOR` times what would then be free: the dynamic threshold of shared
 * buffers (Choudhury and Hahne, 1998). Each tenant that takes all it can thus leaves a quarter of what it has found to those who come
 * later. As work ends, n such tenants come to hold equally much, and leave 1 / (3n + 1) of all permits.
 */

/** The tenant that takes permits, and how many there are in all. */
export interface PermitOwner {
  tenant: string;
  config: { maxOpenTurns: number };
}

/** One permit stands for so much beside the turn itself. Bytes, or UTF-16 units where a text came as such. */
const PERMIT_LENGTH = 256 * 1024;

/** A body is in memory as bytes, as text and as values while it is read. */
const BODY_COPIES = 3;

/** A connection whose body is being read holds so much of a permit before any of the body has come. */
const OPEN_BODY = 1 / 8;

/** A tenant may hold so many times as much as is then free. */
const SHARE_FACTOR = 3;

/**
 * The permits that each kind of work needs: so many whatever its length, and so much for each `PERMIT_LENGTH` of its content; `isWhole`:
 * what is begun of another one takes none.
 */
const NEEDED = {
  /** A turn beside its client. */
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

/** The permits of one piece of work. They are given back when it is disposed of, or is no longer reachable. */
export class Permits implements Disposable {
  readonly #owner: PermitOwner;
  readonly #holder: Holder<Kind>;

  /** Without `length` none yet; else takes as many as it needs, and throws as `resize` does. */
  constructor(kind: Kind, owner: PermitOwner, length?: number) {
    this.#owner = owner;
    this.#holder = memory.holder(owner.tenant, this, kind);
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
    memory.end(this.#holder);
  }
}

/** How much work of each kind is under way. */
export function workUnderWay(): ReadonlyMap<Kind, number> {
  const counts = new Map<Kind, number>(KINDS.map((kind) => [kind, 0]));
  for (const kind of memory.labels()) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  return counts;
}

/** How many turns run beside their clients. */
export function turnsBesideClients(): number {
  return workUnderWay().get("turn") ?? 0;
}

/** How many permits are taken, of all `MAX_OPEN_TURNS`. */
export function permitsTaken(): number {
  return memory.taken;
}

/** The error that refuses the owner so many more permits, if anything does. */
function refusalOf({ tenant, config }: PermitOwner, more: number): ApiError | undefined {
  const free = config.maxOpenTurns - memory.taken - more;
  if (free < 0) return overloaded();
  const held = memory.takenBy(tenant);
  // The last free permit goes to a tenant that has none.
  if (held + more <= Math.max(1, SHARE_FACTOR * free)) return undefined;
  if (held === 0) return overloaded();
  return tooManyInProgress(
    "Your requests in progress use your share of this server's memory. Please retry in a few seconds.",
  );
}

/** OpenAI's code and status of a server that has too much to do; its clients try again after `retry-after`. */
function overloaded(): ApiError {
  return new ApiError({
    status: 503,
    message: "The server is overloaded: it has as many responses in progress as it may. Please retry in a few seconds.",
    code: "server_is_overloaded",
    // Seconds: by then other turns have ended, or another isolate takes the request.
    headers: { "retry-after": "2" },
  });
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
