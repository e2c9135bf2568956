import type { DecisionCreateParams } from "openai/resources/decisions";
import type { Response, ResponseCreateParamsNonStreaming } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { errorOf, readStream } from "./expectations.ts";
import { type Asked, call, chunk, fault, MODEL, type ScriptedGateway, startScripted, stream } from "./scripted-vllm.ts";

/** This API's answers to recorded output of vLLM 0.32: logprobs, calls, formats, usage, faults. */

let gateway: ScriptedGateway;
beforeAll(async () => {
  gateway = await startScripted({
    VLLM_EXTRA_FIELDS: "documents, media_io_kwargs",
    THINKING_BUDGETS: `{"${MODEL}":{"low":64,"high":4096}}`,
  });
});
afterAll(() => gateway.close());

const parameters = {
  type: "object",
  properties: { zone: { type: "string" } },
  required: ["zone"],
  additionalProperties: false,
};
const getTime = { type: "function" as const, name: "get_time", parameters, strict: false };
const schema = { type: "object", properties: { t: { enum: ["x"] } }, required: ["t"], additionalProperties: false };
const text = { format: { type: "json_schema" as const, name: "answer", schema, strict: true } };
const include = ["message.output_text.logprobs" as const];

function create(fields: Partial<ResponseCreateParamsNonStreaming> = {}): Promise<Response> {
  return gateway.openai.responses.create({ model: MODEL, input: "What time is it?", ...fields, stream: false });
}

/** A stream's events and its last response. */
async function streamed(fields: object = {}, at = gateway) {
  const answer = await at.post({ model: MODEL, input: "What time is it?", stream: true, ...fields });
  const read = await readStream(answer);
  return { ...read, response: read.events.at(-1)?.response as unknown as Response };
}

const hasPattern = (body: Asked) => JSON.stringify(body.tools).includes('"pattern"');
const typesOf = ({ output }: Response) => output.map((item) => item.type);
const messagesOf = (body: Asked | undefined) => body?.messages as Asked[];

function entry(token: string, logprob: number, bytes = [...new TextEncoder().encode(token)]) {
  return { token, logprob, bytes, top_logprobs: [] };
}

function logprobsOf({ output }: Response) {
  const [part] = output.flatMap((item) => (item.type === "message" ? item.content : []));
  if (part?.type !== "output_text") throw new Error("There is no text.");
  return { text: part.text, tokens: (part.logprobs ?? []).map(({ token, logprob }) => [token, logprob]) };
}

describe("logprobs", () => {
  const merged = [
    chunk({}, null, [entry("<think>", -1)]),
    chunk({ content: "\n\nHi 🦄", reasoning: "\nHi" }, "stop", [
      ...[entry("\n", -2), entry("Hi", -3), entry("</think>", -4), entry("\n\n", -5), entry("Hi", -6), entry(" ", -7)],
      ...[entry("", -8, []), entry("", -9, []), entry("🦄", -10), entry("<|im_end|>", -11)],
    ]),
  ];
  const wanted = {
    text: "\n\nHi 🦄",
    tokens: [
      ["\n\n", -5],
      ["Hi", -6],
      [" ", -7],
      ["", -8],
      ["", -9],
      ["🦄", -10],
    ],
  };

  it("are those of the text if reasoning, text and end arrive in one chunk", async () => {
    gateway.replies({ events: merged });
    expect(logprobsOf(await create({ include }))).toEqual(wanted);
    const { events, response } = await streamed({ include });
    expect(logprobsOf(response)).toEqual(wanted);
    const deltas = events.filter(({ type }) => type === "response.output_text.delta") as unknown as {
      logprobs: { token: string; logprob: number }[];
    }[];
    expect(deltas.flatMap(({ logprobs }) => logprobs.map(({ token, logprob }) => [token, logprob]))).toEqual(
      wanted.tokens,
    );
  });

  it("end with the token in which a stop string cuts the text", async () => {
    const tokens = ["You", " said", ":", " alpha", " beta", " gamma", " delta"];
    const events = tokens.map((token, index) => chunk({ content: token }, null, [entry(token, -index)]));
    gateway.replies({ events: [...events, chunk({}, "stop", [entry("<|im_end|>", -6)])] });
    const response = await create({ include, stop: ["ta gamma"] } as object);
    expect(logprobsOf(response).text).toBe("You said: alpha be");
    expect(logprobsOf(response).tokens.map(([token]) => token)).toEqual(["You", " said", ":", " alpha", " beta"]);
  });
});

describe("a decision", () => {
  /** A model that prefers options in their order, and also gives tokens of no option. */
  const preferring = (...letters: string[]) => {
    const listed = letters.map((letter, index) => ({ ...entry(letter, Math.log(0.5 / 2 ** index)) }));
    const { top_logprobs: _, ...other } = entry(" The", -1.5);
    const token = { ...entry(letters[0] ?? "", Math.log(0.5)), top_logprobs: [...listed, other] };
    return { events: [chunk({ content: letters[0] }, "length", [token])] };
  };
  const decide = (
    questions: DecisionCreateParams["questions"],
    input: DecisionCreateParams["input"] = "Tea, please.",
  ) => gateway.openai.decisions.create({ model: MODEL, input, questions });

  it("gives the probabilities of its options, by one token that follows an opened answer", async () => {
    gateway.replies(preferring("A", " B"));
    const input = [{ role: "user" as const, content: [{ type: "input_json" as const, data: { drink: "tea" } }] }];
    const { answers, model, usage } = await decide(
      [{ type: "predicate", name: "hot", instructions: "The drink is hot." }],
      input,
    );
    expect(answers).toEqual([{ type: "predicate", name: "hot", probability: 2 / 3 }]);
    expect(model).toBe(MODEL);
    expect(usage.total_tokens).toBe(usage.input_tokens + usage.output_tokens);
    const [body] = gateway.asked;
    expect(body).toMatchObject({
      max_completion_tokens: 1,
      logprobs: true,
      top_logprobs: 20,
      continue_final_message: true,
    });
    expect(messagesOf(body).map(({ role, content }) => [role, content])).toEqual([
      ["user", '{"drink":"tea"}'],
      ["user", expect.stringMatching(/^The drink is hot\.\n\nA\. True\nB\. False\n/)],
      ["assistant", "Answer:"],
    ]);
  });

  it("names the choice, and the mean of levels", async () => {
    gateway.replies(preferring("B", "C", "A"));
    const { answers } = await decide([
      { type: "choice", instructions: "Which?", choices: [{ value: true }, { value: "true" }, { value: "no" }] },
      { type: "score", instructions: "How hot?", levels: [{ label: "cold" }, { label: "warm" }, { label: "hot" }] },
    ]);
    const [a, b, c] = [1 / 7, 4 / 7, 2 / 7];
    const value = (index: number) => [true, "true", "no"][index];
    expect(answers).toMatchObject([
      {
        type: "choice",
        name: null,
        choice: "true",
        probabilities: [a, b, c].map((each, index) => ({ value: value(index), probability: expect.closeTo(each) })),
      },
      { type: "score", score: expect.closeTo(b + 2 * c), confidence: expect.closeTo(b) },
    ]);
  });

  it("among many choices is made in groups, whose best ones meet", async () => {
    gateway.replies(preferring("A"), preferring("B", "A"), preferring("A"), preferring("B", "A"));
    const choices = Array.from({ length: 25 }, (_, index) => ({ value: `v${index}` }));
    const { answers } = await decide([{ type: "choice", instructions: "Which?", choices }]);
    const [answer] = answers;
    if (answer?.type !== "choice") throw new Error("There is no choice.");
    expect(gateway.asked.length).toBe(4);
    expect(answer.choice).toBe("v11");
    const sum = answer.probabilities.reduce((all, { probability }) => all + probability, 0);
    expect(sum).toBeCloseTo(1);
    const of = (index: number) => answer.probabilities[index]?.probability ?? 0;
    expect(of(11) / of(10)).toBeCloseTo(2);
    expect(of(11) / of(0)).toBeCloseTo(2);
  });

  it("is refused where the model chooses no option", async () => {
    gateway.replies(preferring("Hm"));
    const { answers } = await decide([{ type: "predicate", name: "is", instructions: "Is it?" }]);
    expect(answers).toEqual([{ type: "refusal", name: "is" }]);
  });

  it("needs log probabilities", async () => {
    gateway.replies({ events: [chunk({ content: "A" }, "length")] });
    const fault = { status: 400, param: "model", code: "unsupported_parameter" };
    await expect(decide([{ type: "predicate", instructions: "Is it?" }])).rejects.toMatchObject(fault);
  });

  it.each([
    ["no question", { questions: [] }, "questions", "array_below_min_length"],
    [
      "a choice of one",
      { questions: [{ type: "choice", instructions: "?", choices: [{ value: "a" }] }] },
      "questions[0].choices",
      "",
    ],
    [
      "the same choice twice",
      { questions: [{ type: "choice", instructions: "?", choices: [{ value: "a" }, { value: "a" }] }] },
      "questions[0].choices[1].value",
      "invalid_value",
    ],
    ["no input", { input: undefined }, "input", "missing_required_parameter"],
    ["an item that decides nothing", { input: [{ type: "compaction_trigger" }] }, "input[0].type", "invalid_value"],
  ])("of %s is a 400 that names the field", async (_, fields, param, code) => {
    const body = { model: MODEL, input: "?", questions: [{ type: "predicate", instructions: "?" }], ...fields };
    const fault = { status: 400, param, ...(code && { code }) };
    await expect(gateway.openai.decisions.create(body as DecisionCreateParams)).rejects.toMatchObject(fault);
  });
});

describe("a choice", () => {
  it("is the one with index 0, in any position", async () => {
    const other = { index: 1, delta: { content: "no" }, finish_reason: null };
    const first = { index: 0, delta: { content: "yes" }, finish_reason: null };
    gateway.replies(stream([{ choices: [other, first] }, { choices: [other] }], "stop"));
    expect((await create()).output_text).toBe("yes");
  });
});

describe("white space without a word after it", () => {
  const thought = chunk({ reasoning: "Hm." }, null);
  const gap = chunk({ content: "\n\n" }, null);

  it("between reasoning, calls and the end is no message", async () => {
    const calls = [...call(0, "get_time", "{}"), { content: "\n" }, ...call(1, "get_time", '{"zone":"CET"}')];
    const deltas = [{ reasoning: "Hm." }, { content: "\n" }, { content: "\n" }, ...calls, { content: "\n" }];
    for (const ask of [create, async (fields: object) => (await streamed(fields)).response]) {
      gateway.replies(stream(deltas, "tool_calls"));
      expect(typesOf(await ask({ tools: [getTime] }))).toEqual(["reasoning", "function_call", "function_call"]);
    }
  });

  it("is no message if the server dies after it: the model reasons again", async () => {
    gateway.replies(
      { events: [thought, gap] },
      stream([{ reasoning: "Yes." }, { content: "\n\n" }, { content: "Hi" }], "stop"),
    );
    const { response, events } = await streamed();
    expect(response.output).toMatchObject([
      { type: "reasoning", status: "incomplete", content: [{ text: "Hm." }] },
      { type: "reasoning", content: [{ text: "Yes." }] },
      { type: "message", content: [{ text: "\n\nHi" }] },
    ]);
    expect(events.filter(({ type }) => type === "response.output_text.delta")).toMatchObject([{ delta: "\n\nHi" }]);
  });

  it("between reasoning and a text or a call is not in the next prompt", async () => {
    const said = (...deltas: object[]) => [{ reasoning: "Hm." }, { content: "\n\n" }, ...deltas];
    gateway.replies(
      stream(said({ content: "I look." }, { content: "\n" }, ...call(0, "get_time", "{}")), "tool_calls"),
    );
    const first = await create({ tools: [getTime] });
    expect(first.output_text).toBe("\n\nI look.\n");
    const made = first.output.find(({ type }) => type === "function_call") as { call_id: string };
    const output = { type: "function_call_output" as const, call_id: made.call_id, output: "12:00" };
    gateway.replies(stream(said({ content: "Noon." }), "stop"));
    const next = await create({ previous_response_id: first.id, input: [output], tools: [getTime] });
    expect(messagesOf(gateway.asked[0])[1]).toMatchObject({ content: "I look.", reasoning: "Hm." });
    gateway.replies(stream(said({ content: "Bye." }), "stop"));
    await create({ previous_response_id: next.id, input: "Bye." });
    expect(messagesOf(gateway.asked[0]).at(-2)).toMatchObject({ role: "assistant", content: "Noon." });
  });
});

describe("a call that cannot be made", () => {
  const right = () => stream(call(0, "get_time", '{"zone":', '"CET"}'), "tool_calls");

  it.each([
    ["of a tool that was not offered", call(0, "nope", '{"a":1}'), "nope"],
    ["without a name", call(0, undefined, '{"a":1}'), "unknown"],
  ])("%s is not shown, and the model is asked again", async (_, deltas, name) => {
    gateway.replies(stream(deltas, "tool_calls"), right());
    const response = await create({ tools: [getTime] });
    expect(response.output).toMatchObject([
      { type: "function_call", name: "get_time", arguments: '{"zone":"CET"}', status: "completed" },
    ]);
    expect(response.usage).toMatchObject({ input_tokens: 20, output_tokens: 10 });
    const [assistant, tool] = messagesOf(gateway.asked[1]).slice(-2);
    expect(assistant).toMatchObject({ role: "assistant", tool_calls: [{ function: { name, arguments: '{"a":1}' } }] });
    expect(tool).toMatchObject({ role: "tool", content: expect.stringMatching(/no tool of this name.*get_time/) });
    gateway.replies(stream(deltas, "tool_calls"), right());
    const { types, response: last } = await streamed({ tools: [getTime] });
    expect(types.filter((type) => type === "response.output_item.added")).toHaveLength(1);
    expect(typesOf(last)).toEqual(["function_call"]);
  });

  it.each(['{"zone":', '"str"'])("with the arguments %s is not shown, either", async (broken) => {
    gateway.replies(stream(call(0, "get_time", broken), "tool_calls"), right());
    const { response, types } = await streamed({ tools: [getTime] });
    expect(response.output).toMatchObject([{ arguments: '{"zone":"CET"}', status: "completed" }]);
    expect(types.filter((type) => type === "response.function_call_arguments.delta")).toHaveLength(2);
    const [, tool] = messagesOf(gateway.asked[1]).slice(-2);
    expect(tool).toMatchObject({
      role: "tool",
      content: expect.stringMatching(/arguments are not a valid JSON object/),
    });
  });

  it("of a strict function, which streams at once, ends incomplete", async () => {
    gateway.replies(stream(call(0, "get_time", '{"zone":'), "tool_calls"), right());
    const { response, types } = await streamed({ tools: [{ ...getTime, strict: true }] });
    expect(types.indexOf("response.function_call_arguments.delta")).toBeLessThan(
      types.lastIndexOf("response.output_item.added"),
    );
    expect(response.output).toMatchObject([
      { type: "function_call", arguments: '{"zone":', status: "incomplete" },
      { type: "function_call", arguments: '{"zone":"CET"}', status: "completed" },
    ]);
    // The call that was not made needs no output.
    const [, made] = response.output;
    if (made?.type !== "function_call") throw new Error("There is no call.");
    gateway.replies(stream([{ content: "Noon." }], "stop"));
    const output = { type: "function_call_output" as const, call_id: made.call_id, output: "12:00" };
    const next = await create({ previous_response_id: response.id, input: [output], tools: [getTime] });
    expect(next.output_text).toBe("Noon.");
    expect(messagesOf(gateway.asked[0])[1]?.tool_calls).toHaveLength(1);
  });

  it("fails the response when the model makes no valid one", async () => {
    gateway.replies(stream(call(0, "nope", "{}"), "tool_calls"));
    const answer = await gateway.post({ model: MODEL, input: "Hi", tools: [getTime] });
    expect(answer.status).toBe(502);
    expect((await errorOf(answer)).code).toBe("upstream_disregarded_request");
    expect(gateway.asked).toHaveLength(4);
  });

  it("is left out beside a valid one", async () => {
    gateway.replies(stream([...call(0, "nope", "{}"), ...call(1, "get_time", '{"zone":"CET"}')], "tool_calls"));
    expect((await create({ tools: [getTime] })).output).toMatchObject([{ name: "get_time", status: "completed" }]);
    expect(gateway.asked).toHaveLength(1);
  });

  it("ends incomplete when the limit truncates it", async () => {
    gateway.replies(stream(call(0, "get_time", '{"zone":'), "length"));
    const response = await create({ tools: [getTime], max_output_tokens: 20 });
    expect(response).toMatchObject({ status: "incomplete", incomplete_details: { reason: "max_output_tokens" } });
    expect(response.output).toMatchObject([{ type: "function_call", status: "incomplete" }]);
    expect(gateway.asked).toHaveLength(1);
  });

  it("counts against the limit", async () => {
    gateway.replies(stream(call(0, "nope", "{}"), "tool_calls"), right());
    await create({ tools: [getTime], max_output_tokens: 20 });
    expect(gateway.asked.map((body) => body.max_completion_tokens)).toEqual([20, 15]);
    gateway.replies(stream(call(0, "nope", "{}"), "tool_calls"), right());
    expect((await create({ tools: [getTime], max_output_tokens: 5 })).status).toBe("incomplete");
    expect(gateway.asked).toHaveLength(1);
  });
});

describe("the input of a custom tool with a grammar", () => {
  const grammar = (name: string, syntax: "lark" | "regex", definition: string) => ({
    type: "custom" as const,
    name,
    format: { type: "grammar" as const, syntax, definition },
  });
  /** A pattern cannot express a recursive rule, so the schema of an optional call does not bind its input. */
  const lists = grammar("keep", "lark", 'start: list\nlist: "(" (list ("," list)*)? ")"\n');
  const date = grammar("set_date", "regex", "\\d{4}-\\d{2}-\\d{2}");
  const input = (name: string, text: string) => stream(call(0, name, JSON.stringify({ input: text })), "tool_calls");

  it.each([
    [lists, "nonsense", "((),())", /does not match the tool's grammar: after 0 characters.*nonsense/],
    [lists, "((),", "()", /it ends too early/],
  ])("that nothing binds is shown when it matches: %j %s", async (tool, wrong, good, told) => {
    for (const ask of [() => create({ tools: [tool] }), async () => (await streamed({ tools: [tool] })).response]) {
      gateway.replies(input(tool.name, wrong), input(tool.name, good));
      const response = await ask();
      expect(response.output).toMatchObject([{ type: "custom_tool_call", input: good, status: "completed" }]);
      expect(gateway.asked).toHaveLength(2);
      expect(messagesOf(gateway.asked[1]).at(-1)).toMatchObject({ role: "tool", content: expect.stringMatching(told) });
    }
  });

  it("that the server should enforce and does not ends incomplete if it was shown, and is generated again", async () => {
    gateway.replies(input("set_date", "tomorrow"), input("set_date", "2026-11-23"));
    const { response } = await streamed({ tools: [date] });
    expect(hasPattern(gateway.asked[0] ?? {})).toBe(true);
    expect(response.output).toMatchObject([
      { input: "tomorrow", status: "incomplete" },
      { input: "2026-11-23", status: "completed" },
    ]);
  });

  it("fails the response if the model never matches it, and names the broken promise", async () => {
    gateway.replies(input("keep", "nonsense"));
    const answer = await gateway.post({ model: MODEL, input: "Hi", tools: [lists] });
    expect(answer.status).toBe(502);
    const { code, message } = await errorOf(answer);
    expect(code).toBe("upstream_disregarded_request");
    expect(message).toMatch(/a call of 'keep': the input does not match the tool's grammar/);
    expect(gateway.asked).toHaveLength(4);
    gateway.replies(input("keep", "nonsense"));
    const { response } = await streamed({ tools: [lists] });
    expect(response).toMatchObject({ status: "failed", output: [], error: { message } });
  });

  const ignoring = '<tool_call>\n{"name": "set_date", "arguments": {"input": "2026-11-23"}}\n</tool_call>';
  it.each([
    ["the syntax of a call", [ignoring.slice(0, 5), ignoring.slice(5)], []],
    ["a text that begins well", ["2026-", "I do not know"], ["2026-"]],
    ["a text that ends too early", ["2026-", "11"], ["2026-11"]],
  ])(
    "of a required call is requested as a function if the server ignores the grammar and gives %s",
    async (_, texts, shown) => {
      for (const ask of [create, async (fields: object) => (await streamed(fields)).response]) {
        const written = texts.map((content) => ({ content }));
        gateway.replies(stream(written, "stop"), input("set_date", "2026-11-23"));
        const response = await ask({ tools: [date], tool_choice: "required" as const });
        expect(response.status).toBe("completed");
        expect(response.output).toMatchObject([
          ...shown.map((text) => ({ type: "custom_tool_call", input: text, status: "incomplete" })),
          { type: "custom_tool_call", name: "set_date", input: "2026-11-23", status: "completed" },
        ]);
        expect(gateway.asked[0]).toMatchObject({
          tool_choice: "none",
          structured_outputs: { grammar: expect.any(String) },
        });
        expect(gateway.asked[1]).toMatchObject({ tool_choice: "required" });
        expect(gateway.asked[1]).not.toHaveProperty("structured_outputs");
        expect(response.usage).toMatchObject({ input_tokens: 20, output_tokens: 10 });
      }
    },
  );

  it("that matches it is requested once", async () => {
    gateway.replies(stream([{ content: "2026-" }, { content: "11-23" }], "stop"));
    const { response, events } = await streamed({ tools: [date], tool_choice: "required" });
    expect(response.output).toMatchObject([{ input: "2026-11-23", status: "completed" }]);
    expect(events.filter(({ type }) => type === "response.custom_tool_call_input.delta")).toHaveLength(2);
    expect(gateway.asked).toHaveLength(1);
  });
});

describe("a format beside tools that may be called", () => {
  it("leaves the model free to call", async () => {
    gateway.replies(stream(call(0, "get_time", '{"zone":"CET"}'), "tool_calls"));
    const response = await create({ tools: [getTime], text });
    expect(typesOf(response)).toEqual(["function_call"]);
    expect(gateway.asked).toHaveLength(1);
    expect(gateway.asked[0]).not.toHaveProperty("response_format");
    expect(gateway.asked[0]?.tools).toHaveLength(1);
  });

  it("accepts a final text that matches it", async () => {
    gateway.replies(stream([{ content: '{"t":' }, { content: ' "x"}' }], "stop"));
    const { response, types } = await streamed({ tools: [getTime], text });
    expect(response.output).toMatchObject([{ type: "message", content: [{ text: '{"t": "x"}' }] }]);
    expect(types.filter((type) => type === "response.output_text.delta")).toHaveLength(2);
    expect(gateway.asked).toHaveLength(1);
  });

  it.each([
    ["prose", "It is noon."],
    ["JSON of another form", '{"t":"y"}'],
    ["a document of another form in a fence", '```json\n{"t":"y"}\n```'],
  ])("requests the final text again if it is %s, which no client sees", async (_, draft) => {
    gateway.replies(
      stream([{ reasoning: "Hm." }, { content: draft }], "stop"),
      stream([{ content: '{"t":"x"}' }], "stop"),
    );
    const { response, text: shown } = await streamed({ tools: [getTime], text });
    expect(shown).toBe('{"t":"x"}');
    expect(typesOf(response)).toEqual(["reasoning", "message"]);
    const [free, bound] = gateway.asked;
    expect(free).not.toHaveProperty("response_format");
    expect(bound).toMatchObject({ tool_choice: "none", response_format: { type: "json_schema" }, tools: free?.tools });
    expect(response.usage).toMatchObject({ input_tokens: 20, output_tokens: 10 });
  });

  it("does not show text before a call", async () => {
    gateway.replies(stream([{ content: "Let me see." }, ...call(0, "get_time", '{"zone":"CET"}')], "tool_calls"));
    expect(typesOf(await create({ tools: [getTime], text }))).toEqual(["function_call"]);
  });

  it.each<[string, object, string]>([
    ["json_object", { text: { format: { type: "json_object" } } }, '{"any":1}'],
    ["a choice", { structured_outputs: { choice: ["yes", "no"] } }, "yes"],
    ["a schema of structured_outputs", { structured_outputs: { json: schema } }, '{"t":"x"}'],
  ])("holds for %s, too", async (_, fields, right) => {
    gateway.replies(stream([{ content: "Well." }], "stop"), stream([{ content: right }], "stop"));
    expect((await create({ tools: [getTime], ...fields })).output_text).toBe(right);
    const [free, bound] = gateway.asked;
    expect(free).not.toHaveProperty("structured_outputs");
    expect(free).not.toHaveProperty("response_format");
    expect(bound).toSatisfy((body: Asked) => "structured_outputs" in body || "response_format" in body);
    gateway.replies(stream([{ content: right }], "stop"));
    expect((await create({ tools: [getTime], ...fields })).output_text).toBe(right);
    expect(gateway.asked).toHaveLength(1);
  });

  it("binds from the beginning if no tool may be called", async () => {
    gateway.replies(stream([{ content: '{"t":"x"}' }], "stop"));
    await create({ text });
    await create({ text, tools: [getTime], tool_choice: "none" });
    for (const body of gateway.asked) expect(body).toHaveProperty("response_format");
  });

  it("goes to vLLM with the tools if the operator declares that vLLM combines them", async () => {
    const joining = await startScripted({ VLLM_FORMAT_WITH_TOOLS: "strict" });
    try {
      joining.replies(stream([{ content: '{"t":"x"}' }], "stop"));
      const body = { model: MODEL, input: "Hi", text };
      await joining.openai.responses.create({ ...body, tools: [{ ...getTime, strict: true }] });
      await joining.openai.responses.create({ ...body, tools: [getTime] });
      expect(joining.asked.map((asked) => "response_format" in asked)).toEqual([true, false]);
    } finally {
      await joining.close();
    }
  });
});

describe("tools that may not be called", () => {
  const none = { tools: [getTime], tool_choice: "none" as const };
  const called = call(0, "get_time", '{"zone":"CET"}');
  const ways = [create, async (fields: object) => (await streamed(fields)).response];

  it("are in the prompt if vLLM parses calls", async () => {
    for (const ask of ways) {
      gateway.replies(stream([{ content: "Noon." }], "stop"));
      expect((await ask(none)).output).toMatchObject([{ content: [{ text: "Noon." }] }]);
      expect(gateway.asked).toHaveLength(1);
      const [asked] = gateway.asked;
      expect(asked).toMatchObject({ tools: [{ function: { name: "get_time" } }], tool_choice: "auto" });
      await ask({ tools: [getTime] });
      expect(gateway.asked[1]).toMatchObject({ tools: asked?.tools, messages: asked?.messages });
    }
  });

  it("are not called: after a call the model is asked again without them, and its text is the answer", async () => {
    for (const ask of ways) {
      gateway.replies(stream(called, "tool_calls"), stream([{ content: "Noon." }], "stop"));
      const response = await ask(none);
      expect(response).toMatchObject({ status: "completed", tool_choice: "none", tools: [{ name: "get_time" }] });
      expect(response.output).toMatchObject([{ type: "message", content: [{ text: "Noon." }] }]);
      expect(response.usage).toMatchObject({ input_tokens: 20, output_tokens: 10 });
      const [first, second] = gateway.asked;
      expect(second).not.toHaveProperty("tools");
      expect(second).not.toHaveProperty("tool_choice");
      expect(second?.messages).toEqual(first?.messages);
    }
  });

  it("are not called after a text, which stays, and which the model continues", async () => {
    gateway.replies(
      stream([{ content: "Let me see." }, ...called], "tool_calls"),
      stream([{ content: "Noon." }], "stop"),
    );
    const { response, types } = await streamed(none);
    expect(response.output).toMatchObject([{ content: [{ text: "Let me see." }] }, { content: [{ text: "Noon." }] }]);
    expect(types.filter((type) => type.includes("function_call"))).toEqual([]);
    expect(messagesOf(gateway.asked[1]).slice(-2)).toMatchObject([
      { role: "assistant", content: "Let me see.", tool_calls: [{ function: { name: "get_time" } }] },
      { role: "tool", content: "Error: there is no tool of this name. There are no tools." },
    ]);
    expect(gateway.asked[1]).not.toHaveProperty("tools");
  });

  it("are not called in repeated attempts: the call is never shown", async () => {
    for (const ask of ways) {
      gateway.replies(stream(called, "tool_calls"));
      expect((await ask(none)).output).toEqual([]);
      expect(gateway.asked).toHaveLength(2);
    }
  });

  it("are left out after the model has called one of them beside allowed ones", async () => {
    const allowed = { type: "allowed_tools", mode: "auto", tools: [{ type: "function", name: "get_time" }] };
    const other = { ...getTime, name: "get_date" };
    gateway.replies(stream(call(0, "get_date", '{"zone":"CET"}'), "tool_calls"), stream(called, "tool_calls"));
    const { response } = await streamed({ tools: [other, getTime], tool_choice: allowed });
    expect(response.output).toMatchObject([{ type: "function_call", name: "get_time" }]);
    const namesIn = (body: Asked) => (body.tools as Asked[]).map((tool) => tool.function.name);
    expect(gateway.asked.map(namesIn)).toEqual([["get_date", "get_time"], ["get_time"]]);
  });

  it("cannot be called if the grammar of a format constrains all output", async () => {
    gateway.replies(stream([{ content: '{"t":"x"}' }], "stop"));
    for (const fields of [{ text }, { structured_outputs: { json: schema } }]) {
      expect((await create({ ...none, ...fields })).output_text).toBe('{"t":"x"}');
      expect(gateway.asked.at(-1)).toMatchObject({ tools: [{ function: { name: "get_time" } }], tool_choice: "none" });
    }
  });

  it("stay in the prompt, for later requests, too, if vLLM has no parser of calls", async () => {
    const plain = await startScripted();
    try {
      const message = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set';
      plain.replies((body) =>
        body.tool_choice === "auto"
          ? { status: 400, body: fault(400, message) }
          : stream([{ content: "Noon." }], "stop"),
      );
      for (const asked of [2, 1]) {
        const before = plain.asked.length;
        const body = { model: MODEL, input: "Hi", ...none };
        expect((await plain.openai.responses.create(body)).output_text).toBe("Noon.");
        expect(plain.asked).toHaveLength(before + asked);
        expect(plain.asked.at(-1)).toMatchObject({ tools: [{}], tool_choice: "none", skip_special_tokens: false });
      }
    } finally {
      await plain.close();
    }
  });
});

describe("the rest of an open message", () => {
  it.each([
    ["reasoning, as vLLM streams it where the prompt has no thoughts", [{ reasoning: " def" }, { reasoning: " ghi" }]],
    ["text", [{ content: " def" }, { content: " ghi" }]],
  ])("is its text when it arrives as %s", async (_, deltas) => {
    gateway.replies(stream(deltas, "stop"));
    const open = { type: "message", role: "assistant", status: "in_progress", id: "msg_1", content: "abc" };
    const { response } = await streamed({ input: [{ role: "user", content: "Go on." }, open] });
    expect(response.output).toMatchObject([{ type: "message", content: [{ text: " def ghi" }] }]);
  });
});

describe("a model server that dies among parallel calls", () => {
  /** A gateway whose model has not left a format yet: its calls are shown while they come. */
  let fresh: ScriptedGateway;
  beforeAll(async () => {
    fresh = await startScripted();
  });
  afterAll(() => fresh.close());

  const utc = call(0, "get_time", '{"zone": "UTC"}');
  const died = fault(500, "EngineCore encountered an issue.");
  const markup = (json: string) => `<tool_call>\n{"name": "get_time", "arguments": ${json}`;
  const whole = `${markup('{"zone": "UTC"}')}}\n</tool_call>`;

  /** Streams the answers one after another. Gives the response's output, and the open messages of the prompts after the first. */
  async function outputOf(...answers: { events: Iterable<object> | AsyncIterable<object> }[]) {
    const generations: Asked[] = [];
    fresh.replies((body) => {
      if (body.stream !== true) return { status: 404, body: {} };
      generations.push(body);
      return answers[generations.length - 1] ?? { status: 400, body: fault(400, "The prompt is too long.") };
    });
    const { response } = await streamed({ tools: [{ ...getTime, strict: true }] }, fresh);
    expect(response).toMatchObject({ status: "completed", error: null });
    const output = response.output.map((item) =>
      item.type === "function_call" ? item.arguments : `${item.type} ${"status" in item && item.status}`,
    );
    return { output, open: generations.slice(1).map((body) => messagesOf(body).at(-1)) };
  }

  it("in a call after a thought: it is completed, and the model may call again", async () => {
    const thought = [{ reasoning: "First UTC." }, ...utc, { reasoning: "Then CET." }];
    const cut = stream([...thought, ...call(1, "get_time", '{"zo')], "stop").events as object[];
    const { output, open } = await outputOf(
      { events: [...cut.slice(0, -2), died] },
      stream([{ content: 'ne": "CET"}' }], "stop"),
      stream(call(0, "get_time", '{"zone": "EET"}'), "tool_calls"),
    );
    expect(output).toEqual([
      ...["reasoning completed", '{"zone": "UTC"}', "reasoning completed"],
      ...['{"zone": "CET"}', '{"zone": "EET"}'],
    ]);
    const reasoning = "First UTC.\nThen CET.";
    expect(open).toMatchObject([
      { role: "assistant", reasoning, content: `${whole}\n${markup('{"zo')}` },
      { role: "assistant", reasoning, content: `${whole}\n${markup('{"zone": "CET"}')}}\n</tool_call>` },
    ]);
  });

  it("in a thought after a call: the model goes on after the call", async () => {
    const cut = stream([...utc, { reasoning: "Then" }], "stop").events as object[];
    const { output, open } = await outputOf(
      { events: [...cut.slice(0, -2), died] },
      stream(call(0, "get_time", '{"zone": "CET"}'), "tool_calls"),
    );
    expect(output).toEqual(['{"zone": "UTC"}', "reasoning incomplete", '{"zone": "CET"}']);
    expect(open).toMatchObject([{ role: "assistant", content: whole }]);
  });

  it("after a call whose prompt fills the window: the answer ends with the call", async () => {
    const cut = stream(utc, "stop").events as object[];
    const { output, open } = await outputOf({ events: [...cut.slice(0, -2), died] });
    expect(output).toEqual(['{"zone": "UTC"}']);
    expect(open).toHaveLength(1);
  });

  it("after a call: text that the model writes then is not shown", async () => {
    const cut = stream(utc, "stop").events as object[];
    const { output } = await outputOf(
      { events: [...cut.slice(0, -2), died] },
      stream([{ content: "Done." }], "length"),
    );
    expect(output).toEqual(['{"zone": "UTC"}']);
  });
});

describe("a model server that continues no text, and dies in the middle of a format", () => {
  let ollama: ScriptedGateway;
  beforeAll(async () => {
    ollama = await startScripted({ UPSTREAM_DIALECT: "ollama" });
  });
  afterAll(() => ollama.close());

  const cutAfter = (deltas: object[]) => {
    const events = stream(deltas, "stop").events as object[];
    return { events: events.slice(0, -2), breaksOff: true };
  };
  const notesIn = ({ asked }: ScriptedGateway) => asked.slice(1).map((body) => messagesOf(body).at(-1));

  it.each([
    ["the rest", '"x"}'],
    ["all of it again", '{"t":"x"}'],
  ])("is asked for the rest, and may write %s", async (_, written) => {
    ollama.replies(cutAfter([{ content: '{"t":' }]), stream([{ content: written }], "stop"));
    const { response } = await streamed({ text }, ollama);
    expect(response).toMatchObject({ status: "completed", output: [{ content: [{ text: '{"t":"x"}' }] }] });
    expect(notesIn(ollama)).toEqual([{ role: "user", content: expect.stringContaining('{"t":') }]);
  });

  it("fails where the model never completes it, and keeps what was shown", async () => {
    ollama.replies(cutAfter([{ content: '{"t":' }]), stream([{ content: "Sorry." }], "stop"));
    const { response } = await streamed({ text }, ollama);
    expect(response).toMatchObject({
      status: "failed",
      error: { message: expect.stringContaining("did not complete it within its format") },
      output: [{ status: "incomplete", content: [{ text: '{"t":' }] }],
    });
  });
});

describe("usage", () => {
  it("counts no reasoning in the rest of an open message, and the tokens written into the cache", async () => {
    const usage = {
      prompt_tokens: 25,
      completion_tokens: 3,
      prompt_tokens_details: { cached_tokens: 4, created_cache_tokens: 16 },
      completion_tokens_details: { reasoning_tokens: 2 },
    };
    gateway.replies(stream([{ content: " def" }], "stop", usage));
    const open = { type: "message", role: "assistant", status: "in_progress", id: "msg_1", content: "abc" };
    const response = await create({ input: [{ role: "user", content: "Go on." }, open] as never });
    expect(response.usage).toMatchObject({
      input_tokens_details: { cached_tokens: 4, cache_write_tokens: 16 },
      output_tokens_details: { reasoning_tokens: 0 },
    });
    gateway.replies(stream([{ reasoning: "Hm" }, { content: "Hi" }], "stop", usage));
    expect((await create()).usage?.output_tokens_details).toEqual({ reasoning_tokens: 2 });
  });
});

describe("a fault", () => {
  const strict = { ...getTime, strict: true };
  const bad = { type: "objekt" };
  const format = { format: { type: "json_schema", name: "answer", schema: bad } };
  const grammar = fault(400, "Grammar error: Invalid type: objekt");

  it.each<[string, object, string]>([
    ["text.format", { text: format }, "text.format.schema"],
    ["a strict function", { tools: [getTime, { ...strict, name: "f", parameters: bad }] }, "tools[1].parameters"],
    ["structured_outputs", { structured_outputs: { regex: "[(" } }, "structured_outputs.regex"],
    ["both", { text, tools: [{ ...strict, parameters: bad }], tool_choice: "required" }, "tools[0].parameters"],
  ])("in the schema of %s is a 400 that names the field, streamed or not", async (_, fields, param) => {
    for (const stream of [true, false]) {
      for (const reply of [{ status: 400, body: grammar }, { events: [grammar] }]) {
        gateway.replies(reply);
        const answer = await gateway.post({ model: MODEL, input: "Hi", stream, ...fields });
        expect(answer.status).toBe(400);
        expect(await errorOf(answer)).toMatchObject({ param, message: "Grammar error: Invalid type: objekt" });
      }
    }
  });

  it("of llama.cpp at the schema of a function that is not strict is a 400 that names the function's field", async () => {
    const open = { ...getTime, strict: false };
    const schema = { type: "object", properties: { place: { $ref: "#/definitions/nowhere" } } };
    const message = `Unable to generate parser for this template. Automatic parser generation failed: JSON schema conversion failed:\nError resolving ref #/definitions/nowhere: definitions not in ${JSON.stringify(schema)}`;
    gateway.replies({ status: 400, body: { error: { code: 400, message, type: "invalid_request_error" } } });
    const tools = [open, { ...open, name: "locate", parameters: schema }];
    const answer = await gateway.post({ model: MODEL, input: "Hi", tools });
    expect(answer.status).toBe(400);
    expect(await errorOf(answer)).toMatchObject({ param: "tools[1].parameters", message });
  });

  it("of vLLM at a schema is a 400 if it serves the prompt without the schema", async () => {
    const broken = fault(500, "Internal server error");
    const free = stream([{ content: "x" }], "length");
    for (const reply of [
      { status: 500, body: broken },
      { events: [chunk({ role: "assistant", content: "" }), broken] },
    ]) {
      gateway.replies((body: Asked) => ("response_format" in body ? reply : free));
      const answer = await gateway.post({ model: MODEL, input: "Hi", stream: true, text: format });
      expect(answer.status).toBe(400);
      expect((await errorOf(answer)).param).toBe("text.format.schema");
      expect(gateway.asked[1]).toMatchObject({ max_completion_tokens: 1 });
      gateway.replies(reply);
      expect((await gateway.post({ model: MODEL, input: "Hi", stream: true, text: format })).status).toBe(502);
    }
  });

  it("in the grammar of a custom tool is not the client's: the model is asked without the grammar", async () => {
    const tool = { type: "custom", name: "f", format: { type: "grammar", syntax: "lark", definition: 'start: "a"+' } };
    const refused = fault(400, "Invalid grammar specification: Failed to convert the grammar from GBNF to Lark");
    const called = stream(call(0, "f", '{"input":"aa"}'), "tool_calls");
    for (const reply of [
      { status: 400, body: refused },
      { events: [refused] },
      { status: 500, body: fault(500, "Internal server error") },
    ]) {
      gateway.replies((body: Asked) => ("structured_outputs" in body || hasPattern(body) ? reply : called));
      for (const choice of ["required", "auto"]) {
        const fields = { tools: [tool], tool_choice: choice } as object;
        const { response } = await streamed(fields);
        expect(response.output).toMatchObject([{ type: "custom_tool_call", name: "f", input: "aa" }]);
        expect(gateway.asked.at(-1)).toMatchObject({ tool_choice: choice, tools: [{ function: { name: "f" } }] });
      }
    }
  });

  it("in an image names the image", async () => {
    gateway.replies({ status: 400, body: fault(400, "tiny-qwen3 is not a multimodal model") });
    const content = [
      { type: "input_text", text: "See:" },
      { type: "input_image", image_url: "https://example.com/a.png" },
    ];
    const answer = await gateway.post({ model: MODEL, input: [{ role: "user", content }] });
    expect(await errorOf(answer)).toMatchObject({ param: "input[0].content[1]" });
  });
});

describe("vLLM's own fields", () => {
  it("reach vLLM, also those that the operator has listed", async () => {
    const fields = {
      ...{ min_tokens: 1, bad_words: ["no"], allowed_token_ids: [1], thinking_token_budget: 7, stream_interval: 2 },
      ...{ repetition_detection: { max_pattern_size: 3, min_count: 3 }, documents: [{ title: "a", text: "b" }] },
    };
    gateway.replies(stream([{ content: "x" }], "stop"));
    await create({ ...fields, guided_json: {} } as object);
    expect(gateway.asked[0]).toMatchObject(fields);
    expect(gateway.asked[0]).not.toHaveProperty("guided_json");
  });

  it("have a maximum size if they are unknown here", async () => {
    let deep: unknown = 1;
    for (let depth = 0; depth < 40; depth += 1) deep = [deep];
    for (const documents of [deep, "x".repeat(70_000), Array(70_000).fill(0)]) {
      const answer = await gateway.post({ model: MODEL, input: "Hi", documents });
      expect({ status: answer.status, ...(await errorOf(answer)) }).toMatchObject({ status: 400, param: "documents" });
    }
  });

  it("have the effort's budget, unless the request has one", async () => {
    gateway.replies(stream([{ content: "x" }], "stop"));
    await create({ reasoning: { effort: "low" } });
    await create({ reasoning: { effort: "low" }, thinking_token_budget: 9 } as object);
    await create({ reasoning: { effort: "medium" } });
    expect(gateway.asked.map((body) => body.thinking_token_budget)).toEqual([64, 9, undefined]);
  });
});
