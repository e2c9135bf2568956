import { PROMETHEUS_CONTENT_TYPE, prometheusText } from "../telemetry/prometheus.ts";
import { telemetryOf } from "../telemetry/telemetry.ts";
import { endpoint } from "./endpoint.ts";
import { unknownUrl } from "./errors.ts";

export const metrics = [
  endpoint({
    method: "GET",
    path: "/metrics",
    summary:
      "metrics of this process for Prometheus, with `PROMETHEUS_METRICS`; `PROMETHEUS_TOKEN` is its key ([docs/telemetry.md](docs/telemetry.md))",
    operation: {
      id: "metrics",
      group: "Operation",
      access: "metrics",
      openedBy: "PROMETHEUS_METRICS",
      answers: { 200: { "text/plain": "Metrics" } },
    },
    isOpen: (config) => telemetryOf(config)?.totals !== undefined,
    handle: (context) => {
      const totals = telemetryOf(context.get("config"))?.totals;
      if (!totals) throw unknownUrl(context);
      return context.body(prometheusText(totals), 200, { "content-type": PROMETHEUS_CONTENT_TYPE });
    },
  }),
];
