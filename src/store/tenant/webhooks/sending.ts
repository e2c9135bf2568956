import { createHmac } from "node:crypto";
import type { WebhookEvent } from "@responses-edge/responses-api/platform/webhooks";
import { unixSeconds } from "@responses-edge/responses-api/response";
import type { Fetch } from "../../../config/network.ts";

/**
 * Events as they are sent: signed as OpenAI signs them (Standard Webhooks 1.0: `webhook-id`, `webhook-timestamp`,
 * `webhook-signature: v1,base64(HMAC-SHA256(secret, id.timestamp.body))`).
 */

const DELIVERY_TIMEOUT_MS = 15_000;

/** Something that has happened to an object of a tenant's. */
export interface WebhookNotice {
  /** The same for every delivery of the event. */
  id: string;
  type: WebhookEvent;
  /** Unix seconds. */
  createdAt: number;
  /** The id of the object that the event is about. */
  about: string;
}

/** The receiver of events: its URL, the way to reach it, and the signing secrets, as bytes. */
export interface Receiver {
  url: string;
  fetch: Fetch;
  secrets: readonly Uint8Array[];
}

/**
 * Sends an event. Gives the status of the answer; null if there was none. Redirects are not followed, because nobody
 * has approved their target.
 */
export async function send({ id, type, createdAt, about }: WebhookNotice, to: Receiver): Promise<number | null> {
  const body = JSON.stringify({ id, object: "event", created_at: createdAt, type, data: { id: about } });
  const timestamp = String(unixSeconds());
  const signed = `${id}.${timestamp}.${body}`;
  const signatures = to.secrets.map((secret) => `v1,${createHmac("sha256", secret).update(signed).digest("base64")}`);
  try {
    const response = await to.fetch(to.url, {
      method: "POST",
      signal: AbortSignal.timeout(DELIVERY_TIMEOUT_MS),
      headers: {
        "content-type": "application/json",
        "user-agent": "responses-edge",
        "webhook-id": id,
        "webhook-timestamp": timestamp,
        "webhook-signature": signatures.join(" "),
      },
      body,
    });
    await response.body?.cancel();
    return response.status;
  } catch {
    return null;
  }
}
