import { afterAll, beforeAll, expect, it } from "vitest";
import { ADMIN_KEY, call, makeKey, newTenant, usageOf } from "../../e2e/key-support.ts";
import { eventually } from "../../e2e/support.ts";
import type { ModelServer } from "../model-server.ts";
import { type Gateway, type Subject, startGateway } from "./subject.ts";

interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
}

/** Requests to vLLM's own endpoints are counted as vLLM counts them, wherever the answer has the usage. */
export function passed(subject: () => Subject): void {
  /** Its keys belong to several tenants. The operator lets them share llama.cpp's cache. */
  const serversOf = ({ url, kind }: ModelServer) =>
    kind === "llamacpp" ? [{ url, dialect: kind, shared_cache: true }] : url;

  let gateway: Gateway;
  beforeAll(async () => {
    gateway = await startGateway(serversOf(subject().server), {
      ADMIN_KEY,
      ALLOW_ANONYMOUS: "false",
    });
  });
  afterAll(() => gateway.close());

  /** vLLM's own answer, without a gateway. */
  async function toldUsage(path: string, body: object): Promise<Usage> {
    const answer = await fetch(subject().server.url + path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    return ((await answer.json()) as { usage: Usage }).usage;
  }

  const messages = [{ role: "user", content: "one two three ".repeat(50) }];
  const chat = { messages, max_tokens: 10, temperature: 0 };
  const prompt = { prompt: "one two three ".repeat(50), max_tokens: 10, temperature: 0 };

  it.each<[string, path: string, body: object, more: object]>([
    ["chat completions", "/v1/chat/completions", chat, {}],
    // Longer than all other parts, and after the usage.
    [
      "token ids and log probabilities of the prompt",
      "/v1/chat/completions",
      chat,
      { return_token_ids: true, prompt_logprobs: 1 },
    ],
    ["a stream", "/v1/chat/completions", chat, { stream: true }],
    ["a stream with token ids", "/v1/chat/completions", chat, { stream: true, return_token_ids: true }],
    ["a stream that tells it", "/v1/chat/completions", chat, { stream: true, stream_options: { include_usage: true } }],
    ["completions", "/v1/completions", prompt, { prompt_logprobs: 1 }],
    ["a stream of completions", "/v1/completions", prompt, { stream: true }],
  ])("%s", async (_, path, body, more) => {
    const { model, kind } = subject().server;
    const key = await makeKey(gateway, newTenant(), { tokens_per_minute: 1_000_000 });
    const { stream, stream_options, ...fields } = more as { stream?: boolean; stream_options?: object };
    const told = await toldUsage(path, { model, ...body, ...fields });
    const answer = await call(gateway, "POST", path, { model, ...body, ...more }, key.value);
    const text = await answer.text();
    expect(answer.status, text).toBe(200);
    // llama.cpp reports it in each stream of completions, with or without a request for it.
    const isTold = kind === "llamacpp" && path === "/v1/completions";
    expect(text.includes('"usage":{')).toBe(isTold || !stream || stream_options !== undefined);
    const used = await eventually(() => usageOf(gateway, key));
    expect([used.input_tokens, used.output_tokens]).toEqual([told.prompt_tokens, told.completion_tokens]);
    expect(told.prompt_tokens).toBeGreaterThan(100);
  });
}
