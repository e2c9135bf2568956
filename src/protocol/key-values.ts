/**
 * The lists of OpenTelemetry's variables (`OTEL_RESOURCE_ATTRIBUTES`, `OTEL_EXPORTER_OTLP_HEADERS`): `key=value`, separated
 * by commas, each part percent-encoded, as in W3C's Baggage without its properties. Undefined for what is no such list.
 */
export function parseKeyValues(text: string): ReadonlyMap<string, string> | undefined {
  const values = new Map<string, string>();
  for (const entry of text.split(",")) {
    if (entry.trim() === "") continue;
    const at = entry.indexOf("=");
    if (at < 0) return undefined;
    try {
      const key = decodeURIComponent(entry.slice(0, at).trim());
      if (key === "") return undefined;
      values.set(key, decodeURIComponent(entry.slice(at + 1).trim()));
    } catch {
      return undefined;
    }
  }
  return values;
}
