import type { Open } from "./balance.ts";
import { type Amounts, NOTHING, type Obstacle, plus } from "./ledger.ts";
import { limitsUnavailable } from "./refusal.ts";

/** A request waits no longer for an answer: the platform may have ended the one that asks. */
export const ANSWER_WITHIN_MS = 10_000;

/** How long a refusal is repeated without asking again, unless something comes back before. */
const REFUSED_FOR_MS = 200;

/** An amount that is wanted of a quota, and for which request. */
export interface Wanted {
  need: Amounts;
  open: Open;
  /** False where a request that has begun wants more. */
  isNew: boolean;
}

interface Waiter extends Wanted {
  resolve(): void;
  reject(error: unknown): void;
}

/** The requests that wait for a quota's answer, in their order, and what it has refused a moment ago. */
export class Queue {
  #waiters: Waiter[] = [];
  #refusal: { obstacle: Obstacle; until: number } | undefined;

  get isEmpty(): boolean {
    return this.#waiters.length === 0;
  }

  get first(): Wanted | undefined {
    return this.#waiters[0];
  }

  /** The sum of what all waiting requests need. */
  get need(): Amounts {
    return this.#waiters.reduce((sum, { need }) => plus(sum, need), NOTHING);
  }

  /** Waits for its turn. Rejects with the 429 of a limit, and the 503 where no answer comes in time. */
  wait(wanted: Wanted): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const waiter: Waiter = { ...wanted, resolve, reject };
    this.#waiters.push(waiter);
    const timer = setTimeout(() => {
      this.#waiters = this.#waiters.filter((each) => each !== waiter);
      reject(limitsUnavailable());
    }, ANSWER_WITHIN_MS);
    return promise.finally(() => clearTimeout(timer));
  }

  /** Lets those in who wait, in their order, as long as `take` can give the first what it needs. */
  handOut(take: (wanted: Wanted) => boolean): void {
    for (let first = this.#waiters[0]; first && take(first); first = this.#waiters[0]) {
      this.#waiters.shift();
      first.resolve();
    }
  }

  /** Refuses the first who waits, and all whom the same stands in the way of, with the error that `refused` makes. */
  refuse(obstacle: Obstacle, refused: (obstacle: Obstacle) => Error): void {
    const [first] = this.#waiters;
    if (!first) return;
    const kind = amountOf(obstacle.kind);
    const isRefused = ({ need }: Waiter) => need[kind] >= first.need[kind];
    const leaving = this.#waiters.filter(isRefused);
    this.#waiters = this.#waiters.filter((waiter) => !isRefused(waiter));
    // Everybody needs one of these.
    if (kind === "requests" || kind === "reads" || kind === "slots") {
      this.#refusal = { obstacle, until: Date.now() + Math.min(obstacle.retryMs ?? REFUSED_FOR_MS, REFUSED_FOR_MS) };
    }
    for (const { reject, need } of leaving) reject(refused({ ...obstacle, wanted: need[kind] }));
  }

  /** Refuses all that wait, because the quota cannot be asked. */
  fail(): void {
    for (const { reject } of this.#waiters.splice(0)) reject(limitsUnavailable());
  }

  /** The obstacle that a need has met a moment ago. */
  refusalOf(need: Amounts): Obstacle | undefined {
    const { obstacle, until = 0 } = this.#refusal ?? {};
    const left = until - Date.now();
    return obstacle && need[amountOf(obstacle.kind)] > 0 && left > 0 && left <= REFUSED_FOR_MS ? obstacle : undefined;
  }

  /** Something has come back: what was refused may be there. */
  forgetRefusal(): void {
    this.#refusal = undefined;
  }
}

/** The amount that an obstacle is about. */
function amountOf(kind: Obstacle["kind"]): keyof Amounts {
  if (kind === "budget_tokens") return "tokens";
  return kind === "budget_usd" ? "cost" : kind;
}
