import type { FunctionTool, Response, ResponseInputItem } from "openai/resources/responses/responses";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { isObject } from "../../dev/simulator/json.ts";
import { GPT_OSS, idsOf, messagesOf, onlyCall, outputOf, sampledIds, saying } from "./harmony-support.ts";
import { eventually, type Gateway, startGateway } from "./support.ts";
import {
  ask,
  EVERY_WAY,
  generations,
  givenBack,
  itemsOfType,
  MODELS,
  mcp,
  onlyItem,
  REPEATER,
  scripts,
  shortly,
  startTools,
  type TestTool,
  type ToolServer,
  textOf,
  typesIn,
  written,
} from "./tool-support.ts";
import { ended } from "./turns.ts";

/** The loop of a turn: the model is asked, its calls are run, and it is asked again, until it has its answer. */

const OUTPUT_BYTES = 1_000;
const MAX_ROUNDS = 4;
const CALL_TIMEOUT_MS = 3_000;

let gateway: Gateway;
let server: ToolServer;
/** A server with tools that wait for each other. */
let pairs: ToolServer;
/** A server with twelve equal tools. */
let many: ToolServer;

/** The number of running calls, and its maximum. The first eight wait for each other. */
const running = { now: 0, most: 0, gate: Promise.withResolvers<void>() };

/** Two tools whose calls end in pairs: a call without a second one is never answered. */
function pair(): Record<string, TestTool> {
  let meet: (() => void) | undefined;
  const run = () =>
    new Promise<string>((resolve) => {
      const own = () => resolve("met");
      if (!meet) {
        meet = own;
        return;
      }
      meet();
      own();
      meet = undefined;
    });
  return { left: { run }, right: { run } };
}

beforeAll(async () => {
  server = await startTools({
    add: { properties: { a: { const: 1 }, b: { const: 2 } }, run: ({ a, b }) => String(Number(a) + Number(b)) },
    echo: { properties: { text: { type: "string" } }, run: ({ text }) => `echoed ${text}` },
    big: { run: () => "é".repeat(5_000) },
    fail: { run: () => ({ content: [{ type: "text", text: "The disk is full." }], isError: true }) },
    broken: {
      run: () => {
        throw new Error("something broke");
      },
    },
    hang: { run: () => new Promise(() => {}) },
  });
  pairs = await startTools(pair());
  many = await startTools(
    Object.fromEntries(
      Array.from({ length: 12 }, (_, index): [string, TestTool] => [
        `work${index}`,
        {
          run: async () => {
            running.now += 1;
            running.most = Math.max(running.most, running.now);
            if (running.now === 8) running.gate.resolve();
            await running.gate.promise;
            // A ninth call would begin in this time.
            await new Promise((resolve) => setTimeout(resolve, 30));
            running.now -= 1;
            return "x".repeat(OUTPUT_BYTES);
          },
        },
      ]),
    ),
  );
  gateway = await startGateway({
    MCP_SERVERS: [server, pairs, many].map(({ url }) => url).join(","),
    TOOL_OUTPUT_BYTES: String(OUTPUT_BYTES),
    TOOL_CALL_TIMEOUT_MS: String(CALL_TIMEOUT_MS),
    MAX_TOOL_ROUNDS: String(MAX_ROUNDS),
    HEARTBEAT_MS: "100",
  });
});
afterAll(async () => {
  await gateway?.close();
  await Promise.all([server, pairs, many].map((each) => each?.close()));
});
beforeEach(() => {
  server.calls.length = 0;
  gateway.vllm.simulator.requests.length = 0;
});

const getWeather: FunctionTool = {
  type: "function",
  name: "get_weather",
  parameters: { type: "object", properties: {} },
  strict: false,
};

/** The names of the tools in a prompt of either engine. */
async function offeredIn(body: ReturnType<typeof generations>[number] | undefined): Promise<string[]> {
  if (!body) throw new Error("No prompt reached vLLM.");
  if (Array.isArray(body.messages)) {
    const tools = Array.isArray(body.tools) ? body.tools.filter(isObject) : [];
    return tools.map(({ function: each }) => String(isObject(each) && each.name));
  }
  const developer = (await messagesOf(body)).find((message) => message.startsWith("developer"));
  return [...(developer ?? "").matchAll(/^type (\w+) = /gm)].map((match) => match[1] ?? "");
}

const sum = (counts: readonly number[]) => counts.reduce((total, count) => total + count, 0);

interface RoundUsage {
  input_tokens_per_turn: number[];
  cached_tokens_per_turn: number[];
  output_tokens_per_turn: number[];
  tool_output_tokens: number;
  tool_output_tokens_per_turn: number[];
}

function usageOf({ usage }: Response) {
  if (!usage) throw new Error("There is no usage.");
  const { tool_output_tokens } = usage.output_tokens_details as unknown as RoundUsage;
  return { ...(usage as typeof usage & RoundUsage), tool_output_tokens };
}

describe.each(EVERY_WAY)("%s, %s", (model, way) => {
  it("asks, calls, and asks again until there is an answer; usage adds up over the rounds", async () => {
    const { response } = await ask(gateway, way, {
      model: `${model}?rounds=3`,
      input: "Call docs__add.",
      tools: [mcp(server)],
    });
    expect(response.status).toBe("completed");
    expect(typesIn(response)).toEqual(["mcp_list_tools", "mcp_call", "mcp_call", "mcp_call", "message"]);
    expect(itemsOfType(response, "mcp_call").map(({ output, status }) => [output, status])).toEqual(
      Array.from({ length: 3 }, () => ["3", "completed"]),
    );
    expect(server.calls.map((call) => call.arguments)).toEqual(Array.from({ length: 3 }, () => ({ a: 1, b: 2 })));
    expect(textOf(response)).toBe(Array.from({ length: 3 }, () => "The tool docs__add returned: 3").join("\n"));

    const usage = usageOf(response);
    expect(generations(gateway)).toHaveLength(4);
    for (const list of [usage.input_tokens_per_turn, usage.cached_tokens_per_turn, usage.output_tokens_per_turn]) {
      expect(list).toHaveLength(4);
    }
    expect(usage.input_tokens).toBe(sum(usage.input_tokens_per_turn));
    expect(usage.output_tokens).toBe(sum(usage.output_tokens_per_turn));
    expect(usage.input_tokens_details.cached_tokens).toBe(sum(usage.cached_tokens_per_turn));
    expect(usage.cached_tokens_per_turn.slice(1).every((count) => count > 0)).toBe(true);
    expect(usage.total_tokens).toBe(usage.input_tokens + usage.output_tokens);
    expect(usage.tool_output_tokens).toBe(sum(usage.tool_output_tokens_per_turn));
    expect(usage.tool_output_tokens_per_turn).toEqual([0, ...usage.tool_output_tokens_per_turn.slice(1)]);
    expect(usage.tool_output_tokens_per_turn.slice(1).every((count) => count > 0)).toBe(true);
    if (model !== GPT_OSS) return;
    const prompts = await Promise.all(generations(gateway).map(async (body) => (await idsOf(body)).length));
    expect(usage.input_tokens_per_turn).toEqual(prompts);
  });

  it("tells the model of a tool's failure, and goes on", async () => {
    const { response } = await ask(gateway, way, {
      model,
      input: "Call docs__fail and docs__broken.",
      tools: [mcp(server)],
    });
    expect(response.status).toBe("completed");
    const [failed, broken] = itemsOfType(response, "mcp_call");
    expect(failed).toMatchObject({
      name: "fail",
      status: "failed",
      output: null,
      error: { type: "mcp_tool_execution_error", content: [{ type: "text", text: "The disk is full." }] },
    });
    expect(broken).toMatchObject({ name: "broken", status: "failed", output: null });
    expect(broken?.error).toMatchObject({ type: expect.stringMatching(/^mcp_/) });
    expect(textOf(response)).toMatch(
      /^The tool docs__fail returned: The disk is full\.\nThe tool docs__broken returned: .*something broke/,
    );
  });

  it("gives up a call that never answers", async () => {
    const { response } = await ask(gateway, way, { model, input: "Call docs__hang.", tools: [mcp(server)] });
    expect(response.status).toBe("completed");
    expect(onlyItem(response, "mcp_call")).toMatchObject({
      status: "failed",
      output: null,
      error: { type: "mcp_protocol_error", code: -32001, message: expect.stringContaining(`${CALL_TIMEOUT_MS} ms`) },
    });
    expect(textOf(response)).toContain(`did not answer within ${CALL_TIMEOUT_MS} ms`);
    await eventually(() => server.calls[0]?.signal.aborted);
  });

  it("ignores calls beyond max_tool_calls, and still answers", async () => {
    const { response } = await ask(gateway, way, {
      model: `${model}?rounds=3`,
      input: "Call docs__add and docs__echo.",
      tools: [mcp(server)],
      max_tool_calls: 3,
    });
    expect(response).toMatchObject({ status: "completed", max_tool_calls: 3 });
    expect(itemsOfType(response, "mcp_call").map(({ name }) => name)).toEqual(["add", "echo", "add"]);
    expect(server.calls).toHaveLength(3);
    expect(typesIn(response).at(-1)).toBe("message");
    expect(await offeredIn(generations(gateway).at(-1))).toEqual([]);
  });

  it("counts max_output_tokens over all rounds", async () => {
    const limit = model === GPT_OSS ? 90 : 30;
    const { response } = await ask(gateway, way, {
      model: `${model}?rounds=4`,
      input: "Call docs__add.",
      tools: [mcp(server)],
      max_output_tokens: limit,
    });
    expect(response).toMatchObject({ status: "incomplete", incomplete_details: { reason: "max_output_tokens" } });
    const usage = usageOf(response);
    expect(usage.output_tokens_per_turn.length).toBeGreaterThan(1);
    expect(usage.output_tokens).toBeLessThanOrEqual(limit);
    const limits = generations(gateway).map((body) => body.max_completion_tokens ?? body.max_tokens);
    const spent = usage.output_tokens_per_turn.map((_, index, list) => sum(list.slice(0, index)));
    expect(limits).toEqual(spent.map((tokens) => limit - tokens).slice(0, limits.length));
  });

  it("stops offering tools after MAX_TOOL_ROUNDS", async () => {
    const { response } = await ask(gateway, way, {
      model: `${model}?rounds=9`,
      input: "Call docs__add.",
      tools: [mcp(server)],
    });
    expect(response.status).toBe("completed");
    expect(server.calls).toHaveLength(MAX_ROUNDS);
    expect(typesIn(response).at(-1)).toBe("message");
    expect(await offeredIn(generations(gateway).at(-1))).toEqual([]);
  });

  it("cuts a tool's output to TOOL_OUTPUT_BYTES", async () => {
    const { response } = await ask(gateway, way, { model, input: "Call docs__big.", tools: [mcp(server)] });
    const { output } = onlyItem(response, "mcp_call");
    const half = "é".repeat((OUTPUT_BYTES - "\n[truncated]\n".length) >> 2);
    expect(output).toBe(`${half}\n[truncated]\n${half}`);
    expect(textOf(response)).toBe(`The tool docs__big returned: ${output}`);
  });
});

describe("the time of a turn's tools", () => {
  let hurried: Gateway;
  beforeAll(async () => {
    hurried = await startGateway({ MCP_SERVERS: server.url, TOOL_TIME_MS: "4000" });
  });
  afterAll(() => hurried.close());

  it.each(MODELS)("is bounded, after which the model is asked without tools: %s", async (model) => {
    const response = await hurried.openai.responses.create({
      model: `${model}?rounds=9`,
      input: "Call docs__hang.",
      tools: [mcp(server)],
    });
    expect(response.status).toBe("completed");
    expect(onlyItem(response, "mcp_call")).toMatchObject({ status: "failed", error: { type: "mcp_protocol_error" } });
    expect(await offeredIn(generations(hurried).at(-1))).toEqual([]);
  });
});

describe.each(["json", "stream", "background"] as const)("parallel calls, %s", (way) => {
  it("overlap in time, at one server and at two", async () => {
    const tools = [mcp(pairs, { server_label: "one" })];
    const { response } = await ask(gateway, way, { model: "simulator", input: "Call one__left, one__right.", tools });
    expect(itemsOfType(response, "mcp_call").map(({ output }) => output)).toEqual(["met", "met"]);
    const both = [mcp(pairs, { server_label: "one" }), mcp(pairs, { server_label: "two" })];
    const { response: other } = await ask(gateway, way, {
      model: "simulator",
      input: "Call one__left and two__right.",
      tools: both,
    });
    expect(itemsOfType(other, "mcp_call").map(({ output }) => output)).toEqual(["met", "met"]);
    expect(itemsOfType(other, "mcp_list_tools")).toHaveLength(2);
  });

  it("run eight at a time, and their outputs together are bounded", async () => {
    running.most = 0;
    running.gate = Promise.withResolvers();
    const { response } = await ask(gateway, way, {
      model: "simulator",
      input: "Use all the tools.",
      tools: [mcp(many)],
    });
    const outputs = itemsOfType(response, "mcp_call").map(({ output }) => output ?? "");
    expect(outputs).toHaveLength(12);
    expect(running.most).toBe(8);
    const full = outputs.filter((output) => output === "x".repeat(OUTPUT_BYTES));
    const none = outputs.filter((output) => output === "[The output of tools in this turn has reached its limit.]");
    expect([full.length, none.length]).toEqual([10, 2]);
    expect(response.status).toBe("completed");
  });
});

describe("a turn with functions of the client, too", () => {
  it.each(["json", "stream", "background"] as const)(
    "runs the server's calls, ends with the client's, and continues with its output (chat, %s)",
    async (way) => {
      const tools = [getWeather, mcp(server)];
      const input = "Call get_weather, docs__add and docs__echo.";
      const { response } = await ask(gateway, way, { model: "simulator", input, tools });
      expect(response.status).toBe("completed");
      expect(typesIn(response)).toEqual(["mcp_list_tools", "function_call", "mcp_call", "mcp_call"]);
      expect(itemsOfType(response, "mcp_call").map(({ output }) => output)).toEqual(["3", "echoed text"]);
      const { response: next } = await ask(gateway, way, {
        model: "simulator",
        previous_response_id: response.id,
        input: [outputOf(onlyCall(response))],
        tools,
      });
      expect(typesIn(next)).toEqual(["message"]);
      expect(textOf(next).split("\n").toSorted()).toEqual([
        "The tool docs__add returned: 3",
        "The tool docs__echo returned: echoed text",
        "The tool get_weather returned: sunny",
      ]);
      expect(server.lists).toBeGreaterThan(0);
      const [user, assistant, ...answers] = shortly(generations(gateway).at(-1));
      expect(user).toBe(`user: ${input}`);
      expect(assistant).toBe('assistant: get_weather({}) docs__add({"a":1,"b":2}) docs__echo({"text":"text"})');
      expect(answers).toHaveLength(3);
    },
  );

  it("runs the server's calls first, then the client's (gpt-oss)", async () => {
    const model = saying(written("docs__add", '{"a":1,"b":2}'), written("get_weather"));
    const tools = [getWeather, mcp(server)];
    const { response } = await ask(gateway, "stream", { model, input: "Go.", tools });
    expect(typesIn(response)).toEqual(["mcp_list_tools", "mcp_call", "function_call"]);
    const { response: next } = await ask(gateway, "stream", {
      model: GPT_OSS,
      previous_response_id: response.id,
      input: [outputOf(onlyCall(response))],
      tools,
    });
    expect(textOf(next)).toBe("The tool docs__add returned: 3\nThe tool get_weather returned: sunny");
  });

  it("does not limit the client's calls by max_tool_calls", async () => {
    const response = await gateway.openai.responses.create({
      model: "simulator",
      input: "Call get_weather, docs__add and docs__echo.",
      tools: [getWeather, mcp(server)],
      max_tool_calls: 1,
    });
    expect(typesIn(response)).toEqual(["mcp_list_tools", "function_call", "mcp_call"]);
    expect(server.calls).toHaveLength(1);
  });

  it("does not run a call of a server's tool after MAX_TOOL_ROUNDS", async () => {
    const calls = Array.from({ length: MAX_ROUNDS + 3 }, () => written("docs__add", '{"a":1,"b":2}'));
    const { response } = await ask(gateway, "stream", {
      model: REPEATER,
      input: scripts(...calls),
      tools: [getWeather, mcp(server)],
    });
    expect(server.calls).toHaveLength(MAX_ROUNDS);
    expect(itemsOfType(response, "mcp_call")).toHaveLength(MAX_ROUNDS);
    expect(itemsOfType(response, "function_call")).toEqual([]);
    expect(generations(gateway).length).toBeLessThanOrEqual(MAX_ROUNDS + 5);
  });
});

describe("limits", () => {
  it.each(MODELS)("%s: the model is not asked again when max_output_tokens is used up", async (model) => {
    const body = { model, input: "Call docs__add.", tools: [mcp(server)] };
    const whole = await gateway.openai.responses.create(body);
    const [first = 0] = usageOf(whole).output_tokens_per_turn;
    const asked = generations(gateway).length;
    const { response } = await ask(gateway, "stream", { ...body, max_output_tokens: first });
    expect(response).toMatchObject({ status: "incomplete", incomplete_details: { reason: "max_output_tokens" } });
    expect(response.usage?.output_tokens).toBe(first);
    expect(generations(gateway)).toHaveLength(asked + 1);
    const { status } = onlyItem(response, "mcp_call");
    expect(server.calls).toHaveLength(status === "completed" ? 2 : 1);
  });

  it("parallel_tool_calls: false makes one call per round", async () => {
    const { response } = await ask(gateway, "stream", {
      model: "simulator?rounds=2",
      input: "Call docs__add and docs__echo.",
      tools: [mcp(server)],
      parallel_tool_calls: false,
    });
    expect(generations(gateway).map((body) => body.parallel_tool_calls)).toEqual([false, false, false]);
    expect(itemsOfType(response, "mcp_call")).toHaveLength(2);
    expect(shortly(generations(gateway).at(-1)).map((message) => message.split(":")[0])).toEqual([
      "user",
      "assistant",
      "tool",
      "assistant",
      "tool",
    ]);
  });

  it("arguments that are no JSON are the model's fault: it gets an error, and nothing runs", async () => {
    const { response } = await ask(gateway, "stream", {
      model: saying(written("docs__add", "{not json")),
      input: "Go.",
      tools: [mcp(server)],
    });
    expect(response.status).toBe("completed");
    expect(onlyItem(response, "mcp_call")).toMatchObject({ status: "failed", arguments: "{not json" });
    expect(server.calls).toEqual([]);
    expect(textOf(response)).toContain("Error parsing tool arguments as JSON");
  });

  it("arguments outside of the tool's schema, too", async () => {
    const { response } = await ask(gateway, "stream", {
      model: saying(written("docs__echo", '{"text":5}')),
      input: "Go.",
      tools: [mcp(server)],
    });
    const why = "The arguments do not match the tool's schema: 'text' is not of type string. The tool was not called.";
    expect(response.status).toBe("completed");
    expect(onlyItem(response, "mcp_call")).toMatchObject({
      status: "failed",
      arguments: '{"text":5}',
      error: { type: "mcp_tool_execution_error", content: [{ type: "text", text: why }] },
    });
    expect(server.calls).toEqual([]);
    expect(textOf(response)).toContain(why);
  });
});

describe.each(MODELS)("tool_choice, %s", (model) => {
  const servers = () => [getWeather, mcp(server), mcp(pairs, { server_label: "pairs" })];

  it("required forces a call in the first round, and not in the second", async () => {
    const response = await gateway.openai.responses.create({
      model,
      input: "Hello!",
      tools: [mcp(server)],
      tool_choice: "required",
    });
    expect(response.tool_choice).toBe("required");
    expect(typesIn(response)).toEqual(["mcp_list_tools", "mcp_call", "message"]);
  });

  it("a server's label offers only its tools, and forces one of them", async () => {
    const choice = { type: "mcp" as const, server_label: "docs" };
    const response = await gateway.openai.responses.create({
      model,
      input: "Hello!",
      tools: servers(),
      tool_choice: choice,
    });
    expect(response.tool_choice).toEqual(choice);
    expect(itemsOfType(response, "mcp_call").map(({ server_label }) => server_label)).toEqual(["docs"]);
    expect((await offeredIn(generations(gateway)[0])).every((name) => name.startsWith("docs__"))).toBe(true);
    expect(typesIn(response).at(-1)).toBe("message");
  });

  it("a server's tool is the only offered one", async () => {
    const response = await gateway.openai.responses.create({
      model,
      input: "Hello!",
      tools: servers(),
      tool_choice: { type: "mcp", server_label: "docs", name: "echo" },
    });
    expect(onlyItem(response, "mcp_call")).toMatchObject({ server_label: "docs", name: "echo" });
    expect(await offeredIn(generations(gateway)[0])).toEqual(["docs__echo"]);
  });

  it.each(["auto", "required"] as const)("allowed_tools with %s", async (mode) => {
    const choice = {
      type: "allowed_tools" as const,
      mode,
      tools: [
        { type: "mcp", server_label: "docs", name: "add" },
        { type: "function", name: "get_weather" },
      ],
    };
    const input = "Call docs__echo or docs__add.";
    const response = await gateway.openai.responses.create({ model, input, tools: servers(), tool_choice: choice });
    expect(response.tool_choice).toEqual(choice);
    expect(onlyItem(response, "mcp_call").name).toBe("add");
    const shown = await Promise.all(generations(gateway).map(offeredIn));
    // The grammar of a forced call has every tool of the prompt; otherwise the prompt is that of any choice.
    if (mode === "required") for (const names of shown) expect(names).toEqual(["get_weather", "docs__add"]);
    else for (const names of shown) expect(names).toEqual(expect.arrayContaining(["docs__echo", "pairs__left"]));
    const idle = await gateway.openai.responses.create({
      model,
      input: "Call docs__echo.",
      tools: servers(),
      tool_choice: { ...choice, mode: "auto" },
    });
    expect(itemsOfType(idle, "mcp_call")).toEqual([]);
  });

  it("none calls nothing: no server is asked for its tools, and known tools stay in the prompt", async () => {
    const { create } = gateway.openai.responses;
    const ask = (body: object) =>
      create.call(gateway.openai.responses, {
        model,
        input: "Call docs__add.",
        tools: servers(),
        ...body,
      }) as Promise<Response>;
    const response = await ask({ tool_choice: "none" });
    expect(typesIn(response).at(-1)).toBe("message");
    expect(textOf(response)).toBe("You said: Call docs__add.");
    expect(await offeredIn(generations(gateway)[0])).toEqual(["get_weather"]);
    const listed = await ask({ input: "Hello!" });
    const known = await offeredIn(generations(gateway).at(-1));
    const from = generations(gateway).length;
    const next = await ask({ tool_choice: "none", previous_response_id: listed.id });
    expect(typesIn(next).filter((type) => type !== "reasoning")).toEqual(["message"]);
    expect(textOf(next)).toBe("You said: Call docs__add.");
    expect(known).toContain("docs__add");
    expect(await offeredIn(generations(gateway)[from])).toEqual(known);
    expect(server.calls).toEqual([]);
  });

  it("of a server that is not among the tools is a 400", async () => {
    const answer = await gateway.post({
      model,
      input: "Hello!",
      tools: [mcp(server)],
      tool_choice: { type: "mcp", server_label: "other" },
    });
    expect(answer.status).toBe(400);
    expect(await answer.json()).toMatchObject({ error: { param: "tool_choice" } });
  });
});

describe("a tool in the middle of its work", () => {
  it.each(MODELS)("is stopped when the client disconnects (%s)", async (model) => {
    const controller = new AbortController();
    const answer = await gateway.fetch(`${gateway.url}/v1/responses`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model, input: "Call docs__hang.", tools: [mcp(server)], stream: true }),
      signal: controller.signal,
    });
    let seen = "";
    const read = (async () => {
      for await (const chunk of answer.body ?? []) seen += new TextDecoder().decode(chunk);
    })().catch(() => {});
    const call = await eventually(() => server.calls[0]);
    controller.abort();
    await read;
    await eventually(() => call.signal.aborted);
    const id = /"id":"(resp_\w+)"/.exec(seen)?.[1] ?? "";
    const response = await eventually(() => gateway.openai.responses.retrieve(id).catch(() => undefined));
    expect(response.status).toBe("cancelled");
    expect(onlyItem(response, "mcp_call")).toMatchObject({ status: "incomplete", output: null });
    // A call that was cut off does not prevent the next turn.
    const next = await gateway.openai.responses.create({ model, previous_response_id: id, input: "Never mind." });
    expect(textOf(next)).toBe("You said: Never mind.");
  });

  it.each(MODELS)("is stopped when a background response is cancelled (%s)", async (model) => {
    const { id } = await gateway.openai.responses.create({
      model,
      input: "Call docs__hang and docs__add.",
      tools: [mcp(server)],
      background: true,
    });
    const call = await eventually(() => server.calls.find(({ name }) => name === "hang"));
    await gateway.openai.responses.cancel(id);
    await eventually(() => call.signal.aborted);
    const response = await ended(gateway, id);
    expect(response.status).toBe("cancelled");
    expect(itemsOfType(response, "mcp_call").every(({ status }) => status !== "in_progress")).toBe(true);
  });
});

describe("the next turn's prompt", () => {
  it("has calls and results in order, parallel ones in one message (chat)", async () => {
    const tools = [mcp(server)];
    const input = "Call docs__add and docs__echo.";
    const first = await gateway.openai.responses.create({ model: "simulator?rounds=2", input, tools });
    await gateway.openai.responses.create({
      model: "simulator",
      previous_response_id: first.id,
      input: "Thanks.",
      tools,
    });
    const calls = 'assistant: docs__add({"a":1,"b":2}) docs__echo({"text":"text"})';
    const round = [calls, "tool: 3", "tool: echoed text"];
    expect(shortly(generations(gateway).at(-1))).toEqual([
      `user: ${input}`,
      ...round,
      ...round,
      `assistant: ${textOf(first)}`,
      "user: Thanks.",
    ]);
  });

  it("has the client's calls beside those of their round, and each answer after its call (chat)", async () => {
    const tools = [getWeather, mcp(server)];
    const first = await gateway.openai.responses.create({
      model: "simulator?rounds=2",
      input: "Call get_weather and docs__add.",
      tools,
      tool_choice: { type: "mcp", server_label: "docs", name: "add" },
    });
    expect(typesIn(first)).toEqual(["mcp_list_tools", "mcp_call", "function_call", "mcp_call"]);
    const answer = outputOf(onlyCall(first));
    await gateway.openai.responses.create({
      model: "simulator",
      input: [answer],
      previous_response_id: first.id,
      tools,
    });
    const add = 'docs__add({"a":1,"b":2})';
    expect(shortly(generations(gateway).at(-1)).slice(1)).toEqual([
      `assistant: ${add}`,
      "tool: 3",
      `assistant: get_weather({}) ${add}`,
      "tool: 3",
      "tool: sunny",
    ]);
    // Without our storage, parallel calls cannot be recognised.
    const input: ResponseInputItem[] = [{ role: "user", content: "Hello." }, ...givenBack(first), answer];
    await gateway.openai.responses.create({ model: "simulator", input, tools });
    shortly(generations(gateway).at(-1));
    const parallel = await gateway.openai.responses.create({
      model: "simulator",
      input: "Call get_weather, docs__add, docs__echo and docs__fail.",
      tools,
    });
    const again = [{ role: "user" as const, content: "Hello." }, ...givenBack(parallel), outputOf(onlyCall(parallel))];
    await gateway.openai.responses.create({ model: "simulator", input: again, tools, store: false });
    expect(shortly(generations(gateway).at(-1)).slice(2)).toEqual([
      "tool: 3",
      "tool: echoed text",
      "tool: The disk is full.",
      "tool: sunny",
    ]);
  });

  it("has unique ids of calls, also beside the client's calls (chat)", async () => {
    const input: ResponseInputItem[] = [
      { role: "user", content: "Hello." },
      ...Array.from({ length: 8 }, (_, index): ResponseInputItem[] => [
        { type: "function_call", call_id: `call_${index}`, name: "get_weather", arguments: "{}" },
      ]).flat(),
      {
        type: "mcp_call",
        id: "mcp_1",
        server_label: "docs",
        name: "add",
        arguments: "{}",
        output: "3",
      } as ResponseInputItem,
      ...Array.from({ length: 8 }, (_, index): ResponseInputItem[] => [
        { type: "function_call_output", call_id: `call_${index}`, output: `weather ${index}` },
      ]).flat(),
      { type: "function_call", call_id: "call_19", name: "get_weather", arguments: "{}" },
      {
        type: "mcp_call",
        id: "mcp_2",
        server_label: "docs",
        name: "add",
        arguments: "{}",
        output: "4",
      } as ResponseInputItem,
      { type: "function_call_output", call_id: "call_19", output: "fog" },
    ];
    await gateway.openai.responses.create({ model: "simulator", input, tools: [getWeather] });
    expect(shortly(generations(gateway).at(-1))).toHaveLength(2 + 9 + 1 + 2);
  });

  it("extends the previous prompt and the sampled tokens within a turn (gpt-oss)", async () => {
    await gateway.openai.responses.create({
      model: GPT_OSS,
      input: "Call docs__add, docs__echo and docs__fail.",
      tools: [mcp(server)],
    });
    const asked = generations(gateway);
    expect(asked).toHaveLength(4);
    for (const [index, body] of asked.slice(1).entries()) {
      const before = asked[index];
      if (!before) throw new Error("Unreachable.");
      const prefix = [...(await idsOf(before)), ...(await sampledIds(before))];
      const ids = await idsOf(body);
      expect(ids.slice(0, prefix.length)).toEqual(prefix);
      const rest = (await messagesOf(body)).slice(-2);
      expect(rest[0]).toMatch(/^functions\.docs__\w+<\|channel\|>commentary to=assistant<\|message\|>/);
    }
  });

  it("has calls and results, without the earlier reasoning (gpt-oss)", async () => {
    const tools = [mcp(server)];
    const first = await gateway.openai.responses.create({ model: GPT_OSS, input: "Call docs__add.", tools });
    await gateway.openai.responses.create({ model: GPT_OSS, previous_response_id: first.id, input: "Thanks.", tools });
    const messages = await messagesOf(generations(gateway).at(-1) ?? {});
    expect(messages.slice(2, -1)).toEqual([
      "user<|message|>Call docs__add.<|end|>",
      'assistant<|channel|>commentary to=functions.docs__add <|constrain|>json<|message|>{"a":1,"b":2}<|call|>',
      "functions.docs__add<|channel|>commentary to=assistant<|message|>3<|end|>",
      "assistant<|channel|>final<|message|>The tool docs__add returned: 3<|end|>",
      "user<|message|>Thanks.<|end|>",
    ]);
  });

  it("is complete for both engines, alternately in one conversation", async () => {
    const conversation = (await gateway.openai.conversations.create({})).id;
    const say = (model: string, input: string) =>
      gateway.openai.responses.create({ model, conversation, input, tools: [mcp(server)] });
    await say("simulator", "Call docs__add.");
    await say(GPT_OSS, "Call docs__echo.");
    const harmony = await messagesOf(generations(gateway).at(-1) ?? {});
    expect(harmony).toContain(
      'assistant<|channel|>commentary to=functions.docs__add <|constrain|>json<|message|>{"a":1,"b":2}<|call|>',
    );
    expect(harmony).toContain("functions.docs__add<|channel|>commentary to=assistant<|message|>3<|end|>");
    await say("simulator", "Thanks.");
    const chat = shortly(generations(gateway).at(-1)).filter((message) => !message.startsWith("assistant: The"));
    expect(chat).toEqual([
      "user: Call docs__add.",
      'assistant: docs__add({"a":1,"b":2})',
      "tool: 3",
      "user: Call docs__echo.",
      'assistant: docs__echo({"text":"text"})',
      "tool: echoed text",
      "user: Thanks.",
    ]);
    await say(GPT_OSS, "Bye.");
    const last = (await messagesOf(generations(gateway).at(-1) ?? {})).join("\n");
    expect(last.match(/functions\.docs__(add|echo)<\|channel\|>commentary to=assistant/g)).toHaveLength(2);
    expect(itemsOfTypeIn(await listOf(conversation), "mcp_list_tools")).toBe(1);
  });

  it.each(MODELS)("is the same from items that a client keeps and returns (%s)", async (model) => {
    const question: ResponseInputItem = { role: "user", content: "Call docs__add and docs__fail." };
    const tools = [mcp(server)];
    const first = await gateway.openai.responses.create({ model, input: [question], tools, store: false });
    const lists = server.lists;
    const second = await gateway.openai.responses.create({
      model,
      input: [question, ...givenBack(first), { role: "user", content: "Thanks." }],
      tools,
      store: false,
    });
    expect(typesIn(second)).toEqual(["message"]);
    expect(server.lists).toBe(lists);
    const body = generations(gateway).at(-1);
    const prompt = model === GPT_OSS ? await messagesOf(body ?? {}) : shortly(body);
    const text = prompt.join("\n");
    expect(text.indexOf("docs__add")).toBeGreaterThan(0);
    expect(text).toContain("The disk is full.");
    expect(prompt.at(model === GPT_OSS ? -2 : -1)).toContain("Thanks.");
  });
});

async function listOf(conversation: string) {
  return Array.fromAsync(gateway.openai.conversations.items.list(conversation, { limit: 100 }));
}

function itemsOfTypeIn(items: readonly { type: string }[], type: string): number {
  return items.filter((item) => item.type === type).length;
}
