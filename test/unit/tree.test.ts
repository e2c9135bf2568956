import { runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { parseJsonPrefix } from "@responses-edge/bounded-io/json-text";
import { newSharedHome, newTurnAddress } from "@responses-edge/responses-api/ids";
import * as previews from "@responses-edge/responses-api/platform/previews";
import type { TreeNode } from "@responses-edge/responses-api/platform/tree";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Home } from "../../src/store/home/home.ts";
import type { TurnToSettle } from "../../src/store/home/settlement.ts";

/** The tree of a home: its pages, and the previews of turns. */

type Stub = DurableObjectStub<Home>;

const message = (role: string, text: string, id?: string) => ({
  type: "message",
  ...(id && { id }),
  role,
  content: [{ type: role === "user" ? "input_text" : "output_text", text }],
});

function turnOf(turn: string, { said = turn, createdAt = Date.now() } = {}): TurnToSettle {
  return {
    turn,
    parent: null,
    createdAt,
    lease: null,
    input: JSON.stringify([message("user", said)]),
    output: JSON.stringify([message("assistant", `${turn}!`)]),
    messages: null,
    response: JSON.stringify({
      status: "completed",
      background: false,
      model: "m",
      usage: null,
      previous_response_id: null,
    }),
  };
}

/** The home's key in ids. Each test has an object of its own. */
const HOME = "h".repeat(22);

function newHome(): Stub {
  return env.HOME.getByName(`tenant:${newTurnAddress().home}`);
}

/** All nodes of a turn's tree, page by page. */
async function pagesOf(
  stub: Stub,
  turn: string,
  order: "asc" | "desc",
  limit: number,
  home = HOME,
): Promise<TreeNode[][]> {
  const pages: TreeNode[][] = [];
  let after: string | undefined;
  for (;;) {
    const page = await stub.tree({ home, turn }, { order, limit, ...(after !== undefined && { after }) });
    if (!page) throw new Error("no tree");
    pages.push(JSON.parse(page.data) as TreeNode[]);
    if (!page.hasMore) return pages;
    after = page.lastId?.slice(-10);
  }
}

const turnName = fc.stringMatching(/^[0-9A-Za-z]{10}$/);

describe("the pages of a tree", () => {
  it("have every response once, in order, for any length of a page", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.uniqueArray(turnName, { minLength: 1, maxLength: 30 }),
        fc.integer({ min: 1, max: 40 }),
        fc.constantFrom("asc", "desc"),
        async (turns, limit, order) => {
          const stub = newHome();
          for (const turn of turns) await stub.settle(turnOf(turn));
          const pages = await pagesOf(stub, turns[0] ?? "", order, limit);
          const found = pages.flat().map(({ id }) => id.slice(-10));
          // SQLite orders texts by their bytes.
          const sorted = turns.toSorted((one, other) => (one < other ? -1 : 1));
          expect(found).toEqual(order === "asc" ? sorted : sorted.toReversed());
          for (const page of pages) expect(page.length).toBeLessThanOrEqual(limit);
        },
      ),
      { numRuns: 15 },
    );
  });

  it("have the responses of one tree alone if their home has several", async () => {
    const home = newSharedHome();
    const named = fc.tuple(fc.constantFrom("00", "0A", "Zz", "zz"), fc.stringMatching(/^[0-9A-Za-z]{8}$/));
    await fc.assert(
      fc.asyncProperty(
        fc.uniqueArray(named, { minLength: 1, maxLength: 30, selector: (parts) => parts.join("") }),
        fc.integer({ min: 1, max: 40 }),
        fc.constantFrom("asc", "desc"),
        async (names, limit, order) => {
          const stub = newHome();
          for (const name of names) await stub.settle(turnOf(name.join("")));
          for (const [tree, own] of Map.groupBy(names, ([tree]) => tree)) {
            const turns = own.map((name) => name.join("")).toSorted((one, other) => (one < other ? -1 : 1));
            const found = (await pagesOf(stub, turns[0] ?? "", order, limit, home)).flat();
            expect(found.map(({ id }) => id)).toEqual(
              (order === "asc" ? turns : turns.toReversed()).map((turn) => `resp_${home}${turn}`),
            );
            for (const turn of turns) expect(turn.startsWith(tree)).toBe(true);
          }
        },
      ),
      { numRuns: 15 },
    );
  });

  it("read only the rows that they show, in a home of a thousand turns", async () => {
    const stub = newHome();
    const rows = await runInDurableObject(stub, async (home: Home, { storage: { sql } }) => {
      for (let index = 0; index < 1_000; index += 1) await home.settle(turnOf(String(index).padStart(10, "0")));
      const exec = sql.exec.bind(sql);
      const cursors: { rowsRead: number }[] = [];
      sql.exec = ((...given: Parameters<typeof exec>) => {
        const cursor = exec(...given);
        cursors.push(cursor);
        return cursor;
      }) as typeof exec;
      home.tree({ home: HOME, turn: "0000000500" }, { order: "desc", limit: 10, after: "0000000500" });
      sql.exec = exec;
      return cursors.reduce((sum, cursor) => sum + cursor.rowsRead, 0);
    });
    expect(rows).toBeLessThan(20);
  });

  it("end early if their nodes are large, and leave nothing out", async () => {
    const stub = newHome();
    const turns = ["a", "b", "c", "d", "e"].map((letter) => letter.repeat(10));
    for (const turn of turns) {
      const { response, ...rest } = turnOf(turn);
      const head = JSON.stringify({ ...JSON.parse(response ?? ""), instructions: "x".repeat(1_500_000) });
      await stub.settle({ ...rest, response: head });
    }
    const pages = await pagesOf(stub, "aaaaaaaaaa", "asc", 100);
    expect(pages.length).toBeGreaterThan(1);
    expect(pages.flat().map(({ id }) => id.slice(-10))).toEqual(turns);
  });

  it("show no deleted or expired response, but those that continue it", async () => {
    const stub = newHome();
    const old = Date.now() - 31 * 86_400_000;
    await stub.settle(turnOf("expired000", { createdAt: old }));
    await stub.settle(turnOf("deleted000"));
    await stub.settle(turnOf("child00000"));
    await stub.delete("deleted000");
    const [nodes = []] = await pagesOf(stub, "child00000", "asc", 100);
    expect(nodes.map(({ id }) => id.slice(-10))).toEqual(["child00000"]);
    expect(await stub.tree({ home: HOME, turn: "deleted000" }, { order: "asc", limit: 1 })).toBeNull();
    expect(await stub.tree({ home: HOME, turn: "expired000" }, { order: "asc", limit: 1 })).toBeNull();
  });
});

describe("a preview", () => {
  const none = () => false;
  const inputPreview = (json: string, isTakenOut: (id: string) => boolean) =>
    previews.inputPreview(previews.readPrefix(json), isTakenOut);
  const outputPreview = (json: string, isTakenOut: (id: string) => boolean) =>
    previews.outputPreview(previews.readPrefix(json), isTakenOut);
  const text = (items: object[]) => outputPreview(JSON.stringify(items), none)?.text;

  it("is the user's last message, and the model's last answer", () => {
    const input = [message("user", "first"), message("assistant", "between"), message("user", "last")];
    expect(inputPreview(JSON.stringify(input), none)).toEqual({ type: "message", text: "last" });
    expect(text([{ type: "function_call", name: "f", arguments: "{}" }, message("assistant", "done")])).toBe("done");
    expect(text([{ type: "function_call", name: "f", arguments: '{"a":1}' }])).toBe('f({"a":1})');
    const result = [{ type: "function_call_output", call_id: "c", output: "42" }];
    expect(inputPreview(JSON.stringify(result), none)).toEqual({ type: "function_call_output", text: "42" });
  });

  it("never shows reasoning", () => {
    const thought = { type: "reasoning", summary: [], content: [{ type: "reasoning_text", text: "secret" }] };
    expect(outputPreview(JSON.stringify([thought]), none)).toBeNull();
    expect(outputPreview(JSON.stringify([thought]).slice(0, -12), none)).toBeNull();
    expect(text([thought, message("assistant", "said")])).toBe("said");
  });

  it("never shows an item that was deleted from its conversation", () => {
    const items = JSON.stringify([message("user", "kept", "msg_1"), message("user", "gone", "msg_2")]);
    expect(inputPreview(items, (id) => id === "msg_2")?.text).toBe("kept");
  });

  it("is one short line, without half a character, also for text in several pieces", () => {
    const long = JSON.stringify([message("user", `a\n\nb ${"😀".repeat(200_000)}`)]).slice(0, 150_000);
    const preview = inputPreview(long, none)?.text ?? "";
    expect(preview.startsWith("a b 😀")).toBe(true);
    expect(preview.endsWith("😀…")).toBe(true);
    expect(preview.length).toBeLessThanOrEqual(161);
    expect(preview.isWellFormed()).toBe(true);
  });

  it("is empty for an image, and absent for an empty turn", () => {
    const image = {
      type: "message",
      role: "user",
      content: [{ type: "input_image", image_url: "data:image/png;base64,AA" }],
    };
    expect(inputPreview(JSON.stringify([image]), none)).toEqual({ type: "message", text: "" });
    expect(inputPreview("[]", none)).toBeNull();
  });
});

describe("the beginning of a JSON text", () => {
  /** True if a value contains only parts of the whole, in the same places. */
  function isWithin(part: unknown, whole: unknown): boolean {
    if (typeof part === "string") return typeof whole === "string" && whole.startsWith(part);
    if (Array.isArray(part)) {
      return (
        Array.isArray(whole) && part.length <= whole.length && part.every((each, index) => isWithin(each, whole[index]))
      );
    }
    if (part === null || typeof part !== "object") return Object.is(part, whole);
    const other = whole as Record<string, unknown>;
    return Object.entries(part).every(([key, value]) => Object.hasOwn(other, key) && isWithin(value, other[key]));
  }

  it("is read wherever it ends, and gives only parts of the whole", () => {
    const value = fc.oneof(
      fc.array(fc.jsonValue()),
      fc.dictionary(fc.string(), fc.jsonValue(), { noNullPrototype: true }),
    );
    fc.assert(
      fc.property(value, fc.double({ min: 0, max: 1, noNaN: true }), (whole, share) => {
        const text = JSON.stringify(whole);
        const length = Math.max(1, Math.ceil(text.length * share));
        expect(isWithin(parseJsonPrefix(text.slice(0, length)), JSON.parse(text))).toBe(true);
        expect(parseJsonPrefix(text)).toEqual(JSON.parse(text));
      }),
      { numRuns: 2_000 },
    );
  });

  it.each([
    ['[{"a":"b\\', [{ a: "b" }]],
    ['[{"a":"b\\u00', [{ a: "b" }]],
    ['[{"a":"b\\\\', [{ a: "b\\" }]],
    ['[{"a":"b\\\\u12', [{ a: "b\\u12" }]],
    ['["a","b', ["a", "b"]],
    ['["a",12', ["a"]],
    ['{"a":1,"b', { a: 1 }],
    ['{"a":[1],"b":', { a: [1] }],
    ["[", []],
  ])("%s", (text, value) => {
    expect(parseJsonPrefix(text)).toEqual(value);
  });
});
