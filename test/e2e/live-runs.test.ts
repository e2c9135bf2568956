import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { serveSimulator } from "../../dev/simulator/serve.ts";
import { startWorkerd, type WorkerdProcess } from "../workerd/process.ts";
import { fetchAnew } from "../workerd/tools.ts";
import { expectError } from "./expectations.ts";
import { ADMIN_KEY, ask, call, create, type MadeKey, makeKey, newTenant, type Page } from "./key-support.ts";
import { eventually, type Gateway, gatewayAt } from "./support.ts";
import { ended, reached, unique } from "./turns.ts";

/** Live runs, which the operator can list and cancel. */

interface Run {
  id: string;
  tenant: string;
  status: string;
  model: string;
  created_at: number;
  background: boolean;
  server: string | null;
  events: number;
}

let worker: WorkerdProcess;
let gateway: Gateway;
beforeAll(async () => {
  const vllm = await serveSimulator();
  const upstreams = JSON.stringify([{ name: "gpu-1", url: `${vllm.url}/v1` }]);
  worker = await startWorkerd({ UPSTREAMS: upstreams, ADMIN_KEY, KEY_CACHE_MS: "100" });
  gateway = gatewayAt(worker, vllm);
});
afterAll(() => gateway.close());

const STALLED = "simulator?words=40&fault=stall:5";

/** Begins a run that does not end by itself, and waits for its first output. */
async function begin(key: MadeKey): Promise<{ id: string; input: string }> {
  const input = unique("A secret");
  const { id } = await gateway
    .client({ apiKey: key.value })
    .responses.create({ model: STALLED, input, background: true });
  await reached(gateway, input);
  return { id, input };
}

function runs(query: Record<string, string> = {}): Promise<Page<Run>> {
  return ask<Page<Run>>(gateway, "GET", `/v1/admin/runs?${new URLSearchParams({ limit: "100", ...query })}`);
}

function listed(id: string): Promise<Run> {
  return eventually(async () => (await runs()).data.find((run) => run.id === id));
}

/** The listed run, as soon as it has this many events. */
function speaking(id: string, events: number): Promise<Run> {
  return eventually(async () => {
    const run = await listed(id);
    return run.events >= events ? run : undefined;
  });
}

function cancel(id: string): Promise<Response> {
  return call(gateway, "POST", `/v1/admin/runs/${id}/cancel`);
}

describe("GET /v1/admin/runs", () => {
  it("lists the runs of all tenants with owner, server and progress, and no content", async () => {
    const [one, other] = [await makeKey(gateway, newTenant()), await makeKey(gateway, newTenant())];
    const mine = await begin(one);
    const theirs = await begin(other);
    const run = await speaking(mine.id, 8);
    expect(run).toEqual({
      object: "run",
      id: mine.id,
      tenant: one.tenant,
      status: "in_progress",
      model: STALLED,
      created_at: expect.any(Number),
      background: true,
      server: "gpu-1",
      events: expect.any(Number),
    });
    await listed(theirs.id);
    const whole = JSON.stringify(await runs());
    expect(whole).not.toContain("secret");
    const ofOne = await runs({ tenant: one.tenant });
    expect(ofOne.data.map(({ id }) => id)).toEqual([mine.id]);
    expect((await cancel(mine.id)).status).toBe(200);
    expect((await cancel(theirs.id)).status).toBe(200);
  });

  it("comes in pages by the runs' ids", async () => {
    const key = await makeKey(gateway, newTenant());
    const begun = await Promise.all(Array.from({ length: 5 }, () => begin(key)));
    for (const { id } of begun) await listed(id);
    const found: string[] = [];
    for (let after = ""; ; ) {
      const page = await runs({ limit: "2", tenant: key.tenant, after });
      found.push(...page.data.map(({ id }) => id));
      if (!page.has_more) break;
      after = page.last_id ?? "";
    }
    expect(found).toEqual(begun.map(({ id }) => id).toSorted());
    for (const { id } of begun) await cancel(id);
    expect((await runs({ tenant: key.tenant })).data).toEqual([]);
  });

  it("lists a run again whose process was killed, and none that has ended", async () => {
    const key = await makeKey(gateway, newTenant());
    const { id } = await begin(key);
    await speaking(id, 8);
    await worker.restart();
    expect(await listed(id)).toMatchObject({ id, tenant: key.tenant, status: "in_progress" });
    await gateway.client({ apiKey: key.value }).responses.cancel(id);
    await eventually(async () => (await runs()).data.every((run) => run.id !== id));
  });

  it("refuses unknown parameters", async () => {
    for (const query of ["limit=0", "limit=101", `after=${"x".repeat(65)}`, `tenant=${"x".repeat(65)}`]) {
      await expectError(await call(gateway, "GET", `/v1/admin/runs?${query}`), { status: 400 });
    }
  });
});

describe("a foreground turn", () => {
  it("is listed, and can be cancelled: its client gets the partial output", async () => {
    const key = await makeKey(gateway, newTenant());
    // The conformance checks do not know that the response is cancelled.
    const events = await gateway
      .client({ apiKey: key.value, fetch: fetchAnew })
      .responses.create({ model: STALLED, input: unique("A secret"), stream: true });
    const types: string[] = [];
    let id = "";
    let last: unknown;
    for await (const event of events) {
      types.push(event.type);
      last = event;
      if (event.type === "response.created") id = event.response.id;
      if (types.filter((type) => type === "response.output_text.delta").length !== 1) continue;
      if (event.type !== "response.output_text.delta") continue;
      const run = await listed(id);
      expect(run).toMatchObject({ tenant: key.tenant, foreground: true, background: false, server: "gpu-1" });
      expect(await (await cancel(id)).json()).toEqual({ object: "run", id, tenant: key.tenant, status: "cancelled" });
    }
    expect(last).toMatchObject({ type: "response.incomplete", response: { id, status: "cancelled" } });
    expect((await runs()).data.some((run) => run.id === id)).toBe(false);
    await expectError(await cancel(id), { status: 404, code: "run_not_found" });
  });
});

describe("POST /v1/admin/runs/{id}/cancel", () => {
  it("ends a run as its tenant could, and is in the audit log", async () => {
    const key = await makeKey(gateway, newTenant());
    const { id } = await begin(key);
    await speaking(id, 8);
    const answer = await cancel(id);
    expect(answer.status).toBe(200);
    expect(await answer.json()).toEqual({ object: "run", id, tenant: key.tenant, status: "cancelled" });
    const client = gateway.client({ apiKey: key.value });
    expect(await client.responses.retrieve(id)).toMatchObject({ status: "cancelled" });
    const log = `/v1/organization/audit_logs?project_ids=${key.tenant}&event_types=response.cancelled`;
    const { data } = await ask<Page<object>>(gateway, "GET", log);
    expect(data).toMatchObject([
      { actor: { api_key: { id: "ops" } }, project: { id: key.tenant }, "response.cancelled": { id } },
    ]);
    await expectError(await cancel(id), { status: 404, code: "run_not_found" });
  });

  it("ends a turn under an Idempotency-Key, too", async () => {
    const key = await makeKey(gateway, newTenant());
    const input = unique("Under a key");
    const headers = { "idempotency-key": unique("key") };
    const waiting = gateway.client({ apiKey: key.value }).responses.create({ model: STALLED, input }, { headers });
    await reached(gateway, input);
    const run = await eventually(async () => (await runs({ tenant: key.tenant })).data[0]);
    expect(run.background).toBe(false);
    expect((await cancel(run.id)).status).toBe(200);
    expect(await waiting).toMatchObject({ id: run.id, status: "cancelled" });
  });

  it("is a 404 for an ended run, and for an invalid id", async () => {
    const key = await makeKey(gateway, newTenant());
    const client = gateway.client({ apiKey: key.value });
    const { id } = await client.responses.create({ model: "simulator", input: "Hi", background: true });
    await ended({ openai: client, vllm: gateway.vllm }, id);
    for (const wrong of [id, `resp_${"0".repeat(32)}`, "resp_1", "%00", "..%2f..", "x".repeat(5_000)]) {
      expect((await cancel(wrong)).status).toBe(404);
    }
    expect((await create(gateway, key)).status).toBe(200);
  });
});
