import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { zodTextFormat } from "openai/helpers/zod";
import type {
  Response,
  ResponseCreateParamsNonStreaming,
  ResponseInputItem,
  ResponseOutputItem,
  ResponseOutputText,
  ResponseStreamEvent,
} from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { eventually, type Gateway, joinGateway, lastPrompt, startGateway } from "./support.ts";

let gateway: Gateway;
beforeAll(async () => {
  gateway = await joinGateway();
});
afterAll(() => gateway.close());

const weatherTool = {
  type: "function",
  name: "get_weather",
  parameters: { type: "object", properties: { city: { type: "string" } } },
  strict: false,
} as const;

function firstText(response: Response): ResponseOutputText {
  for (const item of response.output) {
    const part = item.type === "message" ? item.content[0] : undefined;
    if (part?.type === "output_text") return part;
  }
  throw new Error("The response has no text.");
}

async function eventsOf(body: ResponseCreateParamsNonStreaming): Promise<ResponseStreamEvent[]> {
  return Array.fromAsync(await gateway.openai.responses.create({ ...body, stream: true }));
}

describe.each(["json", "stream"] as const)("create, answered as %s", (way) => {
  async function create(body: ResponseCreateParamsNonStreaming): Promise<Response> {
    if (way === "json") return gateway.openai.responses.create(body);
    return gateway.openai.responses.stream({ ...body, stream: true }).finalResponse();
  }

  it("answers a string with one message", async () => {
    const response = await create({ model: "simulator", input: "Hello!" });
    expect(response.status).toBe("completed");
    expect(response.output).toMatchObject([
      {
        type: "message",
        id: expect.stringMatching(/^msg_/),
        role: "assistant",
        status: "completed",
        content: [{ type: "output_text", text: "You said: Hello!", annotations: [], logprobs: [] }],
      },
    ]);
    expect(response.completed_at).toBeGreaterThanOrEqual(response.created_at);
    expect(lastPrompt(gateway).messages).toEqual([{ role: "user", content: "Hello!" }]);
  });

  it("has reasoning in an item of its own before the message", async () => {
    const response = await create({ model: "simulator-reasoning", input: "Hello!" });
    expect(response.output.map(({ type }) => type)).toEqual(["reasoning", "message"]);
    expect(response.output[0]).toEqual({
      type: "reasoning",
      id: expect.stringMatching(/^rs_/),
      status: "completed",
      summary: [],
      content: [{ type: "reasoning_text", text: expect.stringContaining("The user said: Hello!") }],
    });
    expect(response.output_text).toBe("You said: Hello!");
    expect(response.usage?.output_tokens_details.reasoning_tokens).toBeGreaterThan(5);
  });

  it("reads reasoning_content of older vLLMs, and reasoning under both names once", async () => {
    const today = await create({ model: "simulator-reasoning", input: "Hello!" });
    for (const field of ["reasoning_content", "both"]) {
      const older = await create({ model: `simulator-reasoning?reasoning_field=${field}`, input: "Hello!" });
      expect(older.output[0]).toMatchObject({ content: (today.output[0] as { content: unknown }).content });
    }
  });

  it("leaves reasoning out with include_reasoning: false", async () => {
    const extras = { include_reasoning: false };
    const response = await create({ model: "simulator-reasoning", input: "Hello!", ...extras });
    expect(response.output.map(({ type }) => type)).toEqual(["message"]);
    expect(lastPrompt(gateway)).toMatchObject(extras);
  });

  it("sends the effort to the chat template, and echoes it", async () => {
    const model = "simulator-reasoning";
    const response = await create({ model, input: "Hello!", reasoning: { effort: "high", summary: "auto" } });
    expect(response.output[0]).toMatchObject({ summary: [{ text: expect.stringContaining("with effort high") }] });
    expect(response.reasoning).toMatchObject({ effort: "high", summary: "auto" });
    expect(lastPrompt(gateway).chat_template_kwargs).toEqual({ reasoning_effort: "high", enable_thinking: true });
    expect(lastPrompt(gateway).reasoning_effort).toBe("high");
  });

  it("sends efforts that older vLLMs refuse as reasoning_effort only to the template", async () => {
    const response = await create({ model: "simulator-reasoning", input: "Hello!", reasoning: { effort: "xhigh" } });
    expect(response.output[0]).toMatchObject({ content: [{ text: expect.stringContaining("with effort xhigh") }] });
    expect(lastPrompt(gateway)).not.toHaveProperty("reasoning_effort");
  });

  it("does not reason with effort none", async () => {
    const response = await create({ model: "simulator-reasoning", input: "Hello!", reasoning: { effort: "none" } });
    expect(response.output.map(({ type }) => type)).toEqual(["message"]);
    expect(lastPrompt(gateway).chat_template_kwargs).toEqual({ reasoning_effort: "none", enable_thinking: false });
  });

  it("prefers the client's own template variables to those from the effort", async () => {
    const extras = { chat_template_kwargs: { enable_thinking: false, style: "plain" } };
    await create({ model: "simulator", input: "Hello!", reasoning: { effort: "low" }, ...extras });
    expect(lastPrompt(gateway).chat_template_kwargs).toEqual({
      reasoning_effort: "low",
      enable_thinking: false,
      style: "plain",
    });
  });

  it("has a refusal as a refusal part", async () => {
    const response = await create({ model: "simulator?refusal=1", input: "Hello!" });
    expect(response.status).toBe("completed");
    expect(response.output).toMatchObject([
      { type: "message", content: [{ type: "refusal", refusal: "I cannot help with that." }] },
    ]);
    expect(response.output_text).toBe("");
  });

  it("follows a JSON schema", async () => {
    const schema = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
    const format = { type: "json_schema", name: "person", schema, strict: true, description: "A person." } as const;
    const response = await create({ model: "simulator", input: "Who?", text: { format } });
    expect(JSON.parse(response.output_text)).toEqual({ name: "name" });
    expect(response.text).toEqual({ format, verbosity: "medium" });
    const { type, ...jsonSchema } = format;
    expect(lastPrompt(gateway).response_format).toEqual({ type, json_schema: jsonSchema });
  });

  it("answers in JSON with json_object", async () => {
    const text = { format: { type: "json_object" } } as const;
    const response = await create({ model: "simulator", input: "Answer in JSON.", text });
    expect(JSON.parse(response.output_text)).toEqual({ answer: "You said: Answer in JSON." });
    expect(response.text?.format).toEqual({ type: "json_object" });
    expect(lastPrompt(gateway).response_format).toEqual({ type: "json_object" });
  });

  it("sends no response_format for plain text", async () => {
    await create({ model: "simulator", input: "Hello!", text: { format: { type: "text" } } });
    expect(lastPrompt(gateway)).not.toHaveProperty("response_format");
  });

  it("follows vLLM's structured_outputs", async () => {
    const extras = { structured_outputs: { choice: ["positive", "negative"] } };
    const response = await create({ model: "simulator", input: "How was it?", ...extras });
    expect(response.output_text).toBe("positive");
  });

  it("has the requested logprobs", async () => {
    const include = ["message.output_text.logprobs" as const];
    const response = await create({ model: "simulator", input: "Hello!", include, top_logprobs: 2 });
    const { text, logprobs = [] } = firstText(response);
    expect(logprobs.map(({ token }) => token).join("")).toBe(text);
    for (const { token, logprob, bytes, top_logprobs } of logprobs) {
      expect(logprob).toBeLessThanOrEqual(0);
      expect(new TextDecoder().decode(Uint8Array.from(bytes))).toBe(token);
      expect(top_logprobs.map((entry) => entry.token)).toEqual([token, `${token}1`]);
    }
    expect(response.top_logprobs).toBe(2);
  });

  it("has no logprobs without a request for them, also with top_logprobs", async () => {
    const response = await create({ model: "simulator", input: "Hello!", top_logprobs: 2 });
    expect(firstText(response).logprobs).toEqual([]);
    expect(lastPrompt(gateway)).not.toHaveProperty("logprobs");
    expect(lastPrompt(gateway)).not.toHaveProperty("top_logprobs");
  });

  it("is incomplete when the text reaches max_output_tokens", async () => {
    const response = await create({ model: "simulator", input: "Hello!", max_output_tokens: 2 });
    expect(response.status).toBe("incomplete");
    expect(response.incomplete_details).toEqual({ reason: "max_output_tokens" });
    expect(response.completed_at).toBeNull();
    expect(response.output).toMatchObject([{ type: "message", status: "incomplete", content: [{ text: "You said" }] }]);
    expect(response.usage?.output_tokens).toBe(2);
    expect(response.max_output_tokens).toBe(2);
  });

  it("is incomplete when the reasoning alone reaches max_output_tokens", async () => {
    const response = await create({ model: "simulator-reasoning", input: "Hello!", max_output_tokens: 4 });
    expect(response.incomplete_details).toEqual({ reason: "max_output_tokens" });
    expect(response.output).toMatchObject([
      { type: "reasoning", status: "incomplete", content: [{ text: "The user said" }] },
    ]);
  });

  it("has complete reasoning when the limit is in the message after it", async () => {
    const whole = await create({ model: "simulator-reasoning", input: "Hello!" });
    // The marks around the reasoning are tokens, too.
    const limit = (whole.usage?.output_tokens_details.reasoning_tokens ?? 0) + 3;
    const response = await create({ model: "simulator-reasoning", input: "Hello!", max_output_tokens: limit });
    expect(response.output).toMatchObject([
      { type: "reasoning", status: "completed" },
      { type: "message", status: "incomplete", content: [{ text: "You" }] },
    ]);
  });

  it("is incomplete when a function call is truncated, and so is the call", async () => {
    const response = await create({
      model: "simulator",
      input: "Call get_weather.",
      tools: [weatherTool],
      max_output_tokens: 13,
    });
    expect(response.status).toBe("incomplete");
    expect(response.output).toMatchObject([{ type: "function_call", name: "get_weather", status: "incomplete" }]);
    expect(() => JSON.parse((response.output[0] as { arguments: string }).arguments)).toThrow();
  });

  it("is incomplete when the second of two calls is truncated, which alone is incomplete", async () => {
    const tools = [weatherTool, { ...weatherTool, name: "get_time" }];
    const response = await create({ model: "simulator", input: "Use the tools.", tools, max_output_tokens: 30 });
    expect(response.output).toMatchObject([
      { name: "get_weather", status: "completed", arguments: '{"city":"city"}' },
      { name: "get_time", status: "incomplete" },
    ]);
  });

  it("stops at a stop string", async () => {
    const response = await create({ model: "simulator", input: "one two three", ...{ stop: " two" } });
    expect(response.status).toBe("completed");
    expect(response.output_text).toBe("You said: one");
  });

  it("answers an empty generation with a completed response", async () => {
    const response = await create({ model: "simulator?words=0", input: "Hello!" });
    expect(response.status).toBe("completed");
    expect(response.output_text).toBe("");
  });

  it("counts tokens, also cached ones", async () => {
    const input = `Count to ten. ${"one two three four five six seven eight nine ten ".repeat(8)}`;
    const extras = { cache_salt: `usage-${way}` };
    const first = await create({ model: "simulator", input, ...extras });
    const second = await create({ model: "simulator", input, ...extras });
    const { usage } = second;
    expect(first.usage?.input_tokens_details.cached_tokens).toBe(0);
    expect(usage?.input_tokens).toBe(first.usage?.input_tokens);
    expect(usage?.input_tokens_details.cached_tokens).toBeGreaterThan(64);
    expect(usage?.total_tokens).toBe((usage?.input_tokens ?? 0) + (usage?.output_tokens ?? 0));
    expect(usage?.output_tokens_details).toEqual({ reasoning_tokens: 0 });
  });

  it("counts no cached tokens if vLLM gives none, and has no usage if vLLM gives none", async () => {
    const silent = await create({ model: "simulator?cached=0", input: "Hello!" });
    expect(silent.usage?.input_tokens_details).toEqual({ cached_tokens: 0, cache_write_tokens: 0 });
    const none = await create({ model: "simulator?usage=0", input: "Hello!" });
    expect(none.usage).toBeNull();
  });

  it("does not store a response with store: false", async () => {
    const response = await create({ model: "simulator", input: "Hello!", store: false });
    expect(response).toMatchObject({ store: false });
    await expect(gateway.openai.responses.retrieve(response.id)).rejects.toMatchObject({
      status: 404,
      code: "response_not_found",
    });
  });
});

describe("create", () => {
  it("streams the same answer that retrieve gives afterwards", async () => {
    const stream = gateway.openai.responses.stream({ model: "simulator-reasoning", input: "Hello!" });
    const final = await stream.finalResponse();
    expect(final.output.map((item) => item.type)).toEqual(["reasoning", "message"]);
    const { output_text, ...stored } = await gateway.openai.responses.retrieve(final.id);
    expect(output_text).toBe("You said: Hello!");
    expect(final).toMatchObject(stored);
  });

  it("parses structured output with zod", async () => {
    const format = zodTextFormat(z.object({ name: z.string(), age: z.number() }), "person");
    const body = { model: "simulator", input: "Who?", text: { format } };
    const person = { name: expect.any(String), age: expect.any(Number) };
    const response = await gateway.openai.responses.parse(body);
    expect(response.output_parsed).toEqual(person);
    const streamed = await gateway.openai.responses.stream(body).finalResponse();
    expect(streamed.output_parsed).toEqual(person);
  });

  it("has every key that Open Responses requires, also for the smallest request", async () => {
    const answer = await gateway.post({ input: "Hello!" });
    const body = (await answer.json()) as Record<string, unknown>;
    expect(body).toEqual({
      id: expect.stringMatching(/^resp_[0-9A-Za-z]{32}$/),
      object: "response",
      access_programs: null,
      created_at: expect.any(Number),
      completed_at: expect.any(Number),
      status: "completed",
      background: false,
      conversation: null,
      error: null,
      frequency_penalty: 0,
      incomplete_details: null,
      instructions: null,
      max_output_tokens: null,
      max_tool_calls: null,
      metadata: {},
      model: "simulator",
      moderation: null,
      output: [expect.objectContaining({ type: "message" })],
      parallel_tool_calls: true,
      presence_penalty: 0,
      previous_response_id: null,
      prompt: null,
      prompt_cache_key: null,
      prompt_cache_retention: null,
      reasoning: null,
      safety_identifier: null,
      service_tier: "default",
      store: true,
      temperature: 1,
      text: { format: { type: "text" }, verbosity: "medium" },
      tool_choice: "auto",
      tools: [],
      top_logprobs: 0,
      top_p: 1,
      truncation: "disabled",
      usage: {
        input_tokens: expect.any(Number),
        input_tokens_details: { cached_tokens: expect.any(Number), cache_write_tokens: 0 },
        output_tokens: expect.any(Number),
        output_tokens_details: { reasoning_tokens: 0 },
        total_tokens: expect.any(Number),
      },
      user: null,
    });
  });

  it("echoes the request's fields, including hints", async () => {
    const echoed = {
      instructions: "Be brief.",
      max_output_tokens: 100,
      max_tool_calls: 3,
      metadata: { project: "tests", run: "1" },
      model: "simulator",
      parallel_tool_calls: false,
      prompt_cache_key: "key",
      prompt_cache_retention: "24h" as const,
      reasoning: { effort: "low" as const, summary: "concise" as const },
      safety_identifier: "somebody",
      store: false,
      temperature: 0.5,
      text: { format: { type: "text" as const }, verbosity: "low" as const },
      tool_choice: { type: "function" as const, name: "get_weather" },
      top_logprobs: 3,
      top_p: 0.9,
      truncation: "auto" as const,
      user: "somebody-else",
      presence_penalty: 0.25,
      frequency_penalty: -0.25,
    };
    const response = await gateway.openai.responses.create({ ...echoed, tools: [weatherTool], input: "Hello!" });
    expect(response).toMatchObject(echoed);
    const { temperature, top_p } = lastPrompt(gateway);
    expect({ temperature, top_p }).toEqual({ temperature: 0.5, top_p: 0.9 });
  });

  it("echoes a function tool with all four keys, nulls filled in, and whether it is strict", async () => {
    const response = await gateway.post({ input: "Hello!", tools: [{ type: "function", name: "ping" }] });
    expect(await response.json()).toMatchObject({
      tools: [{ type: "function", name: "ping", description: null, parameters: null, strict: false }],
    });
  });

  it.each(["auto", "default", "flex", "priority"] as const)(
    "has the service tier 'default' for '%s', because there is no other",
    async (service_tier) => {
      const response = await gateway.openai.responses.create({ input: "Hello!", service_tier });
      expect(response.service_tier).toBe("default");
    },
  );

  it.each([{ generate: false }, { prompt_cache_options: { prewarm: true } }])(
    "sends the model nothing with %j, and gives an id to continue from",
    async (fields) => {
      gateway.vllm.simulator.requests.length = 0;
      const prepared = await (await gateway.post({ model: "simulator", input: "Prepared", ...fields })).json();
      expect(prepared).toMatchObject({ status: "completed", output: [], usage: { total_tokens: 0 } });
      const streamed = await gateway.post({ model: "simulator", input: "Prepared", stream: true, ...fields });
      expect((await streamed.text()).match(/^event: .*/gm)).toEqual([
        "event: response.created",
        "event: response.completed",
      ]);
      expect(gateway.vllm.simulator.requests.map(({ path }) => path)).not.toContain("/v1/chat/completions");
      await gateway.openai.responses.create({ input: "Go on", previous_response_id: (prepared as { id: string }).id });
      expect(lastPrompt(gateway).messages).toMatchObject([{ content: "Prepared" }, { content: "Go on" }]);
    },
  );

  it("reads null as absent in every optional field", async () => {
    const fields =
      "instructions previous_response_id tools tool_choice parallel_tool_calls max_output_tokens max_tool_calls temperature top_p top_logprobs text reasoning include store stream stream_options metadata truncation service_tier safety_identifier prompt_cache_key prompt_cache_retention user background conversation prompt context_management moderation model top_k min_p seed stop structured_outputs chat_template_kwargs";
    const nulls = Object.fromEntries(fields.split(" ").map((field) => [field, null]));
    const [given, absent] = await Promise.all([
      gateway.post({ input: "Hello!", ...nulls }),
      gateway.post({ input: "Hello!" }),
    ]);
    const volatile = { id: "", created_at: 0, completed_at: 0, output: [], usage: null };
    expect({ ...(await given.json()), ...volatile }).toEqual({ ...(await absent.json()), ...volatile });
  });

  it("uses vLLM's first model when none is named", async () => {
    const response = await gateway.openai.responses.create({ input: "Hello!" });
    expect(response.model).toBe("simulator");
    expect(lastPrompt(gateway).model).toBe("simulator");
  });

  it("passes vLLM's own fields through under their names", async () => {
    const extras = {
      top_k: 20,
      min_p: 0.1,
      repetition_penalty: 1.1,
      presence_penalty: 0.5,
      frequency_penalty: -0.5,
      seed: 7,
      stop_token_ids: [1, 2],
      ignore_eos: true,
      include_stop_str_in_output: true,
      skip_special_tokens: false,
      logit_bias: { "5": -1 },
      priority: 3,
      structured_outputs: { choice: ["yes", "no"] },
      chat_template_kwargs: { style: "plain" },
      mm_processor_kwargs: { num_crops: 4 },
      vllm_xargs: { depth: 1 },
      kv_transfer_params: { do_remote_decode: true },
      include_reasoning: true,
    };
    const stop = ["never", "ever"];
    await gateway.openai.responses.create({ input: "Hello!", max_output_tokens: 8, stop, ...extras } as object);
    expect(lastPrompt(gateway)).toMatchObject(extras);
    // vLLM would find the stop string in reasoning and calls, too.
    expect(lastPrompt(gateway)).not.toHaveProperty("stop");
    // vLLM gives the parameters of a transfer only in an answer that is not streamed.
    expect(lastPrompt(gateway).stream).toBe(false);
  });

  it("combines a client's cache_salt with its tenant's", async () => {
    const salts = new Map<string | undefined, unknown>();
    for (const cache_salt of ["first-salt", "second-salt", undefined]) {
      await gateway.openai.responses.create({ input: "Hello!", ...{ cache_salt } });
      salts.set(cache_salt, lastPrompt(gateway).cache_salt);
    }
    expect(new Set(salts.values()).size).toBe(3);
    await gateway.openai.responses.create({ input: "Another.", ...{ cache_salt: "first-salt" } });
    expect(lastPrompt(gateway).cache_salt).toBe(salts.get("first-salt"));
    expect(String(salts.get("first-salt"))).not.toContain("first-salt");
  });

  it("accepts unknown fields, and does not pass them on", async () => {
    const response = await gateway.openai.responses.create({ input: "Hello!", ...{ client_metadata: { a: 1 } } });
    expect(response.status).toBe("completed");
    expect(response).not.toHaveProperty("client_metadata");
    expect(lastPrompt(gateway)).not.toHaveProperty("client_metadata");
  });

  it("accepts unknown fields of items and tools, and does not pass them on", async () => {
    // The usual client checks that tools are echoed as they were sent.
    const answer = await fetch(`${gateway.url}/v1/responses`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({
        input: [{ role: "user", content: [{ type: "input_text", text: "Hello!", hint: "a" }], hint: "b" }],
        tools: [{ type: "function", name: "get_time", parameters: { type: "object" }, strict: false, hint: "c" }],
      }),
    });
    const response = (await answer.json()) as Response;
    expect(response.tools).toMatchObject([{ name: "get_time" }]);
    expect(JSON.stringify([response, lastPrompt(gateway)])).not.toContain("hint");
  });
});

describe("the prompt", () => {
  async function messagesFor(input: ResponseInputItem[], instructions?: string): Promise<unknown> {
    await gateway.openai.responses.create({ input, instructions });
    return lastPrompt(gateway).messages;
  }

  it("begins with the instructions", async () => {
    expect(await messagesFor([{ role: "user", content: "Hello!" }], "Be brief.")).toEqual([
      { role: "system", content: "Be brief." },
      { role: "user", content: "Hello!" },
    ]);
  });

  it("joins system and developer messages at the beginning with the instructions", async () => {
    const input: ResponseInputItem[] = [
      { role: "system", content: "Speak French." },
      { role: "developer", content: [{ type: "input_text", text: "Never swear." }] },
      { role: "user", content: "Hello!" },
    ];
    expect(await messagesFor(input, "Be brief.")).toEqual([
      { role: "system", content: "Be brief.\n\nSpeak French.\n\nNever swear." },
      { role: "user", content: "Hello!" },
    ]);
  });

  it("leaves later system and developer messages where they are", async () => {
    const input: ResponseInputItem[] = [
      { role: "user", content: "Hello!" },
      { role: "assistant", content: "Hi." },
      { role: "developer", content: "Now in French." },
      { role: "user", content: "Again!" },
      { role: "system", content: "Be quick." },
    ];
    expect(await messagesFor(input)).toEqual([
      { role: "user", content: "Hello!" },
      { role: "assistant", content: "Hi." },
      { role: "system", content: "Now in French." },
      { role: "user", content: "Again!" },
      { role: "system", content: "Be quick." },
    ]);
  });

  it("moves later system messages to the beginning for a template that requires it", async () => {
    const server = await strictTemplate(gateway.vllm.url);
    const strict = await startGateway({ VLLM_BASE_URL: `${server.url}/v1` });
    try {
      const response = await strict.openai.responses.create({
        instructions: "Be brief.",
        input: [
          { role: "user", content: "Hello!" },
          { role: "developer", content: "Now in French." },
        ],
      });
      expect(response.output_text).toBe("You said: Hello!");
      expect(lastPrompt(gateway).messages).toEqual([
        { role: "system", content: "Be brief.\n\nNow in French." },
        { role: "user", content: "Hello!" },
      ]);
    } finally {
      await strict.close();
      server.close();
    }
  });
});

describe("truncation", () => {
  const model = "simulator?max_model_len=100";
  /** Each turn costs the same: 9 tokens for the question, 9 for the answer. */
  const turns = Array.from({ length: 8 }, (_, index): ResponseInputItem[] => [
    { role: "user", content: `question ${index} a b c d` },
    { role: "assistant", content: `answer ${index} a b c d` },
  ]).flat();
  const input: ResponseInputItem[] = [...turns, { role: "user", content: "The last one." }];

  it.each([undefined, "disabled"] as const)("%s: a prompt that is too long is refused", async (truncation) => {
    await expect(gateway.openai.responses.create({ model, input, truncation })).rejects.toMatchObject({
      status: 400,
      code: "context_length_exceeded",
      param: "input",
    });
  });

  it("auto: the oldest turns are dropped until the prompt fits, and system messages stay", async () => {
    const instructions = "Be brief.";
    const middle: ResponseInputItem = { role: "developer", content: "Stay polite." };
    const response = await gateway.openai.responses.create({
      model,
      instructions,
      input: [...input.slice(0, 4), middle, ...input.slice(4)],
      truncation: "auto",
    });
    expect(response.status).toBe("completed");
    expect(response.output_text).toBe("You said: The last one.");
    const messages = lastPrompt(gateway).messages as { role: string; content: string }[];
    const kept = messages.length - 2;
    expect(messages).toEqual([
      { role: "system", content: "Be brief.\n\nStay polite." },
      ...turns.slice(turns.length - kept),
      { role: "user", content: "The last one." },
    ]);
    expect(kept).toBeGreaterThan(0);
    // Another turn would leave less than 16 tokens for the answer.
    const more = [messages[0], ...turns.slice(turns.length - kept - 2), messages.at(-1)];
    const size = await fetch(`${gateway.vllm.url}/tokenize`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model, messages: more }),
    });
    expect(((await size.json()) as { count: number }).count).toBeGreaterThan(100 - 16);
  });

  it("auto: a last turn that does not fit by itself is refused", async () => {
    const body = { model, input: "word ".repeat(200), truncation: "auto" as const };
    await expect(gateway.openai.responses.create(body)).rejects.toMatchObject({
      status: 400,
      code: "context_length_exceeded",
    });
  });

  it("auto: turns that were dropped from the prompt are still in the conversation", async () => {
    const first = await gateway.openai.responses.create({ model, input, truncation: "auto" });
    await gateway.openai.responses.create({ previous_response_id: first.id, model: "simulator", input: "All of it." });
    expect(lastPrompt(gateway).messages).toEqual([
      ...input,
      { role: "assistant", content: "You said: The last one." },
      { role: "user", content: "All of it." },
    ]);
  });
});

describe("the stream", () => {
  it("has all events of reasoning and a message", async () => {
    const events = await eventsOf({ model: "simulator-reasoning", input: "Hello!" });
    const types = events.map(({ type }) => type).filter((type, index, all) => type !== all[index - 1]);
    expect(types).toEqual([
      "response.created",
      "response.in_progress",
      "response.output_item.added",
      "response.content_part.added",
      "response.reasoning_text.delta",
      "response.reasoning_text.done",
      "response.content_part.done",
      "response.output_item.done",
      "response.output_item.added",
      "response.content_part.added",
      "response.output_text.delta",
      "response.output_text.done",
      "response.content_part.done",
      "response.output_item.done",
      "response.completed",
    ]);
    expect(events.map(({ sequence_number }) => sequence_number)).toEqual(events.map((_, index) => index));
  });

  it("has a refusal in refusal events", async () => {
    const events = await eventsOf({ model: "simulator?refusal=1", input: "Hello!" });
    const types = new Set(events.map(({ type }) => type));
    expect(types).toContain("response.refusal.delta");
    expect(types).toContain("response.refusal.done");
    expect(types).not.toContain("response.output_text.delta");
  });

  it("has a delta per token, with its logprobs on request", async () => {
    const include = ["message.output_text.logprobs" as const];
    const events = await eventsOf({ model: "simulator", input: "a b c", include, top_logprobs: 1 });
    const deltas = events.filter((event) => event.type === "response.output_text.delta");
    expect(deltas.map(({ delta }) => delta)).toEqual(["You", " said", ":", " a", " b", " c"]);
    for (const { delta, logprobs } of deltas) {
      expect(logprobs).toMatchObject([{ token: delta, top_logprobs: [{ token: delta }] }]);
    }
  });

  it("hides the length of tokens by default", async () => {
    const events = await eventsOf({ model: "simulator", input: "a bcdefg hi jklmnopqrstuv" });
    const deltas = events.filter((event) => event.type === "response.output_text.delta");
    const lengths = deltas.map((event) => {
      const { delta, obfuscation } = event as typeof event & { obfuscation: string };
      return delta.length + obfuscation.length;
    });
    expect(new Set(lengths.map((length) => length % 16))).toEqual(new Set([0]));
  });

  it("hides nothing with include_obfuscation: false", async () => {
    const stream = await gateway.openai.responses.create({
      model: "simulator-reasoning",
      input: "Call get_weather.",
      tools: [weatherTool],
      stream: true,
      stream_options: { include_obfuscation: false },
    });
    for await (const event of stream) expect(event).not.toHaveProperty("obfuscation");
  });

  it("is text/event-stream that no proxy may buffer, and ends with [DONE]", async () => {
    const answer = await gateway.post({ input: "Hello!", stream: true });
    expect(answer.headers.get("content-type")).toMatch(/^text\/event-stream/);
    expect(answer.headers.get("cache-control")).toContain("no-transform");
    expect((await answer.text()).endsWith("\n\ndata: [DONE]\n\n")).toBe(true);
  });

  it("passes tokens on as they come", async () => {
    const model = "simulator?fault=stall:3";
    const stream = await gateway.openai.responses.create({ model, input: "a b c", stream: true });
    let text = "";
    for await (const event of stream) {
      if (event.type !== "response.output_text.delta") continue;
      text += event.delta;
      // The model outputs no more before these have been seen.
      if (text === "You said:") gateway.vllm.simulator.lastAsked?.release();
    }
    expect(text).toBe("You said: a b c");
  });

  it.each(["bytes=1", "bytes=7", "crlf=1", "comments=1", "chunk=100", "per_delta=3", "done=0"])(
    "is the same for all of vLLM's framings: %s",
    async (framing) => {
      const input = "Grüße, 你好 and 👩‍👩‍👧 to get_weather";
      const body = { input, tools: [weatherTool] };
      const plain = await gateway.openai.responses.create({ model: "simulator-reasoning", ...body });
      const framed = await gateway.openai.responses
        .stream({ model: `simulator-reasoning?${framing}`, ...body })
        .finalResponse();
      const essence = ({ output }: { output: ResponseOutputItem[] }) =>
        output.map((item) => ({ ...item, id: "", call_id: "", parsed_arguments: null }));
      expect(essence(framed)).toEqual(essence(plain));
    },
  );
});

describe("a deployment", () => {
  let configured: Gateway;
  beforeAll(async () => {
    configured = await startGateway({
      MODEL_ALIASES: JSON.stringify({ "gpt-5": "simulator-reasoning", missing: "no-such-model" }),
      HEARTBEAT_MS: "100",
      TREES_PER_HOME: "1",
    });
  });
  afterAll(() => configured.close());

  it("serves a model under its alias, which is the name in the response", async () => {
    const response = await configured.openai.responses.create({ model: "gpt-5", input: "Hello!" });
    expect(response.model).toBe("gpt-5");
    expect(response.output.map(({ type }) => type)).toEqual(["reasoning", "message"]);
    expect(lastPrompt(configured).model).toBe("simulator-reasoning");
  });

  it("lists the aliases of existing models", async () => {
    const models = await Array.fromAsync(configured.openai.models.list());
    expect(models.map(({ id }) => id)).toEqual([
      "simulator",
      "simulator-reasoning",
      "simulator-gpt-oss",
      "simulator-harmony",
      "tiny-qwen3",
      "tiny-gpt-oss",
      "gpt-5",
    ]);
    expect(await configured.openai.models.retrieve("gpt-5")).toMatchObject({ id: "gpt-5", object: "model" });
  });

  it.each([
    ["the first token", "simulator?fault=stall:0"],
    ["vLLM's headers", "simulator?fault=stall_headers"],
  ])("sends heartbeats while waiting for %s", async (_, model) => {
    const answer = await configured.post({ model, input: "Hello!", stream: true });
    let text = "";
    for await (const piece of (answer.body ?? new ReadableStream()).pipeThrough(new TextDecoderStream())) {
      text += piece;
      // The model begins after the heartbeats that the client waits for.
      if (text.split(": heartbeat\n\n").length > 3) configured.vllm.simulator.lastAsked?.release();
    }
    expect(text.split(": heartbeat\n\n").length - 1).toBeGreaterThanOrEqual(3);
    // A heartbeat stands between events, never within one.
    const rest = text.replaceAll(": heartbeat\n\n", "");
    expect(rest.split("\n\n").every((event) => event === "" || /^(event: |data: \[DONE\])/.test(event))).toBe(true);
    expect(rest).toContain("event: response.completed\n");
  });

  it("sends no heartbeats into a lively stream", async () => {
    // The answer takes longer than the interval of heartbeats, with ten tokens a second.
    const model = "simulator?tps=10&words=60";
    const answer = await gateway.post({ model, input: "Hello!", stream: true });
    expect(await answer.text()).not.toContain("heartbeat");
  });

  it("stores nothing anywhere of a response with store: false", async () => {
    const { storage } = configured;
    const before = storage.ids();
    await configured.openai.responses.create({ input: "Hello!", store: false });
    expect(storage.ids()).toEqual(before);
    await configured.openai.responses.create({ input: "Hello!" });
    await eventually(() => storage.ids().length === before.length + 1);
  });
});

/** A vLLM whose chat template requires the system message at the beginning, in front of a simulated one. */
async function strictTemplate(vllm: string): Promise<{ url: string; close(): void }> {
  const server = createServer(async (request, response) => {
    const body = Buffer.concat(await Array.fromAsync(request)).toString();
    const { messages } = body === "" ? { messages: [] } : (JSON.parse(body) as { messages: { role: string }[] });
    if (messages.slice(1).some(({ role }) => role === "system")) {
      response.writeHead(400, { "content-type": "application/json" });
      response.end(JSON.stringify({ error: { message: "System message must be at the beginning.", code: 400 } }));
      return;
    }
    const init = { method: request.method, headers: { "content-type": "application/json" } };
    const answer = await fetch(vllm + request.url, body === "" ? init : { ...init, body });
    response.writeHead(answer.status, { "content-type": answer.headers.get("content-type") ?? "" });
    response.end(await answer.text());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close: () => server.close() };
}
