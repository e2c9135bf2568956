import type { Schema } from "./schema.ts";

/**
 * How often the process of an object has died in the middle of its alarm's work, by the pieces of work that were in progress. A piece
 * that always ends its process is found so: the next instance works on one suspect at a time, and gives up what is left
 * of them in the end. An instance that ends without work in progress, or is handed over, has not died.
 */

export const DEATHS_TABLE = "CREATE TABLE death (key TEXT NOT NULL PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID";

/** The row that is there while work is in progress. Its count is the number of pieces that may be in progress together. */
const IN_PROGRESS = "";

/** From this number of deaths on, pieces are worked on one at a time. One death is most often a stop. */
const ALONE_FROM = 2;

/** A piece of work with more deaths has ended them. */
const MAX_DEATHS = 5;

/** Says why a piece of work was given up. `what` begins a sentence: "The file". */
export function diedOf(what: string): string {
  return `${what} was given up: the server's process died ${MAX_DEATHS + 1} times while it worked on it.`;
}

export class Deaths {
  readonly #schema: Schema;
  /** The deaths of pieces that are not done. */
  readonly #counts = new Map<string, number>();

  constructor(schema: Schema) {
    this.#schema = schema;
  }

  /**
   * Begins work on `together` pieces at a time. `first` gives the keys of the first pieces of work that are not done, at most `limit`: if
   * an earlier process has died, it has died in the middle of those. To be called within a transaction that is on the disk
   * before the work begins.
   */
  begin(together: number, first: (limit: number) => readonly string[]): void {
    const rows = this.#schema.rows<{ key: string; count: number }>("SELECT key, count FROM death");
    this.#counts.clear();
    for (const { key, count } of rows) if (key !== IN_PROGRESS) this.#counts.set(key, count);
    const before = rows.find(({ key }) => key === IN_PROGRESS)?.count;
    if (before !== undefined) for (const key of first(before)) this.#set(key, this.of(key) + 1);
    if (this.#counts.size > 0) {
      const left = new Set(first(Math.max(together, this.#counts.size)));
      // Some pieces end otherwise, as by a cancellation.
      for (const key of this.#counts.keys()) if (!left.has(key)) this.done(key);
    }
    this.#write(IN_PROGRESS, this.isAlone ? 1 : together);
  }

  /** The number of deaths in the middle of a piece of work, or of others that were in progress at the same time. */
  of(key: string): number {
    return this.#counts.get(key) ?? 0;
  }

  /** Tells whether a piece of work is to be given up. */
  isOver(key: string): boolean {
    return this.of(key) > MAX_DEATHS;
  }

  /** True while one piece is to be worked on at a time. */
  get isAlone(): boolean {
    return this.#counts.values().some((count) => count >= ALONE_FROM);
  }

  /** Notes that a piece of work is done, or given up. */
  done(key: string): void {
    if (!this.#counts.delete(key)) return;
    this.#schema.write("DELETE FROM death WHERE key = ?", key);
  }

  /** Notes that the work ends, or may be cut off without blame. */
  end(): void {
    this.#schema.rows("DELETE FROM death WHERE key = ?", IN_PROGRESS);
  }

  #set(key: string, count: number): void {
    this.#counts.set(key, count);
    this.#write(key, count);
  }

  #write(key: string, count: number): void {
    this.#schema.write("INSERT OR REPLACE INTO death (key, count) VALUES (?, ?)", key, count);
  }
}
