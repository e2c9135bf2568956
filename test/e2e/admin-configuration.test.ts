import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { expectError } from "./expectations.ts";
import { type Fleet, startFleet } from "./fleet.ts";
import { ADMIN_KEY, ask, call, sha256 } from "./key-support.ts";

/** Administrators change the configuration while the server runs: servers, routes and prices. */

const KEY = "key-of-acme";
const AUDITOR = "key-of-an-auditor";
const PATH = "/v1/admin/configuration";

interface Shown {
  version: number;
  values: { upstreams: Record<string, Record<string, unknown>>; routes?: object; model_aliases?: object };
  sources: Record<string, string[]>;
  overrides: object;
}

let fleet: Fleet;
let client: ReturnType<Fleet["client"]>;
beforeAll(async () => {
  fleet = await startFleet({
    servers: { a: { fields: { api_key: "key-of-a" } }, b: {}, spare: { fields: { drain: true } } },
    variables: {
      ALLOW_ANONYMOUS: "",
      API_KEYS: `acme:${sha256(KEY)}`,
      ADMIN_KEY: `${ADMIN_KEY},audit:${sha256(AUDITOR)}:auditor`,
      MODEL_ALIASES: '{"best":"simulator"}',
      VLLM_API_KEY: "key-of-all",
      UNSALTED_SERVERS: "warn",
    },
  });
  client = fleet.client({ apiKey: KEY });
});
afterAll(() => fleet.close());

const change = (body: object) => ask<Shown>(fleet, "POST", PATH, body);

/** The servers of a few new conversations. */
async function serversOf(model = "simulator"): Promise<string[]> {
  fleet.clear();
  for (let turn = 0; turn < 12; turn += 1) await client.responses.create({ model, input: `Hello ${turn}!` });
  return fleet.servers();
}

describe("the admin API", () => {
  it("shows the present configuration, its sources, and no secret", async () => {
    const shown = await ask<Shown>(fleet, "GET", PATH);
    expect(shown).toMatchObject({
      version: 0,
      values: {
        upstreams: { a: { api_key: "****" }, b: {}, spare: { drain: true } },
        model_aliases: { best: "simulator" },
      },
      sources: { upstreams: ["environment"], model_aliases: ["environment"], routes: [] },
      overrides: {},
    });
    expect(JSON.stringify(shown)).not.toContain("key-of-a");
  });

  it("drains, adds and removes servers, and resets changes, from the next request on", async () => {
    expect(await serversOf()).toEqual(["a", "b"]);
    await change({ upstreams: { a: { drain: true }, spare: { drain: false } } });
    expect(await serversOf()).toEqual(["b", "spare"]);
    const { values } = await change({ upstreams: { b: false } });
    expect(Object.keys(values.upstreams)).toEqual(["a", "spare"]);
    expect(await serversOf()).toEqual(["spare"]);
    const back = await change({ upstreams: { a: null, b: null, spare: null } });
    expect(back).toMatchObject({ overrides: {}, sources: { upstreams: ["environment"] } });
    expect(await serversOf()).toEqual(["a", "b"]);
  });

  it("sends a changed address neither the server's key nor the shared one", async () => {
    const url = `${fleet.replicas[1]?.url}/v1/`;
    await change({ upstreams: { b: false, a: { url } } });
    const { values } = await ask<Shown>(fleet, "GET", PATH);
    expect(values.upstreams.a).toMatchObject({ url, api_key: null, headers: {} });
    expect(await serversOf()).toEqual(["b"]);
    await change({ upstreams: { a: null, b: null } });
  });

  it("makes routes, and removes those of other sources", async () => {
    await change({ routes: { canary: { to: [{ model: "simulator" }], fallbacks: ["best"] }, best: false } });
    expect((await client.responses.create({ model: "canary", input: "Hello!" })).model).toBe("canary");
    await expect(client.responses.create({ model: "best", input: "Hello!" })).rejects.toMatchObject({ status: 400 });
    await change({ routes: { canary: null, best: null } });
    expect((await client.responses.create({ model: "best", input: "Hello!" })).model).toBe("best");
  });

  it("refuses a change that makes the whole configuration invalid, and changes nothing", async () => {
    const before = await ask<Shown>(fleet, "GET", PATH);
    const none = { a: { drain: true }, b: { weight: 0 } };
    await expectError(await call(fleet, "POST", PATH, { upstreams: none }), {
      status: 400,
      code: "invalid_configuration",
    });
    const wrong = [
      { upstreams: { new: { url: "nowhere" } } },
      { routes: { x: { fallback: ["a"] } } },
      { api_keys: {} },
    ];
    for (const body of wrong) expect((await call(fleet, "POST", PATH, body)).status).toBe(400);
    expect(await ask<Shown>(fleet, "GET", PATH)).toEqual(before);
  });

  it("lets an operator change it and an auditor read it, and logs each change without its secrets", async () => {
    expect((await call(fleet, "GET", PATH, undefined, AUDITOR)).status).toBe(200);
    await expectError(await call(fleet, "POST", PATH, {}, AUDITOR), { status: 403, code: "insufficient_permissions" });
    await expectError(await call(fleet, "GET", PATH, undefined, KEY), {
      status: 403,
      code: "insufficient_permissions",
    });
    await change({ upstreams: { a: { weight: 3, api_key: "another-key" } } });
    const log = await ask<{ data: { type: string }[] }>(fleet, "GET", "/v1/organization/audit_logs?limit=1");
    expect(log.data[0]).toMatchObject({ type: "configuration.updated", actor: { api_key: { id: "ops" } } });
    expect(JSON.stringify(log.data[0])).toMatch(/"weight":3.*\*\*\*\*/);
    expect(JSON.stringify(log.data[0])).not.toContain("another-key");
  });
});
