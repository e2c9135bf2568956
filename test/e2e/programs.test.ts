import { Agent, OpenAIProvider, programmaticToolCallingTool, Runner, tool } from "@openai/agents";
import { agentOf } from "@responses-edge/responses-api/items/multi-agent";
import type { Response, ResponseInputItem, ResponseOutputItem, Tool } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { GPT_OSS } from "./harmony-support.ts";
import { CHAT, MODELS, type ProgramGateway, program, startPrograms, writing } from "./program-support.ts";
import { SocketClient } from "./socket-support.ts";
import { eventually, joinGateway } from "./support.ts";
import {
  ask,
  generations,
  itemsOfType,
  mcp,
  onlyItem,
  startTools,
  type ToolServer,
  textOf,
  typesIn,
  WAYS,
} from "./tool-support.ts";
import { ended, pause, unique } from "./turns.ts";

/** Programs of models: `programmatic_tool_calling`. */

let gateway: ProgramGateway;
let server: ToolServer;
/** Ends the call of `wait`, once it was made. */
let release: (() => void) | undefined;
beforeAll(async () => {
  server = await startTools({
    add: {
      properties: { a: { type: "integer" }, b: { type: "integer" } },
      run: ({ a, b }) => String(Number(a) + Number(b)),
    },
    wait: {
      properties: { n: { type: "integer" } },
      run: ({ n }) => (n === 1 ? "1" : new Promise<string>((resolve) => (release = () => resolve("2")))),
    },
  });
  // A request seldom reaches the worker that has run the last step of its program.
  gateway = await startPrograms({ MCP_SERVERS: server.url, WORKERS: "3" });
});
afterAll(async () => {
  await gateway.close();
  await server.close();
});

const lookUp: Tool = {
  type: "function",
  name: "look_up",
  description: "Looks a number up.",
  strict: true,
  parameters: {
    type: "object",
    properties: { key: { type: "string" } },
    required: ["key"],
    additionalProperties: false,
  },
  output_schema: { type: "object", properties: { value: { type: "integer" } }, required: ["value"] },
  allowed_callers: ["programmatic"],
};
const adding = () => mcp(server, { allowed_callers: ["programmatic"] });

function outputOf(call_id: string, value: number): ResponseInputItem {
  return { type: "function_call_output", call_id, output: JSON.stringify({ value }) };
}

describe.each(MODELS)("a program of %s", (model) => {
  it.each(WAYS)("calls hosted tools, and the model gets only its output (%s)", async (way) => {
    const code = `const sums = await Promise.all([1, 2, 3].map((b) => tools.docs__add({ a: 40, b })));
      console.log(sums.length); return Math.max(...sums.map(Number));`;
    const before = server.calls.length;
    const tools = [program, adding()];
    const { response, events } = await ask(gateway, way, { model, tools, input: writing(model, code) });
    expect(response.status).toBe("completed");
    const types = ["mcp_list_tools", "program", "mcp_call", "mcp_call", "mcp_call", "program_output", "message"];
    expect(typesIn(response)).toEqual(types);
    const { call_id, fingerprint, ...item } = onlyItem(response, "program");
    expect(item).toEqual({ type: "program", id: expect.stringMatching(/^prog_/), code });
    expect(fingerprint).not.toBe("");
    const caller = { type: "program", caller_id: call_id };
    for (const [index, call] of itemsOfType(response, "mcp_call").entries()) {
      expect(call).toMatchObject({ status: "completed", output: String(41 + index), caller });
      expect(call).toMatchObject({ call_id: `${call_id}_${index}` });
    }
    expect(onlyItem(response, "program_output")).toEqual({
      type: "program_output",
      id: expect.stringMatching(/^progo_/),
      ...{ call_id, status: "completed", result: "3\n43" },
    });
    expect(textOf(response)).toContain("43");
    expect(server.calls).toHaveLength(before + 3);
    expect(JSON.stringify(generations(gateway).at(-1))).not.toContain(`${call_id}_0`);
    if (way === "stream") {
      const done = events.flatMap((event) => (event.type === "response.output_item.done" ? [event.item] : []));
      expect(done).toContainEqual(onlyItem(response, "program"));
    }
    // A replay has each item, and runs nothing.
    const send = (what: string, body: object) =>
      fetch(`${gateway.url}/v1/responses/${response.id}/${what}`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      });
    const replayed = await (await send("replay", {})).text();
    for (const each of response.output) expect(replayed).toContain(JSON.stringify(each));
    expect(server.calls).toHaveLength(before + 3);
    // Branches run on with the program as far as they have it: a call that is complete is not made again.
    const calls = itemsOfType(response, "mcp_call");
    for (const [made, at] of [
      [3, onlyItem(response, "program").id],
      [1, calls[1]?.id],
      [0, onlyItem(response, "program_output").id],
    ]) {
      const branch = await send("fork", { at });
      expect(branch.status).toBe(200);
      const forked = (await branch.json()) as Response;
      expect(typesIn(forked)).toEqual(types);
      expect(onlyItem(forked, "program_output").result).toBe("3\n43");
      expect(server.calls).toHaveLength(before + 3 + Number(made));
      server.calls.splice(before + 3);
    }
    const other = (await (await send("fork", { at: calls[2]?.id, output: "1000" })).json()) as Response;
    expect(onlyItem(other, "program_output").result).toBe("3\n1000");
    expect(server.calls).toHaveLength(before + 3);
  });

  it("sees the tools as typed functions, and not those that only programs may call, or only the model", async () => {
    const direct: Tool = { ...lookUp, name: "ask_user", allowed_callers: ["direct"] };
    const { id } = await gateway.openai.responses.create({
      model,
      tools: [program, lookUp, direct, adding()],
      input: "Hello.",
    });
    const answer = await gateway.fetch(`${gateway.url}/v1/responses/${id}/prompt`);
    const prompt = String(((await answer.json()) as { rendered: string }).rendered);
    expect(prompt).toContain("look_up(args: { key: string; }): Promise<{ value: number; }>;");
    expect(prompt).toContain("docs__add(args: { a: number; b: number; }): Promise<string>;");
    expect(prompt.match(/docs__add/g)).toHaveLength(1);
    expect(prompt).toContain("ask_user");
    expect(prompt).not.toContain("ask_user(");
  });

  it("goes on in the next request with the outputs of the client's functions", async () => {
    const code = `const first = await tools.look_up({ key: "a" });
      const [b, c] = await Promise.all([tools.look_up({ key: "b" }), tools.docs__add({ a: first.value, b: 1 })]);
      return { b: b.value, c, random: Math.random(), at: Date.now() };`;
    const tools = [program, lookUp, adding()];
    const first = await gateway.openai.responses.create({ model, tools, input: writing(model, code) });
    const { call_id } = onlyItem(first, "program");
    const caller = { type: "program", caller_id: call_id };
    expect(onlyItem(first, "function_call")).toMatchObject({
      arguments: '{"key":"a"}',
      call_id: `${call_id}_0`,
      caller,
    });
    const next = { model, tools };
    const second = await gateway.openai.responses.create({
      ...next,
      previous_response_id: first.id,
      input: [outputOf(`${call_id}_0`, 6)],
    });
    expect(typesIn(second)).toEqual(["function_call", "mcp_call"]);
    expect(onlyItem(second, "mcp_call")).toMatchObject({ output: "7", caller, call_id: `${call_id}_2` });
    const third = await gateway.openai.responses.create({
      ...next,
      previous_response_id: second.id,
      input: [outputOf(`${call_id}_1`, 9)],
    });
    expect(typesIn(third)).toEqual(["program_output", "message"]);
    const result = JSON.parse(onlyItem(third, "program_output").result) as Record<string, unknown>;
    expect(result).toMatchObject({ b: 9, c: "7" });
    expect(JSON.stringify(generations(gateway).at(-1))).not.toContain(`${call_id}_1`);
    const after = await gateway.openai.responses.create({ ...next, previous_response_id: third.id, input: "And now?" });
    expect(after.status).toBe("completed");
    // The same items again are the same program.
    const again = await gateway.openai.responses.create({
      ...next,
      previous_response_id: second.id,
      input: [outputOf(`${call_id}_1`, 9)],
    });
    expect(onlyItem(again, "program_output").result).toBe(onlyItem(third, "program_output").result);
  });

  it("goes on with items that a client has kept, if it has not changed the program", async () => {
    const code = 'return (await tools.look_up({ key: "a" })).value + 1;';
    const tools = [program, lookUp];
    const fields = { model, tools, store: false };
    const question: ResponseInputItem = { role: "user", content: writing(model, code) };
    const first = await gateway.openai.responses.create({ ...fields, input: [question] });
    const kept = first.output as ResponseInputItem[];
    const answer = outputOf(onlyItem(first, "function_call").call_id, 6);
    const second = await gateway.openai.responses.create({ ...fields, input: [question, ...kept, answer] });
    expect(onlyItem(second, "program_output").result).toBe("7");
    const changed = kept.map((item) => (item.type === "program" ? { ...item, code: "return 1;" } : item));
    await expect(
      gateway.openai.responses.create({ ...fields, input: [question, ...changed, answer] }),
    ).rejects.toMatchObject({ status: 400, message: expect.stringContaining("fingerprint") });
    await expect(gateway.openai.responses.create({ ...fields, input: [question, ...kept] })).rejects.toMatchObject({
      status: 400,
      message: expect.stringContaining("No tool output found for function call"),
    });
  });

  it("asks its user before a call that needs it, and throws where that is refused", async () => {
    const code = `try { return await tools.docs__add({ a: 1, b: 2 }); } catch (error) { return error.message; }`;
    const tools = [program, mcp(server, { require_approval: "always", allowed_callers: ["programmatic"] })];
    const first = await gateway.openai.responses.create({ model, tools, input: writing(model, code) });
    const { call_id } = onlyItem(first, "program");
    const request = onlyItem(first, "mcp_approval_request");
    expect(request).toMatchObject({ caller: { type: "program", caller_id: call_id }, arguments: '{"a":1,"b":2}' });
    const decide = (approve: boolean) =>
      gateway.openai.responses.create({
        model,
        tools,
        previous_response_id: first.id,
        input: [{ type: "mcp_approval_response", approval_request_id: request.id, approve }],
      });
    const approved = await decide(true);
    expect(typesIn(approved)).toEqual(["mcp_call", "program_output", "message"]);
    expect(onlyItem(approved, "program_output").result).toBe("3");
    const refused = await decide(false);
    expect(typesIn(refused)).toEqual(["program_output", "message"]);
    expect(onlyItem(refused, "program_output").result).toContain("did not approve");
  });

  it("tells the model what is wrong with a program, and ends the response well", async () => {
    const faults = {
      "return (": "SyntaxError",
      "null.x": "TypeError",
      "await fetch('https://example.com')": "fetch",
      "await tools.look_up({})": "look_up",
    };
    for (const [code, text] of Object.entries(faults)) {
      const fields = { model, tools: [program, lookUp], tool_choice: { type: "programmatic_tool_calling" } as const };
      const response = await gateway.openai.responses.create({ ...fields, input: writing(model, code) });
      expect(response.status).toBe("completed");
      const { status, result } = onlyItem(response, "program_output");
      expect({ code, status, result }).toMatchObject({ status: "incomplete", result: expect.stringContaining(text) });
    }
  });
});

it("is ended where it never ends, and its model is told; meanwhile another program of its tenant runs", async () => {
  const order: string[] = [];
  const run = async (code: string) => {
    const input = writing(CHAT, code);
    const response = await gateway.openai.responses.create({ model: CHAT, tools: [program], input });
    order.push(code);
    return { ...onlyItem(response, "program_output"), said: textOf(response) };
  };
  const endless = run("for (;;);");
  expect(await run("return 1;")).toMatchObject({ status: "completed", result: "1" });
  const result = "The program takes too much time.";
  expect(await endless).toMatchObject({ status: "incomplete", result, said: expect.stringContaining(result) });
  expect(order).toEqual(["return 1;", "for (;;);"]);
});

it("goes on in a conversation, is counted, and is not compacted while it waits", async () => {
  const conversation = await gateway.openai.conversations.create();
  const tools = [program, lookUp];
  const fields = { model: CHAT, tools, conversation: conversation.id };
  const input = writing(CHAT, 'return (await tools.look_up({ key: "a" })).value;');
  const first = await gateway.openai.responses.create({ ...fields, input });
  const { call_id } = onlyItem(first, "function_call");
  const count = (given: Tool[]) =>
    gateway.openai.responses.inputTokens.count({ model: CHAT, tools: given, input: "Hello." });
  const [one, other] = [await count([program]), await count(tools)];
  expect(other.input_tokens).toBeGreaterThan(one.input_tokens);
  await expect(gateway.openai.responses.compact({ model: CHAT, previous_response_id: first.id })).rejects.toMatchObject(
    { status: 400, message: expect.stringContaining("has not ended") },
  );
  const second = await gateway.openai.responses.create({ ...fields, input: [outputOf(call_id, 6)] });
  expect(typesIn(second)).toEqual(["program_output", "message"]);
  const third = await gateway.openai.responses.create({ ...fields, input: "And now?" });
  expect(third.status).toBe("completed");
  const compacted = await gateway.openai.responses.compact({ model: CHAT, previous_response_id: third.id });
  expect(compacted.output.map(({ type }) => type)).not.toContain("program");
});

it("counts the hosted calls of a program against 'max_tool_calls'", async () => {
  const code = "for (let b = 0; ; b += 1) await tools.docs__add({ a: 0, b });";
  const tools = [program, adding()];
  const input = writing(CHAT, code);
  const response = await gateway.openai.responses.create({ model: CHAT, tools, input, max_tool_calls: 2 });
  expect(itemsOfType(response, "mcp_call")).toHaveLength(2);
  expect(onlyItem(response, "program_output").result).toContain("max_tool_calls");
});

it("refuses a tool that nobody may call", async () => {
  await expect(
    gateway.openai.responses.create({ model: CHAT, tools: [lookUp], input: "Hello." }),
  ).rejects.toMatchObject({ status: 400, param: "tools[0].allowed_callers" });
});

it("is used by the Agents SDK unmodified", async () => {
  const asked: string[] = [];
  const lookUpTool = tool({
    name: "look_up",
    description: "Looks a number up.",
    parameters: z.object({ key: z.string() }),
    allowedCallers: ["programmatic"],
    execute: ({ key }) => {
      asked.push(key);
      return String(key.length);
    },
  });
  const agent = new Agent({ name: "clerk", model: CHAT, tools: [programmaticToolCallingTool(), lookUpTool] });
  const runner = new Runner({
    modelProvider: new OpenAIProvider({ openAIClient: gateway.openai as never, useResponses: true }),
    tracingDisabled: true,
  });
  const code = `const all = await Promise.all(["a", "bb"].map((key) => tools.look_up({ key })));
    return all.map(Number).reduce((a, b) => a + b);`;
  const { newItems, finalOutput } = await runner.run(agent, writing(CHAT, code));
  expect(asked.sort()).toEqual(["a", "bb"]);
  expect(newItems.map(({ rawItem }) => rawItem?.type)).toContain("program_output");
  expect(finalOutput).toContain("3");
});

describe("the calls of hosted tools that a program makes at once", () => {
  const race = `const open = [2, 1].map((n) => tools.docs__wait({ n })); const first = await Promise.race(open);
    const next = await tools.docs__add({ a: Number(first), b: 1 });`;
  const made = [{ n: 2 }, { n: 1 }, { a: 1, b: 1 }];
  const madeSince = (before: number) => server.calls.slice(before).map(({ arguments: args }) => args);
  const endsIn = (response: Pick<Response, "output">) =>
    itemsOfType(response, "mcp_call").map((item) => "result_index" in item && item.result_index);

  it("end one by one: the program goes on with the first result, here and with kept items", async () => {
    const before = server.calls.length;
    const fields = { model: CHAT, tools: [program, adding(), lookUp], store: false };
    const code = `${race} return [first, next, (await tools.look_up({ key: first })).value].join();`;
    const question: ResponseInputItem = { role: "user", content: writing(CHAT, code) };
    const asked = gateway.openai.responses.create({ ...fields, input: [question] });
    // The slow one has not ended.
    await eventually(() => server.calls.length === before + 3);
    release?.();
    const first = await asked;
    expect(madeSince(before)).toEqual(made);
    expect(endsIn(first)).toEqual([2, 0, 1]);
    const { call_id } = onlyItem(first, "function_call");
    const input = [question, ...(first.output as ResponseInputItem[]), outputOf(call_id, 6)];
    const second = await gateway.openai.responses.create({ ...fields, input });
    expect(onlyItem(second, "program_output")).toMatchObject({ status: "completed", result: "1,2,6" });
  });

  it("have the same order after a kill, and none is made twice: those that it has interrupted throw", async () => {
    const before = server.calls.length;
    const rest = `const rest = await Promise.allSettled([open[0], tools.docs__wait({ n: 3 })]);
      return [first, next, ...rest.map(({ reason }) => /restarted/.test(reason?.message))].join();`;
    const fields = { model: CHAT, tools: [program, adding()], background: true };
    const { id } = await gateway.openai.responses.create({ ...fields, input: writing(CHAT, race + rest) });
    await eventually(() => server.calls.length === before + 4);
    await gateway.restart();
    const response = await ended(gateway, id);
    expect(madeSince(before)).toEqual([...made, { n: 3 }]);
    expect(endsIn(response).slice(1, 3)).toEqual([0, 1]);
    expect(onlyItem(response, "program_output")).toMatchObject({ status: "completed", result: "1,2,true,true" });
  });
});

it("is a 400 where the deployment cannot run programs", async () => {
  const plain = await joinGateway();
  await expect(plain.openai.responses.create({ model: CHAT, tools: [program], input: "Hello." })).rejects.toMatchObject(
    { status: 400, param: "tools[0].type", code: "unsupported_parameter" },
  );
  await plain.close();
});

it("is listed, and retrieved as it was", async () => {
  const input = writing(CHAT, "return 1;");
  const response: Response = await gateway.openai.responses.create({ model: CHAT, tools: [program], input });
  const stored = await gateway.openai.responses.retrieve(response.id);
  const types = (items: readonly ResponseOutputItem[]) => items.map(({ type, id }) => [type, id]);
  expect(types(stored.output)).toEqual(types(response.output));
});

const TEAM = {
  [CHAT]: `SCRIPT[[‹think›\nhm\n‹/think›\n\n‹tool_call›
{"name": "spawn_agent", "arguments": {"task_name": "a", "message": "Look."}}
‹/tool_call›\n‹tool_call›\n{"name": "wait_agent", "arguments": {}}\n‹/tool_call›‹|im_end|›]]`,
  [GPT_OSS]: "Call spawn_agent, then wait_agent. Wait 60000 milliseconds.",
};
describe.each(Object.entries(TEAM))("an agent of %s, whose task any of three workers may run", (model, input) => {
  it.each([...WAYS, "socket"] as const)("gives its root its result (%s)", async (way) => {
    const fields = { model, input, multi_agent: { enabled: true } };
    let response: Response;
    if (way === "socket") {
      const socket = await SocketClient.open(gateway);
      const { last } = await socket.turn({ ...fields, store: true });
      socket.terminate();
      response = last.response as unknown as Response;
    } else ({ response } = await ask(gateway, way, fields));
    expect(response.status).toBe("completed");
    const ofAgent: object[] = response.output.filter((item) => item.type === "message");
    const [agent, root] = ofAgent.map((item) => [agentOf(item), JSON.stringify(item)]);
    expect(agent).toEqual([
      expect.stringMatching(/^\/root\/\w+$/),
      expect.stringContaining("You said: You are /root/"),
    ]);
    expect(root).toEqual(["/root", expect.stringMatching(/FINAL_ANSWER.*You said: You are/)]);
  });

  it("goes on with its root after a kill, and is begun once", async () => {
    const created = await gateway.openai.responses.create({
      ...{ model, input: unique(input), background: true },
      multi_agent: { enabled: true },
    } as never);
    const { id } = created as Response;
    const inTree = async () => {
      const tree = await fetch(`${gateway.url}/v1/responses/${id}/tree`);
      return ((await tree.json()) as { data: { id: string }[] }).data.length;
    };
    while ((await inTree()) < 2) await pause(5);
    await gateway.restart();
    const { status, output } = await ended(gateway, id);
    expect(status).toBe("completed");
    expect(JSON.stringify(output)).toMatch(/FINAL_ANSWER.*You said: You are/);
    expect(await inTree()).toBe(2);
  });
});
