import { Hono } from "hono";
import { fetchModels } from "../engine/models.ts";
import { toApiError } from "../protocol/errors.ts";
import type { AppEnv } from "./app-env.ts";
import { authentication } from "./auth.ts";

/** `/health`: this Worker. `/health/upstream`: the vLLM behind it, for callers with a key. */
export const health = new Hono<AppEnv>()
  .get("/", (context) => context.json({ status: "ok" }))
  .get("/upstream", authentication, async (context) => {
    const begin = Date.now();
    try {
      const cards = await fetchModels(context.get("upstream"), context.req.raw.signal);
      return context.json({
        status: "ok",
        latency_ms: Date.now() - begin,
        models: cards.map((card) => card.id),
      });
    } catch (error) {
      const { status, code, message } = toApiError(error);
      const body = { status: "unreachable", latency_ms: Date.now() - begin, error: { code, message } };
      return context.json(body, status === 504 ? 504 : 503);
    }
  });
