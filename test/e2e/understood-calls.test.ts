import type { Response, ResponseCreateParamsNonStreaming } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readStream } from "./expectations.ts";
import { type Asked, call, fault, MODEL, type ScriptedGateway, startScripted, stream } from "./scripted-vllm.ts";
import { eventually } from "./support.ts";

/** Calls and texts that servers and clients write in other ways than vLLM does. */

let gateway: ScriptedGateway;
beforeAll(async () => {
  gateway = await startScripted();
});
afterAll(() => gateway.close());

const parameters = { type: "object", properties: { zone: { type: "string" } }, required: ["zone"] };
const getTime = { type: "function" as const, name: "get_time", parameters, strict: false };

function create(fields: Partial<ResponseCreateParamsNonStreaming> = {}): Promise<Response> {
  return gateway.openai.responses.create({ model: MODEL, input: "What time is it?", ...fields, stream: false });
}

const messagesOf = (body: Asked | undefined) => body?.messages as Asked[];
const callOf = (id: string, zone: string, index?: number) => ({
  ...(index !== undefined && { index }),
  ...{ id, type: "function", function: { name: "get_time", arguments: JSON.stringify({ zone }) } },
});

describe("parallel calls", () => {
  it.each([
    ["have one index", [[callOf("a", "CET", 0)], [callOf("b", "UTC", 0)]]],
    ["have one index in one chunk", [[callOf("a", "CET", 0), callOf("b", "UTC", 0)]]],
    ["have no index", [[callOf("a", "CET")], [callOf("b", "UTC")]]],
    ["have no index in one chunk", [[callOf("a", "CET"), callOf("b", "UTC")]]],
  ])("of a server on which they %s are two", async (_, chunks) => {
    gateway.replies(
      stream(
        chunks.map((calls) => ({ tool_calls: calls })),
        "tool_calls",
      ),
    );
    const { output } = await create({ tools: [getTime] });
    expect(output).toMatchObject([
      { type: "function_call", call_id: "a", arguments: '{"zone":"CET"}' },
      { type: "function_call", call_id: "b", arguments: '{"zone":"UTC"}' },
    ]);
    expect(gateway.asked).toHaveLength(1);
  });

  it("that a server writes in pieces, each with the id of its call, stay what they are", async () => {
    const piece = (id: string, text: string, name?: string) => ({
      tool_calls: [{ index: 0, id, type: "function", function: { ...(name && { name }), arguments: text } }],
    });
    const pieces = [piece("a", '{"zone":', "get_time"), piece("a", '"CET"}'), piece("b", '{"zone":', "get_time")];
    gateway.replies(stream([...pieces, piece("b", '"UTC"}')], "tool_calls"));
    const { output } = await create({ tools: [getTime] });
    expect(output).toMatchObject([{ arguments: '{"zone":"CET"}' }, { arguments: '{"zone":"UTC"}' }]);
  });
});

describe("an earlier call", () => {
  it.each([
    ['{"city": ', { unreadable_arguments: '{"city": ' }],
    ["", {}],
    ["[]", { unreadable_arguments: "[]" }],
    ["5", { unreadable_arguments: "5" }],
    ['{"b":1.0,"a":"é"}', undefined],
  ])("with the arguments %j is an object to the model's template", async (written, expected) => {
    gateway.replies(stream([{ content: "Noon." }], "stop"));
    const input = [
      { role: "user" as const, content: "When?" },
      { type: "function_call" as const, call_id: "c1", name: "get_time", arguments: written },
      { type: "function_call_output" as const, call_id: "c1", output: "12:00" },
    ];
    expect((await create({ input, tools: [getTime] })).output_text).toBe("Noon.");
    const sent = messagesOf(gateway.asked[0])[1]?.tool_calls[0].function.arguments as string;
    if (expected) expect(JSON.parse(sent)).toEqual(expected);
    else expect(sent).toBe(written);
  });
});

describe("half a surrogate pair", () => {
  it("of a client is U+FFFD to the model, and in what is stored", async () => {
    gateway.replies(stream([{ content: "Well." }], "stop"));
    // As `JSON.stringify` escapes it.
    const { id } = await create({ input: "a\ud83d b 😀 \ude00" });
    expect(messagesOf(gateway.asked[0])[0]?.content).toBe("a\ufffd b 😀 \ufffd");
    const { data } = await gateway.openai.responses.inputItems.list(id);
    expect(JSON.stringify(data)).toContain("a\ufffd b 😀 \ufffd");
  });

  it("of a model server waits for the other half: no event has one alone", async () => {
    const deltas = [
      { reasoning: "\ud83e" },
      { reasoning: "\udd84" },
      { content: "a\ud83d" },
      { content: "\ude00\ude00" },
    ];
    gateway.replies(stream([...deltas, { content: "b\ud83d" }], "stop"));
    const read = await readStream(await gateway.post({ model: MODEL, input: "Hi", stream: true }));
    const texts = read.events.filter(({ type }) => /delta$/.test(type)).map(({ delta }) => delta as string);
    expect(texts.every((text) => text.isWellFormed())).toBe(true);
    expect(texts.join("")).toBe("🦄a😀\ufffdb");
  });
});

describe("an answer that its server could not parse", () => {
  it.each([
    "Failed to parse input at pos 12: <tool_call>",
    "error parsing tool call: raw='{\"zone\":', err=unexpected end of JSON input",
  ])("and answers with a 500 (%s) is asked for again", async (message) => {
    const right = stream(call(0, "get_time", '{"zone":"CET"}'), "tool_calls");
    gateway.replies({ status: 500, body: fault(500, message) }, right);
    const { output } = await create({ tools: [getTime] });
    expect(output).toMatchObject([{ type: "function_call", arguments: '{"zone":"CET"}' }]);
    expect(gateway.asked).toHaveLength(2);
  });
});

it("a user's message between a call and its output comes after the output", async () => {
  gateway.replies(stream([{ content: "Noon." }], "stop"));
  const input = [
    { role: "user" as const, content: "When?" },
    { type: "function_call" as const, call_id: "c1", name: "get_time", arguments: "{}" },
    { role: "user" as const, content: "Quick!" },
    { type: "function_call_output" as const, call_id: "c1", output: "12:00" },
  ];
  await create({ input, tools: [getTime] });
  const said = messagesOf(gateway.asked[0]).map(({ role, content }) => `${role}: ${content ?? "calls"}`);
  expect(said).toEqual(["user: When?", "assistant: calls", "tool: 12:00", "user: Quick!"]);
});

describe("JSON that a model has wrapped", () => {
  const schema = { type: "object", properties: { t: { enum: ["x"] } }, required: ["t"], additionalProperties: false };
  const text = { format: { type: "json_schema" as const, name: "answer", schema, strict: true } };

  it.each(['```json\n{"t":"x"}\n```', 'Here it is: {"t":"x"} — done.', '"{\\"t\\":\\"x\\"}"'])(
    "is the answer in its format: %s",
    async (content) => {
      gateway.replies(stream([{ content: content.slice(0, 5) }, { content: content.slice(5) }], "stop"));
      expect((await create({ tools: [getTime], text })).output_text).toBe('{"t":"x"}');
      expect(gateway.asked).toHaveLength(1);
      await eventually(() => gateway.logs().includes(`"event":"json_unwrapped","what":"answer","model":"${MODEL}"`));
    },
  );

  it("is not, where it is outside of the format", async () => {
    const wrapped = stream([{ content: '```json\n{"t":"y"}\n```' }], "stop");
    gateway.replies(wrapped, stream([{ content: '{"t":"x"}' }], "stop"));
    expect((await create({ tools: [getTime], text })).output_text).toBe('{"t":"x"}');
    expect(gateway.asked).toHaveLength(2);
  });

  it.each(['{"zone":"CET"}\nDone.', '```json\n{"zone":"CET"}\n```', '"{\\"zone\\":\\"CET\\"}"'])(
    "is the arguments of its call: %s",
    async (written) => {
      gateway.replies(stream(call(0, "get_time", written.slice(0, 4), written.slice(4)), "tool_calls"));
      const { output } = await create({ tools: [getTime] });
      expect(output).toMatchObject([{ type: "function_call", arguments: '{"zone":"CET"}', status: "completed" }]);
      expect(gateway.asked).toHaveLength(1);
    },
  );

  it("is not, where there are two objects", async () => {
    const right = stream(call(0, "get_time", '{"zone":"CET"}'), "tool_calls");
    gateway.replies(stream(call(0, "get_time", '{"zone":"CET"}{"zone":"UTC"}'), "tool_calls"), right);
    await create({ tools: [getTime] });
    expect(gateway.asked).toHaveLength(2);
  });
});
