import { LongWork } from "@responses-edge/bounded-io/long-work";
import { ChatEngine } from "@responses-edge/engines/chat/engine";
import { DIALECT_NAMES } from "@responses-edge/engines/dialects/dialect";
import { HarmonyEngine } from "@responses-edge/engines/harmony/engine";
import type { ModelServerConfig, UpstreamConfig } from "@responses-edge/engines/settings";
import { Upstream } from "@responses-edge/engines/upstream";
import { createRequest } from "@responses-edge/responses-api/create-bodies";
import type { Item } from "@responses-edge/responses-api/items/registry";
import { parse } from "@responses-edge/responses-api/validation-errors";
import type { Engine, Prompt } from "@responses-edge/turn/contract/engine";
import { Plugins } from "@responses-edge/turn/contract/plugin";
import { commonLength, firstDifference } from "@responses-edge/turn/prompt-drift";
import fc from "fast-check";
import { describe, expect, it } from "vitest";

/** The prompt of a turn is the beginning of every later prompt of its conversation: a prefix cache can use all of it again. */

const signal = new AbortController().signal;

function upstreamOf(dialect: ModelServerConfig["dialect"], model: string): Upstream {
  const server: ModelServerConfig = {
    ...{ name: `gpu-${dialect}`, baseUrl: `http://${dialect}/v1`, dialect },
    fetch: async () => Response.json({ data: [{ id: model, owned_by: "x" }] }),
    ...{ transport: "fetch", connector: undefined, apiKey: undefined, headers: {}, weight: 1, drains: false },
    ...{
      keepsConversations: true,
      models: undefined,
      engine: undefined,
      salted: true,
      sharesCache: false,
      maxInFlight: undefined,
    },
  };
  const config: UpstreamConfig = {
    ...{ modelServers: [server], loadFactor: 1.5, failoverMs: 5_000, boardMs: 0, unsaltedServers: undefined },
    ...{
      contextWindows: {},
      maxWaiting: 100,
      connectTimeoutMs: 5_000,
      firstByteTimeoutMs: 5_000,
      idleTimeoutMs: 5_000,
      silenceMs: 5_000,
    },
  };
  return new Upstream(config, { model });
}

const words = fc.constantFrom("", " ", "\n\n", "a", " b\n", "\n\nHello", "3.0", "1e3", "你好", "{}", "<think>");
const text = fc.array(words, { minLength: 1, maxLength: 4 }).map((parts) => parts.join(""));
const args = fc.constantFrom('{"b": 1, "a": 2.0}', '{"a":1e2}', "{}", "", "[]", '{"cut', '{"s":"\\u00e9"}');

const thought = text.map((said): Item => {
  const content = [{ type: "reasoning_text" as const, text: said }];
  return { type: "reasoning", id: "rs", summary: [], content, status: "completed" } as Item;
});
const said = text.map((value): Item => {
  const content = [{ type: "output_text" as const, text: value, annotations: [], logprobs: [] }];
  return { type: "message", role: "assistant", status: "completed", content } as Item;
});
const asked = fc.tuple(fc.constantFrom("user", "user", "developer"), text).map(([role, value]): Item => {
  return { type: "message", role, status: "completed", content: [{ type: "input_text", text: value }] } as Item;
});

const OPENING = {
  ...{ type: "message", role: "user", status: "completed" },
  content: [{ type: "input_text", text: "Hello" }],
} as Item;

/** A step of an agent: thoughts and text, and calls with their outputs. */
const step = fc
  .record({
    thoughts: fc.array(thought, { maxLength: 1 }),
    texts: fc.array(said, { maxLength: 1 }),
    calls: fc.array(args, { maxLength: 3 }),
  })
  .filter(({ texts, calls }) => texts.length + calls.length > 0);

/** A conversation as the items of all its prompts: each ends where a model is asked. */
const conversation = fc
  .array(fc.tuple(asked, fc.array(step, { maxLength: 3 })), { minLength: 2, maxLength: 5 })
  .map((turns) => {
    // Instructions at the beginning are one message, which a user's message ends.
    const items: Item[] = [OPENING];
    const prompts: number[] = [];
    for (const [message, steps] of turns) {
      items.push(message);
      prompts.push(items.length);
      for (const { thoughts, texts, calls } of steps) {
        items.push(...thoughts, ...texts);
        const ids = calls.map((_, index) => `call_${items.length}_${index}`);
        const named = calls.map((json, index) => ({
          type: "function_call",
          call_id: ids[index],
          name: "look",
          arguments: json,
        }));
        const outputs = ids.map((call_id) => ({ type: "function_call_output", call_id, output: "seen" }));
        items.push(...([...named, ...outputs] as Item[]));
        if (calls.length > 0) prompts.push(items.length);
      }
    }
    return prompts.map((end) => items.slice(0, end));
  });

function promptOf(model: string, items: Item[]): Prompt {
  const tools = [{ type: "function", name: "look", parameters: { type: "object", properties: {} } }];
  const request = parse(createRequest, {
    input: "x",
    instructions: "Be brief.",
    tools,
    reasoning: { context: "all_turns" },
  });
  return { model, items, replays: [], request, cacheSalt: "", createdAt: 0 };
}

async function expectPrefixes(engine: Engine, model: string, conversations: readonly Item[][]): Promise<void> {
  let before:
    | { parts: Awaited<ReturnType<Engine["parts"]>>; rendered?: Awaited<ReturnType<Engine["rendered"]>> }
    | undefined;
  for (const items of conversations) {
    const prompt = promptOf(model, items);
    const parts = await engine.parts(prompt, signal);
    const rendered = engine.noteRole === "developer" ? await engine.rendered(prompt, signal) : undefined;
    if (before) {
      expect(firstDifference(before.parts, parts)).toBeUndefined();
      if (before.rendered && rendered) expect(commonLength(before.rendered, rendered)).toBe(before.rendered.length);
    }
    before = { parts, rendered };
  }
}

describe("a prompt is the beginning of the next one", () => {
  it.each(
    DIALECT_NAMES.flatMap((dialect) =>
      ["m", "mistral-small", "kimi-k2", "qwen3.6"].map((model) => [dialect, model] as const),
    ),
  )("for %s, and the model %s", async (dialect, model) => {
    const engine = new ChatEngine(upstreamOf(dialect, model), new Plugins([]));
    await fc.assert(
      fc.asyncProperty(conversation, (prompts) => expectPrefixes(engine, model, prompts)),
      { numRuns: 40 },
    );
  });

  it("for gpt-oss, to the token", async () => {
    const config = { startDate: "2026-01-02", systemInstructions: false, toolHeader: "channel-first" as const };
    const engine = new HarmonyEngine(upstreamOf("vllm", "gpt-oss"), new Plugins([]), config, new LongWork(""));
    await fc.assert(
      fc.asyncProperty(conversation, (prompts) => expectPrefixes(engine, "gpt-oss", prompts)),
      { numRuns: 40 },
    );
  });
});
