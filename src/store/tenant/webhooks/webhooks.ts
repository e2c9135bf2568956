import { Buffer } from "node:buffer";
import { randomBytes } from "node:crypto";
import { guardedFetch } from "@responses-edge/outgoing-fetch/guarded";
import { WEBHOOK_EVENTS, type WebhookEvent } from "@responses-edge/responses-api/platform/webhooks";
import { unixSeconds } from "@responses-edge/responses-api/response";
import { loadConfig } from "../../../config/index.ts";
import type { RawEnv } from "../../../env.ts";
import { wakeBy } from "../../objects/alarms.ts";
import { OwnedObject } from "../../objects/owned-object.ts";
import { pendingDeliveries } from "../../objects/pending-work.ts";
import { OBJECTS } from "../../objects/registry.ts";
import { Schema } from "../../objects/schema.ts";
import { DELIVERY_TABLES, type Delivery, DeliveryTable } from "./delivery-table.ts";
import { ENDPOINT_TABLE, type Endpoint, type EndpointFields, EndpointTable } from "./endpoint-table.ts";
import { type Receiver, send, type WebhookNotice } from "./sending.ts";

/** The tables of the object, by version. A released version never changes: a new version adds to it. */

/** The operator's endpoint (`WEBHOOK_URL`), which gets every event. */
const OPERATOR = "";

/** Concurrent deliveries to one endpoint. */
const AT_ONCE = 4;

/**
 * The webhook endpoints of a tenant, and the deliveries to them: one Durable Object, named as the tenant. `announce` resolves
 * once an event is stored; deliveries are attempted for about three days. An event may come twice, under the same `webhook-id`.
 */
export class Webhooks extends OwnedObject {
  readonly #schema: Schema;
  readonly #endpoints: EndpointTable;
  readonly #deliveries: DeliveryTable;
  /** The deliveries in progress, by endpoint. */
  readonly #delivering = new Map<string, Promise<void>>();

  constructor(state: DurableObjectState, env: RawEnv) {
    super(state, env, "WEBHOOKS");
    this.#schema = new Schema(state.storage, [ENDPOINT_TABLE, ...DELIVERY_TABLES], OBJECTS.WEBHOOKS.migrations);
    this.#endpoints = new EndpointTable(this.#schema);
    this.#deliveries = new DeliveryTable(this.#schema);
  }

  hasEndpoints(): boolean {
    return this.#endpoints.all().length > 0;
  }

  /** Newest first; null if `after` is no endpoint. */
  list(after: string | undefined, limit: number): Endpoint[] | null {
    return this.#endpoints.page(after, limit);
  }

  get(id: string): Endpoint | null {
    return this.#endpoints.find(id);
  }

  /** Null if the tenant has as many as it may. */
  create(fields: EndpointFields): Endpoint | null {
    return this.#change(() => this.#endpoints.create(fields, unixSeconds()));
  }

  change(id: string, fields: Partial<EndpointFields>): Endpoint | null {
    return this.#change(() => this.#endpoints.change(id, fields, unixSeconds()));
  }

  rotate(id: string, keepsOld: boolean): Endpoint | null {
    return this.#change(() => this.#endpoints.rotate(id, keepsOld, unixSeconds()));
  }

  /** Removes an endpoint, with its pending deliveries. False if it does not exist. */
  delete(id: string): boolean {
    return this.#change(() => {
      this.#deliveries.forget(id);
      return this.#endpoints.delete(id);
    });
  }

  /** Sends a sample. Gives the status of the answer, null if there was none; undefined if the endpoint does not exist. */
  async test(id: string, type: WebhookEvent): Promise<number | null | undefined> {
    const endpoint = this.#endpoints.find(id);
    if (!endpoint) return undefined;
    const sample = randomBytes(16).toString("hex");
    const about = `${WEBHOOK_EVENTS[type].about}_${sample}`;
    return send({ id: `evt_${sample}`, type, createdAt: unixSeconds(), about }, this.#receiver(endpoint));
  }

  /** Newest first; null if the endpoint does not exist. */
  deliveries(id: string, before: number | undefined, limit: number): Delivery[] | null {
    return this.#endpoints.find(id) && this.#deliveries.page(id, before, limit);
  }

  /** Announces an event to all its endpoints: it is stored when this resolves, and sent soon. False if no endpoint wants it. */
  async announce(notice: WebhookNotice): Promise<boolean> {
    const endpoints = this.#endpoints.all();
    const hasOperator = loadConfig(this.env).webhook !== undefined;
    const wanting = endpoints.filter(({ eventTypes }) => eventTypes.includes(notice.type)).map(({ id }) => id);
    if (hasOperator) wanting.push(OPERATOR);
    if (wanting.length > 0) {
      this.#change(() => this.#deliveries.add(notice, wanting, Date.now()));
      // In case this object dies.
      await wakeBy(this.ctx.storage, Date.now() + 1_000);
      pendingDeliveries.note(this.ctx.id.name ?? "", this.#deliveries.waiting());
      this.waitUntil(this.#deliverDue());
    }
    return hasOperator || endpoints.length > 0;
  }

  protected override async ring(): Promise<void> {
    await this.#deliverDue();
  }

  /** Removes everything. */
  async erase(): Promise<void> {
    await this.ctx.storage.deleteAll();
    this.#schema.forget();
  }

  /** Delivers until nothing is due. */
  async #deliverDue(): Promise<void> {
    this.#beginDue();
    while (this.#delivering.size > 0) await Promise.all(this.#delivering.values());
    pendingDeliveries.note(this.ctx.id.name ?? "", this.#deliveries.waiting());
    const next = this.#deliveries.nextDue();
    if (next !== null) await wakeBy(this.ctx.storage, next);
  }

  /** Begins the due deliveries of every endpoint, each independently: a slow endpoint delays only its own. */
  #beginDue(): void {
    for (const endpoint of this.#deliveries.endpointsDue(Date.now())) {
      if (this.#delivering.has(endpoint)) continue;
      const delivering = this.#deliverTo(endpoint).finally(() => this.#delivering.delete(endpoint));
      this.#delivering.set(endpoint, delivering);
    }
  }

  async #deliverTo(endpoint: string): Promise<void> {
    const due = () => this.#deliveries.due(endpoint, Date.now(), AT_ONCE);
    for (let some = due(); some.length > 0; some = due()) {
      await Promise.all(some.map((each) => this.#try(each)));
      // Deliveries to other endpoints may have become due: the alarm does not ring while it runs.
      this.#beginDue();
    }
  }

  async #try(delivery: Delivery): Promise<void> {
    const receiver = this.#receiverOf(delivery.endpoint);
    if (!receiver) {
      // The endpoint, or the operator's, was removed: the event has no receiver any more.
      this.#change(() => this.#deliveries.forget(delivery.endpoint));
      return;
    }
    this.#change(() => this.#deliveries.begin(delivery, Date.now()));
    const status = await send(delivery.notice, receiver);
    this.#change(() => this.#deliveries.tried(delivery, status, Date.now()));
  }

  #receiverOf(id: string): Receiver | undefined {
    if (id !== OPERATOR) {
      const endpoint = this.#endpoints.find(id);
      return endpoint ? this.#receiver(endpoint) : undefined;
    }
    const { webhook } = loadConfig(this.env);
    return webhook && { url: webhook.url, fetch: webhook.fetch, secrets: [webhook.secret] };
  }

  #receiver({ url, secret, previous }: Endpoint): Receiver {
    const secrets = [secret, ...(previous && previous.until > unixSeconds() ? [previous.secret] : [])];
    const { webhookGuard } = loadConfig(this.env);
    const fetch: Receiver["fetch"] = (target, init) =>
      guardedFetch(target, { ...init, redirect: "manual" }, webhookGuard);
    return { url, fetch, secrets: secrets.map((each) => Buffer.from(each, "base64")) };
  }

  #change<T>(body: () => T): T {
    this.#schema.open();
    return this.ctx.storage.transactionSync(body);
  }
}

declare module "../../objects/objects.ts" {
  interface ObjectClasses {
    WEBHOOKS: Webhooks;
  }
}
