import type { ExpiresAfter } from "@responses-edge/responses-api/platform/vector-stores";
import type { Schema } from "../../objects/schema.ts";

export interface NewStore {
  id: string;
  name: string;
  description: string | null;
  metadata: Record<string, string> | null;
  expiresAfter: ExpiresAfter | null;
}

export interface StoreChange {
  name?: string | undefined;
  metadata?: Record<string, string> | null | undefined;
  expiresAfter?: ExpiresAfter | null | undefined;
}

/** The record of a store. Times are Unix seconds. */
export interface StoreRecord {
  id: string;
  name: string;
  description: string | null;
  metadata: Record<string, string> | null;
  createdAt: number;
  lastActiveAt: number;
  expiresAfter: ExpiresAfter | null;
  isExpired: boolean;
  /** The embedding of its first file, which all others share. */
  embedding: { model: string; dimensions: number } | null;
  /** Files up to this number are to be indexed again. */
  reindexUntil?: number | undefined;
  /** The size that the usage knows. Bytes. */
  notedBytes?: number | undefined;
  /** Since when a server that it needs has been unreachable, Unix milliseconds, and the number of attempts. */
  outage?: { since: number; failures: number } | undefined;
}

export const DAY_SECONDS = 86_400;

/** When a store expires, Unix seconds; null: never. */
export function expiryOf({ expiresAfter, lastActiveAt }: StoreRecord): number | null {
  return expiresAfter ? lastActiveAt + expiresAfter.days * DAY_SECONDS : null;
}

/** The row of the store. */
export class StoreRow {
  readonly #schema: Schema;
  #record: StoreRecord | null | undefined;

  constructor(schema: Schema) {
    this.#schema = schema;
  }

  /** Null if there is no store: it was deleted, never made, or is another tenant's. */
  get record(): StoreRecord | null {
    if (this.#record === undefined) {
      const [row] = this.#schema.rows<{ body: string }>("SELECT body FROM store");
      this.#record = row ? (JSON.parse(row.body) as StoreRecord) : null;
    }
    return this.#record;
  }

  write(record: StoreRecord): void {
    this.#schema.write("DELETE FROM store");
    this.#schema.write("INSERT INTO store (body) VALUES (?)", JSON.stringify(record));
    this.#record = record;
  }

  get outage(): StoreRecord["outage"] {
    return this.record?.outage;
  }

  set outage(outage: StoreRecord["outage"]) {
    if (this.record) this.write({ ...this.record, outage });
  }

  /** To be called when a transaction was rolled back, or everything was deleted. */
  forget(): void {
    this.#record = undefined;
  }
}
