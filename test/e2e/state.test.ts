import type { Response, ResponseInputItem } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Gateway, joinGateway, lastPrompt, startGateway } from "./support.ts";

let gateway: Gateway;
beforeAll(async () => {
  gateway = await joinGateway();
});
afterAll(() => gateway.close());

const model = "simulator";

function say(input: string | ResponseInputItem[], previous?: { id: string }): Promise<Response> {
  return gateway.openai.responses.create({ model, input, previous_response_id: previous?.id });
}

/** The messages of a conversation with the simulator that has these texts of the user. */
function conversation(...said: string[]): unknown[] {
  return said
    .flatMap((text) => [
      { role: "user", content: text },
      { role: "assistant", content: `You said: ${text}` },
    ])
    .slice(0, -1);
}

/** The messages of the prompt that ended in this text. */
function promptEndingIn(text: string): unknown {
  for (const { body } of gateway.vllm.simulator.requests) {
    const { messages } = (body ?? {}) as { messages?: { content: unknown }[] };
    if (messages?.at(-1)?.content === text) return messages;
  }
  throw new Error(`No prompt ended in ${text}`);
}

/** The part of an id that names its home, and its tree if the home has several. */
function tree(id: string): string {
  return id.slice(id.indexOf("_") + 1).slice(0, 24);
}

async function listed(id: string, query: Record<string, string | number> = {}): Promise<ResponseInputItem[]> {
  const page = await gateway.openai.responses.inputItems.list(id, { order: "asc", ...query });
  return page.data as ResponseInputItem[];
}

function idsOf(items: readonly object[]): unknown[] {
  return items.map((item) => ("id" in item ? item.id : undefined));
}

describe("a conversation", () => {
  it("continues by previous_response_id, three turns deep", async () => {
    const first = await say("one");
    const second = await say("two", first);
    const third = await say("three", second);
    expect(third.previous_response_id).toBe(second.id);
    expect(third.output_text).toBe("You said: three");
    expect(lastPrompt(gateway).messages).toEqual(conversation("one", "two", "three"));
  });

  it("branches from every response, and each branch sees exactly its ancestors", async () => {
    const root = await say("root");
    const [left, right] = await Promise.all([say("left", root), say("right", root)]);
    await Promise.all([
      say("left-left", left),
      say("left-right", left),
      say("right-left", right),
      say("right-right", right),
      say("middle", root),
    ]);
    expect(promptEndingIn("left")).toEqual(conversation("root", "left"));
    expect(promptEndingIn("right")).toEqual(conversation("root", "right"));
    expect(promptEndingIn("middle")).toEqual(conversation("root", "middle"));
    expect(promptEndingIn("left-left")).toEqual(conversation("root", "left", "left-left"));
    expect(promptEndingIn("left-right")).toEqual(conversation("root", "left", "left-right"));
    expect(promptEndingIn("right-left")).toEqual(conversation("root", "right", "right-left"));
    expect(promptEndingIn("right-right")).toEqual(conversation("root", "right", "right-right"));
  });

  it("keeps items of every kind: messages, reasoning and calls, but not instructions", async () => {
    const tools = [{ type: "function" as const, name: "look", parameters: null, strict: null }];
    const reasoning = "simulator-reasoning";
    const first = await gateway.openai.responses.create({ model: reasoning, input: "Call look.", tools });
    const call = first.output.find((item) => item.type === "function_call");
    const output = { type: "function_call_output" as const, call_id: call?.call_id ?? "", output: "seen" };
    const second = await gateway.openai.responses.create({
      model: reasoning,
      input: [output],
      previous_response_id: first.id,
    });
    await say("Thanks.", second);
    expect(lastPrompt(gateway).messages).toMatchObject([
      { role: "user", content: "Call look." },
      { role: "assistant", reasoning: expect.any(String), tool_calls: [{ id: call?.call_id }] },
      { role: "tool", content: "seen" },
      { role: "assistant", reasoning: expect.any(String), content: "The tool look returned: seen" },
      { role: "user", content: "Thanks." },
    ]);
  });

  it("does not inherit instructions, but keeps developer messages", async () => {
    const first = await gateway.openai.responses.create({
      model,
      instructions: "Be brief.",
      input: [
        { role: "developer", content: "Be kind." },
        { role: "user", content: "one" },
      ],
    });
    const second = await say("two", first);
    expect(second.instructions).toBeNull();
    expect(lastPrompt(gateway).messages).toEqual([
      { role: "system", content: "Be kind." },
      ...conversation("one", "two"),
    ]);
    await gateway.openai.responses.create({
      model,
      instructions: "Be quick.",
      previous_response_id: second.id,
      input: "three",
    });
    expect(lastPrompt(gateway).messages).toEqual([
      { role: "system", content: "Be quick.\n\nBe kind." },
      ...conversation("one", "two", "three"),
    ]);
  });

  it("can be continued as soon as the stream has its last event", async () => {
    const stream = await gateway.openai.responses.create({ model, input: "one", stream: true });
    for await (const event of stream) {
      if (event.type !== "response.completed") continue;
      await say("two", event.response);
      expect(lastPrompt(gateway).messages).toEqual(conversation("one", "two"));
      return;
    }
    throw new Error("The stream never completed.");
  });

  it("can be continued after an incomplete response", async () => {
    const cut = await gateway.openai.responses.create({ model, input: "one", max_output_tokens: 2 });
    expect(cut.status).toBe("incomplete");
    await say("two", cut);
    expect(lastPrompt(gateway).messages).toEqual([
      { role: "user", content: "one" },
      { role: "assistant", content: "You said" },
      { role: "user", content: "two" },
    ]);
  });

  it("can be used without an addition: store: false", async () => {
    const first = await say("one");
    const aside = await gateway.openai.responses.create({
      model,
      input: "aside",
      previous_response_id: first.id,
      store: false,
    });
    expect(lastPrompt(gateway).messages).toEqual(conversation("one", "aside"));
    await expect(say("two", aside)).rejects.toMatchObject({ status: 400, code: "previous_response_not_found" });
    await say("two", first);
    expect(lastPrompt(gateway).messages).toEqual(conversation("one", "two"));
  });

  it("of 60 turns is in the prompt completely", async () => {
    const said = Array.from({ length: 60 }, (_, index) => `turn ${index}`);
    let previous: Response | undefined;
    for (const text of said) previous = await say(text, previous);
    expect(lastPrompt(gateway).messages).toEqual(conversation(...said));
  });

  it("has one tree, which its ids name; another conversation has another", async () => {
    const first = await say("one");
    const second = await say("two", first);
    expect(tree(second.id)).toBe(tree(first.id));
    expect(tree(String(second.output[0]?.id))).toBe(tree(first.id));
    expect(tree((await say("one")).id)).not.toBe(tree(first.id));
  });
});

describe("retrieve", () => {
  it("gives the same response as the stream, byte for byte", async () => {
    const answer = await gateway.post({
      model: "simulator-reasoning",
      input: "Hello! 你好 👋",
      instructions: "Be brief.",
      metadata: { a: "1" },
      include: ["message.output_text.logprobs"],
      stream: true,
    });
    const completed = /^event: response\.completed\ndata: (.*)$/m.exec(await answer.text())?.[1] ?? "";
    const { response } = JSON.parse(completed) as { response: Response };
    const stored = await gateway.fetch(`${gateway.url}/v1/responses/${response.id}`);
    expect(stored.headers.get("content-type")).toBe("application/json");
    expect(await stored.json()).toEqual(response);
  });

  it("gives the same response as the JSON answer", async () => {
    const { output_text, ...created } = await say("Hello!");
    expect(await gateway.openai.responses.retrieve(created.id)).toMatchObject(created);
  });

  it("gives an incomplete response as it ended", async () => {
    const cut = await gateway.openai.responses.create({ model, input: "Hello!", max_output_tokens: 2 });
    expect(await gateway.openai.responses.retrieve(cut.id)).toMatchObject({
      status: "incomplete",
      incomplete_details: { reason: "max_output_tokens" },
      output: cut.output,
    });
  });

  it("has one id for an item in the stream, in the body, in the store and as a reference", async () => {
    const stream = await gateway.openai.responses.create({ model, input: "Hello!", stream: true });
    const ids = new Set<string>();
    let id = "";
    for await (const event of stream) {
      if ("item_id" in event) ids.add(event.item_id);
      if ("item" in event) ids.add(String(event.item.id));
      if (event.type === "response.completed") {
        id = event.response.id;
        for (const item of event.response.output) ids.add(String(item.id));
      }
    }
    const stored = await gateway.openai.responses.retrieve(id);
    for (const item of stored.output) ids.add(String(item.id));
    expect(ids.size).toBe(1);
    await say([
      { type: "item_reference", id: [...ids][0] ?? "" },
      { role: "user", content: "Again!" },
    ]);
    expect(lastPrompt(gateway).messages).toEqual([
      { role: "assistant", content: "You said: Hello!" },
      { role: "user", content: "Again!" },
    ]);
  });
});

describe("a change of the metadata", () => {
  const change = (id: string, body: unknown): Promise<Response> => gateway.openai.post(`/responses/${id}`, { body });

  it("replaces them, and nothing else", async () => {
    const created = await gateway.openai.responses.create({ model, input: "One.", metadata: { old: "1", a: "b" } });
    for (const metadata of [{ title: "Two", pinned: "true" }, {}, { title: "Three" }, null]) {
      const changed = await change(created.id, { metadata });
      expect(changed.metadata).toEqual(metadata ?? {});
      const stored = await gateway.openai.responses.retrieve(created.id);
      expect(stored).toEqual({ ...created, metadata: metadata ?? {} });
    }
    await say("And then?", created);
    expect(lastPrompt(gateway).messages).toEqual(conversation("One.", "And then?"));
  });

  it("may take more rows or fewer", async () => {
    const long = Object.fromEntries(Array.from({ length: 16 }, (_, key) => [`key${key}`, "v".repeat(512)]));
    const created = await gateway.openai.responses.create({
      model: "simulator?max_model_len=10000000",
      input: "One.",
      instructions: "I".repeat(298_800),
    });
    const rows: unknown[] = [];
    for (const metadata of [long, {}, long]) {
      await change(created.id, { metadata });
      expect(await gateway.openai.responses.retrieve(created.id)).toEqual({ ...created, metadata });
      const count = "SELECT COUNT(*) AS rows FROM turns WHERE response <> '' AND turn = ?";
      rows.push(...gateway.storage.execAt(created.id, count, created.id.slice(-10)));
    }
    expect(rows).toEqual([{ rows: 3 }, { rows: 2 }, { rows: 3 }]);
  });

  it("is refused as it is for a conversation", async () => {
    const { id } = await say("One.");
    for (const body of [{}, { metadata: 1 }, { metadata: { a: 1 } }, { metadata: { ["k".repeat(65)]: "" } }, [], "x"]) {
      const { id: other } = await gateway.openai.conversations.create();
      const answers = [`responses/${id}`, `conversations/${other}`].map(async (path) => {
        const headers = { "content-type": "application/json" };
        const sent = { method: "POST", headers, body: JSON.stringify(body) };
        const answer = await fetch(`${gateway.url}/v1/${path}`, sent);
        return { status: answer.status, body: await answer.json() };
      });
      const [refused, expected] = await Promise.all(answers);
      expect(refused).toEqual(expected);
      expect(refused?.status).toBe(400);
    }
    expect((await gateway.openai.responses.retrieve(id)).metadata).toEqual({});
    for (const unknown of [`resp_${"0".repeat(32)}`, "resp_1"]) {
      await expect(change(unknown, { metadata: {} })).rejects.toMatchObject({ status: 404 });
    }
  });
});

describe("delete", () => {
  const notFound = { status: 404, code: "response_not_found" };
  const notContinued = { status: 400, code: "previous_response_not_found", param: "previous_response_id" };

  it("removes a response: no client can read, delete or continue it, nor its children, nor refer to it", async () => {
    const { responses } = gateway.openai;
    const parent = await say("one");
    const child = await say("two", parent);
    const grandchild = await say("three", child);
    const [item] = await listed(child.id);
    await responses.delete(child.id);
    await expect(responses.retrieve(child.id)).rejects.toMatchObject(notFound);
    await expect(responses.delete(child.id)).rejects.toMatchObject(notFound);
    await expect(listed(child.id)).rejects.toMatchObject(notFound);
    const missing = { ...notContinued, message: expect.stringContaining(`'${child.id}' not found`) };
    await expect(say("three", child)).rejects.toMatchObject(missing);
    const message = expect.stringContaining(`'${grandchild.id}' cannot be continued, because an earlier response`);
    await expect(say("four", grandchild)).rejects.toMatchObject({ ...notContinued, message });
    const background = { model: "simulator", input: "four", previous_response_id: grandchild.id, background: true };
    await expect(responses.create(background)).rejects.toMatchObject({ ...notContinued, message });
    for (const id of [String(item && "id" in item ? item.id : ""), String(child.output[0]?.id)]) {
      await expect(say([{ type: "item_reference", id }])).rejects.toMatchObject({ status: 400 });
    }
  });

  it("leaves its parent and its children readable, and other branches usable", async () => {
    const parent = await say("one");
    const child = await say("two", parent);
    const grandchild = await say("three", child);
    await gateway.openai.responses.delete(child.id);
    expect((await gateway.openai.responses.retrieve(grandchild.id)).output_text).toBe("You said: three");
    await say("another two", parent);
    expect(lastPrompt(gateway).messages).toEqual(conversation("one", "another two"));
  });

  it("answers with the deleted id", async () => {
    const { id } = await say("one");
    const answer = await gateway.fetch(`${gateway.url}/v1/responses/${id}`, { method: "DELETE" });
    expect(await answer.json()).toEqual({ id, object: "response.deleted", deleted: true });
  });

  it("of all turns leaves an empty home without storage", async () => {
    const alone = await startGateway({ TREES_PER_HOME: "1" });
    try {
      const { responses } = alone.openai;
      const first = await responses.create({ model, input: "one" });
      const second = await responses.create({ model, input: "two", previous_response_id: first.id });
      expect(alone.storage.execAt(first.id, "SELECT COUNT(*) AS turns FROM turns")).toEqual([{ turns: 2 }]);
      for (const { id } of [first, second]) await responses.delete(id);
      const tables = "SELECT name FROM sqlite_schema WHERE name = 'turns'";
      expect(alone.storage.execAt(first.id, tables)).toEqual([]);
    } finally {
      await alone.close();
    }
  });
});

describe("input_items", () => {
  const input = Array.from(
    { length: 45 },
    (_, index): ResponseInputItem => ({ role: "user", content: `item ${index}` }),
  );
  let id: string;
  let all: unknown[];
  beforeAll(async () => {
    ({ id } = await say(input));
    all = idsOf(await listed(id, { limit: 100 }));
  });

  it("are the turn's own input, each with an id, in its full form", async () => {
    const first = await say("one");
    const second = await say("two", first);
    expect(await listed(second.id)).toEqual([
      {
        type: "message",
        id: expect.stringMatching(/^msg_/),
        role: "user",
        status: "completed",
        content: [{ type: "input_text", text: "two" }],
      },
    ]);
  });

  it("have the order of the input with asc, and the reverse order by default", async () => {
    expect(all).toHaveLength(45);
    expect(new Set(all).size).toBe(45);
    const page = await gateway.openai.responses.inputItems.list(id);
    expect(idsOf(page.data)).toEqual(all.toReversed().slice(0, 20));
    expect(page.has_more).toBe(true);
    const texts = (await listed(id, { limit: 2 })).map((item) => ("content" in item ? item.content : ""));
    expect(texts).toEqual([[{ type: "input_text", text: "item 0" }], [{ type: "input_text", text: "item 1" }]]);
  });

  it("have the same ids at every call", async () => {
    expect(idsOf(await listed(id, { limit: 100 }))).toEqual(all);
  });

  it("have pages: limit, after, has_more, first_id, last_id", async () => {
    const url = `${gateway.url}/v1/responses/${id}/input_items?order=asc&limit=20`;
    const read = async (after: string) => (await (await gateway.fetch(url + after)).json()) as Record<string, unknown>;
    expect(await read("")).toMatchObject({ object: "list", first_id: all[0], last_id: all[19], has_more: true });
    expect(await read(`&after=${all[19]}`)).toMatchObject({ first_id: all[20], last_id: all[39], has_more: true });
    const last = await read(`&after=${all[39]}`);
    expect(last).toMatchObject({ first_id: all[40], last_id: all[44], has_more: false });
    expect(idsOf(last.data as object[])).toEqual(all.slice(40));
    expect(await read(`&after=${all[44]}`)).toEqual({
      object: "list",
      data: [],
      first_id: null,
      last_id: null,
      has_more: false,
    });
  });

  it("end exactly at a full page", async () => {
    const page = await gateway.openai.responses.inputItems.list(id, { order: "asc", limit: 45 });
    expect(page.data).toHaveLength(45);
    expect(page.has_more).toBe(false);
  });

  it.each(["asc", "desc"] as const)("are all found by the client's own pagination, %s", async (order) => {
    const items = await Array.fromAsync(gateway.openai.responses.inputItems.list(id, { order, limit: 7 }));
    expect(idsOf(items)).toEqual(order === "asc" ? all : all.toReversed());
  });

  it("keep ids of this server, but none twice", async () => {
    const first = await say("one");
    const [message] = first.output as ResponseInputItem[];
    if (!message) throw new Error("Expected a message.");
    const second = await say([message, { role: "user", content: "two" }, message]);
    const ids = idsOf(await listed(second.id));
    expect(ids[0]).toBe(first.output[0]?.id);
    expect(new Set(ids).size).toBe(3);
  });

  it("keep parts and outputs unchanged", async () => {
    const sent: ResponseInputItem[] = [
      {
        role: "user",
        content: [
          { type: "input_text", text: "Look:" },
          { type: "input_image", image_url: "https://example.com/a.png", detail: "low" },
        ],
      },
      { type: "function_call", call_id: "call_1", name: "look", arguments: "{}" },
      { type: "function_call_output", call_id: "call_1", output: [{ type: "input_text", text: "seen" }] },
    ];
    const { id: response } = await say(sent);
    expect(await listed(response)).toMatchObject(sent);
  });
});

describe("item_reference", () => {
  it("stands for a message of an older turn", async () => {
    const first = await say("one");
    await say("two", first);
    const id = String(first.output[0]?.id);
    const response = await say([
      { type: "item_reference", id },
      { role: "user", content: "three" },
    ]);
    expect(lastPrompt(gateway).messages).toEqual([
      { role: "assistant", content: "You said: one" },
      { role: "user", content: "three" },
    ]);
    expect(tree(response.id)).toBe(tree(first.id));
    expect(await listed(response.id)).toMatchObject([{ id, type: "message", role: "assistant" }, { role: "user" }]);
  });

  it("stands for a function call whose output comes with it", async () => {
    const asked = await gateway.openai.responses.create({
      model,
      input: "Call look.",
      tools: [{ type: "function", name: "look", parameters: null, strict: null }],
    });
    const [call] = asked.output;
    if (call?.type !== "function_call") throw new Error("Expected a call.");
    const [question] = idsOf(await listed(asked.id));
    const answered = await say([
      { type: "item_reference", id: String(question) },
      { type: "item_reference", id: String(call.id) },
      { type: "function_call_output", call_id: call.call_id, output: "seen" },
    ]);
    expect(answered.output_text).toBe("The tool look returned: seen");
  });

  it("may have no type, be combined with previous_response_id, and name items of other conversations", async () => {
    const other = await say("elsewhere");
    const first = await say("one");
    const answer = await gateway.post({
      model,
      previous_response_id: first.id,
      input: [{ id: other.output[0]?.id }, { role: "user", content: "two" }],
    });
    expect(tree(((await answer.json()) as Response).id)).toBe(tree(first.id));
    expect(lastPrompt(gateway).messages).toEqual([
      { role: "user", content: "one" },
      { role: "assistant", content: "You said: one" },
      { role: "assistant", content: "You said: elsewhere" },
      { role: "user", content: "two" },
    ]);
  });

  it("is resolved when its turn is created: its item is that turn's input, also after the original is deleted", async () => {
    const first = await say("one");
    const id = String(first.output[0]?.id);
    const second = await say([
      { type: "item_reference", id },
      { role: "user", content: "two" },
    ]);
    await gateway.openai.responses.delete(first.id);
    await say("three", second);
    expect((lastPrompt(gateway).messages as unknown[])[0]).toEqual({ role: "assistant", content: "You said: one" });
    await expect(say([{ type: "item_reference", id }])).rejects.toMatchObject({ code: "item_not_found" });
  });

  it("to an unknown item is refused, with its place in the input", async () => {
    const { output } = await say("one");
    const known = String(output[0]?.id);
    for (const unknown of [`${known.slice(0, -1)}z`, "msg_elsewhere"]) {
      const input: ResponseInputItem[] = [
        { type: "item_reference", id: known },
        { type: "item_reference", id: unknown },
      ];
      await expect(say(input)).rejects.toMatchObject({ status: 400, code: "item_not_found", param: "input[1].id" });
    }
  });
});

describe("a turn larger than a row", () => {
  // With an odd number of units before the emoji, some cut is between the halves of one.
  // The numbers keep the answer from repeating itself.
  const birds = Array.from({ length: 75_000 }, (_, index) => `🦜🌍${index}🦜🌍`).join("");
  const many = Array.from({ length: 20_000 }, (_, index) => `多多多多多${index}`).join("");
  const texts = ["", "x"].map((odd) => odd + birds + many);
  const large = "simulator?max_model_len=10000000&per_delta=5000";

  it("is stored in rows of less than 2 MB, is read unchanged and can be continued", async () => {
    const input = texts.map((content): ResponseInputItem => ({ role: "user", content }));
    const created = await gateway.openai.responses.create({ model: large, input });
    expect(created.output_text).toBe(`You said: ${texts[1]}`);
    const stored = await gateway.openai.responses.retrieve(created.id);
    expect(stored.output).toEqual(created.output);
    const items = await listed(created.id);
    expect(items.map((item) => ("content" in item ? item.content : ""))).toEqual(
      texts.map((text) => [{ type: "input_text", text }]),
    );
    await gateway.openai.responses.create({ model: large, previous_response_id: created.id, input: "And?" });
    expect(lastPrompt(gateway).messages).toEqual([
      ...texts.map((content) => ({ role: "user", content })),
      { role: "assistant", content: `You said: ${texts[1]}` },
      { role: "user", content: "And?" },
    ]);

    const sizes = gateway.storage.execAt(
      created.id,
      "SELECT SUM(octet_length(input) + octet_length(output) + octet_length(response)) AS bytes FROM turns GROUP BY turn, part",
    ) as { bytes: number }[];
    expect(sizes.length).toBeGreaterThan(4);
    for (const { bytes } of sizes) expect(bytes).toBeLessThan(2_000_000);
    await gateway.openai.responses.delete(created.id);
    await expect(gateway.openai.responses.retrieve(created.id)).rejects.toMatchObject({ status: 404 });
  });
});

describe("retention", () => {
  it("ends after 30 days: an older response does not exist for clients, but stays in younger ones' history", async () => {
    const old = await say("one");
    const young = await say("two", old);
    const turn = old.id.slice(-10);
    const age = "UPDATE turns SET created_at = created_at - ? WHERE turn = ?";
    gateway.storage.execAt(old.id, age, 31 * 86_400_000, turn);
    await expect(gateway.openai.responses.retrieve(old.id)).rejects.toMatchObject({ status: 404 });
    await expect(listed(old.id)).rejects.toMatchObject({ status: 404 });
    await expect(say("another two", old)).rejects.toMatchObject({ code: "previous_response_not_found" });
    await say("three", young);
    expect(lastPrompt(gateway).messages).toEqual(conversation("one", "two", "three"));
  });

  it("never ends with RETENTION_DAYS=0", async () => {
    const forever = await startGateway({ RETENTION_DAYS: "0" });
    try {
      const { id } = await forever.openai.responses.create({ model, input: "one" });
      forever.storage.execAt(id, "UPDATE turns SET created_at = 0");
      expect((await forever.openai.responses.retrieve(id)).output_text).toBe("You said: one");
    } finally {
      await forever.close();
    }
  });
});
