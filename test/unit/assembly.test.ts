import { createRequest } from "@responses-edge/responses-api/create-bodies";
import { invalidRequest } from "@responses-edge/responses-api/errors";
import { newTurnAddress } from "@responses-edge/responses-api/ids";
import type { Item } from "@responses-edge/responses-api/items/registry";
import type { Engine } from "@responses-edge/turn/contract/engine";
import { newMeasurements } from "@responses-edge/turn/contract/measurements";
import { truncateToFit } from "@responses-edge/turn/truncation";
import { beforeEach, describe, expect, it } from "vitest";
import { createSimulator, type Simulator } from "../../dev/simulator/handler.ts";
import { assemblePrompt, assembleTurn, type Past, type TurnSpec } from "../../src/assembly/assemble-turn.ts";
import { type Config, loadConfig } from "../../src/config/index.ts";

let simulator: Simulator;
let config: Config;
beforeEach(() => {
  simulator = createSimulator();
  const fetch = (url: string, init: RequestInit) => simulator.fetch(new Request(url, init));
  config = loadConfig({ VLLM: { fetch }, ALLOW_ANONYMOUS: "true" });
});

const { signal } = new AbortController();

function specOf(body: object): TurnSpec {
  const model = { name: "simulator", upstream: "simulator", engine: "chat" } as const;
  return {
    ...newTurnAddress(),
    request: createRequest.parse({ model: "simulator", input: "Go on.", ...body }),
    model,
    tenant: "tenant",
    cacheSalt: "salt",
    affinity: { isRooted: true },
    createdAt: Date.now(),
  };
}

function said(role: "user" | "assistant", text: string): Item {
  return role === "user"
    ? { type: "message", role, status: "completed", content: [{ type: "input_text", text }] }
    : {
        type: "message",
        role,
        status: "completed",
        content: [{ type: "output_text", text, annotations: [], logprobs: [] }],
      };
}

/** An engine of a model whose context window has so many tokens. */
function withWindow(engine: Engine, contextWindow: number): Engine {
  const measure = async (...asked: Parameters<Engine["measure"]>) => ({
    ...(await engine.measure(...asked)),
    contextWindow,
  });
  return Object.create(engine, { measure: { value: measure } });
}

const past: Past = {
  history: [said("user", "Hello."), said("assistant", "You said: Hello.")],
  replays: [],
  input: [said("user", "Go on.")],
};

/** The last body that vLLM got on a route. */
function lastBody(route: string): Record<string, unknown> {
  const { body } = simulator.requests.findLast(({ path }) => path.endsWith(route)) ?? {};
  return body as Record<string, unknown>;
}

describe("a prompt without a turn", () => {
  const tools = [{ type: "function", name: "look", parameters: { type: "object", properties: {} }, strict: false }];

  it("is counted as the same prompt that the turn sends", async () => {
    const spec = specOf({ instructions: "Be brief.", tools });
    const { engine, prompt } = await assemblePrompt(spec, past, { config, access: {}, signal });
    const { tokens } = await engine.measure(prompt, signal);
    const measured = newMeasurements();
    const host = { config, access: {}, outputLength: 1_000_000, signal, waitUntil: () => {}, measured };
    const turn = assembleTurn(spec, past, host);
    const { outcome } = await turn.run(turn.start(), async (_, terminate) => terminate());
    expect(outcome.status).toBe("completed");
    const [counted, sent] = [lastBody("/tokenize"), lastBody("/chat/completions")];
    expect(tokens).toBeGreaterThan(0);
    expect(counted.messages).toEqual(sent.messages);
    expect(counted.tools).toEqual(sent.tools);
  });

  it("is shortened until it fits", async () => {
    const { engine, prompt } = await assemblePrompt(specOf({}), past, { config, access: {}, signal });
    const whole = await engine.measure(prompt, signal);
    // The window is too small for the whole prompt and the answer.
    const fitted = await truncateToFit(withWindow(engine, whole.tokens + 15), prompt, signal);
    expect(fitted.items).toEqual(past.input);
  });

  it("loses only the oldest turn where answers were cut off before their text", async () => {
    const of = (home: string, text: string): Item => ({ ...said("user", text), id: `msg_${home.repeat(32)}i0` });
    const history = [of("a", "One ".repeat(20)), of("b", "Two ".repeat(20))];
    const { engine, prompt } = await assemblePrompt(specOf({}), { ...past, history }, { config, access: {}, signal });
    const whole = await engine.measure(prompt, signal);
    const fitted = await truncateToFit(withWindow(engine, whole.tokens), prompt, signal);
    expect(fitted.items).toEqual([history[1], ...past.input]);
  });

  it("is refused like the turn when its calls have no outputs", async () => {
    const call: Item = { type: "function_call", call_id: "call_1", name: "look", arguments: "{}", status: "completed" };
    const unanswered = { ...past, history: [...past.history, call] };
    const refusal = expect.objectContaining({ status: 400, param: "input" });
    const counted = assemblePrompt(specOf({ tools }), unanswered, { config, access: {}, signal });
    await expect(counted).rejects.toEqual(refusal);
  });
});

it("needs neither tools nor calls' outputs without a history", async () => {
  const tools = [{ type: "mcp", server_label: "docs", server_url: "https://docs.example.com/mcp" }];
  const host = {
    config,
    access: {},
    outputLength: 1_000_000,
    signal,
    waitUntil: () => {},
    measured: newMeasurements(),
  };
  const turn = assembleTurn(specOf({ tools }), undefined, host);
  const error = invalidRequest("previous_response_id", "It has been deleted.");
  const { closed } = await turn.abandon({ status: "failed", error }, async (_, terminate) => terminate());
  expect(JSON.parse(closed.head)).toMatchObject({ status: "failed", error: { message: "It has been deleted." } });
  expect(simulator.requests).toEqual([]);
});
