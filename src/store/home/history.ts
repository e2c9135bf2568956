import { type ApiError, contextLengthExceeded } from "@responses-edge/responses-api/errors";
import type { Item } from "@responses-edge/responses-api/items/registry";
import type { Replay } from "@responses-edge/turn/contract/engine";

/**
 * The past of a turn. This folder uses two words for it:
 *
 * - A *history* is the items, and the raw messages behind them. A response has one (its ancestors and itself), and so
 *   has a conversation.
 * - A *snapshot* (`history-reader.ts`) is the home's answer to a Worker that is about to make a turn: a history, and
 *   the items that the turn refers to by id.
 */

/** The items of a turn, JSON arrays, and the raw messages behind them (`Replay[]`), or null. */
export interface TurnTexts {
  input: string;
  output: string;
  messages: string | null;
}

/** Items, oldest first, and the raw messages behind them (`Replay[]`), each as the JSON text of an array. */
export interface History {
  items: string;
  messages: string;
}

export const EMPTY_HISTORY: History = { items: "[]", messages: "[]" };

/** A history as values, and its length as JSON, in UTF-16 units. */
export interface ReadHistory {
  history: Item[];
  replays: Replay[];
  length: number;
}

/** The values of a history. */
export function readHistory({ items, messages }: History): ReadHistory {
  return {
    history: JSON.parse(items) as Item[],
    replays: JSON.parse(messages) as Replay[],
    length: items.length + messages.length,
  };
}

/** The 400 of a history that is too long. */
export function historyTooLong(): ApiError {
  return contextLengthExceeded("The conversation is too long to continue.");
}

/** Most UTF-16 units of all chains of a home in memory, which other objects share. A longer chain is read again each time. */
export const MAX_LENGTH = 4 * 1024 * 1024;

/** How much more memory a history takes if it has values, too. */
const SIZE_WITH_VALUES = 3;

/** A history in a home's memory. It does not change. */
export class KnownHistory {
  /** Elements of JSON arrays separated by commas, without brackets. */
  readonly #items: string;
  readonly #messages: string;
  /** The values, once they were read. */
  #values: ReadHistory | undefined;
  /** Until then: those of the history that it continues, and the rest of the texts. */
  #continued: { values: ReadHistory; rest: History } | undefined;
  #id: string | undefined;

  private constructor(items: string, messages: string) {
    this.#items = items;
    this.#messages = messages;
  }

  static of({ items, messages }: History): KnownHistory {
    return new KnownHistory(joinArrays([items]), joinArrays([messages]));
  }

  /** This history and a turn's items after it (JSON arrays), with the raw messages behind them, if there are any. */
  continuedBy({ input, output, messages: raw }: TurnTexts): KnownHistory {
    const raws = raw === null ? [] : [raw];
    const continued = new KnownHistory(joinArrays([input, output], this.#items), joinArrays(raws, this.#messages));
    const values = continued.#mayHaveValues ? this.#values : undefined;
    if (values) {
      const rest = { items: concatArrays([input, output]), messages: concatArrays(raws) };
      continued.#continued = { values, rest };
    }
    return continued;
  }

  /** Unlike that of every other one, also of another process. */
  get id(): string {
    this.#id ??= crypto.randomUUID();
    return this.#id;
  }

  get texts(): History {
    return { items: `[${this.#items}]`, messages: `[${this.#messages}]` };
  }

  /** The values, which turns share: they are frozen. Those of a long history are read anew each time, and belong to the caller. */
  values(): ReadHistory {
    if (!this.#mayHaveValues) return readHistory(this.texts);
    this.#values ??= this.#read();
    this.#continued = undefined;
    return this.#values;
  }

  /** Its length, and more if it has values, in UTF-16 units. */
  get size(): number {
    return this.length * (this.#values || this.#continued ? SIZE_WITH_VALUES : 1);
  }

  /** UTF-16 units of both texts, without brackets. */
  get length(): number {
    return this.#items.length + this.#messages.length;
  }

  /** False if it has no place with its values. */
  get #mayHaveValues(): boolean {
    return this.length * SIZE_WITH_VALUES <= MAX_LENGTH;
  }

  #read(): ReadHistory {
    const { values: before, rest } = this.#continued ?? { rest: this.texts };
    const read = readHistory(rest);
    freezeAll([read.history, read.replays]);
    if (!before) return read;
    const history = before.history.concat(read.history);
    const replays = before.replays.concat(read.replays);
    Object.freeze(history);
    Object.freeze(replays);
    return { history, replays, length: before.length + read.length - "[][]".length };
  }
}

/** Freezes JSON values, and all that is in them. */
function freezeAll(values: unknown[]): void {
  for (let value = values.pop(); value !== undefined; value = values.pop()) {
    if (typeof value !== "object" || value === null) continue;
    Object.freeze(value);
    for (const each of Object.values(value)) values.push(each);
  }
}

/** Concatenates JSON arrays. */
export function concatArrays(arrays: readonly string[]): string {
  return `[${joinArrays(arrays)}]`;
}

/** The elements of JSON arrays, separated by commas, after those of `before`, which are separated already. */
export function joinArrays(arrays: readonly string[], before = ""): string {
  let joined = before;
  for (const array of arrays) {
    if (array.length <= "[]".length) continue;
    joined += joined === "" ? array.slice(1, -1) : `,${array.slice(1, -1)}`;
  }
  return joined;
}

export const NO_HISTORY = KnownHistory.of(EMPTY_HISTORY);
