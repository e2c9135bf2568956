import { createExecutionContext, runInDurableObject, waitOnExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { createHash } from "node:crypto";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { createSimulator } from "../../dev/simulator/handler.ts";
import type { Grants } from "../../src/contract/grants.ts";
import type { Env } from "../../src/env.ts";
import app from "../../src/http/app.ts";
import { mintKey, newMint } from "../../src/store/deployment/keys/api-keys.ts";
import { withObjects } from "../../src/store/objects/objects.ts";

/**
 * The cost of keys and limits for a request: the Worker's calls of objects, and the rows that these write
 * (docs/cost.md).
 */

const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");

let calls: string[] = [];
let rows: string[] = [];
/** The storages of this file's quotas. Other files' objects write in the same isolate at any time. */
const quotas = new WeakSet<SqlStorage>();
let bindings: Env;
let restore = () => {};

/** A namespace whose stubs note their calls. */
function counted<Namespace extends DurableObjectNamespace<Rpc.DurableObjectBranded>>(of: Namespace): Namespace {
  return new Proxy(of, {
    get: (namespace, property) => {
      if (property !== "getByName") return Reflect.get(namespace, property);
      return (name: string) => {
        const stub = namespace.getByName(name);
        return new Proxy(stub, {
          get:
            (target, method) =>
            (...given: unknown[]) => {
              calls.push(String(method));
              return (target as unknown as Record<string, (...args: unknown[]) => unknown>)[String(method)]?.(...given);
            },
        });
      };
    },
  });
}

beforeAll(async () => {
  const simulator = createSimulator();
  const VLLM = { fetch: (url: string, init: RequestInit) => simulator.fetch(new Request(url, init)) } as Env["VLLM"];
  bindings = withObjects({
    ...env,
    VLLM,
    ALLOW_ANONYMOUS: "false",
    API_KEYS: ["configured", "first"].map((key) => `${key}:${sha256(key)}`).join(","),
    ADMIN_KEY: `ops:${sha256("root")}`,
    KEY_CACHE_MS: "600000",
    KEYS: counted(env.KEYS),
    QUOTAS: counted(env.QUOTAS),
  });
  await runInDurableObject(env.QUOTAS.getByName("any"), (_, { storage: { sql } }) => {
    const prototype = Object.getPrototypeOf(sql) as SqlStorage;
    const { exec } = prototype;
    restore = () => {
      prototype.exec = exec;
    };
    prototype.exec = function (this: SqlStorage, query: string, ...given: unknown[]) {
      const cursor = exec.call(this, query, ...given);
      const table = /^\s*(?:INSERT INTO|DELETE FROM|UPDATE) (\w+)/.exec(query)?.[1];
      if (table && quotas.has(this)) rows.push(...Array.from({ length: cursor.rowsWritten }, () => table));
      return cursor;
    } as SqlStorage["exec"];
  });
  // Another file may have changed the configuration: the first request of these bindings reads it.
  await create("first");
});

// Other files run in the same isolate.
afterAll(() => restore());

beforeEach(() => {
  calls = [];
  rows = [];
});

async function send(path: string, key: string, body: object): Promise<Response> {
  const context = createExecutionContext();
  const headers = { "content-type": "application/json", authorization: `Bearer ${key}` };
  const request = new Request(`http://localhost${path}`, { method: "POST", headers, body: JSON.stringify(body) });
  const answer = await app.fetch(request, bindings, context);
  const copy = new Response(await answer.text(), answer);
  // Includes the reports after the answer.
  await waitOnExecutionContext(context);
  return copy;
}

const create = (key: string) => send("/v1/responses", key, { model: "simulator", input: "Hello!", store: false });

let tenants = 0;

async function keyOf(limits?: Partial<Grants>, ofTenant?: Partial<Grants>): Promise<string> {
  tenants += 1;
  const tenant = `cost-${tenants}`;
  if (ofTenant) await send(`/v1/admin/tenants/${tenant}`, "root", { limits: ofTenant });
  const made = await send("/v1/admin/keys", "root", { tenant, ...(limits && { limits }) });
  const { value } = await made.json<{ value: string }>();
  // The isolate knows the key from now on, and its quota has its tables.
  expect((await create(value)).status).toBe(200);
  await runInDurableObject(env.QUOTAS.getByName(tenant), (_, { storage }) => void quotas.add(storage.sql));
  calls = [];
  rows = [];
  return value;
}

describe("a request costs", () => {
  it("one call beside its answer with a key of the configuration; the first one reads its tenant's limits", async () => {
    expect((await create("configured")).status).toBe(200);
    expect(calls).toEqual(["lookUpTenant", "exchange"]);
    await runInDurableObject(env.QUOTAS.getByName("configured"), (_, { storage }) => void quotas.add(storage.sql));
    calls = [];
    expect((await create("configured")).status).toBe(200);
    expect({ calls, rows }).toEqual({ calls: ["exchange"], rows: ["used"] });
  });

  it("no other call of a quota with a key without limits, also where tenants have a share of the disk", async () => {
    bindings = { ...bindings, DISK_SHARE: "1000000" };
    for (let turn = 0; turn < 2; turn += 1) {
      const stored = await send("/v1/responses", "configured", { model: "simulator", input: "Hello!" });
      expect(stored.status).toBe(200);
    }
    // The isolate asks for changes of the configuration from time to time.
    expect(calls.filter((method) => method !== "overrides")).toEqual(["lookUpTenant", "exchange", "exchange"]);
  });

  it("one call beside its answer with a key without counted limits, and one row", async () => {
    const key = await keyOf({ models: ["sim*"], max_output_tokens: 100, force_store_false: true });
    expect((await create(key)).status).toBe(200);
    expect({ calls, rows }).toEqual({ calls: ["exchange"], rows: ["used"] });
  });

  it("one call for all that end within a second", async () => {
    const key = await keyOf();
    const answers = await Promise.all(Array.from({ length: 60 }, () => create(key)));
    expect(answers.every(({ status }) => status === 200)).toBe(true);
    expect({ calls, rows }).toEqual({ calls: ["exchange"], rows: ["used"] });
  });

  it("no call with a read", async () => {
    const key = await keyOf();
    const context = createExecutionContext();
    const read = { headers: { authorization: `Bearer ${key}` } };
    expect((await app.request("/v1/models", read, bindings, context)).status).toBe(200);
    await waitOnExecutionContext(context);
    expect(calls).toEqual([]);
  });

  it("two calls with a rarely used key with limits, one to reserve and one to report, and three rows", async () => {
    const key = await keyOf({ requests_per_minute: 1_000, tokens_per_minute: 1_000_000 });
    expect((await create(key)).status).toBe(200);
    expect(calls).toEqual(["exchange", "exchange"]);
    expect(rows.toSorted()).toEqual(["accounts", "accounts", "used"]);
  });

  it("one row more if its tenant has limits, too", async () => {
    const key = await keyOf({ requests_per_minute: 1_000 }, { tokens_per_minute: 1_000_000 });
    expect((await create(key)).status).toBe(200);
    expect(calls).toEqual(["exchange", "exchange"]);
    expect(rows.toSorted()).toEqual(["accounts", "accounts", "accounts", "used"]);
  });

  it("less than a tenth of a call with a frequently used key", async () => {
    const key = await keyOf({ requests_per_minute: 100_000 });
    for (let turn = 0; turn < 3; turn += 1) {
      const answers = await Promise.all(Array.from({ length: 60 }, () => create(key)));
      expect(answers.every(({ status }) => status === 200)).toBe(true);
    }
    expect(calls.length).toBeLessThan(18);
  });

  it("one call with a key that this isolate does not know", async () => {
    const made = await send("/v1/admin/keys", "root", { tenant: "cost-new" });
    const { value } = await made.json<{ value: string }>();
    calls = [];
    for (let turn = 0; turn < 2; turn += 1) await create(value);
    expect(calls.filter((method) => method !== "exchange")).toEqual(["lookUp"]);
  });

  it("no call with an invented key, 2,000 times", async () => {
    await keyOf();
    const forged = newMint();
    const statuses = new Set<number>();
    for (let index = 0; index < 2_000; index += 500) {
      const answers = Array.from({ length: 500 }, () =>
        app.request(
          "/v1/models",
          { headers: { authorization: `Bearer ${mintKey(forged)}` } },
          bindings,
          createExecutionContext(),
        ),
      );
      for (const { status } of await Promise.all(answers)) statuses.add(status);
    }
    expect([...statuses]).toEqual([401]);
    expect(calls).toEqual([]);
  });
});
