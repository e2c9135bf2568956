import { type Amounts, combined, NOTHING, plus } from "./limits.ts";

/** The maximum of requests whose need is reserved in advance, and the number from which a caller is a frequent one. */
const MAX_ADVANCE = 1_000;
const FREQUENT = 3;

/** The needs of a caller's new requests, as a sum that halves every second: an estimate of what the next second needs. */
export class RecentNeeds {
  #count = 0;
  #need: Amounts = NOTHING;
  /** When the sum was last halved in part, Unix milliseconds. */
  #at = 0;

  /** Adds the need of a request that begins now. */
  add(need: Amounts): void {
    this.#pass();
    this.#count += 1;
    this.#need = plus(this.#need, need);
  }

  /** The amounts to have in advance: none for a rare caller. */
  soon(): Amounts {
    this.#pass();
    if (this.#count < FREQUENT) return NOTHING;
    const share = Math.min(1, MAX_ADVANCE / this.#count);
    return combined(this.#need, NOTHING, (amount) => Math.ceil(amount * share));
  }

  #pass(): void {
    const now = Date.now();
    const left = 2 ** (-Math.max(0, now - this.#at) / 1_000);
    this.#at = now;
    this.#count *= left;
    this.#need = combined(this.#need, NOTHING, (amount) => amount * left);
  }
}
