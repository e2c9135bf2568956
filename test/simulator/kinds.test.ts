import { describe, expect, it } from "vitest";
import { createSimulator, type Simulator } from "../../dev/simulator/handler.ts";
import type { JsonObject } from "../../dev/simulator/json.ts";
import type { KindName } from "../../dev/simulator/kinds.ts";
import { CHAT, events, post, tool, user } from "./support.ts";

/** The simulator answers like the observed answers of other kinds of model servers. */

const play = (kind: KindName) => createSimulator({ kind, models: ["m"], maxModelLen: 512 });

async function get(simulator: Simulator, path: string): Promise<[number, JsonObject]> {
  const response = await simulator.fetch(new Request(`http://server${path}`));
  return [response.status, (await response.json()) as JsonObject];
}

async function ask(simulator: Simulator, body: JsonObject, path = CHAT): Promise<[number, JsonObject]> {
  const response = await simulator.fetch(post(path, { model: "m", messages: user("Hello"), ...body }));
  return [response.status, (await response.json()) as JsonObject];
}

async function streamed(simulator: Simulator, body: JsonObject): Promise<string[]> {
  const sent = { model: "m", messages: user("Hello"), stream: true, ...body };
  return events(await (await simulator.fetch(post(CHAT, sent))).text());
}

const long = user("x ".repeat(600));
const tools = [tool("a"), tool("b")];
const named = { type: "function", function: { name: "b" } };
const message = (fields: object) => ({ choices: [{ message: fields }] });

describe("llama.cpp", () => {
  const server = play("llamacpp");
  const error = (code: number, type: string, words: string) => [
    code,
    { error: { code, type, message: expect.stringContaining(words) } },
  ];

  it("reports its kind", async () => {
    const { headers } = await server.fetch(new Request("http://server/nothing"));
    expect(headers.get("server")).toBe("llama.cpp");
    expect(await get(server, "/nothing")).toEqual([
      404,
      { error: { code: 404, message: "File Not Found", type: "not_found_error" } },
    ]);
    expect(await get(server, "/v1/models")).toMatchObject([
      200,
      { data: [{ id: "m", aliases: ["m"], owned_by: "llamacpp", meta: { n_ctx: 512 } }] },
    ]);
    expect(await get(server, "/props")).toMatchObject([200, { default_generation_settings: { n_ctx: 512 } }]);
    expect(await get(server, "/metrics")).toMatchObject(error(501, "not_supported_error", "--metrics"));
    expect((await get(server, "/version"))[0]).toBe(404);
  });

  it("counts a prompt as its usage does, and beyond its window", async () => {
    const path = `${CHAT}/input_tokens`;
    const [, { usage }] = await ask(server, { tools });
    expect((await ask(server, { tools }, path))[1]).toEqual({
      input_tokens: (usage as JsonObject).prompt_tokens ?? null,
      object: "response.input_tokens",
    });
    expect((await ask(server, { messages: long }, path))[0]).toBe(200);
    expect((await ask(server, {}, "/tokenize"))[1]).toEqual({ tokens: [] });
  });

  it.each<[string, JsonObject, number, string, string]>([
    [
      "a prompt beyond its window",
      { messages: long },
      400,
      "exceed_context_size_error",
      "exceeds the available context size (512 tokens)",
    ],
    [
      "an image",
      { messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "x" } }] }] },
      500,
      "server_error",
      "image input is not supported",
    ],
    [
      "a grammar beside tools",
      { tools, grammar: 'root ::= "a"' },
      400,
      "invalid_request_error",
      "custom grammar constraints with tools",
    ],
    [
      "log probabilities in a stream with tools",
      { tools, logprobs: true, stream: true },
      400,
      "invalid_request_error",
      "logprobs is not supported",
    ],
    ["two answers", { n: 2 }, 400, "invalid_request_error", "Field 'n'"],
    [
      "going on with a prompt for a new message",
      { continue_final_message: true },
      400,
      "invalid_request_error",
      "Cannot set both",
    ],
  ])("refuses %s", async (_, body, status, type, words) => {
    expect(await ask(server, body)).toMatchObject(error(status, type, words));
  });

  it("answers for any model, and ignores unknown fields", async () => {
    const salts = await Promise.all(
      ["a", "b"].map((cache_salt) => ask(server, { model: "other", cache_salt, min_tokens: 9, colour: 1 })),
    );
    for (const [status, body] of salts) expect([status, body.model]).toEqual([200, "m"]);
    const [, { usage }] = await ask(server, {
      cache_salt: "c",
      messages: user("Hello, to all of you who wait for so very long in this long line"),
    });
    const [, { usage: again }] = await ask(server, {
      cache_salt: "d",
      messages: user("Hello, to all of you who wait for so very long in this long line"),
    });
    expect(usage).toHaveProperty("prompt_tokens_details.cached_tokens");
    expect(
      (again as { prompt_tokens_details: { cached_tokens: number } }).prompt_tokens_details.cached_tokens,
    ).toBeGreaterThan(0);
  });

  it("ignores a named choice, and enforces a required one", async () => {
    expect((await ask(server, { tools, tool_choice: named }))[1]).toMatchObject(
      message({ content: "You said: Hello" }),
    );
    expect((await ask(server, { tools, tool_choice: "required" }))[1]).toMatchObject(
      message({ tool_calls: [{ function: { name: "a" } }] }),
    );
  });

  it("continues a last message of the assistant's, requested or not", async () => {
    const messages = [...user("Hello"), { role: "assistant", content: "You said" }];
    expect((await streamed(server, { messages })).join("")).not.toContain("You");
  });

  it("has reasoning with its line feed in a field of its own, and no count of it", async () => {
    const [, body] = await ask(server, { chat_template_kwargs: { enable_thinking: true } });
    expect(body).toMatchObject(message({ reasoning_content: expect.stringMatching(/\.\n$/) }));
    expect(body.usage).not.toHaveProperty("completion_tokens_details");
  });

  it("gives no log probabilities if only the tokens' own are requested", async () => {
    expect((await ask(server, { logprobs: true, top_logprobs: 0 }))[1]).toMatchObject({
      choices: [{ logprobs: null }],
    });
    expect((await ask(server, { logprobs: true, top_logprobs: 1 }))[1]).toMatchObject({
      choices: [{ logprobs: { content: [{}, {}, {}, {}, {}] } }],
    });
  });
});

describe("SGLang", () => {
  const server = play("sglang");

  it("reports its kind", async () => {
    expect(await get(server, "/v1/models")).toMatchObject([
      200,
      { data: [{ owned_by: "sglang", max_model_len: 512 }] },
    ]);
    expect(await get(server, "/server_info")).toMatchObject([200, { internal_states: [{}] }]);
  });

  it("refuses a prompt beyond its window, in flat errors", async () => {
    const error = (words: string) => [400, { object: "error", code: 400, message: expect.stringContaining(words) }];
    expect(await ask(server, { messages: long })).toMatchObject(
      error("longer than the model's context length (512 tokens)"),
    );
    expect(await ask(server, { max_completion_tokens: 510 })).toMatchObject(error("tokens for the completion"));
  });

  it("reads grammars in fields of its own", async () => {
    expect((await ask(server, { ebnf: 'root ::= "yes"' }))[1]).toMatchObject(message({ content: "yes" }));
    expect((await ask(server, { structured_outputs: { choice: ["yes"] } }))[1]).toMatchObject(
      message({ content: "You said: Hello" }),
    );
  });

  it("treats a last message of the assistant as a user's", async () => {
    const messages = [...user("Hello"), { role: "assistant", content: "Noon" }];
    expect((await ask(server, { messages }))[1]).toMatchObject(message({ content: "You said: Noon" }));
  });

  it("continues the text of a message, and drops its reasoning", async () => {
    const beginning = (fields: JsonObject) => [...user("Hello"), { role: "assistant", ...fields }];
    const body = { continue_final_message: true };
    const [, text] = await ask(server, {
      ...body,
      messages: beginning({ content: "You said", reasoning_content: "So" }),
    });
    expect(text).toMatchObject(message({ content: ": Hello" }));
    const [, thoughts] = await ask(server, {
      ...body,
      chat_template_kwargs: { enable_thinking: true },
      messages: beginning({ content: "", reasoning_content: "The user" }),
    });
    expect(thoughts).toMatchObject(message({ reasoning_content: expect.stringMatching(/^The user said/) }));
  });
});

describe("Ollama", () => {
  const server = play("ollama");

  it("reports its kind", async () => {
    expect(await get(server, "/v1/models")).toMatchObject([200, { data: [{ owned_by: "library" }] }]);
    expect(await get(server, "/api/version")).toEqual([200, { version: "0.17.4" }]);
    expect(await ask(server, { model: "other" })).toMatchObject([
      404,
      { error: { message: "model 'other' not found", type: "not_found_error" } },
    ]);
  });

  it("ignores a choice of tools and OpenAI's limit, and silently truncates a prompt", async () => {
    expect((await ask(server, { tools, tool_choice: "required" }))[1]).toMatchObject(
      message({ content: "You said: Hello" }),
    );
    expect((await ask(server, { max_completion_tokens: 1 }))[1]).toMatchObject({
      choices: [{ finish_reason: "stop" }],
    });
    expect((await ask(server, { max_tokens: 1 }))[1]).toMatchObject({ choices: [{ finish_reason: "length" }] });
    expect(await ask(server, { messages: long })).toMatchObject([200, { usage: { prompt_tokens: 511 } }]);
  });
});

describe("transformers", () => {
  const server = play("transformers");

  it("refuses an unknown field", async () => {
    expect(await ask(server, { cache_salt: "a" })).toEqual([
      422,
      { detail: "Unexpected fields in the request: {'cache_salt'}" },
    ]);
  });

  it("ignores formats and choices, and leaves calls in the text", async () => {
    const format = { type: "json_object" };
    expect((await ask(server, { tools, tool_choice: named, response_format: format }))[1]).toMatchObject(
      message({ content: "You said: Hello" }),
    );
    const [, body] = await ask(server, { tools, messages: user("a") });
    expect(body).toMatchObject(message({ content: expect.stringContaining("<tool_call>") }));
  });

  it("has usage in the chunk with the finish reason", async () => {
    const [done, finish] = (await streamed(server, {})).toReversed();
    expect(done).toBe("[DONE]");
    expect(JSON.parse(finish ?? "")).toMatchObject({
      choices: [{ finish_reason: "stop" }],
      usage: { completion_tokens: 5 },
    });
  });
});
