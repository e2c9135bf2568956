import { createHash } from "node:crypto";
import type OpenAI from "openai";
import { AuthenticationError, BadRequestError, NotFoundError } from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { homeKey, objectId } from "../workerd/storage.ts";
import { errorOf, expectError, rejection } from "./expectations.ts";
import { type Gateway, startGateway } from "./support.ts";

const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");

const KEYS = { a: "key-of-tenant-a", a2: "second-key-of-tenant-a", b: "key-of-tenant-b" };
const API_KEYS = `a:${sha256(KEYS.a)}, a:${sha256(KEYS.a2).toUpperCase()}\nb:${sha256(KEYS.b)}`;

const UNKNOWN = `resp_${"a".repeat(32)}`;

/** Every call of the API that needs a key. */
const CALLS: [method: string, path: string][] = [
  ["POST", "/v1/responses"],
  ["GET", `/v1/responses/${UNKNOWN}`],
  ["DELETE", `/v1/responses/${UNKNOWN}`],
  ["GET", `/v1/responses/${UNKNOWN}/input_items`],
  ["GET", "/v1/models"],
  ["GET", "/v1/models/simulator"],
  ["GET", "/health/upstream"],
  // Unknown routes need a key, too, so that strangers learn nothing about the routes.
  ["GET", "/v1/secrets"],
  ["PUT", "/v1/responses"],
];

function call(gateway: Gateway, method: string, path: string, headers: Record<string, string> = {}): Promise<Response> {
  const body = method === "POST" ? '{"input":"Hello!"}' : undefined;
  return gateway.fetch(gateway.url + path, {
    method,
    headers: { "content-type": "application/json", ...headers },
    body,
  });
}

describe("a deployment without keys", () => {
  let gateway: Gateway;
  beforeAll(async () => {
    gateway = await startGateway({ ALLOW_ANONYMOUS: "false" });
  });
  afterAll(() => gateway.close());

  it.each(CALLS)("refuses %s %s, and names the variables to set", async (method, path) => {
    for (const authorization of ["Basic x", "Bearer any-key"]) {
      await expectError(await call(gateway, method, path, { authorization }), {
        status: 401,
        type: "invalid_request_error",
        param: null,
        code: "no_api_keys_configured",
        message: /API_KEYS/,
      });
    }
    expect(gateway.vllm.simulator.requests).toEqual([]);
  });

  it("is healthy", async () => {
    expect((await gateway.fetch(`${gateway.url}/health`)).status).toBe(200);
  });
});

describe("a deployment with keys", () => {
  let gateway: Gateway;
  let a: OpenAI;
  let a2: OpenAI;
  let b: OpenAI;
  beforeAll(async () => {
    // Keys win over ALLOW_ANONYMOUS.
    gateway = await startGateway({ API_KEYS, ALLOW_ANONYMOUS: "true" });
    [a, a2, b] = [KEYS.a, KEYS.a2, KEYS.b].map((apiKey) => gateway.client({ apiKey })) as [OpenAI, OpenAI, OpenAI];
  });
  afterAll(() => gateway.close());

  it.each(CALLS)("answers %s %s without a key with a 401", async (method, path) => {
    const response = await call(gateway, method, path);
    expect(response.headers.get("www-authenticate")).toBe("Bearer");
    await expectError(response, {
      status: 401,
      type: "invalid_request_error",
      param: null,
      code: "missing_api_key",
      message: /Authorization header/,
    });
  });

  it.each([
    ["a wrong key", "Bearer wrong", "invalid_api_key"],
    ["a key's beginning", `Bearer ${KEYS.a.slice(0, -1)}`, "invalid_api_key"],
    ["a key with something after it", `Bearer ${KEYS.a}x`, "invalid_api_key"],
    ["a key's hash", `Bearer ${sha256(KEYS.a)}`, "invalid_api_key"],
    ["an entry of API_KEYS", `Bearer a:${sha256(KEYS.a)}`, "invalid_api_key"],
    ["a tenant's name", "Bearer a", "invalid_api_key"],
    ["a key of another letter case", `Bearer ${KEYS.a.toUpperCase()}`, "invalid_api_key"],
    ["a very long key", `Bearer ${"x".repeat(8_000)}`, "invalid_api_key"],
    ["no scheme", KEYS.a, "missing_api_key"],
    ["another scheme", `Basic ${KEYS.a}`, "missing_api_key"],
    ["two keys", `Bearer ${KEYS.a} ${KEYS.b}`, "missing_api_key"],
    ["an empty key", "Bearer ", "missing_api_key"],
  ])("%s is a 401", async (_what, authorization, code) => {
    const response = await call(gateway, "POST", "/v1/responses", { authorization });
    const error = await errorOf(response);
    expect({ status: response.status, code: error.code }).toEqual({ status: 401, code });
    expect(error.message).not.toMatch(/key-of-tenant|xxxx/);
    expect(gateway.vllm.simulator.requests.some(({ path }) => path === "/v1/chat/completions")).toBe(false);
  });

  it("makes the openai client throw an AuthenticationError", async () => {
    const stranger = gateway.client({ apiKey: "sk-stranger" });
    for (const stream of [false, true]) {
      const error = await rejection(stranger.responses.create({ model: "simulator", input: "Hello!", stream }));
      expect(error).toBeInstanceOf(AuthenticationError);
      expect(error).toMatchObject({ status: 401, code: "invalid_api_key" });
      expect(String(error)).not.toContain("sk-stranger");
    }
  });

  it.each(["Bearer", "bearer", "BEARER", "Bearer  "])("accepts the scheme '%s'", async (scheme) => {
    const response = await call(gateway, "GET", "/v1/models", { authorization: `${scheme} ${KEYS.b}` });
    expect(response.status).toBe(200);
  });

  it("lets keys of one tenant share everything", async () => {
    const first = await a.responses.create({ model: "simulator", input: "Hello!" });
    expect((await a2.responses.retrieve(first.id)).output_text).toBe("You said: Hello!");
    const second = await a2.responses.create({ model: "simulator", input: "Bye!", previous_response_id: first.id });
    expect((await a.responses.inputItems.list(second.id)).data).toHaveLength(1);
    await a2.responses.delete(first.id);
    expect(await rejection(a.responses.retrieve(first.id))).toBeInstanceOf(NotFoundError);
  });

  describe("another tenant", () => {
    /** The answer, with a constant in the place of the requested id. */
    async function answer(tenantKey: string, method: string, path: string, id: string, body?: string) {
      const response = await gateway.fetch(gateway.url + path.replace("ID", id), {
        method,
        headers: { authorization: `Bearer ${tenantKey}`, "content-type": "application/json" },
        body: body?.replace("ID", id),
      });
      const headers = Object.fromEntries(response.headers);
      delete headers.date;
      delete headers["x-request-id"];
      return { status: response.status, headers, text: (await response.text()).replaceAll(id, "ID") };
    }

    let theirs: string;
    let item: string;
    beforeAll(async () => {
      const response = await a.responses.create({ model: "simulator", input: "A's secret" });
      theirs = response.id;
      item = response.output[0]?.id ?? "";
    });

    it.each([
      ["GET", "/v1/responses/ID", 404],
      ["GET", "/v1/responses/ID?include=message.output_text.logprobs", 404],
      ["GET", "/v1/responses/ID/input_items", 404],
      ["DELETE", "/v1/responses/ID", 404],
    ])("gets the answer of an unknown id to %s %s", async (method, path, status) => {
      const known = await answer(KEYS.b, method, path, theirs);
      expect(known.status).toBe(status);
      expect(known).toEqual(await answer(KEYS.b, method, path, UNKNOWN));
      expect(known.text).not.toContain("secret");
    });

    it.each([
      ["GET", ""],
      ["POST", ""],
      ["DELETE", ""],
      ["POST", "/rotate_secret"],
      ["POST", "/test"],
      ["GET", "/deliveries"],
    ])("%s of its webhook endpoint%s is the 404 of an unknown one", async (method, path) => {
      const made = { name: "a", url: "https://example.com/hook", event_types: ["response.completed" as const] };
      const { id } = await a.webhooks.create(made);
      const body = method === "POST" ? JSON.stringify({ event_type: "response.failed" }) : undefined;
      const known = await answer(KEYS.b, method, `/v1/webhook_endpoints/ID${path}`, id, body);
      expect(known.status).toBe(404);
      expect(known).toEqual(
        await answer(KEYS.b, method, `/v1/webhook_endpoints/ID${path}`, `whe_${"a".repeat(32)}`, body),
      );
      expect((await a.webhooks.retrieve(id)).event_types).toEqual(made.event_types);
      expect((await b.webhooks.list()).data).toEqual([]);
    });

    it.each([false, true])("cannot continue it: it gets the 400 of an unknown id, stream: %s", async (stream) => {
      const body = JSON.stringify({ model: "simulator", input: "Hello!", previous_response_id: "ID", stream });
      const known = await answer(KEYS.b, "POST", "/v1/responses", theirs, body);
      expect(known).toMatchObject({ status: 400, text: expect.stringContaining("previous_response_not_found") });
      expect(known).toEqual(await answer(KEYS.b, "POST", "/v1/responses", UNKNOWN, body));
    });

    it("cannot refer to its items: it gets the 400 of an unknown id", async () => {
      const body = JSON.stringify({ model: "simulator", input: [{ type: "item_reference", id: "ID" }] });
      const known = await answer(KEYS.b, "POST", "/v1/responses", item, body);
      expect(known).toMatchObject({ status: 400, text: expect.stringContaining("item_not_found") });
      expect(known).toEqual(await answer(KEYS.b, "POST", "/v1/responses", `msg_${"a".repeat(32)}o0`, body));
      const request = { model: "simulator", input: [{ type: "item_reference" as const, id: item }] };
      expect(await rejection(b.responses.create(request))).toBeInstanceOf(BadRequestError);
    });

    it("makes no tables by its requests", async () => {
      const home = homeKey(theirs);
      const tables = (tenant: string) =>
        gateway.storage.exec(objectId(`${tenant}:${home}`), "SELECT name FROM sqlite_schema WHERE name = 'turns'");
      expect(tables("a")).toEqual([{ name: "turns" }]);
      expect(tables("b")).toEqual([]);
    });

    it("has changed nothing: the response survives, and can be continued", async () => {
      expect((await a.responses.retrieve(theirs)).output_text).toBe("You said: A's secret");
      const next = await a.responses.create({ model: "simulator", input: "Still?", previous_response_id: theirs });
      expect(next.output_text).toBe("You said: Still?");
      const referring = await a.responses.create({
        model: "simulator",
        input: [
          { type: "item_reference", id: item },
          { role: "user", content: "Hello!" },
        ],
      });
      expect(referring.status).toBe("completed");
    });

    it("may store an input item under an id of A's: it is B's own item", async () => {
      const input = [{ type: "message" as const, role: "user" as const, content: "B's own", id: item }];
      const own = await b.responses.create({ model: "simulator", input: input as never });
      expect(JSON.stringify((await b.responses.inputItems.list(own.id)).data)).toContain("B's own");
      expect((await a.responses.retrieve(theirs)).output_text).toBe("You said: A's secret");
    });
  });

  it("sends vLLM a constant cache_salt for each tenant, which reveals no key or tenant", async () => {
    async function salt(openai: OpenAI, fields: object = {}): Promise<unknown> {
      await openai.responses.create({ model: "simulator", input: "Hello!", store: false, ...fields });
      const body = gateway.vllm.simulator.lastAsked?.body;
      return typeof body === "object" && body !== null && "cache_salt" in body ? body.cache_salt : undefined;
    }
    const ofA = await salt(a);
    expect(ofA).toEqual(expect.stringMatching(/^[\w-]{43}$/));
    expect(await salt(a, { input: "Something else", stream: false })).toBe(ofA);
    expect(await salt(a2)).toBe(ofA);
    const ofB = await salt(b);
    expect(ofB).not.toBe(ofA);
    // A client's own salt divides its tenant's cache, and never gives access to another tenant's.
    const own = await Promise.all([
      await salt(a, { cache_salt: "x" }),
      await salt(a, { cache_salt: "y" }),
      await salt(b, { cache_salt: "x" }),
    ]);
    expect(new Set([ofA, ofB, ...own]).size).toBe(5);
    expect(await salt(a, { cache_salt: "x" })).toBe(own[0]);
  });

  it("never sends a client's key to vLLM", async () => {
    await a.responses.create({ model: "simulator", input: "Hello!", store: false });
    for (const request of gateway.vllm.simulator.requests)
      expect(JSON.stringify(request)).not.toContain("key-of-tenant");
  });
});

/** test/unit/config.test.ts has more of these. */
describe("a misconfigured deployment", () => {
  const secret = "this-is-somebodys-key";

  it.each<Record<string, string>>([
    {
      API_KEYS: `a:${sha256("x")} b:${secret}`,
      VLLM_IDLE_TIMEOUT_MS: secret,
      // Valid letters of base64, but one too many.
      WEBHOOK_SECRET: `whsec_somebodys${"a".repeat(24)}`,
      HEARTBEAT_MS: secret,
      TOOL_SERVER_MCP_LABELS: secret,
      WEBHOOK_URL: secret,
    },
    // An empty list of keys is an error, although the deployment would serve without the variable.
    { API_KEYS: " , " },
  ])(
    "answers with a 500 that names every wrong variable at once and no value, and is healthy: %j",
    async (variables) => {
      const gateway = await startGateway(variables);
      try {
        for (const [method, path] of [
          ["POST", "/v1/responses"],
          ["GET", "/v1/models"],
          ["GET", "/health/upstream"],
        ] as const) {
          const response = await call(gateway, method, path, { authorization: "Bearer x" });
          const text = await response.clone().text();
          for (const name of Object.keys(variables)) expect(text).toContain(name);
          expect(text).not.toMatch(/somebodys|[0-9a-f]{63}/);
          await expectError(response, { status: 500, type: "server_error", code: "server_misconfigured" });
        }
        const health = await gateway.fetch(`${gateway.url}/health`);
        expect(health.status).toBe(200);
        expect(await health.json()).toMatchObject({ status: "ok" });
      } finally {
        await gateway.close();
      }
    },
  );
});
