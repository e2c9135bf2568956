import { createHash } from "node:crypto";
import type OpenAI from "openai";
import type {
  Response,
  ResponseCreateParamsNonStreaming,
  ResponseInputItem,
  ResponseReasoningItem,
  ResponseStreamEvent,
} from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { framesOf, idIn, replay, typesOf, withoutHeartbeats } from "./event-streams.ts";
import {
  DATE,
  GPT_OSS,
  lastCompletionPrompt,
  lastPromptIds,
  outputOf,
  resent,
  saying,
  tools,
} from "./harmony-support.ts";
import { SocketClient } from "./socket-support.ts";
import { eventually, type Gateway, lastPrompt, startGateway } from "./support.ts";
import { ended, itemsOf } from "./turns.ts";

/** Reasoning that clients keep (`encrypted_content`), reasoning that people see (`summary`), and hidden reasoning. */

const KEYS = { a: "key-of-tenant-a", b: "key-of-tenant-b" };
const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");
const API_KEYS = `a:${sha256(KEYS.a)},b:${sha256(KEYS.b)}`;
const OLD_KEY = `2025:${Buffer.alloc(32, 1).toString("base64")}`;
const NEW_KEY = `2026:${Buffer.alloc(32, 2).toString("base64")}`;
const COMMON = { API_KEYS, ALLOW_ANONYMOUS: "false", HARMONY_START_DATE: DATE };

let gateway: Gateway;
/** A gateway whose operator hides reasoning, and has rotated the keys. */
let hiding: Gateway;
let client: OpenAI;
let hidden: OpenAI;

beforeAll(async () => {
  gateway = await startGateway({ ...COMMON, ENCRYPTION_KEYS: OLD_KEY });
  hiding = await startGateway({ ...COMMON, ENCRYPTION_KEYS: `${NEW_KEY},${OLD_KEY}`, REASONING_CONTENT: "hidden" });
  client = gateway.client({ apiKey: KEYS.a });
  hidden = hiding.client({ apiKey: KEYS.a });
});
afterAll(async () => {
  await gateway.close();
  await hiding.close();
});

type Body = ResponseCreateParamsNonStreaming;
type Item = Response["output"][number];

const CHAT = "simulator-reasoning";
const QUESTION: ResponseInputItem = { role: "user", content: "get_weather please" };

function thoughtOf({ output }: Pick<Response, "output">): ResponseReasoningItem {
  const item = output.find(({ type }) => type === "reasoning");
  if (item?.type !== "reasoning") throw new Error(`Expected reasoning, got ${JSON.stringify(output)}`);
  return item;
}

/** A response's items for a client that keeps only the encrypted content of reasoning. */
function sealedOnly(items: readonly Item[]): ResponseInputItem[] {
  const kept = items.map((item) => {
    if (item.type !== "reasoning") return item;
    return { ...item, content: undefined, summary: [] };
  });
  return resent(kept as Item[]);
}

/** The events of a stream. */
async function streamed(by: OpenAI, body: Omit<Body, "stream">): Promise<ResponseStreamEvent[]> {
  return Array.fromAsync(await by.responses.create({ ...body, stream: true }));
}

/** The items of a stream's `done` events, in their order. */
function doneItems(events: readonly ResponseStreamEvent[]): Item[] {
  return events.flatMap((event) => (event.type === "response.output_item.done" ? [event.item] : []));
}

function call(items: readonly Item[]) {
  const found = items.find(({ type }) => type === "function_call");
  if (found?.type !== "function_call") throw new Error("The model has called nothing.");
  return found;
}

/** Headers and arguments of gpt-oss's calls, in this server's own form and in others. */
const CALLS: [what: string, call: string][] = [
  [
    "as this server writes them",
    '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city":"Oslo"}',
  ],
  ["with spaces", '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{ "city" : "Oslo" }'],
  ["with another header", ' to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Oslo"}'],
  ["within its thoughts", '<|channel|>analysis to=functions.get_weather code<|message|>{"city": "Oslo"}'],
];

describe("gpt-oss's reasoning and calls, returned by a client that keeps them", () => {
  describe.each(CALLS)("%s", (_, written) => {
    const model = saying(`<|channel|>analysis<|message|>Which city?<|end|><|start|>assistant${written}<|call|>`);

    it.each(["json", "stream"])("give the same prompt as previous_response_id, token for token: %s", async (way) => {
      const body = { model, input: [QUESTION], tools };
      const events = way === "stream" ? await streamed(client, body) : [];
      const last = events.at(-1);
      const first = way === "json" ? await client.responses.create(body) : last && "response" in last && last.response;
      if (!first) throw new Error("The stream has no end.");
      const items = way === "json" ? first.output : doneItems(events);
      expect(items.map(({ type }) => type)).toEqual(["reasoning", "function_call"]);
      const output = outputOf(call(items));
      await client.responses.create({ model, previous_response_id: first.id, input: [output], tools });
      const expected = await lastPromptIds(gateway);

      const stateless = { model, tools, store: false };
      const input = [QUESTION, ...sealedOnly(items), output];
      const { input_tokens } = await client.responses.inputTokens.count({ model, tools, input });
      expect(input_tokens).toBe(expected.length);
      await client.responses.create({ ...stateless, input });
      expect(await lastPromptIds(gateway)).toEqual(expected);
      // The items have ids, and the text beside the encrypted content.
      await client.responses.create({ ...stateless, input: [QUESTION, ...(items as ResponseInputItem[]), output] });
      expect(await lastPromptIds(gateway)).toEqual(expected);
      // The AI SDK parses the arguments, and serialises them again.
      const anew = sealedOnly(items).map((item) =>
        item.type === "function_call" ? { ...item, arguments: JSON.stringify(JSON.parse(item.arguments)) } : item,
      );
      await client.responses.create({ ...stateless, input: [QUESTION, ...anew, output] });
      expect(await lastPromptIds(gateway)).toEqual(expected);
    });
  });

  it.each([
    [{ type: "custom", name: "note" }, "code<|message|>one  two", "custom_tool_call"],
    [{ type: "apply_patch" }, 'json<|message|>{"type" : "delete_file", "path" :"a"}', "apply_patch_call"],
  ] as const)("may contain calls of other tools: %j", async (tool, body, type) => {
    const name = "name" in tool ? tool.name : tool.type;
    const model = saying(
      `<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant to=functions.${name}<|channel|>commentary ${body}<|call|>`,
    );
    const fields = { model, tools: [tool] };
    const events = await streamed(client, { ...fields, input: [QUESTION] });
    const last = events.at(-1);
    if (last?.type !== "response.completed") throw new Error("The response is not complete.");
    const items = doneItems(events);
    expect(items.map((item) => item.type)).toEqual(["reasoning", type]);
    const [, called] = items as [unknown, { call_id: string }];
    const output = { type: `${type}_output`, call_id: called.call_id, output: "done", status: "completed" };
    const answer = output as ResponseInputItem;
    await client.responses.create({ ...fields, previous_response_id: last.response.id, input: [answer] });
    const expected = await lastPromptIds(gateway);
    await client.responses.create({ ...fields, store: false, input: [QUESTION, ...sealedOnly(items), answer] });
    expect(await lastPromptIds(gateway)).toEqual(expected);
  });

  it("contain the client's call if the client has changed it", async () => {
    const model = saying(
      '<|channel|>analysis<|message|>Which city?<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather json<|message|>{"city":"Oslo"}<|call|>',
    );
    const first = await client.responses.create({ model, input: [QUESTION], tools, store: false });
    const changed = sealedOnly(first.output).map((item) =>
      item.type === "function_call" ? { ...item, arguments: '{"city":"Rome"}' } : item,
    );
    await client.responses.create({
      model,
      tools,
      store: false,
      input: [QUESTION, ...changed, outputOf(call(first.output))],
    });
    const prompt = await lastCompletionPrompt(gateway);
    expect(prompt).toContain("Which city?");
    expect(prompt).toContain("Rome");
    expect(prompt).not.toContain("Oslo");
  });

  it("are done just before the call that they are sealed with, and before a message at once", async () => {
    const model = saying(
      "<|channel|>analysis<|message|>A.<|end|><|start|>assistant<|channel|>commentary<|message|>Hm.<|end|><|start|>assistant<|channel|>analysis<|message|>B.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather json<|message|>{}<|call|>",
    );
    const events = await streamed(client, { model, input: [QUESTION], tools, store: false });
    const order = events.flatMap((event) => {
      if (event.type !== "response.output_item.added" && event.type !== "response.output_item.done") return [];
      return [`${event.item.type} ${event.type.slice("response.output_item.".length)}`];
    });
    expect(order).toEqual([
      "reasoning added",
      "reasoning done",
      "message added",
      "message done",
      "reasoning added",
      "function_call added",
      "reasoning done",
      "function_call done",
    ]);
  });
});

describe("over a socket", () => {
  it.each([CHAT, GPT_OSS])("reasoning of %s is returned as over HTTP, also if it is hidden", async (model) => {
    for (const through of [gateway, hiding]) {
      const { id, items } = await firstBySocket(through, model, (socket) => socket.close());
      const output = outputOf(call(items));
      const by = through.client({ apiKey: KEYS.a });
      await by.responses.create({ model, tools, store: false, input: [QUESTION, ...sealedOnly(items), output] });
      const expected = await promptOf(through, model);
      const again = await firstBySocket(through, model, async (socket, first) => {
        const input = [outputOf(call(first.items))];
        const turn = await socket.turn({ model, tools, previous_response_id: first.id, input });
        expect(turn.last.type).toBe("response.completed");
        await socket.close();
      });
      expect(again.id).not.toBe(id);
      expect(await promptOf(through, model)).toBe(withCallId(expected, items, again.items));
    }
  });

  interface First {
    id: string;
    items: Item[];
  }

  /** Creates a turn with a call over a WebSocket, and calls `then` with it. */
  async function firstBySocket(
    through: Gateway,
    model: string,
    then: (socket: SocketClient, first: First) => Promise<void>,
  ): Promise<First> {
    const socket = await SocketClient.open(through, { headers: { authorization: `Bearer ${KEYS.a}` } });
    const turn = await socket.turn({ model, tools, input: [QUESTION] });
    const first = { id: turn.id, items: doneItems(turn.events as unknown as ResponseStreamEvent[]) };
    await then(socket, first);
    return first;
  }

  /** The ids of two calls differ, and chat models see them. */
  function withCallId(prompt: string, from: readonly Item[], to: readonly Item[]): string {
    return prompt.replaceAll(call(from).call_id, call(to).call_id);
  }
});

describe("a chat model's reasoning, returned by a client that keeps it", () => {
  it.each(["json", "stream"])("gives the same messages as previous_response_id: %s", async (way) => {
    const body = { model: CHAT, input: [QUESTION], tools };
    const events = way === "stream" ? await streamed(client, body) : [];
    const last = events.at(-1);
    const first = way === "json" ? await client.responses.create(body) : last && "response" in last && last.response;
    if (!first) throw new Error("The stream has no end.");
    const items = way === "json" ? first.output : doneItems(events);
    const output = outputOf(call(items));
    await client.responses.create({ model: CHAT, previous_response_id: first.id, input: [output], tools });
    const { messages } = lastPrompt(gateway);
    expect(JSON.stringify(messages)).toContain('"reasoning":"The user said');
    const input = [QUESTION, ...sealedOnly(items), output];
    await client.responses.create({ model: CHAT, tools, store: false, input });
    expect(lastPrompt(gateway).messages).toEqual(messages);
    // It works in a run, and in a conversation, where every turn decrypts it again.
    const conversation = await client.conversations.create({ items: [QUESTION, ...sealedOnly(items)] });
    const run = await client.responses.create({
      model: CHAT,
      tools,
      background: true,
      conversation: conversation.id,
      input: [output],
    });
    expect(await ended({ ...gateway, openai: client }, run.id)).toMatchObject({ status: "completed" });
    expect(lastPrompt(gateway).messages).toEqual(messages);
  });
});

describe("encrypted_content", () => {
  const create = (fields: Partial<Body> = {}, by = client) =>
    by.responses.create({ model: CHAT, input: "Hello!", ...fields }) as Promise<Response>;
  /** Returns reasoning to the server. Gives the response, and whether the model saw the reasoning. */
  async function sendBack(item: object, fields: Partial<Body> = {}, by = client, through = gateway) {
    const input = [{ role: "user", content: "Hi" }, item, { role: "user", content: "Go on." }] as ResponseInputItem[];
    const response = (await create({ input, store: false, ...fields }, by)) as Response & {
      input_transformations?: unknown;
    };
    return {
      told: response.input_transformations,
      seen: JSON.stringify(lastPrompt(through).messages).includes("The user said: Hello!"),
    };
  }
  const bare = (encrypted_content: string, id?: string) => ({
    type: "reasoning",
    summary: [],
    encrypted_content,
    ...(id && { id }),
  });

  it("is in every answer to a create, stored or not, and in other answers on request", async () => {
    const plain = await create();
    const unstored = await create({ store: false });
    const idempotent = await client.responses.create(
      { model: CHAT, input: "Hello!" },
      { headers: { "Idempotency-Key": "sealed" } },
    );
    const sealed = expect.stringMatching(/^re1\.2025\.[\w-]+$/) as string;
    for (const response of [plain, unstored, idempotent]) {
      expect(thoughtOf(response)).toMatchObject({ encrypted_content: sealed, content: [{ type: "reasoning_text" }] });
    }
    expect(thoughtOf(await client.responses.retrieve(plain.id))).not.toHaveProperty("encrypted_content");
    const asked = await client.responses.retrieve(plain.id, { include: ["reasoning.encrypted_content"] });
    expect(thoughtOf(asked)).toEqual(thoughtOf(plain));
    const input = [...(plain.output as ResponseInputItem[]), QUESTION];
    const next = await create({ input });
    const listed = await Array.fromAsync(client.responses.inputItems.list(next.id));
    expect(JSON.stringify(listed)).not.toContain("re1.2025");
    const full = await Array.fromAsync(
      client.responses.inputItems.list(next.id, { include: ["reasoning.encrypted_content"] }),
    );
    expect(JSON.stringify(full)).toContain("re1.2025");
  });

  it("is decrypted with every key of the operator's, and encrypted with the first", async () => {
    const { encrypted_content: blob } = thoughtOf(await create());
    expect(await sendBack(bare(blob ?? ""), {}, hidden, hiding)).toEqual({ told: undefined, seen: true });
    const later = thoughtOf(await create({}, hidden)).encrypted_content ?? "";
    expect(later).toMatch(/^re1\.2026\./);
    expect(await sendBack(bare(later))).toMatchObject({ told: [{ reason: "organization_mismatch" }], seen: false });
  });

  it("that cannot be decrypted is left out, and reported by the id of its item", async () => {
    const blob = thoughtOf(await create()).encrypted_content ?? "";
    const b = gateway.client({ apiKey: KEYS.b });
    const removed = (id: unknown, reason: string) => [{ type: "reasoning", id, action: "removed", reason }];
    const someId = expect.stringMatching(/^rs_\w+$/) as string;
    expect(await sendBack(bare(blob, "rs_1"))).toEqual({ told: undefined, seen: true });
    expect(await sendBack(bare(blob), {}, b)).toEqual({ told: removed(someId, "organization_mismatch"), seen: false });
    expect(await sendBack(bare(blob), { model: "simulator" })).toEqual({
      told: removed(someId, "model_mismatch"),
      seen: false,
    });
    for (const foreign of ["gAAAAABpX0fQ7vZs", "re1.", "é".repeat(1_000), `${blob}A`]) {
      expect(await sendBack(bare(foreign))).toEqual({ told: removed(someId, "organization_mismatch"), seen: false });
    }
  });

  it("that cannot be decrypted leaves the text beside it", async () => {
    const { content, ...thought } = thoughtOf(await create());
    const changed = { ...thought, content, encrypted_content: `${thought.encrypted_content}A` };
    expect(await sendBack(changed)).toEqual({ told: undefined, seen: true });
  });

  it("is in every snapshot of a stream, and of a run", async () => {
    const input = [bare("gAAA"), QUESTION] as unknown as ResponseInputItem[];
    const told = [{ reason: "organization_mismatch" }];
    for (const background of [false, true]) {
      const events = await streamed(client, { model: CHAT, input, background });
      for (const event of events)
        if ("response" in event) expect(event.response).toMatchObject({ input_transformations: told });
    }
  });

  it("that was changed anywhere cannot be decrypted, and causes no error", async () => {
    const blob = thoughtOf(await create()).encrypted_content ?? "";
    const places = Array.from({ length: 40 }, (_, index) => Math.floor((index * blob.length) / 40));
    const mutants = places.map((at) => blob.slice(0, at) + (blob[at] === "A" ? "B" : "A") + blob.slice(at + 1));
    const input = [...mutants.map((mutant) => bare(mutant)), QUESTION] as unknown as ResponseInputItem[];
    const response = (await create({ input, store: false })) as Response & { input_transformations: unknown[] };
    expect(response.input_transformations).toHaveLength(40);
    for (const mutant of mutants.slice(0, 10)) expect(await sendBack(bare(mutant))).toMatchObject({ seen: false });
  });
});

describe("a summary", () => {
  const TEXT = "The user said: Hello!. I should answer with effort default.";

  it.each([
    [CHAT, TEXT, { summary: "auto" as const }],
    [CHAT, TEXT, { generate_summary: "detailed" as const }],
    [GPT_OSS, TEXT.replace("default", "medium"), { summary: "concise" as const }],
  ])("is the reasoning of %s, streamed as it is generated", async (model, text, reasoning) => {
    const events = await streamed(client, { model, input: "Hello!", reasoning });
    const ofThought = events.filter((event) => "output_index" in event && event.output_index === 0);
    const types = ofThought.map(({ type }) => type).filter((type, index, all) => type !== all[index - 1]);
    expect(types).toEqual([
      "response.output_item.added",
      "response.reasoning_summary_part.added",
      "response.reasoning_summary_text.delta",
      "response.reasoning_summary_text.done",
      "response.reasoning_summary_part.done",
      "response.output_item.done",
    ]);
    const deltas = ofThought.flatMap((event) =>
      event.type === "response.reasoning_summary_text.delta" ? [event] : [],
    );
    expect(deltas.length).toBeGreaterThan(5);
    expect(deltas.map(({ delta }) => delta).join("")).toBe(text);
    const [thought] = doneItems(events);
    expect(thought).toMatchObject({ type: "reasoning", summary: [{ type: "summary_text", text }] });
    expect(thought).not.toHaveProperty("content");
  });

  it("is in the prompt of later turns, and of rounds", async () => {
    const first = await client.responses.create({
      model: CHAT,
      input: [QUESTION],
      tools,
      reasoning: { summary: "auto" },
    });
    const output = outputOf(call(first.output));
    await client.responses.create({ model: CHAT, tools, previous_response_id: first.id, input: [output] });
    const { messages } = lastPrompt(gateway);
    expect(JSON.stringify(messages)).toContain('"reasoning":"The user said');
    const items = first.output.map(({ id: _, ...item }) =>
      item.type === "reasoning" ? { ...item, encrypted_content: undefined } : item,
    ) as ResponseInputItem[];
    await client.responses.create({ model: CHAT, tools, store: false, input: [QUESTION, ...items, output] });
    expect(lastPrompt(gateway).messages).toEqual(messages);
  });

  it.each([CHAT, GPT_OSS])("of a run is the same in a replay: %s", async (model) => {
    const body = { model, input: "Hello!", background: true, stream: true, reasoning: { summary: "auto" } };
    const answer = await gateway.post(body, { authorization: `Bearer ${KEYS.a}` });
    const stream = await answer.text();
    const reader = { ...gateway, fetch: withKey(gateway) };
    expect(framesOf(await replay(reader, idIn(stream)))).toEqual(framesOf(stream));
    expect(stream).toContain("response.reasoning_summary_text.delta");
    expect(stream).not.toContain("reasoning_text");
  });
});

describe("reasoning that the operator hides", () => {
  const THOUGHT = /I should answer|reasoning_text|summary_text|Which city/;

  it.each([
    [CHAT, undefined],
    [CHAT, "auto" as const],
    [GPT_OSS, undefined],
    [GPT_OSS, "auto" as const],
  ])("is in no body, stream, item or replay, and in every prompt: %s, summary %s", async (model, summary) => {
    const fields = { model, tools, ...(summary && { reasoning: { summary } }) };
    const seen: unknown[] = [];
    const first = await hidden.responses.create({ ...fields, input: [QUESTION] });
    expect(first.output.map(({ type }) => type)).toEqual(["reasoning", "function_call"]);
    expect(thoughtOf(first)).toMatchObject({ summary: [], encrypted_content: expect.stringMatching(/^re1/) as string });
    const output = outputOf(call(first.output));
    seen.push(first, await hidden.responses.retrieve(first.id));
    seen.push(await streamed(hidden, { ...fields, input: "Hello!" }));

    const second = await hidden.responses.create({ ...fields, previous_response_id: first.id, input: [output] });
    const expected = await promptOf(hiding, model);
    expect(expected).toMatch(/I should (call|answer|use)|The user said/);
    seen.push(second);
    // The first client keeps everything itself.
    await hidden.responses.create({ ...fields, store: false, input: [QUESTION, ...sealedOnly(first.output), output] });
    expect(await promptOf(hiding, model)).toBe(expected);
    // The second client keeps ids.
    const references = first.output.map(({ id }) => ({ type: "item_reference" as const, id: id ?? "" }));
    const third = await hidden.responses.create({ ...fields, input: [QUESTION, ...references, output] });
    expect(await promptOf(hiding, model)).toBe(expected);
    seen.push(await Array.fromAsync(hidden.responses.inputItems.list(third.id)));

    const conversation = await hidden.conversations.create({ items: [{ role: "user", content: "Hello!" }] });
    const body = { ...fields, input: [], conversation: conversation.id, background: true, stream: true };
    const stream = await (await hiding.post(body, { authorization: `Bearer ${KEYS.a}` })).text();
    seen.push(stream, await replay({ ...hiding, fetch: withKey(hiding) }, idIn(stream)));
    seen.push(await itemsOf({ ...hiding, openai: hidden }, conversation.id));
    expect(JSON.stringify(seen)).not.toMatch(THOUGHT);
    expect(hiding.logs()).not.toMatch(THOUGHT);
  });

  it("is not in raw messages and prompts, either: they are refused", async () => {
    const asked = hidden.responses.create({ model: GPT_OSS, input: "Hi", enable_response_messages: true } as Body);
    await expect(asked).rejects.toMatchObject({ status: 400, param: "enable_response_messages" });
    const { id } = await hidden.responses.create({ model: GPT_OSS, input: "Hi" });
    const prompt = hidden.get(`/responses/${id}/prompt`);
    await expect(prompt).rejects.toMatchObject({ status: 400, code: "prompt_hidden" });
  });
});

describe("a client that sends its version of Open Responses", () => {
  const headers = { authorization: `Bearer ${KEYS.a}`, "openresponses-version": "latest" };
  const body = { model: CHAT, input: "Hi", stream: true };
  /** This bypasses the checks, which only know OpenAI's names. */
  const post = (fields: object, more: object = headers, signal?: AbortSignal) =>
    fetch(`${gateway.url}/v1/responses`, {
      method: "POST",
      headers: { "content-type": "application/json", ...more },
      body: JSON.stringify({ ...body, ...fields }),
      ...(signal && { signal }),
    });
  /** A stream's lines without the parts that differ between any two streams. */
  const constant = (text: string) =>
    withoutHeartbeats(text)
      .replaceAll(/\b([a-z]+)_[A-Za-z0-9]{20,}/g, "$1_")
      .replaceAll(/"(\w+_at|obfuscation)":("\w*"|\d+)/g, "");
  const renamed = (text: string) => text.replaceAll("response.reasoning_text.", "response.reasoning.");

  it("gets its names of events, and no other difference", async () => {
    const { "openresponses-version": _, ...plain } = headers;
    const fields = { stream_options: { include_obfuscation: false }, include: [] };
    const [named, openai] = await Promise.all(
      [post(fields), post(fields, plain)].map(async (answer) => (await answer).text()),
    );
    expect(openai).toContain('event: response.reasoning_text.delta\ndata: {"type":"response.reasoning_text.delta"');
    const sealed = (text = "") => constant(text).replaceAll(/"encrypted_content":"[^"]*"/g, "");
    expect(sealed(named)).toBe(renamed(sealed(openai)));
  });

  it("gets them when it reads a background response's events again", async () => {
    const stream = await (await post({ background: true })).text();
    const again = await fetch(`${gateway.url}/v1/responses/${idIn(stream)}?stream=true`, { headers });
    expect(withoutHeartbeats(await again.text())).toBe(withoutHeartbeats(stream));
    expect(typesOf(stream)).toContain("response.reasoning.done");
    expect(stream).not.toContain("response.reasoning_text.");
    const { "openresponses-version": _, ...plain } = headers;
    const openai = await fetch(`${gateway.url}/v1/responses/${idIn(stream)}?stream=true`, { headers: plain });
    expect(renamed(withoutHeartbeats(await openai.text()))).toBe(withoutHeartbeats(stream));
  });

  it("gets them over a socket", async () => {
    const socket = await SocketClient.open(gateway, { headers });
    const { types } = await socket.turn({ model: CHAT, input: "Hi" });
    await socket.close();
    expect(types).toContain("response.reasoning.delta");
    expect(types.filter((type) => type.startsWith("response.reasoning_text"))).toEqual([]);
  });

  it("stops the model when it disconnects", async () => {
    const model = "simulator?words=100000&tps=100";
    const controller = new AbortController();
    const answer = await post({ model }, headers, controller.signal);
    await answer.body?.getReader().read();
    const asked = () =>
      gateway.vllm.simulator.requests.findLast((request) => JSON.stringify(request.body)?.includes(model));
    await eventually(() => asked()?.state === "open");
    controller.abort();
    await eventually(() => asked()?.state === "aborted");
  });
});

/** The last prompt of a model, as text. */
async function promptOf(through: Gateway, model: string): Promise<string> {
  return model === CHAT ? JSON.stringify(lastPrompt(through).messages) : lastCompletionPrompt(through);
}

/** Sends a GET as a tenant. */
function withKey(by: Gateway): Gateway["fetch"] {
  const fetch = (url: string | URL | Request, init?: RequestInit) =>
    by.fetch(url, { ...init, headers: { authorization: `Bearer ${KEYS.a}` } });
  return Object.assign(fetch, by.fetch);
}
