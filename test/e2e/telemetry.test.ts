import { createHash } from "node:crypto";
import { once } from "node:events";
import { connect } from "node:net";
import { toFile } from "openai";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { serveSimulator } from "../../dev/simulator/serve.ts";
import { type ReceivedSpan, type Receiver, startReceiver } from "../telemetry/receiver.ts";
import { startWorkerd } from "../workerd/process.ts";
import { GPT_OSS } from "./harmony-support.ts";
import { SocketClient } from "./socket-support.ts";
import { eventually, type Gateway, gatewayAt, startGateway } from "./support.ts";
import { ask, generations, mcp, startTools, type ToolServer, WAYS } from "./tool-support.ts";
import { ended } from "./turns.ts";

/** Spans, metrics and wide events of requests, none of which has content. */

const KEY = "key-of-tenant-acme";
const API_KEYS = `acme:${createHash("sha256").update(KEY).digest("hex")}`;

/** A mark in every text of a client. */
const CANARY = "canary-31415926";

interface Line {
  event?: string;
  [field: string]: unknown;
}

/** The Worker's JSON log lines of one kind. */
function linesOf({ logs }: Pick<Gateway, "logs">, event: string): Line[] {
  return logs()
    .split("\n")
    .flatMap((line): Line[] => {
      const at = line.indexOf("{");
      try {
        return at < 0 ? [] : [JSON.parse(line.slice(at)) as Line];
      } catch {
        return [];
      }
    })
    .filter((line) => line.event === event);
}

const wideEvents = (gateway: Pick<Gateway, "logs">) => linesOf(gateway, "request");

/** Waits for the wide event of a response. */
const eventOf = (gateway: Gateway, id: string, transport?: string) =>
  eventually(() =>
    wideEvents(gateway).find(
      (line) => line.response_id === id && (transport === undefined || line.transport === transport),
    ),
  );

let receiver: Receiver;
let tools: ToolServer;
let gateway: Gateway;
beforeAll(async () => {
  receiver = await startReceiver();
  tools = await startTools({
    add: { properties: { text: { const: CANARY } }, run: () => `${CANARY} is 3` },
    fail: { run: () => ({ content: [{ type: "text", text: CANARY }], isError: true }) },
  });
  gateway = await startGateway(
    {
      OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url,
      OTEL_EXPORTER_OTLP_HEADERS: "x-collector-key=se%20cret",
      OTEL_RESOURCE_ATTRIBUTES: "deployment.environment.name=test",
      TELEMETRY_LOG: "all",
      PROMETHEUS_METRICS: "true",
      PROMETHEUS_TOKEN: "scrape-me",
      API_KEYS,
      MCP_SERVERS: tools.url,
      HEARTBEAT_MS: "50",
    },
    true,
  );
  gateway.openai = gateway.client({ apiKey: KEY });
});
beforeEach(() => {
  gateway.vllm.simulator.clear();
});
afterAll(async () => {
  await gateway?.close();
  await tools?.close();
  await receiver?.close();
  expect(receiver.faults).toEqual([]);
});

const spansIn = (traceId: string) => receiver.spans.filter((span) => span.traceId === traceId);

/** The spans of a trace, after the last one has arrived. */
const wholeTrace = (traceId: string, count: number) =>
  eventually(() => (spansIn(traceId).length >= count ? spansIn(traceId) : undefined));

function newTraceId(): string {
  return crypto.randomUUID().replaceAll("-", "");
}

const PARENT = "00f067aa0ba902b7";
const traceHeaders = (traceId: string, flags = "01") => ({ traceparent: `00-${traceId}-${PARENT}-${flags}` });

function named(spans: readonly ReceivedSpan[], name: string | RegExp): ReceivedSpan {
  const found = spans.filter((span) => (typeof name === "string" ? span.name === name : name.test(span.name)));
  if (found.length !== 1 || !found[0])
    throw new Error(`${found.length} of ${name} in ${spans.map((each) => each.name)}`);
  return found[0];
}

function expectNested(child: ReceivedSpan, parent: ReceivedSpan): void {
  expect(child.parentSpanId).toBe(parent.spanId);
  expect(child.start).toBeGreaterThanOrEqual(parent.start);
  expect(child.end).toBeLessThanOrEqual(parent.end);
  expect(child.end).toBeGreaterThanOrEqual(child.start);
}

describe("spans", () => {
  it.each([
    ["simulator", "chat"],
    [GPT_OSS, "text_completion"],
  ])(
    "of a request to %s are below its caller's, and the model call's is below the request's",
    async (model, operation) => {
      const traceId = newTraceId();
      const headers = { ...traceHeaders(traceId), tracestate: "vendor=abc" };
      const stream = await gateway.openai.responses.create(
        { model, input: "Hello!", stream: true, max_output_tokens: 100, temperature: 1, store: false },
        { headers },
      );
      const events = await Array.fromAsync(stream);
      const spans = await wholeTrace(traceId, 2);
      expect(spans).toHaveLength(2);
      const request = named(spans, "POST /v1/responses");
      expect(request).toMatchObject({
        parentSpanId: PARENT,
        traceState: "vendor=abc",
        kind: 2,
        status: 0,
        attributes: {
          "http.request.method": "POST",
          "http.route": "/v1/responses",
          "http.response.status_code": 200,
          "responses_edge.tenant": "acme",
          "responses_edge.transport": "sse",
          "responses_edge.outcome": "completed",
          "responses_edge.stored": false,
        },
      });
      const call = named(spans, `${operation} ${model}`);
      expectNested(call, request);
      const last = events.at(-1);
      const usage = last?.type === "response.completed" ? last.response.usage : undefined;
      expect(call).toMatchObject({
        kind: 3,
        status: 0,
        attributes: {
          "gen_ai.operation.name": operation,
          "gen_ai.provider.name": "vllm",
          "gen_ai.request.model": model,
          "gen_ai.request.stream": true,
          "gen_ai.request.max_tokens": 100,
          "gen_ai.request.temperature": 1,
          "gen_ai.response.finish_reasons": ["stop"],
          "gen_ai.usage.input_tokens": usage?.input_tokens,
          "gen_ai.usage.output_tokens": usage?.output_tokens,
          "gen_ai.usage.reasoning.output_tokens": usage?.output_tokens_details.reasoning_tokens,
        },
      });
      expect(call.attributes["gen_ai.response.time_to_first_chunk"]).toEqual(expect.any(Number));
      // The model server gets the call's own span.
      const asked = gateway.vllm.simulator.requests.find(({ path }) => path.endsWith("completions"));
      expect(asked?.headers).toMatchObject({
        traceparent: `00-${traceId}-${call.spanId}-01`,
        tracestate: "vendor=abc",
      });
    },
  );

  it.each(WAYS)("include a turn's rounds and tool calls: %s", async (way) => {
    const traceId = newTraceId();
    const openai = gateway.client({ apiKey: KEY, defaultHeaders: traceHeaders(traceId) });
    const before = tools.headers.length;
    await ask(
      gateway,
      way,
      { model: "simulator", input: "Call docs__add and docs__fail.", tools: [mcp(tools)] },
      openai,
    );
    const names = way === "background" ? ["POST /v1/responses", "run"] : ["POST /v1/responses"];
    await eventually(() => names.every((name) => spansIn(traceId).some((span) => span.name === name)));
    const spans = spansIn(traceId);
    const top = named(spans, way === "background" ? "run" : "POST /v1/responses");
    const [add, fail, list] = ["execute_tool docs__add", "execute_tool docs__fail", "tools/list"].map((name) =>
      named(spans, name),
    ) as [ReceivedSpan, ReceivedSpan, ReceivedSpan];
    const calls = spans.filter(({ name }) => name === "chat simulator");
    expect(calls.map(({ attributes }) => attributes["responses_edge.round"])).toEqual([0, 1]);
    for (const span of [add, fail, list, ...calls]) expectNested(span, top);
    expect(add).toMatchObject({
      kind: 3,
      status: 0,
      attributes: {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "docs__add",
        "gen_ai.tool.type": "extension",
        "mcp.method.name": "tools/call",
      },
    });
    expect(fail).toMatchObject({ status: 2, attributes: { "error.type": "tool_error" } });
    expect(list).toMatchObject({ kind: 3, attributes: { "mcp.method.name": "tools/list" } });
    if (way === "background") {
      expect(top.kind).toBe(5);
      expect(top.parentSpanId).toBe(named(spans, "POST /v1/responses").spanId);
    }
    // An MCP server gets the span of the call, and nothing else of the caller's.
    const told = tools.headers.slice(before).map(({ traceparent }) => traceparent);
    for (const { spanId } of [add, fail, list]) expect(told).toContain(`00-${traceId}-${spanId}-01`);
    expect(tools.headers.slice(before).every((headers) => headers.tracestate === undefined)).toBe(true);
  });

  it("of a failed model call have the reason in one word", async () => {
    const traceId = newTraceId();
    const openai = gateway.client({ apiKey: KEY, defaultHeaders: traceHeaders(traceId) });
    await expect(openai.responses.create({ model: "simulator?fault=http:500", input: CANARY })).rejects.toThrow();
    const spans = await wholeTrace(traceId, 2);
    expect(named(spans, "POST /v1/responses")).toMatchObject({
      status: 2,
      attributes: { "error.type": "upstream_error", "http.response.status_code": 502 },
    });
    expect(named(spans, /^chat /)).toMatchObject({ status: 2, attributes: { "error.type": "upstream_error" } });
  });

  it("are not sampled if the caller does not sample the trace, which is still passed on", async () => {
    const traceId = newTraceId();
    const openai = gateway.client({ apiKey: KEY, defaultHeaders: traceHeaders(traceId, "00") });
    const { id } = await openai.responses.create({ model: "simulator", input: "Hello!" });
    await eventOf(gateway, id);
    expect(gateway.vllm.simulator.lastAsked?.headers.traceparent).toBe(`00-${traceId}-${PARENT}-00`);
    // A later trace has arrived, so this one would have, too.
    const later = newTraceId();
    await gateway.client({ apiKey: KEY, defaultHeaders: traceHeaders(later) }).responses.create({ input: "Hello!" });
    await wholeTrace(later, 2);
    expect(spansIn(traceId)).toEqual([]);
  });

  it.each([
    ["of a version that there will never be", { traceparent: `ff-${"a".repeat(32)}-${PARENT}-01` }],
    ["of zeros", { traceparent: `00-${"0".repeat(32)}-${PARENT}-01` }],
    ["that is no hexadecimal", { traceparent: `00-${"A".repeat(32)}-${PARENT}-01` }],
    ["that goes on", { traceparent: `00-${"a".repeat(32)}-${PARENT}-01-${"x".repeat(50)}` }],
    ["that is very long", { traceparent: `01-${"a".repeat(32)}-${PARENT}-01-${"x".repeat(5_000)}` }],
  ])("begin a trace of their own if the caller's is one %s", async (_, headers) => {
    const openai = gateway.client({ apiKey: KEY, defaultHeaders: headers });
    const { id } = await openai.responses.create({ model: "simulator", input: "Hello!" });
    const { trace_id: traceId } = await eventOf(gateway, id);
    expect(traceId).toMatch(/^(?!a{32}|0{32})[0-9a-f]{32}$/);
    expect(named(await wholeTrace(String(traceId), 2), "POST /v1/responses").parentSpanId).toBeUndefined();
  });

  it("reach the collector with its headers, and name their sender", async () => {
    await eventually(() => receiver.spans.length > 0);
    expect(receiver.headers.every((headers) => headers["x-collector-key"] === "se cret")).toBe(true);
    for (const resource of receiver.resources) {
      expect(resource).toEqual({
        "service.name": "responses-edge",
        "service.instance.id": expect.stringMatching(/^[0-9a-f]{16}$/),
        "deployment.environment.name": "test",
      });
    }
  });
});

describe("the wide event", () => {
  it.each([
    ["json", "http"],
    ["stream", "sse"],
    ["background", "background"],
  ] as const)("of a response has its costs: %s", async (way, transport) => {
    const model = "simulator";
    const { response } = await ask(gateway, way, { model, input: "Call docs__add.", tools: [mcp(tools)] });
    const event = await eventOf(gateway, response.id, transport);
    const { usage } = response;
    expect(event).toMatchObject({
      level: "info",
      tenant: "acme",
      endpoint: way === "background" ? "run" : "POST /v1/responses",
      transport,
      ...{ model, upstream_model: model, engine: "chat", replica: "vllm" },
      ...{ status: 200, outcome: "completed" },
      input_tokens: usage?.input_tokens,
      cached_tokens: usage?.input_tokens_details.cached_tokens,
      output_tokens: usage?.output_tokens,
      reasoning_tokens: usage?.output_tokens_details.reasoning_tokens,
      ...{ rounds: 2, summaries: 0, tool_calls: { mcp: 1 }, tool_failures: 0, retries: 0, take_ups: 0 },
      ...{ rows_written: 1, stored: true, client_left: false },
    });
    const { accept_ms, first_token_ms, total_ms } = event as Record<string, number>;
    expect(accept_ms).toBeGreaterThanOrEqual(0);
    expect(first_token_ms).toBeGreaterThanOrEqual(accept_ms as number);
    expect(total_ms).toBeGreaterThanOrEqual(first_token_ms as number);
    // The wide event of the create that began the run has no turn, so no token is counted twice.
    const told = wideEvents(gateway).filter((line) => line.response_id === response.id);
    expect(told).toHaveLength(1);
  });

  it("of a compaction has the summary's figures, also in a span", async () => {
    const compacted = await gateway.openai.responses.compact({ model: "simulator", input: "Hello! ".repeat(200) });
    const told = await eventOf(gateway, compacted.id);
    expect(told).toMatchObject({
      ...{ endpoint: "POST /v1/responses/compact", outcome: "completed", rounds: 0, summaries: 1 },
      ...{ input_tokens: compacted.usage.input_tokens, output_tokens: compacted.usage.output_tokens },
      ...{ stored: false, rows_written: 0 },
    });
    const call = named(await wholeTrace(String(told.trace_id), 2), "chat simulator");
    expect(call.attributes).toMatchObject({
      "responses_edge.purpose": "summary",
      "gen_ai.usage.output_tokens": compacted.usage.output_tokens,
    });
  });

  it("is sent for each create of a WebSocket, and for the connection", async () => {
    const client = await SocketClient.open(gateway, { headers: { authorization: `Bearer ${KEY}` } });
    const first = await client.turn({ input: "Hello!" });
    const second = await client.turn({ input: "Again!", previous_response_id: first.id });
    const refused = await client.turn({ input: "Hello!", previous_response_id: "resp_unknown" });
    expect(refused.last.type).toBe("error");
    for (const { id } of [first, second]) {
      expect(await eventOf(gateway, id)).toMatchObject({
        transport: "websocket",
        endpoint: "response.create",
        outcome: "completed",
        rows_written: 0,
      });
    }
    await eventually(() =>
      wideEvents(gateway).some(({ transport, status }) => transport === "websocket" && status === 400),
    );
    client.socket.close();
    await eventually(() => wideEvents(gateway).some(({ status }) => status === 101));
  });

  it("has the code of a refusal", async () => {
    await gateway.post({ input: 5 }, { authorization: `Bearer ${KEY}` });
    await gateway.post({ input: "Hello!" }, { authorization: "Bearer wrong" });
    await eventually(() =>
      wideEvents(gateway).find((line) => line.status === 400 && line.tenant === "acme" && line.level === "error"),
    );
    const stranger = await eventually(() => wideEvents(gateway).find((line) => line.status === 401));
    expect(stranger).toMatchObject({ error: "invalid_api_key" });
    expect(stranger).not.toHaveProperty("tenant");
  });

  it.each([
    ["in its answer", "http:500", false],
    ["in the middle of a stream", "error:2", true],
    ["in the middle of a run", "error:2", true],
  ])("has the model server's own text of a failure %s, which the client does not get", async (where, fault, stream) => {
    const said = "Simulated fault.";
    const body = { model: `simulator?fault=${fault}`, input: "Hello!", stream };
    const background = where.endsWith("run");
    const before = wideEvents(gateway).length;
    const answer = await gateway.post({ ...body, background }, { authorization: `Bearer ${KEY}` });
    expect(await answer.text()).not.toContain(said);
    const told = await eventually(() =>
      wideEvents(gateway)
        .slice(before)
        .find((line) => line.error === "upstream_error" && (line.transport === "background") === background),
    );
    expect(told).toMatchObject({ upstream_error: said, attempts: 1 });
  });

  it("has the text of a failure that another attempt has made good", async () => {
    const model = "simulator?fault=http:429&fault_times=1";
    const { id } = await gateway.openai.responses.create({ model, input: "Hello!", background: true });
    await ended(gateway, id);
    expect(await eventOf(gateway, id, "background")).toMatchObject({
      outcome: "completed",
      attempts: 2,
      upstream_error: "Simulated fault.",
    });
  });

  it("counts retries and resumptions", async () => {
    for (const [fault, counts] of [
      ["refuse", { retries: 1, take_ups: 0 }],
      ["cut:3", { retries: 0, take_ups: 1 }],
    ] as const) {
      const model = `simulator?fault=${fault}&fault_times=1&words=8`;
      const { id } = await gateway.openai.responses.create({ model, input: "Hello!" });
      expect(await eventOf(gateway, id)).toMatchObject({ outcome: "completed", rounds: 1, ...counts });
    }
  });

  // Local workerd does not notice that a JSON request's client has disconnected (disconnect.test.ts).
  it("reports a complete answer whose client has disconnected, too", async () => {
    const model = "simulator?tps=20&words=9";
    const abort = new AbortController();
    const asked = gateway.openai.responses.create({ model, input: "Go on." }, { signal: abort.signal });
    await eventually(() => generations(gateway).some((body) => body.model === model));
    abort.abort();
    await expect(asked).rejects.toThrow();
    const told = await eventually(() => wideEvents(gateway).find((line) => line.model === model));
    expect(told).toMatchObject({ transport: "http", outcome: "completed", rows_written: 1 });
  });

  it("reports that a stream's client has disconnected", async () => {
    const abort = new AbortController();
    const stream = await gateway.openai.responses.create(
      { model: "simulator?tps=20&words=400", input: "Go on.", stream: true },
      { signal: abort.signal },
    );
    let id = "";
    await (async () => {
      for await (const event of stream) {
        if (event.type === "response.created") id = event.response.id;
        if (event.type === "response.output_text.delta") abort.abort();
      }
    })().catch(() => {});
    expect(await eventOf(gateway, id)).toMatchObject({ outcome: "cancelled", client_left: true });
  });
});

describe("metrics", () => {
  const scrape = (headers: Record<string, string> = { authorization: "Bearer scrape-me" }) =>
    fetch(`${gateway.url}/metrics`, { headers });

  it("are compressed for a client that takes gzip, as Prometheus does", async () => {
    const answer = await scrape({ authorization: "Bearer scrape-me", "accept-encoding": "gzip" });
    expect(answer.headers.get("content-encoding")).toBe("gzip");
    expect(await answer.text()).toContain("# TYPE responses_edge_responses_total counter");
    const plain = await scrape({ authorization: "Bearer scrape-me", "accept-encoding": "identity" });
    expect(plain.headers.get("content-encoding")).toBeNull();
  });

  it("reach the collector as deltas, with the bounds of the conventions", async () => {
    receiver.points.length = 0;
    const { usage } = await gateway.openai.responses.create({ model: "simulator", input: "Hello!" });
    const pointOf = (metric: string, attributes: object = {}) =>
      eventually(() =>
        receiver.points.find(
          (point) =>
            point.metric === metric &&
            Object.entries(attributes).every(([key, value]) => point.attributes[key] === value),
        ),
      );
    const byModel = {
      "gen_ai.operation.name": "chat",
      "gen_ai.provider.name": "vllm",
      "gen_ai.request.model": "simulator",
    };
    const input = await pointOf("gen_ai.client.token.usage", { ...byModel, "gen_ai.token.type": "input" });
    expect(input).toMatchObject({ unit: "{token}", count: 1, sum: usage?.input_tokens });
    expect(input.bounds.slice(0, 4)).toEqual([1, 4, 16, 64]);
    const output = await pointOf("gen_ai.client.token.usage", { ...byModel, "gen_ai.token.type": "output" });
    expect(output).toMatchObject({ count: 1, sum: usage?.output_tokens });
    for (const metric of [
      "gen_ai.client.operation.duration",
      "gen_ai.client.operation.time_to_first_chunk",
      "gen_ai.server.request.duration",
      "gen_ai.server.time_to_first_token",
      "gen_ai.server.time_per_output_token",
    ]) {
      expect(await pointOf(metric, byModel), metric).toMatchObject({ unit: "s", count: 1 });
    }
    expect(await pointOf("http.server.request.duration", { "http.route": "/v1/responses" })).toMatchObject({
      attributes: { "http.request.method": "POST", "http.response.status_code": 200 },
    });
  });

  it("are shown to clients with the token", async () => {
    const strangers: Record<string, string>[] = [
      {},
      { authorization: `Bearer ${KEY}` },
      { authorization: "Bearer wrong" },
    ];
    for (const headers of strangers) {
      expect((await scrape(headers)).status).toBe(401);
    }
    const answer = await scrape();
    expect(answer.headers.get("content-type")).toMatch(/^text\/plain; version=0\.0\.4/);
    expect(await answer.text()).toContain("# TYPE gen_ai_client_operation_duration_seconds histogram\n");
  });

  it("count the files that are stored, and those that become searchable or fail", async () => {
    const { openai } = gateway;
    const upload = (name: string, text: string) =>
      toFile(Buffer.from(text), name).then((file) => openai.files.create({ file, purpose: "assistants" }));
    const { id: readable } = await upload("a.txt", "The hull of the ship is double.");
    const { id: damaged } = await upload("b.pdf", "%PDF-1.7 and nothing else");
    const store = await openai.vectorStores.create({ file_ids: [readable, damaged] });
    await eventually(async () => (await openai.vectorStores.retrieve(store.id)).status === "completed");
    for (const line of [
      "responses_edge_files_stored_total 2",
      "responses_edge_files_stored_bytes_total 56",
      'responses_edge_ingestion_files_total{responses_edge_outcome="completed"} 1',
      'responses_edge_ingestion_files_total{responses_edge_outcome="failed"} 1',
      "responses_edge_ingestion_chunks_total 1",
      'responses_edge_ingestion_stores{responses_edge_state="waiting"} 0',
    ]) {
      await eventually(async () => (await (await scrape()).text()).includes(`${line}\n`));
    }
  });

  it("have no series for clients' names that the model server accepts", async () => {
    for (let adapter = 0; adapter < 20; adapter += 1) {
      await gateway.openai.responses.create({ model: `simulator?words=${adapter + 1}`, input: "Hello!" });
    }
    const text = await (await scrape()).text();
    const models = new Set([...text.matchAll(/gen_ai_request_model="([^"]*)"/g)].map(([, name]) => name));
    expect([...models].filter((name) => name?.includes("words="))).toEqual([]);
    expect(models).toContain("_OTHER");
  });

  it("have gauges of the present state", async () => {
    const text = await (await scrape()).text();
    expect(text).toMatch(/^responses_edge_upstream_up\{responses_edge_server="[^"]+"\} 1$/m);
    expect(text).toMatch(/^responses_edge_upstream_in_flight\{responses_edge_server="[^"]+"\} \d+$/m);
    expect(text).toMatch(/^responses_edge_work_active\{responses_edge_kind="turn"\} \d+$/m);
    expect(text).toMatch(/^responses_edge_permits\{responses_edge_state="limit"\} \d+$/m);
    expect(text).toMatch(/^responses_edge_webhooks_waiting 0$/m);
    expect(text).toMatch(/^responses_edge_build_info\{version="[\d.]+"\} 1$/m);
    expect(text).toMatch(/^gen_ai_client_operation_duration_seconds_count\{.*responses_edge_server=.*\} [1-9]/m);
  });

  it("count a background run, and contain neither tenants nor clients' names", async () => {
    const { id } = await gateway.openai.responses.create({ input: "Hello!", background: true });
    await ended(gateway, id);
    await eventOf(gateway, id, "background");
    await expect(gateway.openai.responses.create({ model: "invented-model", input: "Hello!" })).rejects.toThrow();
    await fetch(`${gateway.url}/v1/invented-path`, {
      method: "PROPFIND",
      headers: { authorization: `Bearer ${KEY}` },
    });
    const text = await eventually(async () => {
      const now = await (await scrape()).text();
      return /gen_ai_request_model="_OTHER"/.test(now) && now.includes('http_request_method="_OTHER"')
        ? now
        : undefined;
    });
    expect(text).toMatch(/responses_edge_responses_total\{.*responses_edge_transport="background".*\} [1-9]/);
    expect(text).not.toContain("invented");
    expect(text).not.toContain("acme");
    expect(text).not.toContain(KEY);
  });
});

describe("the log", () => {
  it("has one line for a request, with any fields", async () => {
    const ends = ["\n", "\r\n", "\u2028", "\u2029", "\u0085", "\v", "\f", "\u001c", "\u009b"];
    const forged = '{"event":"request","level":"info","tenant":"forged"}';
    for (const end of ends) {
      const model = `m${end}${forged}${end}`;
      const before = gateway.logs().length;
      const headers = { authorization: `Bearer ${KEY}`, "content-type": "application/json" };
      const body = { model, input: "a", metadata: { a: forged }, prompt_cache_key: forged, user: forged };
      await (
        await gateway.fetch(`${gateway.url}/v1/responses`, { method: "POST", headers, body: JSON.stringify(body) })
      ).text();
      const line = await eventually(() => wideEvents(gateway).find((each) => each.model === model));
      expect(line).toMatchObject({ event: "request", tenant: "acme" });
      for (const said of gateway
        .logs()
        .slice(before)
        .split(new RegExp(ends.join("|")))) {
        if (said.includes("forged")) expect(JSON.parse(said)).toMatchObject({ tenant: "acme", model });
      }
    }
  });

  it.each([
    ["short", "content-length: 1000", '{"mod'],
    ["long", "content-length: 100000", '{"mod'],
    ["chunked", "transfer-encoding: chunked", '5\r\n{"mod\r\n'],
  ])("reports no fault for a client that disconnects in the middle of a %s body", async (_, header, begun) => {
    const { hostname, port, host } = new URL(gateway.url);
    const before = wideEvents(gateway).filter(({ status }) => status === 499).length;
    const faults = () =>
      gateway
        .logs()
        .split("\n")
        .filter((line) => line.includes('"at":[')).length;
    const faultsBefore = faults();
    const socket = connect(Number(port), hostname);
    await once(socket, "connect");
    const head = `POST /v1/responses HTTP/1.1\r\nhost: ${host}\r\nauthorization: Bearer ${KEY}`;
    socket.write(`${head}\r\ncontent-type: application/json\r\n${header}\r\n\r\n${begun}`, () => socket.destroy());
    const event = await eventually(() => wideEvents(gateway).filter(({ status }) => status === 499)[before]);
    expect(event).toMatchObject({ level: "info", error: "client_closed_request", client_left: true, tenant: "acme" });
    expect(faults()).toBe(faultsBefore);
  });
});

describe("content", () => {
  it.each(WAYS)("is in no telemetry: %s", async (way) => {
    const openai = gateway.client({ apiKey: KEY, defaultHeaders: { "x-canary": CANARY, "user-agent": CANARY } });
    const { response } = await ask(
      gateway,
      way,
      {
        model: "simulator",
        instructions: CANARY,
        input: `Call docs__add and docs__fail. ${CANARY}`,
        metadata: { canary: CANARY },
        user: CANARY,
        tools: [
          mcp(tools, { headers: { "x-canary": CANARY }, authorization: CANARY, server_description: CANARY }),
          { type: "function", name: "own", description: CANARY, parameters: {}, strict: false },
        ],
      },
      openai,
    );
    await eventOf(gateway, response.id);
    await wholeTrace(String((await eventOf(gateway, response.id)).trace_id), 6);
    // The content was in the requests.
    expect(JSON.stringify(response)).toContain(CANARY);
    expect(JSON.stringify(gateway.vllm.simulator.requests)).toContain(CANARY);
    const told = receiver.bodies.join() + gateway.logs();
    for (const secret of [CANARY, KEY, "se cret"]) expect(told.includes(secret), secret).toBe(false);
  });
});

describe("a conversation", () => {
  it.each(["json", "background", "items"] as const)(
    "that a request waits for is a span, a field and a metric: %s",
    async (way) => {
      const { id: conversation } = await gateway.openai.conversations.create();
      const turn = { model: "simulator?tps=20", input: "One two three four five six.", conversation };
      const first = await gateway.openai.responses.create({ ...turn, stream: true });
      const events = first[Symbol.asyncIterator]();
      const begun = (await events.next()).value;
      const traceId = newTraceId();
      const openai = gateway.client({ apiKey: KEY, defaultHeaders: traceHeaders(traceId) });
      const items = [{ type: "message" as const, role: "user" as const, content: "Hello!" }];
      const waiting =
        way === "items"
          ? openai.conversations.items.create(conversation, { items })
          : openai.responses.create({ ...turn, background: way === "background" });
      for (let next = await events.next(); !next.done; next = await events.next());
      await waiting;
      const holder = await eventOf(gateway, begun?.type === "response.created" ? begun.response.id : "");
      const held = named(await wholeTrace(String(holder.trace_id), 3), "chat simulator?tps=20");
      const wait = await eventually(() => spansIn(traceId).find(({ name }) => name === "enter conversation"));
      expect(wait).toMatchObject({ kind: 1, status: 0 });
      expect(wait.end).toBeGreaterThanOrEqual(held.end);
      const route = way === "items" ? "conversations/:id/items" : "responses";
      const lines = gateway.logs().split("\n");
      const line = lines.find((each) => each.includes(traceId) && each.includes(`"POST /v1/${route}"`));
      expect(JSON.parse(line ?? "{}")).toMatchObject({ conversation_wait_ms: expect.any(Number) });
      await eventually(async () => {
        const metrics = await fetch(`${gateway.url}/metrics`, { headers: { authorization: "Bearer scrape-me" } });
        return /^responses_edge_conversation_wait_seconds_count [1-9]/m.test(await metrics.text());
      });
      const { id } = await gateway.openai.responses.create({ model: "simulator", input: "Hello!" });
      expect(await eventOf(gateway, id)).not.toHaveProperty("conversation_wait_ms");
    },
  );
});

describe("attributes", () => {
  /** The conventions' attributes at the commits that docs/telemetry.md names, without those for content. */
  const KNOWN = new Set([
    ...["operation.name", "provider.name", "conversation.id", "token.type"].map((name) => `gen_ai.${name}`),
    ...["model", "stream", "max_tokens", "temperature", "top_p"].map((name) => `gen_ai.request.${name}`),
    ...["finish_reasons", "time_to_first_chunk"].map((name) => `gen_ai.response.${name}`),
    ...["input_tokens", "output_tokens", "cache_read.input_tokens", "reasoning.output_tokens"].map(
      (name) => `gen_ai.usage.${name}`,
    ),
    ...["name", "type", "call.id"].map((name) => `gen_ai.tool.${name}`),
    ...["error.type", "mcp.method.name", "network.transport"],
    ...["http.request.method", "http.route", "http.response.status_code"],
  ]);

  it("are the conventions', or this server's own", async () => {
    const conversation = await gateway.openai.conversations.create();
    const { id } = await gateway.openai.responses.create({
      ...{ model: "simulator", input: "Hello!", top_p: 0.5, conversation: conversation.id },
    });
    const told = await eventOf(gateway, id);
    const call = named(await wholeTrace(String(told.trace_id), 3), "chat simulator");
    expect(call.attributes).toMatchObject({
      "gen_ai.conversation.id": conversation.id,
      "gen_ai.request.top_p": 0.5,
    });
    const names = [...receiver.spans, ...receiver.points].flatMap(({ attributes }) => Object.keys(attributes));
    expect(names).toContain("gen_ai.tool.call.id");
    expect(names.filter((name) => !name.startsWith("responses_edge.") && !KNOWN.has(name))).toEqual([]);
  });
});

describe("a collector", () => {
  let failing: Receiver;
  let worker: Gateway;
  beforeAll(async () => {
    failing = await startReceiver();
    worker = await startGateway({
      OTEL_EXPORTER_OTLP_ENDPOINT: `${failing.url}/`,
      OTEL_EXPORTER_OTLP_TIMEOUT: "200",
      OTEL_METRICS_EXPORTER: "none",
    });
  });
  afterAll(async () => {
    await worker.close();
    await failing.close();
  });

  it("that hangs, fails or does not exist delays no request, is retried little, and is logged once", async () => {
    for (const manner of ["hang", 503, "html", 400] as const) {
      failing.manner = manner;
      for (let request = 0; request < 10; request += 1) {
        const { output_text } = await worker.openai.responses.create({ model: "simulator", input: "Hello!" });
        expect(output_text).toBe("You said: Hello!");
      }
    }
    const [line] = await eventually(() => {
      const lines = linesOf(worker, "export_failed");
      return lines.length > 0 ? lines : undefined;
    });
    expect(line).toMatchObject({ level: "warn", kind: "traces", why: "timeout" });
    expect(linesOf(worker, "export_failed")).toHaveLength(1);
    // The log has fewer lines than requests.
    expect(failing.bodies.length).toBeLessThan(40);
    expect(worker.logs()).not.toContain(failing.url);
  });
});

describe("a run whose process dies", () => {
  it("continues in the same trace", async () => {
    const vllm = await serveSimulator();
    const worker = await startWorkerd({
      VLLM_BASE_URL: `${vllm.url}/v1`,
      ALLOW_ANONYMOUS: "true",
      OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url,
    });
    const mortal = gatewayAt(worker, vllm);
    try {
      const traceId = newTraceId();
      const openai = mortal.client({ defaultHeaders: traceHeaders(traceId) });
      const { id } = await openai.responses.create({
        ...{ model: "simulator?tps=50&words=100", input: "Go on.", background: true },
      });
      const [request] = await wholeTrace(traceId, 1);
      const stream = await fetch(`${worker.url}/v1/responses/${id}?stream=true`);
      let read = "";
      for await (const text of stream.body?.pipeThrough(new TextDecoderStream()) ?? []) {
        read += text;
        if (read.includes("output_text.delta")) break;
      }
      await worker.kill();
      await worker.restart();
      expect((await ended(mortal, id)).status).toBe("completed");
      const spans = await wholeTrace(traceId, 3);
      const run = named(spans, "run");
      expect(run.parentSpanId).toBe(request?.spanId);
      expect(run.attributes).toMatchObject({ "responses_edge.outcome": "completed" });
      for (const call of spans.filter(({ name }) => name.startsWith("chat "))) expectNested(call, run);
    } finally {
      await mortal.close();
    }
  });
});

describe("without configuration", () => {
  it("telemetry calls nothing, passes nothing on and logs nothing", async () => {
    const plain = await startGateway();
    try {
      for (const way of WAYS) {
        const openai = plain.client({ defaultHeaders: { ...traceHeaders(newTraceId()), tracestate: "vendor=abc" } });
        await ask(plain, way, { model: "simulator", input: "Hello!" }, openai);
      }
      for (const { headers } of plain.vllm.simulator.requests) {
        expect(headers).not.toHaveProperty("traceparent");
        expect(headers).not.toHaveProperty("tracestate");
      }
      const lines = plain.logs().split("\n");
      expect(lines.filter((line) => line !== "")).toEqual([]);
      const metrics = await fetch(`${plain.url}/metrics`);
      expect(metrics.status).toBe(404);
    } finally {
      await plain.close();
    }
  });
});
