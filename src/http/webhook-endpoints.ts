import { WEBHOOK_EVENT_TYPES } from "@responses-edge/responses-api/platform/webhooks";
import type { Context } from "hono";
import { endpointsQuery } from "../api/queries.ts";
import {
  createEndpoint,
  deleteEndpoint,
  listDeliveries,
  listEndpoints,
  retrieveEndpoint,
  rotateEndpoint,
  testEndpoint,
  updateEndpoint,
  type WebhookCaller,
} from "../api/webhook-endpoints.ts";
import type { AppEnv } from "./app-env.ts";
import { callerOf, hasBody, jsonBody } from "./caller.ts";
import { endpoint } from "./endpoint.ts";
import { byTenantIn, json, ok } from "./openapi/operation.ts";

const byTenant = byTenantIn("Webhooks");

export const webhookEndpoints = [
  endpoint("POST /v1/webhook_endpoints", {
    summary:
      "make an endpoint: `name`, `url`, `event_types`; its signing secret is shown this once ([docs/batches.md](docs/batches.md#webhooks))",
    operation: byTenant("createWebhookEndpoint", "request", {
      body: json("CreateWebhookEndpoint"),
      answers: ok("WebhookEndpoint"),
    }),
    handle: async (context) => context.json(await createEndpoint(webhookCaller(context), await jsonBody(context))),
  }),
  endpoint("GET /v1/webhook_endpoints", {
    summary: "list, newest first: `limit` 1–100 (20), `after`",
    operation: byTenant("listWebhookEndpoints", "read", { answers: ok("WebhookEndpointList") }),
    query: endpointsQuery,
    handle: async (context, query) => context.json(await listEndpoints(webhookCaller(context), query)),
  }),
  endpoint("GET /v1/webhook_endpoints/:id", {
    summary: "retrieve",
    operation: byTenant("retrieveWebhookEndpoint", "read", { answers: ok("WebhookEndpoint") }),
    handle: async (context) => context.json(await retrieveEndpoint(webhookCaller(context), context.req.param("id"))),
  }),
  endpoint("POST /v1/webhook_endpoints/:id", {
    summary: "change its `name`, `url`, `event_types`",
    operation: byTenant("updateWebhookEndpoint", "request", {
      body: json("UpdateWebhookEndpoint"),
      answers: ok("WebhookEndpoint"),
    }),
    handle: async (context) => {
      const body = await jsonBody(context);
      return context.json(await updateEndpoint(webhookCaller(context), context.req.param("id"), body));
    },
  }),
  endpoint("DELETE /v1/webhook_endpoints/:id", {
    summary: "delete it, with its waiting deliveries",
    operation: byTenant("deleteWebhookEndpoint", "read", { answers: ok("DeletedWebhookEndpoint") }),
    handle: async (context) => context.json(await deleteEndpoint(webhookCaller(context), context.req.param("id"))),
  }),
  endpoint("POST /v1/webhook_endpoints/:id/rotate_secret", {
    summary: "another secret, shown this once: `keep_old_secret_active_for_24_hours`",
    operation: byTenant("rotateWebhookSecret", "request", {
      body: { ...json("RotateWebhookSecret"), isOptional: true },
      answers: ok("WebhookEndpoint"),
    }),
    handle: async (context) => {
      const body = hasBody(context) ? await jsonBody(context) : {};
      return context.json(await rotateEndpoint(webhookCaller(context), context.req.param("id"), body));
    },
  }),
  endpoint("POST /v1/webhook_endpoints/:id/test", {
    summary: "send it a sample: `event_type`",
    operation: byTenant("testWebhookEndpoint", "request", {
      body: json("TestWebhookEndpoint"),
      answers: ok("WebhookEndpointTest"),
    }),
    handle: async (context) => {
      const body = await jsonBody(context);
      return context.json(await testEndpoint(webhookCaller(context), context.req.param("id"), body));
    },
  }),
  endpoint("GET /v1/webhook_endpoints/:id/deliveries", {
    summary: "its deliveries of the last 30 days, and waiting ones, newest first: `limit` 1–100 (20), `after`",
    operation: byTenant("listWebhookDeliveries", "read", { answers: ok("WebhookDeliveryList"), errors: [400] }),
    query: endpointsQuery,
    handle: async (context, query) =>
      context.json(await listDeliveries(webhookCaller(context), context.req.param("id"), query)),
  }),
  endpoint("GET /v1/webhook_event_types", {
    summary: "the events that endpoints can get",
    operation: byTenant("listWebhookEventTypes", "read", { answers: ok("WebhookEventTypeList") }),
    handle: (context) => context.json({ object: "list" as const, data: WEBHOOK_EVENT_TYPES }),
  }),
];

function webhookCaller(context: Context<AppEnv>): WebhookCaller {
  const { tenant, config, signal, note } = callerOf(context);
  return { tenant, config, signal, note, webhooks: context.env.WEBHOOKS };
}
