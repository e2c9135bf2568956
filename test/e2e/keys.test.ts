import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { mintKey, newMint } from "../../src/store/deployment/keys/api-keys.ts";
import { expectError, rejection } from "./expectations.ts";
import {
  ask,
  call,
  create,
  type MadeKey,
  makeKey,
  newTenant,
  type Page,
  ROOT,
  type ShownKey,
  sha256,
  startWithKeys,
} from "./key-support.ts";
import { SocketClient } from "./socket-support.ts";
import { eventually, type Gateway, startGateway } from "./support.ts";

const CONFIGURED = "key-of-the-configuration";

/** Every call of the admin API. */
const CALLS: [method: string, path: string, body?: object][] = [
  ["POST", "/v1/admin/keys", { tenant: "acme" }],
  ["GET", "/v1/admin/keys"],
  ["GET", "/v1/admin/keys/key_1"],
  ["POST", "/v1/admin/keys/key_1", { disabled: true }],
  ["DELETE", "/v1/admin/keys/key_1"],
  ["POST", "/v1/admin/keys/key_1/rotate"],
  ["GET", "/v1/admin/tenants/acme"],
  ["POST", "/v1/admin/tenants/acme", { limits: null }],
  ["GET", "/v1/admin/runs"],
  ["POST", "/v1/admin/runs/resp_1/cancel"],
  ["GET", "/v1/organization/audit_logs"],
];

let gateway: Gateway;
beforeAll(async () => {
  gateway = await startWithKeys({ API_KEYS: `configured:${sha256(CONFIGURED)}` });
});
afterAll(() => gateway.close());

describe("the admin API", () => {
  it.each(CALLS)(
    "answers %s %s with a tenant's key with a 403, for created and configured keys",
    async (method, path, body) => {
      const made = await makeKey(gateway, newTenant());
      for (const key of [made.value, CONFIGURED]) {
        const answer = await call(gateway, method, path, body, key);
        await expectError(answer, { status: 403, code: "insufficient_permissions", message: /ADMIN_KEY/ });
      }
    },
  );

  it.each(CALLS)("answers %s %s without a valid key with a 401", async (method, path, body) => {
    for (const key of ["", "nobody's", `${ROOT}x`]) {
      const answer = await call(gateway, method, path, body, key);
      expect(answer.status).toBe(401);
    }
  });

  it("does not exist without ADMIN_KEY, and no key that it has created is accepted", async () => {
    const made = await makeKey(gateway, newTenant());
    const other = await startGateway({ API_KEYS: `configured:${sha256(CONFIGURED)}` });
    try {
      for (const [method, path, body] of CALLS) {
        await expectError(await call(other, method, path, body, CONFIGURED), { status: 404, code: "unknown_url" });
        expect((await call(other, method, path, body, ROOT)).status).toBe(401);
      }
      expect((await create(other, made)).status).toBe(401);
    } finally {
      await other.close();
    }
  });

  it("has keys that give no access to responses: 403", async () => {
    await expectError(await create(gateway, ROOT), { status: 403, code: "insufficient_permissions" });
    await expectError(await call(gateway, "GET", "/v1/models"), { status: 403, code: "insufficient_permissions" });
  });

  it.each<[what: string, body: object, param: string, code: string]>([
    ["no tenant", {}, "tenant", "missing_required_parameter"],
    ["a tenant that is no name", { tenant: "a:b" }, "tenant", "invalid_value"],
    ["an unknown field", { tenant: "a", limit: {} }, "", "unknown_parameter"],
    ["a misspelt limit", { tenant: "a", limits: { request_per_minute: 1 } }, "limits", "unknown_parameter"],
    [
      "a limit below zero",
      { tenant: "a", limits: { requests_per_minute: -1 } },
      "limits.requests_per_minute",
      "below_min_value",
    ],
    [
      "half a request",
      { tenant: "a", limits: { requests_per_minute: 0.5 } },
      "limits.requests_per_minute",
      "invalid_type",
    ],
    ["a budget without end", { tenant: "a", limits: { budget: { usd: "much" } } }, "limits.budget.usd", "invalid_type"],
    [
      "an unknown window",
      { tenant: "a", limits: { budget: { usd: 1, window: "year" } } },
      "limits.budget.window",
      "invalid_value",
    ],
    [
      "a host that is a URL",
      { tenant: "a", limits: { mcp_hosts: ["https://x.y/z"] } },
      "limits.mcp_hosts[0]",
      "invalid_value",
    ],
    [
      "too many models",
      { tenant: "a", limits: { models: Array(257).fill("m") } },
      "limits.models",
      "array_above_max_length",
    ],
    ["a time after the end of time", { tenant: "a", expires_at: 1e15 }, "expires_at", "above_max_value"],
  ])("%s is a 400 that names the field", async (_, body, param, code) => {
    const answer = await call(gateway, "POST", "/v1/admin/keys", body);
    await expectError(answer, { status: 400, code, ...(param && { param }) });
  });
});

describe("a key", () => {
  it("is shown once, and belongs to its tenant", async () => {
    const tenant = newTenant();
    const made = await makeKey(gateway, tenant, undefined, { name: "CI" });
    expect(made).toMatchObject({
      object: "api_key",
      tenant,
      name: "CI",
      disabled: false,
      expires_at: null,
      limits: null,
    });
    const shown = await ask<ShownKey>(gateway, "GET", `/v1/admin/keys/${made.id}`);
    const { value, ...rest } = made;
    expect(shown).toEqual(rest);
    expect(shown.redacted_value.endsWith(value.slice(-4))).toBe(true);
    const other = await makeKey(gateway, tenant);
    const first = await gateway.client({ apiKey: value }).responses.create({ model: "simulator", input: "Hello!" });
    expect((await gateway.client({ apiKey: other.value }).responses.retrieve(first.id)).id).toBe(first.id);
    const stranger = gateway.client({ apiKey: (await makeKey(gateway, newTenant())).value });
    expect(await rejection(stranger.responses.retrieve(first.id))).toBeInstanceOf(OpenAI.NotFoundError);
  });

  it("is stored only as its SHA-256", async () => {
    const { value } = await makeKey(gateway, newTenant());
    expect((await create(gateway, value)).status).toBe(200);
    const [id = ""] = gateway.keys.ids();
    for (const table of ["keys", "secrets", "tenants", "audit"]) {
      expect(JSON.stringify(gateway.keys.exec(id, `SELECT * FROM ${table}`))).not.toContain(value);
    }
    expect(gateway.keys.exec(id, "SELECT key FROM secrets WHERE sha256 = ?", sha256(value))).toHaveLength(1);
    expect(gateway.logs()).not.toContain(value);
  });

  it("that is disabled, deleted or expired is refused as soon as the cache expires", async () => {
    const cases: [code: string, end: (key: MadeKey) => Promise<unknown>][] = [
      ["disabled_api_key", (key) => ask(gateway, "POST", `/v1/admin/keys/${key.id}`, { disabled: true })],
      ["expired_api_key", (key) => ask(gateway, "POST", `/v1/admin/keys/${key.id}`, { expires_at: 1 })],
      ["invalid_api_key", (key) => ask(gateway, "DELETE", `/v1/admin/keys/${key.id}`)],
    ];
    for (const [code, end] of cases) {
      const key = await makeKey(gateway, newTenant());
      expect((await create(gateway, key)).status).toBe(200);
      await end(key);
      const refused = await eventually(async () => {
        const answer = await create(gateway, key);
        return answer.status === 401 ? answer : undefined;
      });
      await expectError(refused, { status: 401, code });
      expect((await create(gateway, key)).status).toBe(401);
    }
  });

  it("can be disabled and enabled again", async () => {
    const key = await makeKey(gateway, newTenant());
    await ask(gateway, "POST", `/v1/admin/keys/${key.id}`, { disabled: true });
    await expectError(await create(gateway, key), { status: 401, code: "disabled_api_key" });
    await ask(gateway, "POST", `/v1/admin/keys/${key.id}`, { disabled: false });
    await eventually(async () => (await create(gateway, key)).status === 200);
  });

  it("that is rotated has a new text, and also the old one during the grace time", async () => {
    const key = await makeKey(gateway, newTenant());
    const graced = await ask<MadeKey>(gateway, "POST", `/v1/admin/keys/${key.id}/rotate`, { grace_seconds: 3600 });
    expect(graced.value).not.toBe(key.value);
    expect(graced.id).toBe(key.id);
    for (const { value } of [key, graced]) expect((await create(gateway, value)).status).toBe(200);
    const last = await ask<MadeKey>(gateway, "POST", `/v1/admin/keys/${key.id}/rotate`, { grace_seconds: 0 });
    for (const { value } of [key, graced]) {
      await eventually(async () => (await create(gateway, value)).status === 401);
    }
    expect((await create(gateway, last.value)).status).toBe(200);
  });

  it("is checked for each turn of a WebSocket: a deleted one ends the connection", async () => {
    const key = await makeKey(gateway, newTenant());
    const socket = await SocketClient.open(gateway, { headers: { authorization: `Bearer ${key.value}` } });
    expect((await socket.turn({ input: "Hello!" })).last.type).toBe("response.completed");
    await ask(gateway, "DELETE", `/v1/admin/keys/${key.id}`);
    const last = await eventually(async () => {
      const { last } = await socket.turn({ input: "Hello!" });
      return last.type === "error" ? last : undefined;
    });
    expect(last).toMatchObject({ status: 401, error: { code: "invalid_api_key" } });
    expect((await socket.closing()).code).toBe(1008);
  });

  it("that is invented is refused without a call of the directory, after the first call", async () => {
    // The isolate has got the secret by which keys are checked.
    await create(gateway, await makeKey(gateway, newTenant()));
    const [id = ""] = gateway.keys.ids();
    const mint = String(gateway.keys.exec(id, "SELECT secret FROM mint")[0]?.secret);
    const invented = Array.from({ length: 50 }, () => mintKey(newMint()));
    for (const key of invented) await expectError(await create(gateway, key), { status: 401, code: "invalid_api_key" });
    // A key with a valid check is looked up, and not found.
    await expectError(await create(gateway, mintKey(mint)), { status: 401, code: "invalid_api_key" });
  });
});

it("is listed once and admits its tenant, also if 200 are created at once", async () => {
  const tenant = newTenant();
  const made = await Promise.all(
    Array.from({ length: 200 }, (_, index) => makeKey(gateway, tenant, undefined, { name: `${index}` })),
  );
  expect(new Set(made.map(({ value }) => value)).size).toBe(200);
  const listed: ShownKey[] = [];
  let after = "";
  for (;;) {
    const page = await ask<Page<ShownKey>>(
      gateway,
      "GET",
      `/v1/admin/keys?tenant=${tenant}&limit=100${after && `&after=${after}`}`,
    );
    listed.push(...page.data);
    if (!page.has_more) break;
    after = page.last_id ?? "";
  }
  expect(listed.map(({ id }) => id).toSorted()).toEqual(made.map(({ id }) => id).toSorted());
  const tried = made.filter((_, index) => index % 50 === 0);
  const answers = await Promise.all(tried.map((key) => call(gateway, "GET", "/v1/models", undefined, key.value)));
  expect(answers.map(({ status }) => status)).toEqual(tried.map(() => 200));
});

it("is not in the audit log, which has each action and its actor, newest first", async () => {
  const tenant = newTenant();
  const key = await makeKey(gateway, tenant, { requests_per_minute: 5 }, { name: "audited" });
  await ask(gateway, "POST", `/v1/admin/keys/${key.id}`, { disabled: false });
  const rotated = await ask<MadeKey>(gateway, "POST", `/v1/admin/keys/${key.id}/rotate`);
  await ask(gateway, "POST", `/v1/admin/tenants/${tenant}`, { limits: { models: ["simulator"] } });
  const client = gateway.client({ apiKey: rotated.value });
  const { id } = await client.responses.create({ model: "simulator", input: "Hello!" });
  await client.responses.delete(id);
  await ask(gateway, "DELETE", `/v1/admin/keys/${key.id}`);
  const rows = async () =>
    (
      await ask<{ data: Record<string, unknown>[] }>(
        gateway,
        "GET",
        `/v1/organization/audit_logs?project_ids=${tenant}`,
      )
    ).data;
  const all = await eventually(async () => ((await rows()).length === 6 ? rows() : undefined));
  expect(all.map(({ type }) => type).toSorted()).toEqual([
    "api_key.created",
    "api_key.deleted",
    "api_key.rotated",
    "api_key.updated",
    "rate_limit.updated",
    "response.deleted",
  ]);
  const created = all.find(({ type }) => type === "api_key.created");
  expect(created).toMatchObject({
    actor: { api_key: { id: "ops" } },
    project: { id: tenant },
    "api_key.created": { id: key.id, changes_requested: { name: "audited", limits: { requests_per_minute: 5 } } },
  });
  const deleted = all.find(({ type }) => type === "response.deleted");
  expect(deleted).toMatchObject({ actor: { api_key: { id: key.id } }, "response.deleted": { id } });
  expect(JSON.stringify(all)).not.toContain(key.value);
  expect(JSON.stringify(all)).not.toContain(rotated.value);
  const ofType = await ask<{ data: { type: string }[] }>(
    gateway,
    "GET",
    `/v1/organization/audit_logs?project_ids=${tenant}&event_types=api_key.rotated,api_key.deleted`,
  );
  expect(ofType.data.map(({ type }) => type)).toEqual(["api_key.deleted", "api_key.rotated"]);
});

it("a deployment with only a root key refuses clients without a key, and creates the first one", async () => {
  const root = `sk-admin-${"0123456789abcdef".repeat(4)}`;
  const other = await startGateway({ ADMIN_KEY: root, ALLOW_ANONYMOUS: "true" });
  try {
    expect((await other.post({ input: "Hello!" })).status).toBe(401);
    for (const wrong of [`${root}0`, root.slice(0, -1), sha256(root)]) {
      expect((await call(other, "POST", "/v1/admin/keys", { tenant: "acme" }, wrong)).status).toBe(401);
    }
    const made = await call(other, "POST", "/v1/admin/keys", { tenant: "acme" }, root);
    const { value } = (await made.json()) as MadeKey;
    expect((await create(other, value)).status).toBe(200);
    const noted = await call(other, "GET", "/v1/organization/audit_logs", undefined, root);
    expect((await noted.json()).data).toMatchObject([{ type: "api_key.created", actor: { api_key: { id: "root" } } }]);
    expect(other.logs()).not.toContain(root);
  } finally {
    await other.close();
  }
});

describe("a deployment that caches keys for ten minutes", () => {
  let believing: Gateway;
  beforeAll(async () => {
    const keys = { one: "key-of-one", other: "key-of-other" };
    const configured = Object.entries(keys).map(([tenant, key]) => `${tenant}:${sha256(key)}`);
    believing = await startWithKeys({ API_KEYS: configured.join(","), KEY_CACHE_MS: "600000" });
  });
  afterAll(() => believing.close());

  const path = ({ id }: MadeKey) => `/v1/admin/keys/${id}`;

  it("refuses a key as soon as it was deleted, disabled or rotated without grace time there", async () => {
    const [deleted, disabled, rotated] = await Promise.all(
      Array.from({ length: 3 }, () => makeKey(believing, newTenant())),
    );
    if (!deleted || !disabled || !rotated) throw new Error("There are three keys.");
    for (const key of [deleted, disabled, rotated]) expect((await create(believing, key)).status).toBe(200);
    await ask(believing, "DELETE", path(deleted));
    expect((await create(believing, deleted)).status).toBe(401);
    await ask(believing, "POST", path(disabled), { disabled: true });
    expect((await create(believing, disabled)).status).toBe(401);
    await ask(believing, "POST", path(disabled), { disabled: false });
    expect((await create(believing, disabled)).status).toBe(200);
    const { value } = await ask<MadeKey>(believing, "POST", `${path(rotated)}/rotate`, { grace_seconds: 0 });
    expect((await create(believing, rotated)).status).toBe(401);
    expect((await create(believing, value)).status).toBe(200);
  });

  it("lists the keys of API_KEYS before its own, and changes none of them", async () => {
    const made = await makeKey(believing, newTenant());
    const list = (query = "") => ask<Page<ShownKey>>(believing, "GET", `/v1/admin/keys?${query}`);
    const { data } = await list("limit=100");
    const configured = data.filter(({ source }) => source === "configuration");
    expect(configured.map(({ tenant }) => tenant).toSorted()).toEqual(["one", "other"]);
    expect(data.slice(0, 2)).toEqual(configured);
    expect(data.at(-1)).toMatchObject({ id: made.id, source: "admin_api" });
    const paged: ShownKey[] = [];
    for (let page = await list("limit=1"); ; page = await list(`limit=1&after=${page.last_id}`)) {
      paged.push(...page.data);
      if (!page.has_more) break;
    }
    expect(paged).toEqual(data);
    expect((await list("tenant=one")).data).toMatchObject([{ tenant: "one", limits: null, disabled: false }]);
    const [key] = configured;
    if (!key) throw new Error("There are two.");
    expect(await ask(believing, "GET", `/v1/admin/keys/${key.id}`)).toEqual(key);
    for (const [method, path, body] of [
      ["POST", "", { disabled: true }],
      ["POST", "/rotate", {}],
      ["DELETE", "", undefined],
    ] as const) {
      const answer = await call(believing, method, `/v1/admin/keys/${key.id}${path}`, body);
      await expectError(answer, { status: 409, code: "configured_key", message: /API_KEYS/ });
    }
  });

  it("applies a tenant's limits to a key of API_KEYS as soon as they are set, and counts its usage", async () => {
    expect((await create(believing, "key-of-one")).status).toBe(200);
    await ask(believing, "POST", "/v1/admin/tenants/one", { limits: { requests_per_minute: 2 } });
    for (const status of [200, 200, 429]) {
      const answer = await create(believing, "key-of-one");
      expect(answer.status).toBe(status);
      // The SDKs accept no longer time than a minute.
      if (status === 429) expect(Number(answer.headers.get("retry-after"))).toBeLessThanOrEqual(60);
      if (status === 429) expect(Number(answer.headers.get("retry-after-ms"))).toBeLessThanOrEqual(60_000);
    }
    expect((await create(believing, "key-of-other")).status).toBe(200);
    const query = `start_time=${Math.floor(Date.now() / 1000) - 3_600}&bucket_width=1h&project_ids=one&group_by=project_id`;
    const used = await eventually(async () => {
      const usage = await ask<{ data: { results: { num_model_requests: number }[] }[] }>(
        believing,
        "GET",
        `/v1/organization/usage/completions?${query}`,
      );
      const requests = usage.data.flatMap(({ results }) => results.map((each) => each.num_model_requests));
      return requests.length > 0 ? requests : undefined;
    });
    // The one before the limits, too.
    expect(used).toEqual([3]);
    await ask(believing, "POST", "/v1/admin/tenants/one", { limits: null });
    expect((await create(believing, "key-of-one")).status).toBe(200);
  });
});
