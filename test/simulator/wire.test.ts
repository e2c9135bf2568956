import { describe, expect, test } from "vitest";
import { createSimulator } from "../../dev/simulator/handler.ts";
import type { JsonObject } from "../../dev/simulator/json.ts";
import { CHAT, chunks, events, list, object, post, tool, user } from "./support.ts";

async function error(path: string, body: unknown, options = {}): Promise<JsonObject> {
  const response = await createSimulator(options).fetch(post(path, body));
  const parsed = object(object(await response.json()).error);
  expect(parsed.code).toBe(response.status);
  return parsed;
}

describe("routes", () => {
  const get = (path: string) => createSimulator().fetch(new Request(`http://vllm${path}`));

  test("models, health, version, and 404 for the rest", async () => {
    expect(object(await (await get("/v1/models")).json())).toEqual({
      object: "list",
      data: [
        ["simulator", "simulator"],
        ["simulator-reasoning", "simulator-reasoning"],
        ["simulator-gpt-oss", "openai/gpt-oss-20b"],
        ["simulator-harmony", "openai/gpt-oss-120b"],
        ["tiny-qwen3", "models/tiny-qwen3", 4096],
        ["tiny-gpt-oss", "models/tiny-gpt-oss", 8192],
      ].map(([id, root, length = 131072]) => ({
        id,
        object: "model",
        created: expect.any(Number),
        owned_by: "vllm",
        root,
        parent: null,
        max_model_len: length,
        permission: [expect.objectContaining({ object: "model_permission", allow_sampling: true })],
      })),
    });
    const health = await get("/health");
    expect([health.status, await health.text()]).toEqual([200, ""]);
    expect((await get("/version")).status).toBe(200);
    const missing = await get("/v1/responses");
    expect([missing.status, await missing.json()]).toEqual([404, { detail: "Not Found" }]);
    expect((await get(CHAT)).status).toBe(405);
  });

  test("a LoRA adapter has its path, its base model and no context length, and answers as its base model", async () => {
    const simulator = createSimulator({ models: ["simulator-gpt-oss"], adapters: { mine: "simulator-gpt-oss" } });
    const cards = await (await simulator.fetch(new Request("http://vllm/v1/models"))).json();
    expect(list(object(cards).data)[1]).toMatchObject({
      id: "mine",
      root: "/adapters/mine",
      parent: "simulator-gpt-oss",
      max_model_len: null,
    });
    const prompt = "<|start|>user<|message|>hi<|end|><|start|>assistant";
    const answer = await simulator.fetch(
      post("/v1/completions", { model: "mine", prompt, max_tokens: 1, skip_special_tokens: false }),
    );
    expect(object(list(object(await answer.json()).choices)[0]).text).toBe("<|channel|>");
  });

  test("an API key guards /v1 and nothing else", async () => {
    const simulator = createSimulator({ apiKey: "secret" });
    const ask = (path: string, headers: Record<string, string> = {}) =>
      simulator.fetch(new Request(`http://vllm${path}`, { headers }));
    const refused = await ask("/v1/models");
    expect([refused.status, await refused.json()]).toEqual([401, { error: "Unauthorized" }]);
    expect((await ask("/v1/models", { authorization: "Bearer secret" })).status).toBe(200);
    expect((await ask("/health")).status).toBe(200);
    expect((await simulator.fetch(post("/tokenize", { prompt: "a" }))).status).toBe(200);
  });
});

describe("errors", () => {
  test("an unknown model is vLLM's 404", async () => {
    expect(await error(CHAT, { model: "X", messages: user("hi") })).toEqual({
      message: expect.stringMatching(/^The model `X` does not exist\. Valid aliases: simulator, /),
      type: "NotFoundError",
      param: "model",
      code: 404,
    });
  });

  const messages = user("hi");
  test.each<[string, JsonObject, RegExp]>([
    ["no messages", {}, /'loc': 'body.messages', 'msg': 'Field required', 'input': '<dict of 0 items>'/],
    ["empty messages", { messages: [] }, /^Cannot apply chat template to an empty conversation\./],
    ["empty tools", { messages, tools: [] }, /^`tools` must not be an empty array/],
    [
      "stream_options without stream",
      { messages, stream_options: { include_usage: true } },
      /^Stream options can only be defined when `stream=True`\. \(parameter=stream_options\)$/,
    ],
    [
      "both ways to begin",
      { messages, continue_final_message: true, add_generation_prompt: true },
      /^Cannot set both `continue_final_message` and `add_generation_prompt` to True\.$/,
    ],
    ["continuing without add_generation_prompt: false", { messages, continue_final_message: true }, /not compatible/],
    [
      "unknown part",
      { messages: [{ role: "user", content: [{ type: "file" }] }] },
      /^Unsupported chat content part type: 'file'\./,
    ],
    ["five stop strings", { messages, stop: ["a", "b", "c", "d", "e"] }, /stop/],
    ["empty stop string", { messages, stop: "" }, /^stop cannot contain an empty string\.$/],
    ["tool_choice without tools", { messages, tool_choice: "auto" }, /`tools` must be set/],
    [
      "unknown named tool",
      { messages, tools: [tool("a")], tool_choice: { type: "function", function: { name: "b" } } },
      /does not match/,
    ],
    ["not a function tool", { messages, tools: [{ type: "custom" }] }, /tools/],
    [
      "too hot",
      { messages, temperature: -1 },
      /^temperature must be non-negative, got -1\.0\. \(parameter=temperature, value=-1\.0\)$/,
    ],
    [
      "no tokens",
      { messages, max_tokens: 0 },
      /^max_tokens must be at least 1, got 0\. \(parameter=max_tokens, value=0\)$/,
    ],
    ["top_logprobs alone", { messages, top_logprobs: 2 }, /`logprobs` must be set/],
    ["regex", { messages, structured_outputs: { regex: "[(" } }, /^Grammar error: at 1\(8\): invalid regex/],
    ["grammar", { messages, structured_outputs: { grammar: "root ::= x" } }, /^Invalid grammar specification: /],
    ["empty salt", { messages, cache_salt: "" }, /cache_salt/],
    ["not a boolean", { messages, stream: "maybe" }, /'loc': 'body.stream'/],
    ["unknown setting", { model: "simulator?tfft=5", messages }, /^Unknown simulator setting: tfft$/],
    ["wrong setting", { model: "simulator?fault=cut", messages }, /^Wrong value for the simulator setting fault: cut$/],
  ])("%s is a 400", async (_, body, pattern) => {
    const parsed = await error(CHAT, body);
    expect(parsed).toMatchObject({ code: 400 });
    // pydantic's findings have a type of their own.
    expect(parsed.type).toBe(/^\d+ validation error/.test(String(parsed.message)) ? "Bad Request" : "BadRequestError");
    expect(parsed.message).toMatch(pattern);
  });

  test("a prompt beyond the context is vLLM's 400", async () => {
    expect(await error(CHAT, { model: "simulator?max_model_len=10", messages })).toEqual({
      message:
        "This model's maximum context length is 10 tokens. However, your prompt contains at least 11 input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=11)",
      type: "BadRequestError",
      param: "input_tokens",
      code: 400,
    });
    expect(await error(CHAT, { messages, max_tokens: 100 }, { maxModelLen: 50 })).toMatchObject({ code: 400 });
  });

  test("broken JSON and a wrong content type are 400s", async () => {
    const simulator = createSimulator();
    const send = (body: string, type: string) =>
      simulator.fetch(new Request(`http://vllm${CHAT}`, { method: "POST", body, headers: { "content-type": type } }));
    expect((await send("{", "application/json")).status).toBe(400);
    expect((await send("{}", "text/plain")).status).toBe(400);
  });
});

describe("text completions", () => {
  const complete = async (body: JsonObject) =>
    object(await (await createSimulator().fetch(post("/v1/completions", { model: "simulator", ...body }))).json());
  const first = (body: JsonObject) => object(list(body.choices)[0]);

  test("repeat the last line, 16 tokens by default", async () => {
    const body = await complete({ prompt: "x\na b c" });
    expect(body).toMatchObject({ object: "text_completion", id: expect.stringMatching(/^cmpl-/) });
    expect(first(body)).toMatchObject({ index: 0, text: " You said: a b c", finish_reason: "stop", stop_reason: null });
    expect(first(await complete({ prompt: "a ".repeat(30) }))).toMatchObject({ finish_reason: "length" });
    expect(object((await complete({ prompt: "a ".repeat(30) })).usage).completion_tokens).toBe(16);
    expect(first(await complete({ prompt: "a", echo: true })).text).toBe("a You said: a");
  });

  test("accept and give token ids, and stop at a stop token", async () => {
    const simulator = createSimulator();
    const ask = async (path: string, body: JsonObject) =>
      object(await (await simulator.fetch(post(path, body))).json());
    const { tokens } = await ask("/tokenize", { prompt: "hi you<|return|>" });
    const whole = first(
      await ask("/v1/completions", { prompt: tokens ?? null, return_token_ids: true, stop_token_ids: [200002] }),
    );
    expect(whole).toMatchObject({
      text: " You said: hi you",
      finish_reason: "stop",
      stop_reason: 200002,
      prompt_token_ids: tokens,
    });
    expect(list(whole.token_ids).at(-1)).toBe(200002);
  });

  test("stream with prompt ids in the first chunk only, then finish, usage and [DONE]", async () => {
    const body = { prompt: "a b", stream: true, return_token_ids: true, stream_options: { include_usage: true } };
    const response = await createSimulator().fetch(post("/v1/completions", body));
    const data = events(await response.text());
    const all = chunks(data);
    expect(data.at(-1)).toBe("[DONE]");
    const choices = all.slice(0, -1).map(first);
    expect(choices.map((choice) => choice.text).join("")).toBe(" You said: a b");
    expect(choices.map((choice) => choice.prompt_token_ids !== null)).toEqual([
      true,
      false,
      false,
      false,
      false,
      false,
    ]);
    expect(choices.at(-1)).toMatchObject({ text: "", finish_reason: "stop", token_ids: [expect.any(Number)] });
    expect(all.at(-1)).toMatchObject({ choices: [], usage: { prompt_tokens: 2, completion_tokens: 6 } });
  });

  test("max_tokens: null is 16 tokens, in an old vLLM up to the context length", async () => {
    const body = await complete({ prompt: "a ".repeat(30), max_tokens: null });
    expect(first(body)).toMatchObject({ finish_reason: "length" });
    expect(object(body.usage).completion_tokens).toBe(16);
    const old = await complete({ model: "simulator?version=0.19", prompt: "a ".repeat(30), max_tokens: null });
    expect(first(old)).toMatchObject({ finish_reason: "stop", text: ` You said: ${"a ".repeat(30)}` });
  });

  test("max_tokens is reduced to the rest of the window, in an old vLLM refused", async () => {
    const ask = (version: string) =>
      complete({ model: `simulator?max_model_len=40&version=${version}`, prompt: "a ".repeat(20), max_tokens: 40 });
    const cut = await ask("0.32");
    expect(first(cut)).toMatchObject({ finish_reason: "length" });
    expect(object(cut.usage).total_tokens).toBe(40);
    expect(object((await ask("0.19")).error).message).toMatch(
      /^This model's maximum context length is 40 tokens\. However, you requested 61/,
    );
  });

  test("per_delta=odd gives 1 to 6 tokens, always the same", async () => {
    const body = { model: "simulator?per_delta=odd&words=40", prompt: "a", max_tokens: 100, stream: true };
    const sizes = async () => {
      const response = await createSimulator().fetch(post("/v1/completions", { ...body, return_token_ids: true }));
      return chunks(events(await response.text())).map((chunk) => list(first(chunk).token_ids).length);
    };
    const once = await sizes();
    expect(await sizes()).toEqual(once);
    expect(new Set(once.slice(0, -1)).size).toBeGreaterThan(2);
    expect(Math.max(...once)).toBeLessThanOrEqual(6);
  });

  test("token_ids=0 ignores return_token_ids", async () => {
    const body = await complete({ model: "simulator?token_ids=0", prompt: "a", return_token_ids: true });
    expect(first(body)).toMatchObject({ token_ids: null, prompt_token_ids: null });
  });

  test("one choice per prompt", async () => {
    const body = await complete({ prompt: ["a", "b"] });
    expect(list(body.choices).map((choice) => object(choice).text)).toEqual([" You said: a", " You said: b"]);
  });

  test("no prompt and a suffix are 400s", async () => {
    expect((await error("/v1/completions", { model: "simulator" })).message).toMatch(/prompt/);
    expect((await error("/v1/completions", { prompt: "a", suffix: "b" })).message).toBe(
      "suffix is only supported for models with FIM completion rendering",
    );
  });
});

describe("recording", () => {
  test("has the last 1000 requests, or none if it is disabled", async () => {
    const simulator = createSimulator();
    await simulator.fetch(post(CHAT, { messages: user("hi") }, { "x-mine": "1" }));
    expect(simulator.requests).toEqual([
      {
        path: CHAT,
        headers: { "content-type": "application/json", "x-mine": "1" },
        body: { messages: user("hi") },
        state: "completed",
        deltasSent: 0,
        startedAt: expect.any(Number),
        endedAt: expect.any(Number),
        release: expect.any(Function),
      },
    ]);
    for (let count = 0; count < 1001; count++) await simulator.fetch(new Request("http://vllm/health"));
    expect(simulator.requests).toHaveLength(1000);
    expect(simulator.requests[0]?.path).toBe("/health");
    simulator.clear();
    expect(simulator.requests).toEqual([]);
    const silent = createSimulator({ record: false });
    await silent.fetch(post(CHAT, { messages: user("hi") }));
    expect(silent.requests).toEqual([]);
  });
});
