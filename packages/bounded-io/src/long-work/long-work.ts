/**
 * Runs long work of this thread in slices of about ten milliseconds. Other work of the thread runs between two slices,
 * and tenants take turns: six long prompts of one tenant delay another tenant's no more than one does. The work itself
 * measures a slice, not time: a Worker's clock stands still while it computes.
 */

/** The work of a slow core in ten milliseconds. One unit takes about a microsecond. */
const SLICE_UNITS = 10_000;

/** The gap in which other events use this thread between two slices. Milliseconds. */
const GAP_MS = 1;

/** A waiter for a slice. */
interface Waiter {
  /** The number of refusals of others on its account since it last checked. */
  passedOver: number;
}

/** A waiter that was passed over this often is dropped: the platform has ended its request without a notice. */
const MAX_PASSED_OVER = 8;

/** Gives slices in turn: one piece of work at a time, and one slice for each tenant in turn. */
export class SliceQueue {
  readonly #gap: () => Promise<void>;
  /** The next tenant first. */
  readonly #waiting = new Map<string, Waiter[]>();
  #waiters = 0;
  #slices = 0;

  /**
   * `gap`: resolves when other events have used the thread. Each waiter has its own, because a request's timers end
   * with it.
   */
  constructor(gap: () => Promise<void>) {
    this.#gap = gap;
  }

  /** Waits for the tenant's next slice, which lasts until the caller awaits something else. */
  async next(tenant: string): Promise<void> {
    const waiter: Waiter = { passedOver: 0 };
    this.#enter(tenant, waiter);
    for (;;) {
      const slices = this.#slices;
      await this.#gap();
      waiter.passedOver = 0;
      if (!this.#waiting.get(tenant)?.includes(waiter)) this.#enter(tenant, waiter);
      // Between any two slices there is a gap.
      if (slices === this.#slices && this.#isFirst(waiter)) break;
    }
    this.#slices += 1;
    this.#leaveFirst();
  }

  #enter(tenant: string, waiter: Waiter): void {
    const own = this.#waiting.get(tenant);
    if (own) own.push(waiter);
    else this.#waiting.set(tenant, [waiter]);
    this.#waiters += 1;
  }

  #isFirst(waiter: Waiter): boolean {
    const first = this.#waiting.values().next().value?.[0];
    if (first === waiter || !first) return first === waiter;
    first.passedOver += 1;
    if (first.passedOver > MAX_PASSED_OVER * this.#waiters) this.#leaveFirst();
    return false;
  }

  /** Removes the first waiter; its tenant is the last one now. */
  #leaveFirst(): void {
    for (const [tenant, own] of this.#waiting) {
      own.shift();
      this.#waiters -= 1;
      this.#waiting.delete(tenant);
      if (own.length > 0) this.#waiting.set(tenant, own);
      return;
    }
  }
}

const timeout = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

const slices = new SliceQueue(async () => {
  // workerd counts from its event loop's last look at the clock, which was before the slice: a timer that is set now
  // would fire at once.
  await timeout(0);
  await timeout(GAP_MS);
});

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

/** Work of a tenant, which may become long. Short work never waits. */
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
    if (this.#units < SLICE_UNITS) return undefined;
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
const MAX_CONCURRENT = 8;

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
