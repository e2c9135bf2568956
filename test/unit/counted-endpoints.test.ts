import { createExecutionContext, waitOnExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { createHash } from "node:crypto";
import { beforeAll, describe, expect, it } from "vitest";
import { createSimulator } from "../../dev/simulator/handler.ts";
import keysDocument from "../../docs/keys.md?raw";
import type { Grants } from "../../src/contract/grants.ts";
import type { Env } from "../../src/env.ts";
import app from "../../src/http/app.ts";
import type { Endpoint } from "../../src/http/endpoint.ts";
import { endpoints } from "../../src/http/endpoints.ts";
import { withObjects } from "../../src/store/objects/objects.ts";

/** Every declared endpoint is counted in its caller's limits, unless its declaration says that it is free. */

const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");

let bindings: Env;
beforeAll(() => {
  const simulator = createSimulator();
  const VLLM = { fetch: (url: string, init: RequestInit) => simulator.fetch(new Request(url, init)) } as Env["VLLM"];
  bindings = withObjects({
    ...env,
    VLLM,
    ALLOW_ANONYMOUS: "false",
    ADMIN_KEY: `ops:${sha256("root")}`,
    KEY_CACHE_MS: "600000",
    PROMETHEUS_METRICS: "true",
    PROMETHEUS_TOKEN: "root",
    PASSTHROUGH_ENDPOINTS: "all",
    GUARD_URL: "https://guard.invalid/",
    RESPONSE_INDEX: "true",
  });
});

async function send(path: string, init: RequestInit & { key: string }): Promise<Response> {
  const context = createExecutionContext();
  const headers = { "content-type": "application/json", ...init.headers, authorization: `Bearer ${init.key}` };
  const answer = await app.fetch(new Request(`http://localhost${path}`, { ...init, headers }), bindings, context);
  const copy = answer.webSocket ? answer : new Response(await answer.text(), answer);
  await waitOnExecutionContext(context);
  return copy;
}

const post = (path: string, key: string, body: object) =>
  send(path, { method: "POST", key, body: JSON.stringify(body) });

let tenants = 0;

async function keyOf(limits: Partial<Grants>): Promise<string> {
  tenants += 1;
  const made = await post("/v1/admin/keys", "root", { tenant: `counted-${tenants}`, limits });
  return (await made.json<{ value: string }>()).value;
}

const create = (key: string) => post("/v1/responses", key, { model: "simulator", input: "Hello!" });

const named = ({ method, path }: Endpoint) => `${method} ${path.replaceAll(/:(\w+)(\{[^}]*\})?/g, "{$1}")}`;
const pathOf = ({ path }: Endpoint) => path.replaceAll(/:\w+(\{[^}]*\})?/g, "resp_nothing");
const counted = endpoints.filter(({ operation }) => operation.counted !== undefined);
const free = endpoints.filter(({ operation }) => operation.counted === undefined);
const cases = (of: readonly Endpoint[]) => of.map((endpoint) => ({ name: named(endpoint), endpoint }));

describe("under 'requests_per_minute: 0'", () => {
  it.concurrent.each(cases(counted))("$name is a 429 for any request", async ({ endpoint }) => {
    const key = await keyOf({ requests_per_minute: 0 });
    const bodies = endpoint.method === "POST" ? ["{}", "{", '{"model":"simulator","input":"Hi"}'] : [undefined];
    for (const body of bodies) {
      const answer = await send(pathOf(endpoint), { method: endpoint.method, key, body });
      expect([answer.status, (await answer.json<{ error: object }>()).error]).toEqual([
        429,
        expect.objectContaining({ code: "insufficient_quota" }),
      ]);
    }
  });

  it("a WebSocket is not opened", async () => {
    const key = await keyOf({ requests_per_minute: 0 });
    expect((await send("/v1/responses", { key, headers: { upgrade: "websocket" } })).status).toBe(429);
  });

  it.concurrent.each(cases(free))("$name is not a 429, because it is free", async ({ endpoint }) => {
    for (const key of [await keyOf({ requests_per_minute: 0 }), "root"]) {
      const body = endpoint.method === "POST" ? "{}" : undefined;
      expect((await send(pathOf(endpoint), { method: endpoint.method, key, body })).status).not.toBe(429);
    }
  });
});

describe.each(["root", "tenant", "tenant or root", "metrics"])("an endpoint for '%s'", (access) => {
  const those = endpoints.filter(({ operation }) => operation.access === access);
  it.concurrent.each(cases(those))("$name is a 401 without a key", async ({ endpoint }) => {
    const body = endpoint.method === "POST" ? "{}" : undefined;
    expect((await send(pathOf(endpoint), { method: endpoint.method, key: "wrong", body })).status).toBe(401);
  });
});

it.concurrent.each(cases(endpoints.filter(({ operation }) => operation.access === "root")))(
  "$name is a 403 with a tenant's key",
  async ({ endpoint }) => {
    const body = endpoint.method === "POST" ? "{}" : undefined;
    expect((await send(pathOf(endpoint), { method: endpoint.method, key: await keyOf({}), body })).status).toBe(403);
  },
);

it.concurrent.each(cases(endpoints.filter(({ operation }) => operation.access === "tenant")))(
  "$name is a 403 with a root key",
  async ({ endpoint }) => {
    const body = endpoint.method === "POST" ? "{}" : undefined;
    expect((await send(pathOf(endpoint), { method: endpoint.method, key: "root", body })).status).toBe(403);
  },
);

describe("requests and reads", () => {
  it("include invalid requests: a key with a limit of two has none left after two", async () => {
    const key = await keyOf({ requests_per_minute: 2 });
    expect((await post("/v1/responses", key, { model: 7 })).status).toBe(400);
    expect((await post("/v1/conversations", key, { items: 7 })).status).toBe(400);
    expect((await create(key)).status).toBe(429);
  });

  it("are counted separately: a polling client can still create responses", async () => {
    const key = await keyOf({ requests_per_minute: 3 });
    const made = await Promise.all(Array.from({ length: 3 }, () => create(key)));
    const ids = await Promise.all(made.map(async (answer) => (await answer.json<{ id: string }>()).id));
    const polls = ids.flatMap((id) => Array.from({ length: 39 }, () => send(`/v1/responses/${id}`, { key })));
    expect((await Promise.all(polls)).filter(({ status }) => status !== 200)).toEqual([]);
    const deleted = ids.map((id) => send(`/v1/responses/${id}`, { method: "DELETE", key }));
    expect((await Promise.all(deleted)).map(({ status }) => status)).toEqual([200, 200, 200]);
    expect((await create(key)).status).toBe(429);
    const refused = await send("/v1/models", { key });
    expect([refused.status, refused.headers.get("x-should-retry")]).toEqual([429, "true"]);
    expect(await refused.text()).toContain("on reads per min: Limit 120, Used 120");
  });

  it("have their own limit, 'reads_per_minute', which all keys of a tenant share", async () => {
    const tenant = "counted-readers";
    await post(`/v1/admin/tenants/${tenant}`, "root", { limits: { reads_per_minute: 3 } });
    const keys = [];
    for (let count = 0; count < 2; count += 1) {
      keys.push((await (await post("/v1/admin/keys", "root", { tenant })).json<{ value: string }>()).value);
    }
    const statuses = [];
    for (let turn = 0; turn < 4; turn += 1) {
      statuses.push((await send("/v1/models", { key: keys[turn % 2] ?? "" })).status);
    }
    expect(statuses).toEqual([200, 200, 200, 429]);
    expect((await create(keys[0] ?? "")).status).toBe(200);
  });

  it("allow a key that only reads: 'requests_per_minute: 0'", async () => {
    const key = await keyOf({ requests_per_minute: 0, reads_per_minute: 5 });
    expect((await send("/v1/models", { key })).status).toBe(200);
    expect((await create(key)).status).toBe(429);
    expect((await post("/v1/conversations", key, {})).status).toBe(429);
  });
});

it("are listed for each endpoint in docs/keys.md", () => {
  const rows = keysDocument.split("\n").filter((line) => /^\| (a request|a read|nothing)/.test(line));
  const ofRows = (beginning: string) =>
    rows
      .filter((row) => row.startsWith(`| ${beginning}`))
      .flatMap((row) => [...row.matchAll(/`((?:GET|POST|DELETE) [^`]+)`/g)].map(([, name]) => name));
  const declared = (...kinds: (string | undefined)[]) =>
    endpoints.filter(({ operation }) => kinds.includes(operation.counted)).map(named);
  expect(ofRows("a request").toSorted()).toEqual(declared("turn", "request").toSorted());
  expect(ofRows("a read").toSorted()).toEqual(declared("read").toSorted());
  expect(ofRows("nothing").toSorted()).toEqual(declared(undefined).toSorted());
});
