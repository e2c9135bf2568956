import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { loggedAnswer } from "../../src/api/passed-content.ts";
import type { Caller } from "../../src/api/transport.ts";
import { ConfigError, loadConfig, type Variables } from "../../src/config/index.ts";
import { grants, policyOf } from "../../src/contract/grants.ts";
import { type SaidTurn, tellContent } from "../../src/telemetry/content-log.ts";

/** The sinks of the log of contents. */

const exported: { url: string; body: string }[] = [];
const lines: string[] = [];

beforeEach(() => {
  vi.spyOn(globalThis, "fetch").mockImplementation(async (url, init) => {
    // The homes of earlier files of this isolate may ask their model server meanwhile.
    if (!String(url).startsWith("http://vllm.invalid/")) exported.push({ url: String(url), body: String(init?.body) });
    return Response.json({});
  });
  vi.spyOn(console, "log").mockImplementation((line) => void lines.push(String(line)));
});
afterEach(() => {
  vi.restoreAllMocks();
  exported.length = 0;
  lines.length = 0;
});

const AGREED = policyOf(null, grants.parse({ log_content: true }));
const VARS = { VLLM_BASE_URL: "http://vllm.test/v1", ALLOW_ANONYMOUS: "true" };

const turn = {
  id: "resp_1",
  tenant: "acme",
  keyId: "key_1",
  request: { model: "m", instructions: "Be brief." },
  input: [{ type: "message", role: "user", content: "Hello!" }],
  createdAt: 1_790_000_000_500,
  result: { outcome: { status: "completed" }, closed: { output: '[{"type":"message"}]' } },
} as unknown as SaidTurn;

/** Logs the turn, and waits until it was sent. */
async function told(vars: Variables, policy = AGREED): Promise<void> {
  const pending: Promise<unknown>[] = [];
  tellContent(loadConfig({ ...VARS, ...vars }), policy, turn, {
    isBrief: true,
    waitUntil: (promise) => void pending.push(promise),
  });
  for (let next = pending.shift(); next; next = pending.shift()) await next;
}

const ENTRY = {
  ...{ level: "info", event: "content", response_id: "resp_1", tenant: "acme", key_id: "key_1", model: "m" },
  ...{ created_at: 1_790_000_000, status: "completed", instructions: "Be brief." },
  ...{ input: turn.input, output: [{ type: "message" }] },
};

it("is a line of the log", async () => {
  await told({ CONTENT_LOG: "log" });
  expect(lines.map((line) => JSON.parse(line))).toEqual([ENTRY]);
  expect(exported).toEqual([]);
});

it("is a log record of OTLP, at the collector's path for logs", async () => {
  await told({ CONTENT_LOG: "otlp", OTEL_EXPORTER_OTLP_ENDPOINT: "http://collector.test", OTEL_SERVICE_NAME: "gw" });
  expect(exported.map(({ url }) => url)).toEqual(["http://collector.test/v1/logs"]);
  const [{ resource, scopeLogs }] = JSON.parse(exported[0]?.body ?? "").resourceLogs;
  expect(resource.attributes).toEqual([{ key: "service.name", value: { stringValue: "gw" } }]);
  const [record] = scopeLogs[0].logRecords;
  expect(record).toMatchObject({ eventName: "responses_edge.content", severityNumber: 9 });
  expect(record.timeUnixNano).toBe("1790000000500000000");
  expect(JSON.parse(record.body.stringValue)).toEqual({
    ...{ instructions: "Be brief.", input: turn.input, output: [{ type: "message" }] },
  });
  expect(record.attributes).toContainEqual({ key: "key_id", value: { stringValue: "key_1" } });
  expect(lines).toEqual([]);
});

function streamOf(chunks: readonly Uint8Array[]): ReadableStream<Uint8Array> {
  return new ReadableStream({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(chunk);
      controller.close();
    },
  });
}

it("of a stream that is passed on is its text, of Anthropic's form, too, cut at its length", async () => {
  const events = [
    { type: "content_block_start", index: 0, content_block: { type: "thinking", thinking: "" } },
    { type: "content_block_delta", index: 0, delta: { type: "thinking_delta", thinking: "Hm" } },
    { type: "content_block_delta", index: 1, delta: { type: "text_delta", text: "Card 4111" } },
    { type: "content_block_delta", index: 1, delta: { type: "text_delta", text: "111111111111." } },
    { type: "message_delta", delta: { stop_reason: "end_turn" } },
  ];
  const bytes = new TextEncoder().encode(
    events.map((event) => `event: x\ndata: ${JSON.stringify(event)}\n\n`).join(""),
  );
  const vars = {
    ...VARS,
    CONTENT_LOG: "log",
    CONTENT_LOG_REDACT: '["\\\\b\\\\d{16}\\\\b"]',
    CONTENT_LOG_MAX_LENGTH: "1024",
  };
  const hear = async (chunks: readonly Uint8Array[]) => {
    const pending: Promise<unknown>[] = [];
    const caller = {
      ...{ config: loadConfig(vars), tenant: "acme", identity: { tenant: "acme", policy: AGREED } },
      waitUntil: (promise: Promise<unknown>) => void pending.push(promise),
    } as unknown as Caller;
    const asked = { endpoint: "POST /v1/messages", model: "m", input: {}, createdAt: 0, hasText: true };
    const answer = {
      type: "text/event-stream",
      server: "a",
      spent: () => {},
      ended: Promise.resolve(),
      body: streamOf(chunks),
    };
    const passed = await new Response(loggedAnswer(caller, asked, answer).body).bytes();
    await Promise.all(pending);
    expect(passed.length).toBe(chunks.reduce((sum, { length }) => sum + length, 0));
    return JSON.parse(lines.pop() ?? "") as { output: object; truncated?: boolean };
  };
  // Events may be cut anywhere.
  const cut = Array.from({ length: bytes.length }, (_, at) => bytes.slice(at, at + 1));
  for (const chunks of [[bytes], cut]) {
    const { output, truncated } = await hear(chunks);
    expect(output).toMatchObject({ content: { 0: { thinking: "Hm" }, 1: { text: "Card [redacted]." } } });
    expect(truncated).toBeUndefined();
  }
  expect((await hear(Array<Uint8Array>(500).fill(bytes))).truncated).toBe(true);
});

it("is off by default, and for a key without consent", async () => {
  await told({});
  await told({ CONTENT_LOG: "log" }, policyOf(null, grants.parse({})));
  expect([...lines, ...exported]).toEqual([]);
});

it("is refused without a sink, or with an invalid pattern", () => {
  expect(() => loadConfig({ ...VARS, CONTENT_LOG: "otlp" })).toThrow(ConfigError);
  expect(() => loadConfig({ ...VARS, CONTENT_LOG: "file" })).toThrow(/CONTENT_LOG: expected/);
  expect(() => loadConfig({ ...VARS, CONTENT_LOG_REDACT: '["("]' })).toThrow(
    /CONTENT_LOG_REDACT: expected regular expressions/,
  );
});
