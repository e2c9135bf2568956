import { createHash } from "node:crypto";
import { z } from "zod";
import type { OperatorNetwork } from "./network.ts";
import { flag, headerSecret, headerValues, httpUrl, integer, keyValues, ratio } from "./values.ts";
import { type Mistake, type Section, type ValuesOf, variable } from "./variable.ts";

/** Reports of requests, and their receivers (docs/telemetry.md). */

/** The methods of Analytics Engine that are used here. */
export interface AnalyticsDataset {
  writeDataPoint(point: { indexes: string[]; blobs: string[]; doubles: number[] }): void;
}

/**
 * The samplers of OpenTelemetry's specification ("General SDK Configuration"), with the share of new traces; undefined
 * where an argument gives it.
 */
const SAMPLERS = { always_on: 1, always_off: 0, traceidratio: undefined } as const;
type SamplerName = keyof typeof SAMPLERS;
const SAMPLER_NAMES = Object.keys(SAMPLERS) as [SamplerName, ...SamplerName[]];

/** No collector needs longer, and work after an answer is limited to 30 s. */
const MAX_EXPORT_TIMEOUT_MS = 20_000;

const exporter = () => z.enum(["otlp", "none"]).default("otlp");

export const telemetry = {
  title: "Telemetry",
  variables: {
    logEvents: variable(
      "TELEMETRY_LOG",
      z.enum(["all", "errors", "none"]).default("none"),
      "Which requests have a line in the log, without content: `all`, `errors` or `none`. See [telemetry.md](../telemetry.md), also for the other variables of this table.",
    ),
    logRatio: variable(
      "TELEMETRY_LOG_RATIO",
      ratio(),
      "The share of requests without an error that are logged, 0 to 1.",
    ),
    endpoint: variable(
      "OTEL_EXPORTER_OTLP_ENDPOINT",
      httpUrl.optional(),
      "An OpenTelemetry collector (OTLP over HTTP, JSON), which receives traces and metrics.",
    ),
    tracesEndpoint: variable(
      "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
      httpUrl.optional(),
      "The whole URL for traces, instead of the collector's.",
    ),
    metricsEndpoint: variable(
      "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
      httpUrl.optional(),
      "The whole URL for metrics, instead of the collector's.",
    ),
    headers: variable(
      "OTEL_EXPORTER_OTLP_HEADERS",
      headerValues,
      "Secret. Headers for the collector: `key=value,…`, percent-encoded.",
    ),
    tracesHeaders: variable(
      "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
      headerValues,
      "Secret. Headers for traces, instead of `OTEL_EXPORTER_OTLP_HEADERS`.",
    ),
    metricsHeaders: variable(
      "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
      headerValues,
      "Secret. Headers for metrics, instead of `OTEL_EXPORTER_OTLP_HEADERS`.",
    ),
    logsEndpoint: variable(
      "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT",
      httpUrl.optional(),
      "The whole URL for contents (`CONTENT_LOG=otlp`), instead of the collector's.",
    ),
    logsHeaders: variable(
      "OTEL_EXPORTER_OTLP_LOGS_HEADERS",
      headerValues,
      "Secret. Headers for contents, instead of `OTEL_EXPORTER_OTLP_HEADERS`.",
    ),
    exportTimeoutMs: variable(
      "OTEL_EXPORTER_OTLP_TIMEOUT",
      integer(10_000, 1, MAX_EXPORT_TIMEOUT_MS),
      "The longest time of one export, in milliseconds, at most 20,000.",
    ),
    tracesExporter: variable("OTEL_TRACES_EXPORTER", exporter(), "`none` sends no traces."),
    metricsExporter: variable("OTEL_METRICS_EXPORTER", exporter(), "`none` sends no metrics."),
    serviceName: variable(
      "OTEL_SERVICE_NAME",
      z.string().max(255).optional(),
      "The `service.name` that is sent. Without it: `responses-edge`.",
    ),
    resourceAttributes: variable(
      "OTEL_RESOURCE_ATTRIBUTES",
      keyValues,
      "Further attributes of the sender: `key=value,…`, percent-encoded.",
    ),
    sampler: variable(
      "OTEL_TRACES_SAMPLER",
      z
        .templateLiteral(
          [z.enum(["", "parentbased_"]), z.enum(SAMPLER_NAMES)],
          `expected ${SAMPLER_NAMES.join(", ")}, or parentbased_ and one of them`,
        )
        .default("parentbased_always_on"),
      "Which traces are sent: `always_on`, `always_off` or `traceidratio`. With `parentbased_`, a caller's decision has precedence.",
    ),
    samplerRatio: variable("OTEL_TRACES_SAMPLER_ARG", ratio(), "The share of `traceidratio`, 0 to 1."),
    propagators: variable(
      "OTEL_PROPAGATORS",
      z.enum(["tracecontext", "none"]).optional(),
      "`tracecontext` reads `traceparent` and forwards it to vLLM and MCP servers; `none` does not. Default: `tracecontext` if traces are exported.",
    ),
    servesMetrics: variable("PROMETHEUS_METRICS", flag, "`true` serves `/metrics` for Prometheus."),
    metricsToken: variable(
      "PROMETHEUS_TOKEN",
      headerSecret.optional(),
      "Secret. The token that `/metrics` requires. It is required unless `ALLOW_ANONYMOUS` serves everybody.",
    ),
    metricsByTenant: variable(
      "PROMETHEUS_TENANTS",
      flag,
      "`true` adds the tenant to the labels of the metrics of responses, their time and their tokens at `/metrics`.",
    ),
  },
} satisfies Section;

export type TelemetryValues = ValuesOf<typeof telemetry>;

/** Checks the variables of telemetry against the others. `isOpen`: everybody is served without a key. */
export function telemetryMistakes({ servesMetrics, metricsToken }: TelemetryValues, isOpen: boolean): Mistake[] {
  if (!servesMetrics || metricsToken || isOpen) return [];
  return [["PROMETHEUS_TOKEN", "needed by PROMETHEUS_METRICS, unless ALLOW_ANONYMOUS serves everybody"]];
}

/** The settings of telemetry. */
export function telemetryConfig(
  values: TelemetryValues,
  analytics: AnalyticsDataset | undefined,
  network: OperatorNetwork,
) {
  const traces = otlpTarget(values, "traces", network);
  const metrics = otlpTarget(values, "metrics", network);
  const { logEvents, servesMetrics, metricsToken } = values;
  const forwardsTraces = (values.propagators ?? (traces ? "tracecontext" : "none")) === "tracecontext";
  const sampler = values.sampler.replace("parentbased_", "") as SamplerName;
  return {
    /** The wide events to log, and the share of those without an error. */
    log: { events: logEvents, ratio: values.logRatio },
    analytics,
    traces,
    metrics,
    exportTimeoutMs: values.exportTimeoutMs,
    resource: resourceOf(values),
    /** The share of new traces, from 0 to 1. `asksParent`: a caller's decision overrides it. */
    sampler: {
      ratio: SAMPLERS[sampler] ?? values.samplerRatio,
      asksParent: values.sampler.startsWith("parentbased_"),
    },
    /** True if the model server and MCP servers receive `traceparent`. */
    forwardsTraces,
    /** `/metrics`, and the SHA-256 of its token. */
    prometheus: servesMetrics
      ? {
          tokenSha256:
            metricsToken === undefined ? undefined : new Uint8Array(createHash("sha256").update(metricsToken).digest()),
          byTenant: values.metricsByTenant,
        }
      : undefined,
  };
}
export type TelemetryConfig = ReturnType<typeof telemetryConfig>;

/** The resource in OpenTelemetry's conventions: `service.name` and others. */
export function resourceOf({ resourceAttributes, serviceName }: TelemetryValues): Readonly<Record<string, string>> {
  return {
    "service.name": "responses-edge",
    ...Object.fromEntries(resourceAttributes ?? []),
    ...(serviceName && { "service.name": serviceName }),
  };
}

/**
 * The target of a signal ("OpenTelemetry Protocol Exporter" of the specification): its own endpoint unchanged, or else
 * a path below the common one. Its own headers replace the common ones. `fetch` reaches the collector.
 */
export function otlpTarget(values: TelemetryValues, signal: "traces" | "metrics" | "logs", { fetch }: OperatorNetwork) {
  const { endpoint: common, headers: commonHeaders } = values;
  const url = values[`${signal}Endpoint`] ?? (common && `${common.replace(/\/+$/, "")}/v1/${signal}`);
  if (url === undefined || (signal !== "logs" && values[`${signal}Exporter`] === "none")) return undefined;
  const headers: Readonly<Record<string, string>> = Object.fromEntries(
    values[`${signal}Headers`] ?? commonHeaders ?? [],
  );
  return { url, headers, fetch };
}
export type OtlpTarget = NonNullable<ReturnType<typeof otlpTarget>>;
