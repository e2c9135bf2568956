import { Hono } from "hono";
import { fetchModels } from "../engine/models.ts";
import { toApiError } from "../protocol/errors.ts";
import type { AppEnv } from "./app-env.ts";
import { authentication } from "./auth.ts";

/**
 * `/health`: this Worker. `/health/upstream`: the vLLM behind it, for callers with a key; since when it is down, as far
 * as this isolate has seen, and how long turns wait for it to come back, in milliseconds.
 */
export const health = new Hono<AppEnv>()
  .get("/", (context) => context.json({ status: "ok" }))
  .get("/upstream", authentication, async (context) => {
    const begin = Date.now();
    const { recoveryTimeMs, foregroundRecoveryTimeMs } = context.get("config");
    const recovery = { background_ms: recoveryTimeMs, foreground_ms: foregroundRecoveryTimeMs };
    const upstream = context.get("upstream");
    try {
      const cards = await fetchModels(upstream, context.req.raw.signal);
      return context.json({
        status: "ok",
        latency_ms: Date.now() - begin,
        models: cards.map((card) => card.id),
        down_since: null,
        recovery,
      });
    } catch (error) {
      const { status, code, message } = toApiError(error);
      const since = upstream.downSince;
      const body = {
        status: "unreachable",
        latency_ms: Date.now() - begin,
        error: { code, message },
        down_since: since === undefined ? null : new Date(since).toISOString(),
        recovery,
      };
      return context.json(body, status === 504 ? 504 : 503);
    }
  });
