import { randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import OpenAI from "openai";
import type { ResponseCreateParamsNonStreaming } from "openai/resources/responses/responses";
import type { WebhookCreateParams } from "openai/resources/webhooks/webhooks";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { uniqueKeyOf } from "../../cli/serve/workerd.ts";
import { objectId } from "../workerd/storage.ts";
import { create, makeKey, newTenant, startWithKeys } from "./key-support.ts";
import { eventually, type Gateway, startGateway } from "./support.ts";
import { ended, reached } from "./turns.ts";

const SECRET = `whsec_${randomBytes(32).toString("base64")}`;

/** A webhook that its endpoint has received. */
interface Delivery {
  path: string;
  headers: Record<string, string>;
  body: string;
  /** The response of the event. */
  response: string;
}

/** An endpoint that records its requests, and redirects those for some responses. */
class Endpoint {
  readonly deliveries: Delivery[] = [];
  readonly redirect = new Set<string>();
  #server: Server | undefined;
  url = "";

  async start(): Promise<void> {
    const server = createServer(async (request, response) => {
      const parts: Buffer[] = [];
      for await (const part of request) parts.push(part as Buffer);
      const body = Buffer.concat(parts).toString();
      const headers = Object.fromEntries(Object.entries(request.headers).map(([name, value]) => [name, String(value)]));
      const about = (JSON.parse(body || "{}") as { data?: { id: string } }).data?.id ?? "";
      this.deliveries.push({ path: request.url ?? "", headers, body, response: about });
      if (this.redirect.has(about)) response.writeHead(307, { location: "/elsewhere" }).end();
      else response.writeHead(200).end();
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    this.#server = server;
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`;
  }

  close(): void {
    this.#server?.closeAllConnections();
    this.#server?.close();
  }

  of(response: string): Delivery[] {
    return this.deliveries.filter((delivery) => delivery.response === response);
  }
}

const endpoint = new Endpoint();
let gateway: Gateway;
let openai: OpenAI;
beforeAll(async () => {
  await endpoint.start();
  gateway = await startGateway({
    WEBHOOK_URL: endpoint.url,
    WEBHOOK_SECRET: SECRET,
    ALLOW_PRIVATE_WEBHOOKS: "true",
    WEBHOOK_URLS: endpoint.url,
  });
  openai = gateway.openai;
});
afterAll(async () => {
  await gateway.close();
  endpoint.close();
});

/** Waits until a background run has ended and its webhook has arrived. */
async function webhookOf(body: ResponseCreateParamsNonStreaming): Promise<Delivery> {
  const { id } = await openai.responses.create({ ...body, background: true });
  await ended(gateway, id);
  return eventually(() => endpoint.of(id)[0]);
}

/** The waiting deliveries for a response in the tenant's object. */
function undelivered(id: string) {
  const { webhooks } = gateway;
  const object = objectId("local", uniqueKeyOf("Webhooks"));
  const sql = "SELECT attempts, tried_at FROM delivery JOIN event ON id = event WHERE about = ? AND due IS NOT NULL";
  return webhooks.exec(object, sql, id);
}

it("a budget that is used to 80 % is reported to the operator, and to the tenant's endpoint, with a signature", async () => {
  const keyed = await startWithKeys({
    WEBHOOK_URL: endpoint.url,
    WEBHOOK_SECRET: SECRET,
    ALLOW_PRIVATE_WEBHOOKS: "true",
    WEBHOOK_URLS: endpoint.url,
  });
  try {
    const key = await makeKey(keyed, newTenant(), { budget: { tokens: 400, window: "day" } });
    const { webhooks } = keyed.client({ apiKey: key.value });
    const wanted = { name: "mine", url: `${endpoint.url}/tenant`, event_types: ["limit.nearly_used"] };
    const { signing_secret: own } = await webhooks.create(wanted as unknown as WebhookCreateParams);
    for (let status = 200; status === 200; ) {
      const answer = await create(keyed, key, { input: "word ".repeat(50), max_output_tokens: 60 });
      await answer.text();
      status = answer.status;
    }
    const secrets = { "/hook": SECRET, "/hook/tenant": own };
    for (const [path, secret] of Object.entries(secrets)) {
      const { headers, body } = await eventually(() => endpoint.of(key.id).find((each) => each.path === path));
      const event: unknown = await openai.webhooks.unwrap(body, headers, secret);
      expect(event).toMatchObject({ object: "event", type: "limit.nearly_used", data: { id: key.id } });
    }
  } finally {
    await keyed.close();
  }
});

describe.concurrent("the webhook of a background run", () => {
  it.each([
    ["response.completed", { input: "Hello!" }],
    ["response.incomplete", { input: "Hello!", max_output_tokens: 2 }],
    ["response.failed", { model: "simulator?fault=error:2", input: "Hello!" }],
  ])("says %s", async (type, body) => {
    const before = Math.floor(Date.now() / 1000);
    const { headers, body: payload, response } = await webhookOf(body);
    const event = await openai.webhooks.unwrap(payload, headers, SECRET);
    expect(event).toEqual({
      id: expect.stringMatching(/^evt_/),
      object: "event",
      type,
      created_at: expect.any(Number),
      data: { id: response },
    });
    expect(event.created_at).toBeGreaterThanOrEqual(before);
    expect(headers["content-type"]).toBe("application/json");
    expect(headers["webhook-id"]).toBe(event.id);
    expect(`response.${(await openai.responses.retrieve(response)).status}`).toBe(type);
  });

  it("says response.cancelled", async () => {
    const input = "Cancel me.";
    const { id } = await openai.responses.create({ model: "simulator?tps=20&words=1000", input, background: true });
    await reached(gateway, input);
    await openai.responses.cancel(id);
    await openai.responses.cancel(id);
    const { headers, body } = await eventually(() => endpoint.of(id)[0]);
    expect(await openai.webhooks.unwrap(body, headers, SECRET)).toMatchObject({
      type: "response.cancelled",
      data: { id },
    });
  });

  it("arrives when the ended response can be retrieved, also if it is streamed", async () => {
    const stream = await openai.responses.create({ input: "Hello!", background: true, stream: true });
    let id = "";
    for await (const event of stream) if (event.type === "response.completed") id = event.response.id;
    await eventually(() => endpoint.of(id)[0]);
    expect((await openai.responses.retrieve(id)).status).toBe("completed");
  });

  it("is accepted by the SDK only unchanged", async () => {
    const { headers, body } = await webhookOf({ input: "Sign this." });
    const { unwrap } = openai.webhooks;
    const verify = unwrap.bind(openai.webhooks);
    const client = gateway.client({ webhookSecret: SECRET });
    expect(await client.webhooks.unwrap(body, headers)).toMatchObject({ type: "response.completed" });

    const otherSecret = `whsec_${randomBytes(32).toString("base64")}`;
    const old = { ...headers, "webhook-timestamp": String(Number(headers["webhook-timestamp"]) - 1) };
    const otherId = { ...headers, "webhook-id": "evt_other" };
    for (const forged of [
      () => verify(body.replace("completed", "cancelled"), headers, SECRET),
      () => verify(body, headers, otherSecret),
      () => verify(body, old, SECRET),
      () => verify(body, otherId, SECRET),
    ]) {
      await expect(forged()).rejects.toBeInstanceOf(OpenAI.InvalidWebhookSignatureError);
    }
  });

  it("arrives once, and not for foreground turns, with or without an idempotency key", async () => {
    const foreground = await openai.responses.create({ input: "Hello!" });
    const headers = { "idempotency-key": randomUUID() };
    const keyed = await openai.responses.create({ input: "Hello!" }, { headers });
    const streamed = await openai.responses.stream({ input: "Hello!", stream: true }).finalResponse();
    const { response } = await webhookOf({ input: "Hello!" });
    await eventually(() => undelivered(response).length === 0);
    expect(endpoint.of(response)).toHaveLength(1);
    for (const { id } of [foreground, keyed, streamed]) {
      expect((await openai.responses.retrieve(id)).status).toBe("completed");
      expect(undelivered(id)).toEqual([]);
      expect(endpoint.of(id)).toEqual([]);
    }
  });

  it("does not follow the endpoint to another address", async () => {
    const { id } = await openai.responses.create({ model: "simulator?ttft=300", input: "Hello!", background: true });
    endpoint.redirect.add(id);
    // The attempt has ended, and not only begun.
    await eventually(() => undelivered(id)[0]?.tried_at);
    expect(undelivered(id)).toMatchObject([{ attempts: 1 }]);
    expect(endpoint.of(id).map(({ path }) => path)).toEqual(["/hook"]);
  });
});

describe("a tenant's webhook endpoint", () => {
  const create = (types: WebhookCreateParams["event_types"], path = "") =>
    openai.webhooks.create({ name: "mine", url: `${endpoint.url}/${path || randomUUID()}`, event_types: types });
  const pathOf = ({ url }: { url: string }) => new URL(url).pathname;
  const toldAt = (path: string) => endpoint.deliveries.filter((delivery) => delivery.path === path);

  it("is created, changed, listed and deleted, and shows its secret once", async () => {
    const made = await create(["response.completed"]);
    const { signing_secret: secret, ...shown } = made;
    expect(secret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
    expect(shown.signing_secret_hint).toBe(`whsec_…${secret.slice(-5)}`);
    expect(await openai.webhooks.retrieve(made.id)).toEqual(shown);
    const changed = await openai.webhooks.update(made.id, { name: "other", event_types: ["batch.failed"] });
    expect(changed).toMatchObject({ name: "other", event_types: ["batch.failed"], url: made.url });
    const newer = await create(["response.failed"]);
    const listed = [];
    for await (const each of openai.webhooks.list({ limit: 1 })) listed.push(each.id);
    expect(listed.slice(0, 2)).toEqual([newer.id, made.id]);
    expect(await openai.webhooks.delete(newer.id)).toMatchObject({ deleted: true });
    await expect(openai.webhooks.retrieve(newer.id)).rejects.toMatchObject({ status: 404 });
    expect((await openai.webhooks.eventTypes.list()).data).toContain("response.completed");
  });

  it("gets its events, signed with its own secret, and the log lists them", async () => {
    const completed = await create(["response.completed"]);
    const failed = await create(["response.failed"]);
    const { response } = await webhookOf({ input: "Hello!" });
    const told = await eventually(() => toldAt(pathOf(completed))[0]);
    const event = await openai.webhooks.unwrap(told.body, told.headers, completed.signing_secret);
    expect(event).toMatchObject({ type: "response.completed", data: { id: response } });
    await expect(openai.webhooks.unwrap(told.body, told.headers, SECRET)).rejects.toBeInstanceOf(
      OpenAI.InvalidWebhookSignatureError,
    );
    const log = await eventually(async () => {
      const answer = await gateway.fetch(`${gateway.url}/v1/webhook_endpoints/${completed.id}/deliveries`);
      const { data } = (await answer.json()) as { data: { status: string; event: object }[] };
      return data[0]?.status === "delivered" && data;
    });
    expect(log).toMatchObject([
      { status_code: 200, attempts: 1, next_attempt_at: null, event: { data: { id: response } } },
    ]);
    expect(toldAt(pathOf(failed))).toEqual([]);
  });

  it("gets samples, and signatures with the old secret for a day on request", async () => {
    const made = await create(["batch.completed"]);
    const rotated = await openai.webhooks.rotateSecret(made.id, { keep_old_secret_active_for_24_hours: true });
    const result = await openai.webhooks.test(made.id, { event_type: "batch.completed" });
    expect(result).toMatchObject({ success: true, status_code: 200, webhook_endpoint_id: made.id });
    const [sample] = toldAt(pathOf(made));
    for (const secret of [made.signing_secret, rotated.signing_secret]) {
      const event = await openai.webhooks.unwrap(sample?.body ?? "", sample?.headers ?? {}, secret);
      expect(event).toMatchObject({ type: "batch.completed", data: { id: expect.stringMatching(/^batch_/) } });
    }
    const once = await openai.webhooks.rotateSecret(made.id);
    await openai.webhooks.test(made.id, { event_type: "batch.completed" });
    const { body = "", headers = {} } = toldAt(pathOf(made))[1] ?? {};
    await openai.webhooks.unwrap(body, headers, once.signing_secret);
    await expect(openai.webhooks.unwrap(body, headers, rotated.signing_secret)).rejects.toThrow();
  });

  it.each([
    ["a private address", { url: "http://127.0.0.1:1/x" }, "url", "invalid_value"],
    ["http", { url: "http://example.com/x" }, "url", "invalid_value"],
    ["no URL", { url: "example" }, "url", undefined],
    ["an event that does not happen here", { event_types: ["video.completed"] }, "event_types[0]", "invalid_value"],
    ["no events", { event_types: [] }, "event_types", undefined],
  ])("with %s is a 400 that names the field", async (_, fields, param, code) => {
    const body = { name: "mine", url: endpoint.url, event_types: ["response.completed"], ...fields };
    await expect(openai.webhooks.create(body as WebhookCreateParams)).rejects.toMatchObject({
      status: 400,
      param,
      ...(code && { code }),
    });
  });
});

it("may have a private address only if the operator permits it", async () => {
  const deployment = await startGateway({ WEBHOOK_URL: endpoint.url, WEBHOOK_SECRET: SECRET });
  try {
    expect((await deployment.fetch(`${deployment.url}/health`)).status).toBe(200);
    const refused = await deployment.openai.responses.create({ input: "Hello!" }).catch((error: unknown) => error);
    expect(refused).toMatchObject({
      status: 500,
      code: "server_misconfigured",
      message: expect.stringContaining("WEBHOOK_URL"),
    });
  } finally {
    await deployment.close();
  }
});
