import type { Attributes, Instrument } from "./instrument.ts";
import type { Series } from "./meter.ts";

/**
 * OTLP as JSON (opentelemetry-proto 1.x, "JSON Protobuf Encoding"): ids are hexadecimal, 64-bit integers are texts, enums
 * are numbers.
 */

export interface OtlpValue {
  stringValue?: string;
  intValue?: string;
  doubleValue?: number;
  boolValue?: boolean;
  arrayValue?: { values: OtlpValue[] };
}

export interface OtlpAttribute {
  key: string;
  value: OtlpValue;
}

export interface OtlpSpan {
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  traceState?: string;
  flags: number;
  name: string;
  kind: number;
  startTimeUnixNano: string;
  endTimeUnixNano: string;
  attributes: OtlpAttribute[];
  status: { code?: number };
}

/** `SpanKind`. */
export const KIND = { internal: 1, server: 2, client: 3, consumer: 5 } as const;

/** `StatusCode`. */
export const STATUS_ERROR = 2;

const DELTA = 1;

/** The instrumentation scope. */
export interface Scope {
  name: string;
  version: string;
}

/** The value of an attribute; an undefined one is left out. */
export type AttributeValue = string | number | boolean | readonly string[] | undefined;

/** A class of its own distinguishes a double from an integer, because JSON's numbers do not. */
export class Double {
  readonly value: number;

  constructor(value: number) {
    this.value = value;
  }
}

export function attributes(values: Readonly<Record<string, AttributeValue | Double>>): OtlpAttribute[] {
  const list: OtlpAttribute[] = [];
  for (const [key, value] of Object.entries(values))
    if (value !== undefined) list.push({ key, value: otlpValue(value) });
  return list;
}

function otlpValue(value: NonNullable<AttributeValue> | Double): OtlpValue {
  if (value instanceof Double) return { doubleValue: value.value };
  switch (typeof value) {
    case "string":
      return { stringValue: value };
    case "number":
      return Number.isInteger(value) ? { intValue: String(value) } : { doubleValue: value };
    case "boolean":
      return { boolValue: value };
    default:
      return { arrayValue: { values: value.map((text) => ({ stringValue: text })) } };
  }
}

/** Nanoseconds of Unix milliseconds, exactly. */
export function nanos(ms: number): string {
  return `${Math.round(ms)}000000`;
}

/** The body of an export of spans, each as JSON. */
export function tracesBody(resource: Attributes, scope: Scope, spans: readonly string[]): string {
  const head = JSON.stringify({ attributes: attributes(resource) });
  return `{"resourceSpans":[{"resource":${head},"scopeSpans":[{"scope":${JSON.stringify(scope)},"spans":[${spans.join(",")}]}]}]}`;
}

/** The body of an export of metrics that were added up from `since` to `now`, Unix milliseconds. */
export function metricsBody(
  resource: Attributes,
  scope: Scope,
  { since, now, metrics }: { since: number; now: number; metrics: readonly [Instrument, Series[]][] },
): string {
  const times = { startTimeUnixNano: nanos(since), timeUnixNano: nanos(now) };
  return JSON.stringify({
    resourceMetrics: [
      {
        resource: { attributes: attributes(resource) },
        scopeMetrics: [{ scope, metrics: metrics.map(([instrument, series]) => toMetric(instrument, series, times)) }],
      },
    ],
  });
}

function toMetric({ name, unit, description, bounds }: Instrument, all: readonly Series[], times: object): object {
  const head = { name, unit, description };
  if (!bounds) {
    const dataPoints = all.map((series) => ({
      attributes: attributes(series.attributes),
      ...times,
      asInt: String(series.sum),
    }));
    return { ...head, sum: { aggregationTemporality: DELTA, isMonotonic: true, dataPoints } };
  }
  const dataPoints = all.map((series) => ({
    attributes: attributes(series.attributes),
    ...times,
    count: String(series.count),
    sum: series.sum,
    min: series.min,
    max: series.max,
    bucketCounts: series.buckets.map(String),
    explicitBounds: bounds,
  }));
  return { ...head, histogram: { aggregationTemporality: DELTA, dataPoints } };
}
