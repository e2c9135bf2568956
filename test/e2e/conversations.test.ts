import OpenAI from "openai";
import type { Conversation } from "openai/resources/conversations/conversations";
import type { Response, ResponseInputItem } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { joinWithKeys, newKeys } from "./key-support.ts";
import type { Gateway } from "./support.ts";
import { ended, itemsOf, promptsFor, reached, textsOf } from "./turns.ts";

let gateway: Gateway;
let openai: OpenAI;
let stranger: OpenAI;
let keys: Record<"ann" | "bob", string>;
beforeAll(async () => {
  gateway = await joinWithKeys();
  keys = await newKeys(gateway, "ann", "bob");
  openai = gateway.client({ apiKey: keys.ann });
  // The gateway that the helpers use.
  gateway.openai = openai;
  stranger = gateway.client({ apiKey: keys.bob });
});
afterAll(() => gateway.close());

function user(text: string): ResponseInputItem.Message {
  return { type: "message", role: "user", content: [{ type: "input_text", text }] };
}

const UNKNOWN_CONVERSATION = `conv_${"a".repeat(32)}`;
const NO_CONVERSATION = { status: 404, code: "conversation_not_found", param: "conversation" };

async function expectNotFound(requests: PromiseLike<unknown>[]): Promise<void> {
  await Promise.all(
    requests.map(async (request) => {
      const error = await Promise.resolve(request).catch((error: unknown) => error);
      expect(error).toBeInstanceOf(OpenAI.NotFoundError);
      expect(error).toMatchObject(NO_CONVERSATION);
    }),
  );
}

const NO_ITEM = { status: 404, code: "item_not_found", param: "item_id" };

const weatherTool = {
  type: "function",
  name: "get_weather",
  parameters: { type: "object", properties: { city: { type: "string" } } },
  strict: false,
} as const;

describe.concurrent("a conversation", () => {
  it("begins empty", async () => {
    const before = Math.floor(Date.now() / 1000);
    const conversation = await openai.conversations.create();
    expect(conversation).toEqual({
      id: expect.stringMatching(/^conv_\w{32}$/),
      object: "conversation",
      created_at: expect.any(Number),
      metadata: {},
    });
    expect(conversation.created_at).toBeGreaterThanOrEqual(before);
    expect(await itemsOf(gateway, conversation.id)).toEqual([]);
  });

  it("begins without a body, too", async () => {
    const headers = { authorization: `Bearer ${keys.ann}` };
    const answer = await gateway.fetch(`${gateway.url}/v1/conversations`, { method: "POST", headers });
    expect(answer.status).toBe(200);
  });

  it("begins with items and metadata, and gives each item an id", async () => {
    const conversation = await openai.conversations.create({
      items: [user("I am Ann."), { role: "assistant", content: "Hello, Ann." }],
      metadata: { topic: "names" },
    });
    expect(conversation.metadata).toEqual({ topic: "names" });
    expect(await itemsOf(gateway, conversation.id)).toMatchObject([
      { type: "message", id: expect.stringMatching(/^msg_/), role: "user", status: "completed" },
      { type: "message", id: expect.stringMatching(/^msg_/), role: "assistant", content: [{ text: "Hello, Ann." }] },
    ]);
  });

  it("begins with at most 20 items and 16 keys of metadata", async () => {
    const create = (items: number, keys: number) =>
      openai.conversations.create({
        items: Array.from({ length: items }, (_, index) => user(`Message ${index}`)),
        metadata: Object.fromEntries(Array.from({ length: keys }, (_, index) => [`key${index}`, "value"])),
      });
    expect((await create(20, 16)).metadata).toHaveProperty("key15");
    await expect(create(21, 0)).rejects.toMatchObject({ status: 400, param: "items" });
    await expect(create(0, 17)).rejects.toMatchObject({ status: 400, param: "metadata" });
  });

  it("may begin with items of earlier responses, by reference", async () => {
    const response = await openai.responses.create({ input: "Remember me." });
    const { id } = response.output[0] ?? {};
    const conversation = await openai.conversations.create({ items: [{ type: "item_reference", id: id ?? "" }] });
    expect(await textsOf(gateway, conversation.id)).toEqual(["You said: Remember me."]);
  });

  it("can be retrieved", async () => {
    const conversation = await openai.conversations.create({ metadata: { a: "b" } });
    expect(await openai.conversations.retrieve(conversation.id)).toEqual(conversation);
  });

  it("gets its metadata replaced by an update", async () => {
    const conversation = await openai.conversations.create({ metadata: { old: "1" } });
    const updated = await openai.conversations.update(conversation.id, { metadata: { new: "2" } });
    expect(updated).toEqual({ ...conversation, metadata: { new: "2" } });
    expect(await openai.conversations.retrieve(conversation.id)).toEqual(updated);
    const metadata = undefined as unknown as OpenAI.Metadata;
    await expect(openai.conversations.update(conversation.id, { metadata })).rejects.toMatchObject({
      status: 400,
      param: "metadata",
    });
  });

  it("does not exist after its deletion; its responses still do, and can be continued", async () => {
    const { id } = await openai.conversations.create();
    const response = await openai.responses.create({ input: "Hello!", conversation: id });
    const [item] = await itemsOf(gateway, id);
    expect(await openai.conversations.delete(id)).toEqual({ id, object: "conversation.deleted", deleted: true });

    await expectNotFound([
      openai.conversations.retrieve(id),
      openai.conversations.update(id, { metadata: {} }),
      openai.conversations.delete(id),
      openai.conversations.items.list(id),
      openai.conversations.items.create(id, { items: [user("Hello?")] }),
      openai.conversations.items.retrieve(item?.id ?? "", { conversation_id: id }),
      openai.conversations.items.delete(item?.id ?? "", { conversation_id: id }),
      openai.responses.create({ input: "Hello?", conversation: id }),
      openai.responses.create({ input: "Hello?", conversation: id, background: true }),
    ]);
    expect(await openai.responses.retrieve(response.id)).toMatchObject({ conversation: { id }, status: "completed" });
    await openai.responses.create({ input: "Go on.", previous_response_id: response.id });
    expect(promptsFor(gateway, "Go on.")).toMatchObject([{ texts: ["Hello!", "You said: Hello!", "Go on."] }]);
  });

  it.each([UNKNOWN_CONVERSATION, "conv_123", "nonsense"])("is not found under the id %s", async (id) => {
    await expectNotFound([
      openai.conversations.retrieve(id),
      openai.conversations.update(id, { metadata: {} }),
      openai.conversations.delete(id),
      openai.conversations.items.list(id),
      openai.conversations.items.create(id, { items: [user("Hello?")] }),
      openai.conversations.items.retrieve("msg_1", { conversation_id: id }),
      openai.conversations.items.delete("msg_1", { conversation_id: id }),
      openai.responses.create({ input: "Hello?", conversation: id }),
      openai.responses.create({ input: "Hello?", conversation: id, stream: true }),
      openai.responses.create({ input: "Hello?", conversation: id, background: true }),
    ]);
  });

  it("does not exist for another tenant", async () => {
    const { id } = await openai.conversations.create({ items: [user("A secret.")] });
    const [item] = await itemsOf(gateway, id);
    await expectNotFound([
      stranger.conversations.retrieve(id),
      stranger.conversations.update(id, { metadata: { stolen: "yes" } }),
      stranger.conversations.delete(id),
      stranger.conversations.items.list(id),
      stranger.conversations.items.create(id, { items: [user("Hello?")] }),
      stranger.conversations.items.retrieve(item?.id ?? "", { conversation_id: id }),
      stranger.conversations.items.delete(item?.id ?? "", { conversation_id: id }),
      stranger.responses.create({ input: "Hello?", conversation: id }),
      stranger.responses.create({ input: "Hello?", conversation: id, background: true }),
    ]);
    expect(await openai.conversations.retrieve(id)).toMatchObject({ metadata: {} });
    expect(await textsOf(gateway, id)).toEqual(["A secret."]);
  });
});

describe.concurrent("the items of a conversation", () => {
  /** Makes a conversation of three turns. Gives its items, oldest first. */
  async function threeTurns(): Promise<{ id: string; texts: string[] }> {
    const { id } = await openai.conversations.create({ items: [user("Zero")] });
    const texts = ["Zero"];
    for (const input of ["One", "Two", "Three"]) {
      const { output_text } = await openai.responses.create({ input, conversation: id });
      texts.push(input, output_text);
    }
    return { id, texts };
  }

  it("are listed newest first unless asked otherwise, 20 at a time", async () => {
    const items = Array.from({ length: 20 }, (_, index) => user(`Message ${index}`));
    const { id } = await openai.conversations.create({ items });
    await openai.conversations.items.create(id, { items: items.slice(0, 5) });
    const newest = await openai.conversations.items.list(id);
    expect(newest.data).toHaveLength(20);
    expect(newest.has_more).toBe(true);
    expect(newest.data[0]).toMatchObject({ content: [{ text: "Message 4" }] });
    const oldest = await openai.conversations.items.list(id, { order: "asc", limit: 2 });
    expect(oldest.data).toMatchObject([{ content: [{ text: "Message 0" }] }, { content: [{ text: "Message 1" }] }]);
    expect(oldest.last_id).toBe(oldest.data[1]?.id);
  });

  it("are listed page by page by the SDK in both orders, across turns", async () => {
    const { id, texts } = await threeTurns();
    for (const limit of [1, 2, 3, 7, 100]) {
      for (const order of ["asc", "desc"] as const) {
        const found: unknown[] = [];
        for await (const item of openai.conversations.items.list(id, { order, limit })) {
          if (item.type === "message") found.push(item.content[0] && "text" in item.content[0] && item.content[0].text);
        }
        expect(found).toEqual(order === "asc" ? texts : texts.toReversed());
      }
    }
  });

  it("have has_more exactly when there are more", async () => {
    const { id, texts } = await threeTurns();
    for (const [limit, more] of [
      [texts.length - 1, true],
      [texts.length, false],
      [texts.length + 1, false],
    ] as const) {
      expect((await openai.conversations.items.list(id, { limit })).has_more).toBe(more);
    }
    const all = await itemsOf(gateway, id);
    const after = all.at(-1)?.id ?? "";
    expect(await openai.conversations.items.list(id, { order: "asc", after })).toMatchObject({
      data: [],
      has_more: false,
    });
  });

  it("are listed with a limit of 1 to 100", async () => {
    const { id } = await openai.conversations.create();
    for (const limit of [0, 101]) {
      await expect(openai.conversations.items.list(id, { limit })).rejects.toMatchObject({
        status: 400,
        param: "limit",
      });
    }
  });

  it("can be added, at most 20 at once, and get ids", async () => {
    const { id } = await openai.conversations.create({ items: [user("Zero")] });
    const items = Array.from({ length: 20 }, (_, index) => user(`Message ${index}`));
    const added = await openai.conversations.items.create(id, { items });
    expect(added).toMatchObject({ object: "list", has_more: false });
    expect(added.data).toHaveLength(20);
    expect(added.data).toEqual((await itemsOf(gateway, id)).slice(1));
    for (const count of [0, 21]) {
      const wrong = Array.from({ length: count }, () => user("Too much."));
      await expect(openai.conversations.items.create(id, { items: wrong })).rejects.toMatchObject({
        status: 400,
        param: "items",
      });
    }
    expect(await itemsOf(gateway, id)).toHaveLength(21);
  });

  it("that were added are in the next turn's prompt", async () => {
    const { id } = await openai.conversations.create();
    await openai.conversations.items.create(id, { items: [user("My cat is called Tom.")] });
    await openai.responses.create({ input: "What is my cat called?", conversation: id });
    expect(promptsFor(gateway, "What is my cat called?")[0]?.texts).toEqual([
      "My cat is called Tom.",
      "What is my cat called?",
    ]);
  });

  it("can be retrieved one by one, whichever request made them", async () => {
    const { id } = await threeTurns();
    for (const item of await itemsOf(gateway, id)) {
      expect(await openai.conversations.items.retrieve(item.id ?? "", { conversation_id: id })).toEqual(item);
    }
  });

  it("can be deleted: the answer is the conversation, and the next turn does not see them", async () => {
    const conversation = await openai.conversations.create({ items: [user("Keep."), user("Forget.")] });
    const { id } = conversation;
    const [, forget] = await itemsOf(gateway, id);
    const place = { conversation_id: id };
    const answer: Conversation = await openai.conversations.items.delete(forget?.id ?? "", place);
    expect(answer).toEqual(conversation);
    expect(await textsOf(gateway, id)).toEqual(["Keep."]);
    await expect(openai.conversations.items.retrieve(forget?.id ?? "", place)).rejects.toMatchObject(NO_ITEM);
    await expect(openai.conversations.items.delete(forget?.id ?? "", place)).rejects.toMatchObject(NO_ITEM);
    await openai.responses.create({ input: "What is left?", conversation: id });
    expect(promptsFor(gateway, "What is left?")[0]?.texts).toEqual(["Keep.", "What is left?"]);
  });

  it("can be deleted from a turn, whose response stays complete", async () => {
    const { id } = await openai.conversations.create();
    const response = await openai.responses.create({ input: "Hello!", conversation: id });
    await openai.conversations.items.delete(response.output[0]?.id ?? "", { conversation_id: id });
    expect(await textsOf(gateway, id)).toEqual(["Hello!"]);
    expect((await openai.responses.retrieve(response.id)).output_text).toBe("You said: Hello!");
  });

  it("can all be deleted while they are listed page by page", async () => {
    const { id } = await threeTurns();
    for await (const item of openai.conversations.items.list(id, { limit: 2 })) {
      await openai.conversations.items.delete(item.id ?? "", { conversation_id: id });
    }
    expect(await itemsOf(gateway, id)).toEqual([]);
  });

  it("are separate when an item is added twice", async () => {
    const { id } = await openai.conversations.create();
    const first = await openai.responses.create({ input: "Hello!", conversation: id });
    const again = { type: "item_reference", id: first.output[0]?.id ?? "" } as const;
    await openai.responses.create({ input: [again, user("You said that.")], conversation: id });
    const ids = (await itemsOf(gateway, id)).map((item) => item.id);
    expect(ids).toHaveLength(5);
    expect(new Set(ids).size).toBe(5);
  });

  it.each([`msg_${"a".repeat(34)}`, "nonsense"])("are not found under the id %s", async (itemId) => {
    const { id } = await openai.conversations.create({ items: [user("Hello!")] });
    const place = { conversation_id: id };
    await expect(openai.conversations.items.retrieve(itemId, place)).rejects.toMatchObject(NO_ITEM);
    await expect(openai.conversations.items.delete(itemId, place)).rejects.toMatchObject(NO_ITEM);
  });

  it("are not found in another conversation", async () => {
    const { id } = await openai.conversations.create({ items: [user("Hello!")] });
    const other = await openai.conversations.create();
    const [item] = await itemsOf(gateway, id);
    const place = { conversation_id: other.id };
    await expect(openai.conversations.items.retrieve(item?.id ?? "", place)).rejects.toMatchObject(NO_ITEM);
  });
});

describe.concurrent("a turn in a conversation", () => {
  it("sees all earlier items in order, and is added to them", async () => {
    const { id } = await openai.conversations.create({ items: [user("I am Ann.")] });
    await openai.responses.create({ input: "Who am I?", conversation: id });
    await openai.responses.create({ input: [user("And"), user("now?")], conversation: { id } });
    expect(promptsFor(gateway, "now?")[0]?.texts).toEqual([
      "I am Ann.",
      "Who am I?",
      "You said: Who am I?",
      "And",
      "now?",
    ]);
    expect(await textsOf(gateway, id)).toEqual([
      "I am Ann.",
      "Who am I?",
      "You said: Who am I?",
      "And",
      "now?",
      "You said: now?",
    ]);
  });

  it("names its conversation, whatever the form of request and answer", async () => {
    const { id } = await openai.conversations.create();
    const byString = await openai.responses.create({ input: "One", conversation: id });
    const byObject = await openai.responses.create({ input: "Two", conversation: { id } });
    const background = await openai.responses.create({ input: "Three", conversation: id, background: true });
    await ended(gateway, background.id);
    const streamed = await openai.responses.stream({ input: "Four", conversation: id, stream: true }).finalResponse();
    for (const response of [byString, byObject, background, streamed]) {
      expect(response.conversation).toEqual({ id });
      expect((await openai.responses.retrieve(response.id)).conversation).toEqual({ id });
    }
    expect((await openai.responses.create({ input: "Alone" })).conversation).toBeNull();
  });

  it("has the ids of its items in the conversation", async () => {
    const { id } = await openai.conversations.create();
    const response = await openai.responses.create({ model: "simulator-reasoning", input: "Hello!", conversation: id });
    const input = await openai.responses.inputItems.list(response.id);
    const items = await itemsOf(gateway, id);
    expect(items.map((item) => item.id)).toEqual([...input.data, ...response.output].map((item) => item.id));
  });

  it("needs no new input", async () => {
    const { id } = await openai.conversations.create({ items: [user("Hello!")] });
    const response = await openai.responses.create({ input: [], conversation: id });
    expect(response.output_text).toBe("You said: Hello!");
    expect(await textsOf(gateway, id)).toEqual(["Hello!", "You said: Hello!"]);
  });

  it.each(["foreground", "stream", "background"] as const)("adds reasoning and function calls (%s)", async (way) => {
    const { id } = await openai.conversations.create();
    const create = async (input: string | ResponseInputItem[]): Promise<Response> => {
      const body = { model: "simulator-reasoning", input, conversation: id, tools: [weatherTool] };
      if (way === "stream") return openai.responses.stream({ ...body, stream: true }).finalResponse();
      const response = await openai.responses.create({ ...body, background: way === "background" });
      return way === "background" ? ended(gateway, response.id) : response;
    };
    const first = await create("What does get_weather say?");
    const call = first.output.find((item) => item.type === "function_call");
    expect((await itemsOf(gateway, id)).map(({ type }) => type)).toEqual(["message", "reasoning", "function_call"]);

    // The client sends only the result, because the call is in the conversation.
    const second = await create([{ type: "function_call_output", call_id: call?.call_id ?? "", output: "Sunny" }]);
    expect(second.output_text).toBe("The tool get_weather returned: Sunny");
    expect((await itemsOf(gateway, id)).map(({ type }) => type)).toEqual([
      "message",
      "reasoning",
      "function_call",
      "function_call_output",
      "reasoning",
      "message",
    ]);
  });

  it("is refused while a function call has no output, and adds nothing", async () => {
    const { id } = await openai.conversations.create();
    const body = { conversation: id, tools: [weatherTool] };
    await openai.responses.create({ ...body, input: "What does get_weather say?" });
    const before = await itemsOf(gateway, id);
    for (const background of [false, true]) {
      await expect(openai.responses.create({ ...body, input: "Well?", background })).rejects.toMatchObject({
        status: 400,
        param: "input",
        message: expect.stringContaining("No tool output found for function call"),
      });
    }
    const orphan = { type: "function_call_output", call_id: "call_unknown", output: "Sunny" } as const;
    await expect(openai.responses.create({ ...body, input: [orphan] })).rejects.toMatchObject({ status: 400 });
    expect(await itemsOf(gateway, id)).toEqual(before);
  });

  it.each([false, true])("adds an incomplete answer (background: %s)", async (background) => {
    const { id } = await openai.conversations.create();
    const body = { input: "Hello!", conversation: id, max_output_tokens: 2, background };
    const response = await ended(gateway, (await openai.responses.create(body)).id);
    expect(response.status).toBe("incomplete");
    expect(await textsOf(gateway, id)).toEqual(["Hello!", "You said"]);
  });

  it("adds nothing when it fails", async () => {
    const { id } = await openai.conversations.create({ items: [user("Before.")] });
    const body = { model: "simulator?fault=error:2&tps=50", input: "Hello!", conversation: id };
    await expect(openai.responses.create(body)).rejects.toBeInstanceOf(OpenAI.InternalServerError);
    const events: string[] = [];
    const stream = await openai.responses.create({ ...body, stream: true });
    await expect(async () => {
      for await (const event of stream) events.push(event.type);
    }).rejects.toThrow();
    expect(events).toContain("response.output_text.delta");
    const background = await openai.responses.create({ ...body, background: true });
    expect((await ended(gateway, background.id)).status).toBe("failed");
    expect(await textsOf(gateway, id)).toEqual(["Before."]);
    await openai.responses.create({ input: "After.", conversation: id });
    expect(promptsFor(gateway, "After.")[0]?.texts).toEqual(["Before.", "After."]);
  });

  it("adds nothing when it is refused, here or by the model server", async () => {
    const { id } = await openai.conversations.create({ items: [user("Before.")] });
    const create = (body: object) => openai.responses.create({ input: "Hello!", conversation: id, ...body });
    await expect(create({ temperature: 3 })).rejects.toMatchObject({ status: 400, param: "temperature" });
    await expect(create({ model: "nobody" })).rejects.toMatchObject({ param: "model" });
    await expect(create({ model: "simulator?max_model_len=4" })).rejects.toMatchObject({ status: 400 });
    await expect(create({ input: [{ type: "item_reference", id: "msg_1" }] })).rejects.toMatchObject({ status: 400 });
    expect(await textsOf(gateway, id)).toEqual(["Before."]);
    // The conversation is free again.
    expect((await create({})).status).toBe("completed");
  });

  it("adds nothing when it is cancelled", async () => {
    const { id } = await openai.conversations.create();
    const body = { model: "simulator?tps=20&words=1000", input: "Cancel me.", conversation: id, background: true };
    const response = await openai.responses.create(body);
    await reached(gateway, "Cancel me.");
    expect((await openai.responses.cancel(response.id)).status).toBe("cancelled");
    expect(await itemsOf(gateway, id)).toEqual([]);
    await openai.responses.create({ input: "Next.", conversation: id });
    expect(promptsFor(gateway, "Next.")[0]?.texts).toEqual(["Next."]);
  });

  it("cannot also continue a response", async () => {
    const { id } = await openai.conversations.create();
    const { id: previous_response_id } = await openai.responses.create({ input: "Hello!" });
    for (const conversation of [id, { id }]) {
      await expect(
        openai.responses.create({ input: "Hello!", conversation, previous_response_id }),
      ).rejects.toMatchObject({ status: 400, code: "mutually_exclusive_parameters" });
    }
    expect(await itemsOf(gateway, id)).toEqual([]);
  });

  it("passes no instructions on to the next turn", async () => {
    const { id } = await openai.conversations.create();
    const [first, second] = ["Instructed once", "Instructed twice"];
    await openai.responses.create({ input: first, conversation: id, instructions: "Be brief." });
    expect(promptsFor(gateway, first)[0]?.texts).toEqual(["Be brief.", first]);
    await openai.responses.create({ input: second, conversation: id, instructions: "Be long." });
    expect(promptsFor(gateway, second)[0]?.texts).toEqual(["Be long.", first, `You said: ${first}`, second]);
    expect(await textsOf(gateway, id)).not.toContain("Be brief.");
  });

  it("is added with store: false, too, but cannot be retrieved or continued", async () => {
    const { id } = await openai.conversations.create();
    const response = await openai.responses.create({ input: "Hello!", conversation: id, store: false });
    expect(await textsOf(gateway, id)).toEqual(["Hello!", "You said: Hello!"]);
    await expect(openai.responses.retrieve(response.id)).rejects.toBeInstanceOf(OpenAI.NotFoundError);
    await expect(openai.responses.inputItems.list(response.id)).rejects.toBeInstanceOf(OpenAI.NotFoundError);
    await expect(openai.responses.delete(response.id)).rejects.toBeInstanceOf(OpenAI.NotFoundError);
    for (const background of [false, true]) {
      await expect(
        openai.responses.create({ input: "Go on.", previous_response_id: response.id, background }),
      ).rejects.toMatchObject({ status: 400, code: "previous_response_not_found" });
    }
  });

  it("keeps its items in the conversation when its response is deleted, and can then not be continued", async () => {
    const { id } = await openai.conversations.create();
    const response = await openai.responses.create({ input: "Hello!", conversation: id });
    const branch = await openai.responses.create({ input: "Branch.", previous_response_id: response.id });
    await openai.responses.delete(response.id);
    expect(await textsOf(gateway, id)).toEqual(["Hello!", "You said: Hello!"]);
    await expect(openai.responses.retrieve(response.id)).rejects.toBeInstanceOf(OpenAI.NotFoundError);
    for (const previous_response_id of [response.id, branch.id]) {
      await expect(openai.responses.create({ input: "Go on.", previous_response_id })).rejects.toMatchObject({
        status: 400,
        code: "previous_response_not_found",
      });
    }
    await openai.responses.create({ input: "And on.", conversation: id });
    expect(promptsFor(gateway, "And on.")[0]?.texts).toEqual(["Hello!", "You said: Hello!", "And on."]);
  });

  it("can be continued as a branch, which sees the conversation up to it and is not added to it", async () => {
    const { id } = await openai.conversations.create({ items: [user("Zero")] });
    const first = await openai.responses.create({ input: "One", conversation: id });
    await openai.responses.create({ input: "Two", conversation: id });
    const before = await itemsOf(gateway, id);
    const branch = await openai.responses.create({ input: "Branch", previous_response_id: first.id });
    expect(branch.conversation).toBeNull();
    expect(promptsFor(gateway, "Branch")[0]?.texts).toEqual(["Zero", "One", "You said: One", "Branch"]);
    const twig = { input: "Twig", previous_response_id: branch.id, background: true };
    await ended(gateway, (await openai.responses.create(twig)).id);
    expect(promptsFor(gateway, "Twig")[0]?.texts).toEqual([
      "Zero",
      "One",
      "You said: One",
      "Branch",
      "You said: Branch",
      "Twig",
    ]);
    expect(await itemsOf(gateway, id)).toEqual(before);
  });
});

describe("an item that was deleted from its conversation", () => {
  it("cannot be referenced, in an input or in another conversation; its neighbours can", async () => {
    const { id } = await openai.conversations.create({ items: [user("Forget this."), user("Keep this.")] });
    const [forget, keep] = await itemsOf(gateway, id);
    await openai.conversations.items.delete(forget?.id ?? "", { conversation_id: id });
    const reference = (of: typeof keep) => ({ type: "item_reference" as const, id: of?.id ?? "" });
    const gone = { status: 400, code: "item_not_found", param: "input[0].id" };
    const asked = [
      openai.responses.create({ input: [reference(forget)] }),
      openai.responses.create({ input: [reference(forget)], background: true }),
      openai.conversations.create({ items: [reference(forget)] }),
    ];
    await Promise.all(asked.map((refused) => expect(Promise.resolve(refused)).rejects.toMatchObject(gone)));
    const { output_text } = await openai.responses.create({ input: [reference(keep)] });
    expect(output_text).toBe("You said: Keep this.");
  });
});

describe("a page after an item that does not exist", () => {
  it("is a 400 that names 'after', for a conversation and for a response's input", async () => {
    const { id } = await openai.conversations.create({ items: [user("One"), user("Two")] });
    const response = await openai.responses.create({ input: "Three" });
    const refused = { status: 400, param: "after", code: "item_not_found" };
    for (const after of ["msg_1", response.output[0]?.id ?? ""]) {
      for (const order of ["asc", "desc"] as const) {
        const lists = [
          openai.conversations.items.list(id, { after, order }),
          openai.responses.inputItems.list(response.id, { after, order }),
        ];
        await Promise.all(lists.map((list) => expect(Promise.resolve(list)).rejects.toMatchObject(refused)));
      }
    }
  });

  it("begins after an item of the earlier page that was deleted since", async () => {
    const { id } = await openai.conversations.create({ items: [user("One"), user("Two"), user("Three")] });
    const [, two] = await itemsOf(gateway, id);
    await openai.conversations.items.delete(two?.id ?? "", { conversation_id: id });
    const rest = await openai.conversations.items.list(id, { after: two?.id, order: "asc" });
    expect(rest.data).toMatchObject([{ content: [{ text: "Three" }] }]);
  });
});
