import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { type CryptoKey, exportJWK, generateKeyPair, type JWK, SignJWT, UnsecuredJWT } from "jose";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { expectError } from "./expectations.ts";
import { ADMIN_KEY, ask, call, create, sha256 } from "./key-support.ts";
import { SocketClient } from "./socket-support.ts";
import { eventually, type Gateway, startGateway } from "./support.ts";

/** An issuer of tokens: its keys, over HTTP, and the number of requests for them. */
class Issuer {
  keys: JWK[] = [];
  asked = 0;
  /** An answer instead of its keys. */
  answer: { status: number; body: string } | "nothing" | undefined;
  url = "";
  readonly #server: Server;

  constructor() {
    this.#server = createServer((_, response) => {
      this.asked += 1;
      if (this.answer === "nothing") return;
      response.writeHead(this.answer?.status ?? 200, { "content-type": "application/json" });
      response.end(this.answer?.body ?? JSON.stringify({ keys: this.keys }));
    });
  }

  async listen(): Promise<void> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    this.url = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/jwks`;
  }

  /** Another key of the issuer's, in its list or not. */
  async newKey(kid: string, listed = true): Promise<CryptoKey> {
    const { publicKey, privateKey } = await generateKeyPair("ES256");
    if (listed) this.keys.push({ ...(await exportJWK(publicKey)), kid, alg: "ES256", use: "sig" });
    return privateKey;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}

const ISSUER = "https://id.acme.dev/";
const AUDIENCE = "responses";

interface Claims {
  issuer?: string;
  audience?: string;
  tenant?: unknown;
  roles?: unknown;
  expires?: string | number;
  notBefore?: string | number;
  kid?: string;
}

function token(key: CryptoKey | Uint8Array, claims: Claims = {}, alg = "ES256"): Promise<string> {
  const { issuer = ISSUER, audience = AUDIENCE, expires = "1h", notBefore, kid = "one", roles } = claims;
  const jwt = new SignJWT({ org: "tenant" in claims ? claims.tenant : "acme", groups: roles, sub: "eve@acme.dev" })
    .setProtectedHeader({ alg, kid })
    .setIssuer(issuer)
    .setAudience(audience)
    .setExpirationTime(expires);
  if (notBefore !== undefined) jwt.setNotBefore(notBefore);
  return jwt.sign(key);
}

function gatewayOf(issuer: Issuer, vars: Record<string, string> = {}): Promise<Gateway> {
  return startGateway({
    JWT_ISSUER: ISSUER,
    JWT_AUDIENCE: AUDIENCE,
    JWT_JWKS_URL: issuer.url,
    JWT_TENANT_CLAIM: "org",
    JWT_TENANTS: "shared",
    ...vars,
  });
}

/** The variables with a root key, and a key of a tenant that tokens name, too. */
const WITH_KEYS = { ADMIN_KEY, KEY_CACHE_MS: "100", API_KEYS: `acme:${sha256("key-of-acme")}` };

const issuer = new Issuer();
let gateway: Gateway;
let key: CryptoKey;
beforeAll(async () => {
  await issuer.listen();
  key = await issuer.newKey("one");
  const JWT_ROLES = JSON.stringify({ audit: "auditor", admins: "owner", leads: "tenant_admin" });
  gateway = await gatewayOf(issuer, {
    ...{ ...WITH_KEYS, JWT_TENANTS: "shared", JWT_ROLES, JWT_ROLE_CLAIM: "groups" },
    RESPONSE_INDEX: "true",
  });
});
afterAll(async () => {
  await gateway.close();
  issuer.close();
});

describe("a token of the issuer", () => {
  it("has its usage and its requests counted without limits, for a root key that names no tenant", async () => {
    const ida = gateway.client({ apiKey: await token(key, { tenant: "ida" }) });
    const { id, usage } = await ida.responses.create({ model: "simulator", input: "Hello!" });
    const from = Math.floor(Date.now() / 1000) - 86_400;
    const path = `/v1/organization/usage/completions?start_time=${from}&group_by=project_id,api_key_id`;
    const counted = await eventually(async () => {
      const { data } = await ask<{ data: { results: { project_id: string }[] }[] }>(gateway, "GET", path);
      return data.flatMap(({ results }) => results).find((result) => result.project_id === "ida");
    });
    expect(counted).toMatchObject({ api_key_id: "jwt", input_tokens: usage?.input_tokens, num_model_requests: 1 });
    const requests = await eventually(async () => {
      const { data } = await ask<{ data: object[] }>(gateway, "GET", "/v1/admin/requests?tenant=ida");
      return data.length > 0 ? data : undefined;
    });
    expect(requests).toMatchObject([{ response_id: id, api_key_id: "jwt", status: "completed" }]);
    // An auditor reads those of all tenants, an administrator of a tenant its own, and a tenant its own.
    const readers = {
      auditor: { roles: ["audit"] },
      lead: { roles: ["leads"], tenant: "ida" },
      own: { tenant: "ida" },
    };
    const others = { lead: { roles: ["leads"], tenant: "eve" }, own: { tenant: "eve" } };
    const seen = async (claims: Claims) => {
      const answer = await call(gateway, "GET", "/v1/admin/requests?tenant=ida", undefined, await token(key, claims));
      return ((await answer.json()) as { data: object[] }).data.length;
    };
    for (const claims of Object.values(readers)) expect(await seen(claims)).toBe(1);
    for (const claims of Object.values(others)) expect(await seen(claims)).toBe(0);
  });

  it("admits the tenant in its claim: if tenants are shared, the same tenant as a key's", async () => {
    const client = gateway.client({ apiKey: await token(key) });
    const { id } = await client.responses.create({ model: "simulator", input: "Hello!" });
    expect((await gateway.client({ apiKey: "key-of-acme" }).responses.retrieve(id)).id).toBe(id);
    const other = gateway.client({ apiKey: await token(key, { tenant: "other" }) });
    await expect(other.responses.retrieve(id)).rejects.toMatchObject({ status: 404 });
  });

  it("is verified once: the same one again makes no call, and the issuer is asked once for all", async () => {
    const before = issuer.asked;
    for (let turn = 0; turn < 20; turn += 1) expect((await create(gateway, await token(key))).status).toBe(200);
    expect(issuer.asked).toBe(before);
    expect(before).toBe(1);
  });

  it("has its tenant's limits", async () => {
    await ask(gateway, "POST", "/v1/admin/tenants/bound", { limits: { requests_per_minute: 2 } });
    const bound = await token(key, { tenant: "bound" });
    const statuses = [];
    for (let turn = 0; turn < 3; turn += 1) statuses.push((await create(gateway, bound)).status);
    expect(statuses).toEqual([200, 200, 429]);
  });

  it("has its tenant and the role in its claim; its changes are in the audit log under its subject", async () => {
    const auditor = await token(key, { roles: ["others", "audit"] });
    expect((await call(gateway, "GET", "/v1/admin/keys", undefined, auditor)).status).toBe(200);
    const refused = await call(gateway, "POST", "/v1/admin/keys", { tenant: "acme" }, auditor);
    await expectError(refused, { status: 403, code: "insufficient_permissions", message: /auditor/ });
    expect((await create(gateway, auditor)).status).toBe(200);
    const owner = await token(key, { roles: "admins", tenant: undefined });
    expect((await call(gateway, "POST", "/v1/admin/keys", { tenant: "named" }, owner)).status).toBe(200);
    await expectError(await create(gateway, owner), { status: 403, code: "insufficient_permissions" });
    const log = await ask<{ data: object[] }>(gateway, "GET", "/v1/organization/audit_logs?limit=1&project_ids=named");
    expect(log.data[0]).toMatchObject({ actor: { type: "session", session: { user: { id: "eve@acme.dev" } } } });
  });

  it("administers only its own tenant if that is its role, and nothing without a role", async () => {
    const lead = await token(key, { roles: ["leads"] });
    expect((await call(gateway, "POST", "/v1/admin/keys", { tenant: "acme" }, lead)).status).toBe(200);
    const other = await call(gateway, "POST", "/v1/admin/keys", { tenant: "other" }, lead);
    await expectError(other, { status: 403, code: "insufficient_permissions" });
    for (const roles of [undefined, [], "owner", ["toString"], { leads: true }]) {
      const nobody = await call(gateway, "GET", "/v1/admin/keys", undefined, await token(key, { roles }));
      expect(nobody.status).toBe(403);
    }
  });

  it("administers without any root key", async () => {
    const JWT_ROLES = JSON.stringify({ admins: "owner" });
    const other = await gatewayOf(issuer, { JWT_ROLES, JWT_ROLE_CLAIM: "groups" });
    try {
      const owner = await token(key, { roles: "admins", tenant: undefined });
      const made = await call(other, "POST", "/v1/admin/keys", { tenant: "acme" }, owner);
      const { value } = (await made.json()) as { value: string };
      expect((await create(other, value)).status).toBe(200);
    } finally {
      await other.close();
    }
  });

  it("has a tenant of its own if tenants are not shared", async () => {
    const own = await gatewayOf(issuer, { ...WITH_KEYS, JWT_TENANTS: "own" });
    try {
      const client = own.client({ apiKey: await token(key) });
      const { id } = await client.responses.create({ model: "simulator", input: "Hello!" });
      expect((await client.responses.retrieve(id)).id).toBe(id);
      const withKey = own.client({ apiKey: "key-of-acme" });
      await expect(withKey.responses.retrieve(id)).rejects.toMatchObject({ status: 404 });
      // No claim leads out of that tenant.
      for (const tenant of ["jwt.acme", "acme:x", "../acme"]) {
        expect((await create(own, await token(key, { tenant }))).status).toBe(401);
      }
      await ask(own, "POST", "/v1/admin/tenants/jwt.acme", { limits: { requests_per_minute: 0 } });
      await eventually(async () => (await create(own, await token(key))).status === 429);
      expect((await create(own, "key-of-acme")).status).toBe(200);
    } finally {
      await own.close();
    }
  });

  it("opens a WebSocket, too", async () => {
    const headers = { authorization: `Bearer ${await token(key)}` };
    const socket = await SocketClient.open(gateway, { headers });
    expect((await socket.turn({ input: "Hello!" })).last.type).toBe("response.completed");
    await socket.close();
  });

  it("is not a root key: 403", async () => {
    const answer = await gateway.fetch(`${gateway.url}/v1/admin/keys`, {
      headers: { authorization: `Bearer ${await token(key)}` },
    });
    await expectError(answer, { status: 403, code: "insufficient_permissions" });
  });

  it("with a new key is accepted as soon as the issuer lists it; unknown keys cause no more requests", async () => {
    const stranger = await issuer.newKey("unlisted", false);
    const renewed = await gatewayOf(issuer);
    try {
      expect((await create(renewed, await token(key))).status).toBe(200);
      const before = issuer.asked;
      for (let turn = 0; turn < 20; turn += 1) {
        const answer = await create(renewed, await token(stranger, { kid: `unknown-${turn}` }));
        await expectError(answer, { status: 401, code: "invalid_token", message: /nobody knows its key/ });
      }
      // The rate is bounded: 20 tokens at once cause one request, or two.
      expect(issuer.asked - before).toBeLessThanOrEqual(2);
    } finally {
      await renewed.close();
    }
  });
});

describe("an invalid token", () => {
  const bad: [what: string, make: () => Promise<string> | string, message: RegExp][] = [
    ["an expired one", () => token(key, { expires: Math.floor(Date.now() / 1000) - 120 }), /expired/],
    ["one that is not valid yet", () => token(key, { notBefore: "10m" }), /'nbf'/],
    ["one of another issuer", () => token(key, { issuer: "https://evil.dev/" }), /'iss'/],
    ["one for another audience", () => token(key, { audience: "others" }), /'aud'/],
    ["one that names no tenant", () => token(key, { tenant: undefined }), /'org' names no tenant/],
    ["one whose tenant is no name", () => token(key, { tenant: "acme:x" }), /'org' names no tenant/],
    ["one whose tenant is a list", () => token(key, { tenant: ["acme"] }), /'org' names no tenant/],
    [
      "one without a signature (alg: none)",
      () => new UnsecuredJWT({ org: "acme" }).setIssuer(ISSUER).setAudience(AUDIENCE).setExpirationTime("1h").encode(),
      /algorithm/,
    ],
    [
      "one that is signed with the public key as a secret (HS256)",
      () => token(new TextEncoder().encode(JSON.stringify(issuer.keys[0])), {}, "HS256"),
      /algorithm/,
    ],
    [
      "one that somebody else has signed under the key's name",
      async () => token((await generateKeyPair("ES256")).privateKey),
      /signature/,
    ],
    [
      "one of another algorithm than the operator's",
      async () => token((await generateKeyPair("ES384")).privateKey, {}, "ES384"),
      /algorithm/,
    ],
    [
      "one whose claims were changed",
      async () => {
        const [head, , signature] = (await token(key)).split(".");
        const claims = { org: "other", iss: ISSUER, aud: AUDIENCE, exp: 4e9 };
        return [head, Buffer.from(JSON.stringify(claims)).toString("base64url"), signature].join(".");
      },
      /signature/,
    ],
    [
      "one that never ends",
      async () => {
        const jwt = new SignJWT({ org: "acme" }).setProtectedHeader({ alg: "ES256", kid: "one" });
        return jwt.setIssuer(ISSUER).setAudience(AUDIENCE).sign(key);
      },
      /'exp'/,
    ],
    ["a header that is no JSON", () => "eyJhbGciOiJ.e30.x", /malformed/],
    ["a very long one", () => `eyJ${"a".repeat(9_000)}.e30.x`, /too long/],
  ];
  it.each(bad)("%s is a 401 that says so", async (_, make, message) => {
    const text = await make();
    const answer = await create(gateway, text);
    expect(answer.headers.get("www-authenticate")).toContain("Bearer");
    const body = await answer.clone().text();
    await expectError(answer, { status: 401, code: "invalid_token", message });
    expect(body).not.toContain(text.slice(10));
  });

  it("a token's tenant is not looked up in a deployment without an issuer", async () => {
    const other = await startGateway({ API_KEYS: `acme:${sha256("key-of-acme")}` });
    try {
      await expectError(await create(other, await token(key)), { status: 401, code: "invalid_api_key" });
    } finally {
      await other.close();
    }
  });
});

/** test/unit/fake-timers/jwt.test.ts has other failures to get them, and the rate of attempts. */
describe("an issuer whose keys are not available", () => {
  it("because it redirects: tokens are a 503; keys of the configuration still work", async () => {
    const down = new Issuer();
    await down.listen();
    down.answer = { status: 302, body: "" };
    const other = await gatewayOf(down, { API_KEYS: `acme:${sha256("key-of-acme")}` });
    try {
      const refused = await create(other, await token(key));
      expect(refused.headers.get("retry-after")).toMatch(/^\d+$/);
      await expectError(refused, { status: 503, code: "token_keys_unavailable" });
      expect((await create(other, "key-of-acme")).status).toBe(200);
    } finally {
      await other.close();
      down.close();
    }
  });

  it("but were fetched before: tokens are still accepted", async () => {
    const falling = new Issuer();
    await falling.listen();
    falling.keys = issuer.keys;
    const other = await gatewayOf(falling);
    try {
      expect((await create(other, await token(key))).status).toBe(200);
      falling.answer = { status: 503, body: "" };
      expect((await create(other, await token(key, { tenant: "another" }))).status).toBe(200);
    } finally {
      await other.close();
      falling.close();
    }
  });
});
