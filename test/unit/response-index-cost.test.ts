import { runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { newTurnAddress, responseId } from "@responses-edge/responses-api/ids";
import { afterEach, expect, it } from "vitest";
import { entryOf } from "../../src/store/tenant/response-index/entry.ts";

/** The cost of the list of responses for each of them: rows that the index writes (docs/cost.md). */

let restore = () => {};
// Other files run in the same isolate.
afterEach(() => restore());

/** A response of about 500 tokens, as its home reports it. */
function entry(no: number) {
  const { home, turn } = newTurnAddress();
  const said = Array.from({ length: 380 }, (_, index) => `word${(index * (no + 7)) % 1_000}`).join(" ");
  const message = (role: string, part: object) => JSON.stringify([{ type: "message", role, content: [part] }]);
  const head = { status: "completed", model: "m", metadata: {}, conversation: null, created_at: 1, completed_at: 2 };
  const kept = {
    turn,
    createdAt: Date.now(),
    input: message("user", { type: "input_text", text: "Tell me something." }),
    output: message("assistant", { type: "output_text", text: said, annotations: [] }),
    response: JSON.stringify({ ...head, id: responseId({ home, turn }) }),
  };
  return entryOf(home, kept, () => false);
}

it("a response costs three rows when it is listed, and two when it is removed", async () => {
  await runInDurableObject(env.RESPONSE_INDEXES.getByName("cost"), async (index, { storage }) => {
    // The first response has created the tables.
    await index.take([entry(0)], []);
    const prototype = Object.getPrototypeOf(storage.sql) as SqlStorage;
    const { exec } = prototype;
    restore = () => {
      prototype.exec = exec;
    };
    const cursors: { rowsWritten: number }[] = [];
    prototype.exec = function (this: SqlStorage, query: string, ...given: unknown[]) {
      const cursor = exec.call(this, query, ...given);
      if (this === storage.sql) cursors.push(cursor);
      return cursor;
    } as SqlStorage["exec"];
    const written = () => cursors.splice(0).reduce((sum, { rowsWritten }) => sum + rowsWritten, 0);
    const entries = Array.from({ length: 32 }, (_, no) => entry(no + 1));
    for (const each of entries) await index.take([each], []);
    expect(written()).toBe(3 * entries.length);
    await index.take(
      [],
      entries.map(({ id }) => id),
    );
    expect(written()).toBe(2 * entries.length);
  });
});
