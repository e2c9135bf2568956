/**
 * Runs long work of this thread in slices of about ten milliseconds. Other work of the thread runs between two slices,
 * and tenants take turns: six long prompts of one tenant delay another tenant's no more than one does. The work itself
 * measures a slice, not time: a Worker's clock stands still while it computes.
 */

/** The work of a slow core in ten milliseconds. One unit takes about a microsecond. */
const SLICE_UNITS = 10_000;

/** The gap in which other events use this thread between two slices. Milliseconds. */
const GAP_MS = 1;

/** The longest time between two looks of a waiter with many before it. Milliseconds. */
const MAX_GAP_MS = 2_000;

/** The time that a slice and its gap take, at least. Milliseconds. */
const SLICE_MS = 2;

/** A waiter for a slice. */
interface Waiter {
  /** The number of refusals of others on its account since it last checked. */
  passedOver: number;
  /** Its number among those of its tenant. */
  readonly no: number;
  /** When it looks next, Unix milliseconds. */
  looksAt: number;
}

/** The waiters of a tenant, in order. */
interface TenantQueue {
  readonly waiters: Set<Waiter>;
  /** How many waiters there were, and how many of them wait no more. */
  entered: number;
  left: number;
}

/** A waiter that was passed over this often by each of the others is dropped: the platform has ended its request without a notice. */
const MAX_PASSED_OVER = 8;

/** So is one that has not looked when another looks whose time was later than its own by this many milliseconds. */
const MAX_LATE_MS = 100;

/** Gives slices in turn: one piece of work at a time, and one slice for each tenant in turn. */
export class SliceQueue {
  readonly #gap: (ms: number) => Promise<void>;
  /** The next tenant first. */
  readonly #waiting = new Map<string, TenantQueue>();
  #waiters = 0;
  #slices = 0;

  /**
   * `gap`: resolves after some milliseconds, when other events have used the thread. Each waiter has its own, because a request's
   * timers end with it.
   */
  constructor(gap: (ms: number) => Promise<void>) {
    this.#gap = gap;
  }

  /** Waits for the tenant's next slice, which lasts until the caller awaits something else. */
  async next(tenant: string): Promise<void> {
    let waiter = this.#enter(tenant);
    for (;;) {
      const slices = this.#slices;
      // One that has many before it looks seldom: thousands may wait.
      const before = (waiter.no - (this.#waiting.get(tenant)?.left ?? 0)) * this.#waiting.size;
      const ms = Math.max(GAP_MS, Math.min(MAX_GAP_MS, before * SLICE_MS));
      // workerd counts from its event loop's last look at the clock, which was before the slice: a timer that is set now
      // would ring at once.
      for (const gap of ms === GAP_MS ? [0, ms] : [ms]) {
        waiter.looksAt = Date.now() + gap;
        await this.#gap(gap);
      }
      waiter.passedOver = 0;
      // It was taken for a dropped one.
      if (!this.#waiting.get(tenant)?.waiters.has(waiter)) waiter = this.#enter(tenant);
      // Between any two slices there is a gap.
      else if (slices === this.#slices && this.#isFirst(waiter)) break;
    }
    this.#slices += 1;
    this.#leaveFirst();
  }

  #enter(tenant: string): Waiter {
    const queue = this.#waiting.get(tenant) ?? { waiters: new Set(), entered: 0, left: 0 };
    const waiter: Waiter = { passedOver: 0, no: queue.entered, looksAt: Number.POSITIVE_INFINITY };
    queue.entered += 1;
    this.#waiting.set(tenant, queue);
    queue.waiters.add(waiter);
    this.#waiters += 1;
    return waiter;
  }

  #isFirst(waiter: Waiter): boolean {
    const [queue] = this.#waiting.values();
    const [first] = queue?.waiters ?? [];
    if (first === waiter || !first) return first === waiter;
    first.passedOver += 1;
    // Timers ring in the order of their times.
    const isLate = first.looksAt + MAX_LATE_MS < waiter.looksAt;
    if (isLate || first.passedOver > MAX_PASSED_OVER * this.#waiters) this.#leaveFirst();
    return false;
  }

  /** Removes the first waiter; its tenant is the last one now. */
  #leaveFirst(): void {
    const [next] = this.#waiting;
    if (!next) return;
    const [tenant, queue] = next;
    const [first] = queue.waiters;
    if (first) queue.waiters.delete(first);
    queue.left += 1;
    this.#waiters -= 1;
    this.#waiting.delete(tenant);
    if (queue.waiters.size > 0) this.#waiting.set(tenant, queue);
  }
}

const slices = new SliceQueue((ms) => new Promise<void>((resolve) => setTimeout(resolve, ms)));

/** The units that a tenant may spend beyond its share before its short work waits for slices, too, if other tenants have work. */
const MAX_DEBT = SLICE_UNITS;

/** Tenants whose last work is older than this do not compete for the thread. Milliseconds. */
const COMPETES_MS = 1_000;

/** The units that a tenant has spent beyond its share of the thread, at a time (Unix milliseconds). */
interface Account {
  debt: number;
  at: number;
}

/** The tenants that compete, the one with the latest work last. */
const accounts = new Map<string, Account>();

/** Charges work to a tenant, unless that is nobody's (""). Tells whether it has had so much more than its share that it is to wait. */
function isOverShare(tenant: string, units: number): boolean {
  if (tenant === "") return false;
  const now = Date.now();
  const account = accounts.get(tenant) ?? { debt: 0, at: now };
  for (const [oldest, { at }] of accounts) {
    if (now - at < COMPETES_MS) break;
    accounts.delete(oldest);
  }
  const share = ((now - account.at) * 1_000) / Math.max(1, accounts.size);
  account.debt = Math.max(0, account.debt - share) + units;
  account.at = now;
  accounts.delete(tenant);
  accounts.set(tenant, account);
  return accounts.size > 1 && account.debt > MAX_DEBT;
}

/** Work in steps, each of which gives its cost, in units. */
export type Steps<Result> = Generator<number, Result, void>;

/** Does work at once. */
export function finish<Result>(steps: Steps<Result>): Result {
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
  }
}

/** Elements per step. */
const ELEMENTS_PER_STEP = 100;

/** Collects elements, in steps; making one takes about `units`. */
export function* collect<Element>(elements: Iterable<Element>, units: number): Steps<Element[]> {
  const collected: Element[] = [];
  for (const element of elements) {
    collected.push(element);
    if (collected.length % ELEMENTS_PER_STEP === 0) yield ELEMENTS_PER_STEP * units;
  }
  return collected;
}

/** Work of a tenant, which may become long. Short work does not wait, unless its tenant has much of it and others have work, too. */
export class LongWork {
  readonly #tenant: string;
  #units = 0;

  constructor(tenant: string) {
    this.#tenant = tenant;
  }

  /**
   * Records work that was done, or that comes next without a break, in microseconds of a slow core. At the end of a
   * slice gives the promise to wait for.
   */
  spend(units: number): Promise<void> | undefined {
    this.#units += units;
    if (!isOverShare(this.#tenant, units) && this.#units < SLICE_UNITS) return undefined;
    this.#units = 0;
    return slices.next(this.#tenant);
  }

  /** Does work slice by slice. */
  async run<Result>(steps: Steps<Result>): Promise<Result> {
    for (;;) {
      const { done, value } = steps.next();
      if (done) return value;
      const slice = this.spend(value);
      if (slice) await slice;
    }
  }
}

/** The number of items whose work runs at the same time. */
export const MAX_CONCURRENT = 8;

/**
 * Runs `work` for each item, at most `MAX_CONCURRENT` of them concurrently, begun in order. Rejects as the first failure does,
 * without waiting for the others.
 */
export async function forEachAtOnce<T>(items: Iterable<T>, work: (item: T) => Promise<void>): Promise<void> {
  // All workers take from one iterator.
  const left = items[Symbol.iterator]();
  const worker = async (): Promise<void> => {
    for (let next = left.next(); !next.done; next = left.next()) await work(next.value);
  };
  await Promise.all(Array.from({ length: MAX_CONCURRENT }, worker));
}
