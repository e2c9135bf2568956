import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { expectError } from "./expectations.ts";
import { ADMIN_KEY, makeKey, newTenant, ROOT } from "./key-support.ts";
import { OidcIssuer } from "./oidc-issuer.ts";
import { SocketClient } from "./socket-support.ts";
import { altered, type Gateway, startGateway } from "./support.ts";

/** Signing in to the console at an OpenID Provider, by the requests of a browser. */

const REDIRECT_URL = "http://gateway.test/console/callback";

let issuer: OidcIssuer;
let gateway: Gateway;
beforeAll(async () => {
  issuer = await OidcIssuer.start(REDIRECT_URL);
  gateway = await startGateway({ ADMIN_KEY, KEY_CACHE_MS: "100", ...issuer.variables(REDIRECT_URL) });
});
afterAll(async () => {
  await gateway.close();
  issuer.close();
});
beforeEach(() => {
  issuer.user = { sub: "eve@acme.dev", org: "acme" };
  issuer.isRefusing = false;
});

/** A browser without scripts: cookies by host, redirects one by one. */
class Browser {
  readonly #jars = new Map<string, Map<string, string>>();
  /** The last `Set-Cookie`, by name. */
  readonly given = new Map<string, string>();

  async ask(url: string, init: RequestInit & { site?: string | null } = {}): Promise<Response> {
    const { site = "none", ...rest } = init;
    const to = url.replace("http://gateway.test", gateway.url);
    const { host } = new URL(to);
    const jar = this.#jars.get(host) ?? new Map<string, string>();
    this.#jars.set(host, jar);
    const headers = new Headers(rest.headers);
    if (jar.size > 0) headers.set("cookie", [...jar].map(([name, value]) => `${name}=${value}`).join("; "));
    if (site !== null) headers.set("sec-fetch-site", site);
    const answer = await fetch(to, { ...rest, headers, redirect: "manual" });
    for (const cookie of answer.headers.getSetCookie()) {
      const [, name = "", value = ""] = /^([^=]+)=([^;]*)/.exec(cookie) ?? [];
      this.given.set(name, cookie);
      if (value === "") jar.delete(name);
      else jar.set(name, value);
    }
    return answer;
  }

  cookie(name: string): string | undefined {
    return this.#jars.get(new URL(gateway.url).host)?.get(name);
  }

  /** Follows redirects from a URL. Gives the last answer and its URL. */
  async follow(url: string): Promise<string> {
    for (let next = url; ; ) {
      const answer = await this.ask(next);
      const to = answer.headers.get("location");
      if (to === null) throw new Error(`${next}: ${answer.status} ${await answer.text()}`);
      next = new URL(to, next).href;
      if (new URL(next).pathname === "/") return next;
    }
  }

  signIn(): Promise<string> {
    return this.follow(`${gateway.url}/console/login`);
  }

  /** A call by the page's own scripts. */
  call(path: string, init: RequestInit = {}): Promise<Response> {
    return this.ask(gateway.url + path, { site: "same-origin", ...init });
  }
}

async function signedIn(): Promise<Browser> {
  const browser = new Browser();
  expect(await browser.signIn()).toBe("http://gateway.test/");
  return browser;
}

const newResponse = { method: "POST", body: '{"model":"simulator","input":"Hello!"}' };
const asJson = { headers: { "content-type": "application/json" } };

describe("a signed-in user", () => {
  it("creates responses of the tenant that the issuer names, without a key", async () => {
    const browser = await signedIn();
    const session = await (await browser.call("/console/session")).json();
    expect(session).toEqual({ session: { name: "eve@acme.dev", tenant: "acme", role: null } });
    expect((await browser.call("/v1/responses", { ...newResponse, ...asJson })).status).toBe(200);
    await expectError(await browser.call("/v1/admin/keys"), { status: 403, code: "insufficient_permissions" });
  });

  it("administers with the role that the issuer gives, and is the actor in the audit log", async () => {
    issuer.user = { sub: "ada@acme.dev", groups: ["admins"] };
    const browser = await signedIn();
    const made = await browser.call("/v1/admin/keys", { method: "POST", body: '{"tenant":"by-ada"}', ...asJson });
    expect(made.status).toBe(200);
    const log = await browser.call("/v1/organization/audit_logs?limit=1");
    expect(((await log.json()) as { data: object[] }).data[0]).toMatchObject({
      actor: { type: "session", session: { user: { id: "ada@acme.dev" } } },
    });
    await expectError(await browser.call("/v1/models"), { status: 403, code: "insufficient_permissions" });
  });

  it("is told the operations that the role may use, as root keys are, and tenants' keys are not", async () => {
    issuer.user = { sub: "eve@acme.dev", org: "acme", groups: ["audit"] };
    const browser = await signedIn();
    const rights = (await (await browser.call("/console/rights")).json()) as { role: string; operations: string[] };
    expect(rights.role).toBe("auditor");
    expect(rights.operations).toEqual(expect.arrayContaining(["listApiKeys", "retrieveConfiguration"]));
    expect(rights.operations.filter((id) => !/^(list|retrieve)/.test(id))).toEqual([]);
    const rightsOf = (key: string) =>
      fetch(`${gateway.url}/console/rights`, { headers: { authorization: `Bearer ${key}` } });
    expect(await (await rightsOf(ROOT)).json()).toMatchObject({
      role: "owner",
      operations: expect.arrayContaining(["createApiKey"]),
    });
    const { value } = await makeKey(gateway, newTenant());
    await expectError(await rightsOf(value), { status: 403, code: "insufficient_permissions" });
    expect((await fetch(`${gateway.url}/console/rights`)).status).toBe(401);
  });

  it("has a cookie that no script reads and no other site sends; its key opens nothing else", async () => {
    const browser = await signedIn();
    const cookie = browser.given.get("responses_edge_session");
    expect(cookie).toMatch(/; Max-Age=28800; Path=\/; HttpOnly; SameSite=Strict$/);
    expect(cookie).not.toContain("acme");
    // Outside of the browser the cookie's value is no key, and no cookie of a login.
    const value = browser.cookie("responses_edge_session") ?? "";
    const asKey = await fetch(`${gateway.url}/v1/models`, { headers: { authorization: `Bearer ${value}` } });
    expect(asKey.status).toBe(401);
    const asLogin = await fetch(`${gateway.url}/console/callback?code=x&state=y`, {
      headers: { cookie: `responses_edge_login=${value}` },
      redirect: "manual",
    });
    expect(asLogin.headers.get("location")).toBe("/?sign-in=expired");
  });

  it.each<[what: string, headers: Record<string, string>]>([
    ["another site", { "sec-fetch-site": "cross-site", origin: "https://evil.test" }],
    ["another site of the same domain", { "sec-fetch-site": "same-site", origin: "http://other.gateway.test" }],
    ["a link in a mail", { "sec-fetch-site": "none" }],
    ["an old browser, from another origin", { origin: "https://evil.test" }],
    ["something that is no browser", {}],
  ])("is not the sender of a request by %s: 401", async (_, headers) => {
    const browser = await signedIn();
    for (const path of ["/v1/models", "/v1/admin/keys"]) {
      const answer = await browser.ask(gateway.url + path, { site: null, headers });
      await expectError(answer, { status: 401, code: "missing_api_key" });
    }
    const signOut = await browser.ask(`${gateway.url}/console/logout`, { site: null, method: "POST", headers });
    expect(signOut.status).toBe(404);
    expect(browser.cookie("responses_edge_session")).toBeDefined();
  });

  it("opens a WebSocket from a page of this server, and from no other", async () => {
    const browser = await signedIn();
    const cookie = `responses_edge_session=${browser.cookie("responses_edge_session")}`;
    const { host } = new URL(gateway.url);
    const client = await SocketClient.open(gateway, { headers: { cookie, origin: `http://${host}` } });
    client.close();
    const stranger = SocketClient.open(gateway, { headers: { cookie, origin: "https://evil.test" } });
    await expect(stranger).rejects.toThrow(/401/);
  });

  it("can sign out on a page of this server", async () => {
    const browser = await signedIn();
    expect((await browser.call("/console/logout", { method: "POST" })).status).toBe(204);
    expect((await browser.call("/v1/models")).status).toBe(401);
  });
});

describe("nobody is signed in", () => {
  it("whom the issuer refuses, does not name, or gives neither a tenant nor a role", async () => {
    issuer.isRefusing = true;
    const refused = new Browser();
    expect(await refused.signIn()).toContain("/?sign-in=refused");
    issuer.isRefusing = false;
    issuer.user = { sub: "nobody@acme.dev", groups: ["others"] };
    const nobody = new Browser();
    expect(await nobody.signIn()).toContain("/?sign-in=no_access");
    issuer.user = { sub: "eve@acme.dev", org: "acme" };
    issuer.hidesSubject = true;
    const nameless = new Browser();
    expect(await nameless.signIn()).toContain("/?sign-in=refused");
    issuer.hidesSubject = false;
    for (const browser of [refused, nobody, nameless]) expect(browser.cookie("responses_edge_session")).toBeUndefined();
  });

  it("with another browser's answer, or with the same answer twice", async () => {
    const victim = new Browser();
    const attacker = new Browser();
    let callback = "";
    for (let next = `${gateway.url}/console/login`; callback === ""; ) {
      const answer = await attacker.ask(next);
      next = new URL(answer.headers.get("location") ?? "", next).href;
      if (next.startsWith(REDIRECT_URL)) callback = next;
    }
    expect(await victim.follow(callback)).toContain("/?sign-in=expired");
    expect(await attacker.follow(callback)).toBe("http://gateway.test/");
    const replayed = new Browser();
    await replayed.ask(`${gateway.url}/console/login`);
    expect(await replayed.follow(callback)).toContain("/?sign-in=expired");
    expect(replayed.cookie("responses_edge_session")).toBeUndefined();
  });

  it("with a changed or invented cookie", async () => {
    const browser = await signedIn();
    const value = browser.cookie("responses_edge_session") ?? "";
    const forged = Buffer.from('{"alg":"none"}').toString("base64url");
    for (const cookie of [altered(value), `${forged}.e30.`, "x", value.replace(".", "..")]) {
      const headers = { cookie: `responses_edge_session=${cookie}`, "sec-fetch-site": "same-origin" };
      expect((await fetch(`${gateway.url}/v1/models`, { headers })).status).toBe(401);
    }
  });

  it("while the issuer is not available", async () => {
    const down = await startGateway({ ...issuer.variables(REDIRECT_URL), JWT_ISSUER: "http://127.0.0.1:1" });
    try {
      const answer = await fetch(`${down.url}/console/login`, { redirect: "manual" });
      expect(answer.headers.get("location")).toBe("/?sign-in=unavailable");
    } finally {
      await down.close();
    }
  });

  it("without an issuer: the console asks for a key", async () => {
    const plain = await startGateway({ ADMIN_KEY });
    try {
      expect(await (await fetch(`${plain.url}/console/session`)).json()).toEqual({ session: null });
      for (const path of ["login", "callback?code=x&state=y"]) {
        expect((await fetch(`${plain.url}/console/${path}`, { redirect: "manual" })).status).toBe(404);
      }
    } finally {
      await plain.close();
    }
  });
});
