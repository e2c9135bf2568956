import { checkUpstream } from "../api/health.ts";
import { authenticate } from "./auth.ts";
import { endpoint } from "./endpoint.ts";
import { ok } from "./openapi/operation.ts";

export const health = [
  endpoint({
    method: "GET",
    path: "/health",
    summary: "the Worker; needs no key",
    operation: { id: "health", group: "Operation", access: "everyone", answers: ok("Health") },
    handle: (context) => context.json({ status: "ok" }),
  }),
  endpoint({
    method: "GET",
    path: "/health/upstream",
    summary: "vLLM: reachable, latency, models, since when it is down, how long it is waited for",
    operation: {
      id: "upstreamHealth",
      group: "Operation",
      access: "tenant or root",
      answers: {
        ...ok("UpstreamHealth"),
        503: { "application/json": "UpstreamHealth" },
        504: { "application/json": "UpstreamHealth" },
      },
    },
    handle: async (context) => {
      const config = context.get("config");
      const { env, executionCtx } = context;
      const waitUntil = (promise: Promise<unknown>) => executionCtx.waitUntil(promise);
      await authenticate(context.req.header("authorization"), { config, env, waitUntil });
      const { health, hasTimedOut } = await checkUpstream({ config, signal: context.req.raw.signal });
      return context.json(health, health.status !== "unreachable" ? 200 : hasTimedOut ? 504 : 503);
    },
  }),
];
