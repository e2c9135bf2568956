import { limitedIn } from "./balance.ts";
import { type Amounts, combined, NOTHING, plus } from "./ledger.ts";

/** Requests that are promised in advance at most. */
const MAX_ADVANCE = 1_000;

/** So much of what may be stored is promised in advance, where ten times as much is left. */
const STANDING: Amounts = {
  ...NOTHING,
  stored_bytes: 64 * 1024 * 1024,
  stored_responses: 100,
  stored_conversations: 100,
};

/** Notes what the requests of a period take, and expects as much of the next. */
export class Forecast {
  readonly #periodMs: number;
  #period = 0;
  #now = { count: 0, amounts: NOTHING };
  #before = this.#now;

  constructor(periodMs: number) {
    this.#periodMs = periodMs;
  }

  note(need: Amounts): void {
    this.#turn();
    this.#now = { count: this.#now.count + 1, amounts: plus(this.#now.amounts, need) };
  }

  /**
   * Gives the amounts to have in advance: those of the last period, where several requests came in it, and so much of what may be
   * stored that a caller who is seldom there need not ask for each request. `limited` is of `limitedBy`.
   */
  advance(limited: Amounts): Amounts {
    return combined(this.#expected(), limitedIn(STANDING, limited), Math.max);
  }

  #expected(): Amounts {
    this.#turn();
    const { count, amounts } = this.#now.count > this.#before.count ? this.#now : this.#before;
    if (count < 2) return { ...NOTHING };
    const share = Math.min(1, MAX_ADVANCE / count);
    return combined(amounts, NOTHING, (amount) => Math.ceil(amount * share));
  }

  #turn(): void {
    const period = Math.floor(Date.now() / this.#periodMs);
    if (period === this.#period) return;
    const none = { count: 0, amounts: NOTHING };
    this.#before = period === this.#period + 1 ? this.#now : none;
    this.#now = none;
    this.#period = period;
  }
}
