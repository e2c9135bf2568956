import { ApiError, tooManyInProgress } from "@responses-edge/responses-api/errors";
import { FairQueue, type Flow, type Queued } from "./fair-queue.ts";
import type { InFlight, Leave } from "./in-flight.ts";
import { MAX_TENANTS, type ServerDemand, type ServerShare } from "./shares.ts";

/**
 * Admits requests to a model server. They wait only while it is saturated: while as many are in progress as the operator allows
 * (`max_in_flight`), or as the server has shown to take. Plain data that all requests of this isolate read and write.
 *
 * A request that waits has a timer of its own, so that its wait ends whatever becomes of the others. Another request that ends
 * resolves its promise, which the platform does in the waiting request's own context (`handle_cross_request_promise_resolution`);
 * nothing else of another request may be touched here, such as its timer.
 */

/** The tokens of a request, as far as they are known. */
export interface Meter {
  /** Tokens of the prompt, approximately, until the server reports its usage. */
  prompt: number;
  /** Tokens of output, or, once the usage is known, all that the server has computed. */
  tokens: number;
  isExact: boolean;
  /** The tokens in each event of the answer. */
  perEvent: number;
  /** Counts the tokens once they are exact, which may be after the end of the request. */
  recount: () => void;
}

/** A request that may be sent. */
export interface Admitted {
  admission: Admission;
  /** Ends it. */
  leave: Leave;
  /** Undefined if nobody counts its tokens. */
  meter: Meter | undefined;
}

export interface Waiting {
  signal: AbortSignal;
  /** The longest wait. Milliseconds. */
  maxWaitMs: number;
  /** Most requests that may wait for a server, in this isolate. */
  maxWaiting: number;
  /** The other servers that may get the request. */
  others: readonly Admission[];
  /** It waits for them as well. Otherwise they get it only if nobody waits for them. */
  mayMove: boolean;
  /** Called whenever the request looks whether it may be sent. */
  onLook: () => void;
}

interface Waiter {
  meter: Meter;
  /** Lets the request look. */
  wake: () => void;
  /** When it looks next by itself, Unix milliseconds. */
  looksAt: number;
  admitted: Admitted | undefined;
  others: readonly Admission[];
  /** Its positions in the queues of servers. */
  positions: Position[];
}

interface Position {
  queue: FairQueue<Waiter>;
  queued: Queued<Waiter>;
}

/** Requests are counted if more are in progress than this part of the limit. */
const COUNTED_FROM = 1 / 2;

/** A limit that a server has shown: by refusing a request, or by its load. */
interface FoundLimit {
  limit: number;
  /** When it ends, Unix milliseconds. */
  until: number;
  isRefusal: boolean;
}

/** How long a limit applies that a server has shown, and how long then each larger one while requests wait. Milliseconds. */
const [FOUND_MS, GROWS_MS] = [60_000, 5_000];

/** A server is saturated when more requests wait there than this part of those that run. One without any gets this multiple. */
const [BUSY_PART, GROWTH] = [1 / 8, 1 + 1 / 8];

/** The time between two looks of a request: at least, for each that waits, and at most. Milliseconds. */
const [MIN_LOOK_MS, LOOK_MS_EACH, MAX_LOOK_MS] = [250, 8, 5_000];

/** A request that has not looked for this long was dropped by the platform. Milliseconds. */
const MAX_LATE_MS = 10_000;

/** How long a share applies. Milliseconds. */
const SHARE_MS = 5_000;

/** A tenant may have this many times the free positions of the queue. */
const SHARE_FACTOR = 3;

/** The wait that a refusal names: without a measured rate, and at most. Seconds. */
const [UNKNOWN_S, MAX_S] = [5, 60];

/** The weight of the newest interval between two requests that end. */
const NEWEST = 1 / 16;

export class Admission {
  readonly #inFlight: InFlight;
  readonly #queue = new FairQueue<Waiter>(({ meter }) => spentIn(meter));
  #waiting = 0;
  #configured: number | undefined;
  /** This process's part of the operator's limit. */
  #share: { share: number; until: number } | undefined;
  #found: FoundLimit | undefined;
  /** The last time that a request ended while others waited, and the mean time between two. Milliseconds. */
  #endedAt: number | undefined;
  #intervalMs: number | undefined;

  constructor(inFlight: InFlight) {
    this.#inFlight = inFlight;
    inFlight.onFree = () => this.#onFree();
  }

  /** Requests that wait for this server in this isolate. */
  get waiting(): number {
    return this.#waiting;
  }

  /** Most requests in progress at a time; undefined if there is no limit. */
  limit(now: number): number | undefined {
    if (this.#found && now >= this.#found.until) {
      // It has an end; those that wait are not sent all at once.
      this.#found =
        this.#queue.size > 0 ? { ...this.#found, limit: more(this.#found.limit), until: now + GROWS_MS } : undefined;
    }
    if (this.#share && now >= this.#share.until) this.#share = undefined;
    const found = this.#found?.limit;
    const own = this.#configured && (this.#share?.share ?? shareUntold(this.#configured, now));
    return found === undefined || (own !== undefined && own < found) ? own : found;
  }

  /** This process's requests for the server, of that name, which it reports; undefined without an operator's limit, and without any. */
  takeDemand(server: string): ServerDemand | undefined {
    const limit = this.#configured;
    const inFlight = this.#inFlight.count;
    if (limit === undefined || inFlight + this.#queue.size === 0) return undefined;
    const first = (counts: ReadonlyMap<string, number>) => Object.fromEntries([...counts].slice(0, MAX_TENANTS));
    const [requests, tokens] = [this.#queue.requests(), this.#queue.takeCounted()];
    return { server, limit, inFlight, requests: first(requests), tokens: first(tokens) };
  }

  /** Takes this process's part of the operator's limit. */
  noteShare({ share, tokens }: Pick<ServerShare, "share" | "tokens">, now: number): void {
    this.#share = { share, until: now + SHARE_MS };
    for (const [tenant, count] of Object.entries(tokens)) this.#queue.countElsewhere(tenant, count);
    this.#admitWaiting();
  }

  /** Sets the operator's limit. Requests that wait may begin by it. */
  configure(limit: number | undefined): void {
    if (limit === this.#configured) return;
    this.#configured = limit;
    this.#admitWaiting();
  }

  /** Tells whether a request may be sent without a wait. */
  isOpen(now: number): boolean {
    const limit = this.limit(now);
    return (limit === undefined || this.#inFlight.count < limit) && this.#queue.size === 0;
  }

  /** Notes that the server has refused a request, because it has enough: for a while it gets no more than are in progress now. */
  noteFull(now: number): void {
    this.#found = { limit: Math.max(1, this.#inFlight.count), until: now + FOUND_MS, isRefusal: true };
  }

  /**
   * Notes what the server reports: `running` requests, and `waiting` ones behind them. As long as some wait there, this isolate
   * sends only its part of those that run; without any, it sends more.
   */
  noteLoad({ running, waiting }: { running: number; waiting: number }, now: number): void {
    const { count } = this.#inFlight;
    const found = this.#found?.limit;
    const until = now + FOUND_MS;
    if (waiting > BUSY_PART * running) {
      const own = Math.min(count, found ?? count);
      const limit = Math.max(1, Math.ceil((own * running) / (running + waiting)));
      if (own > 0) this.#found = { limit, until, isRefusal: false };
    } else if (found !== undefined && waiting === 0 && !this.#found?.isRefusal) {
      this.#found = this.#queue.size > 0 ? { limit: more(found), until, isRefusal: false } : undefined;
    }
    this.#admitWaiting();
  }

  /** Sends a request at once. Its tokens are counted if others may have to wait because of it. */
  enter(now: number, flow?: Flow): Admitted {
    const limit = flow && this.limit(now);
    if (!flow || limit === undefined || this.#inFlight.count < COUNTED_FROM * limit) {
      return { admission: this, leave: this.#inFlight.enter(now), meter: undefined };
    }
    return this.#admit(this.#queue, this.#queue.run(flow, newWaiter([])), now);
  }

  /**
   * Waits until the request may be sent, to this server or to one of the others. Throws the 429 of a tenant with too many that
   * wait, the 503 of a full queue and of a wait that was too long, each with a `retry-after` by the measured rate; and the signal's
   * reason when it is aborted.
   */
  async wait(flow: Flow, { signal, maxWaitMs, maxWaiting, others, mayMove, onLook }: Waiting): Promise<Admitted> {
    this.#checkBounds(flow.tenant, maxWaiting);
    const until = Date.now() + maxWaitMs;
    const waiter = newWaiter(others);
    const queues = mayMove ? [this, ...others].map((each) => each.#queue) : [this.#queue];
    const enter = () => queues.map((queue) => ({ queue, queued: queue.add(flow, waiter) }));
    waiter.positions = enter();
    this.#waiting += 1;
    try {
      for (;;) {
        const now = Date.now();
        this.#inFlight.sweep(now);
        // It was taken for a dropped one.
        if (!waiter.admitted && waiter.positions.some(({ queued }) => queued.state === "ended")) {
          leaveQueues(waiter);
          waiter.positions = enter();
        }
        this.#admitWaiting();
        const { admitted } = waiter;
        if (admitted) {
          waiter.admitted = undefined;
          return admitted;
        }
        signal.throwIfAborted();
        if (now >= until) throw this.#overloaded(flow.tenant);
        const open = others.find((other) => other.isOpen(now));
        if (open) return open.enter(now, flow);
        onLook();
        const each = Math.min(MAX_LOOK_MS, Math.max(MIN_LOOK_MS, LOOK_MS_EACH * this.#queue.size));
        await this.#pause(waiter, Math.min(each, until - now), signal);
      }
    } finally {
      this.#waiting -= 1;
      leaveQueues(waiter);
      waiter.admitted?.leave();
    }
  }

  async #pause(waiter: Waiter, ms: number, signal: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    waiter.wake = resolve;
    waiter.looksAt = Date.now() + ms;
    const timer = setTimeout(resolve, ms);
    const onAbort = () => resolve();
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      await promise;
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", onAbort);
    }
  }

  #onFree(): void {
    if (this.#queue.size > 0) {
      const now = Date.now();
      if (this.#endedAt !== undefined) {
        const ms = now - this.#endedAt;
        this.#intervalMs = this.#intervalMs === undefined ? ms : this.#intervalMs + (ms - this.#intervalMs) * NEWEST;
      }
      this.#endedAt = now;
    } else this.#endedAt = undefined;
    this.#admitWaiting();
  }

  /** Admits those that wait, as many as the server takes; if none waits for it, those that wait for others. */
  #admitWaiting(): void {
    const now = Date.now();
    for (;;) {
      const limit = this.limit(now);
      if (limit !== undefined && this.#inFlight.count >= limit) return;
      if (!this.#admitNext(this.#queue, now) && !this.#admitOther(now)) return;
    }
  }

  #admitNext(queue: FairQueue<Waiter>, now: number, may?: (waiter: Waiter) => boolean): boolean {
    for (;;) {
      const queued = queue.take(may);
      if (!queued) return false;
      const waiter = queued.item;
      if (waiter.looksAt !== 0 && waiter.looksAt + MAX_LATE_MS < now) {
        queue.end(queued, 0);
        continue;
      }
      leaveQueues(waiter);
      waiter.admitted = this.#admit(queue, queued, now);
      waiter.wake();
      return true;
    }
  }

  #admit(queue: FairQueue<Waiter>, queued: Queued<Waiter>, now: number): Admitted {
    const { meter } = queued.item;
    meter.recount = () => queue.count(queued, spentIn(meter));
    const leave = this.#inFlight.enter(now, () => queue.end(queued, spentIn(meter)));
    return { admission: this, leave, meter };
  }

  #admitOther(now: number): boolean {
    for (const other of crowded) {
      if (other === this) continue;
      if (this.#admitNext(other.#queue, now, ({ others }) => others.includes(this))) return true;
    }
    return false;
  }

  #checkBounds(tenant: string, maxWaiting: number): void {
    crowded.add(this);
    for (const other of crowded) if (other !== this && other.#queue.size === 0) crowded.delete(other);
    const free = maxWaiting - this.#queue.size - 1;
    const own = this.#queue.sizeOf(tenant);
    if (free >= 0 && own + 1 <= Math.max(1, SHARE_FACTOR * free)) return;
    if (own === 0) throw this.#overloaded(tenant);
    const refusal = tooManyInProgress(
      "You have too many requests that wait for the model server. Please retry after the time in `retry-after`.",
    );
    refusal.headers["retry-after"] = String(this.#retryAfter(tenant));
    throw refusal;
  }

  #overloaded(tenant: string): ApiError {
    return new ApiError({
      status: 503,
      message: "The model server is overloaded. Please retry after the time in `retry-after`.",
      code: "server_is_overloaded",
      headers: { "retry-after": String(this.#retryAfter(tenant)) },
    });
  }

  /** The seconds in which the tenant's requests that wait now will have begun, at the rate at which requests end. */
  #retryAfter(tenant: string): number {
    if (this.#intervalMs === undefined) return UNKNOWN_S;
    const before = Math.min(this.#queue.size, Math.max(1, this.#queue.sizeOf(tenant)) * this.#queue.tenants);
    return Math.max(1, Math.min(MAX_S, Math.ceil((Math.max(1, before) * this.#intervalMs) / 1000)));
  }
}

/** The next larger limit. */
function more(limit: number): number {
  return Math.floor(limit * GROWTH) + 1;
}

/** The processes that share limits, and since when the board has not answered; undefined if it was not asked. Unix milliseconds. */
export const processes: { count: number; askedAt: number | undefined } = { count: 1, askedAt: undefined };

/** How long a process waits for the board's answer with one request, before it takes its even part of a limit. Milliseconds. */
const ANSWER_MS = 1_000;

/** The share of a process that the board has told none. */
function shareUntold(limit: number, now: number): number {
  const { count, askedAt } = processes;
  const isAsked = askedAt !== undefined && Math.abs(now - askedAt) < ANSWER_MS;
  return count > 1 && isAsked ? 1 : Math.ceil(limit / count);
}

/** The servers for which requests have waited lately. */
const crowded = new Set<Admission>();

function newWaiter(others: readonly Admission[]): Waiter {
  const meter = { prompt: 0, tokens: 0, isExact: false, perEvent: 1, recount: () => {} };
  return { meter, wake: () => {}, looksAt: 0, admitted: undefined, others, positions: [] };
}

/** Removes a request from the queues in which it waits. */
function leaveQueues({ positions }: Waiter): void {
  for (const { queue, queued } of positions) queue.remove(queued);
}

/** The tokens of a request so far, about. */
function spentIn({ prompt, tokens, isExact }: Meter): number {
  return isExact ? tokens : prompt + tokens;
}
