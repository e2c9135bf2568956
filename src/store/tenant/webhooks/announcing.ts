import { WEBHOOK_EVENTS, type WebhookEvent } from "@responses-edge/responses-api/platform/webhooks";
import type { Config } from "../../../config/index.ts";
import type { Env } from "../../../env.ts";
import type { WebhookNotice } from "./sending.ts";

/** Announces events to a tenant's webhooks, and remembers in this isolate which tenants have any. */

/** The events that each class of objects sends, by its binding. Each class adds its own, beside its declaration. */
// biome-ignore lint/suspicious/noEmptyInterface: it is filled elsewhere.
export interface WebhookSenders {}

type SenderOf<Event> = {
  [Binding in keyof WebhookSenders]: Event extends WebhookSenders[Binding] ? Binding : never;
}[keyof WebhookSenders];

/** Does not compile while an event is sent by another class than its row says, or by none. */
WEBHOOK_EVENTS satisfies { readonly [Event in WebhookEvent]: { readonly sender: SenderOf<Event> } };

/** How long a tenant is remembered to have no endpoint, in milliseconds. One that is made here is known here at once. */
const KNOWN_MS = 60_000;

/** Tenants that are remembered. */
const MAX_KNOWN = 10_000;

/** When a tenant was seen without an endpoint, Unix milliseconds; oldest first. */
const withoutEndpoint = new Map<string, number>();

/** The notice that an object of a tenant's has ended. An event has the id of its object. `at` in Unix seconds. */
export function noticeOf(id: string, type: WebhookEvent, at: number): WebhookNotice {
  return { id: `evt_${id.slice(id.indexOf("_") + 1)}`, type, createdAt: at, about: id };
}

/** Tells a tenant's webhooks of an event. Rejects if they cannot be reached. */
export async function announce(env: Env, tenant: string, notice: WebhookNotice): Promise<void> {
  const isWanted = await env.WEBHOOKS.getByName(tenant).announce(notice);
  if (!isWanted) noteEndpoints(tenant, false);
}

/** Tells whether a tenant's events may have a receiver: the operator's endpoint, or one of the tenant's. */
export function isAnnounced({ webhook }: Pick<Config, "webhook">, tenant: string): boolean {
  if (webhook !== undefined) return true;
  const age = Date.now() - (withoutEndpoint.get(tenant) ?? Number.NEGATIVE_INFINITY);
  return age < 0 || age >= KNOWN_MS;
}

/** Finds out whether a tenant has endpoints, unless this isolate has done so lately. Rejects as a call of an object does. */
export async function learnEndpoints(env: Env, config: Config, tenant: string): Promise<void> {
  if (config.webhook !== undefined || !isAnnounced(config, tenant)) return;
  noteEndpoints(tenant, await env.WEBHOOKS.getByName(tenant).hasEndpoints());
}

/** Notes whether a tenant has endpoints. */
export function noteEndpoints(tenant: string, hasAny: boolean): void {
  withoutEndpoint.delete(tenant);
  if (hasAny) return;
  withoutEndpoint.set(tenant, Date.now());
  const oldest = withoutEndpoint.size > MAX_KNOWN ? withoutEndpoint.keys().next().value : undefined;
  if (oldest !== undefined) withoutEndpoint.delete(oldest);
}
