import { listModels, retrieveModel } from "../api/models.ts";
import { callerOf } from "./caller.ts";
import { endpoint } from "./endpoint.ts";

export const models = [
  endpoint({
    method: "GET",
    path: "/v1/models",
    summary: "vLLM's models and your aliases; cached for 30 s",
    handle: async (context) => context.json({ object: "list", data: await listModels(callerOf(context)) }),
  }),
  endpoint({
    method: "GET",
    // Names have slashes in them (Qwen/Qwen3-8B), encoded or not.
    path: "/v1/models/:id{.+}",
    summary: "one of them",
    handle: async (context) => context.json(await retrieveModel(callerOf(context), context.req.param("id"))),
  }),
];
