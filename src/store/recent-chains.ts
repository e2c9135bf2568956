/** The histories that were continued last, in memory: the next turn most often goes on with one of them. Rows never change, so they stay true. */

/** A turn with all before it. `items` and `messages` are elements of JSON arrays separated by commas, without brackets. */
export interface Chain {
  turn: string;
  /** When the turn was created, Unix milliseconds. */
  createdAt: number;
  /** The position up to which its conversation came before all of that, when it began in one. */
  base: number | null;
  items: string;
  messages: string;
}

/** Of all of them together: the object's memory is not only its own. A longer one is read anew each time. UTF-16 units. */
const MAX_LENGTH = 4 * 1024 * 1024;

/** At most so many, however short: as many as a home may have trees. */
const MAX_CHAINS = 64;

export class RecentChains {
  /** The one that was used last comes last. */
  readonly #chains = new Map<string, Chain>();
  #length = 0;

  get(turn: string): Chain | undefined {
    return this.#chains.get(turn);
  }

  /** Keeps a chain as the newest one, as far as there is room. */
  put(chain: Chain): void {
    this.delete(chain.turn);
    if (lengthOf(chain) > MAX_LENGTH) return;
    this.#chains.set(chain.turn, chain);
    this.#length += lengthOf(chain);
    for (const turn of this.#chains.keys()) {
      if (this.#length <= MAX_LENGTH && this.#chains.size <= MAX_CHAINS) break;
      this.delete(turn);
    }
  }

  delete(turn: string): void {
    const chain = this.#chains.get(turn);
    if (!chain) return;
    this.#chains.delete(turn);
    this.#length -= lengthOf(chain);
  }

  clear(): void {
    this.#chains.clear();
    this.#length = 0;
  }
}

function lengthOf({ items, messages }: Chain): number {
  return items.length + messages.length;
}
