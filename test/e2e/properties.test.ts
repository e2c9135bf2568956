import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { checkEventStream, parseEventStream } from "../conformance/event-stream.ts";
import { errorBodyViolations } from "../conformance/other-bodies.ts";
import { responseViolations } from "../conformance/response-body.ts";
import { readStream, type Streamed } from "./expectations.ts";
import { type Gateway, startGateway } from "./support.ts";

/** Laws for any input. A failure prints the seed and the smallest counterexample. */

let gateway: Gateway;
beforeAll(async () => {
  gateway = await startGateway({ VLLM_MAX_RETRIES: "0" });
});
afterAll(() => gateway.close());

/** Longer than any answer in this file takes. */
const HANG_MS = 60_000;

describe("any mutation of a valid request gives 2xx or 4xx", () => {
  const message = (role: string, ...content: unknown[]) => ({ type: "message", role, content });
  const tool = {
    type: "function",
    name: "get_weather",
    description: "The weather",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    strict: true,
  };

  /** Valid requests that together have every field and every kind of item. */
  const VALID: Record<string, unknown>[] = [
    { model: "simulator", input: "Hello!", store: false },
    {
      model: "simulator",
      input: [
        message("developer", { type: "input_text", text: "Be brief." }),
        message(
          "user",
          { type: "input_text", text: "Look:" },
          { type: "input_image", image_url: "https://a.example.com/b.png", detail: "low" },
          { type: "input_file", filename: "a.txt", file_data: "data:text/plain;base64,SGVsbG8=" },
          { type: "input_audio", input_audio: { data: "AAAA", format: "wav" } },
        ),
        { type: "reasoning", summary: [], content: [{ type: "reasoning_text", text: "Hm." }] },
        message(
          "assistant",
          { type: "output_text", text: "Yes.", annotations: [] },
          { type: "refusal", refusal: "No." },
        ),
        { type: "function_call", call_id: "call_1", name: "get_weather", arguments: '{"city":"Bonn"}' },
        { type: "function_call_output", call_id: "call_1", output: [{ type: "input_text", text: "sunny" }] },
        { role: "user", content: "And tomorrow?" },
      ],
      tools: [tool, { ...tool, name: "other" }],
      tool_choice: { type: "allowed_tools", mode: "auto", tools: [{ type: "function", name: "other" }] },
      parallel_tool_calls: true,
      store: false,
    },
    {
      model: "simulator-reasoning",
      input: [message("user", { type: "input_text", text: "Hello!" })],
      instructions: "Be brief.",
      max_output_tokens: 100,
      max_tool_calls: 3,
      temperature: 1,
      top_p: 0.5,
      top_logprobs: 2,
      include: ["message.output_text.logprobs", "reasoning.encrypted_content"],
      text: {
        verbosity: "low",
        format: {
          type: "json_schema",
          name: "answer",
          schema: {
            type: "object",
            properties: { a: { type: "string" }, b: { type: "array", items: { type: "integer" } } },
          },
          strict: true,
        },
      },
      reasoning: { effort: "low", summary: "auto", context: "auto" },
      metadata: { a: "b" },
      truncation: "auto",
      context_management: [{ type: "compaction", compact_threshold: 1000 }],
      service_tier: "auto",
      safety_identifier: "x",
      prompt_cache_key: "y",
      prompt_cache_retention: "24h",
      user: "z",
      background: false,
      store: false,
      stream: true,
      stream_options: { include_obfuscation: false },
    },
    {
      model: "simulator",
      input: "Hello!",
      top_k: 5,
      min_p: 0.1,
      repetition_penalty: 1.1,
      presence_penalty: 0.1,
      frequency_penalty: -0.1,
      seed: 7,
      stop: ["stop", "halt"],
      stop_token_ids: [1, 2],
      ignore_eos: false,
      include_stop_str_in_output: true,
      skip_special_tokens: true,
      logit_bias: { "5": 1 },
      priority: 0,
      cache_salt: "salt",
      chat_template_kwargs: { enable_thinking: true },
      mm_processor_kwargs: {},
      vllm_xargs: { a: 1 },
      kv_transfer_params: { do_remote_decode: true },
      include_reasoning: false,
      store: true,
    },
    {
      model: "simulator",
      input: [
        { type: "compaction", encrypted_content: 'cmp1.{"v":1,"before":[],"summary":"Said.","after":[]}' },
        { role: "user", content: "Hello!" },
        { type: "compaction_trigger" },
      ],
      store: false,
    },
    { model: "simulator", input: "Hello!", structured_outputs: { json: { type: "object" } }, store: false },
    {
      model: "simulator",
      input: [{ type: "item_reference", id: `msg_${"a".repeat(32)}o0` }],
      previous_response_id: `resp_${"a".repeat(32)}`,
      tools: [tool],
      tool_choice: { type: "function", name: "get_weather" },
    },
  ];

  type Path = (string | number)[];
  type Mutation =
    | { kind: "replace"; at: number; value: unknown }
    | { kind: "delete" | "duplicate" | "swap"; at: number }
    | { kind: "insert"; at: number; key: string; value: unknown };

  /** The paths of all values in a value, except the model's: simulator settings are no input of a client. */
  function paths(value: unknown, path: Path = []): Path[] {
    const inner =
      typeof value === "object" && value !== null
        ? Object.entries(value).flatMap(([key, child]) =>
            paths(child, [...path, Array.isArray(value) ? Number(key) : key]),
          )
        : [];
    return path.length === 0 ? inner : [path, ...inner];
  }

  type Container = Record<string | number, unknown> | unknown[];
  const isContainer = (value: unknown): value is Container => typeof value === "object" && value !== null;

  function mutate(request: unknown, mutations: readonly Mutation[]): unknown {
    const result: unknown = structuredClone(request);
    for (const mutation of mutations) {
      const all = paths(result);
      const path = all[mutation.at % Math.max(all.length, 1)];
      const key = path?.at(-1);
      if (path === undefined || key === undefined) continue;
      let parent: unknown = result;
      for (const step of path.slice(0, -1)) parent = (parent as Record<string | number, unknown>)[step];
      if (!isContainer(parent)) continue;
      const fields = parent as Record<string | number, unknown>;
      const value = fields[key];
      switch (mutation.kind) {
        case "replace":
          fields[key] = structuredClone(mutation.value);
          break;
        case "delete":
          if (Array.isArray(parent)) parent.splice(Number(key), 1);
          else delete fields[key];
          break;
        case "duplicate":
          if (Array.isArray(parent)) parent.splice(Number(key), 0, structuredClone(value));
          else fields[`${key}_again`] = structuredClone(value);
          break;
        case "swap": {
          const other = all[(mutation.at * 7 + 3) % all.length]?.[0];
          const top = result as Record<string, unknown>;
          if (typeof other === "string") fields[key] = structuredClone(top[other]);
          break;
        }
        case "insert":
          if (isContainer(value) && !Array.isArray(value)) value[mutation.key] = structuredClone(mutation.value);
          break;
      }
    }
    return result;
  }

  /** Values that have broken servers before, added to random JSON. */
  const nasty = fc.constantFrom<unknown>(
    null,
    true,
    false,
    0,
    -0,
    -1,
    1.5,
    1e308,
    -1e308,
    5e-324,
    2 ** 31,
    2 ** 53,
    -(2 ** 53),
    1e21,
    "",
    " ",
    "\0",
    "\ud800",
    "\u2028",
    "💥",
    "__proto__",
    "constructor",
    "null",
    "x".repeat(5_000),
    [],
    [[]],
    [null],
    {},
    { type: null },
    { type: "function" },
    { type: "message" },
    { role: "user" },
    { id: "x" },
    { type: "object", properties: { a: { $ref: "#" } } },
    { $ref: "#/nowhere" },
    { type: ["string", 5] },
    { enum: [] },
    { anyOf: [] },
    { pattern: "(" },
    "auto",
    "required",
    "function",
    "item_reference",
    "assistant",
    "system",
    "user",
    "tool",
  );
  const anyValue = fc.oneof({ weight: 3, arbitrary: nasty }, { weight: 1, arbitrary: fc.jsonValue({ maxDepth: 3 }) });
  const anyKey = fc.oneof(
    fc.constantFrom("__proto__", "constructor", "toString", "", "type", "length", "$ref"),
    fc.string(),
  );
  const at = fc.nat(10_000);
  const mutation: fc.Arbitrary<Mutation> = fc.oneof(
    { weight: 5, arbitrary: fc.record({ kind: fc.constant("replace" as const), at, value: anyValue }) },
    {
      weight: 3,
      arbitrary: fc.record({ kind: fc.constantFrom("delete" as const, "duplicate" as const, "swap" as const), at }),
    },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant("insert" as const), at, key: anyKey, value: anyValue }) },
  );
  const mutated = fc
    .tuple(fc.constantFrom(...VALID), fc.array(mutation, { minLength: 1, maxLength: 3 }))
    .map(([request, mutations]) => mutate(request, mutations));

  /**
   * Posts a body. Fails unless the answer arrives in time: 200 with a complete response or stream, or 4xx in OpenAI's
   * shape. It does not use `gateway.fetch`, which compares an answer's echo with the request: here the request may be
   * partly nonsense.
   */
  async function expectAnswered(body: BodyInit, headers: Record<string, string> = {}): Promise<void> {
    const response = await fetch(`${gateway.url}/v1/responses`, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body,
      signal: AbortSignal.timeout(HANG_MS),
    });
    const type = response.headers.get("content-type");
    const text = await response.text();
    if (response.status >= 400 && response.status < 500) {
      expect(errorBodyViolations(text, type)).toEqual([]);
    } else if (response.status !== 200) {
      throw new Error(`${response.status}: ${text}`);
    } else if (type?.startsWith("text/event-stream")) {
      const final = checkEventStream(parseEventStream(text)).response;
      // A stream that has begun fails only for a reason in the request.
      expect(final?.error?.code ?? "invalid_prompt").toBe("invalid_prompt");
    } else {
      expect(responseViolations(JSON.parse(text))).toEqual([]);
    }
  }

  it("the valid requests are valid", async () => {
    for (const request of VALID.slice(0, -1)) {
      const response = await gateway.post(request);
      expect({ status: response.status, body: await response.text() }).toMatchObject({ status: 200 });
    }
  });

  it("of its values", async () => {
    await fc.assert(
      fc.asyncProperty(mutated, async (request) => {
        await expectAnswered(JSON.stringify(request) ?? "null");
      }),
      { numRuns: 50 },
    );
  });

  it("of its bytes", async () => {
    const change = fc.record({
      at: fc.nat(10_000),
      remove: fc.nat(5),
      insert: fc.oneof(
        fc.uint8Array({ maxLength: 4 }),
        fc.constantFrom("{", "}", "[", "]", '"', "\\", ",", "\\u").map((text) => new TextEncoder().encode(text)),
      ),
    });
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...VALID),
        fc.array(change, { minLength: 1, maxLength: 3 }),
        async (request, changes) => {
          const bytes = [...new TextEncoder().encode(JSON.stringify(request))];
          for (const { at, remove, insert } of changes) bytes.splice(at % bytes.length, remove, ...insert);
          await expectAnswered(Uint8Array.from(bytes));
        },
      ),
      { numRuns: 20 },
    );
  });

  it("of its headers", async () => {
    const value = fc.oneof(
      fc.constantFrom(
        "application/json",
        "gzip",
        "br",
        "zstd",
        "deflate",
        "Bearer x",
        "chunked",
        "*/*",
        "0",
        "-1",
        "NaN",
      ),
      fc.string({ unit: fc.constantFrom(...'abc/;,="*+-. 019'), maxLength: 20 }).map((text) => text.trim()),
    );
    const name = fc.constantFrom(
      "content-type",
      "content-encoding",
      "authorization",
      "accept",
      "x-request-id",
      "accept-encoding",
      "origin",
      "idempotency-key",
    );
    await fc.assert(
      fc.asyncProperty(fc.dictionary(name, value, { minKeys: 1, maxKeys: 3 }), async (headers) => {
        await expectAnswered('{"model":"simulator","input":"Hello!","store":false}', { ...headers });
      }),
      { numRuns: 20 },
    );
  });
});

describe("any chunking of vLLM's bytes gives the same events", () => {
  /** Makes the parts equal that differ between any two responses. */
  function normalised({ events, text, done }: Streamed): unknown {
    const json = JSON.stringify({ events, text, done })
      .replaceAll(/\b(resp|msg|rs|fc)_[0-9A-Za-z]{32}/g, "$1_ID")
      .replaceAll(/"(created_at|completed_at)":\d+/g, '"$1":0')
      .replaceAll(/"call_id":"[^"]*"/g, '"call_id":"ID"')
      .replaceAll(/simulator[\w-]*\?[^"]*/g, "MODEL")
      // A second identical prompt is in vLLM's prefix cache.
      .replaceAll(/"(cached|cache_write)_tokens":\d+/g, '"$1_tokens":0');
    return JSON.parse(json);
  }

  const input = 'Grüße, 世界! 👩‍👩‍👧 \\ " «ok»';
  const tools = [
    {
      type: "function",
      name: "f",
      parameters: { type: "object", properties: { ö: { type: "string" } }, required: ["ö"] },
    },
  ];
  const requests: [what: string, model: string, fields: object][] = [
    ["text", "simulator", {}],
    ["reasoning", "simulator-reasoning", {}],
    ["calls", "simulator", { tools, tool_choice: "required" }],
    ["logprobs", "simulator", { include: ["message.output_text.logprobs"], top_logprobs: 2 }],
    ["an error in the stream", "simulator", { fault: "error:3" }],
    ["garbage in the stream", "simulator", { fault: "garbage:3" }],
    ["an early end", "simulator", { fault: "end:3" }],
  ];

  it.each(requests)("%s", async (_what, model, { fault, ...fields }: { fault?: string }) => {
    const ask = async (settings: string) => {
      const all = [settings, fault === undefined ? "" : `fault=${fault}`].filter((setting) => setting !== "").join("&");
      const options = { stream: true, store: false, stream_options: { include_obfuscation: false } };
      return normalised(
        await readStream(await gateway.post({ ...options, ...fields, model: `${model}?${all}`, input })),
      );
    };
    const whole = await ask("chunk=1000");
    const setting = fc.oneof(
      fc.integer({ min: 1, max: 400 }).map((bytes) => `bytes=${bytes}`),
      fc.integer({ min: 1, max: 20 }).map((chunk) => `chunk=${chunk}`),
      fc.integer({ min: 1, max: 50 }).map((bytes) => `bytes=${bytes}&crlf=1&comments=1`),
    );
    await fc.assert(
      fc.asyncProperty(setting, async (settings) => {
        expect(await ask(settings)).toEqual(whole);
      }),
      { numRuns: 8 },
    );
  });
});
