import { ChatEngine } from "@responses-edge/engines/chat/engine";
import type { ModelServerConfig, UpstreamConfig } from "@responses-edge/engines/settings";
import { Upstream } from "@responses-edge/engines/upstream";
import { createRequest } from "@responses-edge/responses-api/create-bodies";
import { parse } from "@responses-edge/responses-api/validation-errors";
import type { ModelDelta, Prompt } from "@responses-edge/turn/contract/engine";
import { Plugins } from "@responses-edge/turn/contract/plugin";
import { expect, it } from "vitest";

/** The chat engine alone, before servers that are functions. */

type Answer = () => Response;

/** A pool of vLLMs, which answer chat completions so, and what each was asked. */
function poolOf(...answers: Answer[]): { upstream: Upstream; asked: string[] } {
  const asked: string[] = [];
  const servers = answers.map((answer, index): ModelServerConfig => {
    const name = `gpu-${crypto.randomUUID()}`;
    return {
      name,
      baseUrl: `http://${name}/v1`,
      async fetch(url) {
        const { pathname } = new URL(String(url));
        if (pathname === "/v1/models") return Response.json({ data: [{ id: "m", owned_by: "vllm" }] });
        if (!pathname.endsWith("/chat/completions")) return new Response();
        asked.push(`${index}`);
        return answer();
      },
      ...{ transport: "fetch", connector: undefined, apiKey: undefined, headers: {}, weight: 1, drains: false },
      ...{ keepsConversations: true, models: undefined, engine: undefined, salted: true, dialect: "vllm" },
      sharesCache: false,
      maxInFlight: undefined,
    };
  });
  const bounds = { connectTimeoutMs: 5_000, firstByteTimeoutMs: 5_000, idleTimeoutMs: 5_000, silenceMs: 5_000 };
  const config: UpstreamConfig = {
    ...{
      modelServers: servers,
      loadFactor: 1.5,
      failoverMs: 5_000,
      boardMs: 0,
      maxWaiting: 1000,
      unsaltedServers: undefined,
    },
    contextWindows: {},
    ...bounds,
  };
  return { upstream: new Upstream(config, { model: "m" }), asked };
}

const prompt: Prompt = {
  ...{ model: "m", replays: [], cacheSalt: "", createdAt: 0 },
  items: [{ type: "message", role: "user", status: "completed", content: [{ type: "input_text", text: "Hi" }] }],
  request: parse(createRequest, { input: "Hi" }),
};

const says =
  (...chunks: object[]): Answer =>
  () => {
    const lines = chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join("");
    return new Response(`${lines}data: [DONE]\n\n`, { headers: { "content-type": "text/event-stream" } });
  };
const delta = (fields: object, rest: object = {}) => ({ choices: [{ index: 0, delta: fields, ...rest }] });

async function deltasOf(upstream: Upstream): Promise<ModelDelta[]> {
  const engine = new ChatEngine(upstream, new Plugins([]));
  const all: ModelDelta[] = [];
  for await (const deltas of await engine.generate(prompt, new AbortController().signal)) all.push(...deltas);
  return all;
}

const HELLO = says(
  delta({ reasoning: "Hm." }),
  delta({ content: "Hello" }),
  delta({ content: "!" }, { finish_reason: "stop" }),
);

it("gives a model's reasoning and text as deltas", async () => {
  const deltas = await deltasOf(poolOf(HELLO).upstream);
  const texts = deltas.map((each) => ("text" in each ? `${each.kind}: ${each.text}` : each.kind));
  expect(texts.slice(0, 2)).toEqual(["reasoning: Hm.", "text: Hello"]);
  expect(deltas.filter(({ kind }) => kind === "text").map((each) => "text" in each && each.text)).toEqual([
    "Hello",
    "!",
  ]);
  expect(deltas).toContainEqual({ kind: "finish", reason: "stop" });
});

it("asks another server if one has failed before any output", async () => {
  const busy: Answer = () => new Response("", { status: 503 });
  for (const answers of [
    [busy, HELLO],
    [HELLO, busy],
  ]) {
    const { upstream, asked } = poolOf(...answers);
    const deltas = await deltasOf(upstream);
    expect(deltas).toContainEqual({ kind: "finish", reason: "stop" });
    expect(asked.at(-1)).toBe(`${answers.indexOf(HELLO)}`);
  }
});
