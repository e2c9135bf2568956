import type { ApiObject } from "./json.ts";
import type { Transport } from "./sending.ts";

/** A chat: a tree of turns, and the path through it that the next request continues. */

/** A request and its response, as the tab keeps them over a reload. */
export interface Turn {
  /** its name on this page: the response's id, where the turn comes from the store */
  key: string;
  /** the key of the turn that it continues */
  parent?: string;
  /** of the response */
  id?: string;
  /** the input as text, for people */
  text: string;
  /** the turn's own input; absent where only the store has it */
  items?: ApiObject[];
  /** the request without its input and without what it continues; absent after a reload if it is long or has a token */
  fields?: ApiObject;
  model: string;
  /** Unix milliseconds */
  createdAt: number;
  transport: Transport;
  isStored: boolean;
  /** true until the response has ended */
  isOpen: boolean;
  /** of the response, when it is known */
  status?: string;
  /** the beginning of the answer, where it is known */
  answered?: string;
  /** true if the user has taken the turn out of the chat */
  isDropped?: boolean;
  /** true if nothing of the turn is stored or known to this page, so that no request can continue it */
  isLost?: boolean;
  /** true if an earlier turn, which it continues, was deleted: the server cannot continue it by its id */
  isOrphan?: boolean;
  /** true if the connection broke before the response ended, so that only the server knows its result */
  isCut?: boolean;
  /** how the turn ended, if its response does not show it */
  note?: string;
  /** the reason of its failure, if its response does not have it */
  fault?: string;
  /** the same for two turns of two models, which were asked at once */
  pair?: string;
}

/** A chat on the page, and what its turns do with it. */
export interface ChatOnPage {
  readonly chat: Chat;
  /** Keeps what has changed. */
  changed: () => void;
  /** Puts another turn in the place of this one: with this input, or the same. */
  again: (turn: Turn, text?: string) => void;
  /** Sends new input after a turn. */
  goOn: (turn: Turn, items: ApiObject[], text: string) => void;
  /** Puts a branch beside a turn, in which a call has another output. */
  fork: (turn: Turn, at: string, output: string) => void;
  /** Lets the path lead through a turn. `isEnd`: and end there. */
  show: (turn: Turn, isEnd?: boolean) => void;
  /** The whole body of the turn's request. */
  bodyOf: (turn: Turn) => ApiObject;
}

/** The part of a request that says what it continues. */
export interface Continuation {
  previous?: string;
  /** turns that the server does not store, as items before the new input */
  items: ApiObject[];
}

/** A turn in its place in the tree. */
export interface Row {
  turn: Turn;
  /** 1 for a turn that begins the chat */
  depth: number;
  /** grows only below a turn with several continuations, so that a long conversation stays straight */
  indent: number;
  /** among the turns that continue the same one, from 0 */
  index: number;
  /** the number of those turns, and of its own continuations */
  siblings: number;
  children: number;
}

export class Chat {
  #turns = new Map<string, Turn>();
  /** The turns that continue one, oldest first; those that begin the chat under undefined. */
  #children = new Map<string | undefined, Turn[]>();
  /**
   * The choices that a reload restores: which of its continuations the path takes, by key ("" for the beginning of the chat), and the
   * turn at which the path ends, although others continue it.
   */
  choices: { chosen: Record<string, string>; end?: string } = { chosen: {} };

  /** @param turns oldest first; one may stand before the turn that it continues */
  constructor(turns: readonly Turn[] = []) {
    for (const turn of turns) this.#turns.set(turn.key, turn);
    for (const turn of turns) this.add(turn);
  }

  get turns(): Iterable<Turn> {
    return this.#turns.values();
  }

  get size() {
    return this.#turns.size;
  }

  get(key: string): Turn | undefined {
    return this.#turns.get(key);
  }

  /** The turn whose response has an id. */
  ofResponse(id: string): Turn | undefined {
    return this.#turns.get(id) ?? [...this.#turns.values()].find((turn) => turn.id === id);
  }

  /** Adds a turn. The path takes it only when it is chosen. A turn whose parent is unknown begins the chat. */
  add(turn: Turn) {
    if (turn.parent !== undefined && !this.#turns.has(turn.parent)) turn.parent = undefined;
    this.#turns.set(turn.key, turn);
    const siblings = this.#children.get(turn.parent) ?? [];
    siblings.push(turn);
    this.#children.set(turn.parent, siblings);
  }

  parentOf({ parent }: Turn): Turn | undefined {
    return parent === undefined ? undefined : this.#turns.get(parent);
  }

  /** All turns that continue the same one, and the turn itself; oldest first. */
  siblingsOf({ parent }: Turn): readonly Turn[] {
    return this.#children.get(parent) ?? [];
  }

  childrenOf(turn: Turn | undefined): readonly Turn[] {
    return this.#children.get(turn?.key) ?? [];
  }

  /**
   * The turns from top to bottom, each before those that continue it.
   * @param closed keys of turns whose continuations are left out
   */
  rows(closed: ReadonlySet<string> = new Set()): Row[] {
    const rows: Row[] = [];
    const below = (turn: Turn | undefined, depth: number, indent: number) => {
      const all = this.childrenOf(turn);
      const rowOf = (each: Turn, index: number): Row => {
        const children = this.childrenOf(each).length;
        return { turn: each, depth, indent, index, siblings: all.length, children };
      };
      return all.map(rowOf).reverse();
    };
    const waiting = below(undefined, 1, 0);
    for (let row = waiting.pop(); row; row = waiting.pop()) {
      rows.push(row);
      if (closed.has(row.turn.key)) continue;
      waiting.push(...below(row.turn, row.depth + 1, row.indent + (row.children > 1 ? 1 : 0)));
    }
    return rows;
  }

  /** The turns from the root to one. */
  pathTo(turn: Turn | undefined): Turn[] {
    const path: Turn[] = [];
    for (let at = turn; at; at = this.parentOf(at)) path.push(at);
    return path.reverse();
  }

  /** The path from the root to where the next request goes on. It takes the newest continuation of a turn unless another one was chosen. */
  path(): Turn[] {
    const path: Turn[] = [];
    for (let at: Turn | undefined; ; ) {
      const children: readonly Turn[] = this.childrenOf(at);
      const chosen = this.choices.chosen[at?.key ?? ""];
      at = children.find(({ key }) => key === chosen) ?? children.at(-1);
      if (!at) return path;
      path.push(at);
      if (at.key === this.choices.end) return path;
    }
  }

  /** Lets the path lead through a turn. `isEnd`: and end there. */
  choose(turn: Turn, isEnd = false) {
    for (const { key, parent } of this.pathTo(turn)) this.choices.chosen[parent ?? ""] = key;
    this.choices.end = isEnd && this.childrenOf(turn).length > 0 ? turn.key : undefined;
  }
}

/** How the next request makes the model see a turn: by its response's id, by its items, or not at all. */
export function seenBy(turn: Turn): "id" | "items" | "nothing" {
  if (turn.isDropped || turn.isLost) return "nothing";
  if (turn.isStored && !turn.isOrphan) return turn.id === undefined ? "nothing" : "id";
  const canBeRead = turn.items !== undefined || turn.isOrphan;
  return canBeRead && turn.id !== undefined ? "items" : "nothing";
}

/**
 * The fields and items by which a request continues a path. Turns that the model cannot see are left out.
 * @param outputOf gives the output items of a turn that is not stored
 */
export function continuationOf(path: readonly Turn[], outputOf: (turn: Turn) => ApiObject[]): Continuation {
  const at = path.findLastIndex((turn) => seenBy(turn) === "id");
  const previous = path[at]?.id;
  const items = path
    .slice(at + 1)
    .filter((turn) => seenBy(turn) === "items")
    .flatMap((turn) => [...(turn.items ?? []), ...outputOf(turn)]);
  return { ...(previous !== undefined && { previous }), items };
}

/** The body of a request that continues a path. A lone text stays one. */
export function bodyOfTurn(fields: ApiObject, items: readonly ApiObject[], { previous, items: earlier }: Continuation) {
  const [first] = items;
  const isText =
    earlier.length === 0 && items.length === 1 && first?.role === "user" && typeof first.content === "string";
  return {
    ...fields,
    ...(previous !== undefined && { previous_response_id: previous }),
    input: isText ? first.content : [...earlier, ...items],
  };
}

/** The items of an answer that a request may repeat: no call that nothing answers, and no thought that nothing follows. */
export function repeatable(output: readonly ApiObject[], answered: ReadonlySet<string>): ApiObject[] {
  const kept = output.filter((item) => {
    if (item.type === "message") return item.content?.some((part: ApiObject) => part.text || part.refusal);
    return item.call_id === undefined || item.type.endsWith("_output") || answered.has(item.call_id);
  });
  const end = kept.findLastIndex(({ type }) => type !== "reasoning");
  return kept.slice(0, end + 1);
}

/** The fields of a request like the one that a response had, as far as the response tells them. */
export function fieldsOf(response: ApiObject): ApiObject {
  const { model, instructions, tools, tool_choice: choice, reasoning, text } = response;
  const { max_output_tokens: most, temperature, top_p: topP } = response;
  return {
    model,
    ...(instructions && { instructions }),
    ...(tools?.length > 0 && { tools }),
    ...(choice !== undefined && choice !== "auto" && { tool_choice: choice }),
    ...(reasoning?.effort && { reasoning: { effort: reasoning.effort } }),
    ...(text?.format && text.format.type !== "text" && { text: { format: text.format } }),
    ...(typeof most === "number" && { max_output_tokens: most }),
    ...(typeof temperature === "number" && temperature !== 1 && { temperature }),
    ...(typeof topP === "number" && topP !== 1 && { top_p: topP }),
  };
}
