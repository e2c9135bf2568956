import type { Attributes, Gauge, GaugeReading, Instrument } from "./instrument.ts";
import type { Series } from "./meter.ts";

/**
 * Metrics in Prometheus' text format (0.0.4). Names and labels follow OpenTelemetry's translation ("Prometheus and
 * OpenMetrics Compatibility"), so that a dashboard shows both: `gen_ai.client.operation.duration` in seconds is
 * `gen_ai_client_operation_duration_seconds`.
 */

export const PROMETHEUS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8";

/** All metrics, also those without values yet, by their names; and the present values of gauges. */
export function prometheusText(
  instruments: readonly Instrument[],
  meter: { read(): readonly [Instrument, readonly Series[]][] },
  gauges: readonly GaugeReading[] = [],
): string {
  const known = new Map(meter.read());
  let text = "";
  for (const instrument of instruments) {
    const name = prometheusName(instrument);
    text += `# HELP ${name} ${instrument.description}\n# TYPE ${name} ${instrument.bounds ? "histogram" : "counter"}\n`;
    for (const series of known.get(instrument) ?? []) text += linesOf(name, instrument, series);
  }
  for (const [gauge, values] of gauges) {
    const name = gaugeName(gauge);
    text += `# HELP ${name} ${gauge.description}\n# TYPE ${name} gauge\n`;
    for (const [attributes, value] of values) text += `${name}${inBraces(labelsOf(attributes))} ${value}\n`;
  }
  return text;
}

/** The name of a gauge there. */
export function gaugeName({ name, unit }: Gauge): string {
  return name.replaceAll(/[^a-zA-Z0-9_]/g, "_") + (unit ? `_${unit}` : "");
}

/** The name of a metric there; a histogram's `_bucket`, `_sum` and `_count` come behind it. */
export function prometheusName({ name, unit, bounds }: Instrument): string {
  return name.replaceAll(/[^a-zA-Z0-9_]/g, "_") + (unit === "s" ? "_seconds" : "") + (bounds ? "" : "_total");
}

function linesOf(name: string, { bounds }: Instrument, { attributes, count, sum, buckets }: Series): string {
  const labels = labelsOf(attributes);
  if (!bounds) return `${name}${inBraces(labels)} ${sum}\n`;
  let text = "";
  let below = 0;
  for (const [index, bound] of [...bounds, Number.POSITIVE_INFINITY].entries()) {
    below += buckets[index] ?? 0;
    const le = bound === Number.POSITIVE_INFINITY ? "+Inf" : String(bound);
    text += `${name}_bucket${inBraces([...labels, `le="${le}"`])} ${below}\n`;
  }
  return `${text}${name}_sum${inBraces(labels)} ${sum}\n${name}_count${inBraces(labels)} ${count}\n`;
}

function labelsOf(attributes: Attributes): string[] {
  return Object.entries(attributes).map(([name, value]) => {
    const escaped = String(value).replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
    return `${name.replaceAll(/[^a-zA-Z0-9_]/g, "_")}="${escaped}"`;
  });
}

function inBraces(labels: readonly string[]): string {
  return labels.length === 0 ? "" : `{${labels.join(",")}}`;
}
