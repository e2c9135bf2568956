import { PROMETHEUS_CONTENT_TYPE, prometheusText } from "@responses-edge/otlp";
import { checkReadiness, checkUpstream } from "../api/health.ts";
import { allMetrics } from "../api/worker-metrics.ts";
import { loadConfig } from "../config/index.ts";
import { currentOverrides } from "../store/deployment/keys/live-config.ts";
import { filesInUse } from "../store/objects/open-objects.ts";
import { processState } from "../store/objects/process-state.ts";
import { INSTRUMENTS } from "../telemetry/instruments.ts";
import { telemetryOf } from "../telemetry/telemetry.ts";
import { unknownUrl } from "./answers.ts";
import { type Endpoint, endpoint } from "./endpoint.ts";
import { describeApi } from "./openapi/document.ts";
import { ok } from "./openapi/operation.ts";

/** The state of this server: health, metrics and the API's description. */

export const health = [
  endpoint("GET /health", {
    summary: "the Worker, its disk and its open files; needs no key",
    operation: { id: "health", group: "Operation", access: "everyone", answers: ok("Health") },
    handle: async (context) => {
      const disk = processState.disk;
      const files = await filesInUse(context.env);
      return context.json({ status: "ok", ...(disk && { disk }), ...(files && { open_files: files }) });
    },
  }),
  endpoint("GET /health/live", {
    summary: "the process answers; needs no key",
    operation: { id: "liveness", group: "Operation", access: "everyone", answers: ok("Liveness") },
    handle: (context) => context.json({ status: "ok" }),
  }),
  endpoint("GET /health/ready", {
    summary: "whether it accepts new requests, or why not; needs no key",
    operation: {
      id: "readiness",
      group: "Operation",
      access: "everyone",
      answers: ok("Readiness"),
    },
    // A misconfigured process is not ready: 500.
    handle: async (context) => {
      const { env, executionCtx } = context;
      const config = loadConfig(env);
      // The next question sees its outcome. On Cloudflare, where each question costs, requests with keys ask often enough.
      if (processState.hasLauncher) executionCtx.waitUntil(currentOverrides(env));
      return context.json(await checkReadiness(config, env));
    },
  }),
  endpoint("GET /health/upstream", {
    summary: "model servers: reachable, latency, models, outages and their waits",
    operation: {
      id: "upstreamHealth",
      group: "Operation",
      access: "tenant or root",
      counted: "read",
      answers: {
        ...ok("UpstreamHealth"),
        503: { "application/json": "UpstreamHealth" },
        504: { "application/json": "UpstreamHealth" },
      },
    },
    handle: async (context) => {
      const config = context.get("config");
      const { health, hasTimedOut } = await checkUpstream({ config, signal: context.req.raw.signal });
      const isAble = health.status === "ok" || health.status === "degraded";
      return context.json(health, isAble ? 200 : hasTimedOut ? 504 : 503);
    },
  }),
];

export const metrics = [
  endpoint("GET /metrics", {
    summary:
      "metrics of this process for Prometheus, with `PROMETHEUS_METRICS`; `PROMETHEUS_TOKEN` is its key ([docs/telemetry.md](docs/telemetry.md))",
    operation: {
      id: "metrics",
      group: "Operation",
      access: "metrics",
      openedBy: "PROMETHEUS_METRICS",
      answers: { 200: { "text/plain": "Metrics" } },
    },
    isOpen: ({ telemetry }) => telemetry.prometheus !== undefined,
    handle: async (context) => {
      const config = context.get("config");
      const { totals } = telemetryOf(config.telemetry);
      if (!totals) throw unknownUrl(context);
      const { meter, gauges } = await allMetrics(config, context.env, totals);
      const isGzipped = /\bgzip\b/.test(context.req.header("accept-encoding") ?? "");
      // The runtime compresses a body with this header.
      return context.body(prometheusText(INSTRUMENTS, meter, gauges), 200, {
        "content-type": PROMETHEUS_CONTENT_TYPE,
        ...(isGzipped && { "content-encoding": "gzip" }),
      });
    },
  }),
];

/** The endpoint that describes all endpoints, itself included. `all` is called at the first request. */
export function description(all: () => readonly Endpoint[]): readonly Endpoint[] {
  // Kept as long as the isolate lives, because making it takes tens of milliseconds.
  let text: string | undefined;
  return [
    endpoint("GET /openapi.json", {
      summary: "this API's description (OpenAPI 3.1); needs no key",
      operation: { id: "description", group: "Operation", access: "everyone", answers: ok("Description") },
      handle: (context) => {
        text ??= JSON.stringify(describeApi(all()));
        return context.body(text, 200, { "content-type": "application/json" });
      },
    }),
  ];
}
