import { fromCell, fromCells, mayContinue, type StoredCell } from "../objects/row-pieces.ts";
import { concatArrays, KnownHistory, MAX_LENGTH, NO_HISTORY, type ReadHistory, type TurnTexts } from "./history.ts";
import { KnownConversation } from "./known-conversation.ts";
import type { Tables } from "./tables.ts";

/**
 * The chains of turns that continue each other by `parent`. The most recently continued ones stay in memory, because
 * the next turn most often continues one of them. They stay valid, because rows never change.
 */

/** A turn as a link of a chain. Its texts are JSON; `response` lacks `output`. */
export interface ChainedTurn extends TurnTexts {
  turn: string;
  /** The turn that this one continues, in the same home. */
  parent: string | null;
  /** Unix milliseconds. */
  createdAt: number;
  /** The last position of the conversation that this turn saw; null outside a conversation. */
  base: number | null;
  /** Null if only the items are stored, in their conversation: the response was deleted, or has `store: false`. */
  response: string | null;
}

/** A turn with all earlier ones. */
interface Chain {
  turn: string;
  /** True if it was read from rows: its turn is no longer the last one, or its home was opened again. */
  wasRead: boolean;
  /** True if an answer of its home has said that the turn is stored. Before that its commit may still fail. */
  isTold: boolean;
  /** Its part of `MAX_LENGTH` while it is kept. */
  size: number;
  /** When the turn was created, Unix milliseconds. */
  createdAt: number;
  /** The position in its conversation at which the chain begins, if it began in one. */
  base: number | null;
  history: KnownHistory;
}

/**
 * Most chains: two for each tree that a home may have. Where branches begin again and again at one response, its chain must outlast
 * the newest branches of all trees.
 */
const MAX_CHAINS = 128;

/** A column of `turns` with a text. */
export type Column = "input" | "output" | "messages" | "response" | "log";

type ChainRow = Pick<ChainedTurn, "turn" | "parent" | "createdAt" | "base"> &
  Record<"input" | "output", StoredCell> & { messages: StoredCell | null };

/** The histories in a home's memory. */
export class Chains {
  readonly conversation = new KnownConversation();
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
    const values = chain.history.values();
    this.#keep(chain);
    return values;
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
  add(added: ChainedTurn & { position: number | null }): void {
    const { turn, parent, createdAt, base, response, position } = added;
    if (position !== null) this.conversation.add(added, position);
    const before = parent === null ? undefined : this.#recent.get(parent);
    if (response === null || (parent !== null && !before)) return;
    if (before && !before.wasRead) this.#forget(before.turn);
    this.#keep({
      turn,
      wasRead: false,
      isTold: false,
      size: 0,
      createdAt,
      base: before ? before.base : base,
      history: (before?.history ?? NO_HISTORY).continuedBy(added),
    });
  }

  /** To be called when rows were taken out, or a transaction was rolled back. */
  forget(): void {
    this.#recent.clear();
    this.#length = 0;
    this.conversation.forget();
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
      size: 0,
      createdAt: newest.createdAt,
      base: root.base,
      history: KnownHistory.of({ items: concatArrays(items), messages: concatArrays(messages) }),
    };
  }

  /** Keeps a chain as the most recent one, if memory allows. */
  #keep(chain: Chain): void {
    if (this.#recent.has(chain.turn)) this.#forget(chain.turn);
    chain.size = chain.history.size;
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
