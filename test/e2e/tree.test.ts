import type { TreeNode } from "@responses-edge/responses-api/platform/tree";
import type { Response as OpenAIResponse } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { expectError } from "./expectations.ts";
import { call, joinWithKeys, newKeys } from "./key-support.ts";
import { eventually, type Gateway } from "./support.ts";
import { ended, reached, unique } from "./turns.ts";

/** The tree of a conversation, as clients read it. */

let gateway: Gateway;
let keys: Record<"one" | "other", string>;
beforeAll(async () => {
  gateway = await joinWithKeys();
  keys = await newKeys(gateway, "one", "other");
});
afterAll(() => gateway.close());

interface TreePage {
  object: string;
  data: TreeNode[];
  first_id: string | null;
  last_id: string | null;
  has_more: boolean;
}

function ask(path: string, key = keys.one): Promise<Response> {
  return call(gateway, "GET", path, undefined, key);
}

async function treeOf(path: string, query = ""): Promise<TreePage> {
  const answer = await ask(`${path}/tree?limit=100${query}`);
  expect(answer.status).toBe(200);
  return (await answer.json()) as TreePage;
}

const client = () => gateway.client({ apiKey: keys.one });

function say(input: string, more: object = {}): Promise<OpenAIResponse> {
  return client().responses.create({ model: "simulator", input, ...more });
}

function nodeOf({ data }: TreePage, id: string): TreeNode {
  const node = data.find((each) => each.id === id);
  if (!node) throw new Error(`No node ${id}.`);
  return node;
}

describe("GET /v1/responses/{id}/tree", () => {
  it("has every turn and branch with its texts, for every id of the tree", async () => {
    const root = await say("Hello!");
    const left = await say("Left", { previous_response_id: root.id });
    const right = await say("Right", { previous_response_id: root.id });
    const leaf = await say("Further", { previous_response_id: right.id, stream: false, background: true });
    await ended({ openai: client(), vllm: gateway.vllm }, leaf.id);
    const ids = [root, left, right, leaf].map(({ id }) => id);
    for (const id of ids) {
      const page = await treeOf(`/v1/responses/${id}`);
      expect(page).toMatchObject({ object: "list", has_more: false });
      expect(page.data.map((node) => node.id).toSorted()).toEqual(ids.toSorted());
    }
    const page = await treeOf(`/v1/responses/${root.id}`);
    expect(nodeOf(page, right.id)).toMatchObject({
      object: "response.node",
      previous_response_id: root.id,
      position: null,
      continues_position: null,
      created_at: right.created_at,
      status: "completed",
      background: false,
      model: "simulator",
      usage: { total_tokens: right.usage?.total_tokens },
      input: { type: "message", text: "Right" },
      output: { type: "message", text: "You said: Right" },
    });
    expect(nodeOf(page, leaf.id)).toMatchObject({ previous_response_id: right.id, background: true });
    expect(nodeOf(page, root.id).previous_response_id).toBeNull();
  });

  it("has pages, in either order", async () => {
    const root = await say("Hello!");
    for (let branch = 0; branch < 6; branch += 1) await say(`Branch ${branch}`, { previous_response_id: root.id });
    const path = `/v1/responses/${root.id}/tree`;
    const whole = (await treeOf(`/v1/responses/${root.id}`, "&order=asc")).data.map(({ id }) => id);
    expect(whole).toHaveLength(7);
    const found: string[] = [];
    for (let after = ""; ; ) {
      const page = (await (await ask(`${path}?limit=3&order=asc${after}`)).json()) as TreePage;
      found.push(...page.data.map(({ id }) => id));
      if (!page.has_more) break;
      after = `&after=${page.last_id}`;
    }
    expect(found).toEqual(whole);
    const down = (await treeOf(`/v1/responses/${root.id}`, "&order=desc")).data.map(({ id }) => id);
    expect(down).toEqual(whole.toReversed());
  });

  it("has running runs, and no deleted ones", async () => {
    const root = await say("Hello!");
    const gone = await say("Gone", { previous_response_id: root.id });
    const child = await say("Child", { previous_response_id: gone.id });
    await client().responses.delete(gone.id);
    const input = unique("Running");
    const run = await say(input, {
      model: "simulator?fault=stall_headers",
      previous_response_id: root.id,
      background: true,
    });
    await reached(gateway, input);
    const page = await treeOf(`/v1/responses/${run.id}`);
    expect(nodeOf(page, run.id)).toMatchObject({
      status: "in_progress",
      background: true,
      previous_response_id: root.id,
      usage: null,
      input: { text: input },
      output: null,
    });
    expect(nodeOf(page, child.id).previous_response_id).toBe(gone.id);
    expect(page.data.map(({ id }) => id)).not.toContain(gone.id);
    await expectError(await ask(`/v1/responses/${gone.id}/tree`), { status: 404, code: "response_not_found" });
    await client().responses.cancel(run.id);
    await eventually(async () => nodeOf(await treeOf(`/v1/responses/${root.id}`), run.id).status === "cancelled");
  });

  it("is a 404 for another tenant's key", async () => {
    const { id } = await say("Secret");
    const theirs = await ask(`/v1/responses/${id}/tree`, keys.other);
    const unknown = await ask(`/v1/responses/resp_${"0".repeat(32)}/tree`, keys.other);
    await expectError(theirs, { status: 404, code: "response_not_found" });
    await expectError(unknown, { status: 404, code: "response_not_found" });
  });

  it("names the fault of a query or an id", async () => {
    const { id } = await say("Hello!");
    const elsewhere = await say("Elsewhere");
    const path = `/v1/responses/${id}/tree`;
    const wrong: [query: string, param: string][] = [
      ["limit=0", "limit"],
      ["limit=101", "limit"],
      ["limit=ten", "limit"],
      ["order=random", "order"],
      [`after=${elsewhere.id}`, "after"],
      ["after=%00", "after"],
      [`after=${"x".repeat(65)}`, "after"],
    ];
    for (const [query, param] of wrong) await expectError(await ask(`${path}?${query}`), { status: 400, param });
    for (const hostile of ["resp_1", "resp_%2e%2e%2f", "resp_' OR 1=1 --", "conv_1", "%F0%9F%98%80"]) {
      expect((await ask(`/v1/responses/${hostile}/tree`)).status).toBe(404);
    }
    await expectError(await ask(`/v1/responses/${"r".repeat(100)}/tree`), { status: 400, param: "response_id" });
    expect((await call(gateway, "POST", path, {}, keys.one)).status).toBe(405);
  });
});

describe("GET /v1/conversations/{id}/tree", () => {
  it("has the turns by their places, and the branches from them", async () => {
    const conversation = await client().conversations.create({
      items: [{ type: "message", role: "user", content: "Before all" }],
    });
    const first = await say("One", { conversation: conversation.id });
    const second = await say("Two", { conversation: conversation.id });
    const branch = await say("Aside", { previous_response_id: first.id });
    const page = await treeOf(`/v1/conversations/${conversation.id}`);
    expect(page.data).toHaveLength(3);
    // The first place is that of the items with which the conversation was created.
    expect(nodeOf(page, first.id)).toMatchObject({ position: 2, continues_position: 1, previous_response_id: null });
    expect(nodeOf(page, second.id)).toMatchObject({ position: 3, continues_position: 2 });
    expect(nodeOf(page, branch.id)).toMatchObject({ position: null, previous_response_id: first.id });
    expect(await treeOf(`/v1/responses/${second.id}`)).toEqual(page);
  });

  it("does not show a deleted item", async () => {
    const conversation = await client().conversations.create();
    const { id } = await say("Taken out", { conversation: conversation.id });
    const items = client().conversations.items;
    const [, question] = await Array.fromAsync(items.list(conversation.id));
    await items.delete(question?.id ?? "", { conversation_id: conversation.id });
    const page = await treeOf(`/v1/conversations/${conversation.id}`);
    expect(nodeOf(page, id)).toMatchObject({ input: null, output: { text: "You said: Taken out" } });
  });

  it("is a 404 for another tenant, and after the conversation's deletion", async () => {
    const { id } = await client().conversations.create();
    await expectError(await ask(`/v1/conversations/${id}/tree`, keys.other), {
      status: 404,
      code: "conversation_not_found",
    });
    expect(await treeOf(`/v1/conversations/${id}`)).toMatchObject({ data: [], first_id: null, last_id: null });
    await client().conversations.delete(id);
    await expectError(await ask(`/v1/conversations/${id}/tree`), { status: 404, code: "conversation_not_found" });
  });
});
