import { runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { newTurnAddress, responseId, type TurnAddress } from "@responses-edge/responses-api/ids";
import { afterEach, expect, it } from "vitest";
import { entryOf, tagOf } from "../../src/store/tenant/response-index/entry.ts";
import type { ResponseIndex } from "../../src/store/tenant/response-index/response-index.ts";

/** The cost of the list of responses for each of them: rows that the index writes (docs/cost.md). */

let restore = () => {};
// Other files run in the same isolate.
afterEach(() => restore());

/** A response of about 500 tokens, as its home reports it. */
function entry(no: number, { home, turn }: TurnAddress = newTurnAddress(), createdAt = Date.now()) {
  const said = Array.from({ length: 380 }, (_, index) => `word${(index * (no + 7)) % 1_000}`).join(" ");
  const message = (role: string, part: object) => JSON.stringify([{ type: "message", role, content: [part] }]);
  const head = { status: "completed", model: "m", metadata: {}, conversation: null, created_at: 1, completed_at: 2 };
  const kept = {
    turn,
    createdAt,
    input: message("user", { type: "input_text", text: "Tell me something." }),
    output: message("assistant", { type: "output_text", text: said, annotations: [] }),
    response: JSON.stringify({ ...head, id: responseId({ home, turn }) }),
    timing: null,
  };
  return entryOf(home, kept, () => false);
}

/** Runs a test with an index that has tables, and gives the sum of a figure of all statements since the last call. */
function withCounts(
  name: string,
  test: (index: ResponseIndex, sum: (figure: "rowsWritten" | "rowsRead") => number) => Promise<void>,
): Promise<void> {
  return runInDurableObject(env.RESPONSE_INDEXES.getByName(name), async (index, { storage }) => {
    await index.take([entry(0)], []);
    const prototype = Object.getPrototypeOf(storage.sql) as SqlStorage;
    const { exec } = prototype;
    restore = () => {
      prototype.exec = exec;
    };
    const cursors: Pick<SqlStorageCursor<never>, "rowsWritten" | "rowsRead">[] = [];
    prototype.exec = function (this: SqlStorage, query: string, ...given: unknown[]) {
      const cursor = exec.call(this, query, ...given);
      if (this === storage.sql) cursors.push(cursor);
      return cursor;
    } as SqlStorage["exec"];
    await test(index, (figure) => cursors.splice(0).reduce((sum, cursor) => sum + cursor[figure], 0));
  });
}

it("a response costs four rows when it is listed, five when it changes, and three when it is removed", async () => {
  await withCounts("cost", async (index, sum) => {
    const entries = Array.from({ length: 32 }, (_, no) => entry(no + 1));
    for (const each of entries) await index.take([each], []);
    expect(sum("rowsWritten")).toBe(4 * entries.length);
    for (const each of entries) await index.take([each], []);
    expect(sum("rowsWritten")).toBe(5 * entries.length);
    await index.take(
      [],
      entries.map(({ id }) => id),
    );
    expect(sum("rowsWritten")).toBe(3 * entries.length);
  });
});

it("so does a response that joins a tree, whichever of the tree is removed first", async () => {
  await withCounts("joined", async (index, sum) => {
    const { home } = newTurnAddress();
    const entries = Array.from({ length: 32 }, (_, no) => entry(no, newTurnAddress(home)));
    for (const each of entries) await index.take([each], []);
    expect(sum("rowsWritten")).toBe(4 * entries.length);
    for (const { id } of [...entries.slice(16).reverse(), ...entries.slice(0, 16)]) await index.take([], [id]);
    expect(sum("rowsWritten")).toBe(3 * entries.length);
  });
});

it("a page of trees reads a few rows for each, however many responses they have", async () => {
  await withCounts("page", async (index, sum) => {
    const homes = Array.from({ length: 8 }, () => newTurnAddress().home);
    const began = Date.now() - 1_000;
    for (let turn = 0; turn < 100; turn += 1) {
      const entries = homes.map((home) => entry(turn, newTurnAddress(home), began + turn));
      await index.take(entries, []);
    }
    sum("rowsRead");
    const all = { order: "desc", limit: 8, tags: [], from: 0, until: Number.POSITIVE_INFINITY } as const;
    expect(index.listTrees(all)?.map(({ responses }) => responses)).toEqual([1, ...homes.slice(1).map(() => 100)]);
    expect(sum("rowsRead")).toBe(4 * all.limit);
    // More responses match than trees are looked up for.
    expect(index.listTrees({ ...all, tags: [tagOf("model", "m")] })).toEqual(index.listTrees(all));
  });
});
