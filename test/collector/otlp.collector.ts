import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { eventually, type Gateway, startGateway } from "../e2e/support.ts";
import { ask, mcp, startTools, type ToolServer } from "../e2e/tool-support.ts";
import { type Receiver, startReceiver } from "../telemetry/receiver.ts";
import { type CollectorProcess, startCollector, whyNoCollector } from "./process.ts";

/** OpenTelemetry's own collector accepts this server's data and forwards it. The test checks the forwarded data. */

const why = whyNoCollector();
if (why !== undefined) console.warn(`SKIPPED: ${why}.`);

describe.skipIf(why !== undefined)("the collector", () => {
  let understood: Receiver;
  let collector: CollectorProcess;
  let tools: ToolServer;
  let gateway: Gateway;
  beforeAll(async () => {
    understood = await startReceiver();
    collector = await startCollector(understood.url);
    tools = await startTools({ add: { run: () => "3" } });
    gateway = await startGateway({ OTEL_EXPORTER_OTLP_ENDPOINT: collector.url, MCP_SERVERS: tools.url });
  });
  afterAll(async () => {
    await gateway?.close();
    await tools?.close();
    collector?.close();
    await understood?.close();
  });

  it("understands spans and their nesting", async () => {
    const traceId = crypto.randomUUID().replaceAll("-", "");
    const parent = "00f067aa0ba902b7";
    const openai = gateway.client({
      defaultHeaders: { traceparent: `00-${traceId}-${parent}-01`, tracestate: "vendor=abc" },
    });
    await ask(gateway, "stream", { model: "simulator", input: "Call docs__add.", tools: [mcp(tools)] }, openai);
    const spans = await eventually(() => {
      const ofTrace = understood.spans.filter((span) => span.traceId === traceId);
      return ofTrace.some(({ name }) => name === "POST /v1/responses") ? ofTrace : undefined;
    });
    const top = spans.find(({ name }) => name === "POST /v1/responses");
    expect(top).toMatchObject({ parentSpanId: parent, traceState: "vendor=abc", kind: 2 });
    const names = spans.filter(({ parentSpanId }) => parentSpanId === top?.spanId).map(({ name }) => name);
    expect(names.toSorted()).toEqual(["chat simulator", "chat simulator", "execute_tool docs__add", "tools/list"]);
    const call = spans.find(({ name }) => name === "chat simulator");
    expect(call?.attributes).toMatchObject({
      "gen_ai.operation.name": "chat",
      "gen_ai.request.stream": true,
      "gen_ai.usage.input_tokens": expect.any(Number),
      "gen_ai.response.finish_reasons": [expect.any(String)],
    });
  });

  it("understands metrics, as deltas", async () => {
    const { usage } = await gateway.openai.responses.create({ model: "simulator", input: "Hello!" });
    await eventually(() =>
      understood.points.some(
        ({ metric, attributes, sum }) =>
          metric === "gen_ai.client.token.usage" &&
          attributes["gen_ai.token.type"] === "output" &&
          sum === usage?.output_tokens,
      ),
    );
    expect(understood.faults).toEqual([]);
  });

  it("logs no error or warning", () => {
    expect(collector.logs()).not.toMatch(/\t(warn|error)\t/i);
  });
});
