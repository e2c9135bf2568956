import { type ApiError, notFound } from "@responses-edge/responses-api/errors";
import { parseItemId } from "@responses-edge/responses-api/ids";
import type { Item } from "@responses-edge/responses-api/items/registry";
import { MAX_PAGE_LENGTH } from "../objects/rpc.ts";
import { concatArrays, KnownHistory } from "./history.ts";
import type { Tables } from "./tables.ts";
import type { TurnStore } from "./turn-store.ts";

/** Pages of items, for `GET …/items` and `GET …/input_items`, and of the nodes of a tree. */

export interface PageRequest {
  limit: number;
  order: "asc" | "desc";
  /** The id of the item before the page. */
  after?: string;
}

/** A page of items; `data` is the JSON text of their array. */
export interface ItemPage {
  data: string;
  firstId: string | null;
  lastId: string | null;
  hasMore: boolean;
}

/** The first `limit` (1 or more) of the items, or fewer if they are large. The items are in the order of the page. */
export function pageOf(items: readonly { id?: string | undefined }[], limit: number): ItemPage {
  const data: string[] = [];
  let length = 0;
  for (const item of items.slice(0, limit)) {
    const json = JSON.stringify(item);
    length += json.length;
    if (data.length > 0 && length > MAX_PAGE_LENGTH) break;
    data.push(json);
  }
  return {
    data: `[${data.join(",")}]`,
    firstId: items[0]?.id ?? null,
    lastId: items[data.length - 1]?.id ?? null,
    hasMore: items.length > data.length,
  };
}

/** The 400 of a page after an item that is not in the list. */
export function unknownCursor(after: string): ApiError {
  return notFound("Item", after, "after", { status: 400 });
}

/**
 * Access to single items: by id, removal from the conversation, and pages. An item's id names its turn and whether it
 * is input or output, so that no other turn is read.
 *
 * Only this file decides whether an item exists for a caller: it does not if it was removed from the conversation. If
 * it is asked for by id, it does not either if its turn has expired (`turn-store.ts`).
 */
export class ItemStore {
  readonly #tables: Tables;
  readonly #turns: TurnStore;

  constructor(tables: Tables, turns: TurnStore) {
    this.#tables = tables;
    this.#turns = turns;
  }

  /**
   * The items of a turn with the given ids, as JSON texts by id. Input and output are each read at most once. `read` is
   * the length of what was read, in UTF-16 units.
   */
  ofTurn(turn: string, ids: ReadonlySet<string>): { found: Map<string, string>; read: number } {
    const found = new Map<string, string>();
    let read = 0;
    for (const side of sidesOf(ids)) {
      const body = this.#turns.items(turn, side);
      if (body === undefined) break;
      read += body.length;
      for (const item of JSON.parse(body) as Item[]) {
        if (item.id === undefined || !ids.has(item.id) || found.has(item.id) || this.isTakenOut(item.id)) continue;
        found.set(item.id, JSON.stringify(item));
      }
    }
    return { found, read };
  }

  /** An item of the conversation; undefined if it has none with that id. */
  ofConversation(id: string): Item | undefined {
    const address = parseItemId(id);
    if (!address || this.isTakenOut(id) || !this.#turns.isInConversation(address.turn)) return undefined;
    const items = JSON.parse(this.#turns.conversationItems(address.turn, address.side) ?? "[]") as Item[];
    return items.find((item) => item.id === id);
  }

  /** Removes an item from the conversation. A repeated call is harmless. */
  delete(id: string): void {
    this.#tables.write("deleted_items", "INSERT INTO deleted_items (id) VALUES (?) ON CONFLICT DO NOTHING", id);
  }

  /** The conversation up to a position, without removed items. */
  history(upTo: number): KnownHistory {
    const history = this.#turns.conversationHistory(upTo);
    const deleted = this.takenOut();
    if (deleted.size === 0) return history;
    const { items, messages } = history.texts;
    const left = (JSON.parse(items) as Item[]).filter(({ id }) => id === undefined || !deleted.has(id));
    return KnownHistory.of({ items: JSON.stringify(left), messages });
  }

  /**
   * A page of the conversation's items; undefined if no item has the id `after`. That item may have been removed in the
   * meantime. Reads only the turns of the page.
   */
  page({ limit, order, after }: PageRequest): ItemPage | undefined {
    const first = after === undefined ? undefined : parseItemId(after)?.turn;
    if (after !== undefined && (first === undefined || !this.#turns.isInConversation(first))) return undefined;
    const deleted = this.takenOut();
    const items: Item[] = [];
    let length = 0;
    for (const turn of this.#turns.conversationTurns(order, first)) {
      const input = this.#turns.conversationItems(turn, "input") ?? "[]";
      const output = this.#turns.conversationItems(turn, "output") ?? "[]";
      const turnItems = JSON.parse(concatArrays([input, output])) as Item[];
      if (order === "desc") turnItems.reverse();
      if (turn === first) {
        const at = turnItems.findIndex((item) => item.id === after);
        if (at === -1) return undefined;
        turnItems.splice(0, at + 1);
      }
      for (const item of turnItems) {
        if (item.id !== undefined && deleted.has(item.id)) continue;
        length += JSON.stringify(item).length;
        items.push(item);
        // One more than the page has, to show that there are more.
        if (items.length > limit || (length > MAX_PAGE_LENGTH && items.length > 1)) return pageOf(items, limit);
      }
    }
    return pageOf(items, limit);
  }

  /** Tells whether an item was removed from the conversation. */
  isTakenOut(id: string): boolean {
    return this.#tables.rows("deleted_items", "SELECT 1 FROM deleted_items WHERE id = ?", id).length > 0;
  }

  /** Ids of the items that were removed from the conversation. */
  takenOut(): Set<string> {
    const rows = this.#tables.rows<{ id: string }>("deleted_items", "SELECT id FROM deleted_items");
    return new Set(rows.map(({ id }) => id));
  }
}

/** Where the items of these ids are: in the turn's input or its output. An id that does not say may be in either. */
function sidesOf(ids: ReadonlySet<string>): Set<"input" | "output"> {
  const sides = new Set<"input" | "output">();
  for (const id of ids) {
    const side = parseItemId(id)?.side;
    for (const each of side ? [side] : (["output", "input"] as const)) sides.add(each);
  }
  return sides;
}
