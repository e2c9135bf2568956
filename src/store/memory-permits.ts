import { ApiError, tooManyInProgress } from "../protocol/errors.ts";
import { type Holder, Semaphore } from "./semaphore.ts";

/**
 * The memory permits of this isolate: a semaphore that all requests share. An isolate that runs out of memory loses everything it
 * does (Cloudflare gives it 128 MB), so new work is refused before that. There are `MAX_OPEN_TURNS` permits.
 *
 * No tenant takes them all. A tenant may hold at most `SHARE_FACTOR` times what would then be free: the dynamic threshold of shared
 * buffers (Choudhury and Hahne, 1998). Each tenant that takes all it can thus leaves a quarter of what it has found to those who come
 * later. As work ends, n such tenants come to hold equally much, and leave 1 / (3n + 1) of all permits.
 */

/** Who takes permits, and how many there are in all. */
export interface PermitOwner {
  tenant: string;
  config: { maxOpenTurns: number };
}

/** What one permit stands for beside the turn itself. Bytes, or UTF-16 units where a text came as such. */
const PERMIT_LENGTH = 256 * 1024;

/** A body is in memory as bytes, as text and as values while it is read. */
const BODY_COPIES = 3;

/** A connection whose body is being read holds so much of a permit before any of the body has come. */
const OPEN_BODY = 1 / 8;

/** What a tenant may hold, as a multiple of what is then free. */
const SHARE_FACTOR = 3;

/** Seconds. By then other turns have ended, or another isolate takes the request. */
const RETRY_AFTER = "2";

/** The permits for each kind of work, by the length of its content. */
const NEEDED = {
  /** A turn beside its client. */
  turn: (length: number) => 1 + Math.floor(length / PERMIT_LENGTH),
  /** A run, in its home. */
  run: (length: number) => 1 + Math.floor(length / PERMIT_LENGTH),
  /** A body that is being read. */
  body: (length: number) => OPEN_BODY + (BODY_COPIES * length) / PERMIT_LENGTH,
  /** Text that waits. */
  text: (length: number) => Math.floor(length / PERMIT_LENGTH),
};

type Kind = keyof typeof NEEDED;

const memory = new Semaphore<Kind>();

/** The permits of one piece of work. They are given back when it is disposed of, or is no longer reachable. */
export class Permits implements Disposable {
  readonly #owner: PermitOwner;
  readonly #holder: Holder<Kind>;

  constructor(owner: PermitOwner, kind: Kind) {
    this.#owner = owner;
    this.#holder = memory.holder(owner.tenant, this, kind);
  }

  /**
   * Replaces the permits with the number that `length` needs. No work needs more than a tenant that is alone may hold. Throws the
   * 503 of an isolate without free permits and the 429 of a tenant above its share; the number then stays as it was. Does nothing
   * after disposal.
   */
  resize(length: number): void {
    this.#resize(length, expectPermits);
  }

  /** The same for work that was accepted before and must not be refused. */
  resizeAnyway(length: number): void {
    this.#resize(length, () => {});
  }

  #resize(length: number, check: typeof expectPermits): void {
    const { label, permits: before } = this.#holder;
    const permits = Math.min(NEEDED[label](length), shareOf(this.#owner.config.maxOpenTurns));
    if (permits > before && !this.#holder.hasEnded) check(this.#owner, permits - before);
    this.#holder.set(permits);
  }

  [Symbol.dispose](): void {
    this.#holder.end();
  }
}

/** The permits of a turn beside its client, whose request has this length. Throws as `Permits.resize` does. */
export function turnPermits(owner: PermitOwner, length: number): Permits {
  return sized(owner, "turn", length);
}

/** The permits of a run in its home. Throws as `Permits.resize` does. */
export function runPermits(owner: PermitOwner, length: number): Permits {
  return sized(owner, "run", length);
}

/** The permits of a run that was accepted before its process died: it is never refused. */
export function orphanPermits(owner: PermitOwner, length: number): Permits {
  const permits = new Permits(owner, "run");
  permits.resizeAnyway(length);
  return permits;
}

/** The permits of a body that is read: none yet. */
export function bodyPermits(owner: PermitOwner): Permits {
  return new Permits(owner, "body");
}

/** The permits of text that waits: none yet. */
export function textPermits(owner: PermitOwner): Permits {
  return new Permits(owner, "text");
}

function sized(owner: PermitOwner, kind: Kind, length: number): Permits {
  const permits = new Permits(owner, kind);
  permits.resize(length);
  return permits;
}

/** How many turns run beside their clients. */
export function turnsBesideClients(): number {
  return [...memory.labels()].filter((kind) => kind === "turn").length;
}

function expectPermits(owner: PermitOwner, more: number): void {
  if (!refusalOf(owner, more)) return;
  memory.forgetLost();
  const refusal = refusalOf(owner, more);
  if (refusal) throw refusal;
}

/** What refuses the owner so many more permits, if anything does. */
function refusalOf({ tenant, config }: PermitOwner, more: number): ApiError | undefined {
  const free = config.maxOpenTurns - memory.taken - more;
  if (free < 0) return overloaded();
  const held = memory.takenBy(tenant);
  // The last free permit goes to a tenant that has none.
  if (held + more <= Math.max(1, SHARE_FACTOR * free)) return undefined;
  return held === 0 ? overloaded() : overShare();
}

/** What a tenant that is alone may hold. */
function shareOf(all: number): number {
  return Math.max(1, (all * SHARE_FACTOR) / (SHARE_FACTOR + 1));
}

function overShare(): ApiError {
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
    headers: { "retry-after": RETRY_AFTER },
  });
}
