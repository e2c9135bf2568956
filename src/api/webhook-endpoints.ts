import { mayCall } from "@responses-edge/outgoing-fetch/guarded";
import { ApiError, invalidRequest, notFound } from "@responses-edge/responses-api/errors";
import {
  createEndpointBody,
  rotateSecretBody,
  testEndpointBody,
  updateEndpointBody,
  type WebhookDeliveryObject,
  type WebhookEndpointObject,
} from "@responses-edge/responses-api/platform/webhooks";
import { parse } from "@responses-edge/responses-api/validation-errors";
import type { z } from "zod";
import type { Env } from "../env.ts";
import { checkDisk } from "../store/objects/process-state.ts";
import { noteEndpoints } from "../store/tenant/webhooks/announcing.ts";
import { type Delivery, isTaken } from "../store/tenant/webhooks/delivery-table.ts";
import { type Endpoint, MAX_ENDPOINTS } from "../store/tenant/webhooks/endpoint-table.ts";
import { page } from "./keys.ts";
import type { endpointsQuery } from "./queries.ts";
import type { Caller } from "./transport.ts";

/** Webhook endpoints of a tenant. Every function that takes an id throws the 404 of one that is unknown or another tenant's. */

/** A caller, and the object of its tenant's endpoints. */
export type WebhookCaller = Pick<Caller, "tenant" | "config" | "signal" | "note"> & {
  webhooks: Env["WEBHOOKS"];
};

/**
 * Makes an endpoint, and shows its secret, only once. Throws the 400 of more endpoints than a tenant may have, and of a
 * URL that may not be called.
 */
export async function createEndpoint(caller: WebhookCaller, body: unknown): Promise<WebhookEndpointObject> {
  const { event_types: eventTypes, ...fields } = parse(createEndpointBody, body);
  await checkUrl(caller, fields.url);
  checkDisk();
  const made = await objectOf(caller).create({ ...fields, eventTypes });
  if (!made) {
    const message = `A tenant has at most ${MAX_ENDPOINTS} webhook endpoints.`;
    throw new ApiError({ status: 400, message, code: "limit_exceeded" });
  }
  noteEndpoints(caller.tenant, true);
  caller.note?.({ type: "webhook_endpoint.created", target: made.id });
  return withSecret(made);
}

export async function listEndpoints(caller: WebhookCaller, { after, limit }: z.output<typeof endpointsQuery>) {
  const found = await objectOf(caller).list(after, limit + 1);
  if (!found) throw endpointNotFound(after ?? "", "after");
  return page(found.map(shown), limit);
}

export async function retrieveEndpoint(caller: WebhookCaller, id: string): Promise<WebhookEndpointObject> {
  return shown(known(id, await objectOf(caller).get(id)));
}

/** Changes the given fields. Throws as `createEndpoint` does. */
export async function updateEndpoint(caller: WebhookCaller, id: string, body: unknown): Promise<WebhookEndpointObject> {
  const { event_types: eventTypes, name, url } = parse(updateEndpointBody, body);
  if (url !== undefined) await checkUrl(caller, url);
  const fields = {
    ...(name !== undefined && { name }),
    ...(url !== undefined && { url }),
    ...(eventTypes && { eventTypes }),
  };
  const changed = known(id, await objectOf(caller).change(id, fields));
  caller.note?.({ type: "webhook_endpoint.updated", target: id });
  return shown(changed);
}

/** Gives an endpoint another secret, and shows it, only once. */
export async function rotateEndpoint(caller: WebhookCaller, id: string, body: unknown): Promise<WebhookEndpointObject> {
  const { keep_old_secret_active_for_24_hours: keepsOld } = parse(rotateSecretBody, body);
  const rotated = known(id, await objectOf(caller).rotate(id, keepsOld));
  caller.note?.({ type: "webhook_endpoint.secret_rotated", target: id });
  return withSecret(rotated);
}

export async function deleteEndpoint(caller: WebhookCaller, id: string) {
  if (!(await objectOf(caller).delete(id))) throw endpointNotFound(id);
  caller.note?.({ type: "webhook_endpoint.deleted", target: id });
  return { id, object: "webhook_endpoint.deleted" as const, deleted: true };
}

/** Sends a sample event. Throws the 400 of an endpoint that cannot be reached. */
export async function testEndpoint(caller: WebhookCaller, id: string, body: unknown) {
  const { event_type: type } = parse(testEndpointBody, body);
  const status = await objectOf(caller).test(id, type);
  if (status === undefined) throw endpointNotFound(id);
  if (status === null) {
    const message = "The webhook endpoint is not reachable, or has not answered in time.";
    throw new ApiError({ status: 400, message, code: "webhook_delivery_failed" });
  }
  return {
    object: "webhook_endpoint.test" as const,
    webhook_endpoint_id: id,
    event_type: type,
    success: true as const,
    status_code: status,
  };
}

/** Lists the latest deliveries and the pending ones of an endpoint, newest first. */
export async function listDeliveries(
  caller: WebhookCaller,
  id: string,
  { after, limit }: z.output<typeof endpointsQuery>,
) {
  const before = after === undefined ? undefined : sequenceOf(after);
  const found = known(id, await objectOf(caller).deliveries(id, before, limit + 1));
  return page(found.map(shownDelivery), limit);
}

function objectOf({ webhooks, tenant }: WebhookCaller) {
  return webhooks.getByName(tenant);
}

/** Throws the 400 of a URL that may not be called from this server. */
async function checkUrl({ config, signal }: WebhookCaller, url: string): Promise<void> {
  if (await mayCall(url, config.webhookGuard, signal)) return;
  const message = "Expected an https URL of a public address, or one that the operator allows (WEBHOOK_URLS).";
  throw invalidRequest("url", message, "invalid_value");
}

function shown({ id, name, url, eventTypes, createdAt, updatedAt, secret }: Endpoint): WebhookEndpointObject {
  return {
    id,
    object: "webhook_endpoint",
    name,
    url,
    event_types: eventTypes,
    created_at: createdAt,
    updated_at: updatedAt,
    signing_secret_hint: `whsec_…${secret.slice(-5)}`,
  };
}

function withSecret(endpoint: Endpoint): WebhookEndpointObject {
  return { ...shown(endpoint), signing_secret: `whsec_${endpoint.secret}` };
}

function shownDelivery({ seq, notice, attempts, due, status, triedAt }: Delivery): WebhookDeliveryObject {
  const { id, type, createdAt, about } = notice;
  return {
    id: `whd_${seq}`,
    object: "webhook_endpoint.delivery",
    event: { id, type, created_at: createdAt, data: { id: about } },
    status: due !== null ? "pending" : isTaken(status) ? "delivered" : "failed",
    attempts,
    status_code: status,
    next_attempt_at: toSeconds(due),
    last_attempt_at: toSeconds(triedAt),
  };
}

function toSeconds(ms: number | null): number | null {
  return ms === null ? null : Math.floor(ms / 1000);
}

function sequenceOf(id: string): number {
  const sequence = Number(/^whd_(\d{1,15})$/.exec(id)?.[1]);
  if (Number.isInteger(sequence)) return sequence;
  throw notFound("Webhook delivery", id, "after", { status: 400 });
}

function known<T>(id: string, value: T | null): T {
  if (value === null) throw endpointNotFound(id);
  return value;
}

function endpointNotFound(id: string, param = "id"): ApiError {
  return notFound("Webhook endpoint", id, param);
}
