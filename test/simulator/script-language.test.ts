import { describe, expect, test } from "vitest";
import { createSimulator } from "../../dev/simulator/handler.ts";
import type { JsonObject } from "../../dev/simulator/json.ts";
import { CHAT, chat, chatEvents, deltas, finish, joined, list, message, object, post, tool, user } from "./support.ts";

const qwen = (text: string, more: JsonObject = {}): JsonObject => ({
  model: "tiny-qwen3",
  messages: user(text),
  ...more,
});

async function harmony(text: string): Promise<JsonObject> {
  const prompt = `<|start|>user<|message|>${text}<|end|><|start|>assistant`;
  const body = { model: "tiny-gpt-oss", prompt, max_tokens: 100, skip_special_tokens: false };
  const response = await createSimulator().fetch(post("/v1/completions", body));
  return object(list(object(await response.json()).choices)[0]);
}

describe("a scripted Qwen3", () => {
  test("outputs the reasoning and the text of the last user text's script", async () => {
    const answer = await chat(qwen("SCRIPT[[‹think›a b‹/think›one two‹|im_end|›]]"));
    expect(message(answer)).toMatchObject({ reasoning: "a b", content: "one two" });
    expect(object(answer.usage).completion_tokens).toBe(7);
  });

  test("outputs it token by token, and the marks are empty deltas", async () => {
    const data = await chatEvents(qwen("SCRIPT[[‹think›a b‹/think›one two‹|im_end|›]]", { return_token_ids: true }));
    expect(deltas(data)).toEqual([
      { role: "assistant", content: "" },
      {},
      { reasoning: "a" },
      { reasoning: " b" },
      {},
      { content: "one" },
      { content: " two" },
      {},
    ]);
  });

  test("echoes without a script, after reasoning unless NOTHINK, and counts WORDS", async () => {
    expect(message(await chat(qwen("hi")))).toMatchObject({
      reasoning: "\nThe user said something.\n",
      content: "\n\nYou said: hi",
    });
    // Without an end of the reasoning, the whole output is reasoning.
    expect(message(await chat(qwen("NOTHINK hi")))).toMatchObject({ reasoning: "You said: NOTHINK hi", content: null });
    expect(message(await chat(qwen("WORDS=3"))).content).toBe("\n\nw0 w1 w2");
    const unthinking = await chat(qwen("hi", { chat_template_kwargs: { enable_thinking: false } }));
    expect(message(unthinking)).toMatchObject({ reasoning: null, content: "You said: hi" });
  });

  test("calls tools in hermes syntax, known or not, and then outputs their results", async () => {
    const script =
      'SCRIPT[[‹think›x‹/think›See:‹tool_call›\n{"name": "nope", "arguments": {"a": 1}}\n‹/tool_call›‹|im_end|›]]';
    const body = qwen(script, { tools: [tool("f")] });
    const answer = await chat(body);
    expect(message(answer)).toMatchObject({
      content: "See:",
      tool_calls: [{ type: "function", function: { name: "nope", arguments: '{"a": 1}' } }],
    });
    expect(finish(answer)).toBe("tool_calls");
    const streamed = deltas(await chatEvents(body)).flatMap((delta) => list(delta.tool_calls ?? []).map(object));
    expect(streamed.map((call) => object(call.function).arguments ?? "").join("")).toBe('{"a": 1}');
    const calls = [{ id: "1", type: "function", function: { name: "f", arguments: "{}" } }];
    const after = [
      ...user(script),
      { role: "assistant", content: null, tool_calls: calls },
      { role: "tool", tool_call_id: "1", content: "42" },
    ];
    expect(message(await chat({ model: "tiny-qwen3", messages: after, tools: [tool("f")] })).content).toBe(
      "\n\nThe tool returned: 42",
    );
  });

  test("continues at the end of the last message", async () => {
    const script = "SCRIPT[[‹think›\na b\n‹/think›\n\none two three‹|im_end|›]]";
    const messages = [...user(script), { role: "assistant", content: "one two", reasoning: "a b" }];
    const body = { model: "tiny-qwen3", messages, continue_final_message: true, add_generation_prompt: false };
    const data = await chatEvents({ ...body, stream_options: { include_usage: true } });
    expect(joined(data, "content")).toBe(" three");
    // vLLM treats an answer in one piece as reasoning.
    expect(message(await chat(body))).toMatchObject({ reasoning: " three", content: null });
  });

  test("prefers a grammar to the script", async () => {
    const schema = { type: "object", properties: { a: { type: "integer" } }, required: ["a"] };
    const response_format = { type: "json_schema", json_schema: { name: "x", schema } };
    const content = async (text: string) => message(await chat(qwen(text, { response_format }))).content;
    expect(await content('SCRIPT[[‹think›x‹/think›{"a":7}‹|im_end|›]]')).toBe('{"a":7}');
    expect(JSON.parse(String(await content("hi")))).toEqual({ a: expect.any(Number) });
    const forced = await chat(qwen("hi", { tools: [tool("f")], tool_choice: "required" }));
    expect(object(object(list(message(forced).tool_calls)[0]).function).name).toBe("f");
  });

  test("takes DELAY=ms for each token, also the first one", async () => {
    const simulator = createSimulator();
    const left = new AbortController();
    const body = qwen("DELAY=3600000 hi", { stream: true });
    const response = await simulator.fetch(post(CHAT, body, {}, left.signal));
    const reading = response.text();
    await new Promise((resolve) => setImmediate(resolve));
    expect(simulator.requests[0]).toMatchObject({ state: "open", deltasSent: 0 });
    left.abort();
    await expect(reading).rejects.toThrow();
  });
});

describe("a scripted gpt-oss", () => {
  test("outputs the script with its markers, or reasons and echoes", async () => {
    expect(await harmony("SCRIPT[[‹|channel|›final‹|message|›one two‹|return|›]]")).toMatchObject({
      text: "<|channel|>final<|message|>one two",
      finish_reason: "stop",
      stop_reason: null,
    });
    expect(await harmony("SCRIPT[[‹|channel|›commentary to=functions.f‹|message|›{}‹|call|›]]")).toMatchObject({
      stop_reason: 200012,
    });
    expect((await harmony("hi")).text).toBe(
      "<|channel|>analysis<|message|>The user said something.<|end|><|start|>assistant<|channel|>final<|message|>You said: hi",
    );
  });
});
