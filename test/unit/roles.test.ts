import { createExecutionContext, waitOnExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { createHash } from "node:crypto";
import { beforeAll, describe, expect, it } from "vitest";
import keysDocument from "../../docs/keys.md?raw";
import type { Env } from "../../src/env.ts";
import app from "../../src/http/app.ts";
import { endpoints } from "../../src/http/endpoints.ts";
import { withObjects } from "../../src/store/objects/objects.ts";

/** The permissions of roles in the admin API, by the table in docs/keys.md: every role calls every endpoint. */

const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");

const ROLES = ["owner", "operator", "auditor", "tenant_admin"] as const;
type Role = (typeof ROLES)[number];

let bindings: Env;
beforeAll(() => {
  const entries = ROLES.map((role) => `${role}-key:${sha256(role)}:${role}${role === "tenant_admin" ? ":acme" : ""}`);
  const variables = { ALLOW_ANONYMOUS: "false", ADMIN_KEY: entries.join(","), KEY_CACHE_MS: "600000" };
  bindings = withObjects({ ...env, ...variables });
});

async function send(method: string, path: string, key: string, body?: object | string): Promise<Response> {
  const context = createExecutionContext();
  const type = typeof body === "string" ? "application/jsonl" : "application/json";
  const headers = { "content-type": type, authorization: `Bearer ${key}` };
  const text = typeof body === "object" ? JSON.stringify(body) : body;
  const request = new Request(`http://localhost${path}`, {
    method,
    headers,
    ...(text !== undefined && { body: text }),
  });
  const answer = await app.fetch(request, bindings, context);
  const copy = new Response(await answer.text(), answer);
  await waitOnExecutionContext(context);
  return copy;
}

const codeOf = async (answer: Response) => (await answer.json<{ error?: { code: string } }>()).error?.code;

/** Rows of the table of roles: an endpoint, and a mark for each role. */
const documented = new Map(
  keysDocument
    .split("\n")
    .filter((line) => /^\| `(GET|POST|DELETE) .*\| (yes|–|its own)/.test(line))
    .flatMap((line) => {
      const [, calls = "", ...marks] = line.split("|").map((cell) => cell.trim());
      return [...calls.matchAll(/`([A-Z]+ [^`]+)`/g)].map(
        ([, call = ""]) => [call, marks.slice(0, ROLES.length)] as const,
      );
    }),
);

const declared = endpoints.filter(
  ({ path, operation: { access } }) => access === "root" || path.startsWith("/v1/admin/"),
);
const named = ({ method, path }: (typeof endpoints)[number]) => `${method} ${path.replaceAll(/:(\w+)/g, "{$1}")}`;

it("docs/keys.md has every endpoint of the admin API", () => {
  expect([...documented.keys()].toSorted()).toEqual(declared.map(named).toSorted());
});

const cases = declared.flatMap((endpoint) =>
  ROLES.map((role, index) => ({ name: named(endpoint), endpoint, role, index })),
);

it.each(cases)("$role: $name", async ({ name, endpoint: { method, path }, role, index }) => {
  const mark = documented.get(name)?.[index];
  const asked = path.replace(":tenant", "acme").replace(":id", "key_none");
  const answer = await send(method, asked, role, method === "POST" ? { tenant: 7 } : undefined);
  const code = answer.ok ? undefined : await codeOf(answer);
  if (mark === "–") expect([answer.status, code]).toEqual([403, "insufficient_permissions"]);
  else expect([mark === "yes" || mark === "its own", answer.status, code]).not.toEqual([true, 403, code]);
  expect(mark).toBeDefined();
  // Only roles for all tenants may use another tenant's path.
  if (!path.includes(":tenant") || mark !== "its own") return;
  const other = await send(method, path.replace(":tenant", "beta"), role, method === "POST" ? {} : undefined);
  expect([other.status, await codeOf(other)]).toEqual([403, "insufficient_permissions"]);
});

describe("a tenant's administrator", () => {
  interface Made {
    id: string;
    value: string;
  }
  const make = async (tenant: string, by: Role = "owner") => {
    return (await send("POST", "/v1/admin/keys", by, { tenant })).json<Made>();
  };

  it("creates and changes keys of its tenant; those of others are a 404, and in no list", async () => {
    const other = await make("beta");
    const own = await make("acme", "tenant_admin");
    expect((await send("POST", `/v1/admin/keys/${own.id}`, "tenant_admin", { disabled: true })).status).toBe(200);
    const calls = [
      send("GET", `/v1/admin/keys/${other.id}`, "tenant_admin"),
      send("POST", `/v1/admin/keys/${other.id}`, "tenant_admin", { disabled: true }),
      send("POST", `/v1/admin/keys/${other.id}/rotate`, "tenant_admin", {}),
      send("DELETE", `/v1/admin/keys/${other.id}`, "tenant_admin"),
    ];
    for (const answer of await Promise.all(calls)) {
      expect([answer.status, await codeOf(answer)]).toEqual([404, "api_key_not_found"]);
    }
    const kept = await (await send("GET", `/v1/admin/keys/${other.id}`, "owner")).json<{ disabled: boolean }>();
    expect(kept.disabled).toBe(false);
    const listed = await send("GET", "/v1/admin/keys?limit=100&tenant=beta", "tenant_admin");
    const { data } = await listed.json<{ data: { tenant: string }[] }>();
    expect([...new Set(data.map(({ tenant }) => tenant))]).toEqual(["acme"]);
  });

  it.each([
    ["a key of another tenant", { tenant: "beta" }, "tenant"],
    [
      "fields of a model server that are closed to its tenant",
      { tenant: "acme", limits: { vllm_extras: ["priority"] } },
      "limits.vllm_extras",
    ],
    ["a tier", { tenant: "acme", limits: { tier: "gold" } }, "limits.tier"],
  ])("cannot create %s", async (_, body, param) => {
    const answer = await send("POST", "/v1/admin/keys", "tenant_admin", body);
    const { error } = await answer.json<{ error: { code: string; param: string } }>();
    expect([answer.status, error.code, error.param]).toEqual([403, "insufficient_permissions", param]);
  });

  it("reads only the audit log and the usage of its tenant", async () => {
    await make("beta");
    await make("acme");
    const log = await send("GET", "/v1/organization/audit_logs?limit=100&project_ids=beta", "tenant_admin");
    const rows = (await log.json<{ data: { project: { id: string } }[] }>()).data;
    expect([...new Set(rows.map(({ project }) => project.id))]).toEqual(["acme"]);
    const usage = await send(
      "GET",
      "/v1/organization/usage/storage?project_ids=beta&group_by=project_id",
      "tenant_admin",
    );
    expect(usage.status).toBe(200);
    expect(await usage.text()).not.toContain("beta");
  });
});

describe("the audit log", () => {
  /** A change of each kind, by the endpoint that makes it. `test/e2e/live-runs.test.ts` cancels a run. */
  const CHANGES: Record<string, [type: string, body?: object]> = {
    "POST /v1/admin/keys": ["api_key.created", { tenant: "noted" }],
    "POST /v1/admin/keys/{id}": ["api_key.updated", { name: "other" }],
    "POST /v1/admin/keys/{id}/rotate": ["api_key.rotated", {}],
    "DELETE /v1/admin/keys/{id}": ["api_key.deleted"],
    "POST /v1/admin/tenants/{tenant}": ["rate_limit.updated", { limits: { requests_per_minute: 5 } }],
    "GET /v1/admin/tenants/{tenant}/export": ["tenant.exported"],
    "POST /v1/admin/tenants/{tenant}/import": [
      "tenant.imported",
      { object: "export.page", has_more: false, next: null },
    ],
    "DELETE /v1/admin/tenants/{tenant}": ["tenant.erased"],
    "POST /v1/admin/configuration": ["configuration.updated", { model_prices: { noted: { input: 1, output: 1 } } }],
  };

  it("has a change of each endpoint that makes one", () => {
    const changing = declared.map(named).filter((name) => !name.startsWith("GET ") && !name.includes("/runs/"));
    expect(Object.keys(CHANGES)).toEqual(expect.arrayContaining(changing));
  });

  it.each(Object.entries(CHANGES))("names who did it: %s", async (name, [type, body]) => {
    const { id } = await (await send("POST", "/v1/admin/keys", "owner", { tenant: "noted" })).json<{ id: string }>();
    const [method = "", path = ""] = name.replace("{id}", id).replace("{tenant}", "noted").split(" ");
    const answer = await send(method, path, "owner", path.endsWith("/import") ? `${JSON.stringify(body)}\n` : body);
    expect([answer.status, await answer.text()]).toEqual([200, expect.anything()]);
    const log = await send("GET", "/v1/organization/audit_logs?limit=1", "auditor");
    const [row] = (await log.json<{ data: Record<string, unknown>[] }>()).data;
    expect(row).toMatchObject({ type, actor: { type: "api_key", api_key: { id: "owner-key" } } });
    expect(row).toHaveProperty([type]);
  });
});
