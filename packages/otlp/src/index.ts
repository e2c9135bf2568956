export { Exporter, type ExporterOptions, type ExportFault, type ExportHost, type ExportTarget } from "./exporter.ts";
export type { Attributes, Gauge, GaugeReading, Instrument } from "./instrument.ts";
export { type LogEvent, logRecord, logsBody, TextQueue } from "./logs.ts";
export { Meter, type Series } from "./meter.ts";
export {
  type AttributeValue,
  attributes,
  Double,
  KIND,
  metricsBody,
  nanos,
  type OtlpAttribute,
  type OtlpSpan,
  type OtlpValue,
  type Scope,
  STATUS_ERROR,
  tracesBody,
} from "./otlp.ts";
export { gaugeName, PROMETHEUS_CONTENT_TYPE, prometheusName, prometheusText } from "./prometheus.ts";
export {
  newSpanId,
  newTrace,
  type RemoteTrace,
  randomHex,
  readTraceContext,
  type Trace,
  type TraceSettings,
  traceparent,
} from "./trace-context.ts";
