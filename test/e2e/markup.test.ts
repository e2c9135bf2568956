import type { Response } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readStream } from "./expectations.ts";
import { fault, MODEL, type Reply, type ScriptedGateway, startScripted, stream } from "./scripted-vllm.ts";

/** Thoughts and calls that a model server without parsers leaves in its text, as a bare `vllm serve` does. */

let gateway: ScriptedGateway;
beforeAll(async () => {
  gateway = await startScripted();
});
afterAll(() => gateway.close());

const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const weather = { type: "function", name: "get_weather", parameters, strict: false };
const right = '{"city": "Rome"}';
const marked = (json = right) => `<tool_call>\n{"name": "get_weather", "arguments": ${json}}\n</tool_call>`;
const thought = "<think>\nHm.\n</think>\n\n";

/** An answer in tokens of four characters. */
const saying = (text: string, finish = "stop") =>
  stream(
    [...text.matchAll(/.{1,4}/gs)].map(([content]) => ({ content })),
    finish,
    { prompt_tokens: 10, completion_tokens: 20 },
  );

async function asked(fields: object = {}, to = gateway): Promise<Response> {
  const answer = await to.post({ model: MODEL, input: "Weather?", ...fields });
  return (await answer.json()) as Response;
}

async function streamed(fields: object = {}, to = gateway) {
  const answer = await to.post({ model: MODEL, input: "Weather?", stream: true, ...fields });
  const read = await readStream(answer);
  return { ...read, response: read.events.at(-1)?.response as unknown as Response };
}

/** Creates a response as JSON and as a stream. */
const WAYS: [string, (fields?: object, to?: ScriptedGateway) => Promise<Response>][] = [
  ["as JSON", asked],
  ["as a stream", async (fields, to) => (await streamed(fields, to)).response],
];
const textOf = ({ output }: Response) =>
  output
    .flatMap((item) => (item.type === "message" ? item.content : []))
    .map((part) => ("text" in part ? part.text : ""));

describe.each(WAYS)("%s", (_, ask) => {
  it("a thought in the text is a reasoning item, and its tokens are counted", async () => {
    gateway.replies(saying(`${thought}Hello.`));
    const response = await ask();
    expect(response.output).toMatchObject([
      { type: "reasoning", content: [{ text: "\nHm.\n" }] },
      { type: "message", content: [{ text: "\n\nHello." }] },
    ]);
    expect(response.usage?.output_tokens_details.reasoning_tokens).toBeGreaterThan(0);
  });

  it("a call in the text is a call, after a thought, and is answered in the next turn", async () => {
    gateway.replies(saying(`${thought}${marked()}`));
    const response = await ask({ tools: [weather] });
    expect(response.output).toMatchObject([
      { type: "reasoning", content: [{ text: "\nHm.\n" }] },
      { type: "function_call", name: "get_weather", arguments: right, status: "completed" },
    ]);
    const [, made] = response.output;
    const output = { type: "function_call_output", call_id: (made as { call_id: string }).call_id, output: "sunny" };
    gateway.replies(saying(`${thought}Sunny.`));
    const next = await ask({ previous_response_id: response.id, input: [output], tools: [weather] });
    expect(textOf(next)).toEqual(["\n\nSunny."]);
    expect(gateway.asked[0]?.messages.map(({ role }: { role: string }) => role)).toEqual(["user", "assistant", "tool"]);
  });

  it("a thought before a text in a format is not part of it", async () => {
    const schema = { type: "object", properties: { t: { enum: ["x"] } }, required: ["t"], additionalProperties: false };
    gateway.replies(saying(`${thought}{"t":"x"}`));
    const format = { type: "json_schema", name: "answer", schema, strict: true };
    expect(textOf(await ask({ text: { format } }))).toEqual(['\n\n{"t":"x"}']);
    expect(gateway.asked).toHaveLength(1);
  });

  it("a call outside of its schema is asked for again", async () => {
    gateway.replies(saying(marked('{"city": 5}')), saying(marked()));
    const response = await ask({ tools: [{ ...weather, strict: true }] });
    expect(response.output).toMatchObject([{ type: "function_call", arguments: right }]);
  });

  it("a call that cannot be read is asked for again, and fails by name in the end", async () => {
    gateway.replies(saying(marked('{"city": ')), saying(marked()));
    expect((await ask({ tools: [weather] })).output).toMatchObject([{ type: "function_call", arguments: right }]);
    gateway.replies(saying(marked('{"city": ')));
    expect(JSON.stringify(await ask({ tools: [weather] }))).toMatch(/get_weather.*not a valid JSON object/);
    expect(gateway.asked).toHaveLength(4);
  });

  it("a call under 'none' is not made: the model is asked again without tools", async () => {
    gateway.replies(saying(marked()), saying("It is sunny."));
    const response = await ask({ tools: [weather], tool_choice: "none" });
    expect(response.output).toMatchObject([{ type: "message", content: [{ text: "It is sunny." }] }]);
    expect(gateway.asked[1]).not.toHaveProperty("tools");
  });

  it.each([
    ["Hermes", marked()],
    ["Llama", `<|python_tag|>{"name": "get_weather", "parameters": ${right}}`],
    ["Mistral", `[TOOL_CALLS][{"name": "get_weather", "arguments": ${right}}]`],
    [
      "Qwen3-Coder",
      `I look.\n<tool_call>\n<function=get_weather>\n<parameter=city>Rome</parameter>\n</function>\n</tool_call>`,
    ],
  ])(
    "a call that the model makes again and again, although it may not, is neither a call nor text (%s)",
    async (_family, said) => {
      const other = { ...weather, name: "get_time" };
      const allowed = { type: "allowed_tools", mode: "auto", tools: [{ type: "function", name: "get_time" }] };
      for (const [tools, tool_choice] of [
        [[weather], "none"],
        [[weather, other], allowed],
      ]) {
        gateway.replies(saying(said));
        const response = await ask({ tools, tool_choice });
        const { output = [], error } = response;
        expect(error?.message).toMatch(/get_weather|'tool_choice': a call is in its text/);
        expect(output.filter(({ type }) => type === "function_call")).toEqual([]);
        expect(textOf({ ...response, output }).join("")).not.toMatch(/python_tag|TOOL_CALLS|tool_call/);
        expect(gateway.asked.length).toBeGreaterThan(1);
      }
    },
  );

  it("what only looks like a call, in bare JSON, is an answer of a model that sees no tools", async () => {
    const said = `{"name": "get_weather", "parameters": ${right}}`;
    gateway.replies(saying(said));
    const response = await ask({ tools: [weather], tool_choice: "none" });
    expect(response.status).toBe("completed");
    expect(textOf(response)).toEqual([said]);
  });

  it("a call in a text that has log probabilities fails the response", async () => {
    const said = `[TOOL_CALLS][{"name": "get_weather", "arguments": ${right}}]`;
    const logprobs = { content: [{ token: said, logprob: -0.1, bytes: null, top_logprobs: [] }] };
    const whole = { id: "1", model: MODEL, choices: [{ index: 0, delta: { content: said }, logprobs }] };
    gateway.replies(stream([whole], "stop"));
    const fields = { tools: [weather], include: ["message.output_text.logprobs"] };
    expect(JSON.stringify(await ask(fields))).toMatch(/'include': a call is in its text/);
  });

  it.each([
    "Use the <think> tag, and close it with </think> again.",
    `A call looks like this:\n\`\`\`\n${marked()}\n\`\`\`\nIs that clear?`,
    "Use <tool_call> tags to call get_weather.",
  ])("a text about markup stays text: %j", async (text) => {
    gateway.replies(saying(text));
    const response = await ask({ tools: [weather] });
    expect(response.status).toBe("completed");
    expect(textOf(response)).toEqual([text]);
    expect(gateway.asked).toHaveLength(1);
  });

  it.each([
    ["JSON", `{"name": "get_weather", "parameters": ${right}}`, right],
    ["Python's form", "[get_weather(city='Rome')]", '{"city":"Rome"}'],
  ])("a call without any tag, in %s, is a call", async (_form, said, args) => {
    gateway.replies(saying(said));
    expect((await ask({ tools: [weather] })).output).toMatchObject([{ type: "function_call", arguments: args }]);
    gateway.replies(saying(said));
    expect(textOf(await ask())).toEqual([said]);
  });

  it("a token of a call that nobody can read fails the response", async () => {
    gateway.replies(saying("<|tool_calls_section_begin|>nonsense"));
    expect(JSON.stringify(await ask({ tools: [weather] }))).toMatch(/'tools': a call in its text cannot be read/);
  });
});

it("the server's health names the parsers that it lacks, and the flags that give them", async () => {
  gateway.replies(saying(`${thought}${marked()}`));
  await asked({ tools: [weather] });
  const health = (await (await fetch(`${gateway.url}/health/upstream`)).json()) as object;
  expect(health).toMatchObject({
    missing_parsers: [
      {
        model: MODEL,
        parsers: ["reasoning", "tool_calls"],
        flags: ["--reasoning-parser NAME", "--enable-auto-tool-choice --tool-call-parser NAME"],
      },
    ],
  });
});

it("text streams as before, and a thought while it is written", async () => {
  gateway.replies(saying(`${thought}Hello, you.`));
  const { types } = await streamed();
  expect(types.filter((type) => type === "response.reasoning_text.delta").length).toBeGreaterThan(1);
  expect(types.filter((type) => type === "response.output_text.delta").length).toBeGreaterThan(1);
});

describe("a thought that the chat template begins in the prompt", () => {
  const late = "Hm.\n</think>\n\nHello.";

  it("fails the first stream by name; later ones have it as reasoning", async () => {
    const other = await startScripted();
    try {
      other.replies(saying(late));
      const { response } = await streamed({}, other);
      expect(response).toMatchObject({ status: "failed", error: { message: expect.stringContaining("'reasoning'") } });
      for (const [, ask] of WAYS) {
        other.replies(saying(late));
        expect((await ask({}, other)).output).toMatchObject([
          { type: "reasoning", content: [{ text: "Hm.\n" }] },
          { type: "message", content: [{ text: "\n\nHello." }] },
        ]);
        other.replies(saying("Hello, you."));
        expect(textOf(await ask({}, other))).toEqual(["Hello, you."]);
      }
    } finally {
      await other.close();
    }
  });

  it("is asked for again where nobody has seen it", async () => {
    const other = await startScripted();
    try {
      other.replies(saying(late));
      expect((await asked({}, other)).output).toMatchObject([{ type: "reasoning" }, { type: "message" }]);
      expect(other.asked).toHaveLength(2);
    } finally {
      await other.close();
    }
  });
});

it("a server that gives its model no tools fails by name, and its health has the flag", async () => {
  const other = await startScripted({ UPSTREAM_DIALECT: "llamacpp" });
  try {
    other.replies({ status: 500, body: fault(500, "tools param requires --jinja flag") });
    const answer = await other.post({ model: MODEL, input: "Weather?", tools: [weather] });
    expect(answer.status).toBe(502);
    expect(await answer.json()).toMatchObject({
      error: { code: "upstream_misconfigured", message: expect.stringContaining("--jinja") },
    });
    const health = (await (await fetch(`${other.url}/health/upstream`)).json()) as object;
    expect(health).toMatchObject({ missing_parsers: [{ parsers: ["tool_calls"], flags: ["--jinja"] }] });
  } finally {
    await other.close();
  }
});

describe("a vLLM that runs without a parser of calls", () => {
  const message = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set';
  const forced = "tool_choice requires --tool-call-parser to be set";
  const bare =
    (text: string) =>
    ({ tool_choice: choice = "auto" }: { tool_choice?: unknown }): Reply => {
      if (choice === "none") return saying(text);
      return { status: 400, body: fault(400, choice === "auto" ? message : forced) };
    };

  it.each([
    ["auto", undefined],
    ["required", "required"],
    ["a named tool", { type: "function", name: "get_weather" }],
  ])("gets the tools all the same, and its calls are read here (%s)", async (_, tool_choice) => {
    const other = await startScripted();
    try {
      const fields = { tools: [weather], ...(tool_choice !== undefined && { tool_choice }) };
      for (const [index, [, ask]] of WAYS.entries()) {
        other.replies(bare(`${thought}${marked()}`));
        expect((await ask(fields, other)).output).toMatchObject([
          { type: "reasoning" },
          { type: "function_call", name: "get_weather", arguments: right },
        ]);
        expect(other.asked).toHaveLength(index === 0 ? 2 : 1);
        expect(other.asked.at(-1)).toMatchObject({ tools: [{}], tool_choice: "none", skip_special_tokens: false });
      }
    } finally {
      await other.close();
    }
  });
});
