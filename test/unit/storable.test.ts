import { env } from "cloudflare:workers";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { newTurnAddress } from "@responses-edge/responses-api/ids";
import { itemId } from "@responses-edge/responses-api/items/registry";
import { jsonLength } from "@responses-edge/responses-api/json";
import type { Engine, ModelDelta } from "@responses-edge/turn/contract/engine";
import { newMeasurements } from "@responses-edge/turn/contract/measurements";
import { programFingerprints } from "@responses-edge/turn/sealed-content/program-fingerprint";
import { compactionCodec } from "@responses-edge/turn/sealed-content/sealer";
import { Turn, type TurnResult } from "@responses-edge/turn/turn";
import { describe, expect, it } from "vitest";
import { MAX_CALL_LENGTH, MAX_PAGE_LENGTH, maxOutputLength } from "../../src/store/objects/rpc.ts";
import { PLUGINS } from "../../src/tools/plugins.ts";

/** A turn's output can always be stored: every message between the Worker and a home is bounded. */

const KI = 1024;
const ROOM = 512 * KI;

/** A model that never ends, and the state of its stream. */
function endless(batch: (index: number) => ModelDelta[]) {
  const seen = { batches: 0, closed: false };
  async function* deltas(): AsyncGenerator<ModelDelta[]> {
    try {
      for (;;) {
        yield batch(seen.batches);
        seen.batches += 1;
      }
    } finally {
      seen.closed = true;
    }
  }
  const engine: Engine = {
    noteRole: "user",
    generate: async () => deltas(),
    resumption: () => undefined,
    unboundThinking: () => undefined,
    parts: async () => [],
    rendered: async () => undefined,
    renderedText: async () => "",
    measure: async () => ({ tokens: 1, contextWindow: 100_000 }),
    accept: (request) => request,
    mayCall: () => true,
    inputMessages: async () => [],
    answerMessages: () => [],
  };
  return { engine, seen };
}

async function play(engine: Engine, request: CreateRequest = {}): Promise<TurnResult> {
  const turn = new Turn({
    asked: {
      request: { model: "m", ...request },
      address: newTurnAddress(),
      model: { name: "m", upstream: "m" },
      cacheSalt: "",
      createdAt: 0,
    },
    past: { history: [], replays: [], input: [], removed: [] },
    model: { engine, isServerGone: async () => false, leaveServer: () => {} },
    bounds: { maxRetries: 0, maxFruitless: 0, outageMs: 0, outputLength: ROOM, maxRounds: 32, repetitionGuard: "off" },
    tools: { plugins: PLUGINS },
    secrets: {
      hidesReasoning: false,
      seal: undefined,
      compactions: compactionCodec([], ""),
      programs: programFingerprints([], ""),
    },
    host: { signal: new AbortController().signal, clock: () => 0, measured: newMeasurements() },
  });
  return turn.run(turn.start(), async (_, terminate) => terminate());
}

const said = (text: string): ModelDelta => ({ kind: "text", text });
const logprob = { token: "token", logprob: -0.123456789, bytes: [1, 2, 3], top_logprobs: [] };

describe("a turn with too much output", () => {
  const kinds: [string, (index: number) => ModelDelta[], CreateRequest?][] = [
    ["text", () => [said("word ".repeat(100))]],
    ["text that JSON escapes", () => [said('"\\\n\u0001'.repeat(100))]],
    ["halves of characters", () => [said("\ud83e".repeat(100))]],
    ["reasoning", () => [{ kind: "reasoning", text: "word ".repeat(100) }]],
    ["logprobs", () => [{ kind: "text", text: "x", logprobs: Array.from({ length: 20 }, () => logprob) }]],
    [
      "a call's arguments",
      () => [{ kind: "tool_call", index: 0, callId: "c", name: "f", arguments: '"a" '.repeat(100) }],
    ],
    ["calls", (index) => [{ kind: "tool_call", index, callId: `call_${index}`, name: "f", arguments: "{}" }]],
    ["items", (index) => [index % 2 ? said("x") : { kind: "reasoning", text: "x" }]],
    ["what it has sampled", () => [{ kind: "sampled", sampled: { ids: [1] } }, said("word ".repeat(100))]],
    [
      "raw messages",
      () => [
        { kind: "sampled", sampled: { ids: [1] } },
        said("word ".repeat(100)),
        { kind: "item_done" },
        { kind: "message", index: 0, itemKind: "message", message: { content: "word ".repeat(100) } },
      ],
      { enable_response_messages: true },
    ],
  ];

  it.each(kinds)("is incomplete, is stored, and its generation is closed: %s", async (_, batch, request) => {
    const { engine, seen } = endless(batch);
    const { outcome, closed } = await play(engine, request);
    expect(outcome).toEqual({ status: "incomplete", reason: "max_output_tokens" });
    expect(seen.closed).toBe(true);
    expect(closed.output.length + (closed.messages?.length ?? 0)).toBeLessThanOrEqual(ROOM);
    expect(JSON.parse(closed.head)).toMatchObject({ incomplete_details: { reason: "max_output_tokens" } });
    // The output is close to the maximum length.
    expect(closed.output.length).toBeGreaterThan(ROOM / 16);
  });
});

it("has a length as JSON that is never underestimated", () => {
  for (const text of ["", "abc", '"\\', "\u0000\u001f\n\t", "多🦜", "\ud83e", "\udd9c\ud83e"]) {
    expect(jsonLength(text)).toBeGreaterThanOrEqual(JSON.stringify(text).length - 2);
  }
});

describe("a request", () => {
  const item = (text: string, id: string) => ({
    type: "message" as const,
    id,
    role: "user" as const,
    status: "completed" as const,
    content: [{ type: "input_text" as const, text }],
  });

  const lengthLeft = (request: object, input: readonly object[]) =>
    maxOutputLength(JSON.stringify(request).length + JSON.stringify(input).length);

  it("leaves the rest of the maximum length to its answer", () => {
    const length = lengthLeft({ model: "m" }, [item("x".repeat(1_000_000), "msg_1")]);
    expect(length).toBeGreaterThan(MAX_CALL_LENGTH - 1_001_000);
    expect(length).toBeLessThan(MAX_CALL_LENGTH - 1_000_000);
  });

  it.each([
    ["one large item", () => lengthLeft({}, [item("x".repeat(15_000_000), "msg_1")])],
    [
      "many small items",
      () =>
        lengthLeft(
          {},
          Array.from({ length: 380_000 }, (_, index) => item("", `msg_${index}`)),
        ),
    ],
    ["its instructions", () => lengthLeft({ instructions: "x".repeat(15_000_000) }, [])],
    ["what escapes make of it", () => lengthLeft({}, [item("\u0001".repeat(3_000_000), "msg_1")])],
  ])("that leaves nothing is refused before any output is generated: %s", (_, ask) => {
    expect(ask).toThrow(expect.objectContaining({ status: 400, param: "input", code: "context_length_exceeded" }));
  });
});

describe("a home's answer to one call", () => {
  const [home, conversation] = [newTurnAddress().home, `conv_${"a".repeat(32)}`];
  const text = (id: string, length: number) => ({
    type: "message",
    id,
    role: "user",
    status: "completed",
    content: [{ type: "input_text", text: "多".repeat(length) }],
  });

  it("is a shorter page if items are large, with all others on later pages", async () => {
    const stub = env.HOME.getByName(`tenant:${home}`);
    const sizes = [3_000_000, 3_000_000, 10, 10, 5_000_000, 10];
    // The turn of each item.
    const turns = ["0", "0", "1", "1", "1", "2"].map((turn) => turn.repeat(10));
    const items = sizes.map((size, index) =>
      text(itemId("message", { home, turn: turns[index] ?? "" }, "input", index), size),
    );
    await stub.createConversation(conversation, "0".repeat(10), {}, JSON.stringify(items.slice(0, 2)));
    await stub.addConversationItems(conversation, "1".repeat(10), JSON.stringify(items.slice(2, 5)), "t", 0);
    await stub.addConversationItems(conversation, "2".repeat(10), JSON.stringify(items.slice(5)), "t", 0);
    for (const order of ["asc", "desc"] as const) {
      const ids: string[] = [];
      for (let after: string | undefined; ; ) {
        const page = await stub.conversationItems(conversation, { limit: 100, order, ...(after && { after }) });
        if (!page?.ok) throw new Error("No page.");
        const { data, lastId, hasMore } = page.value;
        const given = JSON.parse(data) as { id: string }[];
        expect(given.length === 1 || data.length <= MAX_PAGE_LENGTH + 1_000).toBe(true);
        ids.push(...given.map(({ id }) => id));
        if (!hasMore) break;
        after = lastId ?? undefined;
      }
      const all = items.map(({ id }) => id);
      expect(ids).toEqual(order === "asc" ? all : all.toReversed());
    }
  });

  it("is refused if references to large items are too long together", async () => {
    const address = newTurnAddress();
    const stub = env.HOME.getByName(`tenant:${address.home}`);
    const turns = ["a", "b"].map((turn) => turn.repeat(10));
    for (const turn of turns) {
      await stub.settle({
        turn,
        parent: null,
        createdAt: Date.now(),
        lease: null,
        input: JSON.stringify([text(`msg_${turn}`, 9_000_000)]),
        output: "[]",
        messages: null,
        response: "{}",
      });
    }
    const keys = turns.map((turn) => ({ id: `msg_${turn}`, turn }));
    expect(await stub.snapshot(null, keys)).toEqual({ found: false, missing: "room" });
    expect(await stub.snapshot(null, keys.slice(0, 1))).toMatchObject({ found: true });
  });
});
