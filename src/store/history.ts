import type { Replay } from "../contract/engine.ts";
import type { Item } from "../items/registry.ts";
import { type ApiError, contextLengthExceeded } from "../protocol/errors.ts";
import { MAX_HISTORY_LENGTH } from "./limits.ts";

/**
 * What came before a turn. This folder has two words for it:
 *
 * - A *history* is the items, and the raw messages behind them. A response has one (its ancestors and itself), and so
 *   has a conversation.
 * - A *snapshot* (`history-reader.ts`) is what the home answers to a Worker that is about to take a turn: a history, and
 *   the items that the turn refers to by their ids.
 */

/** Items, oldest first, and the raw messages behind them (`Replay[]`), each as the JSON text of an array. */
export interface History {
  items: string;
  messages: string;
}

export const EMPTY_HISTORY: History = { items: "[]", messages: "[]" };

/** A history as values, and how long it is as JSON, in UTF-16 units. */
export function readHistory({ items, messages }: History): { history: Item[]; replays: Replay[]; length: number } {
  return {
    history: JSON.parse(items) as Item[],
    replays: JSON.parse(messages) as Replay[],
    length: items.length + messages.length,
  };
}

/** One history after the other. */
export function concatHistories(first: History, second: History): History {
  return {
    items: concatArrays([first.items, second.items]),
    messages: concatArrays([first.messages, second.messages]),
  };
}

/** Whether a history is longer than may be given to a turn. */
export function isTooLong({ items, messages }: History): boolean {
  return items.length + messages.length > MAX_HISTORY_LENGTH;
}

/** The 400 for a history that is too long. */
export function historyTooLong(): ApiError {
  return contextLengthExceeded("The conversation is too long to be continued.");
}

/** JSON arrays as one. */
export function concatArrays(arrays: readonly string[]): string {
  return `[${joinArrays(arrays)}]`;
}

/** The elements of JSON arrays, separated by commas; those of `before`, which are separated already, come first. */
export function joinArrays(arrays: readonly string[], before = ""): string {
  let joined = before;
  for (const array of arrays) {
    if (array === "[]") continue;
    joined += joined === "" ? array.slice(1, -1) : `,${array.slice(1, -1)}`;
  }
  return joined;
}
