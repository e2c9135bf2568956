import { type ApiError, contextLengthExceeded } from "@responses-edge/responses-api/errors";
import type { Item } from "@responses-edge/responses-api/items/registry";
import type { Replay } from "@responses-edge/turn/contract/engine";
import { fromCell, fromCells, mayContinue, type StoredCell } from "../objects/row-pieces.ts";
import type { Tables } from "./tables.ts";

/**
 * The past of a turn. This folder uses two words for it:
 *
 * - A *history* is the items, and the raw messages behind them. A response has one (its ancestors and itself), and so
 *   has a conversation.
 * - A *snapshot* (`history-reader.ts`) is the home's answer to a Worker that is about to make a turn: a history, and
 *   the items that the turn refers to by id.
 */

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

/**
 * The chains of turns that continue each other by `parent`. The most recently continued ones stay in memory, because
 * the next turn most often continues one of them. They stay valid, because rows never change.
 */

/** A turn as a link of a chain. Its texts are JSON; `response` lacks `output`. */
export interface ChainedTurn {
  turn: string;
  /** The turn that this one continues, in the same home. */
  parent: string | null;
  /** Unix milliseconds. */
  createdAt: number;
  /** The last position of the conversation that this turn saw; null outside a conversation. */
  base: number | null;
  input: string;
  output: string;
  /** The raw messages behind the items (`Replay[]`), or null. */
  messages: string | null;
  /** Null if only the items are stored, in their conversation: the response was deleted, or has `store: false`. */
  response: string | null;
}

/** A turn with all earlier ones. `items` and `messages` are elements of JSON arrays separated by commas, without brackets. */
interface Chain {
  turn: string;
  /** True if it was read from rows: its turn is no longer the last one, or its home was opened again. */
  wasRead: boolean;
  /** True if an answer of its home has said that the turn is stored. Before that its commit may still fail. */
  isTold: boolean;
  /** Its values, which turns share, once they were read. */
  values: ReadHistory | undefined;
  /** Until then: those of the chain that it continues, and the texts of its own turn. */
  continued: { values: ReadHistory; items: string; messages: string } | undefined;
  /** What it takes of `MAX_LENGTH` while it is kept. */
  size: number;
  /** When the turn was created, Unix milliseconds. */
  createdAt: number;
  /** The position in its conversation at which the chain begins, if it began in one. */
  base: number | null;
  items: string;
  messages: string;
}

/** A chain as JSON texts. */
export function historyOf({ items, messages }: Chain): History {
  return { items: `[${items}]`, messages: `[${messages}]` };
}

/** Reads the values of a chain, or of its own turn only where those of the chain that it continues are known, and freezes them. */
function valuesOf(chain: Chain): ReadHistory {
  const { items, messages, continued: { values: before, ...own } = { values: undefined, items, messages } } = chain;
  const read = readHistory({ items: `[${own.items}]`, messages: `[${own.messages}]` });
  const history = before ? before.history.concat(read.history) : read.history;
  const replays = before ? before.replays.concat(read.replays) : read.replays;
  freezeAll([read.history, read.replays]);
  Object.freeze(history);
  Object.freeze(replays);
  return { history, replays, length: before ? before.length + read.length - "[][]".length : read.length };
}

/** Freezes JSON values, and all that is in them. */
function freezeAll(values: unknown[]): void {
  for (let value = values.pop(); value !== undefined; value = values.pop()) {
    if (typeof value !== "object" || value === null) continue;
    Object.freeze(value);
    for (const each of Object.values(value)) values.push(each);
  }
}

/** Most UTF-16 units of all chains in memory, which other objects share. A longer chain is read again each time. */
const MAX_LENGTH = 4 * 1024 * 1024;

/** What a chain takes of it for each unit of its texts if it has values, too. */
const SIZE_WITH_VALUES = 3;

type Texts = Pick<Chain, "items" | "messages">;

const sizeOf = ({ items, messages }: Texts, hasValues: boolean) =>
  (items.length + messages.length) * (hasValues ? SIZE_WITH_VALUES : 1);

/** False of a chain that has no place with its values. */
const mayHaveValues = (chain: Texts) => sizeOf(chain, true) <= MAX_LENGTH;

/**
 * Most chains: two for each tree that a home may have. Where branches begin again and again at one response, its chain must outlast
 * the newest branches of all trees.
 */
const MAX_CHAINS = 128;

/** A column of `turns` with a text. */
export type Column = "input" | "output" | "messages" | "response" | "log";

type ChainRow = Pick<ChainedTurn, "turn" | "parent" | "createdAt" | "base"> &
  Record<"input" | "output", StoredCell> & { messages: StoredCell | null };

export class Chains {
  readonly #tables: Tables;
  readonly #oldest: () => number;
  /** Least recently used first. */
  readonly #recent = new Map<string, Chain>();
  #length = 0;

  /** `oldest` gives a creation time, Unix milliseconds: turns that were created then or earlier have expired. */
  constructor(tables: Tables, oldest: () => number) {
    this.#tables = tables;
    this.#oldest = oldest;
  }

  /** The chain that ends with a turn. Undefined if one of its turns has no response. */
  of(turn: string): Chain | undefined {
    const chain = this.#recent.get(turn) ?? this.#read(turn);
    if (chain) this.#keep(chain);
    return chain;
  }

  /**
   * The history of a response outside of conversations, from memory alone; turns share its values, which are frozen. Undefined if memory
   * does not have it, or if no answer has told of the response (`tell`).
   */
  told(turn: string): ReadHistory | undefined {
    const chain = this.#recent.get(turn);
    if (!chain?.isTold || chain.base !== null || chain.createdAt <= this.#oldest()) return undefined;
    if (!mayHaveValues(chain)) return readHistory(historyOf(chain));
    chain.values ??= valuesOf(chain);
    chain.continued = undefined;
    this.#keep(chain);
    return chain.values;
  }

  /** Notes that an answer of the home has told of a response. */
  tell(turn: string): void {
    const chain = this.#recent.get(turn);
    if (chain) chain.isTold = true;
  }

  /**
   * Adds a turn that was written. If it continues a chain in memory, it takes that chain's place, except where the chain had to be
   * read: it has another branch then, or may get one.
   */
  add({ turn, parent, createdAt, base, input, output, messages: raw, response }: ChainedTurn): void {
    const before = parent === null ? undefined : this.#recent.get(parent);
    if (response === null || (parent !== null && !before)) return;
    const raws = raw === null ? [] : [raw];
    const items = joinArrays([input, output], before?.items);
    const messages = joinArrays(raws, before?.messages);
    const values = mayHaveValues({ items, messages }) ? before?.values : undefined;
    if (before && !before.wasRead) this.#forget(before.turn);
    this.#keep({
      turn,
      wasRead: false,
      isTold: false,
      values: undefined,
      continued: values && { values, items: joinArrays([input, output]), messages: joinArrays(raws) },
      size: 0,
      createdAt,
      base: before ? before.base : base,
      items,
      messages,
    });
  }

  clear(): void {
    this.#recent.clear();
    this.#length = 0;
  }

  #read(last: string): Chain | undefined {
    // One pass, newest turn first, bodies included: it takes half the time of finding the keys first and joining again.
    // A turn without a response (deleted, or never stored) has left its items in its conversation, and ends the chain.
    const rows = this.#tables.rows<ChainRow>(
      "turns",
      `WITH RECURSIVE chain(turn, parent, createdAt, base, input, output, messages) AS (
         SELECT turn, parent, created_at, base, input, output, messages FROM turns
         WHERE turn = ? AND part = 0 AND response IS NOT NULL
         UNION ALL
         SELECT turns.turn, turns.parent, turns.created_at, turns.base, turns.input, turns.output, turns.messages
         FROM chain JOIN turns ON turns.turn = chain.parent AND turns.part = 0 AND turns.response IS NOT NULL
       )
       SELECT * FROM chain`,
      last,
    );
    const newest = rows[0];
    const root = rows.at(-1);
    if (!newest || root?.parent !== null) return undefined;
    const items: string[] = [];
    const messages: string[] = [];
    const whole = (turn: string, column: Column, cell: StoredCell) => {
      const piece = fromCell(cell);
      return mayContinue(piece) ? (readText(this.#tables, turn, column) ?? "[]") : piece;
    };
    for (const { turn, input, output, messages: raw } of rows.reverse()) {
      items.push(whole(turn, "input", input), whole(turn, "output", output));
      if (raw !== null) messages.push(whole(turn, "messages", raw));
    }
    return {
      turn: last,
      wasRead: true,
      isTold: false,
      values: undefined,
      continued: undefined,
      size: 0,
      createdAt: newest.createdAt,
      base: root.base,
      items: joinArrays(items),
      messages: joinArrays(messages),
    };
  }

  /** Keeps a chain as the most recent one, if memory allows. */
  #keep(chain: Chain): void {
    if (this.#recent.has(chain.turn)) this.#forget(chain.turn);
    chain.size = sizeOf(chain, chain.values !== undefined || chain.continued !== undefined);
    if (chain.size > MAX_LENGTH) return;
    this.#recent.set(chain.turn, chain);
    this.#length += chain.size;
    for (const turn of this.#recent.keys()) {
      if (this.#length <= MAX_LENGTH && this.#recent.size <= MAX_CHAINS) break;
      this.#forget(turn);
    }
  }

  #forget(turn: string): void {
    const chain = this.#recent.get(turn);
    if (!chain) return;
    this.#recent.delete(turn);
    this.#length -= chain.size;
  }
}

/** A text of a turn that was created after `oldest`, from all its rows; undefined if there is none. */
export function readText(
  tables: Tables,
  turn: string,
  column: Column,
  oldest = Number.NEGATIVE_INFINITY,
): string | undefined {
  const statement = `SELECT ${column} AS body FROM turns WHERE turn = ? AND created_at > ? ORDER BY part`;
  const rows = tables.rows<{ body: StoredCell | null }>("turns", statement, turn, oldest);
  return rows.length === 0 ? undefined : fromCells(rows.map(({ body }) => body));
}
