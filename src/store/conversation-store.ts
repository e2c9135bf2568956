import type { Tables } from "./tables.ts";

/** The object of the conversation that lives in a home. Its items are those of its turns (`item-store.ts`). */

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

  constructor(sql: SqlStorage, tables: Tables) {
    this.#sql = sql;
    this.#tables = tables;
  }

  /** `createdAt` in Unix milliseconds. `owner`: the key that stores it, where what is stored is counted (`home-stored.ts`). */
  create(id: string, createdAt: number, metadata: Record<string, string>, owner?: string | null): Conversation {
    this.#tables.make("conversation");
    this.#sql.exec(
      "INSERT INTO conversation (id, created_at, metadata, owner) VALUES (?, ?, ?, ?)",
      id,
      createdAt,
      JSON.stringify(metadata),
      owner ?? null,
    );
    return conversationObject(id, createdAt, metadata);
  }

  /** The conversation, or null when there is none of that id. */
  get(id: string): Conversation | null {
    if (!this.#tables.has("conversation")) return null;
    const [row] = this.#sql
      .exec<{ id: string; created_at: number; metadata: string }>("SELECT * FROM conversation WHERE id = ?", id)
      .toArray();
    return row ? conversationObject(row.id, row.created_at, JSON.parse(row.metadata) as Record<string, string>) : null;
  }

  /** The conversation, whatever its id; null when there is none. */
  only(): Conversation | null {
    if (!this.#tables.has("conversation")) return null;
    const [row] = this.#sql.exec<{ id: string }>("SELECT id FROM conversation").toArray();
    return row ? this.get(row.id) : null;
  }

  /** When the conversation was created, Unix milliseconds; 0 when there is none of that id. */
  createdAt(id: string): number {
    if (!this.#tables.has("conversation")) return 0;
    const rows = this.#sql.exec<{ at: number }>("SELECT created_at AS at FROM conversation WHERE id = ?", id).toArray();
    return rows[0]?.at ?? 0;
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
}

function conversationObject(id: string, createdAt: number, metadata: Record<string, string>): Conversation {
  return { id, object: "conversation", created_at: Math.floor(createdAt / 1000), metadata };
}
