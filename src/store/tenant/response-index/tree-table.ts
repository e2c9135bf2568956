import type { Schema } from "../../objects/schema.ts";
import { treeTag } from "./entry.ts";
import { firstNumber, tagged, unexpired } from "./index-query.ts";

/**
 * The trees of the listed responses: a row for each tree, whose key is the number of its newest response, which is the order of the list
 * of trees. The tag of the tree, which each of its responses has in the index of words, leads to its other responses.
 */

// A response that joins a tree changes the key of the tree's row: one row written. An index on a name of the tree would be a second one.
export const TREE_TABLE = "CREATE TABLE tree (newest INTEGER PRIMARY KEY, responses INTEGER NOT NULL)";

/** The number of the newest listed response of a tree, expired or not; undefined if none is listed. */
export function newestOf(schema: Schema, tag: string): number | undefined {
  return firstNumber(schema, { ...unexpired(0), words: tagged(tag) }, "desc");
}

interface ChangedTree {
  /** The number of the newest response before the change; undefined for a new tree. */
  before: number | undefined;
  /** The same now; undefined if that response was removed. */
  newest: number | undefined;
  /** Added responses, less the removed ones. */
  more: number;
}

/**
 * The changes of one transaction to the trees of responses. It reads all trees before the first change, because FTS5 ends a segment of
 * its index where a query follows a write.
 */
export class TreeChanges {
  readonly #schema: Schema;
  readonly #trees = new Map<string, ChangedTree>();

  /** `ids`: the responses that the transaction may add or remove. */
  constructor(schema: Schema, ids: readonly string[]) {
    this.#schema = schema;
    for (const tag of new Set(ids.map(treeTag))) {
      const before = newestOf(schema, tag);
      this.#trees.set(tag, { before, newest: before, more: 0 });
    }
  }

  /** Notes that a response was added. */
  add(id: string, no: number): void {
    const tree = this.#trees.get(treeTag(id));
    if (!tree) return;
    tree.more += 1;
    tree.newest = Math.max(tree.newest ?? no, no);
  }

  /** Notes that a response was removed. */
  remove(id: string, no: number): void {
    const tree = this.#trees.get(treeTag(id));
    if (!tree) return;
    tree.more -= 1;
    if (tree.newest === no) tree.newest = undefined;
  }

  /** Writes the changed trees. To be called when all responses are written. */
  write(): void {
    for (const [tag, { before, more, ...tree }] of this.#trees) {
      if (more === 0 && tree.newest === before) continue;
      const newest = tree.newest ?? newestOf(this.#schema, tag);
      if (newest === undefined) this.#schema.write("DELETE FROM tree WHERE newest = ?", before ?? -1);
      else if (before === undefined) {
        this.#schema.write("INSERT INTO tree (newest, responses) VALUES (?, ?)", newest, more);
      } else {
        const change = "UPDATE tree SET newest = ?, responses = responses + ? WHERE newest = ?";
        this.#schema.write(change, newest, more, before);
      }
    }
  }
}
