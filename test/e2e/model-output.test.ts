import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Response, ResponseCreateParamsNonStreaming } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Gateway, startGateway } from "./support.ts";

/** Output of models and of vLLM that the simulator does not generate, from a server with scripted answers. */

interface Delta {
  content?: string;
  reasoning?: string;
  refusal?: string;
  tool_calls?: { index?: number; id?: string | null; function?: { name?: string; arguments?: string } }[];
}

let script: { deltas: Delta[]; finish: string; more?: Record<string, unknown> };
const asked: { stream?: boolean }[] = [];

const server = createServer(async (request, response) => {
  // The server does not list its models.
  if (request.method === "GET") return void response.writeHead(404).end();
  const body = JSON.parse(Buffer.concat(await Array.fromAsync(request)).toString()) as { stream?: boolean };
  asked.push(body);
  if (!body.stream) {
    const choices = [{ index: 0, message: script.deltas[0], finish_reason: script.finish }];
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ object: "chat.completion", choices, ...script.more }));
    return;
  }
  const chunks: object[] = script.deltas.map((delta) => ({ choices: [{ index: 0, delta, finish_reason: null }] }));
  chunks.push({ choices: [{ index: 0, delta: {}, finish_reason: script.finish }] });
  response.writeHead(200, { "content-type": "text/event-stream" });
  for (const chunk of chunks) response.write(`data: ${JSON.stringify(chunk)}\n\n`);
  response.end("data: [DONE]\n\n");
});

let gateway: Gateway;
beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  gateway = await startGateway({ VLLM_BASE_URL: `http://127.0.0.1:${port}/v1`, UPSTREAM_DIALECT: "vllm" });
});
afterAll(async () => {
  await gateway.close();
  server.close();
});

const tools = ["look", "listen"].map((name) => ({
  type: "function" as const,
  name,
  parameters: { type: "object" },
  strict: false,
}));

/** The final response to this output of the model, which must be the same as JSON and streamed. */
async function outputOf(
  deltas: Delta[],
  finish = "stop",
  body: Partial<ResponseCreateParamsNonStreaming> = {},
): Promise<Response["output"]> {
  script = { deltas, finish };
  const request = { model: "m", input: "Hello!", tools, ...body };
  const whole = await gateway.openai.responses.create(request);
  const streamed = await gateway.openai.responses.stream({ ...request, stream: true }).finalResponse();
  const essence = ({ output }: { output: Response["output"] }) =>
    output.map((item) => ({ ...item, id: "", call_id: "" }));
  expect(essence(streamed)).toMatchObject(essence(whole));
  expect(streamed.status).toBe(whole.status);
  return whole.output;
}

function call(index: number, name: string | undefined, text: string, id?: string): Delta {
  return { tool_calls: [{ index, id: name && (id ?? `call_${name}`), function: { name, arguments: text } }] };
}

describe("text and calls", () => {
  it("in one answer are items in their order", async () => {
    const deltas = [{ content: "Let me " }, { content: "look." }, call(0, "look", ""), call(0, undefined, '{"at":1}')];
    expect(await outputOf(deltas, "tool_calls")).toMatchObject([
      { type: "message", status: "completed", content: [{ text: "Let me look." }] },
      { type: "function_call", name: "look", call_id: "call_look", arguments: '{"at":1}', status: "completed" },
    ]);
  });

  it("in the other order are items, too: the call is done before the text begins", async () => {
    const deltas = [call(0, "look", '{"at":1}'), { content: "Looking." }];
    expect(await outputOf(deltas, "tool_calls")).toMatchObject([
      { type: "function_call", status: "completed" },
      { type: "message", content: [{ text: "Looking." }] },
    ]);
  });

  it("are separate items in the order reasoning, text, reasoning, call", async () => {
    const deltas = [{ reasoning: "Hm." }, { content: "Wait." }, { reasoning: "Ah." }, call(0, "look", "{}")];
    const output = await outputOf(deltas, "tool_calls");
    expect(output.map(({ type }) => type)).toEqual(["reasoning", "message", "reasoning", "function_call"]);
  });

  it("may arrive together in one delta", async () => {
    const output = await outputOf([{ reasoning: "Hm.", content: "Yes.", ...call(0, "look", "{}") }], "tool_calls");
    expect(output.map(({ type }) => type)).toEqual(["reasoning", "message", "function_call"]);
  });
});

describe("a call", () => {
  it("without arguments has the empty object", async () => {
    expect(await outputOf([call(0, "look", "")], "tool_calls")).toMatchObject([{ name: "look", arguments: "{}" }]);
  });

  it("without an id gets one", async () => {
    const deltas: Delta[] = [{ tool_calls: [{ index: 0, id: null, function: { name: "look", arguments: "{}" } }] }];
    expect(await outputOf(deltas, "tool_calls")).toMatchObject([{ call_id: expect.stringMatching(/^call_\w{24}$/) }]);
  });

  it("whose id is too long to be returned gets another", async () => {
    const output = await outputOf([call(0, "look", "{}", "x".repeat(65))], "tool_calls");
    expect(output).toMatchObject([{ call_id: expect.stringMatching(/^call_\w{24}$/) }]);
  });

  it("with the id of an earlier call of the conversation gets another", async () => {
    script = { deltas: [call(0, "look", "{}", "functions.look:0")], finish: "tool_calls" };
    const first = await gateway.openai.responses.create({ model: "m", input: "Hello!", tools });
    expect(first.output).toMatchObject([{ call_id: "functions.look:0" }]);
    const second = await gateway.openai.responses.create({
      model: "m",
      tools,
      previous_response_id: first.id,
      input: [{ type: "function_call_output", call_id: "functions.look:0", output: "seen" }],
    });
    expect(second.output).toMatchObject([{ call_id: expect.stringMatching(/^call_\w{24}$/) }]);
  });

  it("without an index, which some parsers send complete, is a separate one", async () => {
    const both = ["look", "listen"].map((name) => ({ id: `call_${name}`, function: { name, arguments: "{}" } }));
    const output = await outputOf([{ tool_calls: both }], "tool_calls");
    expect(output).toMatchObject([{ name: "look" }, { name: "listen" }]);
  });

  it("with parallel_tool_calls: false is the model's first one", async () => {
    const deltas = [call(0, "look", '{"at":1}'), call(1, "listen", '{"to":1}'), call(1, undefined, "")];
    const output = await outputOf(deltas, "tool_calls", { parallel_tool_calls: false });
    expect(output).toMatchObject([{ name: "look", arguments: '{"at":1}' }]);
  });

  it("of a function that allowed_tools does not allow is not made", async () => {
    const choice = {
      type: "allowed_tools" as const,
      mode: "auto" as const,
      tools: [{ type: "function", name: "look" }],
    };
    const deltas = [call(0, "listen", '{"to":'), call(0, undefined, "1}"), call(1, "look", "{}")];
    const output = await outputOf(deltas, "tool_calls", { tool_choice: choice });
    expect(output).toMatchObject([{ name: "look", arguments: "{}" }]);
  });

  it("that was complete stays so when the answer is truncated in the text after it", async () => {
    const output = await outputOf([call(0, "look", "{}"), { content: "And th" }], "length");
    expect(output).toMatchObject([
      { type: "function_call", status: "completed" },
      { type: "message", status: "incomplete" },
    ]);
  });
});

describe("parallel calls", () => {
  it("with interleaved arguments are assembled separately", async () => {
    const deltas = [
      call(0, "look", '{"at"'),
      call(1, "listen", '{"to"'),
      call(0, undefined, ":1}"),
      call(1, undefined, ":2}"),
    ];
    expect(await outputOf(deltas, "tool_calls")).toMatchObject([
      { name: "look", arguments: '{"at":1}', status: "completed" },
      { name: "listen", arguments: '{"to":2}', status: "completed" },
    ]);
  });

  it("with interleaved arguments are complete except the last, when that is truncated", async () => {
    const deltas = [call(0, "look", '{"at"'), call(1, "listen", '{"to"'), call(0, undefined, ":1}")];
    expect(await outputOf(deltas, "length")).toMatchObject([
      { name: "look", arguments: '{"at":1}', status: "completed" },
      { name: "listen", arguments: '{"to"', status: "incomplete" },
    ]);
  });

  it("of one function are two calls", async () => {
    const deltas = [call(0, "look", '{"at":1}', "call_1"), call(1, "look", '{"at":2}', "call_2")];
    expect(await outputOf(deltas, "tool_calls")).toMatchObject([{ call_id: "call_1" }, { call_id: "call_2" }]);
  });
});

describe("a message", () => {
  it("that turns into a refusal has both as parts", async () => {
    expect(await outputOf([{ content: "Well, " }, { refusal: "no." }])).toMatchObject([
      {
        type: "message",
        content: [
          { type: "output_text", text: "Well, " },
          { type: "refusal", refusal: "no." },
        ],
      },
    ]);
  });

  it("that a content filter has cut is incomplete, with the reason", async () => {
    script = { deltas: [{ content: "Well, " }], finish: "content_filter" };
    const response = await gateway.openai.responses.create({ model: "m", input: "Hello!" });
    expect(response).toMatchObject({
      status: "incomplete",
      incomplete_details: { reason: "content_filter" },
      output: [{ status: "incomplete" }],
    });
  });
});

describe("kv_transfer_params", () => {
  it("of vLLM are in the response", async () => {
    const handedOver = { remote_engine_id: "e", remote_block_ids: [1, 2] };
    script = { deltas: [{ content: "a" }], finish: "length", more: { kv_transfer_params: handedOver } };
    const extras = { kv_transfer_params: { do_remote_decode: true } };
    const response = await gateway.openai.responses.create({ model: "m", input: "Hello!", ...extras });
    expect(asked.at(-1)?.stream).toBe(false);
    expect(response).toMatchObject({ kv_transfer_params: handedOver });
    expect(await gateway.openai.responses.retrieve(response.id)).toMatchObject({ kv_transfer_params: handedOver });
  });
});

describe("a call of a custom tool", () => {
  const custom = { tools: [{ type: "custom" as const, name: "patch" }, { type: "shell" as const }] };

  it("has its input, whether the model writes JSON or the text alone", async () => {
    const json = [call(0, "patch", '{"inp'), call(0, undefined, 'ut": "a\\'), call(0, undefined, 'nb"}')];
    expect(await outputOf(json, "tool_calls", custom)).toMatchObject([
      { type: "custom_tool_call", name: "patch", input: "a\nb", status: "completed" },
    ]);
    const bare = [call(0, "patch", "*** Begin"), call(0, undefined, " Patch")];
    expect(await outputOf(bare, "tool_calls", custom)).toMatchObject([{ input: "*** Begin Patch" }]);
  });

  it("is made in spite of an invalid one beside it", async () => {
    const deltas = [call(0, "patch", '{"input": "a"}'), call(1, "shell", '{"commands": 5}')];
    expect(await outputOf(deltas, "tool_calls", custom)).toMatchObject([{ type: "custom_tool_call", input: "a" }]);
  });

  it("that breaks off ends there, and the model is asked again without success", async () => {
    script = { deltas: [call(0, "patch", '{"input": "a')], finish: "tool_calls" };
    const before = asked.length;
    const failed = gateway.openai.responses.create({ model: "m", input: "Hello!", ...custom });
    await expect(failed).rejects.toMatchObject({ status: 502, code: "upstream_disregarded_request" });
    expect(asked.length - before).toBe(4);
    expect(JSON.stringify(asked.at(-1))).toContain("the input has broken off");
    expect(await outputOf([call(0, "patch", '{"input": "a')], "length", custom)).toMatchObject([
      { type: "custom_tool_call", input: "a", status: "incomplete" },
    ]);
  });
});
