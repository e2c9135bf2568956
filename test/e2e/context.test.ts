import { createHash } from "node:crypto";
import { Agent, OpenAIResponsesCompactionSession, OpenAIResponsesModel, Runner } from "@openai/agents";
import fc from "fast-check";
import type OpenAI from "openai";
import type {
  ResponseCompactionItem,
  ResponseCreateParamsNonStreaming,
  ResponseInputItem,
  ResponseOutputItem,
} from "openai/resources/responses/responses";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { isObject } from "../../dev/simulator/json.ts";
import { GPT_OSS, getTime, getWeather, messagesOf } from "./harmony-support.ts";
import { altered, eventually, type Gateway, startGateway } from "./support.ts";
import { MODELS, mcp, startTools, type ToolServer } from "./tool-support.ts";
import { ended } from "./turns.ts";

/** A conversation in its model's window: it is counted before it is sent, and compacted when it grows. */

let gateway: Gateway;
let server: ToolServer;
beforeAll(async () => {
  server = await startTools({
    add: { properties: { a: { const: 1 } }, run: () => "2" },
    read: { run: () => "A long page. ".repeat(600) },
  });
  gateway = await startGateway({
    MCP_SERVERS: server.url,
    MODEL_ALIASES: JSON.stringify({ "gpt-brief": "simulator?words=5" }),
  });
});
afterAll(async () => {
  await gateway?.close();
  await server?.close();
});

type Body = ResponseCreateParamsNonStreaming;

/** Requests the count of the prompt that a create with this body would send. */
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
          // The next turn would have to answer the call first.
          if (calls.output.some(({ type }) => type === "function_call")) return;
        }
      }),
      { numRuns: 6 },
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

  it("stores nothing, uses no model and waits for no turn", async () => {
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
  ])("%s: counts a prompt beyond the window, %s", async (model) => {
    expect(await counted({ model, input: " word".repeat(500) })).toBeGreaterThan(500);
  });

  it("of a prompt that vLLM truncates is the rest", async () => {
    expect(await counted({ model: "simulator", input: " word".repeat(50), truncate_prompt_tokens: 7 })).toBe(7);
  });

  it("of a history alone needs no input", async () => {
    const { id } = await gateway.openai.responses.create({ model: "simulator", input: "Hello!" });
    expect(await counted({ model: "simulator", previous_response_id: id })).toBeGreaterThan(0);
  });

  it.each([
    [{ model: "simulator" }, "input"],
    [{ model: "simulator", input: "Hello!", previous_response_id: `resp_${"a".repeat(32)}` }, "previous_response_id"],
    [{ model: "simulator", input: [{ type: "function_call", call_id: "c", name: "f", arguments: "{}" }] }, "input"],
    [{ model: "simulator", input: "Hello!", temperature: 3 }, "temperature"],
  ])("refuses %j as a create does", async (body, param) => {
    const answer = await count(body);
    expect(answer.status).toBe(400);
    expect(await answer.json()).toMatchObject({ error: { param } });
  });
});

/** Models that answer everything in five words, one for each engine. */
const BRIEF = ["simulator?words=5", `${GPT_OSS}?words=5`];
const WORDS = "the quick brown fox jumps";
const MANAGED = { context_management: [{ type: "compaction", compact_threshold: 1000 }] };
const TRIGGER: ResponseInputItem = { type: "compaction_trigger" };

/** A conversation whose answer is longer than the threshold. */
const LONG: ResponseInputItem[] = [
  { role: "developer", content: "Be kind." },
  { role: "user", content: "Tell me of Bonn." },
  { role: "assistant", content: "Bonn lies on the Rhine. ".repeat(300) },
];
const NOW: ResponseInputItem = { role: "user", content: "And now?" };

function isGptOss(model: string): boolean {
  return model.startsWith(GPT_OSS);
}

/** The bodies of prompts that have reached vLLM since the last `clear`, oldest first. */
function bodies() {
  return gateway.vllm.simulator.requests.flatMap(({ path, body }) =>
    path.endsWith("/completions") && isObject(body) ? [body] : [],
  );
}

/** The prompts as texts. */
async function prompts(): Promise<string[]> {
  return Promise.all(
    bodies().map(async (body) =>
      "messages" in body ? JSON.stringify(body.messages) : (await messagesOf(body)).join("<|start|>"),
    ),
  );
}

async function lastPrompt(): Promise<string> {
  return (await prompts()).at(-1) ?? "";
}

function compactionOf({ output }: { output: readonly { type: string }[] }): ResponseCompactionItem {
  const items = (output as ResponseOutputItem[]).filter((each) => each.type === "compaction");
  const [item, ...more] = items;
  if (!item || more.length > 0) throw new Error(`Expected one, got ${JSON.stringify(output)}`);
  return item;
}

describe.each(BRIEF)("compaction, %s", (model) => {
  beforeEach(() => gateway.vllm.simulator.clear());

  /** The types of items in an answer without a compaction before it. */
  const answerTypes = isGptOss(model) ? ["reasoning", "message"] : ["message"];

  it("comes before the answer if the prompt reaches the threshold", async () => {
    const body: Body = { model, input: [...LONG, NOW], ...MANAGED, tools: [getWeather] };
    const events = await Array.fromAsync(await gateway.openai.responses.create({ ...body, stream: true }));
    const told = events.flatMap((event) =>
      /item|compaction/.test(event.type) && "output_index" in event ? [[event.type, event.output_index]] : [],
    );
    expect(told.slice(0, 4)).toEqual([
      ["response.output_item.added", 0],
      ["response.compaction.compacting", 0],
      ["response.output_item.done", 0],
      ["response.output_item.added", 1],
    ]);
    const last = events.at(-1);
    const response = last?.type === "response.completed" ? last.response : undefined;
    expect(response?.output.map(({ type }) => type)).toEqual(["compaction", ...answerTypes]);
    const [summary = "", answer = ""] = await prompts();
    expect(bodies()).toHaveLength(2);
    expect(summary).toContain("on the Rhine");
    expect(answer).not.toContain("on the Rhine");
    const kept = ["Be kind.", "Tell me of Bonn.", WORDS, "And now?"];
    expect(kept.map((text) => answer.indexOf(text))).toEqual(
      kept.map((text) => answer.indexOf(text)).toSorted((a, b) => a - b),
    );
    expect(answer).toContain(WORDS);
  });

  it("requests the summary at the end of the same prompt that it replaces", async () => {
    const body: Body = { model, input: [...LONG, NOW], tools: [getWeather], instructions: "Be brief." };
    await gateway.openai.responses.create(body);
    await gateway.openai.responses.create({ ...body, ...MANAGED });
    const [plain, summary] = bodies();
    if (!isGptOss(model)) {
      expect(summary?.tools).toEqual(plain?.tools);
      expect(summary?.tool_choice).toBe("none");
      const before = plain?.messages as unknown[];
      expect(summary?.messages).toEqual([...before, { role: "user", content: expect.stringContaining("summary") }]);
    } else {
      const [before = "", after = ""] = await prompts();
      expect(after.startsWith(before.slice(0, before.lastIndexOf("<|start|>")))).toBe(true);
    }
    expect(summary?.cache_salt).toBe(plain?.cache_salt);
  });

  it("adds the summary's tokens to the usage, and leaves max_output_tokens to the answer", async () => {
    const { usage, status } = await gateway.openai.responses.create({
      model,
      input: [...LONG, NOW],
      ...MANAGED,
      max_output_tokens: 100,
    });
    expect(status).toBe("completed");
    const { input_tokens_per_turn: rounds } = usage as { input_tokens_per_turn?: number[] };
    expect(rounds).toHaveLength(2);
    expect(rounds?.[0]).toBeGreaterThan(1000);
    expect(rounds?.[1]).toBeLessThan(1000);
    expect(usage?.input_tokens).toBe((rounds?.[0] ?? 0) + (rounds?.[1] ?? 0));
    expect(bodies()[1]).toMatchObject(isGptOss(model) ? { max_tokens: 100 } : { max_completion_tokens: 100 });
  });

  it("does not come below the threshold, nor if the request disables it", async () => {
    const short = await gateway.openai.responses.create({ model, input: "Hello!", ...MANAGED });
    const unmanaged = await gateway.openai.responses.create({ model, input: [...LONG, NOW] });
    const empty = await gateway.openai.responses.create({ model, input: [...LONG, NOW], context_management: [] });
    for (const { output } of [short, unmanaged, empty]) expect(output.map(({ type }) => type)).toEqual(answerTypes);
    expect(bodies()).toHaveLength(3);
  });

  // The card of gpt-oss has a fixed window, also with other settings in a request.
  it.skipIf(isGptOss(model))("has a default threshold: most of the window, less the answer", async () => {
    const narrow = `${model}&max_model_len=3000`;
    const context_management = [{ type: "compaction" }];
    const body: Body = { model: narrow, input: [...LONG, NOW], context_management };
    const { output } = await gateway.openai.responses.create({ ...body, max_output_tokens: 1000 });
    expect(output[0]?.type).toBe("compaction");
    const { output: wide } = await gateway.openai.responses.create({ ...body, max_output_tokens: 100 });
    expect(wide.map(({ type }) => type)).toEqual(answerTypes);
  });

  it("is the beginning of later turns; earlier responses can be continued without it", async () => {
    const first = await gateway.openai.responses.create({ model, input: LONG });
    const compacted = await gateway.openai.responses.create({
      model,
      input: [NOW],
      previous_response_id: first.id,
      ...MANAGED,
    });
    compactionOf(compacted);
    await gateway.openai.responses.create({ model, input: "Later.", previous_response_id: compacted.id });
    const later = await lastPrompt();
    expect(later).not.toContain("on the Rhine");
    for (const kept of ["Tell me of Bonn.", WORDS, "And now?", "Later."]) expect(later).toContain(kept);
    await gateway.openai.responses.create({ model, input: "A branch.", previous_response_id: first.id });
    expect(await lastPrompt()).toContain("on the Rhine");
  });

  it("replaces the items before it in an input, whatever its origin", async () => {
    const { output } = await gateway.openai.responses.create({
      model,
      input: [...LONG, NOW],
      ...MANAGED,
      store: false,
    });
    const item = compactionOf({ output });
    const fresh: ResponseInputItem[] = [{ role: "developer", content: "Be quick." }, ...LONG, item];
    await gateway.openai.responses.create({
      model,
      input: [...fresh, { role: "user", content: "Later." }],
      store: false,
    });
    const prompt = await lastPrompt();
    expect(prompt).not.toContain("on the Rhine");
    for (const kept of ["Be quick.", "Be kind.", "Tell me of Bonn.", WORDS, "Later."]) {
      expect(prompt.split(kept)).toHaveLength(2);
    }
  });

  it("is made in a conversation for all later turns", async () => {
    const { id } = await gateway.openai.conversations.create({ items: LONG });
    const { output } = await gateway.openai.responses.create({ model, input: [NOW], conversation: id, ...MANAGED });
    compactionOf({ output });
    await gateway.openai.responses.create({ model, input: "Later.", conversation: id });
    expect(await lastPrompt()).not.toContain("on the Rhine");
    const { data } = await gateway.openai.conversations.items.list(id, { order: "asc" });
    expect(data.map(({ type }) => type)).toContain("compaction");
  });

  it("is made in the background, too", async () => {
    const begun = await gateway.openai.responses.create({ model, input: [...LONG, NOW], ...MANAGED, background: true });
    const { output, status } = await ended(gateway, begun.id);
    expect(status).toBe("completed");
    expect(output.map(({ type }) => type)).toEqual(["compaction", ...answerTypes]);
  });

  it("comes between the rounds of a turn, when the output of a tool has filled the prompt", async () => {
    // The simulated model, which does not understand summaries, would use the tool for ever.
    const body: Body = { model, input: "Use docs__read.", tools: [mcp(server)], max_tool_calls: 1, ...MANAGED };
    const { output, usage } = await gateway.openai.responses.create(body);
    const types = output.map(({ type }) => type).filter((type) => type !== "reasoning");
    expect(types).toEqual(["mcp_list_tools", "mcp_call", "compaction", "message"]);
    expect((usage as { input_tokens_per_turn?: number[] }).input_tokens_per_turn).toHaveLength(3);
    const [, summary = "", answer = ""] = await prompts();
    expect(summary).toContain("A long page.");
    expect(answer).toContain("Use docs__read.");
  });

  it("by a trigger is the response's only item", async () => {
    const body: Body = { model, input: [...LONG, NOW, TRIGGER], tools: [getWeather], store: false };
    const events = await Array.fromAsync(await gateway.openai.responses.create({ ...body, stream: true }));
    const last = events.at(-1);
    const response = last?.type === "response.completed" ? last.response : undefined;
    expect(response?.output.map(({ type }) => type)).toEqual(["compaction"]);
    const item = compactionOf(response ?? { output: [] });
    expect(bodies()).toHaveLength(1);
    await gateway.openai.responses.create({ model, input: [item, { role: "user", content: "Later." }], store: false });
    const prompt = await lastPrompt();
    for (const kept of ["Be kind.", "Tell me of Bonn.", "And now?", WORDS, "Later."]) expect(prompt).toContain(kept);
  });

  it("by a trigger is stored without the trigger", async () => {
    const first = await gateway.openai.responses.create({ model, input: LONG });
    const place = { previous_response_id: first.id };
    const compacted = await gateway.openai.responses.create({ model, input: [TRIGGER], ...place, background: true });
    compactionOf(await ended(gateway, compacted.id));
    expect((await gateway.openai.responses.inputItems.list(compacted.id)).data).toEqual([]);
    await gateway.openai.responses.create({ model, input: "Later.", previous_response_id: compacted.id });
    expect(await lastPrompt()).not.toContain("on the Rhine");
  });

  it("keeps unanswered calls, whose outputs come after it", async () => {
    const call: ResponseInputItem = { type: "function_call", call_id: "call_1", name: "get_weather", arguments: "{}" };
    const { output } = await gateway.openai.responses.create({ model, input: [...LONG, NOW, call, TRIGGER] });
    expect(await lastPrompt()).not.toContain("get_weather");
    const answer: ResponseInputItem = { type: "function_call_output", call_id: "call_1", output: "sunny" };
    await gateway.openai.responses.create({ model, input: [compactionOf({ output }), answer], tools: [getWeather] });
    const prompt = await lastPrompt();
    for (const kept of ["get_weather", "sunny"]) expect(prompt).toContain(kept);
  });

  it("by /compact gives the user's messages and one item, and is stored nowhere", async () => {
    const input = [...LONG, NOW, { role: "assistant" as const, content: "Nothing." }];
    const compacted = await gateway.openai.responses.compact({ model, input, instructions: "Be brief." });
    expect(compacted.output.map((item) => (item.type === "message" ? [item.role, item.content] : item.type))).toEqual([
      ["user", [{ type: "input_text", text: "Tell me of Bonn." }]],
      ["user", [{ type: "input_text", text: "And now?" }]],
      "compaction",
    ]);
    expect(compacted).toMatchObject({ object: "response.compaction", usage: { output_tokens: expect.any(Number) } });
    expect(compacted.usage.input_tokens).toBeGreaterThan(1000);
    const next = [...compacted.output, { role: "user", content: "Later." }] as ResponseInputItem[];
    await gateway.openai.responses.create({ model, input: next });
    const prompt = await lastPrompt();
    for (const kept of ["Be kind.", "Tell me of Bonn.", "And now?", WORDS, "Later."]) {
      expect(prompt.split(kept)).toHaveLength(2);
    }
    await expect(
      gateway.openai.responses.create({ model, input: "Later.", previous_response_id: compacted.id }),
    ).rejects.toMatchObject({ status: 400, code: "previous_response_not_found" });
  });

  it("by /compact accepts a response's items, and can be compacted again", async () => {
    const first = await gateway.openai.responses.create({ model, input: [...LONG, NOW] });
    const once = await gateway.openai.responses.compact({ model, previous_response_id: first.id });
    const input = [...once.output, LONG[2], { role: "user", content: "Later." }] as ResponseInputItem[];
    const twice = await gateway.openai.responses.compact({ model, input });
    expect(twice.output.map(({ type }) => type)).toEqual(["message", "message", "message", "compaction"]);
    const [item] = twice.output.slice(-1) as ResponseInputItem[];
    await gateway.openai.responses.create({
      model,
      input: [item, { role: "user", content: "Last." }] as ResponseInputItem[],
    });
    const prompt = await lastPrompt();
    for (const kept of ["Tell me of Bonn.", "And now?", WORDS, "Later.", "Last."]) {
      expect(prompt.split(kept)).toHaveLength(2);
    }
  });
});

describe("a useless summary", () => {
  beforeEach(() => gateway.vllm.simulator.clear());

  it.each(MODELS)("%s: that is longer than the conversation is not used, and nothing is lost", async (model) => {
    const input: ResponseInputItem[] = [
      { role: "user", content: "One." },
      { role: "assistant", content: "Two." },
    ];
    const { output } = await gateway.openai.responses.compact({ model: `${model}?words=200`, input });
    await gateway.openai.responses.create({ model, input: [...output.slice(-1), NOW] as ResponseInputItem[] });
    const prompt = await lastPrompt();
    for (const kept of ["One.", "Two.", "And now?"]) expect(prompt).toContain(kept);
    expect(prompt).not.toContain(WORDS);
  });

  it.each(BRIEF.map((model) => model.replace("words=5", "words=0")))(
    "%s: that is empty leaves the prompt unchanged, and the model is not asked again",
    async (model) => {
      const { output } = await gateway.openai.responses.create({ model, input: [...LONG, NOW], ...MANAGED });
      expect(output.map(({ type }) => type)).not.toContain("compaction");
      expect(bodies()).toHaveLength(2);
      expect(await lastPrompt()).toContain("on the Rhine");
    },
  );

  it.each(BRIEF.map((model) => model.replace("words=5", "words=0")))(
    "%s: that is empty on request is an error",
    async (model) => {
      await expect(gateway.openai.responses.compact({ model, input: LONG })).rejects.toMatchObject({ status: 502 });
      expect(bodies()).toHaveLength(2);
    },
  );

  it.each(BRIEF.slice(0, 1))("%s: that does not fit the window is made from the last turns", async (model) => {
    const turn = (at: number): ResponseInputItem[] => [
      { role: "user", content: `Question ${at}.` },
      { role: "assistant", content: "Bonn lies on the Rhine. ".repeat(150) },
    ];
    const input = [...turn(1), ...turn(2), ...turn(3), NOW];
    const narrow = `${model}&max_model_len=3000`;
    const { output } = await gateway.openai.responses.create({ model: narrow, input, ...MANAGED });
    compactionOf({ output });
    const [summary = "", answer = ""] = await prompts();
    expect(summary).not.toContain("Question 1.");
    for (const kept of ["Question 1.", "Question 3.", "And now?", WORDS]) expect(answer).toContain(kept);
  });
});

describe("a client", () => {
  beforeEach(() => gateway.vllm.simulator.clear());

  it("that disconnects in the middle of a summary ends it, and has seen its beginning", async () => {
    const model = "simulator?words=5&fault=stall:2";
    const body: Body = { model, input: [...LONG, NOW], ...MANAGED, store: false };
    const stream = await gateway.openai.responses.create({ ...body, stream: true });
    const types: string[] = [];
    for await (const { type } of stream) {
      types.push(type);
      if (type === "response.compaction.compacting") break;
    }
    expect(types.slice(2)).toEqual(["response.output_item.added", "response.compaction.compacting"]);
    stream.controller.abort();
    await eventually(() => gateway.vllm.simulator.requests.some(({ state }) => state === "aborted"));
  });

  it("Codex, when it compacts by itself, sends a normal request without tools", async () => {
    const input: ResponseInputItem[] = [...LONG, { role: "user", content: "Write a summary for hand-off." }];
    const body: Body = { model: "simulator?words=5", input, tools: [], parallel_tool_calls: false, store: false };
    const { output_text, usage } = await gateway.openai.responses.create({ ...body, prompt_cache_key: "thread" });
    expect(output_text).toBe(WORDS);
    expect(usage?.total_tokens).toBe((usage?.input_tokens ?? 0) + (usage?.output_tokens ?? 0));
    expect(bodies()[0]).not.toHaveProperty("tools");
  });

  it.each(["input", "previous_response_id"] as const)(
    "of the Agents SDK compacts its session by %s, and continues with it",
    async (compactionMode) => {
      const client = gateway.client({});
      const session = new OpenAIResponsesCompactionSession({ client, model: "gpt-brief", compactionMode });
      const agent = new Agent({
        name: "Assistant",
        instructions: "Be kind.",
        model: new OpenAIResponsesModel(client, "gpt-brief"),
      });
      const runner = new Runner({ tracingDisabled: true });
      await runner.run(agent, "Tell me of Bonn.", { session });
      await session.runCompaction({ force: true });
      expect((await session.getItems()).map(({ type }) => type)).toEqual(["message", "compaction"]);
      const { finalOutput } = await runner.run(agent, "And now?", { session });
      expect(finalOutput).toBe(WORDS);
      const prompt = await lastPrompt();
      for (const kept of ["Be kind.", "Tell me of Bonn.", "And now?"]) expect(prompt.split(kept)).toHaveLength(2);
    },
  );
});

describe("an invalid compaction", () => {
  const own = (body: object) => ({ model: "simulator?words=5", ...body });

  it.each([
    [
      { input: "Hello!", context_management: [{ type: "compaction", compact_threshold: 999 }] },
      "context_management[0].compact_threshold",
    ],
    [{ input: "Hello!", context_management: [{ type: "forgetting" }] }, "context_management[0].type"],
    [{ input: "Hello!", context_management: {} }, "context_management"],
    [{ input: [TRIGGER, NOW] }, "input[0]"],
    [{ input: [TRIGGER, TRIGGER] }, "input[0]"],
    [{ input: [TRIGGER] }, "input"],
    [{ input: [{ type: "compaction" }, NOW] }, "input[0].encrypted_content"],
    [{ input: [{ type: "compaction", encrypted_content: "" }, NOW] }, "input[0].encrypted_content"],
    [{ input: [NOW, { type: "compaction", encrypted_content: "gAAAA" }] }, "input[1].encrypted_content"],
    [{ input: [{ type: "compaction", encrypted_content: "cmp1.{}" }, NOW] }, "input[0].encrypted_content"],
    [
      { input: [{ type: "compaction", encrypted_content: `cmp1.${"[".repeat(100_000)}` }, NOW] },
      "input[0].encrypted_content",
    ],
    [
      { input: [{ type: "compaction", encrypted_content: 'cmp1.{"v":2,"before":[],"summary":"","after":[]}' }] },
      "input[0].encrypted_content",
    ],
    [{ input: [plainItem([{ type: "compaction", encrypted_content: "x" }])] }, "input[0].encrypted_content"],
    [{ input: [plainItem([{ type: "item_reference", id: "msg_1" }])] }, "input[0].encrypted_content"],
    [{ input: [plainItem([image("https://10.0.0.1/a.png")])] }, "input[0].encrypted_content"],
  ])("%j names its field", async (body, param) => {
    const answer = await gateway.post(own(body));
    expect(answer.status).toBe(400);
    expect(await answer.json()).toMatchObject({ error: { param } });
  });

  it.each([
    [{}, "input"],
    [{ input: "Hello!", model: undefined }, "model"],
    [{ previous_response_id: `resp_${"a".repeat(32)}` }, "previous_response_id"],
    [{ input: [{ type: "compaction", encrypted_content: "gAAAA" }] }, "input[0].encrypted_content"],
  ])("at /compact with %j names its field", async (body, param) => {
    const answer = await gateway.fetch(`${gateway.url}/v1/responses/compact`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(own(body)),
    });
    expect(answer.status).toBe(400);
    expect(await answer.json()).toMatchObject({ error: { param } });
  });

  it("does not enter a conversation", async () => {
    const refused = (item: object) => gateway.openai.conversations.create({ items: [item as ResponseInputItem] });
    await expect(refused(TRIGGER)).rejects.toMatchObject({ status: 400, param: "items[0].type" });
    await expect(refused({ type: "compaction", encrypted_content: "x" })).rejects.toMatchObject({
      status: 400,
      param: "items[0].encrypted_content",
    });
  });
});

/** A compaction item as a deployment without encryption keys writes it. */
function plainItem(before: object[]): object {
  const content = { v: 1, before, summary: "Said.", after: [] };
  return { type: "compaction", encrypted_content: `cmp1.${JSON.stringify(content)}` };
}

function image(image_url: string): object {
  return { type: "message", role: "user", content: [{ type: "input_image", image_url }] };
}

describe("the paths beside a response's id", () => {
  it.each([
    ["GET", "input_tokens", 405, "method_not_allowed"],
    ["DELETE", "input_tokens", 405, "method_not_allowed"],
    ["POST", "steer", 404, "response_not_found"],
    ["GET", "nothing", 404, "response_not_found"],
  ])("%s /v1/responses/%s is a %i %s", async (method, name, status, code) => {
    const body = method === "POST" ? { headers: { "content-type": "application/json" }, body: '{"metadata":{}}' } : {};
    const answer = await gateway.fetch(`${gateway.url}/v1/responses/${name}`, { method, ...body });
    expect(answer.status).toBe(status);
    expect(await answer.json()).toMatchObject({ error: { code } });
  });
});

describe("with keys", () => {
  let sealed: Gateway;
  const keys = { acme: `sk-${"a".repeat(40)}`, other: `sk-${"b".repeat(40)}` };
  beforeAll(async () => {
    sealed = await startGateway({
      API_KEYS: Object.entries(keys)
        .map(([tenant, key]) => `${tenant}:${createHash("sha256").update(key).digest("hex")}`)
        .join(","),
      ENCRYPTION_KEYS: `k:${Buffer.alloc(32, 7).toString("base64")}`,
    });
  });
  afterAll(() => sealed?.close());

  it("a compaction item belongs to its tenant, as a whole, for any of its models", async () => {
    const [mine, other] = [keys.acme, keys.other].map((apiKey) => sealed.client({ apiKey }));
    const { output } = await (mine as OpenAI).responses.compact({ model: "simulator?words=5", input: LONG });
    const item = compactionOf({ output });
    expect(item.encrypted_content).not.toContain("Bonn lies on");
    const next = (content: string): Body => ({
      model: GPT_OSS,
      input: [{ type: "compaction", encrypted_content: content }, NOW],
      store: false,
    });
    const { encrypted_content: content } = item;
    expect((await (mine as OpenAI).responses.create(next(content))).status).toBe("completed");
    const refused = { status: 400, param: "input[0].encrypted_content", code: "invalid_encrypted_content" };
    await expect((other as OpenAI).responses.create(next(content))).rejects.toMatchObject(refused);
    for (const forged of [content.slice(0, -20), altered(content), 'cmp1.{"v":1}', "gAAAA"]) {
      await expect((mine as OpenAI).responses.create(next(forged))).rejects.toMatchObject(refused);
    }
  });
});
