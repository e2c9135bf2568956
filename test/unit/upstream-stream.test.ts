import { ChatEngine } from "@responses-edge/engines/chat/engine";
import { Upstream } from "@responses-edge/engines/upstream";
import { createRequest } from "@responses-edge/responses-api/create-bodies";
import { parse } from "@responses-edge/responses-api/validation-errors";
import { newMeasurements } from "@responses-edge/turn/contract/measurements";
import type { BatchSink } from "@responses-edge/turn/output-events";
import { programFingerprints } from "@responses-edge/turn/sealed-content/program-fingerprint";
import { compactionCodec } from "@responses-edge/turn/sealed-content/sealer";
import { Turn, type TurnResult } from "@responses-edge/turn/turn";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { loadConfig } from "../../src/config/index.ts";
import { PLUGINS } from "../../src/tools/plugins.ts";

/** From vLLM's bytes to the API's events: engine and turn, with a scripted vLLM. */

const encode = (text: string) => new TextEncoder().encode(text);

/** The fields of an event that the tests read. */
interface Event {
  type: string;
  sequence_number: number;
  delta?: string;
  error?: { code: string; type: string };
  response?: { status: string; output: Record<string, unknown>[]; usage: unknown };
}

/** A vLLM that answers with these bytes, read by read. */
function upstreamOf(reads: readonly Uint8Array[], type: string): Upstream {
  const config = loadConfig({ VLLM_BASE_URL: "http://vllm/v1", UPSTREAM_DIALECT: "vllm" } as Parameters<
    typeof loadConfig
  >[0]);
  const left = [...reads];
  const body = new ReadableStream<Uint8Array>({
    pull(controller) {
      const next = left.shift();
      if (next) controller.enqueue(next);
      else controller.close();
    },
  });
  // Only prompts that are to be answered have the body.
  const fetch = async (url: string | URL) =>
    String(url).endsWith("/completions")
      ? new Response(body, { headers: { "content-type": type } })
      : new Response(null, { status: 404 });
  return new Upstream({
    ...config,
    modelServers: config.modelServers.map((server) => ({ ...server, dialect: "vllm", fetch })),
  });
}

/** The events of a turn with these reads from vLLM, and the settled turn. Everything except vLLM is fixed. */
async function play(
  reads: readonly Uint8Array[],
  fields: object = {},
  type = "text/event-stream",
): Promise<{ events: Event[]; settled: TurnResult[] }> {
  const events: Event[] = [];
  const settled: TurnResult[] = [];
  const sink: BatchSink = {
    event: (_type, json) => void events.push(JSON.parse(json) as Event),
    flush: () => undefined,
  };
  const request = parse(createRequest, { input: "Hi", stream_options: { include_obfuscation: false }, ...fields });
  const turn = new Turn({
    asked: {
      request,
      address: { home: "h".repeat(22), turn: "t".repeat(10) },
      model: { name: "m", upstream: "m" },
      cacheSalt: "salt",
      createdAt: 0,
    },
    past: {
      history: [],
      replays: [],
      input: [{ type: "message", role: "user", status: "completed", content: [{ type: "input_text", text: "Hi" }] }],
      removed: [],
    },
    model: {
      engine: new ChatEngine(upstreamOf(reads, type), PLUGINS),
      isServerGone: async () => false,
      leaveServer: () => {},
    },
    bounds: {
      maxRetries: 0,
      maxFruitless: 0,
      outageMs: 0,
      outputLength: Number.POSITIVE_INFINITY,
      maxRounds: 32,
      repetitionGuard: "off",
    },
    tools: { plugins: PLUGINS },
    secrets: {
      hidesReasoning: false,
      seal: undefined,
      compactions: compactionCodec([], ""),
      programs: programFingerprints([], ""),
    },
    host: { signal: new AbortController().signal, clock: () => 0, measured: newMeasurements(), sink },
  });
  await turn.run(turn.start(), async (result, terminate) => {
    settled.push(result);
    terminate();
  });
  return { events, settled };
}

const data = (payload: unknown) => `data: ${JSON.stringify(payload)}\n\n`;
const delta = (fields: unknown, rest: object = {}) => ({ choices: [{ index: 0, delta: fields, ...rest }] });
const finish = (reason: string) => delta({}, { finish_reason: reason });
const play1 = (...payloads: unknown[]) => play([encode(`${payloads.map(data).join("")}data: [DONE]\n\n`)]);

/** The end of a turn. */
function ending({ events }: { events: Event[] }) {
  const error = events.findLast((event) => event.type === "error")?.error;
  const response = events.at(-1)?.response;
  return { type: events.at(-1)?.type, code: error?.code, output: response?.output, usage: response?.usage };
}

describe("a stream of vLLM", () => {
  it("that ends at the token limit makes the response incomplete", async () => {
    expect(ending(await play1(delta({ content: "a" }), finish("length")))).toMatchObject({
      type: "response.incomplete",
      output: [{ status: "incomplete", content: [{ text: "a" }] }],
    });
  });

  it("that vLLM aborts fails the response if it may not be retried", async () => {
    expect(ending(await play1(delta({ content: "a" }), finish("abort")))).toMatchObject({
      type: "response.failed",
      code: "upstream_aborted",
      output: [{ status: "incomplete" }],
    });
  });

  it.each<[what: string, payload: unknown]>([
    ["an unknown finish reason is a stop", finish("eos_token")],
    ["usage is missing", finish("stop")],
  ])("%s", async (_what, payload) => {
    expect(ending(await play1(delta({ content: "a" }), payload))).toMatchObject({
      type: "response.completed",
      usage: null,
    });
  });

  it("may have usage in every chunk: the last one counts", async () => {
    const usage = (completion_tokens: number) => ({ usage: { prompt_tokens: 3, completion_tokens } });
    const result = await play1(
      { ...delta({ content: "a" }), ...usage(1) },
      { ...delta({ content: "b" }), ...usage(2) },
      { ...finish("stop"), ...usage(2) },
      { choices: [], ...usage(2) },
    );
    expect(ending(result).usage).toEqual({
      input_tokens: 3,
      input_tokens_details: { cached_tokens: 0, cache_write_tokens: 0 },
      output_tokens: 2,
      output_tokens_details: { reasoning_tokens: 0 },
      total_tokens: 5,
    });
  });

  it("may have null for absent fields", async () => {
    const nothing = { content: null, reasoning: null, reasoning_content: null, refusal: null, tool_calls: null };
    const result = await play1(
      delta({ role: "assistant", ...nothing }, { logprobs: null, finish_reason: null }),
      delta({ ...nothing, content: "a" }),
      delta(null),
      { choices: [{ index: 0, delta: {}, finish_reason: "stop" }], usage: null },
      {
        choices: [],
        usage: { prompt_tokens: 1, completion_tokens: 1, prompt_tokens_details: null, completion_tokens_details: null },
      },
    );
    expect(ending(result)).toMatchObject({ type: "response.completed", output: [{ content: [{ text: "a" }] }] });
  });

  it("may have a null error, which is no error", async () => {
    const result = await play1({ ...delta({ content: "a" }), error: null }, finish("stop"));
    expect(ending(result).type).toBe("response.completed");
  });

  it.each<[what: string, payload: unknown]>([
    ["an error with a number for its code", { error: { message: "no", type: "X", param: null, code: 500 } }],
    ["an error with a word for its code", { error: { message: "no", code: "server_error" } }],
    ["an error as a text", { error: "no" }],
    ["a flat error", { object: "error", message: "no", code: 500 }],
  ])("%s ends it", async (_what, payload) => {
    const result = await play1(delta({ content: "a" }), payload, finish("stop"));
    expect(ending(result)).toMatchObject({
      type: "response.failed",
      code: "upstream_error",
      output: [{ content: [{ text: "a" }] }],
    });
  });

  it("may have an error about the prompt, which is the client's", async () => {
    const error = { message: "This model's maximum context length is 10 tokens", code: 400 };
    expect(ending(await play1({ error }))).toMatchObject({ code: "context_length_exceeded" });
  });

  it.each<[what: string, payload: unknown]>([
    ["null", null],
    ["a number", 5],
    ["a text", "hello"],
    ["an array", []],
    ["an empty object", {}],
    ["choices that are no list", { choices: { a: 1 } }],
    ["choices of numbers", { choices: [5] }],
    ["a delta that is a text", delta("a")],
    ["content that is a number", delta({ content: 5 })],
    ["content that is an object", delta({ content: { a: 1 } })],
    ["reasoning that is a list", delta({ reasoning: ["a"] })],
    ["a refusal that is true", delta({ refusal: true })],
    ["tool calls that are no list", delta({ tool_calls: { a: 1 } })],
    ["tool calls of null", delta({ tool_calls: [null] })],
    [
      "a call's name that is a number",
      delta({ tool_calls: [{ index: 0, id: "c", function: { name: 5, arguments: "" } }] }),
    ],
    [
      "arguments that are an object",
      delta({ tool_calls: [{ index: 0, id: "c", function: { name: "f", arguments: { a: 1 } } }] }),
    ],
    ["logprobs of numbers", delta({ content: "a" }, { logprobs: { content: [5] } })],
    ["logprobs that are no list", delta({ content: "a" }, { logprobs: { content: { length: 3 } } })],
    ["a finish reason that is an object", delta({}, { finish_reason: { a: 1 } })],
  ])("with %s as a chunk is malformed, and fails with its partial output", async (_what, payload) => {
    const result = await play1(delta({ content: "x" }), payload, finish("stop"));
    expect(ending(result)).toMatchObject({
      type: "response.failed",
      code: "upstream_malformed_response",
      output: [{ status: "incomplete", content: [{ text: "x" }] }],
    });
    expect(result.settled).toHaveLength(1);
  });

  it.each<[what: string, answer: string]>([
    ["cut JSON", '{"choices":[{"mess'],
    ["no object", "[]"],
    ["no choices", "{}"],
    ["no finish reason", '{"choices":[{"message":{"content":"a"}}]}'],
    ["a message that is no object", '{"choices":[{"message":5,"finish_reason":"stop"}]}'],
    ["content that is a number", '{"choices":[{"message":{"content":5},"finish_reason":"stop"}]}'],
  ])("a JSON answer with %s is malformed", async (_what, answer) => {
    expect(ending(await play([encode(answer)], {}, "application/json"))).toMatchObject({
      type: "response.failed",
      code: "upstream_malformed_response",
    });
  });
});

describe("for any stream of vLLM", () => {
  const word = fc.oneof(
    fc.string({ unit: "grapheme", maxLength: 6 }),
    fc.constantFrom("世界", "\n", "\\n", '"', "\u2028", "\ud83d\ude00", " "),
  );
  const call = fc.record({
    index: fc.nat(2),
    id: fc.constantFrom(null, "call_1", "call_2"),
    function: fc.record({
      name: fc.constantFrom(null, "f", "g"),
      arguments: fc.constantFrom("", "{", '"a":1', "}", "{}"),
    }),
  });
  const chunk = fc.oneof(
    { weight: 6, arbitrary: fc.record({ content: word }).map((fields) => delta(fields)) },
    { weight: 3, arbitrary: fc.record({ reasoning: word }).map((fields) => delta(fields)) },
    { weight: 1, arbitrary: fc.record({ reasoning_content: word }).map((fields) => delta(fields)) },
    { weight: 1, arbitrary: fc.record({ refusal: word }).map((fields) => delta(fields)) },
    { weight: 3, arbitrary: fc.array(call, { minLength: 1, maxLength: 2 }).map((tool_calls) => delta({ tool_calls })) },
    { weight: 1, arbitrary: fc.constantFrom(delta({}), delta({ role: "assistant", content: "" })) },
    {
      weight: 1,
      arbitrary: fc.constantFrom(...["stop", "length", "tool_calls", "content_filter", "abort"].map(finish)),
    },
  );
  const usage = { choices: [], usage: { prompt_tokens: 5, completion_tokens: 7, total_tokens: 12 } };
  const frame = fc.oneof(
    { weight: 20, arbitrary: chunk.map((payload) => JSON.stringify(payload)) },
    {
      weight: 1,
      arbitrary: fc.constantFrom(
        JSON.stringify({ error: { message: "no", code: 500 } }),
        "{not json",
        JSON.stringify(usage),
      ),
    },
  );
  /** Most streams end regularly. */
  const tail = fc.constantFrom(
    [JSON.stringify(finish("stop")), JSON.stringify(usage), "[DONE]"],
    [JSON.stringify(finish("tool_calls")), "[DONE]"],
    [JSON.stringify(finish("stop"))],
    [],
  );
  const stream = fc
    .record({
      frames: fc.array(frame, { maxLength: 25 }),
      tail,
      lineEnd: fc.constantFrom("\n", "\r\n"),
      comment: fc.constantFrom("", ": ping\n\n"),
    })
    .map(({ frames, tail, lineEnd, comment }) =>
      encode([...frames, ...tail].map((payload) => `${comment}data: ${payload}${lineEnd}${lineEnd}`).join("")),
    );
  const cuts = fc.oneof(
    fc.array(fc.nat(5_000), { maxLength: 40 }).map((at) => (length: number) => at.map((cut) => cut % (length + 1))),
    fc
      .integer({ min: 1, max: 9 })
      .map((size) => (length: number) => Array.from({ length: Math.ceil(length / size) }, (_, n) => n * size)),
  );
  const fields = fc.constantFrom(
    {},
    { parallel_tool_calls: false },
    { include_reasoning: false },
    {
      tools: ["f", "g"].map((name) => ({ type: "function", name })),
      tool_choice: { type: "allowed_tools", mode: "auto", tools: [{ type: "function", name: "f" }] },
    },
  );

  /** The server's own call ids differ each time. */
  function normalised({ events }: { events: Event[] }): unknown {
    const names = new Map<string, string>();
    return JSON.parse(JSON.stringify(events), (key, value: unknown) => {
      if (key !== "call_id" || typeof value !== "string" || !/^call_.{24}$/.test(value)) return value;
      if (!names.has(value)) names.set(value, `call ${names.size}`);
      return names.get(value);
    });
  }

  it("any chunking of its bytes gives the same events", async () => {
    await fc.assert(
      fc.asyncProperty(stream, cuts, fields, async (bytes, cutsOf, request) => {
        const at = [0, ...cutsOf(bytes.length).sort((a, b) => a - b), bytes.length];
        const reads = at.slice(1).map((end, index) => bytes.subarray(at[index], end));
        expect(normalised(await play(reads, request))).toEqual(normalised(await play([bytes], request)));
      }),
      { numRuns: 80 },
    );
  });

  it("the events are numbered, end once, and every added item is in the final response", async () => {
    await fc.assert(
      fc.asyncProperty(stream, fields, async (bytes, request) => {
        const { events, settled } = await play([bytes], request);
        expect(events.map((event) => event.sequence_number)).toEqual(events.map((_, index) => index));
        const terminal = events.filter((event) => /^response\.(completed|incomplete|failed)$/.test(event.type));
        expect(terminal).toEqual([events.at(-1)]);
        expect(settled).toHaveLength(1);
        const added = events.filter((event) => event.type === "response.output_item.added");
        expect(events.at(-1)?.response?.output).toHaveLength(added.length);
        if (terminal[0]?.type === "response.completed") {
          expect(events.filter((event) => event.type === "response.output_item.done")).toHaveLength(added.length);
        }
      }),
      { numRuns: 80 },
    );
  });

  it("any damage to a chunk gives a complete stream of events, without an exception or an internal error", async () => {
    const damaged = fc.tuple(chunk, fc.nat(50), fc.jsonValue({ maxDepth: 2 })).map(([payload, at, value]) => {
      let seen = 0;
      return JSON.stringify(payload, (key, inner: unknown) => (key !== "" && seen++ === at % 12 ? value : inner));
    });
    await fc.assert(
      fc.asyncProperty(fc.array(damaged, { minLength: 1, maxLength: 4 }), async (payloads) => {
        const result = await play([encode(payloads.map((payload) => `data: ${payload}\n\n`).join(""))]);
        expect(ending(result).type).toMatch(/^response\.(completed|incomplete|failed)$/);
        expect(ending(result).code).not.toBe("server_error");
        for (const event of result.events) if ("delta" in event) expect(typeof event.delta).toBe("string");
      }),
      { numRuns: 100 },
    );
  });
});
