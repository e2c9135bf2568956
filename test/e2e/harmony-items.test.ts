import type {
  Response,
  ResponseCreateParamsNonStreaming,
  ResponseInputItem,
  ResponseStreamEvent,
} from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { END, MESSAGE } from "../../dev/simulator/harmony-tokenizer.ts";
import {
  callsOf,
  completions,
  GPT_OSS,
  getTime,
  getWeather,
  idsOf,
  lastCompletion,
  lastCompletionPrompt,
  lastTurns,
  messagesOf,
  onlyCall,
  outputOf,
  resent,
  sampledIds,
  saying,
  tolerating,
  tools,
} from "./harmony-support.ts";
import { type Gateway, joinGateway } from "./support.ts";
import { ended } from "./turns.ts";

/** The output of gpt-oss as items and events. */

let gateway: Gateway;
beforeAll(async () => {
  gateway = await joinGateway();
});
afterAll(() => gateway.close());

const ANALYSIS = "<|channel|>analysis<|message|>";
const COMMENTARY = "<|channel|>commentary<|message|>";
const FINAL = "<|channel|>final<|message|>";
const NEXT = "<|end|><|start|>assistant";
const callTo = (name: string, args: string) =>
  `<|channel|>commentary to=functions.${name} <|constrain|>json<|message|>${args}<|call|>`;

const reasoning = (text: string, status = "completed") => ({
  type: "reasoning",
  id: expect.stringMatching(/^rs_/),
  status,
  summary: [],
  content: [{ type: "reasoning_text", text }],
});
const message = (phase: "commentary" | "final_answer", text: string, status = "completed") => ({
  type: "message",
  id: expect.stringMatching(/^msg_/),
  role: "assistant",
  status,
  phase,
  content: [{ type: "output_text", text, annotations: [], logprobs: [] }],
});
const call = (name: string, args: string, status = "completed") => ({
  type: "function_call",
  id: expect.stringMatching(/^fc_/),
  call_id: expect.stringMatching(/^.{1,64}$/),
  name,
  arguments: args,
  status,
});

/** The tokens of the first sampled message's text. */
function firstText(sampled: readonly number[]): number {
  return sampled.indexOf(END) - sampled.indexOf(MESSAGE) - 1;
}

/** `<|channel|>`, a channel's name, `<|message|>`, and `<|end|>`: the tokens around a text. */
const AROUND_TEXT = 4;

/** A response without the fields that the client's stream helper adds. */
function asSent(response: Response): Response {
  const added = ["parsed", "parsed_arguments"];
  return JSON.parse(JSON.stringify(response, (key, value: unknown) => (added.includes(key) ? undefined : value)));
}

type Way = "json" | "json, not stored" | "stream" | "stream, not stored" | "background";

async function ask(way: Way, body: ResponseCreateParamsNonStreaming): Promise<Response> {
  switch (way) {
    case "json":
      return gateway.openai.responses.create(body);
    case "json, not stored":
      return gateway.openai.responses.create({ ...body, store: false });
    case "stream":
      return asSent(await gateway.openai.responses.stream({ ...body, stream: true }).finalResponse());
    case "stream, not stored":
      return asSent(await gateway.openai.responses.stream({ ...body, stream: true, store: false }).finalResponse());
    case "background":
      return ended(gateway, (await gateway.openai.responses.create({ ...body, background: true })).id);
  }
}

describe.each<Way>(["json", "json, not stored", "stream", "stream, not stored", "background"])("as %s", (way) => {
  const create = (body: ResponseCreateParamsNonStreaming) => ask(way, { model: GPT_OSS, ...body });

  it("analysis is a reasoning item, and text on the final channel a message of phase final_answer", async () => {
    const response = await create({ input: "Hello!" });
    expect(response.status).toBe("completed");
    expect(response.output).toEqual([
      reasoning("The user said: Hello!. I should answer with effort medium."),
      message("final_answer", "You said: Hello!"),
    ]);
    expect(response.output_text).toBe("You said: Hello!");
  });

  it("a preamble is a message of phase commentary, before the call", async () => {
    const input = "Say a preamble, then call get_weather.";
    const response = await create({ input, tools });
    expect(response.output).toEqual([
      reasoning(`The user said: ${input}. I should answer with effort medium.`),
      message("commentary", "Let me look."),
      call("get_weather", '{"city":"city"}'),
    ]);
  });

  it("several reasoning messages and several preambles in one completion are separate items, in their order", async () => {
    const script = [
      `${ANALYSIS}One.`,
      `${ANALYSIS}Two.`,
      `${COMMENTARY}Three.`,
      `${COMMENTARY}Four.`,
      `${ANALYSIS}Five.`,
    ];
    const model = saying(`${script.join(NEXT)}${NEXT}${callTo("get_time", "{}")}`);
    const response = await create({ model, input: "Hello!", tools });
    expect(response.output).toEqual([
      reasoning("One."),
      reasoning("Two."),
      message("commentary", "Three."),
      message("commentary", "Four."),
      reasoning("Five."),
      call("get_time", "{}"),
    ]);
  });

  it("two calls in one completion are two items, and one with parallel_tool_calls: false", async () => {
    const model = `${saying(`${callTo("get_weather", '{"city":"Rome"}')}<|start|>assistant${callTo("get_time", "{}")}`)}&stops=0`;
    const both = await create({ model, input: "Hello!", tools });
    expect(both.output).toEqual([call("get_weather", '{"city":"Rome"}'), call("get_time", "{}")]);
    expect(new Set(callsOf(both).map(({ call_id }) => call_id)).size).toBe(2);
    const one = await create({ model, input: "Hello!", tools, parallel_tool_calls: false });
    expect(one.output).toEqual([call("get_weather", '{"city":"Rome"}')]);
  });

  it("usage counts every token, those of the analysis as reasoning", async () => {
    const response = await create({ input: "Hello!" });
    const body = lastCompletion(gateway);
    const sampled = await sampledIds(body);
    expect(firstText(sampled)).toBeGreaterThan(10);
    expect(response.usage).toMatchObject({
      input_tokens: (await idsOf(body)).length,
      output_tokens: sampled.length,
      output_tokens_details: { reasoning_tokens: firstText(sampled) },
      total_tokens: (await idsOf(body)).length + sampled.length,
    });
  });

  it("usage counts neither a preamble nor a call's arguments as reasoning", async () => {
    const response = await create({ input: "Say a preamble, then call get_weather.", tools });
    const sampled = await sampledIds(lastCompletion(gateway));
    expect(response.usage?.output_tokens).toBe(sampled.length);
    expect(response.usage?.output_tokens_details.reasoning_tokens).toBe(firstText(sampled));
    const withoutThoughts = await create({
      model: saying(callTo("get_weather", '{"city":"Rome"}')),
      input: "Hello!",
      tools,
    });
    expect(withoutThoughts.usage?.output_tokens_details.reasoning_tokens).toBe(0);
  });

  it("is incomplete when max_output_tokens ends the analysis", async () => {
    const response = await create({ input: "Hello!", max_output_tokens: 6 });
    expect(response).toMatchObject({ status: "incomplete", incomplete_details: { reason: "max_output_tokens" } });
    expect(response.output).toEqual([reasoning("The user said", "incomplete")]);
    expect(response.usage).toMatchObject({ output_tokens: 6, output_tokens_details: { reasoning_tokens: 3 } });
  });

  it("is incomplete when max_output_tokens ends the answer, and the analysis before it is complete", async () => {
    const [start, assistant, channel, final, head, word] = [1, 1, 1, 1, 1, 1];
    const whole = await create({ input: "Hello!" });
    const thoughts = whole.usage?.output_tokens_details.reasoning_tokens ?? 0;
    const limit = thoughts + AROUND_TEXT + start + assistant + channel + final + head + word;
    const response = await create({ input: "Hello!", max_output_tokens: limit });
    expect(response.incomplete_details).toEqual({ reason: "max_output_tokens" });
    expect(response.output).toEqual([
      reasoning("The user said: Hello!. I should answer with effort medium."),
      message("final_answer", "You", "incomplete"),
    ]);
    expect(response.usage?.output_tokens).toBe(limit);
  });

  it("is incomplete when max_output_tokens ends a call's arguments, and so is the call", async () => {
    const whole = saying(callTo("get_weather", '{"city":"Rome"}'));
    await create({ model: whole, input: "Hello!", tools });
    const limit = (await sampledIds(lastCompletion(gateway))).length - 3;
    const response = await create({ model: whole, input: "Hello!", tools, max_output_tokens: limit });
    expect(response.status).toBe("incomplete");
    expect(response.output).toEqual([call("get_weather", expect.stringMatching(/^\{"city/), "incomplete")]);
    expect(() => JSON.parse(onlyCall(response).arguments)).toThrow();
  });

  it("is incomplete when max_output_tokens ends the output between two messages", async () => {
    const whole = await create({ input: "Hello!" });
    const limit = (whole.usage?.output_tokens_details.reasoning_tokens ?? 0) + AROUND_TEXT + 2;
    // The checker expects an incomplete item, but here all items are complete.
    const response = await tolerating(gateway, /onlyLastItemIncomplete/, () =>
      create({ input: "Hello!", max_output_tokens: limit }),
    );
    expect(response).toMatchObject({ status: "incomplete", incomplete_details: { reason: "max_output_tokens" } });
    expect(response.output).toEqual([reasoning("The user said: Hello!. I should answer with effort medium.")]);
  });

  it("has no reasoning items with include_reasoning: false, but counts their tokens", async () => {
    const extras = { include_reasoning: false };
    const response = await create({ input: "Hello!", ...extras });
    expect(response.output).toEqual([message("final_answer", "You said: Hello!")]);
    const sampled = await sampledIds(lastCompletion(gateway));
    expect(response.usage?.output_tokens_details.reasoning_tokens).toBe(firstText(sampled));
  });

  it("calls no tool with tool_choice none, with the same prompt as any choice", async () => {
    const response = await create({ input: "Call get_weather.", tools, tool_choice: "none" });
    expect(response.output.map(({ type }) => type)).toEqual(["reasoning", "message"]);
    expect(response.tools).toHaveLength(2);
    const prompt = await lastCompletionPrompt(gateway);
    await create({ input: "Call get_weather.", tools });
    expect(await lastCompletionPrompt(gateway)).toBe(prompt);
  });

  it("calls a tool with tool_choice required, for any text", async () => {
    const response = await create({ input: "Hello!", tools, tool_choice: "required" });
    expect(onlyCall(response).name).toBe("get_weather");
  });

  it("calls the named tool", async () => {
    const tool_choice = { type: "function" as const, name: "get_time" };
    const response = await create({ input: "Call get_weather.", tools, tool_choice });
    expect(onlyCall(response).name).toBe("get_time");
  });

  it("calls the allowed tools only, with the same prompt as any choice", async () => {
    const tool_choice = {
      type: "allowed_tools" as const,
      mode: "auto" as const,
      tools: [{ type: "function", name: "get_time" }],
    };
    const response = await create({ input: "Call get_weather and get_time.", tools, tool_choice });
    expect(onlyCall(response).name).toBe("get_time");
    const prompt = await lastCompletionPrompt(gateway);
    await create({ input: "Call get_weather and get_time.", tools });
    expect(await lastCompletionPrompt(gateway)).toBe(prompt);
  });

  it("never shows a call of a tool that is not allowed", async () => {
    const tool_choice = {
      type: "allowed_tools" as const,
      mode: "auto" as const,
      tools: [{ type: "function", name: "get_time" }],
    };
    const model = saying(callTo("get_weather", "{}"));
    const response = await create({ model, input: "Hello!", tools, tool_choice });
    expect(callsOf(response)).toEqual([]);
    expect(response.status).toBe("completed");
    // After its call the model does not see the tool any more.
    const [first, second] = await Promise.all(
      completions(gateway)
        .slice(-2)
        .map(async ({ body }) => (await messagesOf(body)).join("")),
    );
    expect(first).toContain("type get_weather");
    expect(second).not.toContain("type get_weather");
    expect(second).toContain("type get_time");
  });
});

describe("a stream", () => {
  const eventsOf = async (body: ResponseCreateParamsNonStreaming): Promise<ResponseStreamEvent[]> =>
    Array.fromAsync(await gateway.openai.responses.create({ ...body, stream: true }));
  const typesOf = (events: ResponseStreamEvent[]) =>
    events.map(({ type }) => type).filter((type, index, all) => type !== all[index - 1]);
  const item = (...between: string[]) => ["response.output_item.added", ...between, "response.output_item.done"];
  const part = (...between: string[]) => item("response.content_part.added", ...between, "response.content_part.done");

  it("has the events of reasoning, a preamble and a call, one item after the other", async () => {
    const events = await eventsOf({ model: GPT_OSS, input: "Say a preamble, then call get_weather.", tools });
    expect(typesOf(events)).toEqual([
      "response.created",
      "response.in_progress",
      ...part("response.reasoning_text.delta", "response.reasoning_text.done"),
      ...part("response.output_text.delta", "response.output_text.done"),
      ...item("response.function_call_arguments.delta", "response.function_call_arguments.done"),
      "response.completed",
    ]);
    const added = events.filter((event) => event.type === "response.output_item.added");
    expect(added.map(({ output_index, item }) => [output_index, item.type])).toEqual([
      [0, "reasoning"],
      [1, "message"],
      [2, "function_call"],
    ]);
    expect(added[1]?.item).toMatchObject({ phase: "commentary", status: "in_progress" });
    expect(added[2]?.item).toMatchObject({ name: "get_weather", arguments: "" });
  });

  it("has the phase of an answer when the message begins", async () => {
    const events = await eventsOf({ model: GPT_OSS, input: "Hello!" });
    const added = events.filter((event) => event.type === "response.output_item.added");
    expect(added[1]?.item).toMatchObject({ type: "message", phase: "final_answer", content: [] });
  });

  it("has text as it is sampled, with many deltas for a sentence", async () => {
    const events = await eventsOf({ model: GPT_OSS, input: "one two three four five" });
    const deltas = events.filter((event) => event.type === "response.output_text.delta");
    expect(deltas.length).toBeGreaterThan(5);
    expect(deltas.map(({ delta }) => delta).join("")).toBe("You said: one two three four five");
  });

  it("ends with the response that retrieve gives", async () => {
    const events = await eventsOf({ model: GPT_OSS, input: "Say a preamble, then call get_weather.", tools });
    const last = events.at(-1);
    if (last?.type !== "response.completed") throw new Error(`The last event is ${last?.type}`);
    const { output_text: _, ...stored } = await gateway.openai.responses.retrieve(last.response.id);
    expect(last.response).toEqual(stored);
  });
});

describe("a loop of two tools and a next turn", () => {
  const question = "Use the tools, with a preamble.";

  /** Asks, answers every call, and says thanks. Gives vLLM's prompts. */
  async function converse(
    turn: (input: ResponseInputItem[], before: Response | undefined) => Promise<Response>,
  ): Promise<unknown[]> {
    const from = completions(gateway).length;
    let response = await turn([{ role: "user", content: question }], undefined);
    for (const output of ["sunny", "noon"]) {
      expect(response.output.map(({ type }) => type)).toEqual(["reasoning", "message", "function_call"]);
      response = await turn([outputOf(onlyCall(response), output)], response);
    }
    expect(response.output_text).toBe("The tool get_weather returned: sunny\nThe tool get_time returned: noon");
    response = await turn([{ role: "user", content: "Thanks!" }], response);
    expect(response.output_text).toBe("You said: Thanks!");
    const prompts = completions(gateway).slice(from);
    expect(prompts).toHaveLength(4);
    return prompts.map(({ body }) => body.prompt);
  }

  const body = { model: GPT_OSS, tools, instructions: "Be brief." };
  const byResponse = () =>
    converse((input, before) => gateway.openai.responses.create({ ...body, input, previous_response_id: before?.id }));

  it("gives the model the same prompts by previous_response_id and in a conversation", async () => {
    const { id: conversation } = await gateway.openai.conversations.create();
    const inConversation = await converse((input) => gateway.openai.responses.create({ ...body, input, conversation }));
    expect(inConversation).toEqual(await byResponse());
  });

  it("gives it the same prompts in the background", async () => {
    const inBackground = await converse(async (input, before) => {
      const create = { ...body, input, previous_response_id: before?.id, background: true };
      return ended(gateway, (await gateway.openai.responses.create(create)).id);
    });
    expect(inBackground).toEqual(await byResponse());
  });

  it.each([
    ["as they came", (items: Response["output"]) => items as ResponseInputItem[]],
    ["without their ids", resent],
  ])("gives it the same prompts when a client keeps all items and returns them %s", async (_, back) => {
    for (const store of [false, true]) {
      const kept: ResponseInputItem[] = [];
      const stateless = await converse(async (input) => {
        kept.push(...input);
        const response = await gateway.openai.responses.create({ ...body, input: kept, store });
        kept.push(...back(response.output));
        return response;
      });
      expect(stateless).toEqual(await byResponse());
    }
  });

  it("shows the model its reasoning within the loop, and none of it after its answer", async () => {
    const from = completions(gateway).length;
    await byResponse();
    const prompts = await Promise.all(
      completions(gateway)
        .slice(from)
        .map(({ body }) => messagesOf(body)),
    );
    const counts = prompts.map((messages) => messages.filter((each) => each.includes("<|channel|>analysis")).length);
    expect(counts).toEqual([0, 1, 2, 0]);
  });

  it("shows it its reasoning also when it is hidden from the client", async () => {
    const extras = { include_reasoning: false };
    const asked = await gateway.openai.responses.create({ ...body, input: "Call get_time.", ...extras });
    expect(asked.output.map(({ type }) => type)).toEqual(["function_call"]);
    const input = [outputOf(onlyCall(asked), "noon")];
    await gateway.openai.responses.create({ ...body, previous_response_id: asked.id, input });
    expect(await lastTurns(gateway)).toEqual([
      "user<|message|>Call get_time.<|end|>",
      "assistant<|channel|>analysis<|message|>The user said: Call get_time.. I should answer with effort medium.<|end|>",
      "assistant<|channel|>commentary to=functions.get_time <|constrain|>json<|message|>{}<|call|>",
      "functions.get_time<|channel|>commentary to=assistant<|message|>noon<|end|>",
    ]);
  });
});

describe("a response that was cut off", () => {
  it("leaves an unfinished call out of the next prompt", async () => {
    const model = saying(callTo("get_weather", '{"city":"Rome"}'));
    const cut = await gateway.openai.responses.create({ model, input: "One.", tools, max_output_tokens: 12 });
    expect(onlyCall(cut).status).toBe("incomplete");
    const next = { model: GPT_OSS, previous_response_id: cut.id, input: "Two.", tools };
    expect((await gateway.openai.responses.create(next)).status).toBe("completed");
    expect(await lastTurns(gateway)).toEqual(["user<|message|>One.<|end|>", "user<|message|>Two.<|end|>"]);
  });

  it("leaves an unfinished answer in the next prompt", async () => {
    const cut = await gateway.openai.responses.create({
      model: saying(`${FINAL}One two three four.<|return|>`),
      input: "One.",
      max_output_tokens: 5,
    });
    expect(cut.output_text).toBe("One two");
    await gateway.openai.responses.create({ model: GPT_OSS, previous_response_id: cut.id, input: "Two." });
    expect(await lastTurns(gateway)).toEqual([
      "user<|message|>One.<|end|>",
      "assistant<|channel|>final<|message|>One two<|end|>",
      "user<|message|>Two.<|end|>",
    ]);
  });
});

describe("an answer that was cut off", () => {
  const cutOff = () => gateway.openai.responses.create({ model: GPT_OSS, input: "Hello!", max_output_tokens: 26 });

  it("continues at its end when the client continues it without any input", async () => {
    const cut = await cutOff();
    expect(cut).toMatchObject({ status: "incomplete", output_text: "You said: Hello" });
    const body = { model: GPT_OSS, previous_response_id: cut.id, input: [] };
    const rest = await gateway.openai.responses.create(body);
    expect((await lastCompletionPrompt(gateway)).endsWith("<|channel|>final<|message|>You said: Hello")).toBe(true);
    expect(rest.output).toEqual([message("final_answer", "!")]);
    const streamed = await gateway.openai.responses.stream(body).finalResponse();
    expect(asSent(streamed).output).toEqual([message("final_answer", "!")]);
  });

  it("continues also when the client returns it itself", async () => {
    const cut = await cutOff();
    const input: ResponseInputItem[] = [{ role: "user", content: "Hello!" }, ...resent(cut.output)];
    const rest = await gateway.openai.responses.create({ model: GPT_OSS, input, store: false });
    expect((await lastCompletionPrompt(gateway)).endsWith("<|channel|>final<|message|>You said: Hello")).toBe(true);
    expect(rest.output).toMatchObject([{ type: "message", phase: "final_answer", status: "completed" }]);
  });
});

it("does not put a call that parallel_tool_calls: false has left out into the next prompt", async () => {
  const args = '{"city":"Rome"}';
  const model = `${saying(`${callTo("get_weather", args)}<|start|>assistant${callTo("get_time", "{}")}`)}&stops=0`;
  const asked = await gateway.openai.responses.create({ model, input: "Hello!", tools, parallel_tool_calls: false });
  const input = [outputOf(onlyCall(asked))];
  await gateway.openai.responses.create({ model: GPT_OSS, previous_response_id: asked.id, input, tools });
  expect(await lastTurns(gateway)).toEqual([
    "user<|message|>Hello!<|end|>",
    `assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>${args}<|call|>`,
    "functions.get_weather<|channel|>commentary to=assistant<|message|>sunny<|end|>",
  ]);
});

it("has the client's tools as functions of the developer message", async () => {
  await gateway.openai.responses.create({ model: GPT_OSS, input: "Hello!", tools: [getWeather, getTime] });
  const prompt = await lastCompletionPrompt(gateway);
  expect(prompt).toContain("// The weather in a city.\ntype get_weather = (_: {\ncity: string,\n}) => any;");
  expect(prompt).toContain("Calls to these tools must go to the commentary channel: 'functions'.");
});
