import { listCodexModels, listModels, retrieveModel } from "../api/models.ts";
import { modelsQuery } from "../api/queries.ts";
import { callerOf } from "./caller.ts";
import { endpoint } from "./endpoint.ts";
import { byTenantIn, ok } from "./openapi/operation.ts";

const byTenant = byTenantIn("Models");

export const models = [
  endpoint("GET /v1/models", {
    summary: "vLLM's models and your aliases; cached for 30 s; with `client_version`: in Codex's own shape",
    operation: byTenant("listModels", "read", { answers: ok("ModelList") }),
    query: modelsQuery,
    handle: async (context, { client_version: codexVersion }) =>
      codexVersion === undefined
        ? context.json({ object: "list", data: await listModels(callerOf(context)) })
        : context.json({ models: await listCodexModels(callerOf(context)) }),
  }),
  // Names have slashes in them (Qwen/Qwen3-8B), encoded or not.
  endpoint("GET /v1/models/:id{.+}", {
    summary: "one of them",
    operation: byTenant("retrieveModel", "read", { answers: ok("Model") }),
    handle: async (context) => context.json(await retrieveModel(callerOf(context), context.req.param("id"))),
  }),
];
