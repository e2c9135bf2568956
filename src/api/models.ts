import { Hono } from "hono";
import { listModels } from "../engine/models.ts";
import { ApiError } from "../protocol/errors.ts";
import type { AppEnv } from "./app-env.ts";

/** `/v1/models`: vLLM's models and the configured aliases. */
export const models = new Hono<AppEnv>()
  .get("/", async (context) => {
    const data = await listModels(context.get("config"), context.get("upstream"), context.req.raw.signal);
    return context.json({ object: "list", data });
  })
  // Names have slashes in them (Qwen/Qwen3-8B), encoded or not.
  .get("/:id{.+}", async (context) => {
    const id = context.req.param("id");
    const data = await listModels(context.get("config"), context.get("upstream"), context.req.raw.signal);
    const card = data.find((model) => model.id === id);
    if (card) return context.json(card);
    throw new ApiError({
      status: 404,
      message: `The model '${id}' does not exist.`,
      param: "model",
      code: "model_not_found",
    });
  });
