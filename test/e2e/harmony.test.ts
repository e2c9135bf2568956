import type { Response, ResponseCreateParamsNonStreaming } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { CHANNEL, harmonyTokenizer, START } from "../../dev/simulator/harmony-tokenizer.ts";
import {
  asHistory,
  callsOf,
  completions,
  DATE,
  GPT_OSS,
  getTime,
  getWeather,
  idsOf,
  lastCompletion,
  lastCompletionPrompt,
  lastMessages,
  lastPromptIds,
  lastTurns,
  onlyCall,
  outputOf,
  resent,
  sampledIds,
  saying,
  specialsIn,
  tools,
} from "./harmony-support.ts";
import { eventually, type Gateway, lastPrompt, startGateway } from "./support.ts";
import { ended } from "./turns.ts";

/** Harmony: the models that use it, their prompts, and malformed answers. */

let gateway: Gateway;
beforeAll(async () => {
  gateway = await startGateway({
    HARMONY_START_DATE: DATE,
    MODEL_ALIASES: JSON.stringify({
      oss: "simulator-gpt-oss",
      "looks-like-gpt-oss": "simulator",
      chatty: "simulator-gpt-oss?reasoning=0",
    }),
    MODEL_ENGINES: JSON.stringify({ "simulator-gpt-oss?reasoning=0": "chat", "simulator?reasoning=0": "harmony" }),
  });
});
afterAll(() => gateway.close());

function create(body: ResponseCreateParamsNonStreaming): Promise<Response> {
  return gateway.openai.responses.create({ model: GPT_OSS, ...body });
}

/** The items without their ids. */
function shown({ output }: Pick<Response, "output">) {
  return output.map((item) => ({ ...item, id: "", ...("call_id" in item && { call_id: "" }) }));
}

describe("a model is asked", () => {
  const lastPath = () => gateway.vllm.simulator.requests.findLast(({ path }) => path.endsWith("completions"))?.path;

  it.each([
    ["in Harmony with gpt-oss in its name", "simulator-gpt-oss", "/v1/completions"],
    ["in Harmony with gpt-oss in its card's root", "simulator-harmony", "/v1/completions"],
    ["in Harmony by an alias of such a model", "oss", "/v1/completions"],
    ["in Harmony where MODEL_ENGINES says so", "simulator?reasoning=0", "/v1/completions"],
    ["over chat completions otherwise", "simulator", "/v1/chat/completions"],
    [
      "over chat completions where only its alias has gpt-oss in its name",
      "looks-like-gpt-oss",
      "/v1/chat/completions",
    ],
    ["over chat completions where MODEL_ENGINES says so", "simulator-gpt-oss?reasoning=0", "/v1/chat/completions"],
    ["over chat completions by an alias of such a model", "chatty", "/v1/chat/completions"],
  ])("%s", async (_, model, path) => {
    for (const background of [false, true]) {
      const response = await create({ model, input: "Hello!", background });
      await eventually(async () => (await gateway.openai.responses.retrieve(response.id)).status === "completed");
      expect(lastPath()).toBe(path);
      expect(response.model).toBe(model);
    }
  });

  it("in Harmony and by chat completions in one conversation, with the whole history in each prompt", async () => {
    const first = await create({ input: "One." });
    const second = await create({ model: "simulator", previous_response_id: first.id, input: "Two." });
    expect(lastPrompt(gateway).messages).toMatchObject([
      { role: "user", content: "One." },
      { role: "assistant", content: "You said: One." },
      { role: "user", content: "Two." },
    ]);
    await create({ previous_response_id: second.id, input: "Three." });
    expect(await lastTurns(gateway)).toEqual([
      "user<|message|>One.<|end|>",
      "assistant<|channel|>final<|message|>You said: One.<|end|>",
      "user<|message|>Two.<|end|>",
      "assistant<|channel|>final<|message|>You said: Two.<|end|>",
      "user<|message|>Three.<|end|>",
    ]);
  });
});

describe("a decision", () => {
  it("is made by the first token of an answer that the prompt opens", async () => {
    const { answers } = await gateway.openai.decisions.create({
      model: saying("<|channel|>final<|message|>Answer: A<|return|>"),
      input: "My parcel has not arrived.",
      questions: [
        { type: "choice", instructions: "Who answers?", choices: [{ value: "billing" }, { value: "shipping" }] },
      ],
    });
    const probabilities = [
      { value: "billing", probability: expect.closeTo(1 / (1 + Math.exp(-1))) },
      { value: "shipping", probability: expect.closeTo(1 / (1 + Math.exp(1))) },
    ];
    expect(answers).toMatchObject([{ type: "choice", choice: "billing", probabilities }]);
    const prompt = await lastCompletionPrompt(gateway);
    expect(prompt).toMatch(/B\. shipping[^<]*<\|end\|><\|start\|>assistant<\|channel\|>final<\|message\|>Answer:$/);
    expect(lastCompletion(gateway)).toMatchObject({ max_tokens: 1 });
  });
});

describe("a prompt", () => {
  it("is the system message of gpt-oss with the date of HARMONY_START_DATE, and the user's", async () => {
    await create({ input: "Hello!" });
    expect(await lastCompletionPrompt(gateway)).toBe(
      [
        "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.",
        "Knowledge cutoff: 2024-06",
        `Current date: ${DATE}`,
        "",
        "Reasoning: medium",
        "",
        "# Valid channels: analysis, commentary, final. Channel must be included for every message.<|end|>" +
          "<|start|>user<|message|>Hello!<|end|><|start|>assistant",
      ].join("\n"),
    );
    expect(lastCompletion(gateway)).toMatchObject({
      skip_special_tokens: false,
      return_token_ids: true,
      add_special_tokens: false,
      stop_token_ids: [200002, 200012],
    });
  });

  it.each([
    ["minimal", "low"],
    ["low", "low"],
    ["medium", "medium"],
    ["high", "high"],
    ["xhigh", "high"],
  ] as const)("says of effort %s: Reasoning: %s", async (effort, said) => {
    const response = await create({ input: "Hello!", reasoning: { effort } });
    expect(await lastCompletionPrompt(gateway)).toContain(`\n\nReasoning: ${said}\n\n`);
    expect(response.reasoning?.effort).toBe(effort);
  });

  it("has the request's own instructions, tools and effort, and not an earlier request's", async () => {
    const first = await create({
      input: "One.",
      instructions: "Be brief.",
      tools: [getWeather],
      reasoning: { effort: "low" },
    });
    await create({
      previous_response_id: first.id,
      input: "Two.",
      instructions: "Be long.",
      tools: [getTime],
      reasoning: { effort: "high" },
    });
    const second = await lastCompletionPrompt(gateway);
    expect(second).toContain("# Instructions\n\nBe long.\n\n# Tools");
    expect(second).toContain("type get_time");
    expect(second).toContain("Reasoning: high");
    expect(second).not.toMatch(/Be brief|get_weather|Reasoning: low/);
    await create({ previous_response_id: first.id, input: "Three." });
    expect(await lastMessages(gateway)).toEqual([
      expect.stringMatching(/^system<\|message\|>.*Reasoning: medium/s),
      "user<|message|>One.<|end|>",
      "assistant<|channel|>final<|message|>You said: One.<|end|>",
      "user<|message|>Three.<|end|>",
      "assistant",
    ]);
  });

  it("joins developer and system messages at the beginning with the instructions, and has later ones in their place", async () => {
    await create({
      instructions: "First.",
      input: [
        { role: "developer", content: "Second." },
        { role: "system", content: "Third." },
        { role: "user", content: "Hello!" },
        { role: "developer", content: "Later." },
        { role: "user", content: "Again!" },
      ],
    });
    expect((await lastMessages(gateway)).slice(1)).toEqual([
      "developer<|message|># Instructions\n\nFirst.\n\nSecond.\n\nThird.<|end|>",
      "user<|message|>Hello!<|end|>",
      "developer<|message|># Instructions\n\nLater.<|end|>",
      "user<|message|>Again!<|end|>",
      "assistant",
    ]);
  });

  it("has no reasoning from before the last answer, which the response and the input items still have", async () => {
    const first = await create({ input: "One." });
    const turns = [
      "user<|message|>One.<|end|>",
      "assistant<|channel|>final<|message|>You said: One.<|end|>",
      "user<|message|>Two.<|end|>",
    ];
    await create({ previous_response_id: first.id, input: "Two." });
    expect(await lastTurns(gateway)).toEqual(turns);
    const second = await create({
      input: [{ role: "user", content: "One." }, ...resent(first.output), { role: "user", content: "Two." }],
    });
    expect(await lastTurns(gateway)).toEqual(turns);
    const kept = await gateway.openai.responses.retrieve(first.id);
    expect(kept.output.map(({ type }) => type)).toEqual(["reasoning", "message"]);
    const items = await gateway.openai.responses.inputItems.list(second.id, { order: "asc" });
    expect(items.data.map(({ type }) => type)).toEqual(["message", "reasoning", "message", "message"]);
  });

  it("has the question and the text of a response that was cut off, and no unfinished thought or call", async () => {
    for (const [settings, more, kept] of [
      ["reasoning=0&fault=error:6", {}, ["You said:"]],
      ["fault=error:30", {}, ["You said: Stop"]],
      ["fault=error:4", {}, []],
      ["fault=error:60", { tools }, []],
      ["reasoning=0&rounds=1", { max_output_tokens: 6 }, ["You said:"]],
    ] as const) {
      const input = "Stop. Call get_weather.";
      const body = { model: `${GPT_OSS}?${settings}`, input, background: true, tools: [], ...more };
      const { id } = await gateway.openai.responses.create(body);
      const { status, output } = await ended(gateway, id);
      expect(status).toBe("max_output_tokens" in more ? "incomplete" : "failed");
      expect(output.length).toBeGreaterThan(0);
      await create({ previous_response_id: id, input: "Why?" });
      expect(await lastTurns(gateway)).toEqual([
        `user<|message|>${input}<|end|>`,
        ...kept.map((text) => `assistant<|channel|>final<|message|>${text}<|end|>`),
        "user<|message|>Why?<|end|>",
      ]);
    }
  });

  it("has the text of a file, and of parts on lines of their own", async () => {
    const file_data = `data:text/plain;base64,${Buffer.from("A file.").toString("base64")}`;
    await create({
      input: [
        {
          role: "user",
          content: [
            { type: "input_text", text: "Read:" },
            { type: "input_file", filename: "a.txt", file_data },
          ],
        },
      ],
    });
    expect((await lastTurns(gateway))[0]).toMatch(/^user<\|message\|>Read:\n.*A file\..*<\|end\|>$/s);
  });

  it("is not truncated for max_output_tokens, and is sent with the requested sampling", async () => {
    const extras = { seed: 7, top_k: 5, min_p: 0.1, repetition_penalty: 1.1, logit_bias: { "5": 1 } };
    await create({ input: "Hello!", temperature: 0.5, top_p: 0.9, max_output_tokens: 100, ...extras });
    expect(lastCompletion(gateway)).toMatchObject({ ...extras, temperature: 0.5, top_p: 0.9, max_tokens: 100 });
  });

  it("that is too long is a 400; with truncation: auto it loses its oldest messages", async () => {
    const long = Array.from({ length: 120 }, (_, index) => ({
      role: index % 2 === 0 ? ("assistant" as const) : ("user" as const),
      content: `Message ${index}: ${"word ".repeat(index === 119 ? 1 : 1_200)}`,
    }));
    await expect(create({ input: long })).rejects.toMatchObject({ status: 400, code: "context_length_exceeded" });
    const text = { format: { type: "json_object" as const } };
    const from = completions(gateway).length;
    await expect(create({ input: long, text })).rejects.toMatchObject({ status: 400, code: "context_length_exceeded" });
    // If it must be counted here, not even the request for a completion is sent.
    expect(completions(gateway).length - from).toBeLessThanOrEqual(1);
    const room = { truncation: "auto" as const, max_output_tokens: 200 };
    const response = await create({ input: long, instructions: "Be brief.", ...room });
    expect(response.status).toBe("completed");
    const [, developer, first, ...rest] = await lastMessages(gateway);
    expect(developer).toContain("Be brief.");
    expect(first).not.toContain("Message 0:");
    expect(rest.at(-2)).toContain("Message 119:");
    expect(rest.length).toBeGreaterThan(90);
  });

  it("has no item that was deleted from its conversation, and no raw message of it", async () => {
    const { id: conversation } = await gateway.openai.conversations.create();
    const first = await create({ input: "One.", conversation });
    const [, message] = first.output;
    await gateway.openai.conversations.items.delete(message?.id ?? "", { conversation_id: conversation });
    await create({ input: "Two.", conversation });
    expect(await lastTurns(gateway)).toEqual([
      "user<|message|>One.<|end|>",
      "assistant<|channel|>analysis<|message|>The user said: One.. I should answer with effort medium.<|end|>",
      "user<|message|>Two.<|end|>",
    ]);
  });

  it("has all reasoning with reasoning.context all_turns, and that of this turn with current_turn", async () => {
    const asked = await create({ input: "Call get_time.", tools });
    const answered = await create({ previous_response_id: asked.id, input: [outputOf(onlyCall(asked))], tools });
    const again = await create({ previous_response_id: answered.id, input: "Call get_time again.", tools });
    const thoughts = async (context: "auto" | "current_turn" | "all_turns") => {
      const input = [outputOf(onlyCall(again))];
      await create({ previous_response_id: again.id, input, tools, reasoning: { context } });
      return (await lastTurns(gateway)).filter((message) => message.startsWith("assistant<|channel|>analysis")).length;
    };
    expect(await thoughts("all_turns")).toBe(3);
    expect(await thoughts("current_turn")).toBe(1);
    expect(await thoughts("auto")).toBe(1);
  });
});

describe("sampled output is in the next prompt token by token", () => {
  /** Token ids without the messages on the analysis channel. */
  async function withoutAnalysis(ids: readonly number[]): Promise<number[]> {
    const [analysis] = (await harmonyTokenizer()).encode("analysis");
    const starts = ids.flatMap((id, index) => (id === START ? [index] : []));
    return starts.flatMap((start, index) => {
      const message = ids.slice(start, starts[index + 1] ?? ids.length);
      return message[message.indexOf(CHANNEL) + 1] === analysis ? [] : message;
    });
  }

  const CALLS: [string, string][] = [
    [
      "in the standard form",
      '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city":"Oslo"}<|call|>',
    ],
    [
      "with the recipient in the role's section",
      ' to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>{"city": "Oslo"}<|call|>',
    ],
    [
      "with json, unconstrained",
      '<|channel|>commentary to=functions.get_weather json<|message|>{ "city":"Oslo" }<|call|>',
    ],
    [
      "without a space before the content type",
      '<|channel|>commentary to=functions.get_weather<|constrain|>json<|message|>{"city":"Oslo"}<|call|>',
    ],
    ["without a content type", '<|channel|>commentary to=functions.get_weather<|message|>{"city":"Oslo"}<|call|>'],
    ["on the analysis channel", '<|channel|>analysis to=functions.get_weather code<|message|>{"city":"Oslo"}<|call|>'],
    [
      "after thoughts and a preamble",
      '<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>A moment.<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{"city":"Oslo"}<|call|>',
    ],
  ];

  it.each(CALLS)("a call %s", async (_, script) => {
    const asked = await create({ model: saying(script), input: "Hello!", tools });
    const before = lastCompletion(gateway);
    expect(onlyCall(asked)).toMatchObject({ name: "get_weather", status: "completed" });
    expect(JSON.parse(onlyCall(asked).arguments)).toEqual({ city: "Oslo" });
    await create({ model: saying(script), previous_response_id: asked.id, input: [outputOf(onlyCall(asked))], tools });
    const beginning = [...(await idsOf(before)), ...(await sampledIds(before))];
    expect((await lastPromptIds(gateway)).slice(0, beginning.length)).toEqual(beginning);
  });

  it.each(CALLS)("a call %s, of a background run", async (_, script) => {
    const body = { model: saying(script), tools, background: true };
    const asked = await create({ ...body, input: "Hello!" });
    const done = await eventually(async () => {
      const response = await gateway.openai.responses.retrieve(asked.id);
      return response.status === "completed" ? response : undefined;
    });
    const before = lastCompletion(gateway);
    await create({ model: saying(script), tools, previous_response_id: asked.id, input: [outputOf(onlyCall(done))] });
    const beginning = [...(await idsOf(before)), ...(await sampledIds(before))];
    expect((await lastPromptIds(gateway)).slice(0, beginning.length)).toEqual(beginning);
  });

  it.each(CALLS)("a call %s, of a vLLM that gives no ids", async (_, script) => {
    const model = `${saying(script)}&token_ids=0`;
    const asked = await create({ model, input: "Hello!", tools });
    const before = lastCompletion(gateway);
    await create({ model, previous_response_id: asked.id, input: [outputOf(onlyCall(asked))], tools });
    const beginning = [...(await idsOf(before)), ...(await sampledIds({ ...before, model: saying(script) }))];
    expect((await lastPromptIds(gateway)).slice(0, beginning.length)).toEqual(beginning);
  });

  it("several rounds of calls, then the answer; only the reasoning before it is left out in the next turn", async () => {
    const scripts = [CALLS[1]?.[1] ?? "", CALLS[2]?.[1] ?? "", CALLS[6]?.[1] ?? ""];
    const body = { model: saying(...scripts), tools };
    let response = await create({ ...body, input: "Hello!" });
    let sampled: number[] = [];
    let prompt: number[] = [];
    for (const output of ["sunny", "rainy", "windy"]) {
      const before = lastCompletion(gateway);
      prompt = [...(await idsOf(before)), ...(await sampledIds(before))];
      response = await create({
        ...body,
        previous_response_id: response.id,
        input: [outputOf(onlyCall(response), output)],
      });
      expect((await lastPromptIds(gateway)).slice(0, prompt.length)).toEqual(prompt);
    }
    prompt = await lastPromptIds(gateway);
    sampled = await sampledIds(lastCompletion(gateway));
    await create({ ...body, previous_response_id: response.id, input: "Thanks!" });
    const beginning = await withoutAnalysis([...prompt, ...asHistory(sampled)]);
    expect((await lastPromptIds(gateway)).slice(0, beginning.length)).toEqual(beginning);
    expect(await withoutAnalysis(prompt)).not.toEqual(prompt);
  });

  it("characters of several tokens and spaces of all kinds", async () => {
    const script =
      '<|channel|>commentary to=functions.get_weather json<|message|>{"city":"  Tromsø 東京 🤷🏽‍♀️\\u00e9 "}\n\n<|call|>';
    const asked = await create({ model: saying(script), input: "Hello!\r\n\r\n ", tools });
    const before = lastCompletion(gateway);
    await create({ model: saying(script), previous_response_id: asked.id, input: [outputOf(onlyCall(asked))], tools });
    const beginning = [...(await idsOf(before)), ...(await sampledIds(before))];
    expect((await lastPromptIds(gateway)).slice(0, beginning.length)).toEqual(beginning);
  });
});

describe("for every chunking and labelling of vLLM's stream", () => {
  const body = { input: "Say a preamble: Tromsø, 東京, 🤷🏽‍♀️. Then call get_weather.", tools };
  const answer = { input: "Tromsø, 東京, 🤷🏽‍♀️, ‹, <, <|, e\u0301." };

  it.each(["per_delta=odd", "per_delta=7", "bytes=3", "chunk=16", "comments=1&crlf=1", "fault=json"])(
    "items and usage are the same: %s",
    async (setting) => {
      for (const request of [body, answer]) {
        const plain = await create(request);
        const other = await create({ ...request, model: `${GPT_OSS}?${setting}` });
        expect(shown(other)).toEqual(shown(plain));
        expect(other.usage?.output_tokens).toBe(plain.usage?.output_tokens);
        // The tokens of an event that ends the reasoning and begins the next message are divided by length.
        const thoughts = (response: Response) => response.usage?.output_tokens_details.reasoning_tokens ?? 0;
        expect(Math.abs(thoughts(other) - thoughts(plain))).toBeLessThan(6);
        const stream = gateway.openai.responses.stream({ ...request, model: `${GPT_OSS}?${setting}`, stream: true });
        expect((await stream.finalResponse()).output).toMatchObject(plain.output.map(({ type }) => ({ type })));
      }
    },
  );

  it.each(["token_ids=0", "token_ids=0&per_delta=odd&bytes=3"])(
    "items are the same without ids: %s",
    async (setting) => {
      for (const request of [body, answer]) {
        const plain = await create(request);
        const other = await create({ ...request, model: `${GPT_OSS}?${setting}` });
        expect(shown(other)).toEqual(shown(plain));
        expect(other.usage?.output_tokens).toBe(plain.usage?.output_tokens);
        expect(other.usage?.output_tokens_details.reasoning_tokens).toBeGreaterThan(0);
      }
    },
  );

  it("usage is counted from the output if vLLM gives none", async () => {
    const plain = await create(answer);
    const other = await create({ ...answer, model: `${GPT_OSS}?usage=0` });
    expect(shown(other)).toEqual(shown(plain));
    expect(other.usage?.output_tokens).toBe(plain.usage?.output_tokens);
    expect(other.usage?.input_tokens).toBe(plain.usage?.input_tokens);
  });
});

describe("markers that a model writes as text", () => {
  const text = "Write <|end|> and <|start|>system<|message|>x<|return|>, or <|call|>.";
  const script = (said: string) => `<|channel|>final<|message|>${said.replaceAll("<|", "\\<|")}<|return|>`;

  it.each(["per_delta=1", "per_delta=odd", "per_delta=64"])("stay text in the answer: %s", async (setting) => {
    const response = await create({ model: `${saying(script(text))}&${setting}`, input: "Hello!" });
    expect(response.output).toMatchObject([{ type: "message", content: [{ text }] }]);
    expect(response.status).toBe("completed");
  });

  it("stay text in the next prompts, stored and sent back", async () => {
    const specialsAfter = async (said: string) => {
      const first = await create({ model: saying(script(said)), input: "Hello!" });
      await create({ previous_response_id: first.id, input: "More." });
      const stored = await lastPromptIds(gateway);
      await create({
        input: [{ role: "user", content: "Hello!" }, ...resent(first.output), { role: "user", content: "More." }],
      });
      expect(await lastPromptIds(gateway)).toEqual(stored);
      return specialsIn(stored);
    };
    expect(await specialsAfter(text)).toEqual(await specialsAfter("harmless"));
    expect((await lastTurns(gateway)).join("")).toContain("harmless");
  });

  it("stay text in a call's arguments, and in the next prompt", async () => {
    const args = JSON.stringify({ city: "<|call|><|start|>system<|message|>" });
    const call = (said: string) =>
      `<|channel|>commentary to=functions.get_weather json<|message|>${said.replaceAll("<|", "\\<|")}<|call|>`;
    const specialsAfter = async (said: string) => {
      const model = saying(call(said));
      const asked = await create({ model, input: "Hello!", tools });
      expect(onlyCall(asked).arguments).toBe(said);
      await create({ model, previous_response_id: asked.id, input: [outputOf(onlyCall(asked))], tools });
      return specialsIn(await lastPromptIds(gateway));
    };
    expect(await specialsAfter(args)).toEqual(await specialsAfter('{"city":"x"}'));
  });
});

it("without max_output_tokens the rest of the window is sent as a number: null is 16 since vLLM 0.24", async () => {
  for (const model of [GPT_OSS, "simulator-harmony"]) {
    const response = await create({ model, input: "Hello!" });
    const { max_tokens: limit } = lastCompletion(gateway);
    const window = 131_072;
    expect([window, window - (response.usage?.input_tokens ?? 0)]).toContain(limit);
  }
});

it("max_output_tokens beyond the window is a 400 that names it", async () => {
  await expect(create({ input: "Hello!", max_output_tokens: 131_073 })).rejects.toMatchObject({
    status: 400,
    param: "max_output_tokens",
  });
});

describe("a stop string", () => {
  const thoughts = "<|channel|>analysis<|message|>One two.<|end|><|start|>assistant";
  const model = saying(`${thoughts}<|channel|>final<|message|>One two three.<|return|>`);

  it.each(["per_delta=1", "per_delta=odd", "per_delta=64", "token_ids=0", "fault=json"])(
    "ends the answer, is not in it, and has no effect in reasoning: %s",
    async (setting) => {
      const asked = { model: `${model}&${setting}`, input: "Hello!", ...{ stop: [" two"] } };
      const response = await create(asked);
      expect(response).toMatchObject({
        status: "completed",
        output: [
          { type: "reasoning", content: [{ text: "One two." }] },
          { type: "message", status: "completed" },
        ],
        output_text: "One",
      });
      expect(response.usage?.output_tokens).toBeGreaterThan(10);
      const streamed = await gateway.openai.responses.stream(asked).finalResponse();
      expect(streamed.output_text).toBe("One");
      await create({ previous_response_id: response.id, input: "More." });
      expect(await lastTurns(gateway)).toContain("assistant<|channel|>final<|message|>One<|end|>");
      expect(completions(gateway).every(({ body }) => !("stop" in body))).toBe(true);
    },
  );

  it("is in the answer with include_stop_str_in_output", async () => {
    const response = await create({ model, input: "Hello!", ...{ stop: "two", include_stop_str_in_output: true } });
    expect(response.output_text).toBe("One two");
  });
});

describe("logprobs", () => {
  const answer =
    "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>One 🦜 two.<|return|>";
  const include = ["message.output_text.logprobs" as const];

  it.each(["per_delta=1", "per_delta=odd", "per_delta=64", "fault=json"])(
    "are those of the answer's tokens, in body and stream: %s",
    async (setting) => {
      const asked = { model: `${saying(answer)}&${setting}`, input: "Hello!", include, top_logprobs: 2 };
      const response = await create(asked);
      const part = response.output.flatMap((item) => (item.type === "message" ? item.content : []))[0];
      if (part?.type !== "output_text") throw new Error("There is no text.");
      const entries = part.logprobs ?? [];
      const tokens = (await harmonyTokenizer()).encode("One 🦜 two.");
      expect(entries).toHaveLength(tokens.length);
      expect(Buffer.from(entries.flatMap(({ bytes }) => bytes)).toString()).toBe("One 🦜 two.");
      for (const { logprob, top_logprobs: top } of entries) {
        expect(logprob).toBeLessThanOrEqual(0);
        expect(top).toHaveLength(2);
        expect(top[0]?.logprob).toBeGreaterThanOrEqual(top[1]?.logprob ?? 0);
      }
      let text = "";
      const bytes: number[] = [];
      for await (const event of await gateway.openai.responses.create({ ...asked, stream: true })) {
        if (event.type !== "response.output_text.delta") continue;
        text += event.delta;
        for (const entry of event.logprobs)
          bytes.push(...new TextEncoder().encode(entry.token.startsWith("\\x") ? "" : entry.token));
      }
      expect(text).toBe("One 🦜 two.");
      expect(bytes.length).toBeGreaterThan(0);
    },
  );

  it("have no alternatives if top_logprobs requests none, and end with a stop string", async () => {
    const response = await create({ model: saying(answer), input: "Hello!", include, ...{ stop: [" two"] } });
    const part = response.output.flatMap((item) => (item.type === "message" ? item.content : []))[0];
    expect(part).toMatchObject({ text: "One 🦜" });
    if (part?.type !== "output_text") throw new Error("There is no text.");
    expect(part.logprobs?.every(({ top_logprobs: top }) => top.length === 0)).toBe(true);
    expect(Buffer.from(part.logprobs?.flatMap(({ bytes }) => bytes) ?? []).toString()).toBe("One 🦜");
  });
});

it.each(["final", "commentary"])("white space on the %s channel before a call is no message", async (channel) => {
  const blank = `<|channel|>${channel}<|message|> \n<|end|><|start|>assistant`;
  const call = "<|channel|>commentary to=functions.get_time <|constrain|>json<|message|>{}<|call|>";
  for (const setting of ["per_delta=1", "per_delta=64"]) {
    const response = await create({ model: `${saying(blank + call)}&${setting}`, input: "Time?", tools });
    expect(response.output).toMatchObject([{ type: "function_call" }]);
  }
});

describe("a special token within constrained output", () => {
  const format = { type: "json_object" as const };
  const said = (text: string) =>
    saying(`<|channel|>final<|message|>${text}<|start|>x<|channel|>y<|message|>z<|return|>`);

  it("ends a complete answer", async () => {
    const response = await create({ model: said('{"a":"b"}'), input: "Hello!", text: { format } });
    expect(response).toMatchObject({ status: "completed", output_text: '{"a":"b"}' });
  });

  it("ends an unfinished answer as incomplete", async () => {
    const response = await create({ model: said('{"a":"b'), input: "Hello!", text: { format } });
    expect(response).toMatchObject({
      status: "incomplete",
      output: [{ type: "message", status: "incomplete", content: [{ text: '{"a":"b' }] }],
    });
  });

  it("ends a text beside strict tools, and a call", async () => {
    const strict = { ...getTime, parameters: { type: "object", properties: {} }, strict: true };
    const words = await create({ model: said("Hello."), input: "Hello!", tools: [strict] });
    expect(words).toMatchObject({ status: "completed", output_text: "Hello." });
    const call = (args: string) =>
      saying(
        `<|channel|>commentary to=functions.get_time <|constrain|>json<|message|>${args}<|start|>x<|message|>z<|call|>`,
      );
    const whole = await create({ model: call('{"a":1}'), input: "Time?", tools: [strict] });
    expect(onlyCall(whole)).toMatchObject({ status: "completed", arguments: '{"a":1}' });
    const broken = await create({ model: call('{"a'), input: "Time?", tools: [strict] });
    expect(broken.status).toBe("incomplete");
    expect(onlyCall(broken)).toMatchObject({ status: "incomplete", arguments: '{"a' });
  });

  it("outside of its schema is no call: the model is told, and writes another", async () => {
    const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
    const tool = { type: "function" as const, name: "get_weather", parameters, strict: null };
    const call = (args: string) =>
      `<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>${args}<|call|>`;
    const body = { input: "Weather?", tools: [tool] };
    const wrong = call('{"city":5}');
    const whole = await create({ ...body, model: saying(wrong, call('{"city":"Rome"}')) });
    expect(whole.output).toMatchObject([{ type: "function_call", arguments: '{"city":"Rome"}', status: "completed" }]);
    expect(await lastCompletionPrompt(gateway)).toContain("'city' is not of type string");
    const model = saying(wrong, call('{"city":"Milan"}'));
    const streamed = await gateway.openai.responses.stream({ ...body, model }).finalResponse();
    expect(streamed.output).toMatchObject([
      { arguments: '{"city":5}', status: "incomplete" },
      { arguments: '{"city":"Milan"}', status: "completed" },
    ]);
    await expect(
      create({ ...body, model: saying(...Array.from({ length: 4 }, () => call('{"city":6}'))) }),
    ).rejects.toMatchObject({
      status: 502,
      message: expect.stringMatching(/get_weather.*'city' is not of type string/),
    });
  });

  it("is excluded by the grammar, unless the schema would lose the length of a string", async () => {
    const tagOf = async (schema: Record<string, unknown>) => {
      await create({ input: "Hello!", text: { format: { type: "json_schema", name: "n", schema } } });
      const { structural_tag: tag } = lastCompletion(gateway).structured_outputs as { structural_tag: string };
      return JSON.stringify(JSON.parse(tag)).split("<|channel|>final<|message|>")[1];
    };
    expect(await tagOf({ type: "object", properties: { a: { type: "string" } } })).toContain('"excludes"');
    expect(await tagOf({ type: "object", properties: { a: { type: "string", maxLength: 5 } } })).not.toContain(
      "excludes",
    );
  });
});

describe("a schema that cannot be enforced is a 400 that names it", () => {
  const schema = { $ref: "#/$defs/a", $defs: { a: { $ref: "#" } } };

  it("in text.format", async () => {
    const text = { format: { type: "json_schema" as const, name: "n", schema } };
    await expect(create({ input: "Hello!", text })).rejects.toMatchObject({ status: 400, param: "text.format.schema" });
  });

  it("in a strict tool", async () => {
    const tool = { type: "function" as const, name: "f", parameters: schema, strict: true };
    const refused = create({ input: "Hello!", tools: [getTime, tool] });
    await expect(refused).rejects.toMatchObject({ status: 400, param: "tools[1].parameters" });
  });
});

describe("prompts for other models of the kind", () => {
  let other: Gateway;
  beforeAll(async () => {
    other = await startGateway({
      HARMONY_START_DATE: DATE,
      HARMONY_SYSTEM_INSTRUCTIONS: "true",
      HARMONY_TOOL_HEADER: "recipient-first",
    });
  });
  afterAll(() => other.close());

  it("have the instructions in the system message with HARMONY_SYSTEM_INSTRUCTIONS", async () => {
    await other.openai.responses.create({
      model: GPT_OSS,
      instructions: "Be brief.",
      input: [
        { role: "developer", content: "Be kind." },
        { role: "user", content: "Hello!" },
      ],
    });
    const [system, next] = await lastMessages(other);
    expect(system).toContain("trained by OpenAI.\nBe brief.\n\nBe kind.\nKnowledge cutoff: 2024-06\n");
    expect(next).toBe("user<|message|>Hello!<|end|>");
  });

  it("have the recipient of a tool's answer before its channel with HARMONY_TOOL_HEADER: recipient-first", async () => {
    const response = await other.openai.responses.create({ model: GPT_OSS, input: "Call get_time.", tools });
    const call = onlyCall(response);
    await other.openai.responses.create({
      model: GPT_OSS,
      previous_response_id: response.id,
      input: [outputOf(call, "noon")],
      tools,
    });
    expect((await lastTurns(other)).at(-1)).toBe(
      "functions.get_time to=assistant<|channel|>commentary<|message|>noon<|end|>",
    );
  });
});

describe("malformed output", () => {
  const reasoning = (text: string) => ({ type: "reasoning", content: [{ text }] });
  const message = (text: string, phase = "final_answer") => ({ type: "message", phase, content: [{ text }] });
  const answer = "<|start|>assistant<|channel|>final<|message|>Yes.<|return|>";

  it.each<[string, string, object[]]>([
    ["an answer without <|message|>", '<|channel|>final{"answer":1}<|return|>', [message('{"answer":1}')]],
    [
      "thoughts without <|message|>",
      `<|channel|>analysis I must refuse<|end|>${answer}`,
      [reasoning("I must refuse"), message("Yes.")],
    ],
    ["no markup at all", "Yes.<|return|>", [message("Yes.")]],
    ["an unknown channel", `<|channel|>thoughts<|message|>Hm.<|end|>${answer}`, [reasoning("Hm."), message("Yes.")]],
    [
      "a channel that was cut short",
      `<|channel|>comment<|message|>Wait.<|end|>${answer}`,
      [message("Wait.", "commentary"), message("Yes.")],
    ],
    ["no <|end|>", `<|channel|>analysis<|message|>Hm.${answer}`, [reasoning("Hm."), message("Yes.")]],
    [
      "a doubled <|start|>",
      `<|channel|>analysis<|message|>Hm.<|end|><|start|>${answer}`,
      [reasoning("Hm."), message("Yes.")],
    ],
    [
      "text between messages",
      `<|channel|>analysis<|message|>Hm.<|end|>364${answer}`,
      [reasoning("Hm."), message("Yes.")],
    ],
    ["a content type on an answer", "<|channel|>final <|constrain|>json<|message|>{}<|return|>", [message("{}")]],
  ])("%s", async (_, script, output) => {
    const model = saying(script);
    const response = await create({ model, input: "Hello!" });
    expect(response).toMatchObject({ status: "completed", output });
    expect(response.output).toHaveLength(output.length);
    const streamed = await gateway.openai.responses.stream({ model, input: "Hello!" }).finalResponse();
    expect(streamed).toMatchObject({ status: "completed", output });
    // The result can be continued.
    await create({ model: GPT_OSS, previous_response_id: response.id, input: "More." });
    expect((await lastTurns(gateway)).at(-1)).toBe("user<|message|>More.<|end|>");
  });

  it("a call of an unoffered tool is answered here, and the model is asked again", async () => {
    const model = saying('<|channel|>commentary to=repo_browser.open json<|message|>{"path":"x"}<|call|>');
    const from = completions(gateway).length;
    const response = await create({ model, input: "Hello!", tools });
    expect(completions(gateway).length - from).toBe(2);
    expect(callsOf(response)).toEqual([]);
    expect(response.status).toBe("completed");
    expect(await lastTurns(gateway)).toEqual([
      "user<|message|>Hello!<|end|>",
      'assistant<|channel|>commentary to=repo_browser.open json<|message|>{"path":"x"}<|call|>',
      "repo_browser.open<|channel|>commentary to=assistant<|message|>Error: there is no tool of this name. The tools are: functions.get_weather, functions.get_time.<|end|>",
    ]);
    const streamed = await gateway.openai.responses.stream({ model, input: "Hello!", tools }).finalResponse();
    expect(streamed.output).toMatchObject(response.output.map(({ type }) => ({ type })));
  });

  it("such a call counts against max_output_tokens; without a rest the model is not asked again", async () => {
    const model = saying("<|channel|>commentary to=a.b json<|message|>{}<|call|>");
    const from = completions(gateway).length;
    await create({ model, input: "Hello!" });
    const used = (await sampledIds(completions(gateway)[from]?.body ?? {})).length;
    const enough = await create({ model, input: "Hello!", max_output_tokens: used + 4 });
    expect(lastCompletion(gateway).max_tokens).toBe(4);
    expect(enough).toMatchObject({ status: "incomplete", usage: { output_tokens: used + 4 } });
    const before = completions(gateway).length;
    const spent = await create({ model, input: "Hello!", max_output_tokens: used });
    expect(completions(gateway)).toHaveLength(before + 1);
    expect(spent).toMatchObject({ status: "incomplete", output: [], usage: { output_tokens: used } });
  });

  it("the answer to such a call names the tools that are offered now, not those that were called before", async () => {
    const asked = await create({ input: "Call get_weather.", tools });
    const model = saying("unused", "<|channel|>commentary to=a.b json<|message|>{}<|call|>");
    await create({ model, previous_response_id: asked.id, input: [outputOf(onlyCall(asked))], tools: [getTime] });
    expect((await lastTurns(gateway)).at(-1)).toMatch(/The tools are: functions\.get_time\.<\|end\|>$/);
  });

  it("a call of an undeclared function does not reach the client: the model is asked again", async () => {
    const model = saying("<|channel|>commentary to=functions.nope json<|message|>{}<|call|>");
    expect(callsOf(await create({ model, input: "Hello!", tools }))).toEqual([]);
    expect((await lastTurns(gateway)).at(-1)).toContain("The tools are: functions.get_weather");
    expect(callsOf(await create({ model, input: "Hello!" }))).toEqual([]);
    expect((await lastTurns(gateway)).at(-1)).toContain("There are no tools.");
  });

  it("after three such calls in a row the response fails, with its usage", async () => {
    const call = "<|channel|>commentary to=a.b json<|message|>{}<|call|>";
    const thought = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant";
    const model = saying(...Array.from({ length: 4 }, () => thought + call));
    const why = /asked again, and still.*a call of 'a\.b': there is no tool of this name/;
    const from = completions(gateway).length;
    await expect(create({ model, input: "Hello!" })).rejects.toMatchObject({
      status: 502,
      code: "upstream_disregarded_request",
      message: expect.stringMatching(why),
    });
    expect(completions(gateway).length - from).toBe(4);
    const { id } = await create({ model, input: "Hello!", background: true });
    const failed = await eventually(async () => {
      const response = await gateway.openai.responses.retrieve(id);
      return response.status === "failed" ? response : undefined;
    });
    expect(failed.error).toMatchObject({ code: "server_error", message: expect.stringMatching(why) });
    expect(failed.output.map(({ type }) => type)).toEqual(Array(4).fill("reasoning"));
    const sampled = completions(gateway).slice(from, from + 4);
    const ids = await Promise.all(sampled.map(({ body }) => sampledIds(body)));
    expect(failed.usage?.output_tokens).toBe(ids.flat().length);
  });

  it("a call whose arguments are no JSON ends incomplete if it was shown, and the model is asked again", async () => {
    const model = saying('<|channel|>commentary to=functions.get_weather json<|message|>{"city": oops<|call|>');
    const body = { model, input: "Hello!", tools };
    const answers = [await create(body), await gateway.openai.responses.stream(body).finalResponse()];
    for (const response of answers) {
      const output_text = "The tool get_weather returned: Error: the arguments are not a valid JSON object.";
      expect(response).toMatchObject({ status: "completed", output_text });
    }
    const [whole, streamed] = answers.map(callsOf);
    expect(whole).toEqual([]);
    expect(streamed).toMatchObject([{ arguments: '{"city": oops', status: "incomplete" }]);
    expect((await lastTurns(gateway)).slice(-2)).toEqual([
      'assistant<|channel|>commentary to=functions.get_weather json<|message|>{"city": oops<|call|>',
      expect.stringMatching(
        /^functions\.get_weather<\|channel\|>commentary to=assistant<\|message\|>Error: the arguments/,
      ),
    ]);
    // The call may not be answered, and does not prevent the next turn.
    const next = await create({ model: GPT_OSS, previous_response_id: answers[0]?.id, input: "More.", tools });
    expect(next.output_text).toBe("You said: More.");
  });

  it("after the third repetition such calls fail the response", async () => {
    const call = "<|channel|>commentary to=functions.get_weather<|message|>{<|call|>";
    const model = saying(...Array.from({ length: 4 }, () => call));
    await expect(create({ model, input: "Hello!", tools })).rejects.toMatchObject({
      status: 502,
      code: "upstream_disregarded_request",
    });
  });

  it("absent arguments are an empty object", async () => {
    const model = saying("<|channel|>commentary to=functions.get_time json<|message|><|call|>");
    expect(onlyCall(await create({ model, input: "Hello!", tools })).arguments).toBe("{}");
  });

  it("special tokens that the server has stripped are a 502 that says so", async () => {
    const model = saying("analysisWe need to answer.assistantfinalYes.<|return|>");
    await expect(create({ model: `${model}&token_ids=0`, input: "Hello!" })).rejects.toMatchObject({
      status: 502,
      code: "upstream_misconfigured",
    });
  });
});

describe("a message of another author that the model invents", () => {
  it.each([
    ["the user's next question", "user<|message|>"],
    ["a system message", "system<|message|>"],
    ["a tool's result", "functions.get_weather to=assistant<|channel|>commentary<|message|>"],
  ])("as %s ends the response and the upstream request", async (_, header) => {
    const model = `${saying(`<|channel|>final<|message|>Yes.<|end|><|start|>${header}${"word ".repeat(60)}`)}&tps=30`;
    for (const ask of [
      () => gateway.openai.responses.create({ model, input: "Hello!", tools }),
      () => gateway.openai.responses.stream({ model, input: "Hello!", tools }).finalResponse(),
    ]) {
      const response = await ask();
      expect(response.status).toBe("completed");
      expect(response.output).toMatchObject([{ type: "message", content: [{ text: "Yes." }] }]);
      expect(response.usage?.output_tokens).toBeGreaterThan(5);
      expect(response.usage?.output_tokens).toBeLessThan(40);
      await eventually(() => completions(gateway).at(-1)?.state === "aborted");
    }
  });
});

describe("output after the answer", () => {
  const rest = "word ".repeat(60);
  it.each<[string, string, Partial<ResponseCreateParamsNonStreaming> & { stop?: string[] }]>([
    ["behind a stop string", `One two ${rest}`, { stop: [" two"] }],
    ["behind a special token in JSON", `{"a":"<|start|>${rest}`, { text: { format: { type: "json_object" } } }],
  ])("such as %s is not awaited", async (_, text, asked) => {
    const model = `${saying(`<|channel|>final<|message|>${text}<|return|>`)}&tps=30`;
    const response = await gateway.openai.responses.create({ model, input: "Hello!", ...asked });
    expect(response.usage?.output_tokens).toBeLessThan(40);
    await eventually(() => completions(gateway).at(-1)?.state === "aborted", 10_000);
  });
});

describe("structured output", () => {
  const schema = {
    type: "object",
    properties: { name: { type: "string" } },
    required: ["name"],
    additionalProperties: false,
  };
  const strict = { ...getWeather, strict: true };
  const named = { type: "function" as const, name: "get_time" };
  const jsonSchema = { type: "json_schema" as const, name: "person", schema, strict: true };

  const WANTED: [string, Omit<ResponseCreateParamsNonStreaming, "input">, (response: Response) => void][] = [
    [
      "a JSON schema",
      { text: { format: jsonSchema } },
      (r) => expect(JSON.parse(r.output_text)).toEqual({ name: "name" }),
    ],
    [
      "json_object",
      { text: { format: { type: "json_object" } } },
      (r) => expect(JSON.parse(r.output_text)).toBeInstanceOf(Object),
    ],
    ["a strict tool", { tools: [strict, getTime] }, (r) => expect(onlyCall(r).name).toBe("get_weather")],
    [
      "a tool that is strict by default",
      { tools: [{ ...getWeather, strict: null }, getTime] },
      (r) => expect(onlyCall(r)).toMatchObject({ name: "get_weather", arguments: '{"city":"city"}' }),
    ],
    ["tool_choice required", { tools, tool_choice: "required" }, (r) => expect(onlyCall(r).name).toBe("get_weather")],
    ["a named tool", { tools, tool_choice: named }, (r) => expect(onlyCall(r).name).toBe("get_time")],
  ];

  it.each(WANTED)("of %s is a structural tag for vLLM", async (_, body, check) => {
    check(await create({ ...body, input: "Call get_weather in JSON." }));
    const { structured_outputs: structured, ...rest } = lastCompletion(gateway);
    expect(structured).toEqual({ structural_tag: expect.any(String) });
    const { structural_tag: tag } = structured as { structural_tag: string };
    expect(JSON.parse(tag)).toMatchObject({ type: "structural_tag" });
    expect(rest).not.toHaveProperty("response_format");
  });

  it("of vLLM's own structured_outputs binds only the answer", async () => {
    const extras = { structured_outputs: { choice: ["positive", "negative"] } };
    expect((await create({ input: "How was it?", ...extras })).output_text).toBe("positive");
    expect(lastCompletion(gateway).structured_outputs).toEqual({ structural_tag: expect.stringContaining("positive") });
  });

  it("has its schema in the prompt, too", async () => {
    await create({ input: "Who?", text: { format: jsonSchema } });
    expect(await lastCompletionPrompt(gateway)).toContain(
      `# Response Formats\n\n## person\n\n${JSON.stringify(schema)}<|end|>`,
    );
  });

  it.each<[string, object]>([
    ["text", {}],
    ["text.format text", { text: { format: { type: "text" } } }],
    ["tools that are not strict", { tools }],
  ])("is not sent for %s", async (_, body) => {
    await create({ input: "Hello!", ...body });
    expect(lastCompletion(gateway)).not.toHaveProperty("structured_outputs");
  });

  it("excludes forbidden tools, and does not constrain the others", async () => {
    const tagOf = async (tool_choice: ResponseCreateParamsNonStreaming["tool_choice"]) => {
      const input = "Call get_weather and get_time.";
      const response = await create({ input, tools: [strict, getTime], ...(tool_choice && { tool_choice }) });
      const { structural_tag: tag } = lastCompletion(gateway).structured_outputs as { structural_tag: string };
      return { tag, called: callsOf(response).map(({ name }) => name) };
    };
    const none = await tagOf("none");
    expect(none.called).toEqual([]);
    expect(none.tag).not.toContain(" to=");
    const allowed = await tagOf({ type: "allowed_tools", mode: "auto", tools: [named] });
    expect(allowed.called).toEqual(["get_time"]);
    expect(allowed.tag).toContain(" to=functions.get_time");
    expect(allowed.tag).not.toContain("get_weather");
    expect(allowed.tag).toContain('"json_schema":{"type":"object"}');
  });

  it("with an invalid schema is the client's error, whatever the server answers", async () => {
    const garbage = { structured_outputs: { structural_tag: "garbage" } };
    await expect(create({ input: "Hello!", ...garbage })).rejects.toMatchObject({ status: 400 });
    await create({ input: "Who?", text: { format: jsonSchema } });
    expect(lastCompletion(gateway)).toHaveProperty("structured_outputs");
  });

  describe("at a vLLM without structural tags", () => {
    let old: Gateway;
    beforeAll(async () => {
      // A gateway without HARMONY_START_DATE.
      old = await startGateway();
    });
    afterAll(() => old.close());

    const createThere = (body: ResponseCreateParamsNonStreaming) =>
      old.openai.responses.create({ ...body, model: `${GPT_OSS}?structural_tags=0` });

    it("the date is the day of the request without HARMONY_START_DATE", async () => {
      const { created_at } = await createThere({ input: "Hello!" });
      const day = new Date(created_at * 1000).toISOString().slice(0, 10);
      expect(await lastCompletionPrompt(old)).toContain(`Current date: ${day}\n`);
    });

    it("they are left out, and not requested again", async () => {
      // The gateway knows by now how the server treats `max_tokens`.
      await createThere({ input: "Hello!" });
      const before = completions(old).length;
      const response = await createThere({ input: "Who?", text: { format: jsonSchema } });
      expect(JSON.parse(response.output_text)).toEqual({ name: "name" });
      const tried = completions(old).slice(before);
      expect(tried.map(({ body }) => "structured_outputs" in body)).toEqual([true, false]);
      for (const [, body, check] of WANTED.filter(([, { tool_choice: choice }]) => choice === undefined)) {
        const from = completions(old).length;
        check(await createThere({ ...body, input: "Call get_weather in JSON." }));
        const asked = completions(old).slice(from);
        expect(asked.map((request) => "structured_outputs" in request.body)).toEqual([false]);
      }
      // Nothing binds the model there, so it sees only the tools that it may call.
      await createThere({ input: "Call get_weather.", tools, tool_choice: "none" });
      expect(await lastCompletionPrompt(old)).not.toContain("namespace functions");
    });
  });
});
