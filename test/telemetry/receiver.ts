import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { z } from "zod";

/**
 * A collector of OTLP over HTTP, as JSON. It accepts only the fields of `opentelemetry-proto` 1.x, in its JSON
 * encoding: ids are hexadecimal, 64-bit integers are texts, enums are numbers. It refuses and records everything else.
 */

const id = (digits: number) => z.string().regex(new RegExp(`^(?!0+$)[0-9a-f]{${digits}}$`));
const int64 = z.string().regex(/^-?\d{1,19}$/);
const uint64 = z.string().regex(/^\d{1,20}$/);

/** Each is one of a `oneof`. */
const value: z.ZodType = z.lazy(() =>
  z.union([
    z.strictObject({ stringValue: z.string() }),
    z.strictObject({ boolValue: z.boolean() }),
    z.strictObject({ intValue: int64 }),
    z.strictObject({ doubleValue: z.number() }),
    z.strictObject({ arrayValue: z.strictObject({ values: z.array(value) }) }),
  ]),
);
const attributes = z
  .array(z.strictObject({ key: z.string().min(1), value }))
  .refine((list) => new Set(list.map(({ key }) => key)).size === list.length, "no key twice");
const resource = z.strictObject({ attributes });
const scope = z.strictObject({ name: z.string(), version: z.string() });

const span = z.strictObject({
  traceId: id(32),
  spanId: id(16),
  traceState: z.string().optional(),
  parentSpanId: id(16).optional(),
  flags: z.int().min(0),
  name: z.string().min(1),
  kind: z.int().min(1).max(5),
  startTimeUnixNano: uint64,
  endTimeUnixNano: uint64,
  attributes,
  status: z.strictObject({ code: z.int().min(0).max(2).optional() }),
});

const traces = z.strictObject({
  resourceSpans: z.array(
    z.strictObject({ resource, scopeSpans: z.array(z.strictObject({ scope, spans: z.array(span) })) }),
  ),
});

const times = { startTimeUnixNano: uint64, timeUnixNano: uint64 };
const histogramPoint = z
  .strictObject({
    attributes,
    ...times,
    count: uint64,
    sum: z.number(),
    min: z.number(),
    max: z.number(),
    bucketCounts: z.array(uint64),
    explicitBounds: z.array(z.number()),
  })
  .refine((point) => point.bucketCounts.length === point.explicitBounds.length + 1, "a bucket above all bounds")
  .refine(
    (point) => point.bucketCounts.reduce((sum, count) => sum + Number(count), 0) === Number(point.count),
    "each value in one bucket",
  )
  .refine(
    (point) => point.explicitBounds.every((bound, at, all) => at === 0 || bound > (all[at - 1] ?? 0)),
    "ascending",
  );
const metricHead = { name: z.string().min(1), description: z.string(), unit: z.string() };
const DELTA = z.literal(1);
const metric = z.union([
  z.strictObject({
    ...metricHead,
    histogram: z.strictObject({ aggregationTemporality: DELTA, dataPoints: z.array(histogramPoint) }),
  }),
  z.strictObject({
    ...metricHead,
    sum: z.strictObject({
      aggregationTemporality: DELTA,
      isMonotonic: z.literal(true),
      dataPoints: z.array(z.strictObject({ attributes, ...times, asInt: int64 })),
    }),
  }),
]);
const metrics = z.strictObject({
  resourceMetrics: z.array(
    z.strictObject({ resource, scopeMetrics: z.array(z.strictObject({ scope, metrics: z.array(metric) })) }),
  ),
});

/** An attribute's value in JavaScript. */
export type Plain = string | number | boolean | Plain[];

export interface ReceivedSpan {
  traceId: string;
  spanId: string;
  parentSpanId: string | undefined;
  traceState: string | undefined;
  name: string;
  kind: number;
  start: bigint;
  end: bigint;
  attributes: Record<string, Plain>;
  status: number;
}

export interface ReceivedPoint {
  metric: string;
  unit: string;
  attributes: Record<string, Plain>;
  count: number;
  sum: number;
  bounds: number[];
  bucketCounts: number[];
}

/** Its reaction to requests. `hang` never answers. */
export type Manner = "take" | "hang" | "html" | number;

export interface Receiver {
  /** `http://127.0.0.1:PORT`. The path after it names the kind of data. */
  url: string;
  spans: ReceivedSpan[];
  points: ReceivedPoint[];
  resources: Record<string, Plain>[];
  /** All received requests. */
  bodies: string[];
  headers: Record<string, string>[];
  /** The requests that were not OTLP. */
  faults: string[];
  manner: Manner;
  close(): Promise<void>;
}

export async function startReceiver(): Promise<Receiver> {
  const receiver: Omit<Receiver, "url" | "close"> = {
    ...{ spans: [], points: [], resources: [], bodies: [], headers: [], faults: [] },
    manner: "take",
  };
  const server = createServer((request, response) => void answer(receiver, request, response));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return Object.assign(receiver, {
    url,
    async close() {
      server.close();
      server.closeAllConnections();
    },
  });
}

async function answer(
  receiver: Omit<Receiver, "url" | "close">,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  let body = "";
  for await (const part of request.setEncoding("utf8")) body += part;
  receiver.bodies.push(body);
  receiver.headers.push(request.headers as Record<string, string>);
  const { manner } = receiver;
  if (manner === "hang") return;
  if (typeof manner === "number") {
    response.writeHead(manner).end();
    return;
  }
  if (manner === "html") {
    response.writeHead(200, { "content-type": "text/html" }).end("<html>Welcome!</html>");
    return;
  }
  try {
    if (request.method !== "POST") throw new Error(`${request.method}`);
    if (request.headers["content-type"] !== "application/json") throw new Error("The content type is not JSON.");
    if (request.url === "/v1/traces") takeTraces(receiver, traces.parse(JSON.parse(body)));
    else if (request.url === "/v1/metrics") takeMetrics(receiver, metrics.parse(JSON.parse(body)));
    else throw new Error(`There is no ${request.url}.`);
    response.writeHead(200, { "content-type": "application/json" }).end("{}");
  } catch (error) {
    receiver.faults.push(String(error));
    response.writeHead(400).end();
  }
}

function takeTraces(receiver: Omit<Receiver, "url" | "close">, body: z.output<typeof traces>): void {
  for (const { resource, scopeSpans } of body.resourceSpans) {
    receiver.resources.push(plainOf(resource.attributes));
    for (const span of scopeSpans.flatMap(({ spans }) => spans)) {
      const { traceId, spanId, parentSpanId, traceState, name, kind } = span;
      receiver.spans.push({
        ...{ traceId, spanId, parentSpanId, traceState, name, kind },
        start: BigInt(span.startTimeUnixNano),
        end: BigInt(span.endTimeUnixNano),
        attributes: plainOf(span.attributes),
        status: span.status.code ?? 0,
      });
    }
  }
}

function takeMetrics(receiver: Omit<Receiver, "url" | "close">, body: z.output<typeof metrics>): void {
  for (const { resource, scopeMetrics } of body.resourceMetrics) {
    receiver.resources.push(plainOf(resource.attributes));
    for (const metric of scopeMetrics.flatMap(({ metrics }) => metrics)) {
      const { name, unit } = metric;
      const points = "sum" in metric ? metric.sum.dataPoints : metric.histogram.dataPoints;
      for (const point of points) {
        receiver.points.push({
          metric: name,
          unit,
          attributes: plainOf(point.attributes),
          ...("asInt" in point
            ? { count: 1, sum: Number(point.asInt), bounds: [], bucketCounts: [] }
            : {
                ...{ count: Number(point.count), sum: point.sum, bounds: point.explicitBounds },
                bucketCounts: point.bucketCounts.map(Number),
              }),
        });
      }
    }
  }
}

function plainOf(list: z.output<typeof attributes>): Record<string, Plain> {
  return Object.fromEntries(list.map(({ key, value }) => [key, plainValue(value as Record<string, unknown>)]));
}

function plainValue(value: Record<string, unknown>): Plain {
  if ("arrayValue" in value) {
    return (value.arrayValue as { values: Record<string, unknown>[] }).values.map(plainValue);
  }
  if ("intValue" in value) return Number(value.intValue);
  return Object.values(value)[0] as Plain;
}
