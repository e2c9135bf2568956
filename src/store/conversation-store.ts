import { parseItemId } from "../protocol/ids.ts";
import type { Item } from "../protocol/items.ts";
import { MAX_PAGE_LENGTH } from "./limits.ts";
import type { Tables } from "./tables.ts";
import { concatArrays, type History, type ItemPage, type PageRequest, pageOf, type TurnStore } from "./turn-store.ts";

/**
 * The conversation that lives in a home: its own object, and its items, which are those of its turns in order. Items
 * that a client adds are a turn without a response.
 */

export interface Conversation {
  id: string;
  object: "conversation";
  /** Unix seconds. */
  created_at: number;
  metadata: Record<string, string>;
}

export class ConversationStore {
  readonly #sql: SqlStorage;
  readonly #tables: Tables;
  readonly #turns: TurnStore;

  constructor(sql: SqlStorage, tables: Tables, turns: TurnStore) {
    this.#sql = sql;
    this.#tables = tables;
    this.#turns = turns;
  }

  create(id: string, createdAt: number, metadata: Record<string, string>): void {
    this.#tables.make("conversation");
    this.#sql.exec(
      "INSERT INTO conversation (id, created_at, metadata) VALUES (?, ?, ?)",
      id,
      createdAt,
      JSON.stringify(metadata),
    );
  }

  /** The conversation, or null when there is none of that id. */
  get(id: string): Conversation | null {
    if (!this.#tables.has("conversation")) return null;
    const [row] = this.#sql
      .exec<{ id: string; created_at: number; metadata: string }>("SELECT * FROM conversation WHERE id = ?", id)
      .toArray();
    if (!row) return null;
    return {
      id: row.id,
      object: "conversation",
      created_at: Math.floor(row.created_at / 1000),
      metadata: JSON.parse(row.metadata) as Record<string, string>,
    };
  }

  exists(): boolean {
    return this.#tables.has("conversation") && this.#sql.exec("SELECT 1 FROM conversation").toArray().length > 0;
  }

  setMetadata(id: string, metadata: Record<string, string>): void {
    this.#sql.exec("UPDATE conversation SET metadata = ? WHERE id = ?", JSON.stringify(metadata), id);
  }

  /** Removes the conversation. Its turns are responses of their own, and stay until their time has come. */
  delete(id: string): void {
    this.#sql.exec("DELETE FROM conversation WHERE id = ?", id);
  }

  /** All items up to a position, oldest first, without those that were taken out, and the messages behind them. */
  history(upTo: number): History {
    const history = this.#turns.conversationHistory(upTo);
    const deleted = this.#deleted();
    if (deleted.size === 0) return history;
    const items = JSON.parse(history.items) as Item[];
    const left = items.filter((item) => item.id === undefined || !deleted.has(item.id));
    return { items: JSON.stringify(left), messages: history.messages };
  }

  /** A page of items, or undefined when none has the id `after`. Only the turns that the page touches are read. */
  page(request: PageRequest): ItemPage | undefined {
    const deleted = this.#deleted();
    const items: Item[] = [];
    let length = 0;
    let found = request.after === undefined;
    const first = request.after === undefined ? undefined : parseItemId(request.after)?.turn;
    for (const turn of this.#turns.conversationTurns(request.order)) {
      if (!found && turn !== first) continue;
      const turnItems = this.#turnItems(turn);
      if (request.order === "desc") turnItems.reverse();
      if (!found) {
        // The last item of a page may have been taken out since.
        const at = turnItems.findIndex((item) => item.id === request.after);
        if (at === -1) continue;
        found = true;
        turnItems.splice(0, at + 1);
      }
      for (const item of turnItems) {
        if (item.id !== undefined && deleted.has(item.id)) continue;
        length += JSON.stringify(item).length;
        items.push(item);
        // One more than the page has: it tells that there is more.
        if (items.length > request.limit || (length > MAX_PAGE_LENGTH && items.length > 1)) break;
      }
      if (items.length > request.limit || (length > MAX_PAGE_LENGTH && items.length > 1)) break;
    }
    if (!found) return undefined;
    return pageOf(items, { limit: request.limit, order: request.order });
  }

  /** An item, or undefined when the conversation has none of that id. */
  item(id: string): Item | undefined {
    // An id of the conversation's names the turn that the item is in.
    const turn = parseItemId(id)?.turn;
    if (turn === undefined || this.#deleted().has(id) || !this.#turns.isInConversation(turn)) return undefined;
    return this.#turnItems(turn).find((candidate) => candidate.id === id);
  }

  /** Whether an item was taken out. */
  hasDeleted(id: string): boolean {
    if (!this.#tables.has("deleted_items")) return false;
    return this.#sql.exec("SELECT 1 FROM deleted_items WHERE id = ?", id).toArray().length > 0;
  }

  deleteItem(id: string): void {
    this.#tables.make("deleted_items");
    this.#sql.exec("INSERT INTO deleted_items (id) VALUES (?)", id);
  }

  #turnItems(turn: string): Item[] {
    const input = this.#turns.items(turn, "input", -1) ?? "[]";
    const output = this.#turns.items(turn, "output", -1) ?? "[]";
    return JSON.parse(concatArrays([input, output])) as Item[];
  }

  #deleted(): Set<string> {
    if (!this.#tables.has("deleted_items")) return new Set();
    return new Set(
      this.#sql
        .exec<{ id: string }>("SELECT id FROM deleted_items")
        .toArray()
        .map((row) => row.id),
    );
  }
}
