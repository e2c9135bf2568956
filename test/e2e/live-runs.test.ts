import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { serveSimulator } from "../../dev/simulator/serve.ts";
import { startWorkerd, type WorkerdProcess } from "../workerd/process.ts";
import { fetchAnew } from "../workerd/tools.ts";
import { expectError } from "./expectations.ts";
import { ADMIN_KEY, ask, call, create, type MadeKey, makeKey, newTenant, type Page } from "./key-support.ts";
import { eventually, type Gateway, gatewayAt } from "./support.ts";
import { ended, reached, unique } from "./turns.ts";

/** Live runs, which the operator can list and cancel, and the log of the requests that have ended. */

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
  worker = await startWorkerd(
    {
      ...{ UPSTREAMS: upstreams, ADMIN_KEY, KEY_CACHE_MS: "100", RESPONSE_INDEX: "true" },
      MODEL_PRICES: JSON.stringify({ simulator: { input: 1, output: 2 } }),
      PASSTHROUGH_ENDPOINTS: "chat/completions",
    },
    { readsFormats: false },
  );
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

interface Ended {
  id: string;
  created_at: number;
  tenant: string;
  api_key_id: string;
  endpoint: string;
  transport: string;
  http_status: number;
  status: string;
  response_id: string | null;
  model: string | null;
  server: string | null;
  duration_ms: number;
  first_token_ms: number | null;
  attempts: number;
  usage: object | null;
  cost_usd: number | null;
  error: { code: string; message: string; upstream: string | null } | null;
}

function logged(query: Record<string, string>, bearer?: string): Promise<Page<Ended>> {
  const path = `/v1/admin/requests?${new URLSearchParams({ limit: "100", ...query })}`;
  return call(gateway, "GET", path, undefined, bearer).then((answer) => answer.json() as Promise<Page<Ended>>);
}

/** The requests of a tenant, when there are so many. */
function requestsOf({ tenant }: Pick<MadeKey, "tenant">, count: number): Promise<Ended[]> {
  return eventually(async () => {
    const { data } = await logged({ tenant });
    return data.length >= count ? data : undefined;
  });
}

describe("the log of requests", () => {
  it("has a request of each kind once, by whatever way it came, and no content", async () => {
    const key = await makeKey(gateway, newTenant());
    const client = gateway.client({ apiKey: key.value, maxRetries: 0 });
    const secret = unique("A secret");
    const hello = { model: "simulator", input: secret };
    const stored = await client.responses.create(hello);
    const unstored = await client.responses.create({ ...hello, store: false });
    for await (const _ of await client.responses.create({ ...hello, stream: true }));
    const run = await client.responses.create({ ...hello, background: true });
    await ended({ openai: client, vllm: gateway.vllm }, run.id);
    await client.chat.completions.create({ model: "simulator", messages: [{ role: "user", content: secret }] });
    // Reads that succeed are left out.
    await client.responses.retrieve(stored.id);
    await expect(client.responses.retrieve("resp_unknown")).rejects.toThrow();
    const requests = await requestsOf(key, 6);
    expect(requests.map((request) => [request.endpoint, request.transport, request.status])).toEqual(
      expect.arrayContaining([
        ["POST /v1/responses", "http", "completed"],
        ["POST /v1/responses", "sse", "completed"],
        ["POST /v1/responses", "background", "completed"],
        ["POST /v1/chat/completions", "http", "completed"],
        ["GET /v1/responses/:id", "http", "refused"],
      ]),
    );
    expect(requests.length).toBe(6);
    const [input, cached] = [stored.usage?.input_tokens ?? 0, stored.usage?.input_tokens_details.cached_tokens ?? 0];
    const output = stored.usage?.output_tokens ?? 0;
    expect(requests.find((request) => request.response_id === stored.id)).toMatchObject({
      ...{ object: "request.summary", tenant: key.tenant, api_key_id: key.id, http_status: 200, attempts: 1 },
      ...{ id: stored._request_id, model: "simulator", server: "gpu-1", waited_ms: 0, queued_ms: 0, error: null },
      usage: { input_tokens: input, cached_tokens: cached, output_tokens: output, reasoning_tokens: 0 },
      cost_usd: (input + 2 * output) / 1e6,
    });
    const ids = requests.map((request) => request.response_id);
    expect(ids).toEqual(expect.arrayContaining([stored.id, unstored.id, run.id]));
    expect(JSON.stringify(requests)).not.toContain(secret);
  });

  it("has what was refused and what failed, with the model server's own text for a root key alone", async () => {
    const key = await makeKey(gateway, newTenant(), { requests_per_minute: 3 });
    const failing = { model: "simulator?fault=http:503", max_retries: 0 };
    for (const body of [{ temperature: 9 }, failing, { model: "simulator?fault=error:5" }, {}])
      await create(gateway, key, body);
    const requests = await requestsOf(key, 4);
    const [limited, failed, faulty, invalid] = requests;
    expect(limited).toMatchObject({ http_status: 429, status: "refused", attempts: 0, model: "simulator" });
    expect(limited?.error).toMatchObject({ code: "rate_limit_exceeded", message: expect.stringMatching(/Limit 3/) });
    expect(failed).toMatchObject({ status: "failed", server: "gpu-1", error: { upstream: expect.any(String) } });
    expect(faulty).toMatchObject({ status: "refused", error: { upstream: expect.any(String) } });
    expect(faulty?.http_status).toBeGreaterThanOrEqual(500);
    expect(invalid).toMatchObject({ http_status: 400, status: "refused", usage: null, cost_usd: null });
    // A tenant's key reads its own requests.
    const reader = await makeKey(gateway, key.tenant);
    const own = await logged({ tenant: "another" }, reader.value);
    expect(own.data.map(({ id }) => id)).toEqual(requests.map(({ id }) => id));
    expect(own.data.every(({ error }) => error?.upstream === null)).toBe(true);
  });

  it("leads to the times of a response, and to the model server's own text, which its tenant does not get", async () => {
    const key = await makeKey(gateway, newTenant());
    const client = gateway.client({ apiKey: key.value, maxRetries: 0 });
    const input = unique("A secret");
    const run = await client.responses.create({ model: "simulator?fault=error:5", input, background: true });
    const { error } = await ended({ openai: client, vllm: gateway.vllm }, run.id);
    const path = `/v1/admin/responses/${run.id}`;
    const answer = await (await call(gateway, "GET", `${path}?tenant=${key.tenant}`)).text();
    expect(JSON.parse(answer)).toMatchObject({
      ...{ object: "response.details", id: run.id, tenant: key.tenant, status: "failed", error },
      ...{ upstream_error: "Simulated fault.", timing: { rounds: [{ server: "gpu-1", error: "upstream_error" }] } },
    });
    expect(answer).not.toContain(input);
    const seen = await client.get(`/responses/${run.id}?include[]=timing`);
    expect(seen).toMatchObject({ timing: { rounds: [{ server: "gpu-1" }] } });
    expect(JSON.stringify(seen)).not.toContain("Simulated fault.");
    await expectError(await call(gateway, "GET", path), { status: 400, param: "tenant" });
    await expectError(await call(gateway, "GET", `${path}?tenant=another`), { status: 404 });
    const denied = await call(gateway, "GET", `${path}?tenant=${key.tenant}`, undefined, key.value);
    await expectError(denied, { status: 403, code: "insufficient_permissions" });
  });

  it("has pages and filters", async () => {
    const key = await makeKey(gateway, newTenant());
    const client = gateway.client({ apiKey: key.value, maxRetries: 0 });
    const began = Math.floor(Date.now() / 1000);
    for (let turn = 0; turn < 3; turn += 1) await client.responses.create({ model: "simulator", input: "Hello!" });
    await client.responses.create({ model: "simulator?tps=10&words=10", input: "Hello!" });
    await expect(client.responses.create({ model: "simulator", temperature: 9 })).rejects.toThrow();
    const all = await requestsOf(key, 5);
    const paged: Ended[] = [];
    for (let after: string | null = ""; after !== null; ) {
      const page = await logged({ tenant: key.tenant, limit: "2", ...(after && { after }) });
      paged.push(...page.data);
      after = page.has_more ? page.last_id : null;
    }
    expect(paged).toEqual(all);
    const count = async (query: Record<string, string>) => (await logged({ tenant: key.tenant, ...query })).data.length;
    expect(await count({ status: "refused" })).toBe(1);
    expect(await count({ model: "simulator?tps=10&words=10" })).toBe(1);
    expect(await count({ min_duration_ms: String(all[1]?.duration_ms) })).toBe(1);
    expect(await count({ api_key_id: key.id, server: "gpu-1" })).toBe(4);
    expect(await count({ api_key_id: "another" })).toBe(0);
    expect(await count({ "created_at[gte]": String(began), "created_at[lt]": String(began + 3_600) })).toBe(5);
    expect(await count({ "created_at[lt]": String(began) })).toBe(0);
    await expectError(await call(gateway, "GET", "/v1/admin/requests?after=nothing"), { status: 400, param: "after" });
    await expectError(await call(gateway, "GET", "/v1/admin/requests?status=good"), { status: 400, param: "status" });
  });

  it("survives a kill, and goes with its tenant", async () => {
    const key = await makeKey(gateway, newTenant());
    expect((await create(gateway, key)).status).toBe(200);
    const before = await requestsOf(key, 1);
    await worker.restart();
    expect((await logged({ tenant: key.tenant })).data).toEqual(before);
    await ask(gateway, "DELETE", `/v1/admin/tenants/${key.tenant}`);
    expect((await logged({ tenant: key.tenant })).data).toEqual([]);
  });
});

describe("the overview", () => {
  interface Bucket {
    start_time: number;
    end_time: number;
    requests: number;
    errors: number;
    input_tokens: number;
    output_tokens: number;
    p50_ms: number | null;
    output_tokens_per_second: number | null;
    by_status: Record<string, number>;
    most_in_flight: number | null;
    most_waiting: number | null;
    servers_down: string[];
    least_free_disk_bytes: number | null;
  }

  interface Overview {
    data: Bucket[];
    now: { in_flight: number; waiting: number; servers: { name: string; status: string }[]; disk: object | null };
  }

  it("has the sums of all requests over time, and the present state", async () => {
    const key = await makeKey(gateway, newTenant());
    const read = (width: string, from: number, bearer?: string) =>
      call(gateway, "GET", `/v1/admin/overview?start_time=${from}&bucket_width=${width}`, undefined, bearer);
    const now = Math.floor(Date.now() / 1000);
    const widths = { "1m": 60, "5m": 300, "1h": 3_600, "1d": 86_400 };
    const overviews = () =>
      Promise.all(
        Object.entries(widths).map(async ([width, seconds]) => {
          const { data, now: present } = (await (await read(width, now - 2 * seconds)).json()) as Overview;
          const sum = (of: (bucket: Bucket) => number) => data.reduce((total, bucket) => total + of(bucket), 0);
          const sums = {
            requests: sum((each) => each.requests),
            errors: sum((each) => each.errors),
            output: sum((each) => each.output_tokens),
            refused: sum((each) => each.by_status.refused ?? 0),
          };
          return { seconds, data, present, sums };
        }),
      );
    const before = await overviews();
    const made = gateway.client({ apiKey: key.value, maxRetries: 0 });
    const held = await made.responses.create({ model: "simulator?fault=stall:2", input: "Wait.", stream: true });
    await held[Symbol.asyncIterator]().next();
    const { usage } = await made.responses.create({ model: "simulator?tps=100&words=20", input: "Hello!" });
    await expect(made.responses.create({ model: "simulator", temperature: 9 })).rejects.toThrow();
    await requestsOf(key, 2);
    for (const [index, { seconds, data, present, sums }] of (await overviews()).entries()) {
      const was = before[index]?.sums;
      expect(sums).toEqual({
        requests: (was?.requests ?? 0) + 2,
        errors: (was?.errors ?? 0) + 1,
        output: (was?.output ?? 0) + (usage?.output_tokens ?? 0),
        refused: (was?.refused ?? 0) + 1,
      });
      expect(data.length).toBeGreaterThanOrEqual(3);
      const isWhole = ({ start_time: start, end_time: end }: Bucket) =>
        end - start === seconds && start % seconds === 0;
      expect(data.every(isWhole)).toBe(true);
      const full = data.findLast((each) => each.p50_ms !== null);
      expect(full?.p50_ms).toBeGreaterThan(0);
      expect(full?.output_tokens_per_second).toBeGreaterThan(0);
      expect(data.filter((each) => each.requests === 0).every((each) => each.p50_ms === null)).toBe(true);
      const busy = data.findLast((each) => each.requests > 0);
      expect(busy).toMatchObject({ most_in_flight: expect.any(Number), most_waiting: 0, servers_down: [] });
      expect(busy?.most_in_flight).toBeGreaterThan(0);
      expect(data.find((each) => each.requests === 0)?.most_in_flight ?? null).toBeNull();
      expect(present).toMatchObject({ in_flight: 1, waiting: 0, servers: [{ name: "gpu-1", status: "ok" }] });
    }
    held.controller.abort();
    await expectError(await read("1h", now, key.value), { status: 403, code: "insufficient_permissions" });
    for (const [width, from] of [
      ["1m", now - 3 * 86_400],
      ["1d", 0],
    ] as const) {
      await expectError(await read(width, from), { status: 400, param: "start_time" });
    }
  });
});
