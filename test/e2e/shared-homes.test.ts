import { parseResponseId, treeOf } from "@responses-edge/responses-api/ids";
import fc from "fast-check";
import type { Response } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { objectId } from "../workerd/storage.ts";
import { expectError } from "./expectations.ts";
import { call, sha256 } from "./key-support.ts";
import { type Gateway, lastPrompt, startGateway } from "./support.ts";
import { ended, reached, unique } from "./turns.ts";

/** Trees of responses that share a home: each behaves as if it were alone. */

const TREES = 4;
const KEYS = { one: "the-key-of-one", other: "the-key-of-another" };
const model = "simulator";

let gateway: Gateway;
beforeAll(async () => {
  const keys = Object.entries(KEYS).map(([tenant, key]) => `${tenant}:${sha256(key)}`);
  gateway = await startGateway({ API_KEYS: keys.join(","), TREES_PER_HOME: String(TREES) });
});
afterAll(() => gateway.close());

const homeOf = (id: string) => parseResponseId(id)?.home ?? "";
const client = (key = KEYS.one) => gateway.client({ apiKey: key });

function say(input: string, previous?: string, more: object = {}): Promise<Response> {
  return client().responses.create({ model, input, ...(previous && { previous_response_id: previous }), ...more });
}

/** Fills a new home with the maximum number of trees. Gives their roots. */
async function fullHome(): Promise<string[]> {
  for (;;) {
    const roots: string[] = [];
    for (let tree = 0; tree < TREES; tree += 1) roots.push((await say(`Root ${tree}`)).id);
    if (new Set(roots.map(homeOf)).size === 1) return roots;
    // The home had other trees before. Fills it, so that the next home is a new one.
    while (homeOf((await say("Filling")).id) === homeOf(roots.at(-1) ?? ""));
    for (let tree = 1; tree < TREES; tree += 1) await say("Filling");
  }
}

async function treeFrom(id: string): Promise<string[]> {
  const answer = await call(gateway, "GET", `/v1/responses/${id}/tree?limit=100`, undefined, KEYS.one);
  expect(answer.status).toBe(200);
  return ((await answer.json()) as { data: { id: string }[] }).data.map((node) => node.id).toSorted();
}

function turnsIn(home: string, tenant = "one"): string[] {
  const rows = gateway.storage.exec(objectId(`${tenant}:${home}`), "SELECT turn FROM turns ORDER BY turn");
  return rows.map(({ turn }) => String(turn));
}

describe("first turns of a tenant's", () => {
  it("share a home up to its maximum", async () => {
    const roots = await fullHome();
    expect(turnsIn(homeOf(roots[0] ?? ""))).toHaveLength(TREES);
    expect(homeOf((await say("Next")).id)).not.toBe(homeOf(roots[0] ?? ""));
  });

  it("never share a home with another tenant's", async () => {
    const mine = new Set((await fullHome()).map(homeOf));
    const theirs = await client(KEYS.other).responses.create({ model, input: "Hello!" });
    expect(mine).not.toContain(homeOf(theirs.id));
    await expectError(await call(gateway, "GET", `/v1/responses/${theirs.id}`, undefined, KEYS.one), {
      status: 404,
      code: "response_not_found",
    });
  });

  it("that are long have a home of their own", async () => {
    const [small, long] = [await say("Small"), await say("long ".repeat(60_000), undefined, { model: LARGE })];
    expect(homeOf(long.id)).not.toBe(homeOf(small.id));
    expect(treeOf(parseResponseId(long.id) ?? { home: "", turn: "" }).tree).toBe("");
    const next = await say("And?", long.id, { model: LARGE });
    expect(await treeFrom(next.id)).toEqual([long.id, next.id].toSorted());
  });

  it("have separate sessions at the model server, which their continuations keep", async () => {
    const sessions = new Map<string, string>();
    for (const root of await fullHome()) {
      for (const input of ["One", "Two"]) {
        await say(input, root);
        const session = gateway.vllm.simulator.lastAsked?.headers["x-session-id"];
        expect(sessions.get(root) ?? session).toBe(session);
        sessions.set(root, String(session));
      }
    }
    expect(new Set(sessions.values()).size).toBe(TREES);
  });
});

const LARGE = "simulator?max_model_len=100000000";

describe("a tree in a shared home", () => {
  it("behaves as if it were alone, under any operations in any order", async () => {
    type Turn = { tree: number; id: string; texts: string[]; isThere: boolean };
    const step = fc.record({
      kind: fc.constantFrom("continue" as const, "delete" as const, "read" as const),
      at: fc.nat(1_000),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 25 }), async (steps) => {
        const turns: Turn[] = [];
        for (const [tree, id] of (await fullHome()).entries()) {
          turns.push({ tree, id, texts: [`Root ${tree}`], isThere: true });
        }
        const byId = new Map(turns.map((turn) => [turn.id, turn]));
        const parents = new Map<string, string>();
        const isWhole = (id: string | undefined): boolean =>
          id === undefined || (byId.get(id)?.isThere === true && isWhole(parents.get(id)));
        for (const [number, { kind, at }] of steps.entries()) {
          const turn = turns[at % turns.length] as Turn;
          const path = `/v1/responses/${turn.id}`;
          if (kind === "continue" && isWhole(turn.id)) {
            const text = `Step ${number}`;
            const { id } = await say(text, turn.id);
            const said = turn.texts.flatMap((each) => [each, `You said: ${each}`]);
            const { messages } = lastPrompt(gateway) as { messages: { content: string }[] };
            expect(messages.map(({ content }) => content)).toEqual([...said, text]);
            const next = { tree: turn.tree, id, texts: [...turn.texts, text], isThere: true };
            turns.push(next);
            byId.set(id, next);
            parents.set(id, turn.id);
          } else if (kind === "delete") {
            const answer = await call(gateway, "DELETE", path, undefined, KEYS.one);
            expect(answer.status).toBe(turn.isThere ? 200 : 404);
            turn.isThere = false;
          } else {
            const answer = await call(gateway, "GET", path, undefined, KEYS.one);
            expect(answer.status).toBe(turn.isThere ? 200 : 404);
            if (!turn.isThere) continue;
            const beside = turns.filter(({ tree, isThere }) => tree === turn.tree && isThere);
            expect(await treeFrom(turn.id)).toEqual(beside.map(({ id }) => id).toSorted());
          }
        }
        for (const turn of turns.filter(({ isThere }) => isThere)) {
          await call(gateway, "DELETE", `/v1/responses/${turn.id}`, undefined, KEYS.one);
        }
        const object = objectId(`one:${homeOf(turns[0]?.id ?? "")}`);
        expect(gateway.storage.exec(object, "SELECT name FROM sqlite_schema WHERE name = 'turns'")).toEqual([]);
      }),
      { numRuns: 4 },
    );
  });

  it("does not accept another tree's response as a cursor", async () => {
    const [one = "", other = ""] = await fullHome();
    const path = `/v1/responses/${one}/tree?after=${other}`;
    await expectError(await call(gateway, "GET", path, undefined, KEYS.one), { status: 400, param: "after" });
  });

  it("may be continued with items of another tree: the turn goes to the tree of the newest", async () => {
    const [one = "", other = ""] = await fullHome();
    const [first, second] = [await client().responses.retrieve(one), await client().responses.retrieve(other)];
    const input = [first, second].map(({ output }) => ({
      type: "item_reference" as const,
      id: String(output[0]?.id),
    }));
    const { id } = await client().responses.create({ model, input: [...input, { role: "user", content: "Both?" }] });
    const { messages } = lastPrompt(gateway) as { messages: { content: string }[] };
    expect(messages.map(({ content }) => content)).toEqual(["You said: Root 0", "You said: Root 1", "Both?"]);
    expect(await treeFrom(id)).toEqual([id, other].toSorted());
  });

  it("keeps its run when runs of other trees are cancelled or deleted", async () => {
    const roots = await fullHome();
    const runs: { id: string; release: () => void }[] = [];
    for (const root of roots) {
      const input = unique("Run");
      const { id } = await say(input, root, { model: "simulator?words=20&fault=stall:3", background: true });
      runs.push({ id, release: await reached(gateway, input) });
    }
    expect(new Set(runs.map(({ id }) => homeOf(id))).size).toBe(1);
    const [cancelled, deleted, ...left] = runs;
    await client().responses.cancel(cancelled?.id ?? "");
    await client().responses.delete(deleted?.id ?? "");
    for (const { release } of left) release();
    for (const { id } of left) {
      const run = await ended({ openai: client(), vllm: gateway.vllm }, id);
      expect(run.status).toBe("completed");
    }
    expect((await client().responses.retrieve(cancelled?.id ?? "")).status).toBe("cancelled");
    const gone = await call(gateway, "GET", `/v1/responses/${deleted?.id}`, undefined, KEYS.one);
    await expectError(gone, { status: 404, code: "response_not_found" });
  });
});

describe("a home that cannot be written to", () => {
  it("gets no more first turns: the next one has another home", async () => {
    const [root = ""] = await fullHome();
    const { id } = await say("Begins a home");
    expect(homeOf(id)).not.toBe(homeOf(root));
    const refuse = "CREATE TRIGGER refuse BEFORE INSERT ON turns BEGIN SELECT RAISE(ABORT, 'refused'); END";
    gateway.storage.exec(objectId(`one:${homeOf(id)}`), refuse);
    await expect(say("Not kept")).rejects.toMatchObject({ status: 500, code: "storage_error" });
    const next = await say("Kept");
    expect(homeOf(next.id)).not.toBe(homeOf(id));
    expect((await client().responses.retrieve(id)).output_text).toBe("You said: Begins a home");
  });
});
