import type { ResponsePrompt } from "@responses-edge/responses-api/platform/response-prompt";
import type { Response } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { GPT_OSS, lastTurns, messagesOf } from "./harmony-support.ts";
import { SocketClient } from "./socket-support.ts";
import { eventually, type Gateway, lastPrompt, startGateway } from "./support.ts";
import {
  ask,
  chatMessages,
  EVERY_WAY,
  generations,
  givenBack,
  itemsOfType,
  type McpTool,
  MODELS,
  mcp,
  onlyItem,
  startTools,
  type ToolServer,
  textOf,
  typesIn,
  WAYS,
} from "./tool-support.ts";
import { itemsOf } from "./turns.ts";

/** MCP servers that a request names: their items and events, their allowed tools, and their credentials. */

/** Secrets that only their server may get. */
const SECRETS = {
  authorization: "sekret-token-31415926",
  header: "sekret-header-27182818",
  query: "sekret-query-16180339",
};

let gateway: Gateway;
let server: ToolServer;
let slow: ToolServer;
/** Each function lets a call of the tool `wait` end. */
const held: (() => void)[] = [];

beforeAll(async () => {
  server = await startTools({
    add: {
      description: "Adds two numbers.",
      properties: { a: { const: 1 }, b: { const: 2 } },
      readOnly: true,
      run: ({ a, b }) => String(Number(a) + Number(b)),
    },
    write: { properties: { text: { type: "string" } }, readOnly: false, run: () => "written" },
    plain: { run: () => "plain" },
    bare: { description: "", run: () => "bare" },
    fail: { run: () => ({ content: [{ type: "text", text: "The disk is full." }], isError: true }) },
  });
  slow = await startTools({ wait: { run: () => new Promise((resolve) => held.push(() => resolve("It is over."))) } });
  gateway = await startGateway({ MCP_SERVERS: `${server.url},${slow.url}` });
});
afterAll(async () => {
  await gateway?.close();
  await server?.close();
  await slow?.close();
});

/** Runs `work` and gives the number of times that the server listed its tools. */
async function listing<T>(work: () => Promise<T>): Promise<{ result: T; lists: number }> {
  const before = server.lists;
  const result = await work();
  return { result, lists: server.lists - before };
}

const toolNames = (response: Pick<Response, "output">) =>
  onlyItem(response, "mcp_list_tools").tools.map(({ name }) => name);

describe.each(EVERY_WAY)("%s, %s", (model, way) => {
  it("lists the tools, calls one, and shows both as items", async () => {
    const tools = [mcp(server)];
    const { response, events } = await ask(gateway, way, { model, input: "Call docs__add.", tools });
    expect(response.status).toBe("completed");
    expect(response.tools).toEqual(tools);
    expect(onlyItem(response, "mcp_list_tools")).toEqual({
      id: expect.stringMatching(/^mcpl_/),
      type: "mcp_list_tools",
      server_label: "docs",
      tools: [
        {
          name: "add",
          description: "Adds two numbers.",
          input_schema: { type: "object", properties: { a: { const: 1 }, b: { const: 2 } }, required: ["a", "b"] },
          annotations: { readOnlyHint: true },
        },
        {
          name: "write",
          description: "The tool write.",
          input_schema: { type: "object", properties: { text: { type: "string" } }, required: ["text"] },
          annotations: { readOnlyHint: false },
        },
        expect.objectContaining({ name: "plain" }),
        expect.objectContaining({ name: "bare" }),
        expect.objectContaining({ name: "fail" }),
      ],
    });
    // The prompt of its first round has the listed tools, and not the call.
    const prompt = (await (
      await gateway.fetch(`${gateway.url}/v1/responses/${response.id}/prompt`)
    ).json()) as ResponsePrompt;
    expect(JSON.stringify(prompt.tools)).toContain("Adds two numbers.");
    expect(prompt.messages?.at(-1)).toMatchObject({ role: "user" });
    expect(onlyItem(response, "mcp_call")).toEqual({
      id: expect.stringMatching(/^mcp_/),
      type: "mcp_call",
      status: "completed",
      server_label: "docs",
      name: "add",
      arguments: '{"a":1,"b":2}',
      approval_request_id: null,
      output: "3",
      error: null,
    });
    expect(textOf(response)).toBe("The tool docs__add returned: 3");
    expect(await gateway.openai.responses.retrieve(response.id)).toMatchObject({ output: response.output });
    if (way !== "stream") return;
    const own = events.filter(({ type }) => /mcp|output_item/.test(type));
    const list = response.output.findIndex(({ type }) => type === "mcp_list_tools");
    const call = response.output.findIndex(({ type }) => type === "mcp_call");
    const of = (index: number) =>
      own.filter((event) => "output_index" in event && event.output_index === index).map(({ type }) => type);
    expect(of(list)).toEqual([
      "response.output_item.added",
      "response.mcp_list_tools.in_progress",
      "response.mcp_list_tools.completed",
      "response.output_item.done",
    ]);
    const withoutRepeats = of(call).filter((type, index, all) => type !== all[index - 1]);
    expect(withoutRepeats).toEqual([
      "response.output_item.added",
      "response.mcp_call.in_progress",
      "response.mcp_call_arguments.delta",
      "response.mcp_call_arguments.done",
      "response.mcp_call.completed",
      "response.output_item.done",
    ]);
  });

  it("a call that fails ends as failed, with a typed error", async () => {
    const { response, events } = await ask(gateway, way, { model, input: "Call docs__fail.", tools: [mcp(server)] });
    expect(onlyItem(response, "mcp_call")).toEqual({
      id: expect.any(String),
      type: "mcp_call",
      status: "failed",
      server_label: "docs",
      name: "fail",
      arguments: "{}",
      approval_request_id: null,
      output: null,
      error: { type: "mcp_tool_execution_error", content: [{ type: "text", text: "The disk is full." }] },
    });
    if (way !== "stream") return;
    const types = events.map(({ type }) => type).filter((type) => type.startsWith("response.mcp_call"));
    expect(types.slice(-2)).toEqual(["response.mcp_call_arguments.done", "response.mcp_call.failed"]);
  });
});

describe("the list of tools is requested once", () => {
  it.each(WAYS)("in a chain of responses (%s)", async (way) => {
    const body = { model: "simulator", tools: [mcp(server)] };
    const { result: first, lists } = await listing(() => ask(gateway, way, { ...body, input: "Hello." }));
    expect(lists).toBe(1);
    const previous_response_id = first.response.id;
    const { result: second, lists: again } = await listing(() =>
      ask(gateway, way, { ...body, input: "Call docs__add.", previous_response_id }),
    );
    expect(again).toBe(0);
    expect(typesIn(second.response)).toEqual(["mcp_call", "message"]);
    expect(onlyItem(second.response, "mcp_call").output).toBe("3");
  });

  it.each(WAYS)("in a conversation (%s)", async (way) => {
    const conversation = (await gateway.openai.conversations.create({})).id;
    const body = { model: GPT_OSS, tools: [mcp(server)], conversation };
    await ask(gateway, way, { ...body, input: "Hello." });
    const { result, lists } = await listing(() => ask(gateway, way, { ...body, input: "Call docs__add." }));
    expect(lists).toBe(0);
    expect(typesIn(result.response)).toEqual(["mcp_call", "message"]);
    const types = (await itemsOf(gateway, conversation)).map(({ type }) => type).filter((type) => type !== "reasoning");
    expect(types).toEqual(["message", "mcp_list_tools", "message", "message", "mcp_call", "message"]);
  });

  it("of items that the client gives back", async () => {
    const body = { model: "simulator", tools: [mcp(server)], store: false };
    const first = await gateway.openai.responses.create({ ...body, input: "Hello." });
    const { result, lists } = await listing(() =>
      gateway.openai.responses.create({
        ...body,
        input: [...givenBack(first), { role: "user", content: "Call docs__add." }],
      }),
    );
    expect(lists).toBe(0);
    expect(typesIn(result)).toEqual(["mcp_call", "message"]);
  });

  it("and again when more tools are allowed than before", async () => {
    const ask = (allowed_tools: McpTool["allowed_tools"], previous_response_id?: string) =>
      listing(() =>
        gateway.openai.responses.create({
          model: "simulator",
          input: "Call docs__add and docs__write.",
          tools: [mcp(server, { allowed_tools })],
          previous_response_id,
        }),
      );
    const first = await ask(["add", "plain"]);
    expect(toolNames(first.result)).toEqual(["add", "plain"]);
    expect(itemsOfType(first.result, "mcp_call").map(({ name }) => name)).toEqual(["add"]);
    const fewer = await ask(["add"], first.result.id);
    expect(fewer.lists).toBe(0);
    expect(itemsOfType(fewer.result, "mcp_list_tools")).toEqual([]);
    const more = await ask(["add", "write"], fewer.result.id);
    expect(more.lists).toBe(1);
    expect(toolNames(more.result)).toEqual(["add", "write"]);
    expect(itemsOfType(more.result, "mcp_call").map(({ name }) => name)).toEqual(["add", "write"]);
    const same = await ask(["write", "add"], more.result.id);
    expect(same.lists).toBe(0);
  });

  it.each([
    ["names", ["add"]],
    ["only those that read", { read_only: true }],
  ])("and again when all tools are allowed, after %s", async (_, allowed_tools) => {
    const first = await gateway.openai.responses.create({
      model: "simulator",
      input: "Hello.",
      tools: [mcp(server, { allowed_tools })],
    });
    expect(toolNames(first)).toEqual(["add"]);
    const second = await gateway.openai.responses.create({
      model: "simulator",
      input: "Call docs__write.",
      tools: [mcp(server)],
      previous_response_id: first.id,
    });
    expect(itemsOfType(second, "mcp_call").map(({ name }) => name)).toEqual(["write"]);
  });
});

describe.each(MODELS)("allowed_tools, %s", (model) => {
  it.each<[string, McpTool["allowed_tools"], string[]]>([
    ["names", ["add", "plain", "unknown"], ["add", "plain"]],
    ["none", [], []],
    ["a filter by name", { tool_names: ["write"] }, ["write"]],
    ["a filter by what only reads", { read_only: true }, ["add"]],
    ["a filter by what writes", { read_only: false }, ["write", "plain", "bare", "fail"]],
    ["a filter by both", { read_only: false, tool_names: ["add", "plain"] }, ["plain"]],
    ["a filter of nothing", {}, ["add", "write", "plain", "bare", "fail"]],
    ["null", null, ["add", "write", "plain", "bare", "fail"]],
  ])("%s", async (_, allowed_tools, names) => {
    const response = await gateway.openai.responses.create({
      model,
      input: "Call docs__add, docs__write, docs__plain, docs__bare and docs__fail.",
      tools: [mcp(server, { allowed_tools })],
    });
    expect(toolNames(response)).toEqual(names);
    expect(itemsOfType(response, "mcp_call").map(({ name }) => name)).toEqual(names);
    expect(response.status).toBe("completed");
  });
});

it.each(MODELS)("a server's description is used for a tool without one (%s)", async (model) => {
  await gateway.openai.responses.create({
    model,
    input: "Hello.",
    tools: [mcp(server, { server_description: "Knows all about llamas.", allowed_tools: ["add", "bare"] })],
  });
  const body = generations(gateway).at(-1) ?? {};
  const prompt = model === GPT_OSS ? (await messagesOf(body)).join("") : JSON.stringify(body);
  expect(prompt.match(/Knows all about llamas\./g)).toHaveLength(1);
  expect(prompt).toContain("Adds two numbers.");
});

describe("credentials", () => {
  const withCredentials = () =>
    mcp(server, {
      server_url: `${server.url}?key=${SECRETS.query}`,
      authorization: SECRETS.authorization,
      headers: { "X-Api-Key": SECRETS.header },
    });

  /** Fails for a text with a secret in it. */
  function expectDiscreet(text: string): void {
    for (const secret of Object.values(SECRETS)) expect(text).not.toContain(secret);
  }

  /** The whole content of all objects' storage. */
  function stored(): string {
    const { storage } = gateway;
    let text = "";
    for (const id of storage.ids()) {
      const tables = storage.exec(
        id,
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE '\\_%' ESCAPE '\\'",
      );
      for (const { name } of tables) {
        const rows = storage.exec(id, `SELECT * FROM "${name}"`);
        for (const row of rows) {
          for (const value of Object.values(row)) {
            text += value instanceof Uint8Array ? new TextDecoder().decode(value) : String(value);
          }
        }
      }
    }
    return text;
  }

  it.each(EVERY_WAY)("reach the server, and are nowhere else (%s, %s)", async (model, way) => {
    const calls = server.calls.length;
    const requests = server.headers.length;
    const body = { model, input: "Call docs__add and docs__fail.", tools: [withCredentials()] };
    const { response, events } = await ask(gateway, way, body);
    expect(itemsOfType(response, "mcp_call").map(({ name }) => name)).toEqual(["add", "fail"]);
    const sent = server.headers.slice(requests);
    expect(sent.length).toBeGreaterThan(2);
    for (const headers of sent) {
      expect(headers).toMatchObject({ authorization: `Bearer ${SECRETS.authorization}`, "x-api-key": SECRETS.header });
    }
    expect(server.calls.slice(calls).every(({ target }) => target === `/mcp?key=${SECRETS.query}`)).toBe(true);

    expect(response.tools).toEqual([
      { type: "mcp", server_label: "docs", server_url: server.url, require_approval: "never" },
    ]);
    expectDiscreet(JSON.stringify([response, events]));
    const { id } = response;
    expectDiscreet(JSON.stringify(await gateway.openai.responses.retrieve(id)));
    expectDiscreet(JSON.stringify(await gateway.openai.responses.inputItems.list(id)));
    if (way === "background") {
      expectDiscreet(await (await gateway.fetch(`${gateway.url}/v1/responses/${id}?stream=true`)).text());
    }
    expectDiscreet(JSON.stringify(generations(gateway)));
  });

  it("are in no storage, also not during a run, and in no log", async () => {
    const before = stored();
    expect(before).toContain("mcp_list_tools");
    const begun = await gateway.openai.responses.create(
      { model: "simulator?ttft=500", input: "Call docs__add.", tools: [withCredentials()], background: true },
      { headers: { "Idempotency-Key": "key-1" } },
    );
    const during = stored();
    expect(during).toContain(begun.id.slice(-8));
    expectDiscreet(during);
    await eventually(async () => (await gateway.openai.responses.retrieve(begun.id)).status === "completed");
    const conversation = (await gateway.openai.conversations.create({})).id;
    await gateway.openai.responses.create({
      model: GPT_OSS,
      input: "Call docs__fail.",
      tools: [withCredentials()],
      conversation,
    });
    expectDiscreet(stored());
    expectDiscreet(gateway.logs());
  });

  it("are not in a server's error", async () => {
    const answer = await gateway.openai.responses.create({
      model: "simulator",
      input: "Call docs__add.",
      tools: [mcp({ url: server.url.replace("/mcp", "/mcp/nothing") }, { authorization: SECRETS.authorization })],
    });
    expectDiscreet(JSON.stringify(answer));
  });

  it("are needed again in every turn, because none are stored", async () => {
    const first = await gateway.openai.responses.create({
      model: "simulator",
      input: "Hello.",
      tools: [withCredentials()],
    });
    const requests = server.headers.length;
    await gateway.openai.responses.create({
      model: "simulator",
      input: "Call docs__add.",
      tools: [mcp(server)],
      previous_response_id: first.id,
    });
    expectDiscreet(JSON.stringify(server.headers.slice(requests)));
    expect(server.headers.length).toBeGreaterThan(requests);
  });
});

it.each(MODELS)("a steered response gets the message after the running call's result: %s", async (model) => {
  const socket = await SocketClient.open(gateway);
  try {
    socket.create({ model, input: "Call docs__wait.", tools: [mcp(slow)] });
    await eventually(() => held.length > 0);
    const [created] = await socket.reached(({ type }) => type === "response.mcp_call.in_progress");
    const previous_response_id = created?.response?.id;
    socket.send({ type: "response.steer", previous_response_id, input: "Say it in French." });
    await socket.reached(({ type }) => type === "response.steer.accepted");
    held.shift()?.();
    const { last } = await socket.ended();
    expect(last).toMatchObject({
      type: "response.incomplete",
      response: { status: "incomplete", incomplete_details: { reason: "steered" } },
    });
    const { output } = last.response as unknown as Response;
    expect(onlyItem({ output }, "mcp_call")).toMatchObject({ status: "completed", output: "It is over." });
    const next = await socket.ended();
    expect(next.last).toMatchObject({ type: "response.completed", response: { previous_response_id } });
    const told =
      model === GPT_OSS
        ? await lastTurns(gateway)
        : chatMessages(lastPrompt(gateway)).map(({ role, content }) => `${role}: ${content}`);
    expect(told.at(-2)).toContain("It is over.");
    expect(told.at(-1)).toMatch(/user.*Say it in French\./s);
  } finally {
    socket.terminate();
  }
});
