import { type History, joinArrays } from "./history.ts";

/**
 * The conversation of a home in memory, as it was when its last turn was read or written: the next turn most often goes on there. Rows never
 * change, so it stays true until rows are taken out.
 */

/** A shorter one is read anew as fast; a longer one takes too much of the memory that objects share. UTF-16 units. */
const MIN_LENGTH = 16 * 1024;
const MAX_LENGTH = 2 * 1024 * 1024;

/** A turn that was written. Its texts are JSON. */
interface WrittenTurn {
  input: string;
  output: string;
  messages: string | null;
}

export class KnownConversation {
  /** The last position that was taken; undefined where that is not known. */
  #last: number | undefined;
  /** Elements of JSON arrays separated by commas, without brackets, up to a position. */
  #text: { upTo: number; items: string; messages: string } | undefined;

  /** The last position taken: known, or as `read` gives it. */
  lastPosition(read: () => number): number {
    this.#last ??= read();
    return this.#last;
  }

  /** The items up to a position: known, or as `read` gives them. */
  history(upTo: number, read: () => History): History {
    if (this.#text?.upTo === upTo) {
      const { items, messages } = this.#text;
      return { items: `[${items}]`, messages: `[${messages}]` };
    }
    const history = read();
    // An earlier one is a branch's.
    if (upTo >= (this.#last ?? 0)) {
      this.#keep(upTo, joinArrays([history.items]), joinArrays([history.messages]));
    }
    return history;
  }

  /** A turn of the conversation was written, at this position of it. */
  add({ input, output, messages }: WrittenTurn, position: number): void {
    if (this.#last !== undefined) this.#last = Math.max(this.#last, position);
    const text = this.#text;
    if (!text) return;
    if (position !== text.upTo + 1) this.#text = undefined;
    else {
      const raw = joinArrays(messages === null ? [] : [messages], text.messages);
      this.#keep(position, joinArrays([input, output], text.items), raw);
    }
  }

  /** Rows were taken out, or a transaction was rolled back. */
  forget(): void {
    this.#last = undefined;
    this.#text = undefined;
  }

  #keep(upTo: number, items: string, messages: string): void {
    const length = items.length + messages.length;
    this.#text = length >= MIN_LENGTH && length <= MAX_LENGTH ? { upTo, items, messages } : undefined;
  }
}
