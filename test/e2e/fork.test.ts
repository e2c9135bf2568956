import type {
  ResponseCreateParamsNonStreaming,
  Response as ResponseObject,
  ResponseStreamEvent,
} from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { CHANNEL, harmonyTokenizer } from "../../dev/simulator/harmony-tokenizer.ts";
import { serveSimulator } from "../../dev/simulator/serve.ts";
import { descriptionOf } from "../conformance/api-description.ts";
import { parseEventStream } from "../conformance/event-stream.ts";
import { startWorkerd, type WorkerdProcess } from "../workerd/process.ts";
import { replay } from "./event-streams.ts";
import { expectError } from "./expectations.ts";
import { GPT_OSS, lastCompletion, lastPromptIds, lastTurns } from "./harmony-support.ts";
import { eventually, type Gateway, gatewayAt, lastPrompt } from "./support.ts";
import {
  chatMessages,
  generations,
  itemsOfType,
  MODELS,
  mcp,
  onlyItem,
  shortly,
  startTools,
  type ToolServer,
  textOf,
} from "./tool-support.ts";
import { ended } from "./turns.ts";

/** Forks: new branches of stored responses. */

let gateway: Gateway;
let server: ToolServer;
let worker: WorkerdProcess;
beforeAll(async () => {
  server = await startTools({
    add: { properties: { a: { const: 1 }, b: { const: 2 } }, run: () => "3" },
    twice: { properties: { n: { const: 4 } }, run: () => "8" },
  });
  const vllm = await serveSimulator();
  const variables = { VLLM_BASE_URL: `${vllm.url}/v1`, ALLOW_ANONYMOUS: "true", MCP_SERVERS: server.url };
  worker = await startWorkerd(variables, { readsFormats: false });
  gateway = gatewayAt(worker, vllm, await descriptionOf(worker.url));
});
afterAll(async () => {
  await gateway?.close();
  await server?.close();
});

function fork(id: string, body: object): Promise<Response> {
  return gateway.fetch(`${gateway.url}/v1/responses/${id}/fork`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
}

async function forked(id: string, body: object): Promise<ResponseObject> {
  const answer = await fork(id, body);
  expect(answer.status, answer.ok ? "" : await answer.clone().text()).toBe(200);
  return (await answer.json()) as ResponseObject;
}

const create = (body: ResponseCreateParamsNonStreaming) => gateway.openai.responses.create(body);

/** A value in which every id is that of one turn, and nothing says when it came. */
function anonymous(value: unknown): unknown {
  const text = JSON.stringify(value, (key, each) =>
    ["sequence_number", "obfuscation"].includes(key) ? undefined : each,
  );
  return JSON.parse(text.replaceAll(/([a-z]+_)[0-9A-Za-z]{32}/g, "$1"));
}

/** The events of items in a stream, without the response in which they are. */
function eventsOf(stream: string): ResponseStreamEvent[] {
  const events = parseEventStream(stream).events.map(({ data }) => data as ResponseStreamEvent);
  return events.filter((event) => !("response" in event));
}

async function replayed(id: string): Promise<ResponseStreamEvent[]> {
  return eventsOf(await (await gateway.fetch(`${gateway.url}/v1/responses/${id}/replay`, { method: "POST" })).text());
}

const tools = () => [mcp(server)];

const WHERE = {
  type: "object",
  properties: { where: { const: "at the harbour, beside the lighthouse" } },
  required: ["where"],
  additionalProperties: false,
};

describe.each(MODELS)("a fork of a response of %s", (model) => {
  it.each([true, false])("at any event begins with the same events, background: %s", async (background) => {
    const created = await create({ model, input: "Call docs__add.", tools: tools(), background });
    const source = await ended(gateway, created.id);
    const answer = await gateway.fetch(`${gateway.url}/v1/responses/${source.id}/replay`, { method: "POST" });
    const stream = await answer.text();
    const all = parseEventStream(stream).events.map(({ data }) => data as ResponseStreamEvent);
    // Few enough to be quick, and of every kind in the four runs of this test.
    const offset = (background ? 0 : 2) + (model === GPT_OSS ? 1 : 0);
    const points = all.flatMap((event, at) => (at % 7 === offset && !("response" in event) ? [at] : []));
    expect(points.length).toBeGreaterThan(1);
    for (const at of points) {
      const refused = await fork(source.id, { at, background: true });
      if (!refused.ok) {
        await expectError(refused, { status: 400, param: "at", message: /has the whole output/ });
        expect(at).toBeGreaterThan(all.findLastIndex(({ type }) => type === "response.output_text.delta"));
        continue;
      }
      const branch = await ended(gateway, ((await refused.json()) as ResponseObject).id);
      expect(branch.status, `at ${at}, ${all[at]?.type}: ${JSON.stringify(branch.error)}`).toBe("completed");
      const kept = all.slice(0, at + 1).filter((event) => !("response" in event));
      const own = eventsOf(await replay(gateway, branch.id)).slice(0, kept.length);
      expect(anonymous(own)).toEqual(anonymous(kept));
      expect(textOf(branch)).toBe(textOf(source));
    }
  });

  it("without 'at' answers the same input anew, with other fields", async () => {
    const source = await create({ model, input: "Hello!", instructions: "Be brief.", metadata: { a: "b" } });
    const branch = await forked(source.id, { instructions: "Be long.", temperature: 0.5 });
    expect(branch).toMatchObject({
      status: "completed",
      instructions: "Be long.",
      temperature: 0.5,
      metadata: { a: "b" },
    });
    expect(branch.id).not.toBe(source.id);
    expect(branch.previous_response_id).toBe(null);
    expect(textOf(branch)).toBe("You said: Hello!");
    const { data: input } = await gateway.openai.responses.inputItems.list(branch.id);
    expect(anonymous(input)).toEqual(anonymous((await gateway.openai.responses.inputItems.list(source.id)).data));
    // Both are in one tree, and the source is as it was.
    const tree = await gateway.fetch(`${gateway.url}/v1/responses/${source.id}/tree`);
    const { data: nodes } = (await tree.json()) as { data: { id: string }[] };
    expect(nodes.map(({ id }) => id).sort()).toEqual([source.id, branch.id].sort());
    const { output_text: _text, ...before } = source;
    expect(await gateway.openai.responses.retrieve(source.id)).toMatchObject(before);
  });

  it("gives a hosted call another output, of which only the model hears", async () => {
    const source = await create({ model, input: "Call docs__add.", tools: tools() });
    const call = onlyItem(source, "mcp_call");
    const calls = server.calls.length;
    const asked = generations(gateway).length;
    const branch = await forked(source.id, { at: call.id, output: "a million" });
    expect(textOf(branch)).toBe("The tool docs__add returned: a million");
    expect(onlyItem(branch, "mcp_call")).toMatchObject({ output: "a million", status: "completed" });
    expect(server.calls.length).toBe(calls);
    expect(generations(gateway).length).toBe(asked + 1);
    // A turn that continues the branch has it, too.
    await create({ model, input: "And now?", previous_response_id: branch.id });
    const prompt = model === GPT_OSS ? (await lastTurns(gateway)).join() : JSON.stringify(lastPrompt(gateway).messages);
    expect(prompt).toContain("a million");
  });

  it("after an item goes on with the rest", async () => {
    const source = await create({ model, input: "Call docs__add.", tools: tools() });
    const branch = await forked(source.id, { at: onlyItem(source, "mcp_call").id });
    expect(anonymous(branch.output)).toEqual(anonymous(source.output));
  });
});

describe("a fork", () => {
  it("of one of two parallel calls keeps the answer to the other one", async () => {
    for (const background of [false, true]) {
      const created = await create({
        ...{ model: "simulator", input: "Call docs__add and docs__twice.", tools: tools(), background },
      });
      const source = await ended(gateway, created.id);
      const [first] = itemsOfType(source, "mcp_call");
      const calls = server.calls.length;
      const branch = await forked(source.id, { at: first?.id, output: "30" });
      expect(itemsOfType(branch, "mcp_call").map(({ name, output }) => [name, output])).toEqual([
        ["add", "30"],
        ["twice", "8"],
      ]);
      expect(textOf(branch)).toBe("The tool docs__add returned: 30\nThe tool docs__twice returned: 8");
      expect(server.calls.length).toBe(calls);
    }
  });

  it("gives a client's call another output, in the response that has it as its input", async () => {
    const look = { type: "function", name: "look", parameters: { type: "object" }, strict: false } as const;
    const asked = await create({ model: "simulator", input: "Call look.", tools: [look] });
    const call = onlyItem(asked, "function_call");
    const output = { type: "function_call_output", call_id: call.call_id, output: "rain" } as const;
    const fields = { model: "simulator", tools: [look] };
    const source = await create({ ...fields, input: [output], previous_response_id: asked.id });
    const branch = await forked(source.id, { at: call.call_id, output: "sun" });
    expect(textOf(branch)).toBe("The tool look returned: sun");
    expect(branch.previous_response_id).toBe(asked.id);
    // The call itself is in another response, whose branch could only end there.
    await expectError(await fork(asked.id, { at: call.call_id, output: "sun" }), { status: 400, param: "output" });
    await expectError(await fork(asked.id, { at: call.id }), { status: 400, param: "at" });
  });

  it.each(MODELS)("goes on after and within a call that its client answers (%s)", async (model) => {
    const functions = ["look", "hear"].map((name) => ({
      type: "function" as const,
      name,
      parameters: WHERE,
      strict: true,
    }));
    const source = await create({ model, input: "Call look and hear.", tools: functions });
    const calls = itemsOfType(source, "function_call").map(({ name, arguments: args }) => [name, JSON.parse(args)]);
    const within = (await replayed(source.id)).find(({ type }) => type === "response.function_call_arguments.delta");
    const points: unknown[] = [within?.sequence_number];
    // gpt-oss makes one call at a time, which is the whole output.
    if (model !== GPT_OSS) points.push(itemsOfType(source, "function_call")[0]?.id);
    for (const at of points) {
      const branch = await forked(source.id, { at });
      const own = itemsOfType(branch, "function_call").map(({ name, arguments: args }) => [name, JSON.parse(args)]);
      expect(own).toEqual(calls.slice(0, own.length));
      expect(own.length).toBeGreaterThan(0);
    }
  });

  it("goes on after an asynchronous call in the round that follows it", async () => {
    const look = { type: "function", name: "look", parameters: WHERE, strict: true, async: true } as const;
    const source = await create({ model: "simulator", input: "Call look.", tools: [look] } as never);
    expect(source.output.map(({ type }) => type)).toEqual(["function_call", "message"]);
    const at = (await replayed(source.id)).find(({ type }) => type === "response.output_text.delta")?.sequence_number;
    expect(anonymous((await forked(source.id, { at })).output)).toEqual(anonymous(source.output));
  });

  it("of gpt-oss has its tokens, also where the beginning ends within one, and survives a kill", async () => {
    const input = "Say incomprehensibilities and counterrevolutionaries.";
    const source = await create({ model: GPT_OSS, input });
    const tokenizer = await harmonyTokenizer();
    const deltas = (await replayed(source.id)).filter((event) => event.type === "response.output_text.delta");
    const ids = await lastPromptIds(gateway);
    const whole = (text: string) => tokenizer.encode(`<|channel|>final<|message|>${text}`);
    for (const { sequence_number: at } of deltas) {
      expect(textOf(await forked(source.id, { at }))).toBe(textOf(source));
      const prompt = lastCompletion(gateway).prompt as number[];
      expect(prompt.slice(0, ids.length)).toEqual(ids);
      const text = deltas.flatMap((event) => (event.sequence_number <= at ? [event.delta] : [])).join("");
      const message = prompt.slice(prompt.lastIndexOf(CHANNEL));
      expect(tokenizer.decode(message)).toBe(tokenizer.decode(whole(text)));
      // The tokens of the whole answer, as far as they are in the text.
      const own = whole(textOf(source));
      const isIn = (count: number) => tokenizer.decode(message).startsWith(tokenizer.decode(own.slice(0, count)));
      const kept = own.filter((_, index) => isIn(index + 1));
      expect(message.slice(0, kept.length)).toEqual(kept);
    }
    const fields = { at: deltas[0]?.sequence_number, model: `${GPT_OSS}?fault=stall:3&fault_times=1` };
    const answer = await fetch(`${gateway.url}/v1/responses/${source.id}/fork`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ ...fields, background: true, stream: true }),
    });
    const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
    let said = "";
    while (said.split('"type":"response.output_text.delta"').length < 4) said += (await reader?.read())?.value ?? "";
    await worker.kill();
    await worker.restart();
    const branch = await ended(gateway, /resp_\w+/.exec(said)?.[0] ?? "");
    expect(textOf(branch)).toBe(textOf(source));
  });

  it("continues in the middle of a text, with another model", async () => {
    const source = await create({ model: "simulator", input: "One two three." });
    const answer = await gateway.fetch(`${gateway.url}/v1/responses/${source.id}/replay`, { method: "POST" });
    const events = parseEventStream(await answer.text()).events.map(({ data }) => data as ResponseStreamEvent);
    const at = events.findIndex((event) => event.type === "response.output_text.delta" && event.delta.includes("said"));
    const branch = await forked(source.id, { at, model: "simulator?max_model_len=9999", seed: 5 });
    expect(textOf(branch)).toBe("You said: One two three.");
    expect(lastPrompt(gateway)).toMatchObject({ model: "simulator?max_model_len=9999", seed: 5 });
    expect(chatMessages(lastPrompt(gateway)).at(-1)).toMatchObject({ role: "assistant", content: "You said:" });
  });

  it("is a stream, from the first event on, if it is asked for", async () => {
    const source = await create({ model: "simulator", input: "One two three." });
    const stream = await (await fork(source.id, { at: 6, stream: true, background: true })).text();
    const [first] = parseEventStream(stream).events;
    const { response } = (first?.data ?? {}) as { response?: ResponseObject };
    expect(response).toMatchObject({ background: true, status: "queued" });
    expect(await replay(gateway, response?.id ?? "")).toBe(stream);
  });

  it("of a turn in a conversation sees what that turn saw, and stays outside of the conversation", async () => {
    const { id: conversation } = await gateway.openai.conversations.create();
    await create({ model: "simulator", input: "One", conversation });
    const source = await create({ model: "simulator", input: "Two", conversation });
    await create({ model: "simulator", input: "Three", conversation });
    const branch = await forked(source.id, { instructions: "Again." });
    expect(branch.conversation ?? null).toBe(null);
    const { data: items } = await gateway.openai.conversations.items.list(conversation);
    expect(shortly(lastPrompt(gateway))).toEqual([
      "system: Again.",
      "user: One",
      "assistant: You said: One",
      "user: Two",
    ]);
    expect(items).toHaveLength(6);
    const next = await create({ model: "simulator", input: "Four", previous_response_id: branch.id });
    expect(shortly(lastPrompt(gateway))).toContain("user: One");
    expect(textOf(next)).toBe("You said: Four");
  });

  it("of a response in progress is a 409, of a deleted one a 404, and of one that is not stored a 400", async () => {
    const model = "simulator?fault=stall:3&max_model_len=7777";
    const running = await create({ model, input: "Go on and on and on.", background: true });
    await eventually(() => generations(gateway).some((body) => body.model === model));
    await expectError(await fork(running.id, {}), { status: 409, code: "response_in_progress" });
    await gateway.openai.responses.cancel(running.id);
    const unstored = await create({ model: "simulator", input: "Hello!", background: true, store: false });
    await ended(gateway, unstored.id);
    await expectError(await fork(unstored.id, {}), { status: 400, param: "response_id" });
    await gateway.openai.responses.delete(running.id);
    await expectError(await fork(running.id, {}), { status: 404 });
  });

  it("needs a point that the response has, and its own input", async () => {
    const { id } = await create({ model: "simulator", input: "Hello!" });
    for (const at of [1000, "msg_1", -1, 1.5]) await expectError(await fork(id, { at }), { status: 400, param: "at" });
    await expectError(await fork(id, { output: "3" }), { status: 400, param: "at" });
    for (const field of ["input", "previous_response_id", "conversation"]) {
      await expectError(await fork(id, { [field]: "x" }), { status: 400, param: field });
    }
    await expectError(await fork(id, { temperature: 9 }), { status: 400, param: "temperature" });
  });
});
