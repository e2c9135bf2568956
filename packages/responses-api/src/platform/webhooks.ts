import { list } from "@responses-edge/bounded-io/schemas/collections";
import { describedAs } from "@responses-edge/bounded-io/schemas/described-as";
import { z } from "zod";
import { once } from "../items/shapes.ts";

/** Webhook endpoints (openai 7.59 `WebhookEndpoint`), and their events. */

/**
 * The events of this server, each with the class of objects that sends it, by its binding (`announce` in the gateway checks
 * it), and the prefix of the ids that it is about. OpenAI has no `limit.nearly_used`.
 */
export const WEBHOOK_EVENTS = {
  "limit.nearly_used": { sender: "QUOTAS", about: "key" },
  "batch.completed": { sender: "BATCHES", about: "batch" },
  "batch.failed": { sender: "BATCHES", about: "batch" },
  "batch.expired": { sender: "BATCHES", about: "batch" },
  "batch.cancelled": { sender: "BATCHES", about: "batch" },
  "response.completed": { sender: "HOME", about: "resp" },
  "response.failed": { sender: "HOME", about: "resp" },
  "response.cancelled": { sender: "HOME", about: "resp" },
  "response.incomplete": { sender: "HOME", about: "resp" },
} as const;
export type WebhookEvent = keyof typeof WEBHOOK_EVENTS;

export const WEBHOOK_EVENT_TYPES = Object.keys(WEBHOOK_EVENTS) as WebhookEvent[];

const eventType = z.enum(WEBHOOK_EVENT_TYPES);
const name = z.string().min(1).max(256);
const url = z.url({ protocol: /^https?$/ }).max(2_048);
const eventTypes = describedAs(
  list(eventType, { min: 1, max: 64 }).transform((types) => [...new Set(types)]),
  () => z.array(eventType),
);

export const createEndpointBody = z.object({ name, url, event_types: eventTypes });
export const updateEndpointBody = z.object({
  name: name.optional(),
  url: url.optional(),
  event_types: eventTypes.optional(),
});
export const rotateSecretBody = z.object({ keep_old_secret_active_for_24_hours: z.boolean().default(false) });
export const testEndpointBody = z.object({ event_type: eventType });

export const webhookEndpointObject = once(() =>
  z.object({
    id: z.string(),
    object: z.literal("webhook_endpoint"),
    name: z.string(),
    url: z.string(),
    event_types: z.array(z.string()),
    created_at: z.int(),
    updated_at: z.int(),
    signing_secret_hint: z.string(),
    /** Shown when it is made. */
    signing_secret: z.string().optional(),
  }),
);
export type WebhookEndpointObject = z.output<ReturnType<typeof webhookEndpointObject>>;

export const webhookDeliveryObject = () =>
  z.object({
    id: z.string(),
    object: z.literal("webhook_endpoint.delivery"),
    event: z.object({ id: z.string(), type: z.string(), created_at: z.int(), data: z.object({ id: z.string() }) }),
    status: z.enum(["pending", "delivered", "failed"]),
    attempts: z.int(),
    status_code: z.int().nullable().describe("The status of the last answer; null without an answer."),
    next_attempt_at: z.int().nullable(),
    last_attempt_at: z.int().nullable(),
  });
export type WebhookDeliveryObject = z.output<ReturnType<typeof webhookDeliveryObject>>;

export const deletedEndpointObject = () =>
  z.object({ id: z.string(), object: z.literal("webhook_endpoint.deleted"), deleted: z.literal(true) });

/** The answer to a sample: the status of the endpoint's own answer. */
export const endpointTestObject = () =>
  z.object({
    object: z.literal("webhook_endpoint.test"),
    webhook_endpoint_id: z.string(),
    event_type: z.string(),
    success: z.literal(true),
    status_code: z.int(),
  });
