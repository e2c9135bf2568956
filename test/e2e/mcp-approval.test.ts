import type { FunctionTool, Response, ResponseInputItem } from "openai/resources/responses/responses";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { expectError } from "./expectations.ts";
import { GPT_OSS, messagesOf, onlyCall, outputOf } from "./harmony-support.ts";
import { SocketClient, type SocketEvent } from "./socket-support.ts";
import { type Gateway, startGateway } from "./support.ts";
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
  shortly,
  startTools,
  type ToolServer,
  textOf,
  typesIn,
} from "./tool-support.ts";
import { itemsOf } from "./turns.ts";

/** Calls of MCP tools that wait until the client approves them. */

let gateway: Gateway;
let server: ToolServer;

beforeAll(async () => {
  server = await startTools({
    add: {
      properties: { a: { const: 1 }, b: { const: 2 } },
      readOnly: true,
      run: ({ a, b }) => String(Number(a) + Number(b)),
    },
    write: { properties: { text: { type: "string" } }, readOnly: false, run: () => "written" },
    plain: { run: () => "plain" },
  });
  gateway = await startGateway({ MCP_SERVERS: server.url });
});
afterAll(async () => {
  await gateway?.close();
  await server?.close();
});
beforeEach(() => {
  server.calls.length = 0;
});

const asking = (fields: Partial<McpTool> = {}) => mcp(server, { require_approval: "always", ...fields });

function answerTo(request: { id: string }, approve: boolean, reason?: string): ResponseInputItem.McpApprovalResponse {
  return { type: "mcp_approval_response", approval_request_id: request.id, approve, ...(reason && { reason }) };
}

const requestsIn = (response: Pick<Response, "output">) => itemsOfType(response, "mcp_approval_request");

async function lastPrompt(model: string): Promise<string[]> {
  const body = generations(gateway).at(-1) ?? {};
  return model === GPT_OSS ? messagesOf(body) : shortly(body);
}

const getWeather: FunctionTool = {
  type: "function",
  name: "get_weather",
  parameters: { type: "object", properties: {} },
  strict: false,
};

describe.each(MODELS)("require_approval, %s", (model) => {
  it.each<[string, McpTool["require_approval"] | undefined, string[]]>([
    ["nothing said: always", undefined, ["add", "write", "plain"]],
    ["null: always", null, ["add", "write", "plain"]],
    ["always", "always", ["add", "write", "plain"]],
    ["never", "never", []],
    ["always some: and the others too", { always: { tool_names: ["write"] } }, ["add", "write", "plain"]],
    ["never some: the others", { never: { tool_names: ["write", "plain"] } }, ["add"]],
    ["never what only reads", { never: { read_only: true } }, ["write", "plain"]],
    [
      "never what only reads, of some",
      { never: { read_only: true, tool_names: ["plain"] } },
      ["add", "write", "plain"],
    ],
    [
      "both: always goes first",
      { always: { tool_names: ["add"] }, never: { tool_names: ["add", "plain"] } },
      ["add", "write"],
    ],
    ["always what writes, never the rest", { always: { read_only: false }, never: {} }, ["write", "plain"]],
  ])("%s", async (_, require_approval, asked) => {
    // The tools are called one by one, because gpt-oss ends its turn at the first call that needs approval.
    const found: string[] = [];
    for (const name of ["add", "write", "plain"]) {
      const { require_approval: _default, ...tool } = mcp(server);
      const response = await gateway.openai.responses.create({
        model,
        input: `Call docs__${name}.`,
        tools: [{ ...tool, ...(require_approval !== undefined && { require_approval }) } as McpTool],
      });
      const calls = [...requestsIn(response), ...itemsOfType(response, "mcp_call")];
      expect(calls.map((call) => call.name)).toEqual([name]);
      found.push(...requestsIn(response).map((request) => request.name));
    }
    expect(found).toEqual(asked);
    expect(server.calls.map(({ name }) => name)).toEqual(["add", "write", "plain"].filter((n) => !asked.includes(n)));
  });
});

describe.each(EVERY_WAY)("%s, %s", (model, way) => {
  it("a call that needs approval ends the turn; after approval it is run, and the model goes on", async () => {
    const tools = [asking()];
    const { response, events } = await ask(gateway, way, { model, input: "Call docs__add.", tools });
    expect(response.status).toBe("completed");
    expect(typesIn(response)).toEqual(["mcp_list_tools", "mcp_approval_request"]);
    const request = onlyItem(response, "mcp_approval_request");
    expect(request).toEqual({
      id: expect.stringMatching(/^mcpr_/),
      type: "mcp_approval_request",
      server_label: "docs",
      name: "add",
      arguments: '{"a":1,"b":2}',
    });
    expect(server.calls).toEqual([]);
    expect(events.filter(({ type }) => type.startsWith("response.mcp_call"))).toEqual([]);

    const { response: next, events: later } = await ask(gateway, way, {
      model,
      input: [answerTo(request, true)],
      tools,
      previous_response_id: response.id,
    });
    expect(next.status).toBe("completed");
    expect(typesIn(next)).toEqual(["mcp_call", "message"]);
    expect(onlyItem(next, "mcp_call")).toMatchObject({
      status: "completed",
      server_label: "docs",
      name: "add",
      arguments: '{"a":1,"b":2}',
      output: "3",
      error: null,
      approval_request_id: request.id,
    });
    expect(textOf(next)).toBe("The tool docs__add returned: 3");
    expect(server.calls).toHaveLength(1);
    const types = later.map(({ type }) => type).filter((type) => type.startsWith("response.mcp_call"));
    if (way === "stream") {
      expect(types.filter((type, index) => type !== types[index - 1])).toEqual([
        "response.mcp_call.in_progress",
        "response.mcp_call_arguments.delta",
        "response.mcp_call_arguments.done",
        "response.mcp_call.completed",
      ]);
    }

    // The call has been run, and is not run again.
    const { response: third } = await ask(gateway, way, {
      model,
      input: "Thanks.",
      tools,
      previous_response_id: next.id,
    });
    expect(textOf(third)).toBe("You said: Thanks.");
    expect(server.calls).toHaveLength(1);
    const prompt = (await lastPrompt(model)).join("\n");
    expect(prompt.match(/docs__add[ (][^\n]*"a":1/g)).toHaveLength(1);
  });

  it("a refused call is not run, and the model gets the reason", async () => {
    const tools = [asking()];
    const { response } = await ask(gateway, way, { model, input: "Call docs__write.", tools });
    const { response: next } = await ask(gateway, way, {
      model,
      input: [answerTo(onlyItem(response, "mcp_approval_request"), false, "Too risky.")],
      tools,
      previous_response_id: response.id,
    });
    expect(typesIn(next)).toEqual(["message"]);
    expect(server.calls).toEqual([]);
    expect(textOf(next)).toBe("The tool docs__write returned: The user did not approve this call. Reason: Too risky.");
  });

  it("works in a conversation", async () => {
    const conversation = (await gateway.openai.conversations.create({})).id;
    const tools = [asking()];
    const { response } = await ask(gateway, way, { model, input: "Call docs__add.", tools, conversation });
    const request = onlyItem(response, "mcp_approval_request");
    const { response: next } = await ask(gateway, way, {
      model,
      input: [answerTo(request, true)],
      tools,
      conversation,
    });
    expect(onlyItem(next, "mcp_call")).toMatchObject({ output: "3", approval_request_id: request.id });
    const { response: third } = await ask(gateway, way, { model, input: "Thanks.", tools, conversation });
    expect(textOf(third)).toBe("You said: Thanks.");
    expect(server.calls).toHaveLength(1);
    const types = (await itemsOf(gateway, conversation)).map(({ type }) => type).filter((type) => type !== "reasoning");
    expect(types).toEqual([
      "message",
      "mcp_list_tools",
      "mcp_approval_request",
      "mcp_approval_response",
      "mcp_call",
      "message",
      "message",
      "message",
    ]);
  });
});

describe.each(MODELS)("a client that keeps everything itself, %s", (model) => {
  it.each([true, false])("can answer with store: false, approve: %s", async (approve) => {
    const tools = [asking()];
    const question: ResponseInputItem = { role: "user", content: "Call docs__add." };
    const first = await gateway.openai.responses.create({ model, input: [question], tools, store: false });
    const answer = answerTo(onlyItem(first, "mcp_approval_request"), approve);
    const input = [question, ...givenBack(first), answer];
    const second = await gateway.openai.responses.create({ model, input, tools, store: false });
    expect(typesIn(second)).toEqual(approve ? ["mcp_call", "message"] : ["message"]);
    expect(server.calls).toHaveLength(approve ? 1 : 0);
    const more: ResponseInputItem[] = [...input, ...givenBack(second), { role: "user", content: "Thanks." }];
    const third = await gateway.openai.responses.create({ model, input: more, tools, store: false });
    expect(textOf(third)).toBe("You said: Thanks.");
    expect(server.calls).toHaveLength(approve ? 1 : 0);
  });

  it.each(["json", "background"] as const)(
    "may have ids of another server, and continue with stored items (%s)",
    async (way) => {
      const tools = [asking()];
      const input: ResponseInputItem[] = [
        { role: "user", content: "Call docs__add." },
        {
          type: "mcp_approval_request",
          id: "mcpr_68a1b2c3",
          server_label: "docs",
          name: "add",
          arguments: '{"a":1,"b":2}',
        },
        answerTo({ id: "mcpr_68a1b2c3" }, true),
      ];
      const { response: first } = await ask(gateway, way, { model, input, tools });
      expect(onlyItem(first, "mcp_call").output).toBe("3");
      const { response: second } = await ask(gateway, way, {
        model,
        input: "Thanks.",
        tools,
        previous_response_id: first.id,
      });
      expect(textOf(second)).toBe("You said: Thanks.");
      expect(server.calls).toHaveLength(1);
    },
  );

  it("may put both into a conversation", async () => {
    const conversation = (await gateway.openai.conversations.create({})).id;
    const tools = [asking()];
    const question: ResponseInputItem = { role: "user", content: "Call docs__add." };
    const first = await gateway.openai.responses.create({ model, input: [question], tools, store: false });
    const input = [question, ...givenBack(first), answerTo(onlyItem(first, "mcp_approval_request"), false)];
    const second = await gateway.openai.responses.create({ model, input, tools, conversation });
    expect(typesIn(second)).toEqual(["message"]);
    const third = await gateway.openai.responses.create({ model, input: "Thanks.", tools, conversation });
    expect(textOf(third)).toBe("You said: Thanks.");
    expect((await lastPrompt(model)).join("\n")).toContain("The user did not approve this call.");
  });

  it("may answer by item_reference", async () => {
    const tools = [asking()];
    const first = await gateway.openai.responses.create({ model, input: "Call docs__add.", tools });
    const request = onlyItem(first, "mcp_approval_request");
    const second = await gateway.openai.responses.create({
      model,
      input: [
        { role: "user", content: "Call docs__add." },
        { type: "item_reference", id: request.id },
        answerTo(request, true),
      ],
      tools,
    });
    expect(onlyItem(second, "mcp_call")).toMatchObject({ output: "3", approval_request_id: request.id });
  });
});

describe("several calls in one round", () => {
  it("are requested and answered one by one, also over several turns", async () => {
    const tools = [asking()];
    const body = { model: "simulator", tools };
    const input = "Call docs__add, docs__write and docs__plain.";
    const first = await gateway.openai.responses.create({ ...body, input });
    const [add, write, plain] = requestsIn(first);
    if (!add || !write || !plain) throw new Error("Expected three requests.");
    const second = await gateway.openai.responses.create({
      ...body,
      input: [answerTo(add, true), answerTo(write, false, "No."), answerTo(plain, true)],
      previous_response_id: first.id,
    });
    expect(itemsOfType(second, "mcp_call").map(({ name, output }) => [name, output])).toEqual([
      ["add", "3"],
      ["plain", "plain"],
    ]);
    expect(textOf(second).split("\n").toSorted()).toEqual([
      "The tool docs__add returned: 3",
      "The tool docs__plain returned: plain",
      "The tool docs__write returned: The user did not approve this call. Reason: No.",
    ]);
    shortly(generations(gateway).at(-1));
  });

  it("run before the turn ends if they need no approval, also beside client calls", async () => {
    const tools = [getWeather, asking({ require_approval: { never: { tool_names: ["plain"] } } })];
    const body = { model: "simulator", tools };
    const first = await gateway.openai.responses.create({
      ...body,
      input: "Call get_weather, docs__add and docs__plain.",
    });
    expect(typesIn(first)).toEqual(["mcp_list_tools", "function_call", "mcp_approval_request", "mcp_call"]);
    expect(server.calls.map(({ name }) => name)).toEqual(["plain"]);
    const second = await gateway.openai.responses.create({
      ...body,
      input: [outputOf(onlyCall(first)), answerTo(onlyItem(first, "mcp_approval_request"), true)],
      previous_response_id: first.id,
    });
    expect(textOf(second).split("\n").toSorted()).toEqual([
      "The tool docs__add returned: 3",
      "The tool docs__plain returned: plain",
      "The tool get_weather returned: sunny",
    ]);
    shortly(generations(gateway).at(-1));
  });

  it("an approval that is given twice has one effect", async () => {
    const tools = [asking()];
    const first = await gateway.openai.responses.create({ model: "simulator", input: "Call docs__write.", tools });
    const request = onlyItem(first, "mcp_approval_request");
    const second = await gateway.openai.responses.create({
      model: "simulator",
      input: [answerTo(request, true), answerTo(request, true)],
      tools,
      previous_response_id: first.id,
    });
    expect(itemsOfType(second, "mcp_call")).toHaveLength(1);
    expect(server.calls).toHaveLength(1);
    const third = await gateway.openai.responses.create({
      model: "simulator",
      input: [answerTo(request, true)],
      tools,
      previous_response_id: second.id,
    });
    expect(itemsOfType(third, "mcp_call")).toEqual([]);
    expect(server.calls).toHaveLength(1);
  });

  it.each(MODELS)("an unanswered request does not prevent the next turn (%s)", async (model) => {
    const tools = [asking()];
    const first = await gateway.openai.responses.create({ model, input: "Call docs__write.", tools });
    const second = await gateway.openai.responses.create({
      model,
      input: "Never mind.",
      tools,
      previous_response_id: first.id,
    });
    expect(textOf(second)).toBe("You said: Never mind.");
    expect((await lastPrompt(model)).join("\n")).not.toMatch(/docs__write[ (]\S*\{/);
    // The request can still be answered later.
    const third = await gateway.openai.responses.create({
      model,
      input: [answerTo(onlyItem(first, "mcp_approval_request"), true)],
      tools,
      previous_response_id: second.id,
    });
    expect(onlyItem(third, "mcp_call").output).toBe("written");
  });

  it.each(MODELS)("the approved call keeps its arguments, and the model may be different (%s)", async (model) => {
    const other = MODELS.find((each) => each !== model) ?? "";
    const tools = [asking()];
    const first = await gateway.openai.responses.create({ model, input: "Call docs__add.", tools });
    const second = await gateway.openai.responses.create({
      model: other,
      input: [answerTo(onlyItem(first, "mcp_approval_request"), true)],
      tools,
      previous_response_id: first.id,
    });
    expect(textOf(second)).toBe("The tool docs__add returned: 3");
    expect(server.calls.map((call) => call.arguments)).toEqual([{ a: 1, b: 2 }]);
  });
});

describe("a 400", () => {
  it.each(["json", "stream", "background"] as const)(
    "is the answer to an approval without a request (%s)",
    async (way) => {
      const answer = await gateway.post({
        model: "simulator",
        input: [{ role: "user", content: "Hi." }, answerTo({ id: "mcpr_unknown" }, true)],
        tools: [asking()],
        stream: way === "stream",
        background: way === "background",
      });
      await expectError(answer, { status: 400, param: "input[1].approval_request_id", message: /mcpr_unknown/ });
      expect(server.calls).toEqual([]);
    },
  );

  it("is the answer to an approval of an item that is no request", async () => {
    const first = await gateway.openai.responses.create({ model: "simulator", input: "Hello." });
    const [message] = itemsOfType(first, "message");
    const answer = await gateway.post({
      model: "simulator",
      input: [answerTo({ id: message?.id ?? "" }, true)],
      previous_response_id: first.id,
      tools: [asking()],
    });
    await expectError(answer, { status: 400, param: "input[0].approval_request_id" });
  });

  it("is the answer to a call that is both approved and refused", async () => {
    const first = await gateway.openai.responses.create({
      model: "simulator",
      input: "Call docs__add.",
      tools: [asking()],
    });
    const request = onlyItem(first, "mcp_approval_request");
    const answer = await gateway.post({
      model: "simulator",
      input: [answerTo(request, true), answerTo(request, false)],
      previous_response_id: first.id,
      tools: [asking()],
    });
    await expectError(answer, { status: 400, param: "input[1].approval_request_id", message: /approved and refused/ });
    expect(server.calls).toEqual([]);
  });

  it.each<[string, McpTool[]]>([
    ["no tools", []],
    ["another server", [{ type: "mcp", server_label: "other", server_url: "https://example.com/mcp" }]],
  ])("is the answer to an approved call whose server is missing (%s)", async (_, tools) => {
    const first = await gateway.openai.responses.create({
      model: "simulator",
      input: "Call docs__add.",
      tools: [asking()],
    });
    const answer = await gateway.post({
      model: "simulator",
      input: [answerTo(onlyItem(first, "mcp_approval_request"), true)],
      previous_response_id: first.id,
      tools,
    });
    await expectError(answer, { status: 400, param: "input[0].approval_request_id", message: /'docs'/ });
    expect(server.calls).toEqual([]);
  });

  it("is not the answer to a refused call, which needs no server", async () => {
    const first = await gateway.openai.responses.create({
      model: "simulator",
      input: "Call docs__add.",
      tools: [asking()],
    });
    const second = await gateway.openai.responses.create({
      model: "simulator",
      input: [answerTo(onlyItem(first, "mcp_approval_request"), false)],
      previous_response_id: first.id,
    });
    expect(textOf(second)).toContain("The user did not approve this call.");
  });

  it("is not the answer to an approval of an item that was deleted from the conversation", async () => {
    const conversation = (await gateway.openai.conversations.create({})).id;
    const body = { model: "simulator", tools: [asking()], conversation };
    const first = await gateway.openai.responses.create({ ...body, input: "Call docs__add." });
    const request = onlyItem(first, "mcp_approval_request");
    await gateway.openai.responses.create({ ...body, input: [answerTo(request, true)] });
    await gateway.openai.conversations.items.delete(request.id, { conversation_id: conversation });
    const third = await gateway.openai.responses.create({ ...body, input: "Thanks." });
    expect(textOf(third)).toBe("You said: Thanks.");
  });
});

describe("a response that is steered after it has asked for an approval", () => {
  it.each([
    // An approved call runs in the new response, after its input.
    [true, "3", ["user", "user", "assistant", "tool"]],
    [false, "The user did not approve this call.", ["user", "assistant", "tool", "user"]],
  ])(
    "waits for the answer (approve: %s), and the model sees the words and the call",
    async (approve, output, roles) => {
      const socket = await SocketClient.open(gateway);
      const settings = { model: "simulator?tps=20", tools: [asking()], stream_id: "a" };
      socket.create({ ...settings, input: "Call docs__add and docs__write." });
      const itemOf = (event: SocketEvent) =>
        "item" in event ? (event.item as { type: string; id: string }) : undefined;
      const isAsked = (event: SocketEvent) =>
        event.type === "response.output_item.done" && itemOf(event)?.type === "mcp_approval_request";
      const [created] = await socket.reached(isAsked, "a");
      const previous_response_id = created?.response?.id ?? "";
      socket.send({ type: "response.steer", previous_response_id, input: "In Celsius." });
      const { last, events } = await socket.ended("a");
      expect(last).toMatchObject({ response: { incomplete_details: { reason: "steered" } } });
      const asked = events.find(isAsked);
      const request = { id: (asked && itemOf(asked)?.id) ?? "" };
      const pending = (await socket.reached(({ type }) => type === "response.steer.pending", "a")).at(-1);
      expect(pending).toMatchObject({
        reason: "waiting_for_required_input",
        required_input: [{ type: "mcp_approval_response", approval_request_id: request.id }],
        steer: { previous_response_id },
      });
      expect(server.calls).toEqual([]);
      socket.create({ ...settings, previous_response_id, input: [answerTo(request, approve)] });
      expect((await socket.ended("a")).last.type).toBe("response.completed");
      expect(server.calls.map(({ name }) => name)).toEqual(approve ? ["add"] : []);
      const prompt = chatMessages(generations(gateway).at(-1) ?? {});
      expect(prompt.map(({ role }) => role)).toEqual(roles);
      expect(prompt.find(({ role }) => role === "tool")?.content).toBe(output);
      expect(prompt.findLast(({ role }) => role === "user")?.content).toBe("In Celsius.");
      await socket.close();
    },
  );
});
