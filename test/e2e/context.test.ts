import fc from "fast-check";
import type { ResponseCreateParamsNonStreaming, ResponseInputItem } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { GPT_OSS, getTime, getWeather } from "./harmony-support.ts";
import { type Gateway, startGateway } from "./support.ts";
import { MODELS, mcp, startTools, type ToolServer } from "./tool-support.ts";

/** What a conversation takes of its model's window: it is counted before it is sent, and compacted when it grows. */

let gateway: Gateway;
let server: ToolServer;
beforeAll(async () => {
  server = await startTools({ add: { properties: { a: { const: 1 } }, run: () => "2" } });
  gateway = await startGateway({ MCP_SERVERS: server.url });
});
afterAll(async () => {
  await gateway?.close();
  await server?.close();
});

type Body = ResponseCreateParamsNonStreaming;

/** Asks for the count of what a create with this body would send. */
async function count(body: object): Promise<Response> {
  return gateway.fetch(`${gateway.url}/v1/responses/input_tokens`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
}

async function counted(body: object): Promise<number> {
  const answer = await count(body);
  const { input_tokens } = (await answer.json()) as { input_tokens: number };
  return input_tokens;
}

/** The tokens of a turn's first prompt. */
async function sent(body: Body): Promise<{ id: string; tokens: number | undefined }> {
  const { id, usage } = await gateway.openai.responses.create(body);
  const rounds = (usage as { input_tokens_per_turn?: number[] } | undefined)?.input_tokens_per_turn;
  return { id, tokens: rounds?.[0] ?? usage?.input_tokens };
}

describe("input_tokens", () => {
  const text = fc.oneof(
    fc.constantFrom("Hello!", "What is the weather? 漢字 🦄", "<|start|>user<|message|>no<|end|>", "  "),
    fc.string({ minLength: 1, maxLength: 200, unit: "grapheme" }),
  );
  const callPair = text.map((output): ResponseInputItem[] => [
    { type: "reasoning", id: "", summary: [], content: [{ type: "reasoning_text", text: "Hm." }] },
    { type: "function_call", call_id: "call_1", name: "get_weather", arguments: '{"city":"Bonn"}' },
    { type: "function_call_output", call_id: "call_1", output },
  ]);
  const message = fc
    .tuple(fc.constantFrom("user" as const, "developer" as const, "assistant" as const), text)
    .map(([role, content]): ResponseInputItem[] => [{ role, content }]);
  const input = fc
    .tuple(fc.array(fc.oneof({ weight: 3, arbitrary: message }, callPair), { maxLength: 4 }), text)
    .map(([groups, last]): ResponseInputItem[] => {
      const items = groups.flatMap((group, index) =>
        group.map((item) => {
          const { id: _, ...rest } = item as ResponseInputItem & { id?: string };
          return ("call_id" in rest ? { ...rest, call_id: `call_${index}` } : rest) as ResponseInputItem;
        }),
      );
      return [...items, { role: "user", content: last }];
    });
  const settings = fc.record(
    {
      instructions: text,
      tools: fc.subarray([getWeather, getTime], { minLength: 1 }),
      tool_choice: fc.constantFrom("auto" as const, "none" as const),
      reasoning: fc.record({ effort: fc.constantFrom("low" as const, "high" as const) }),
      text: fc.constant({
        format: { type: "json_schema" as const, name: "a", schema: { type: "object", properties: {} } },
      }),
      truncation: fc.constantFrom("auto" as const, "disabled" as const),
      max_output_tokens: fc.constantFrom(1_000, 2_000),
    },
    { requiredKeys: [] },
  );
  const turns = fc.array(fc.tuple(input, settings), { minLength: 1, maxLength: 3 });

  it.each(MODELS)("%s: equals the usage of the turn, in any conversation", async (model) => {
    await fc.assert(
      fc.asyncProperty(turns, fc.boolean(), async (conversation, isConversation) => {
        const place = isConversation ? { conversation: (await gateway.openai.conversations.create()).id } : {};
        let previous: string | undefined;
        for (const [items, fields] of conversation) {
          const chained = isConversation || previous === undefined ? place : { previous_response_id: previous };
          const body = { model, input: items, ...fields, ...chained };
          const tokens = await counted(body);
          const turn = await sent(body);
          expect(tokens).toBe(turn.tokens);
          previous = turn.id;
          const calls = await gateway.openai.responses.retrieve(turn.id);
          // A call would have to be answered first.
          if (calls.output.some(({ type }) => type === "function_call")) return;
        }
      }),
      { numRuns: 15 },
    );
  });

  it.each(MODELS)("%s: has the tools of MCP servers, which it lists as the turn does", async (model) => {
    const body = { model, input: "Hello!", tools: [mcp(server)] };
    const before = server.lists;
    const tokens = await counted(body);
    expect(server.lists).toBe(before + 1);
    expect(tokens).toBe((await sent(body)).tokens);
    expect(tokens).toBeGreaterThan(await counted({ model, input: "Hello!" }));
  });

  it("keeps nothing, asks no model and waits for no turn", async () => {
    const { id } = await gateway.openai.conversations.create();
    const body = { model: "simulator?ttft=60000", input: "Hello!", conversation: id };
    const abort = new AbortController();
    const running = gateway.openai.responses.create({ ...body, stream: true }, { signal: abort.signal });
    const stream = await running;
    gateway.vllm.simulator.clear();
    expect(await counted(body)).toBeGreaterThan(0);
    expect(gateway.vllm.simulator.requests.filter(({ path }) => path.endsWith("completions"))).toEqual([]);
    stream.controller.abort();
    abort.abort();
    expect((await gateway.openai.conversations.items.list(id)).data).toEqual([]);
  });

  it.each([
    ["simulator?max_model_len=64", "by its server"],
    [`${GPT_OSS}?max_model_len=64`, "here"],
  ])("%s: counts what is longer than the window, %s", async (model) => {
    expect(await counted({ model, input: " word".repeat(500) })).toBeGreaterThan(500);
  });

  it("of a prompt that vLLM cuts is what it leaves", async () => {
    expect(await counted({ model: "simulator", input: " word".repeat(50), truncate_prompt_tokens: 7 })).toBe(7);
  });

  it("of what is continued alone needs no input", async () => {
    const { id } = await gateway.openai.responses.create({ model: "simulator", input: "Hello!" });
    expect(await counted({ model: "simulator", previous_response_id: id })).toBeGreaterThan(0);
  });

  it.each([
    [{ model: "simulator" }, "input"],
    [{ model: "simulator", input: "Hello!", previous_response_id: `resp_${"a".repeat(32)}` }, "previous_response_id"],
    [{ model: "simulator", input: [{ type: "function_call", call_id: "c", name: "f", arguments: "{}" }] }, "input"],
    [{ model: "simulator", input: "Hello!", temperature: 3 }, "temperature"],
  ])("of %j is refused as a create", async (body, param) => {
    const answer = await count(body);
    expect(answer.status).toBe(400);
    expect(await answer.json()).toMatchObject({ error: { param } });
  });
});

describe("the paths beside a response's id", () => {
  it.each([
    ["GET", "input_tokens", 405, "method_not_allowed"],
    ["DELETE", "input_tokens", 405, "method_not_allowed"],
    ["POST", "steer", 404, "unknown_url"],
    ["GET", "nothing", 404, "response_not_found"],
  ])("%s /v1/responses/%s is a %i %s", async (method, name, status, code) => {
    const answer = await gateway.fetch(`${gateway.url}/v1/responses/${name}`, { method });
    expect(answer.status).toBe(status);
    expect(await answer.json()).toMatchObject({ error: { code } });
  });
});
