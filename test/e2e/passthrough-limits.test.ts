import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Grants } from "../../src/contract/grants.ts";
import { errorOf, expectError } from "./expectations.ts";
import { ask, call, type MadeKey, makeKey, newTenant, startWithKeys } from "./key-support.ts";
import { eventually, type Gateway } from "./support.ts";

/** A key's limits and permissions, at vLLM's own endpoints. */

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

interface Usage {
  data: { results: { input_tokens: number; output_tokens: number; num_model_requests: number }[] }[];
}

/** What a tenant has used, as soon as anything is known of it. */
function usageOf(key: MadeKey) {
  const from = Math.floor(Date.now() / 1000) - 3_600;
  return eventually(async () => {
    const query = `start_time=${from}&project_ids=${key.tenant}`;
    const usage = await ask<Usage>(gateway, "GET", `/v1/organization/usage/completions?${query}`);
    return usage.data.flatMap(({ results }) => results).find((result) => result.num_model_requests > 0);
  });
}

describe("limits", () => {
  it("of requests are told, and refuse what is more", async () => {
    const key = await limited({ requests_per_minute: 2 });
    const first = await post(key, chat());
    expect(first.headers.get("x-ratelimit-remaining-requests")).toBe("1");
    await first.text();
    await (await post(key, chat({ stream: true }))).text();
    const refused = await post(key, chat());
    expect(refused.status).toBe(429);
    expect(await errorOf(refused)).toMatchObject({ code: "rate_limit_exceeded" });
  });

  it("of tokens are reserved by what a request may take, and settled by what it has used", async () => {
    const key = await limited({ tokens_per_minute: 1_000 });
    expect((await post(key, chat({ max_tokens: 5_000 }))).status).toBe(429);
    // Each reserves most of what there is, and uses little.
    for (let count = 0; count < 5; count += 1) {
      await eventually(async () => {
        const answer = await post(key, chat({ max_tokens: 800 }));
        await answer.text();
        return answer.status === 200;
      });
    }
  });

  it("of requests at a time are free again when a stream has ended, or its reader is seen to have left", async () => {
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
  it("is what the answer says", async () => {
    const key = await limited({ track_usage: true });
    const answer = (await (await post(key, chat())).json()) as OpenAI.ChatCompletion;
    expect(await usageOf(key)).toMatchObject({
      input_tokens: answer.usage?.prompt_tokens,
      output_tokens: answer.usage?.completion_tokens,
      num_model_requests: 1,
    });
  });

  it("of a stream is what its last event says", async () => {
    const key = await limited({ track_usage: true });
    const openai = new OpenAI({ apiKey: key.value, baseURL: `${gateway.url}/v1` });
    let usage: OpenAI.CompletionUsage | null | undefined;
    const options = { ...chat(), stream: true, stream_options: { include_usage: true } } as const;
    const stream = await openai.chat.completions.create(options as OpenAI.ChatCompletionCreateParamsStreaming);
    for await (const chunk of stream) usage = chunk.usage ?? usage;
    expect(await usageOf(key)).toMatchObject({
      input_tokens: usage?.prompt_tokens,
      output_tokens: usage?.completion_tokens,
    });
  });

  it("of a stream that says nothing of it is estimated by its events", async () => {
    const key = await limited({ track_usage: true });
    const text = await (await post(key, chat({ stream: true }))).text();
    const used = await usageOf(key);
    expect(used?.input_tokens).toBeGreaterThan(0);
    expect(used?.output_tokens).toBe(text.split("\n\n").length - 1);
  });
});

describe("a key", () => {
  it("has the models that it names, and no others", async () => {
    const key = await limited({ models: ["simulator"] });
    expect((await post(key, chat())).status).toBe(200);
    await expectError(await post(key, chat({ model: "other" })), {
      status: 403,
      code: "model_not_found",
      param: "model",
    });
    await post(key, { messages: chat().messages });
    expect(gateway.vllm.simulator.requests.at(-1)?.body).toMatchObject({ model: "simulator" });
  });

  it("caps the output, by whichever name it is limited", async () => {
    const key = await limited({ max_output_tokens: 7 });
    await (await post(key, chat())).text();
    expect(gateway.vllm.simulator.requests.at(-1)?.body).toMatchObject({ max_completion_tokens: 7 });
    await (await post(key, chat({ max_tokens: 3 }))).text();
    expect(gateway.vllm.simulator.requests.at(-1)?.body).toMatchObject({ max_tokens: 3 });
    for (const field of ["max_tokens", "max_completion_tokens"]) {
      await expectError(await post(key, chat({ [field]: 8 })), { status: 400, code: "above_max_value", param: field });
    }
  });

  it("is not got around by a number in a string, which vLLM would read", async () => {
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

  it("has its tier's priority, and no client a better one", async () => {
    const key = await limited({ tier: "gold", vllm_extras: ["priority"] });
    await (await post(key, chat())).text();
    expect(gateway.vllm.simulator.requests.at(-1)?.body).toMatchObject({ priority: -5 });
    expect((await post(key, chat({ priority: -6 }))).status).toBe(400);
  });
});
