import type { Context } from "hono";
import { endpointsQuery } from "../api/queries.ts";
import { type BatchCaller, cancelBatch, createBatch, listBatches, retrieveBatch } from "../batches/endpoints.ts";
import type { AppEnv } from "./app-env.ts";
import { callerOf, jsonBody } from "./caller.ts";
import { endpoint } from "./endpoint.ts";
import { byTenantIn, json, ok } from "./openapi/operation.ts";

const byTenant = byTenantIn("Batches");

export const batches = [
  endpoint("POST /v1/batches", {
    summary:
      "answer the requests of a file: `input_file_id`, `endpoint`, `completion_window` `24h`, `metadata`, `output_expires_after` ([docs/batches.md](docs/batches.md))",
    operation: byTenant("createBatch", "request", {
      body: json("CreateBatch"),
      answers: ok("Batch"),
      errors: [404, 429],
    }),
    handle: async (context) => {
      const body = await jsonBody(context);
      return context.json(await createBatch(batchCaller(context), body));
    },
  }),
  endpoint("GET /v1/batches", {
    summary: "list, newest first: `limit` 1–100 (20), `after`",
    operation: byTenant("listBatches", "read", { answers: ok("BatchList"), errors: [404] }),
    query: endpointsQuery,
    handle: async (context, query) => context.json(await listBatches(batchCaller(context), query)),
  }),
  endpoint("GET /v1/batches/:id", {
    summary: "retrieve",
    operation: byTenant("retrieveBatch", "read", { answers: ok("Batch") }),
    handle: async (context) => context.json(await retrieveBatch(batchCaller(context), context.req.param("id"))),
  }),
  endpoint("POST /v1/batches/:id/cancel", {
    summary: "cancel it; its files have the answers so far",
    operation: byTenant("cancelBatch", "read", { answers: ok("Batch") }),
    handle: async (context) => context.json(await cancelBatch(batchCaller(context), context.req.param("id"))),
  }),
];

function batchCaller(context: Context<AppEnv>): BatchCaller {
  const { tenant, identity, config, files, note } = callerOf(context);
  return { tenant, identity, config, files, note, batches: context.env.BATCHES };
}
