import type { Response } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { errorOf, readStream } from "./expectations.ts";
import { call, fault, MODEL, type Reply, type ScriptedGateway, startScripted, stream } from "./scripted-vllm.ts";

/** Arguments of functions are compared with their schemas, whatever the model server promises. */

let gateway: ScriptedGateway;
beforeAll(async () => {
  gateway = await startScripted();
});
afterAll(() => gateway.close());

const parameters = {
  type: "object",
  properties: { city: { type: "string" }, unit: { enum: ["c", "f"] } },
  required: ["city"],
};
/** `strict` is omitted, as in most hand-written tools. */
const weather = { type: "function", name: "get_weather", parameters };
const calling = (...texts: string[]) =>
  stream(
    texts.flatMap((text, index) => call(index, "get_weather", text)),
    "tool_calls",
  );
const right = '{"city":"Rome"}';

async function asked(fields: object): Promise<Response> {
  const answer = await gateway.post({ model: MODEL, input: "Weather?", ...fields });
  return (await answer.json()) as Response;
}

async function streamed(fields: object) {
  const answer = await gateway.post({ model: MODEL, input: "Weather?", stream: true, ...fields });
  const read = await readStream(answer);
  return { ...read, response: read.events.at(-1)?.response as unknown as Response };
}

/** The functions that the model server was sent last. */
const sentTools = () => gateway.asked.at(-1)?.tools.map((tool: { function: object }) => tool.function) as object[];

describe("a call whose arguments are outside of their schema", () => {
  it.each([
    ['{"city":5}', "'city' is not of type string"],
    ['{"":"]"}', "the value has no 'city'"],
    ['{"city":"Rome","unit":"k"}', `'unit' is none of "c", "f"`],
    ["", "the value has no 'city'"],
  ])("%s is not made: the model is told, and asked again", async (wrong, why) => {
    for (const ask of [asked, async (fields: object) => (await streamed(fields)).response]) {
      gateway.replies(calling(wrong), calling(right));
      const response = await ask({ tools: [weather] });
      expect(response.output).toMatchObject([{ type: "function_call", arguments: right, status: "completed" }]);
      const told = gateway.asked[1]?.messages.at(-1);
      expect(told).toMatchObject({ role: "tool", content: expect.stringContaining(why) });
    }
  });

  it.each<[keyword: string, schema: object, wrong: unknown, right: unknown, why: string]>([
    ["pattern", { pattern: "^[A-Z]{3}$" }, "rome", "ROM", "'city' does not match the pattern"],
    ["format", { format: "uuid" }, "rome", "123e4567-e89b-12d3-a456-426614174000", `'city' is no "uuid"`],
    ["not", { not: { const: "" } }, "", "Rome", "'city' matches the schema of 'not'"],
    ["multipleOf", { multipleOf: 5 }, 7, 10, "'city' violates 'multipleOf' (5)"],
    ["uniqueItems", { uniqueItems: true }, [1, 1], [1, 2], "'city' violates 'uniqueItems'"],
    ["contains", { contains: { type: "string" } }, [1], ["a"], "'city' violates 'contains'"],
    ["dependentRequired", { dependentRequired: { a: ["b"] } }, { a: 1 }, { a: 1, b: 1 }, "'city' has no 'b'"],
    ["propertyNames", { propertyNames: { maxLength: 1 } }, { ab: 1 }, { a: 1 }, "'city' has the name 'ab'"],
  ])("%s is compared as other keywords are", async (_keyword, schema, wrong, given, why) => {
    const tool = { ...weather, parameters: { type: "object", properties: { city: schema } } };
    const json = JSON.stringify({ city: given });
    gateway.replies(calling(JSON.stringify({ city: wrong })), calling(json));
    expect((await asked({ tools: [tool] })).output).toMatchObject([{ arguments: json, status: "completed" }]);
    expect(gateway.asked[1]?.messages.at(-1)).toMatchObject({ role: "tool", content: expect.stringContaining(why) });
  });

  it("is found in bounded time, whatever its pattern", async () => {
    const tool = { ...weather, parameters: { type: "object", properties: { city: { pattern: "^(a+)+$" } } } };
    gateway.replies(calling(JSON.stringify({ city: `${"a".repeat(1_000)}!` })), calling('{"city":"a"}'));
    expect((await asked({ tools: [tool] })).output).toMatchObject([{ arguments: '{"city":"a"}' }]);
  });

  it("fails by name when the model makes no other", async () => {
    gateway.replies(calling('{"city":5}'));
    const answer = await gateway.post({ model: MODEL, input: "Weather?", tools: [weather] });
    expect(answer.status).toBe(502);
    expect(await errorOf(answer)).toMatchObject({
      code: "upstream_disregarded_request",
      message: expect.stringMatching(/'get_weather'.*'city' is not of type string/),
    });
    expect(gateway.asked).toHaveLength(4);
    gateway.replies(calling('{"city":5}'));
    const { response } = await streamed({ tools: [weather] });
    expect(response).toMatchObject({
      status: "failed",
      output: [],
      error: { message: expect.stringContaining("get_weather") },
    });
  });

  it("is left out beside a valid one, also where the limit cuts the answer", async () => {
    gateway.replies(calling('{"city":5}', right));
    expect((await asked({ tools: [weather] })).output).toMatchObject([{ arguments: right, status: "completed" }]);
    const cut = [...call(0, "get_weather", '{"city":5}'), ...call(1, "get_weather", '{"city":"R')];
    gateway.replies(stream(cut, "length"));
    expect((await asked({ tools: [weather] })).output).toMatchObject([
      { arguments: '{"city":"R', status: "incomplete" },
    ]);
  });

  it("is made if the function is not strict, and its response says so", async () => {
    gateway.replies(calling('{"city":5}'));
    const response = await asked({ tools: [{ ...weather, strict: false }] });
    expect(response.output).toMatchObject([{ arguments: '{"city":5}', status: "completed" }]);
    expect(response.tools).toMatchObject([{ strict: false }]);
    expect(sentTools()).toMatchObject([{ strict: false }]);
  });

  it("is not made of a function in a namespace, nor of one with a schema that has no strict form", async () => {
    const free = { ...weather, parameters: { ...parameters, additionalProperties: true } };
    gateway.replies(calling('{"city":5}'), calling('{"city":"Rome","more":1}'));
    const loose = await asked({ tools: [free] });
    expect(loose.output).toMatchObject([{ arguments: '{"city":"Rome","more":1}' }]);
    expect(loose.tools).toMatchObject([{ strict: false }]);
    const space = { type: "namespace", name: "w", description: "", tools: [weather] };
    const named = (text: string) => stream(call(0, "w__get_weather", text), "tool_calls");
    gateway.replies(named('{"city":5}'), named(right));
    const response = await asked({ tools: [space] });
    expect(response.output).toMatchObject([{ namespace: "w", arguments: right }]);
    expect(response.tools).toMatchObject([{ tools: [{ strict: true }] }]);
  });
});

describe("a function without 'strict'", () => {
  it("is strict, as at OpenAI: the model server gets it so, and the response says so; optional properties stay optional", async () => {
    gateway.replies(calling(right));
    const response = await asked({ tools: [weather] });
    expect(response.tools).toMatchObject([{ strict: true, parameters }]);
    expect(sentTools()).toMatchObject([{ name: "get_weather", strict: true, parameters }]);
  });

  it.each<[string, object | null]>([
    ["no schema", null],
    ["free objects", { type: "object" }],
    ["an object with other properties", { type: "object", properties: {}, additionalProperties: { type: "string" } }],
    ["a pattern", { type: "object", properties: { a: { type: "string", pattern: "^(a+)+$" } } }],
    [
      "a reference that leads to itself",
      { type: "object", properties: { a: { $ref: "#/$defs/a" } }, $defs: { a: { $ref: "#/$defs/a" } } },
    ],
    ["values of any type", { type: "object", properties: { a: {} } }],
  ])("and with %s is not bound", async (_, own) => {
    gateway.replies(stream([{ content: "Hi" }], "stop"));
    const response = await asked({ tools: [{ ...weather, parameters: own }] });
    expect(response.tools).toMatchObject([{ strict: false }]);
    expect(sentTools()[0]).not.toHaveProperty("strict");
  });

  it("is not bound by a model server that refuses its schema, and still checked", async () => {
    const other = await startScripted();
    try {
      const refusal: Reply = { status: 400, body: fault(400, "Invalid grammar: the schema is not supported.") };
      other.replies(refusal, calling('{"city":5}'), calling(right));
      const body = { model: MODEL, input: "Weather?", tools: [weather] };
      const answer = (await (await other.post(body)).json()) as Response;
      expect(answer.output).toMatchObject([{ arguments: right }]);
      expect(other.asked.map(({ tools }) => tools[0].function.strict)).toEqual([true, undefined, undefined]);
      // It is remembered.
      other.replies(calling(right));
      await other.post(body);
      expect(other.asked.map(({ tools }) => tools[0].function.strict)).toEqual([undefined]);
    } finally {
      await other.close();
    }
  });
});

describe("a call of a function that says 'strict', which streams at once", () => {
  const strict = { ...weather, strict: true };

  it("ends incomplete if it is outside of its schema; the server is then known not to bind it", async () => {
    gateway.replies(calling('{"city":5}'), calling(right));
    const { response, types } = await streamed({ tools: [strict] });
    expect(response.output).toMatchObject([
      { arguments: '{"city":5}', status: "incomplete" },
      { arguments: right, status: "completed" },
    ]);
    expect(types.filter((type) => type === "response.function_call_arguments.done")).toHaveLength(2);
    gateway.replies(calling('{"city":5}'), calling(right));
    expect((await streamed({ tools: [strict] })).response.output).toMatchObject([{ arguments: right }]);
  });

  it("is never done before the next one begins", async () => {
    const other = await startScripted();
    try {
      other.replies(calling('{"city":5}', right));
      const answer = await other.post({ model: MODEL, input: "Weather?", tools: [strict], stream: true });
      const { events } = await readStream(answer);
      const response = events.at(-1)?.response as unknown as Response;
      expect(response.output).toMatchObject([{ status: "incomplete" }, { arguments: right, status: "completed" }]);
    } finally {
      await other.close();
    }
  });

  it("is not shown at all in an answer that comes whole", async () => {
    const other = await startScripted();
    try {
      other.replies(calling('{"city":5}'), calling(right));
      const answer = await other.post({ model: MODEL, input: "Weather?", tools: [strict] });
      expect(((await answer.json()) as Response).output).toMatchObject([{ arguments: right }]);
    } finally {
      await other.close();
    }
  });
});
