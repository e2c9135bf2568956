import { type History, KnownHistory, NO_HISTORY, type TurnTexts } from "./history.ts";

/**
 * The conversation of a home in memory, as it was when its last turn was read or written: the next turn most often goes on there. Rows never
 * change, so it stays true until rows are taken out.
 */

/** A longer one takes too much of the memory that objects share. UTF-16 units. */
const MAX_LENGTH = 2 * 1024 * 1024;

export class KnownConversation {
  /** The last position that was taken; undefined where that is not known. */
  #last: number | undefined;
  /** The items up to a position. */
  #known: { upTo: number; history: KnownHistory } | undefined;

  /** The last position taken: known, or as `read` gives it. */
  lastPosition(read: () => number): number {
    this.#last ??= read();
    return this.#last;
  }

  /** The items up to a position: known, or as `read` gives them. */
  history(upTo: number, read: () => History): KnownHistory {
    if (this.#known?.upTo === upTo) return this.#known.history;
    const history = KnownHistory.of(read());
    // An earlier one is a branch's.
    if (upTo >= (this.#last ?? 0)) this.#keep(upTo, history);
    return history;
  }

  /** The items, if they are known. Their last turn may still be rolled back. */
  get latest(): KnownHistory | undefined {
    return this.#known?.history;
  }

  /** A turn of the conversation was written, at this position of it. */
  add(turn: TurnTexts, position: number): void {
    if (this.#last !== undefined) this.#last = Math.max(this.#last, position);
    if (position === (this.#known?.upTo ?? 0) + 1) this.#keep(position, (this.latest ?? NO_HISTORY).continuedBy(turn));
    else this.#known = undefined;
  }

  /** Rows were taken out, or a transaction was rolled back. */
  forget(): void {
    this.#last = undefined;
    this.#known = undefined;
  }

  #keep(upTo: number, history: KnownHistory): void {
    this.#known = history.length <= MAX_LENGTH ? { upTo, history } : undefined;
  }
}
