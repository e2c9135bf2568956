import { Exporter, type Instrument, Meter, metricsBody, prometheusText, tracesBody } from "@responses-edge/otlp";
import { describe, expect, it } from "vitest";

const RETRIES: Instrument = { name: "acme.retries", unit: "{retry}", description: "Retries." };
const DURATION: Instrument = { name: "acme.duration", unit: "s", description: "Duration.", bounds: [0.1, 1] };
const SCOPE = { name: "acme", version: "1.0.0" };

describe("a meter", () => {
  it("has a bounded number of series, whatever is measured", () => {
    const meter = new Meter(0);
    for (let index = 0; index < 5_000; index += 1) meter.record(RETRIES, { model: `m${index}` }, 1);
    const series = meter.read()[0]?.[1] ?? [];
    expect(series).toHaveLength(501);
    expect(series.at(-1)).toMatchObject({ attributes: { "otel.metric.overflow": "true" }, sum: 4_500 });
    expect(meter.take(7).since).toBe(0);
    expect([meter.isEmpty, meter.since]).toEqual([true, 7]);
  });
});

it("tells OTLP and Prometheus the same", () => {
  const meter = new Meter(1_000);
  for (const seconds of [0.05, 0.5, 5]) meter.record(DURATION, { route: "/" }, seconds);
  meter.record(RETRIES, {}, 2);
  const text = prometheusText([DURATION, RETRIES], meter);
  expect(text).toContain('acme_duration_seconds_bucket{route="/",le="1"} 2\n');
  expect(text).toContain('acme_duration_seconds_count{route="/"} 3\n');
  expect(text).toContain("acme_retries_total 2\n");

  const body = JSON.parse(metricsBody({ "service.name": "acme" }, SCOPE, { now: 2_000, ...meter.take(2_000) }));
  const [{ scope, metrics }] = body.resourceMetrics[0].scopeMetrics;
  expect(scope).toEqual(SCOPE);
  expect(metrics).toMatchObject([
    { name: "acme.duration", histogram: { dataPoints: [{ count: "3", bucketCounts: ["1", "1", "1"], max: 5 }] } },
    { name: "acme.retries", sum: { isMonotonic: true, dataPoints: [{ asInt: "2", startTimeUnixNano: "1000000000" }] } },
  ]);
  expect(meter.isEmpty).toBe(true);
});

it("puts spans, which are JSON already, into one export", () => {
  const body = JSON.parse(tracesBody({ "service.name": "acme" }, SCOPE, ['{"name":"a"}', '{"name":"b"}']));
  expect(body.resourceSpans[0].scopeSpans).toEqual([{ scope: SCOPE, spans: [{ name: "a" }, { name: "b" }] }]);
  expect(body.resourceSpans[0].resource.attributes).toEqual([{ key: "service.name", value: { stringValue: "acme" } }]);
});

it("drops data that a collector will never accept, and says why", async () => {
  const told: unknown[] = [];
  const bodies = ["one"];
  const pending: Promise<unknown>[] = [];
  const exporter = new Exporter({
    target: { url: "http://collector/v1/traces", headers: {}, fetch: async () => new Response("", { status: 400 }) },
    timeoutMs: 5_000,
    take: () => bodies.shift(),
    onDropped: () => told.push("dropped"),
    onFailed: (fault) => told.push(fault),
  });
  exporter.flush({ isBrief: true, waitUntil: (promise) => void pending.push(promise) });
  await Promise.all(pending);
  expect(told).toEqual(["dropped", { why: "status 400", dropped: 1 }]);
});
