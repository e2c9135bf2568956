import { runDurableObjectAlarm, runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { createRequest } from "@responses-edge/responses-api/create-bodies";
import { newTurnAddress, responseId } from "@responses-edge/responses-api/ids";
import OpenAI from "openai";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { loadConfig } from "../../../src/config/index.ts";
import type { RunSpec } from "../../../src/store/home/run-store.ts";

/**
 * The delivery of a background run's webhook when the operator's endpoint fails: the object of the tenant's webhooks
 * repeats it.
 */

const SECRET = `whsec_${btoa("a secret of at least 24 bytes")}`;
const ENDPOINT = "https://hooks.acme.dev/responses";
/** The tenant's own endpoint, which accepts everything. */
const OTHER = "https://hooks.other.dev/responses";
const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

interface Delivery {
  url: string;
  body: string;
  headers: Record<string, string>;
  redirect: RequestInit["redirect"];
}

let deliveries: Delivery[];
/** The endpoint's answer. */
let answer: () => Response | Promise<Response>;

beforeEach(() => {
  deliveries = [];
  answer = () => new Response(null, { status: 200 });
  vi.useFakeTimers({ toFake: ["Date"] });
  vi.spyOn(globalThis, "fetch").mockImplementation(async (input, init) => {
    // The model server does not answer.
    if (![ENDPOINT, OTHER].includes(String(input))) throw new TypeError("fetch failed");
    deliveries.push({
      url: String(input),
      body: String(init?.body),
      headers: init?.headers as Record<string, string>,
      redirect: init?.redirect,
    });
    return String(input) === OTHER ? new Response(null) : answer();
  });
});
afterEach(() => {
  vi.restoreAllMocks();
  vi.useRealTimers();
});

/** A background run of a tenant of its own that was cancelled, with webhooks configured. */
async function cancelledRun() {
  const address = newTurnAddress();
  const tenant = `tenant-${address.home}`;
  const home = env.HOME.getByName(`${tenant}:${address.home}`);
  const stub = env.WEBHOOKS.getByName(tenant);
  const given = { ...env, WEBHOOK_URL: ENDPOINT, WEBHOOK_SECRET: SECRET };
  await runInDurableObject(home, (object) => void Object.assign(object, { env: given }));
  await runInDurableObject(stub, (object) => void Object.assign(object, { env: given }));
  const spec: RunSpec = {
    ...address,
    tenant,
    keyId: "key",
    parent: null,
    createdAt: Date.now(),
    request: createRequest.parse({ input: "Hello!", background: true }),
    input: [],
    model: { name: "simulator", upstream: "simulator", engine: "chat" },
    cacheSalt: "salt",
    affinity: { isRooted: true },
    inConversation: false,
  };
  expect(await home.startRun(JSON.stringify(spec), "ticket", 0)).toMatchObject({ ok: true });
  await home.cancel(address.turn);
  await vi.waitFor(() => expect(deliveries).toHaveLength(1));
  /** Lets the alarm fire at its time. Gives the time until then. */
  const nextAlarm = async (): Promise<number | undefined> => {
    const at = await runInDurableObject(stub, (_, state) => state.storage.getAlarm());
    if (at === null) return undefined;
    const waited = at - Date.now();
    vi.setSystemTime(Math.max(at, Date.now()));
    await runDurableObjectAlarm(stub);
    return waited;
  };
  const pending = () =>
    runInDurableObject(
      stub,
      (_, { storage: { sql } }) =>
        sql.exec<{ count: number }>("SELECT COUNT(*) AS count FROM delivery WHERE due IS NOT NULL").one().count,
    );
  return { id: responseId(address), stub, nextAlarm, pending };
}

const client = new OpenAI({ apiKey: "any", webhookSecret: SECRET });

describe("the configuration of webhooks", () => {
  it.each([
    undefined,
    "",
    "whsec_c2hvcnQ=",
    btoa("a secret of at least 24 bytes"),
    "whsec_not base64 but long enough to be",
  ])("needs a secret that can sign: %o cannot", (WEBHOOK_SECRET) => {
    expect(() => loadConfig({ ...env, WEBHOOK_URL: ENDPOINT, WEBHOOK_SECRET })).toThrow(/WEBHOOK_SECRET/);
  });

  it("needs a public address, or the operator's permission for private ones", () => {
    const local = { ...env, WEBHOOK_URL: "http://127.0.0.1:9000/", WEBHOOK_SECRET: SECRET };
    expect(() => loadConfig(local)).toThrow(/WEBHOOK_URL/);
    expect(loadConfig({ ...local, ALLOW_PRIVATE_WEBHOOKS: "true" }).webhook?.url).toBe("http://127.0.0.1:9000/");
    expect(loadConfig({ ...env, WEBHOOK_SECRET: SECRET }).webhook).toBeUndefined();
  });
});

describe("a webhook", () => {
  it("is sent as soon as the run has ended, and dropped when the endpoint accepts it", async () => {
    const { id, pending } = await cancelledRun();
    const [{ body, headers, redirect } = { body: "", headers: {}, redirect: undefined }] = deliveries;
    // The clock is fixed here, and the SDK checks it.
    expect(await client.webhooks.unwrap(body, headers)).toMatchObject({ type: "response.cancelled", data: { id } });
    expect(redirect).toBe("manual");
    await vi.waitFor(async () => expect(await pending()).toBe(0));
  });

  it.each([
    ["fails", () => new Response("Not now.", { status: 500 })],
    ["refuses it", () => new Response(null, { status: 401 })],
    ["redirects it", () => new Response(null, { status: 307, headers: { location: "https://elsewhere.dev/" } })],
    [
      "is not there",
      () => {
        throw new TypeError("fetch failed");
      },
    ],
  ])("is sent again five seconds later when the endpoint %s", async (_, fault) => {
    answer = fault;
    const { nextAlarm, pending } = await cancelledRun();
    await vi.waitFor(async () => expect(await pending()).toBe(1));
    answer = () => new Response(null, { status: 204 });
    let waited = 0;
    for (let alarms = 0; deliveries.length < 2 && alarms < 5; alarms += 1) waited += (await nextAlarm()) ?? 0;
    expect(deliveries).toHaveLength(2);
    expect(waited).toBeGreaterThan(4_000);
    expect(waited).toBeLessThanOrEqual(5_000);
    expect(await pending()).toBe(0);

    const [first, second] = deliveries;
    expect(second?.body).toBe(first?.body);
    expect(second?.headers["webhook-id"]).toBe(first?.headers["webhook-id"]);
    expect(await client.webhooks.unwrap(second?.body ?? "", second?.headers ?? {})).toBeDefined();
  });

  it("is sent at growing intervals, and given up after some days", async () => {
    answer = () => new Response(null, { status: 503 });
    const { nextAlarm, pending } = await cancelledRun();
    const began = Date.now();
    const times = [began];
    for (let alarms = 0; alarms < 1_000; alarms += 1) {
      const before = deliveries.length;
      if ((await nextAlarm()) === undefined) break;
      if (deliveries.length > before) times.push(Date.now());
      if ((await pending()) === 0) break;
    }
    const waits = times.slice(1).map((time, index) => time - (times[index] ?? 0));
    expect(waits.every((wait, index) => wait >= (waits[index - 1] ?? 0) - 1_000)).toBe(true);
    expect(waits.at(-1)).toBeLessThanOrEqual(4 * HOUR_MS + MINUTE_MS);
    const days = ((times.at(-1) ?? 0) - began) / (24 * HOUR_MS);
    expect(days).toBeGreaterThan(2);
    expect(days).toBeLessThan(4);
    expect(await pending()).toBe(0);
  });

  it("does not wait for another, slow endpoint", async () => {
    const slow = Promise.withResolvers<Response>();
    answer = async () => (await slow.promise).clone();
    const stub = env.WEBHOOKS.getByName(`tenant-${crypto.randomUUID()}`);
    await runInDurableObject(stub, async (object) => {
      Object.assign(object, { env: { ...env, WEBHOOK_URL: ENDPOINT, WEBHOOK_SECRET: SECRET } });
      object.create({ name: "other", url: OTHER, eventTypes: ["response.completed"] });
      for (let each = 0; each < 20; each += 1) {
        const notice = { id: `evt_${each}`, type: "response.completed" as const, createdAt: 0, about: `resp_${each}` };
        await object.announce(notice);
      }
      const to = (url: string) => deliveries.filter((delivery) => delivery.url === url).length;
      await vi.waitFor(() => expect(to(OTHER)).toBe(20));
      expect(to(ENDPOINT)).toBeLessThanOrEqual(4);
      slow.resolve(new Response(null));
      await vi.waitFor(() => expect(to(ENDPOINT)).toBe(20));
    });
  });

  it("is dropped when the operator removes the endpoint", async () => {
    answer = () => new Response(null, { status: 503 });
    const { stub, nextAlarm, pending } = await cancelledRun();
    await vi.waitFor(async () => expect(await pending()).toBe(1));
    await runInDurableObject(stub, (object) => void Object.assign(object, { env: { ...env } }));
    let waited = 0;
    for (let alarms = 0; waited < 4_500 && alarms < 5; alarms += 1) waited += (await nextAlarm()) ?? 0;
    expect(await pending()).toBe(0);
    expect(deliveries).toHaveLength(1);
    // The object has no alarm left.
    expect(await nextAlarm()).toBeUndefined();
  });
});
