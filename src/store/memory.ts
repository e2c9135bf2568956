import { ApiError, tooManyInProgress } from "../protocol/errors.ts";
import { type Holder, Semaphore } from "./tenant-load.ts";

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

/** How many turns run beside their clients. */
export function turnsBesideClients(): number {
  return [...memory.labels()].filter((kind) => kind === "turn").length;
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
 * The memory of long texts that nobody needs any more. On a machine of one's own V8 may take gigabytes, and it lets what died in its
 * old generation lie until nearly all of that is full: forty requests of 10 MB, one after another, left 1.2 GB. So it is told to
 * collect when so much has passed. The launcher's flags (`cli/workerd.ts`) let it be told; elsewhere there is no `gc`, and the
 * limits of an isolate are the platform's.
 */

/** A shorter text dies in the young generation. UTF-16 units. */
const MIN_LENGTH = 64 * 1024;

/** So much is left to lie. A request of 10 MB leaves three times its length; a collection takes tens of milliseconds. */
const MAX_GARBAGE_LENGTH = 64 * 1024 * 1024;

let passed = 0;

/** A text of so many UTF-16 units was read or written. */
export function notePassed(length: number): void {
  if (length < MIN_LENGTH) return;
  passed += length;
  if (passed < MAX_GARBAGE_LENGTH) return;
  passed = 0;
  globalThis.gc?.();
}
