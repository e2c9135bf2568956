import { checkUpstream } from "../api/health.ts";
import { authenticate } from "./auth.ts";
import { endpoint } from "./endpoint.ts";

export const health = [
  endpoint({
    method: "GET",
    path: "/health",
    summary: "the Worker; needs no key",
    handle: (context) => context.json({ status: "ok" }),
  }),
  endpoint({
    method: "GET",
    path: "/health/upstream",
    summary: "vLLM: reachable, latency, models, since when it is down, how long it is waited for",
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
