import { z } from "zod";
import type { OperatorNetwork } from "./network.ts";
import { otlpTarget, resourceOf, type TelemetryValues } from "./telemetry.ts";
import { headerValues, httpUrl, integer, jsonList } from "./values.ts";
import { type Mistake, type Section, type ValuesOf, variable } from "./variable.ts";

/** The content log: the texts of turns of keys and tenants that have `log_content` (docs/telemetry.md). */

const pattern = z
  .string()
  .min(1)
  .max(1_000)
  .transform((text, context) => {
    try {
      return new RegExp(text, "gu");
    } catch {
      context.addIssue({ code: "custom", message: "expected regular expressions of JavaScript" });
      return z.NEVER;
    }
  });

export const contentLog = {
  title: "Content log",
  variables: {
    sink: variable(
      "CONTENT_LOG",
      z.union([z.enum(["none", "log", "otlp"]), httpUrl], "expected none, log, otlp, or a URL").default("none"),
      "The destination of contents, only of keys and tenants with `log_content`: `log` (a line of the log each), `otlp` (a collector), or a URL that takes JSON lines. See [telemetry.md](../telemetry.md#contents).",
    ),
    headers: variable(
      "CONTENT_LOG_HEADERS",
      headerValues,
      "Secret. Headers for the URL in `CONTENT_LOG`: `key=value,…`, percent-encoded.",
    ),
    patterns: variable(
      "CONTENT_LOG_REDACT",
      jsonList(pattern, '["\\\\b\\\\d{13,19}\\\\b"]'),
      "Regular expressions of JavaScript, a JSON list: each match becomes `[redacted]`.",
    ),
    maxLength: variable(
      "CONTENT_LOG_MAX_LENGTH",
      integer(65_536, 1_024, 1_048_576),
      "The maximum length of a turn's entry, in characters, at most 1,048,576. A longer one is cut, and has `truncated`.",
    ),
  },
} satisfies Section;

type ContentLogValues = ValuesOf<typeof contentLog>;

/** Checks these variables against those of telemetry. */
export function contentLogMistakes({ sink }: ContentLogValues, { endpoint, logsEndpoint }: TelemetryValues): Mistake[] {
  if (sink !== "otlp" || endpoint !== undefined || logsEndpoint !== undefined) return [];
  return [["CONTENT_LOG", "otlp needs OTEL_EXPORTER_OTLP_ENDPOINT, or OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"]];
}

/** The settings of the content log; undefined without one. */
export function contentLogConfig(
  { sink, headers, patterns, maxLength }: ContentLogValues,
  telemetry: TelemetryValues,
  network: OperatorNetwork,
) {
  if (sink === "none") return undefined;
  const lines = { url: sink, headers: Object.fromEntries(headers ?? []), contentType: "application/x-ndjson" };
  const url = sink === "log" || sink === "otlp" ? undefined : { ...lines, fetch: network.fetch };
  return {
    /** `log`, or the target of the export and its form. */
    isOtlp: sink === "otlp",
    target: sink === "otlp" ? otlpTarget(telemetry, "logs", network) : url,
    patterns,
    maxLength,
    timeoutMs: telemetry.exportTimeoutMs,
    resource: resourceOf(telemetry),
  };
}
export type ContentLogConfig = NonNullable<ReturnType<typeof contentLogConfig>>;
