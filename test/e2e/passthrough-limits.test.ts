import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Grants } from "../../src/contract/grants.ts";
import { errorOf, expectError } from "./expectations.ts";
import { call, type MadeKey, makeKey, newTenant, startWithKeys, usageOf } from "./key-support.ts";
import { eventually, type Gateway } from "./support.ts";

/** A key's limits and permissions at vLLM's own endpoints. */

let gateway: Gateway;
beforeAll(async () => {
  gateway = await startWithKeys({
    PASSTHROUGH_ENDPOINTS: "all",
    RESERVED_OUTPUT_TOKENS: "100",
    VLLM_PRIORITIES: '{"default":5,"gold":-5}',
  });
});
afterAll(() => gateway.close());

const CHAT = "/v1/chat/completions";
const chat = (more: object = {}) => ({
  model: "simulator",
  messages: [{ role: "user", content: "one two three" }],
  ...more,
});

function limited(limits: Partial<Grants>): Promise<MadeKey> {
  return makeKey(gateway, newTenant(), limits);
}

function post(key: MadeKey, body: object, path = CHAT): Promise<Response> {
  return call(gateway, "POST", path, body, key.value);
}

async function postJson(where: Gateway, key: MadeKey, path: string, body: object): Promise<string> {
  const answer = await call(where, "POST", path, body, key.value);
  expect(answer.status).toBe(200);
  return answer.text();
}

async function postForm(where: Gateway, key: MadeKey, path: string, fields: object): Promise<string> {
  const form = new FormData();
  form.set("file", new Blob(["sound"]));
  for (const [name, value] of Object.entries(fields)) form.set(name, String(value));
  const headers = { authorization: `Bearer ${key.value}` };
  const answer = await fetch(where.url + path, { method: "POST", headers, body: form });
  expect(answer.status).toBe(200);
  return answer.text();
}

/** A tenant's usage, as soon as there is any. */
function usedBy(key: MadeKey, where: Gateway = gateway, kind?: string) {
  return eventually(() => usageOf(where, key, kind));
}

describe("limits", () => {
  it("of an end user apply to the user fields of OpenAI's and of Anthropic's requests", async () => {
    const key = await limited({ end_user: { requests_per_minute: 1 } });
    expect((await post(key, chat({ user: "alice" }))).status).toBe(200);
    const messages = { ...chat({ max_tokens: 5 }), metadata: { user_id: "alice" } };
    for (const answer of [
      await post(key, chat({ safety_identifier: "alice" })),
      await post(key, messages, "/v1/messages"),
    ])
      await expectError(answer, { status: 429, message: /end user 'alice'/ });
    expect((await post(key, chat({ user: "bob" }))).status).toBe(200);
  });

  it("of requests are in the headers, and refuse further ones", async () => {
    const key = await limited({ requests_per_minute: 2 });
    const first = await post(key, chat());
    expect(first.headers.get("x-ratelimit-remaining-requests")).toBe("1");
    await first.text();
    await (await post(key, chat({ stream: true }))).text();
    const refused = await post(key, chat());
    expect(refused.status).toBe(429);
    expect(await errorOf(refused)).toMatchObject({ code: "rate_limit_exceeded" });
  });

  it("of tokens reserve a request's maximum, and then count its real usage", async () => {
    const key = await limited({ tokens_per_minute: 1_000 });
    expect((await post(key, chat({ max_tokens: 5_000 }))).status).toBe(429);
    // Each reserves most of the limit, and uses little.
    for (let count = 0; count < 5; count += 1) {
      await eventually(async () => {
        const answer = await post(key, chat({ max_tokens: 800 }));
        await answer.text();
        return answer.status === 200;
      });
    }
  });

  it("of requests at a time admit another when a stream has ended, or its client has disconnected", async () => {
    const key = await limited({ max_concurrent_requests: 1 });
    const leaving = new AbortController();
    const stalled = await fetch(gateway.url + CHAT, {
      method: "POST",
      headers: { authorization: `Bearer ${key.value}`, "content-type": "application/json" },
      body: JSON.stringify(chat({ model: "simulator?tps=50&words=100000", stream: true })),
      signal: leaving.signal,
    });
    await stalled.body?.getReader().read();
    expect((await post(key, chat())).status).toBe(429);
    leaving.abort();
    await eventually(async () => (await post(key, chat())).status === 200);
  });

  it.each(["/tokenize", "/detokenize"])("count a request to %s, and no tokens", async (path) => {
    const key = await limited({ tokens_per_minute: 1, requests_per_minute: 10 });
    const body = path === "/tokenize" ? { model: "simulator", prompt: "one two" } : { model: "simulator", tokens: [1] };
    const answer = await post(key, body, path);
    expect(answer.headers.get("x-ratelimit-remaining-requests")).toBe("9");
    expect(answer.headers.get("x-ratelimit-remaining-tokens")).toBe("1");
  });
});

describe("usage", () => {
  it("is that of the answer", async () => {
    const key = await limited({});
    const answer = (await (await post(key, chat())).json()) as OpenAI.ChatCompletion;
    expect(await usedBy(key)).toMatchObject({
      input_tokens: answer.usage?.prompt_tokens,
      output_tokens: answer.usage?.completion_tokens,
      num_model_requests: 1,
    });
  });

  it("of a stream is that of its last event", async () => {
    const key = await limited({});
    const openai = new OpenAI({ apiKey: key.value, baseURL: `${gateway.url}/v1` });
    let usage: OpenAI.CompletionUsage | null | undefined;
    const options = { ...chat(), stream: true, stream_options: { include_usage: true } } as const;
    const stream = await openai.chat.completions.create(options as OpenAI.ChatCompletionCreateParamsStreaming);
    for await (const chunk of stream) usage = chunk.usage ?? usage;
    expect(await usedBy(key)).toMatchObject({
      input_tokens: usage?.prompt_tokens,
      output_tokens: usage?.completion_tokens,
    });
  });

  it("of a stream is requested if the client has not, and is hidden from the client", async () => {
    const key = await limited({});
    for (const stream_options of [undefined, null, { include_usage: false, continuous_usage_stats: true }]) {
      const text = await (await post(key, chat({ stream: true, stream_options }))).text();
      expect(text).not.toContain('"usage"');
      expect(text).toMatch(/data: \[DONE\]\n\n$/);
    }
    const { usage } = (await (await post(key, chat())).json()) as OpenAI.ChatCompletion;
    await eventually(async () => (await usedBy(key))?.num_model_requests === 4);
    expect(await usedBy(key)).toMatchObject({
      input_tokens: 4 * (usage?.prompt_tokens ?? 0),
      output_tokens: 4 * (usage?.completion_tokens ?? 0),
    });
  });

  it("is found before the token ids of the prompt", async () => {
    const key = await limited({});
    const prompt = Array.from({ length: 3_000 }, () => "word").join(" ");
    const messages = [{ role: "user", content: prompt }];
    for (const stream of [false, true]) {
      const answer = await post(key, chat({ model: "simulator?words=3", messages, return_token_ids: true, stream }));
      expect((await answer.text()).length).toBeGreaterThan(10_000);
    }
    await eventually(async () => (await usedBy(key))?.num_model_requests === 2);
    expect((await usedBy(key))?.input_tokens).toBeGreaterThan(6_000);
  });

  it.each([false, true])("of a client that disconnects before its answer is counted (stream: %s)", async (stream) => {
    const key = await limited({});
    const leaving = new AbortController();
    const before = gateway.vllm.simulator.requests.length;
    const left = fetch(gateway.url + CHAT, {
      method: "POST",
      headers: { authorization: `Bearer ${key.value}`, "content-type": "application/json" },
      body: JSON.stringify(chat({ model: "simulator?headers_delay=500", stream })),
      signal: leaving.signal,
    }).then((answer) => answer.text());
    await eventually(async () => gateway.vllm.simulator.requests.length > before);
    leaving.abort();
    await expect(left).rejects.toThrow();
    const used = await usedBy(key);
    expect(used?.input_tokens).toBeGreaterThan(0);
    expect(used?.output_tokens).toBeGreaterThan(0);
  });
});

describe("every endpoint", () => {
  /** The model server's answers, as JSON and as a stream. */
  const json = (body: object) => ({ type: "application/json", body: JSON.stringify(body) });
  const events = (...said: object[]) => ({
    type: "text/event-stream",
    body: said.map((each) => `data: ${JSON.stringify(each)}\n\n`).join(""),
  });
  const openAi = { prompt_tokens: 40, completion_tokens: 2, total_tokens: 42 };
  const told = { input_tokens: 40, output_tokens: 2 };
  const read = { input_tokens: 40, output_tokens: 0 };
  const anthropic = { input_tokens: 30, cache_read_input_tokens: 10, output_tokens: 2 };
  const CASES: [path: string, body: object, answer: { type: string; body: string }, used: object][] = [
    [CHAT, chat(), json({ usage: openAi, prompt_token_ids: [1, 2] }), told],
    ["/v1/completions", { prompt: "a" }, json({ usage: openAi }), told],
    ["/v1/completions", { prompt: "a", stream: true }, events({ choices: [], usage: openAi }), told],
    ["/v1/embeddings", { input: "a" }, json({ usage: { prompt_tokens: 40, total_tokens: 40 } }), { input_tokens: 40 }],
    ["/v1/embeddings", { input: [Array.from({ length: 50 }, () => 7)] }, { type: "text/plain", body: "x" }, {}],
    ["/v1/rerank", { query: "a", documents: ["b"] }, json({ usage: { total_tokens: 40 } }), read],
    ["/v1/score", { text_1: "a", text_2: ["b"] }, json({ usage: { prompt_tokens: 40, total_tokens: 40 } }), read],
    ["/v1/messages", { messages: [] }, json({ usage: anthropic }), told],
    [
      "/v1/messages",
      { messages: [], stream: true },
      events(
        { type: "message_start", message: { usage: { input_tokens: 40, output_tokens: 0 } } },
        { usage: anthropic },
      ),
      told,
    ],
    ["/v1/audio/transcriptions", {}, json({ text: "a", usage: { type: "duration", seconds: 1 } }), { seconds: 1 }],
    ["/v1/audio/transcriptions", { stream: "true" }, events({ choices: [], usage: openAi }), { seconds: 0 }],
    ["/v1/audio/translations", { max_completion_tokens: "30" }, json({ text: "a" }), { seconds: 0 }],
  ];
  const kindOf = (path: string) => {
    if (path.includes("/audio/")) return "audio_transcriptions";
    return path === "/v1/embeddings" ? "embeddings" : "completions";
  };

  it("counts its answer's usage, and the reservation without one", async () => {
    let answer = json({});
    const seen: { url: string; body: string }[] = [];
    const server = createServer(async (request, response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      seen.push({ url: request.url ?? "", body: Buffer.concat(chunks).toString() });
      response.writeHead(200, { "content-type": answer.type }).end(answer.body);
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const VLLM_BASE_URL = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
    const other = await startWithKeys({ VLLM_BASE_URL, PASSTHROUGH_ENDPOINTS: "all", RESERVED_OUTPUT_TOKENS: "100" });
    try {
      const charged: Promise<void>[] = [];
      for (const [path, body, said, used] of CASES) {
        answer = said;
        const isForm = path.includes("/audio/");
        const key = await makeKey(other, newTenant(), {});
        const text = await (isForm ? postForm : postJson)(other, key, path, body);
        // A client that has not requested usage does not get it.
        expect(text).toBe("stream" in body && path !== "/v1/messages" ? "" : said.body);
        const { body: sent } = seen.at(-1) ?? { body: "" };
        if (!isForm) expect(JSON.parse(sent)).toHaveProperty("cache_salt");
        else if ("stream" in body) expect(sent).toMatch(/name="stream_include_usage"\r\n\r\ntrue/);
        const isCharged = async () => {
          const counted = await usedBy(key, other, kindOf(path));
          expect(counted, path).toMatchObject({ num_model_requests: 1, ...used });
          // The usage of speech is in seconds.
          if (isForm) return;
          expect((counted?.input_tokens ?? 0) + (counted?.output_tokens ?? 0), path).toBeGreaterThanOrEqual(30);
        };
        charged.push(isCharged());
      }
      await Promise.all(charged);
    } finally {
      await other.close();
      server.close();
    }
  });
});

describe("a key", () => {
  it("may use its own models only", async () => {
    const key = await limited({ models: ["simulator"] });
    expect((await post(key, chat())).status).toBe(200);
    await expectError(await post(key, chat({ model: "other" })), {
      status: 403,
      code: "model_not_found",
      param: "model",
    });
    await post(key, { messages: chat().messages });
    expect(gateway.vllm.simulator.lastAsked?.body).toMatchObject({ model: "simulator" });
  });

  it("caps the output, under every name of the field", async () => {
    const key = await limited({ max_output_tokens: 7 });
    await (await post(key, chat())).text();
    expect(gateway.vllm.simulator.lastAsked?.body).toMatchObject({ max_completion_tokens: 7 });
    await (await post(key, chat({ max_tokens: 3 }))).text();
    expect(gateway.vllm.simulator.lastAsked?.body).toMatchObject({ max_tokens: 3 });
    for (const field of ["max_tokens", "max_completion_tokens"]) {
      await expectError(await post(key, chat({ [field]: 8 })), { status: 400, code: "above_max_value", param: field });
    }
  });

  it("is not evaded by a number in a string, which vLLM would accept", async () => {
    const key = await limited({ max_output_tokens: 7, vllm_extras: ["priority"] });
    for (const field of ["max_tokens", "max_completion_tokens", "n", "priority"]) {
      const answer = await post(key, chat({ [field]: "8" }));
      await expectError(answer, { status: 400, code: "invalid_type", param: field });
    }
  });

  it("reserves for each answer, and for each prompt of a completion", async () => {
    const key = await limited({ tokens_per_minute: 1_000 });
    expect((await post(key, chat({ max_tokens: 300, n: 4 }))).status).toBe(429);
    const prompts = { model: "simulator", prompt: ["one", "two", "three", "four"], max_tokens: 300 };
    expect((await post(key, prompts, "/v1/completions")).status).toBe(429);
    expect((await post(key, { ...prompts, prompt: "one" }, "/v1/completions")).status).toBe(200);
  });

  it("reserves the larger of two limits, the ids of a prompt, and a query for each document", async () => {
    const key = await limited({ tokens_per_minute: 1_000 });
    expect((await post(key, chat({ max_tokens: 1, max_completion_tokens: 100_000 }))).status).toBe(429);
    expect((await post(key, chat({ max_tokens: 100_000, max_completion_tokens: 1 }))).status).toBe(429);
    const ids = { prompt: Array.from({ length: 1_100 }, () => 7), max_tokens: 1 };
    expect((await post(key, { model: "simulator", ...ids }, "/v1/completions")).status).toBe(429);
    const query = "word ".repeat(20);
    const documents = Array.from({ length: 50 }, () => "a");
    expect((await post(key, { model: "simulator", query, documents }, "/v1/rerank")).status).toBe(429);
  });

  it("has its tier's priority, and clients cannot request a better one", async () => {
    const key = await limited({ tier: "gold", vllm_extras: ["priority"] });
    await (await post(key, chat())).text();
    expect(gateway.vllm.simulator.lastAsked?.body).toMatchObject({ priority: -5 });
    expect((await post(key, chat({ priority: -6 }))).status).toBe(400);
  });
});
