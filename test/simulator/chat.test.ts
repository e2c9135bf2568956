import { describe, expect, test } from "vitest";
import { createSimulator } from "../../dev/simulator/handler.ts";
import type { JsonObject } from "../../dev/simulator/json.ts";
import { chat, chatEvents, chunks, deltas, finish, joined, list, message, object, tool, user } from "./support.ts";

describe("a chat answer", () => {
  test("repeats the last user text, and names parts that are not text", async () => {
    expect(message(await chat({ messages: user("hi there") })).content).toBe("You said: hi there");
    const parts = [
      { type: "text", text: "look" },
      { type: "image_url", image_url: { url: "data:" } },
      { type: "input_audio", input_audio: {} },
    ];
    expect(message(await chat({ messages: [{ role: "user", content: parts }] })).content).toBe(
      "You said: look\n[image]\n[audio]",
    );
    expect(message(await chat({ messages: [{ role: "system", content: "x" }] })).content).toBe("Hello.");
  });

  test("has vLLM's non-stream shape", async () => {
    expect(await chat({ messages: user("hi") })).toEqual({
      id: expect.stringMatching(/^chatcmpl-[0-9a-f]{16}$/),
      object: "chat.completion",
      created: expect.any(Number),
      model: "simulator",
      choices: [
        {
          index: 0,
          message: {
            role: "assistant",
            content: "You said: hi",
            refusal: null,
            annotations: null,
            audio: null,
            function_call: null,
            reasoning: null,
          },
          logprobs: null,
          finish_reason: "stop",
          stop_reason: null,
          token_ids: null,
          routed_experts: null,
        },
      ],
      service_tier: null,
      system_fingerprint: expect.stringMatching(/^vllm-0\.32\.0-[0-9a-f]{8}$/),
      usage: {
        prompt_tokens: 12,
        total_tokens: 17,
        completion_tokens: 5,
        prompt_tokens_details: { cached_tokens: 0, created_cache_tokens: 0, multimodal_tokens: null },
        completion_tokens_details: { reasoning_tokens: 0 },
      },
      prompt_logprobs: null,
      prompt_token_ids: null,
      prompt_text: null,
      kv_transfer_params: null,
      ec_transfer_params: null,
      metrics: null,
    });
  });

  test("streams role, deltas, finish, usage, [DONE]", async () => {
    const data = await chatEvents({ messages: user("hi"), stream_options: { include_usage: true } });
    expect(data.at(-1)).toBe("[DONE]");
    const [first, second, ...rest] = chunks(data);
    const head = { id: first?.id, object: "chat.completion.chunk", created: first?.created, model: "simulator" };
    expect(first).toEqual({
      ...head,
      choices: [{ index: 0, delta: { role: "assistant", content: "" }, logprobs: null, finish_reason: null }],
      prompt_token_ids: null,
      prompt_text: null,
    });
    expect(second).toEqual({
      ...head,
      choices: [{ index: 0, delta: { content: "You" }, logprobs: null, finish_reason: null, token_ids: null }],
    });
    expect(rest.at(-2)).toEqual({
      ...head,
      choices: [{ index: 0, delta: {}, logprobs: null, finish_reason: "stop", stop_reason: null, token_ids: null }],
    });
    expect(rest.at(-1)).toEqual({
      ...head,
      choices: [],
      usage: {
        prompt_tokens: 12,
        total_tokens: 17,
        completion_tokens: 5,
        prompt_tokens_details: { cached_tokens: 0, created_cache_tokens: 0 },
        completion_tokens_details: { reasoning_tokens: 0 },
      },
      system_fingerprint: expect.stringMatching(/^vllm-0\.32\.0-/),
    });
    expect(joined(data, "content")).toBe("You said: hi");
  });

  test("has a usage chunk, or usage in every chunk, only on request", async () => {
    expect(chunks(await chatEvents({ messages: user("hi") })).some((chunk) => chunk.usage !== undefined)).toBe(false);
    const all = chunks(
      await chatEvents({ messages: user("hi"), stream_options: { include_usage: true, continuous_usage_stats: true } }),
    );
    expect(all.map((chunk) => object(chunk.usage).completion_tokens)).toEqual([0, 1, 2, 3, 4, 5, 5]);
  });

  test("is the same for the same request, and its id follows X-Request-Id", async () => {
    const ask = () => chatEvents({ messages: user("call get_weather"), tools: [tool("get_weather")] });
    const dated = (data: string[]) => data.map((entry) => entry.replace(/"created":\d+/, ""));
    expect(dated(await ask())).toEqual(dated(await ask()));
    expect((await chat({ messages: user("hi"), request_id: "mine" })).id).toBe("chatcmpl-mine");
  });

  test("mode=transcript lists the received messages", async () => {
    const body = await chat({ model: "simulator?mode=transcript", messages: user("hi") });
    expect(JSON.parse(String(message(body).content))).toEqual(user("hi"));
    expect(body.model).toBe("simulator?mode=transcript");
  });

  test("can be a refusal", async () => {
    expect(message(await chat({ model: "simulator?refusal=1", messages: user("hi") })).refusal).toBe(
      "I cannot help with that.",
    );
    const data = await chatEvents({ model: "simulator?refusal=1", messages: user("hi") });
    expect(joined(data, "refusal")).toBe("I cannot help with that.");
  });

  test("words=N has N tokens and an end, in as many deltas", async () => {
    const data = await chatEvents({
      model: "simulator?words=1000",
      messages: user("hi"),
      stream_options: { include_usage: true },
    });
    expect(deltas(data)).toHaveLength(1002);
    expect(joined(data, "content").split(" ")).toHaveLength(1000);
    expect(object(chunks(data).at(-1)?.usage).completion_tokens).toBe(1001);
  });
});

describe("reasoning", () => {
  const REASONED = "The user said: hi. I should answer with effort high.";

  test("comes before the content, shows the effort, and is counted", async () => {
    const body = { model: "simulator-reasoning", messages: user("hi"), reasoning_effort: "high" };
    const answer = await chat(body);
    expect(message(answer)).toMatchObject({ reasoning: REASONED, content: "You said: hi" });
    expect(object(answer.usage).completion_tokens_details).toEqual({ reasoning_tokens: 13 });
    const data = await chatEvents(body);
    expect(joined(data, "reasoning")).toBe(REASONED);
    const kinds = deltas(data).map((delta) => Object.keys(delta)[0]);
    expect(kinds.lastIndexOf("reasoning")).toBeLessThan(kinds.indexOf("content", 1));
  });

  test("has the field name of the requested version", async () => {
    const ask = (field: string) =>
      chatEvents({ model: `simulator?reasoning=1&reasoning_field=${field}`, messages: user("hi") });
    expect(Object.keys(deltas(await ask("reasoning_content"))[1] ?? {})).toEqual(["reasoning_content"]);
    expect(Object.keys(deltas(await ask("both"))[1] ?? {})).toEqual(["reasoning", "reasoning_content"]);
  });

  test.each<[JsonObject, boolean]>([
    [{ model: "simulator" }, false],
    [{ model: "simulator", chat_template_kwargs: { enable_thinking: true } }, true],
    [{ model: "simulator?reasoning=1" }, true],
    [{ model: "simulator-reasoning", chat_template_kwargs: { enable_thinking: false } }, false],
    [{ model: "simulator-reasoning", reasoning_effort: "none" }, false],
    [{ model: "simulator-reasoning?reasoning=0" }, false],
  ])("%j: %s", async (body, reasons) => {
    expect(message(await chat({ ...body, messages: user("hi") })).reasoning !== null).toBe(reasons);
  });

  test("include_reasoning: false hides it and still counts it", async () => {
    const body = { model: "simulator-reasoning", messages: user("hi"), include_reasoning: false };
    const answer = await chat(body);
    expect(message(answer)).toMatchObject({ reasoning: null, content: "You said: hi" });
    expect(object(answer.usage).completion_tokens).toBe(20);
    const data = await chatEvents({ ...body, stream_options: { include_usage: true } });
    expect(joined(data, "reasoning")).toBe("");
    expect(object(chunks(data).at(-1)?.usage).completion_tokens).toBe(20);
  });
});

describe("tools", () => {
  const tools = [tool("get_weather"), tool("get_time", { zone: { enum: ["UTC", "CET"] } })];
  const names = (body: JsonObject) =>
    list(message(body).tool_calls ?? []).map((call) => object(object(call).function).name);

  test("auto calls the tools that the text names, all of them for the word tools, else none", async () => {
    expect(names(await chat({ messages: user("use get_weather"), tools }))).toEqual(["get_weather"]);
    expect(names(await chat({ messages: user("use your tools"), tools }))).toEqual(["get_weather", "get_time"]);
    expect(names(await chat({ messages: user("use your tools"), tools, parallel_tool_calls: false }))).toEqual([
      "get_weather",
    ]);
    expect(names(await chat({ messages: user("get_weather_now"), tools }))).toEqual([]);
    expect(names(await chat({ messages: user("use get_weather"), tools, tool_choice: "none" }))).toEqual([]);
  });

  test("required calls the first one, named calls that one and finishes with stop", async () => {
    const required = await chat({ messages: user("hi"), tools, tool_choice: "required" });
    expect([names(required), finish(required), message(required).content]).toEqual([["get_weather"], "tool_calls", ""]);
    const named = await chat({
      messages: user("hi"),
      tools,
      tool_choice: { type: "function", function: { name: "get_time" } },
    });
    expect([names(named), finish(named)]).toEqual([["get_time"], "stop"]);
  });

  test("stream as an opening with id and name, then arguments", async () => {
    const data = await chatEvents({ messages: user("tools"), tools });
    const calls = deltas(data).flatMap((delta) => list(delta.tool_calls ?? []).map(object));
    const openings = calls.filter((call) => call.id !== undefined);
    expect(openings).toEqual([
      {
        index: 0,
        id: expect.stringMatching(/^chatcmpl-tool-[0-9a-f]{16}$/),
        type: "function",
        function: { name: "get_weather" },
      },
      {
        index: 1,
        id: expect.stringMatching(/^chatcmpl-tool-[0-9a-f]{16}$/),
        type: "function",
        function: { name: "get_time" },
      },
    ]);
    expect(new Set(openings.map((call) => call.id)).size).toBe(2);
    const argumentsOf = (index: number) =>
      calls
        .filter((call) => call.index === index)
        .map((call) => object(call.function).arguments ?? "")
        .join("");
    expect([argumentsOf(0), argumentsOf(1)]).toEqual(['{"city":"city"}', '{"zone":"UTC"}']);
    expect(object(list(chunks(data).at(-1)?.choices)[0])).toMatchObject({ delta: {}, finish_reason: "tool_calls" });
  });

  test("are called once per user message, or as often as rounds says", async () => {
    const call = { id: "c1", type: "function", function: { name: "get_weather", arguments: "{}" } };
    const messages = [
      ...user("use get_weather"),
      { role: "assistant", content: null, tool_calls: [call] },
      { role: "tool", tool_call_id: "c1", content: "sunny" },
    ];
    expect(message(await chat({ messages, tools })).content).toBe("The tool get_weather returned: sunny");
    expect(names(await chat({ messages: [...messages, ...user("get_time")], tools }))).toEqual(["get_time"]);
    expect(names(await chat({ model: "simulator?rounds=2", messages, tools }))).toEqual(["get_weather"]);
  });
});

describe("limits", () => {
  test("max_tokens cuts content, and the last delta carries the finish reason", async () => {
    const body = { messages: user("a b c d e"), max_completion_tokens: 4 };
    const answer = await chat(body);
    expect([message(answer).content, finish(answer)]).toEqual(["You said: a", "length"]);
    const data = await chatEvents(body);
    expect(object(list(chunks(data).at(-1)?.choices)[0])).toMatchObject({
      delta: { content: " a" },
      finish_reason: "length",
    });
  });

  test("max_tokens cuts reasoning, and arguments in the middle", async () => {
    const cut = await chat({ model: "simulator-reasoning", messages: user("hi"), max_tokens: 4 });
    expect(message(cut)).toMatchObject({ reasoning: "The user said", content: null });
    const body = { messages: user("tools"), tools: [tool("get_weather")], max_tokens: 13 };
    const data = await chatEvents(body);
    const calls = deltas(data).flatMap((delta) =>
      list(delta.tool_calls ?? []).map((call) => object(object(call).function)),
    );
    expect(calls.map((call) => call.arguments ?? "").join("")).toBe('{"city');
    // An answer in one piece then has no call: vLLM leaves the text unchanged.
    const called = await chat(body);
    expect([finish(called), message(called).content]).toEqual([
      "length",
      '<tool_call>{"name": "get_weather", "arguments": {"city',
    ]);
  });

  test("a stop string cuts the content and is the stop_reason", async () => {
    const answer = await chat({ messages: user("one two three"), stop: ["nothing", "wo"] });
    expect(object(list(answer.choices)[0])).toMatchObject({
      message: { content: "You said: one t" },
      finish_reason: "stop",
      stop_reason: "wo",
    });
    const included = await chat({ messages: user("one two"), stop: "wo", include_stop_str_in_output: true });
    expect(message(included).content).toBe("You said: one two");
  });

  test("ignore_eos goes on until max_tokens", async () => {
    const answer = await chat({ messages: user("hi"), ignore_eos: true, max_tokens: 50 });
    expect([finish(answer), object(answer.usage).completion_tokens]).toEqual(["length", 50]);
  });
});

describe("formats and continuation", () => {
  const schema = {
    type: "object",
    properties: { city: { type: "string" }, n: { type: "integer", minimum: 3 } },
    required: ["city"],
  };

  test("json_schema, json_object and structured_outputs fill the content", async () => {
    const content = async (body: JsonObject) => message(await chat({ messages: user("hi"), ...body })).content;
    const filled = '{"city":"city","n":3}';
    expect(await content({ response_format: { type: "json_schema", json_schema: { name: "x", schema } } })).toBe(
      filled,
    );
    expect(await content({ structured_outputs: { json: schema } })).toBe(filled);
    expect(await content({ structured_outputs: { choice: ["yes", "no"] } })).toBe("yes");
    expect(await content({ response_format: { type: "json_object" } })).toBe('{"answer":"You said: hi"}');
  });

  test("a schema beside optional tools governs the whole answer, unless one of them is strict", async () => {
    const response_format = { type: "json_schema", json_schema: { name: "x", schema } };
    const strict = { type: "function", function: { name: "f", strict: true, parameters: schema } };
    const ask = async (tools: JsonObject[]) =>
      message(await chat({ messages: user("call f"), tools, response_format }));
    expect(await ask([tool("f")])).toMatchObject({ content: '{"city":"city","n":3}' });
    expect(list((await ask([strict])).tool_calls)).toHaveLength(1);
  });

  test("continue_final_message gives the rest of the same answer, also of reasoning", async () => {
    const ask = async (last: JsonObject, model = "simulator-reasoning", before = user("hi")) =>
      message(
        await chat({
          model,
          messages: [...before, { role: "assistant", ...last }],
          continue_final_message: true,
          add_generation_prompt: false,
        }),
      );
    expect(await ask({ content: "You sa" }, "simulator")).toMatchObject({ reasoning: null, content: "id: hi" });
    expect(await ask({ content: "I say" }, "simulator")).toMatchObject({ content: " (continued)" });
    const asked = user("Hot?\n\nA. True\nB. False\n\nAnswer with the letter.");
    expect(await ask({ content: "Answer:" }, "simulator", asked)).toMatchObject({ content: " A" });
    // vLLM's reasoning parser then does not read the prompt, and so finds no end of reasoning.
    expect(await ask({ content: "You sa" })).toMatchObject({ reasoning: "id: hi", content: null });
    expect(await ask({ content: null, reasoning: "The user said" })).toMatchObject({
      reasoning: ": hi. I should answer with effort default.",
      content: "You said: hi",
    });
  });
});

describe("a grammar after an open message", () => {
  const under = async (content: string, structured_outputs: JsonObject) =>
    message(
      await chat({
        messages: [...user("hi"), { role: "assistant", content }],
        continue_final_message: true,
        add_generation_prompt: false,
        structured_outputs,
      }),
    ).content;

  test("begins with the first generated token, whatever the message has", async () => {
    expect(await under('{"ci', { grammar: 'root ::= "ty\\": " [0-9] "}"' })).toBe('ty": 0}');
    expect(await under("le", { choice: ["left", "right"] })).toBe("left");
  });
});

describe("letters=1", () => {
  test("makes each character a token", async () => {
    const said = deltas(await chatEvents({ model: "simulator?letters=1", messages: user("hü") })).map(
      ({ content }) => content,
    );
    expect(said.filter((text) => text !== undefined && text !== "")).toEqual([..."You said: hü"]);
  });
});

describe("logprobs, token ids, prefix cache", () => {
  test("every delta has its tokens' logprobs", async () => {
    const data = await chatEvents({ messages: user("hi"), logprobs: true, top_logprobs: 2 });
    const entry = object(list(object(object(list(chunks(data)[1]?.choices)[0]).logprobs).content)[0]);
    expect(entry).toMatchObject({ token: "You", bytes: [89, 111, 117] });
    expect(Object.keys(entry)).toEqual(["token", "logprob", "bytes", "top_logprobs"]);
    expect(list(entry.top_logprobs)).toHaveLength(2);
    expect(Number(entry.logprob)).toBeLessThanOrEqual(0);
  });

  test("return_token_ids gives the prompt's ids first and each delta's own", async () => {
    const data = await chatEvents({
      messages: user("hi"),
      return_token_ids: true,
      stream_options: { include_usage: true },
    });
    const all = chunks(data);
    expect(list(all[0]?.prompt_token_ids)).toHaveLength(12);
    const ids = all.flatMap((chunk) => list(chunk.choices).flatMap((choice) => list(object(choice).token_ids ?? [])));
    expect(ids).toHaveLength(5);
  });

  test("cached_tokens is the common prefix with the last prompt of that salt, in whole blocks", async () => {
    const simulator = createSimulator();
    const cached = async (text: string, salt: string) => {
      const { usage } = await chat({ messages: user(text), cache_salt: salt }, simulator);
      return object(object(usage).prompt_tokens_details).cached_tokens;
    };
    const long = "word ".repeat(30);
    expect(await cached(long, "a")).toBe(0);
    expect(await cached(`${long} more`, "a")).toBe(32);
    expect(await cached(long, "b")).toBe(0);
  });
});
