import type {
  FunctionTool,
  Response,
  ResponseCreateParamsNonStreaming,
  ResponseInputItem,
} from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { serveSimulator } from "../../dev/simulator/serve.ts";
import { startWorkerd } from "../workerd/process.ts";
import { SocketClient } from "./socket-support.ts";
import { eventually, type Gateway, gatewayAt, joinGateway, lastPrompt } from "./support.ts";
import {
  ask,
  chatMessages,
  generations,
  itemsOfType,
  onlyItem,
  REPEATER,
  scripts,
  shortly,
  textOf,
  typesIn,
  WAYS,
  written,
} from "./tool-support.ts";
import { ended, unique } from "./turns.ts";

/** Asynchronous calls: the model goes on after them, and their outputs come in any later response. */

let gateway: Gateway;
beforeAll(async () => {
  gateway = await joinGateway();
});
afterAll(() => gateway.close());

const CHAT = "tiny-qwen3";
const MODELS = [CHAT, "tiny-gpt-oss"];
const RUNNING = "The call is running in the background. Its result will be given later; go on without it.";

const parameters = { type: "object", properties: {}, required: [], additionalProperties: false };
const weather: FunctionTool = { type: "function", name: "weather", strict: true, parameters, async: true };
const wait: FunctionTool = { type: "function", name: "wait", strict: true, parameters };
const note = { type: "custom" as const, name: "note", async: true };
const tools = [weather, wait, note];

/** The input that makes a model call tools without arguments. */
function calling(model: string, ...names: string[]): string {
  const calls = names.map((name) =>
    model === CHAT
      ? `‹tool_call›\n{"name": "${name}", "arguments": {}}\n‹/tool_call›`
      : `‹|channel|›commentary to=functions.${name} ‹|constrain|›json‹|message|›{}‹|call|›`,
  );
  const script = model === CHAT ? `‹think›\nhm\n‹/think›\n\n${calls.join("\n")}‹|im_end|›` : calls.join("");
  return unique(`SCRIPT[[${script}]]`);
}

function create(body: ResponseCreateParamsNonStreaming): Promise<Response> {
  return gateway.openai.responses.create({ tools, ...body });
}

function outputOf(call_id: string, output: string): ResponseInputItem {
  return { type: "function_call_output", call_id, output };
}

describe.each(MODELS)("an asynchronous call of %s", (model) => {
  it.each(WAYS)("does not end the response: the model goes on without its output (%s)", async (way) => {
    const { response, events } = await ask(gateway, way, { model, tools, input: calling(model, "weather") });
    expect(response.status).toBe("completed");
    expect(typesIn(response)).toEqual(["function_call", "message"]);
    const call = onlyItem(response, "function_call");
    expect(call).toMatchObject({ name: "weather", async: true, status: "completed" });
    expect(textOf(response).trim()).toBe(`The tool returned: ${RUNNING}`);
    expect(response.tools).toMatchObject([{ name: "weather", async: true }, { name: "wait" }, note]);
    const done = events.flatMap((event) => (event.type === "response.output_item.done" ? [event.item] : []));
    if (way === "stream") expect(done).toContainEqual(call);
  });

  it("gets its output in a later response, after other turns", async () => {
    const called = await create({ model, input: calling(model, "weather") });
    const call = onlyItem(called, "function_call");
    const other = await create({ model, previous_response_id: called.id, input: "Meanwhile?" });
    expect(textOf(other).trim()).toBe("You said: Meanwhile?");
    const answered = await create({
      model,
      previous_response_id: other.id,
      input: [outputOf(call.call_id, "sunny")],
    });
    expect(textOf(answered).trim()).toBe("The tool returned: sunny");
    const { data } = await gateway.openai.responses.inputItems.list(answered.id);
    expect(data).toMatchObject([{ type: "function_call_output", call_id: call.call_id, output: "sunny" }]);
  });

  it("keeps `async` when its client gives it back, and needs no output there", async () => {
    const asked = await create({ model, store: false, input: calling(model, "weather") });
    const call = onlyItem(asked, "function_call");
    const history = [{ role: "user", content: "?" }, ...asked.output, { role: "user", content: "And now?" }];
    const input = history as ResponseInputItem[];
    const said = await create({ model, store: false, input });
    expect(textOf(said).trim()).toBe("You said: And now?");
    const late = await create({ model, store: false, input: [...input, outputOf(call.call_id, "rain")] });
    expect(textOf(late).trim()).toBe("The tool returned: rain");
    const missing = input.map((item) => (item.type === "function_call" ? { ...item, async: false } : item));
    await expect(create({ model, store: false, input: missing })).rejects.toMatchObject({
      status: 400,
      message: expect.stringContaining(`No tool output found for function call ${call.call_id}.`),
    });
  });
});

describe("the prompt of a chat model", () => {
  it("has each asynchronous call with its state, and again with its output where that came", async () => {
    const input = calling(CHAT, "weather");
    const called = await create({ model: CHAT, input });
    const call = onlyItem(called, "function_call");
    const going = chatMessages(lastPrompt(gateway));
    const output = [outputOf(call.call_id, "sunny")];
    await create({ model: CHAT, previous_response_id: called.id, input: output });
    const prompt = lastPrompt(gateway);
    expect(shortly(prompt)).toEqual([
      `user: ${input}`,
      "assistant: weather({})",
      `tool: ${RUNNING}`,
      expect.stringMatching(/^assistant: The tool returned: .* weather\({}\)$/s),
      "tool: sunny",
    ]);
    expect(chatMessages(prompt).slice(0, going.length)).toEqual(going);
  });

  it("has the calls of custom tools in the same way", async () => {
    const input = calling(CHAT, "note").replace("{}", '{"input": "x"}');
    const called = await create({ model: CHAT, input });
    const call = onlyItem(called, "custom_tool_call");
    expect(call).toMatchObject({ input: "x", async: true });
    const output: ResponseInputItem = { type: "custom_tool_call_output", call_id: call.call_id, output: "noted" };
    const answered = await create({ model: CHAT, previous_response_id: called.id, input: [output] });
    expect(textOf(answered).trim()).toBe("The tool returned: noted");
  });
});

it.each([
  ["beside", CHAT, calling(CHAT, "weather", "wait")],
  ["before", REPEATER, scripts(written("weather"), written("wait"))],
])(
  "an asynchronous call %s another one: the response ends, and only the other output must come",
  async (_, model, input) => {
    const called = await create({ model, input });
    expect(typesIn(called)).toEqual(["function_call", "function_call"]);
    const [weatherCall, waitCall] = itemsOfType(called, "function_call");
    const going = await create({
      model,
      previous_response_id: called.id,
      input: [outputOf(waitCall?.call_id ?? "", "waited")],
    });
    expect(textOf(going).trim()).toMatch(/waited$/);
    const late = [outputOf(weatherCall?.call_id ?? "", "sunny")];
    const last = await create({ model, previous_response_id: going.id, input: late });
    expect(textOf(last).trim()).toMatch(/sunny$/);
  },
);

it("a forced asynchronous call is made once", async () => {
  const input = calling(CHAT, "weather");
  const called = await create({ model: CHAT, input, tool_choice: "required" });
  expect(typesIn(called)).toEqual(["function_call", "message"]);
  expect(lastPrompt(gateway).tool_choice).toBe("auto");
});

it("a model that never stops calling ends with its calls after MAX_TOOL_ROUNDS", async () => {
  const input = scripts(...Array.from({ length: 40 }, () => written("weather")));
  const called = await create({ model: REPEATER, input });
  expect(called.status).toBe("completed");
  expect(itemsOfType(called, "function_call")).toHaveLength(33);
});

it("the words that steer a response do not wait for the output of an asynchronous call", async () => {
  const socket = await SocketClient.open(gateway);
  try {
    socket.create({ model: CHAT, tools, input: `DELAY=20 ${calling(CHAT, "weather")}` });
    const [created] = await socket.reached(({ type }) => type === "response.function_call_arguments.done");
    const previous_response_id = created?.response?.id ?? "";
    socket.send({ type: "response.steer", previous_response_id, input: "In Celsius." });
    expect((await socket.ended()).last).toMatchObject({ response: { incomplete_details: { reason: "steered" } } });
    const answer = await socket.ended();
    expect(answer.text.trim()).toBe("You said: In Celsius.");
  } finally {
    socket.terminate();
  }
});

it("a run that is killed after its call goes on, and calls once", async () => {
  const vllm = await serveSimulator();
  const worker = await startWorkerd(
    { ALLOW_ANONYMOUS: "true", VLLM_BASE_URL: `${vllm.url}/v1` },
    { readsFormats: false },
  );
  const killed = gatewayAt(worker, vllm);
  try {
    const input = `DELAY=50 ${calling(CHAT, "weather")}`;
    const { id } = await killed.openai.responses.create({ model: CHAT, tools, input, background: true });
    await eventually(() => generations(killed)[1]);
    await worker.kill();
    await worker.restart();
    const response = await ended(killed, id);
    expect(typesIn(response)).toEqual(["function_call", "message"]);
    expect(textOf(response).trim()).toBe(`The tool returned: ${RUNNING}`);
    const late = [outputOf(onlyItem(response, "function_call").call_id, "sunny")];
    const answer = await killed.openai.responses.create({ model: CHAT, tools, previous_response_id: id, input: late });
    expect(textOf(answer).trim()).toBe("The tool returned: sunny");
  } finally {
    await killed.close();
  }
});
