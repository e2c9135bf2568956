import type { Response, ResponseCreateParamsNonStreaming } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { expectError } from "./expectations.ts";
import {
  DATE,
  GPT_OSS,
  getTime,
  getWeather,
  lastCompletion,
  lastMessages,
  lastPromptIds,
  lastTurns,
  onlyCall,
  outputOf,
  saying,
  tolerating,
  tools,
} from "./harmony-support.ts";
import { type Gateway, joinGateway, lastPrompt } from "./support.ts";
import { ended } from "./turns.ts";

/** Raw messages: `enable_response_messages`, and `previous_input_messages` for clients that keep everything themselves. */

let gateway: Gateway;
beforeAll(async () => {
  gateway = await joinGateway();
});
afterAll(() => gateway.close());

/** A message in the form of Python's `Message.to_dict` of openai/harmony. */
interface Raw {
  role: string;
  name: string | null;
  content: ({ type: "text"; text: string } | { type: "system_content" | "developer_content" })[];
  channel?: string;
  recipient?: string;
  content_type?: string;
}

type WithMessages = Response & { input_messages: Raw[]; output_messages: Raw[] };
type Extras = { previous_input_messages?: object[] | null };

/** A response with its messages. */
async function create(body: ResponseCreateParamsNonStreaming & Extras): Promise<WithMessages> {
  const extras = { model: GPT_OSS, enable_response_messages: true };
  return (await gateway.openai.responses.create({ ...extras, ...body })) as WithMessages;
}

const text = (said: string) => [{ type: "text" as const, text: said }];
const system = (effort = "Medium") => ({
  role: "system",
  name: null,
  content: [
    {
      type: "system_content",
      model_identity: "You are ChatGPT, a large language model trained by OpenAI.",
      reasoning_effort: effort,
      conversation_start_date: DATE,
      knowledge_cutoff: "2024-06",
      channel_config: { valid_channels: ["analysis", "commentary", "final"], channel_required: true },
    },
  ],
});
const user = (said: string) => ({ role: "user", name: null, content: text(said) });
const thought = (said: string) => ({ role: "assistant", name: null, content: text(said), channel: "analysis" });
const answer = (said: string) => ({ role: "assistant", name: null, content: text(said), channel: "final" });
const call = (name: string, args: string, contentType = "<|constrain|>json") => ({
  role: "assistant",
  name: null,
  content: text(args),
  channel: "commentary",
  recipient: `functions.${name}`,
  content_type: contentType,
});
const result = (name: string, output: string) => ({
  role: "tool",
  name: `functions.${name}`,
  content: text(output),
  recipient: "assistant",
  channel: "commentary",
});

const HELLO = {
  input_messages: [system(), user("Hello!")],
  output_messages: [thought("The user said: Hello!. I should answer with effort medium."), answer("You said: Hello!")],
};

/** The checker only allows OpenAI's own fields to grow between the events of a stream. */
const GROWS = /snapshotsAreOneResponse: .* has output_messages/;

describe("enable_response_messages", () => {
  it("gives the prompt and the output as messages, in the body and in the retrieved response", async () => {
    const response = await create({ input: "Hello!" });
    expect(response).toMatchObject(HELLO);
    expect(response.input_messages).toEqual(HELLO.input_messages);
    expect(response.output_messages).toEqual(HELLO.output_messages);
    expect(await gateway.openai.responses.retrieve(response.id)).toEqual(response);
  });

  it("gives them in the first events and the last one of a stream", async () => {
    await tolerating(gateway, GROWS, async () => {
      const body = { model: GPT_OSS, input: "Hello!", stream: true as const };
      const events = await Array.fromAsync(
        await gateway.openai.responses.create({ ...body, ...{ enable_response_messages: true } }),
      );
      const snapshots = events.flatMap((event) => ("response" in event ? [event] : []));
      expect(snapshots).toMatchObject([
        { type: "response.created", response: { ...HELLO, output_messages: [] } },
        { type: "response.in_progress", response: { ...HELLO, output_messages: [] } },
        { type: "response.completed", response: HELLO },
      ]);
    });
  });

  it("gives them in a background run, also streamed", async () => {
    const { id } = await create({ input: "Hello!", background: true });
    expect(await ended(gateway, id)).toMatchObject(HELLO);
    await tolerating(gateway, /snapshotsAreOneResponse: .* has (input|output)_messages/, async () => {
      const body = { model: GPT_OSS, input: "Hello!", stream: true as const, background: true };
      const events = await Array.fromAsync(
        await gateway.openai.responses.create({ ...body, ...{ enable_response_messages: true } }),
      );
      expect(events.at(-1)).toMatchObject({ type: "response.completed", response: HELLO });
    });
  });

  it("is off by default", async () => {
    for (const extras of [{}, { enable_response_messages: false }, { enable_response_messages: null }]) {
      const response = await gateway.openai.responses.create({ model: GPT_OSS, input: "Hello!", ...extras });
      expect(Object.keys(response)).not.toEqual(expect.arrayContaining([expect.stringMatching(/_messages$/)]));
    }
  });

  it("shows effort, instructions, tools and the format as Harmony's own content types", async () => {
    const schema = { type: "object", properties: { city: { type: "string" } } };
    const response = await create({
      input: "Hello!",
      instructions: "Be brief.",
      tools,
      reasoning: { effort: "high" },
      text: { format: { type: "json_schema", name: "answer", schema, strict: false } },
    });
    expect(response.input_messages).toEqual([
      system("High"),
      {
        role: "developer",
        name: null,
        content: [
          {
            type: "developer_content",
            instructions: "Be brief.",
            tools: {
              functions: {
                name: "functions",
                tools: [
                  { name: "get_weather", description: getWeather.description, parameters: getWeather.parameters },
                  { name: "get_time", description: "", parameters: getTime.parameters },
                ],
              },
            },
            response_format: { name: "answer", schema },
          },
        ],
      },
      user("Hello!"),
    ]);
  });

  it("shows calls with recipient and content type, and the history in the next turn", async () => {
    const asked = await create({ input: "Say a preamble, then call get_weather.", tools });
    const said = [
      thought("The user said: Say a preamble, then call get_weather.. I should answer with effort medium."),
      { ...answer("Let me look."), channel: "commentary" },
      call("get_weather", '{"city":"city"}'),
    ];
    expect(asked.output_messages).toEqual(said);
    const answered = await create({ previous_response_id: asked.id, input: [outputOf(onlyCall(asked))], tools });
    expect(answered.input_messages.slice(2)).toEqual([
      user("Say a preamble, then call get_weather."),
      ...said,
      result("get_weather", "sunny"),
    ]);
    expect(answered.output_messages).toEqual([
      thought("The tools have answered. I should answer with effort medium."),
      answer("The tool get_weather returned: sunny"),
    ]);
  });

  it("shows messages that became no item: a call of an unoffered tool, and its answer", async () => {
    const model = saying("<|channel|>commentary to=a.b json<|message|>{}<|call|>");
    const response = await create({ model, input: "Hello!" });
    expect(response.output_messages).toEqual([
      { ...call("", "{}", "json"), recipient: "a.b" },
      { ...result("", "Error: there is no tool of this name. There are no tools."), name: "a.b" },
      thought("The tools have answered. I should answer with effort medium."),
      answer("The tool a.b returned: Error: there is no tool of this name. There are no tools."),
    ]);
  });

  it("shows a message that was cut off", async () => {
    const response = await create({ input: "Hello!", max_output_tokens: 6 });
    expect(response.output_messages).toEqual([thought("The user said")]);
  });

  it("shows reasoning also with include_reasoning: false", async () => {
    const response = await create({ input: "Hello!", ...{ include_reasoning: false } });
    expect(response.output.map(({ type }) => type)).toEqual(["message"]);
    expect(response.output_messages).toEqual(HELLO.output_messages);
  });
});

describe("previous_input_messages", () => {
  const messagesOf = ({ input_messages, output_messages }: WithMessages) => [...input_messages, ...output_messages];

  it("make the same prompt as previous_response_id", async () => {
    const first = await create({ input: "One.", instructions: "Be brief." });
    await create({ previous_response_id: first.id, input: "Two." });
    const stored = await lastPromptIds(gateway);
    const second = await create({ previous_input_messages: messagesOf(first), input: "Two.", store: false });
    expect(await lastPromptIds(gateway)).toEqual(stored);
    expect(second.output_text).toBe("You said: Two.");
    expect(second.input_messages).toEqual([system(), user("One."), answer("You said: One."), user("Two.")]);
  });

  const CALLS: [string, string][] = [
    ["in the standard form", "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{}<|call|>"],
    ["of the role's section", " to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>{}<|call|>"],
    ["without constrain", "<|channel|>commentary to=functions.get_weather json<|message|>{}<|call|>"],
    ["without a content type", " to=functions.get_weather<|channel|>commentary<|message|>{}<|call|>"],
    [
      "after a thought",
      "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{}<|call|>",
    ],
  ];

  it.each(CALLS)("make the same prompt within a tool loop, with a call %s", async (_, script) => {
    const model = saying(script);
    const asked = await create({ model, input: "Hello!", tools });
    await create({ model, previous_response_id: asked.id, input: [outputOf(onlyCall(asked))], tools });
    const stored = await lastPromptIds(gateway);
    const previous = [...messagesOf(asked), result("get_weather", "sunny")];
    await create({ model, previous_input_messages: previous, input: [], tools, store: false });
    expect(await lastPromptIds(gateway)).toEqual(stored);
  });

  it("may name their author in vLLM's own field", async () => {
    const previous = [
      { author: { role: "user", name: null }, content: text("One.") },
      { author: { role: "assistant" }, channel: "analysis", content: text("Hm.") },
      {
        author: { role: "assistant" },
        channel: "commentary",
        recipient: "functions.get_time",
        content_type: "<|constrain|>json",
        content: "{}",
      },
      {
        author: { role: "tool", name: "functions.get_time" },
        channel: "commentary",
        recipient: "assistant",
        content: text("noon"),
      },
    ];
    await create({ previous_input_messages: previous, input: [], tools });
    const turns = await lastTurns(gateway);
    expect(turns).toEqual([
      "user<|message|>One.<|end|>",
      "assistant<|channel|>analysis<|message|>Hm.<|end|>",
      "assistant<|channel|>commentary to=functions.get_time <|constrain|>json<|message|>{}<|call|>",
      "functions.get_time<|channel|>commentary to=assistant<|message|>noon<|end|>",
    ]);
    await create({
      previous_input_messages: [user("One."), thought("Hm."), call("get_time", "{}"), result("get_time", "noon")],
      input: [],
      tools,
    });
    expect(await lastTurns(gateway)).toEqual(turns);
  });

  it("may be chat messages", async () => {
    const previous = [
      { role: "user", content: "One." },
      {
        role: "assistant",
        content: "A moment.",
        reasoning: "Hm.",
        tool_calls: [{ id: "call_1", type: "function", function: { name: "get_time", arguments: "{}" } }],
      },
      { role: "tool", tool_call_id: "call_1", content: "noon" },
    ];
    await create({ previous_input_messages: previous, input: [], tools });
    expect(await lastTurns(gateway)).toEqual([
      "user<|message|>One.<|end|>",
      "assistant<|channel|>analysis<|message|>Hm.<|end|>",
      "assistant<|channel|>commentary<|message|>A moment.<|end|>",
      "assistant<|channel|>commentary to=functions.get_time <|constrain|>json<|message|>{}<|call|>",
      "functions.get_time<|channel|>commentary to=assistant<|message|>noon<|end|>",
    ]);
    await create({ previous_input_messages: [...previous, { role: "assistant", content: "Noon." }], input: "Two." });
    expect((await lastTurns(gateway)).slice(-2)).toEqual([
      "assistant<|channel|>final<|message|>Noon.<|end|>",
      "user<|message|>Two.<|end|>",
    ]);
  });

  it("of system and developer are replaced by the request's own", async () => {
    const first = await create({ input: "One.", instructions: "Old.", tools, reasoning: { effort: "low" } });
    await create({
      previous_input_messages: [...messagesOf(first), { role: "system", content: "Older." }],
      input: "Two.",
      instructions: "New.",
      reasoning: { effort: "high" },
    });
    const [systemMessage, developer, ...rest] = await lastMessages(gateway);
    expect(systemMessage).toContain("Reasoning: high");
    expect(developer).toBe("developer<|message|># Instructions\n\nNew.<|end|>");
    expect(rest.join("")).not.toMatch(/Old|get_weather|system/);
  });

  it("lose the reasoning before the last answer, as stored ones do", async () => {
    await create({ previous_input_messages: [user("One."), thought("Hm."), answer("Yes.")], input: "Two." });
    expect((await lastTurns(gateway)).join("")).not.toContain("Hm.");
    await create({ previous_input_messages: [user("One."), thought("Hm."), answer("Yes.")], input: [] });
    expect((await lastTurns(gateway)).join("")).not.toContain("Hm.");
  });

  describe.each([false, true])("of a stored turn (in the background: %s)", (background) => {
    const done = async (body: ResponseCreateParamsNonStreaming & Extras) => {
      const response = await create({ ...body, background });
      return (background ? await ended(gateway, response.id) : response) as WithMessages;
    };

    it.each([
      ["with input", "Two."],
      ["without input", []],
    ])("are seen by the turns that continue it: %s", async (_, input) => {
      const previous = [user("One."), answer("Yes."), user("One and a half.")];
      const first = await done({ previous_input_messages: previous, input });
      const asked = [
        "user<|message|>One.<|end|>",
        "assistant<|channel|>final<|message|>Yes.<|end|>",
        "user<|message|>One and a half.<|end|>",
        ...(input.length > 0 ? ["user<|message|>Two.<|end|>"] : []),
      ];
      expect(await lastTurns(gateway)).toEqual(asked);
      const second = await done({ previous_response_id: first.id, input: "Three." });
      const answered = [
        ...asked,
        `assistant<|channel|>final<|message|>You said: ${input.length > 0 ? "Two." : "One and a half."}<|end|>`,
        "user<|message|>Three.<|end|>",
      ];
      expect(await lastTurns(gateway)).toEqual(answered);
      await done({ previous_response_id: second.id, input: "Four." });
      expect(await lastTurns(gateway)).toEqual([
        ...answered,
        "assistant<|channel|>final<|message|>You said: Three.<|end|>",
        "user<|message|>Four.<|end|>",
      ]);
    });
  });

  it("are no input items of the response", async () => {
    const first = await create({ previous_input_messages: [user("One."), answer("Yes.")], input: "Two." });
    const items = await gateway.openai.responses.inputItems.list(first.id);
    expect(items.data).toMatchObject([{ type: "message", content: [{ text: "Two." }] }]);
  });

  it.each<[string, object, string]>([
    ["previous_response_id", { previous_response_id: "resp_1" }, "previous_response_id"],
    ["conversation", { conversation: "conv_1" }, "conversation"],
  ])("cannot be given together with %s", async (_, body, field) => {
    const response = await gateway.post({
      model: GPT_OSS,
      input: "Hello!",
      previous_input_messages: [user("One.")],
      ...body,
    });
    await expectError(response, {
      status: 400,
      param: "previous_input_messages",
      message: `Only one of \`previous_input_messages\` and \`${field}\` can be set.`,
    });
  });

  it("of null are none, and an empty list needs some input", async () => {
    expect((await create({ previous_input_messages: null, input: "Hello!" })).output_text).toBe("You said: Hello!");
    expect((await create({ previous_input_messages: [], input: "Hello!" })).output_text).toBe("You said: Hello!");
    const response = await gateway.post({ model: GPT_OSS, input: [], previous_input_messages: [] });
    await expectError(response, { status: 400, param: "input" });
  });
});

describe("a chat model", () => {
  it("gives the tokens of its prompt and of its output as one raw message each", async () => {
    const response = (await create({ model: "simulator", input: "Hello!" })) as unknown as Record<string, object[]>;
    const raw = { type: "raw_message_tokens", tokens: expect.arrayContaining([expect.any(Number)]) };
    expect(response.input_messages).toEqual([{ ...raw, message: expect.stringContaining("Hello!") }]);
    expect(response.output_messages).toEqual([{ ...raw, message: "You said: Hello!<|im_end|>" }]);
    expect(lastPrompt(gateway)).toMatchObject({ return_token_ids: true });
    const id = String((response as { id?: unknown }).id);
    expect(await gateway.openai.responses.retrieve(id)).toMatchObject({ output_messages: response.output_messages });
  });

  it("gives them in the events of a stream", async () => {
    await tolerating(gateway, GROWS, async () => {
      const body = { model: "simulator", input: "Hello!", stream: true as const };
      const events = await Array.fromAsync(
        await gateway.openai.responses.create({ ...body, ...{ enable_response_messages: true } }),
      );
      const [input_messages, output_messages] = [
        [{ type: "raw_message_tokens" }],
        [{ message: "You said: Hello!<|im_end|>" }],
      ];
      expect(events.flatMap((event) => ("response" in event ? [event.response] : []))).toMatchObject([
        { input_messages, output_messages: [] },
        { input_messages, output_messages: [] },
        { input_messages, output_messages },
      ]);
    });
  });

  it("accepts no previous_input_messages", async () => {
    const body = { model: "simulator", input: "Hello!", previous_input_messages: [user("One.")] };
    await expectError(await gateway.post(body), { status: 400, param: "previous_input_messages" });
    await expectError(await gateway.post({ ...body, background: true }), {
      status: 400,
      param: "previous_input_messages",
    });
  });

  it("is asked for no token ids without the field", async () => {
    await gateway.openai.responses.create({ model: "simulator", input: "Hello!" });
    expect(lastPrompt(gateway)).not.toHaveProperty("return_token_ids");
    await gateway.openai.responses.create({ model: GPT_OSS, input: "Hello!" });
    expect(lastCompletion(gateway)).toMatchObject({ return_token_ids: true });
  });
});
