import type {
  FunctionTool,
  Response,
  ResponseCreateParamsNonStreaming,
  ResponseFunctionToolCall,
  ResponseInputItem,
} from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { GPT_OSS } from "./harmony-support.ts";
import { type Gateway, joinGateway, lastPrompt } from "./support.ts";

let gateway: Gateway;
beforeAll(async () => {
  gateway = await joinGateway();
});
afterAll(() => gateway.close());

const model = "simulator";

const getWeather: FunctionTool = {
  type: "function",
  name: "get_weather",
  description: "The weather in a city.",
  parameters: {
    type: "object",
    properties: { city: { type: "string" }, unit: { enum: ["celsius", "fahrenheit"] } },
    required: ["city", "unit"],
    additionalProperties: false,
  },
  strict: true,
};
const getTime: FunctionTool = { type: "function", name: "get_time", parameters: { type: "object" }, strict: false };
const ping: FunctionTool = { type: "function", name: "ping", parameters: null, strict: null };
const tools = [getWeather, getTime, ping];

function callsOf(response: { output: Response["output"] }): ResponseFunctionToolCall[] {
  return response.output.filter((item) => item.type === "function_call");
}

function onlyCall(response: { output: Response["output"] }): ResponseFunctionToolCall {
  const [call, ...more] = callsOf(response);
  if (!call || more.length > 0) throw new Error(`Expected one call, got ${JSON.stringify(response.output)}`);
  return call;
}

function outputOf(call: ResponseFunctionToolCall, output = "sunny"): ResponseInputItem.FunctionCallOutput {
  return { type: "function_call_output", call_id: call.call_id, output };
}

function create(body: ResponseCreateParamsNonStreaming): Promise<Response> {
  return gateway.openai.responses.create({ model, tools, ...body });
}

describe("a function call", () => {
  it("is an item with arguments that match the schema", async () => {
    const response = await create({ input: "Call get_weather." });
    expect(response.status).toBe("completed");
    expect(response.output).toEqual([
      {
        type: "function_call",
        id: expect.stringMatching(/^fc_/),
        call_id: expect.stringMatching(/^.{1,64}$/),
        name: "get_weather",
        arguments: '{"city":"city","unit":"celsius"}',
        status: "completed",
      },
    ]);
  });

  it("is answered with previous_response_id", async () => {
    const asked = await create({ input: "Call get_weather." });
    const call = onlyCall(asked);
    const answered = await create({ previous_response_id: asked.id, input: [outputOf(call)] });
    expect(answered.output_text).toBe("The tool get_weather returned: sunny");
    expect(lastPrompt(gateway).messages).toEqual([
      { role: "user", content: "Call get_weather." },
      {
        role: "assistant",
        tool_calls: [
          { id: call.call_id, type: "function", function: { name: "get_weather", arguments: call.arguments } },
        ],
      },
      { role: "tool", tool_call_id: call.call_id, content: "sunny" },
    ]);
  });

  it("is answered with a replayed input, without any state here", async () => {
    const question: ResponseInputItem = { role: "user", content: "Call get_weather." };
    const asked = await create({ input: [question], store: false });
    const replayed = [question, ...asked.output, outputOf(onlyCall(asked))] as ResponseInputItem[];
    const answered = await create({ input: replayed, store: false });
    expect(answered.output_text).toBe("The tool get_weather returned: sunny");
  });

  it("may be repeated in a later turn, with its own id", async () => {
    const first = await create({ input: "Call get_weather." });
    const second = await create({ previous_response_id: first.id, input: [outputOf(onlyCall(first))] });
    const third = await create({ previous_response_id: second.id, input: "Call get_weather again." });
    expect(onlyCall(third).call_id).not.toBe(onlyCall(first).call_id);
    const fourth = await create({ previous_response_id: third.id, input: [outputOf(onlyCall(third), "rainy")] });
    expect(fourth.output_text).toBe("The tool get_weather returned: rainy");
  });

  it("comes after the reasoning that led to it, which the model gets in the next prompt", async () => {
    const asked = await create({ model: "simulator-reasoning", input: "Call get_weather." });
    expect(asked.output.map(({ type }) => type)).toEqual(["reasoning", "function_call"]);
    const answered = await create({
      model: "simulator-reasoning",
      previous_response_id: asked.id,
      input: [outputOf(onlyCall(asked))],
    });
    expect(answered.output.map(({ type }) => type)).toEqual(["reasoning", "message"]);
    const [, assistant] = lastPrompt(gateway).messages as Record<string, unknown>[];
    expect(assistant).toMatchObject({
      role: "assistant",
      reasoning: expect.stringContaining("The user said: Call get_weather."),
      tool_calls: [{ function: { name: "get_weather" } }],
    });
    expect(assistant?.reasoning_content).toBe(assistant?.reasoning);
  });

  it("streams its arguments, with its name in the last event", async () => {
    const stream = await gateway.openai.responses.create({ model, tools, input: "Call get_weather.", stream: true });
    const events = await Array.fromAsync(stream);
    const deltas = events.filter((event) => event.type === "response.function_call_arguments.delta");
    expect(deltas.length).toBeGreaterThan(3);
    expect(deltas.map(({ delta }) => delta).join("")).toBe('{"city":"city","unit":"celsius"}');
    const done = events.find((event) => event.type === "response.function_call_arguments.done");
    expect(done).toMatchObject({ name: "get_weather", arguments: '{"city":"city","unit":"celsius"}' });
    const last = events.at(-1);
    if (last?.type !== "response.completed") throw new Error(`The last event is ${last?.type}`);
    expect(await gateway.openai.responses.retrieve(last.response.id)).toMatchObject({ output: last.response.output });
  });

  it("is complete in a JSON answer from a vLLM that does not stream", async () => {
    const response = await create({ model: "simulator?fault=json", input: "Call get_weather and get_time." });
    expect(callsOf(response).map(({ name }) => name)).toEqual(["get_weather", "get_time"]);
  });

  it("of a tool without arguments has an empty object as arguments", async () => {
    const response = await create({ input: "ping" });
    expect(onlyCall(response)).toMatchObject({ name: "ping", arguments: "{}" });
    const answered = await create({ previous_response_id: response.id, input: [outputOf(onlyCall(response), "pong")] });
    expect(answered.output_text).toBe("The tool ping returned: pong");
  });

  it("accepts an output that is a list of parts", async () => {
    const asked = await create({ input: "Call get_weather." });
    const { call_id } = onlyCall(asked);
    const output: ResponseInputItem.FunctionCallOutput = {
      type: "function_call_output",
      call_id,
      output: [
        { type: "input_text", text: "A map:" },
        { type: "input_image", image_url: "data:image/png;base64,AAAA", detail: "low" },
      ],
    };
    const answered = await create({ previous_response_id: asked.id, input: [output] });
    expect(answered.output_text).toBe("The tool get_weather returned: A map:\n[image]");
    expect((lastPrompt(gateway).messages as unknown[]).at(-1)).toEqual({
      role: "tool",
      tool_call_id: call_id,
      content: [
        { type: "text", text: "A map:" },
        { type: "image_url", image_url: { url: "data:image/png;base64,AAAA", detail: "low" } },
      ],
    });
  });

  it.each([
    ["a list of one text, as that text", [{ type: "input_text" as const, text: "sunny" }], "sunny"],
    ["an empty text", "", ""],
    ["an empty list", [], ""],
  ])("accepts an output that is %s", async (_, output, content) => {
    const asked = await create({ input: "Call get_weather." });
    const { call_id } = onlyCall(asked);
    const input = [{ type: "function_call_output" as const, call_id, output }];
    await create({ previous_response_id: asked.id, input });
    expect((lastPrompt(gateway).messages as unknown[]).at(-1)).toEqual({
      role: "tool",
      tool_call_id: call_id,
      content,
    });
  });

  it("with arguments that are no JSON is changed for vLLM, which would refuse the prompt", async () => {
    const input: ResponseInputItem[] = [
      { role: "user", content: "Hello!" },
      { type: "function_call", call_id: "call_1", name: "get_time", arguments: "not {json" },
      { type: "function_call_output", call_id: "call_1", output: "noon" },
    ];
    expect((await create({ input })).output_text).toBe("The tool get_time returned: noon");
  });

  it("that was truncated is not in the next prompt", async () => {
    const cut = await create({ input: "Call get_weather.", max_output_tokens: 13 });
    expect(onlyCall(cut).status).toBe("incomplete");
    const next = await create({ previous_response_id: cut.id, input: "Never mind." });
    expect(next.status).toBe("completed");
    expect(lastPrompt(gateway).messages).toEqual([
      { role: "user", content: "Call get_weather." },
      { role: "user", content: "Never mind." },
    ]);
  });
});

describe("parallel calls", () => {
  it("are items one after the other, each answered by its call_id, in any order", async () => {
    const asked = await create({ input: "Call get_weather and get_time." });
    const [weather, time] = callsOf(asked);
    if (!weather || !time) throw new Error("Expected two calls.");
    expect([weather.name, time.name]).toEqual(["get_weather", "get_time"]);
    expect(weather.call_id).not.toBe(time.call_id);
    const input = [outputOf(time, "noon"), outputOf(weather, "sunny")];
    const answered = await create({ previous_response_id: asked.id, input });
    expect(answered.output_text).toBe("The tool get_time returned: noon\nThe tool get_weather returned: sunny");
    const [, assistant] = lastPrompt(gateway).messages as { tool_calls?: unknown[] }[];
    expect(assistant?.tool_calls).toHaveLength(2);
  });

  it("stream with an output_index each, and the client assembles the same calls", async () => {
    const stream = gateway.openai.responses.stream({ model, tools, input: "Use the tools.", stream: true });
    const final = await stream.finalResponse();
    const calls = callsOf(final);
    expect(calls.map(({ name }) => name)).toEqual(["get_weather", "get_time", "ping"]);
    expect(calls.map(({ arguments: text }) => JSON.parse(text))).toEqual([{ city: "city", unit: "celsius" }, {}, {}]);
  });

  it("are at most one with parallel_tool_calls: false", async () => {
    const response = await create({ input: "Use the tools.", parallel_tool_calls: false });
    expect(onlyCall(response).name).toBe("get_weather");
    expect(response.parallel_tool_calls).toBe(false);
    expect(lastPrompt(gateway).parallel_tool_calls).toBe(false);
  });
});

describe("tools", () => {
  it("reach vLLM in chat completions' form, strict included, and nulls left out: a function without a schema is not strict", async () => {
    const response = await create({ input: "Hello!" });
    const { type, ...definition } = getWeather;
    expect(lastPrompt(gateway).tools).toEqual([
      { type, function: definition },
      { type, function: { name: "get_time", parameters: { type: "object" }, strict: false } },
      { type, function: { name: "ping" } },
    ]);
    expect(response.tools).toEqual([
      getWeather,
      { ...getTime, description: null },
      { ...ping, description: null, strict: false },
    ]);
  });

  it("are not sent if there are none, because vLLM refuses an empty list", async () => {
    const response = await create({ tools: [], input: "Hello!" });
    expect(response.tools).toEqual([]);
    expect(lastPrompt(gateway)).not.toHaveProperty("tools");
    expect(lastPrompt(gateway)).not.toHaveProperty("tool_choice");
  });

  it("are those of their own turn, not of an earlier one", async () => {
    const first = await create({ input: "Hello!" });
    const second = await create({ previous_response_id: first.id, tools: [ping], input: "Use the tools." });
    expect(onlyCall(second).name).toBe("ping");
    expect(lastPrompt(gateway).tools).toHaveLength(1);
  });
});

describe("tool_choice", () => {
  it("auto leaves it to the model", async () => {
    const response = await create({ input: "Hello!", tool_choice: "auto" });
    expect(response.output_text).toBe("You said: Hello!");
    expect(response.tool_choice).toBe("auto");
    expect(lastPrompt(gateway).tool_choice).toBe("auto");
  });

  it("required forces a call", async () => {
    const response = await create({ input: "Hello!", tool_choice: "required" });
    expect(onlyCall(response).name).toBe("get_weather");
    expect(response.tool_choice).toBe("required");
  });

  it("a function's name forces that function", async () => {
    const choice = { type: "function" as const, name: "get_time" };
    const response = await create({ input: "Call get_weather.", tool_choice: choice });
    expect(onlyCall(response).name).toBe("get_time");
    expect(response.tool_choice).toEqual(choice);
    expect(lastPrompt(gateway).tool_choice).toEqual({ type: "function", function: { name: "get_time" } });
  });

  it("a function's name in chat completions' nested form does the same, and is echoed in ours", async () => {
    const nested = { type: "function", function: { name: "get_time" } };
    const answer = await gateway.post({ model, tools, input: "Hello!", tool_choice: nested });
    expect(await answer.json()).toMatchObject({
      tool_choice: { type: "function", name: "get_time" },
      output: [{ type: "function_call", name: "get_time" }],
    });
  });

  it("none gives a text without calls, and the tools are still echoed", async () => {
    const response = await create({ input: "Use the tools.", tool_choice: "none" });
    expect(response.output).toMatchObject([{ type: "message", content: [{ text: "You said: Use the tools." }] }]);
    expect(response).toMatchObject({ tool_choice: "none", status: "completed" });
    expect(response.tools).toHaveLength(3);
  });

  it.each([model, GPT_OSS])(
    "none and allowed_tools have the same prompt as auto, with all tools (%s)",
    async (model) => {
      const allowed = {
        type: "allowed_tools" as const,
        mode: "auto" as const,
        tools: [{ type: "function", name: "ping" }],
      };
      const input = "Hello!";
      const whole = await create({ model, input });
      for (const tool_choice of ["auto", "none", allowed] as const) {
        const { usage } = await create({ model, input, tool_choice });
        const { input_tokens } = await gateway.openai.responses.inputTokens.count({ model, input, tools, tool_choice });
        expect(usage?.input_tokens).toBe(whole.usage?.input_tokens);
        expect(usage?.input_tokens_details.cached_tokens).toBeGreaterThan(input_tokens - 17);
        expect(input_tokens).toBe(usage?.input_tokens);
      }
    },
  );

  it("allowed_tools with auto permits only calls of those", async () => {
    const choice = {
      type: "allowed_tools" as const,
      mode: "auto" as const,
      tools: [{ type: "function", name: "get_time" }],
    };
    const response = await create({ input: "Use the tools.", tool_choice: choice });
    expect(onlyCall(response).name).toBe("get_time");
    expect(response.tool_choice).toEqual(choice);
    expect(response.tools).toHaveLength(3);
    const idle = await create({ input: "Call get_weather.", tool_choice: choice });
    expect(idle.output_text).toBe("You said: Call get_weather.");
    expect(callsOf(idle)).toEqual([]);
  });

  it("allowed_tools with required forces one of those", async () => {
    const allowed = ["get_time", "ping"].map((name) => ({ type: "function", name }));
    const choice = { type: "allowed_tools" as const, mode: "required" as const, tools: allowed };
    const response = await create({ input: "Call get_weather.", tool_choice: choice });
    expect(onlyCall(response).name).toBe("get_time");
    expect(lastPrompt(gateway).tool_choice).toBe("required");
    expect(lastPrompt(gateway).tools).toHaveLength(2);
  });
});
