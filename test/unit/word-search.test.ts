import { runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { expect, it } from "vitest";
import { Schema } from "../../src/store/objects/schema.ts";
import { VECTOR_STORE_TABLES } from "../../src/store/tenant/vector-stores/tables.ts";
import { chunksByWords } from "../../src/store/tenant/vector-stores/word-search.ts";

/** The results of a query's words, and the number of matches that are ranked. */

const CHUNKS = 12_000;

/** Searches a store in which each chunk has "common" and "usual", two in three "frequent", and three chunks "rare". */
function searchIn(query: string, depth = 5): Promise<{ found: number[]; statements: string[] }> {
  return runInDurableObject(env.VECTOR_STORES.getByName(`tenant:${crypto.randomUUID()}`), async (_, { storage }) => {
    const schema = new Schema(storage, VECTOR_STORE_TABLES);
    schema.open();
    const numbers = `WITH RECURSIVE n (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < ${CHUNKS})`;
    schema.write(
      `INSERT INTO file (id, status, bytes, created_at, chunking, owner, pending, is_read) VALUES ('a', 'completed', 0, 0, '', '', 0, 1)`,
    );
    schema.write(`INSERT INTO chunk (id, file, seq, is_indexed, text) ${numbers} SELECT id, 1, id, 1, '' FROM n`);
    schema.write(
      `INSERT INTO words (rowid, text) ${numbers}
       SELECT id, 'common usual' || iif(id % 3, ' frequent', '') || iif(id % 5000 = 4000, ' rare', '') FROM n`,
    );
    const statements: string[] = [];
    const watched = new Proxy(schema, {
      get(target, name) {
        if (name !== "rows") return Reflect.get(target, name);
        return (statement: string, ...bindings: SqlStorageValue[]) => {
          if (/rank/.test(statement)) statements.push(`${bindings[0]} ${/LIMIT (\d+)/.exec(statement)?.[1] ?? "all"}`);
          return target.rows(statement, ...bindings);
        };
      },
    });
    const found = await chunksByWords(watched, query, { files: undefined, depth }, async () => {});
    return { found, statements };
  });
}

it("common words beside a rare one cause no ranking", async () => {
  const { found, statements } = await searchIn("common rare usual");
  expect(found).toEqual([9_000, 4_000]);
  expect(statements).toEqual(['"rare" all']);
});

it("common words alone find chunks with all of them, among a bounded number", async () => {
  const { found, statements } = await searchIn("frequent common");
  expect(found).toHaveLength(5);
  for (const id of found) expect(id % 3).not.toBe(0);
  expect(statements).toEqual(['"frequent" AND "common" 2000']);
});

it("common words that no chunk has together find the results of each", async () => {
  const { found, statements } = await searchIn("frequent common", 8_000);
  expect(found).toHaveLength(2_000);
  expect(statements.at(-1)).toBe('"frequent" 2000');
});

it("an absent word finds nothing, and ranks nothing", async () => {
  expect(await searchIn("nowhere")).toEqual({ found: [], statements: [] });
});
