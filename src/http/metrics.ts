import { createHash, timingSafeEqual } from "node:crypto";
import type { Config } from "../config.ts";
import { PROMETHEUS_CONTENT_TYPE, prometheusText } from "../telemetry/prometheus.ts";
import { telemetryOf } from "../telemetry/telemetry.ts";
import { unauthorized } from "./auth.ts";
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
    handle: (context) => {
      const config = context.get("config");
      const totals = telemetryOf(config)?.totals;
      if (!totals) throw unknownUrl(context);
      checkToken(context.req.header("authorization"), config);
      return context.body(prometheusText(totals), 200, { "content-type": PROMETHEUS_CONTENT_TYPE });
    },
  }),
];

/** Throws the 401 of a header without the token; without a token whoever may call this server may read its metrics. */
function checkToken(header: string | undefined, { telemetry, allowAnonymous, wantsKeys }: Config): void {
  const expected = telemetry?.prometheus?.tokenSha256;
  if (!expected && allowAnonymous && !wantsKeys) return;
  const token = /^Bearer +(\S+)$/i.exec(header ?? "")?.[1];
  const digest = createHash("sha256")
    .update(token ?? "")
    .digest();
  if (token !== undefined && expected && timingSafeEqual(digest, expected)) return;
  throw unauthorized("Incorrect token provided for the metrics (PROMETHEUS_TOKEN).", "invalid_api_key");
}
