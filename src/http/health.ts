import { checkUpstream } from "../api/health.ts";
import { diskState } from "../store/free-disk.ts";
import { filesInUse } from "../store/open-homes.ts";
import { endpoint } from "./endpoint.ts";
import { ok } from "./openapi/operation.ts";

export const health = [
  endpoint({
    method: "GET",
    path: "/health",
    summary: "the Worker, its disk and its open files; needs no key",
    operation: { id: "health", group: "Operation", access: "everyone", answers: ok("Health") },
    handle: async (context) => {
      const disk = diskState();
      const files = await filesInUse(context.env);
      return context.json({ status: "ok", ...(disk && { disk }), ...(files && { open_files: files }) });
    },
  }),
  endpoint({
    method: "GET",
    path: "/health/upstream",
    summary: "vLLM: reachable, latency, models, since when it is down, how long it is waited for",
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
      return context.json(health, health.status !== "unreachable" ? 200 : hasTimedOut ? 504 : 503);
    },
  }),
];
