import { createOpenAI } from "@ai-sdk/openai";
import { generateText, isStepCount, streamText, tool } from "ai";
import { afterAll, beforeAll, beforeEach, expect, it, vi } from "vitest";
import { z } from "zod";
import { GPT_OSS } from "./harmony-support.ts";
import { type Gateway, startGateway } from "./support.ts";

/** The AI SDK in its usual form, with a tool of its own. It shows summaries, and keeps encrypted reasoning. */

let gateway: Gateway;
beforeAll(async () => {
  gateway = await startGateway({ ENCRYPTION_KEYS: `k1:${Buffer.alloc(32, 7).toString("base64")}` });
});
afterAll(() => gateway.close());
beforeEach(() => {
  gateway.vllm.simulator.requests.length = 0;
});

/** Makes a provider whose requests and answers are recorded and checked. */
function provider() {
  const bodies: { input: Record<string, unknown>[]; store?: boolean }[] = [];
  const openai = createOpenAI({
    apiKey: "any",
    baseURL: `${gateway.url}/v1`,
    fetch: (url, init) => {
      bodies.push(JSON.parse(String(init?.body)));
      return gateway.fetch(url, init);
    },
  });
  return { openai, bodies };
}

const getWeather = tool({
  description: "The weather in a city.",
  inputSchema: z.object({ city: z.string() }),
  execute: ({ city }) => `sunny in ${city}`,
});

const options = { openai: { store: false, reasoningSummary: "auto", forceReasoning: true } };

it.each([
  ["simulator-reasoning", "The user said: Use get_weather."],
  [GPT_OSS, "The user said: Use get_weather."],
])("%s keeps its reasoning over a tool loop without storage", async (model, thought) => {
  const { openai, bodies } = provider();
  const warn = vi.spyOn(console, "warn");
  const result = await generateText({
    model: openai.responses(model),
    tools: { get_weather: getWeather },
    prompt: "Use get_weather.",
    stopWhen: isStepCount(3),
    maxRetries: 0,
    providerOptions: options,
  });
  expect(result.text).toContain("The tool get_weather returned: sunny in");
  expect(result.steps).toHaveLength(2);
  // The reasoning is shown completely.
  for (const step of result.steps) expect(step.reasoningText).toBeTruthy();
  expect(result.steps[0]?.reasoningText).toContain(thought);
  for (const step of result.steps) expect(step.warnings ?? []).toEqual([]);
  expect(warn).not.toHaveBeenCalled();
  const sent = bodies[1]?.input.find(({ type }) => type === "reasoning");
  expect(sent).toMatchObject({ encrypted_content: expect.stringMatching(/^re1\.k1\./) });
  // The model gets its reasoning again.
  const prompt = JSON.stringify(gateway.vllm.simulator.lastAsked?.body);
  expect(prompt).toContain(thought);
});

it.each(["simulator-reasoning", GPT_OSS])("%s shows its reasoning while it streams", async (model) => {
  const { openai } = provider();
  const result = streamText({
    model: openai.responses(model),
    prompt: "Hello!",
    maxRetries: 0,
    providerOptions: options,
  });
  const types: string[] = [];
  for await (const { type } of result.fullStream) types.push(type);
  expect(types.filter((type) => type === "reasoning-delta").length).toBeGreaterThan(3);
  expect(types.indexOf("reasoning-delta")).toBeLessThan(types.indexOf("text-delta"));
  expect(await result.text).toContain("You said: Hello!");
});
