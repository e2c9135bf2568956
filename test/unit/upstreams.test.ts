import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ConfigError, loadConfig, type Variables } from "../../src/config/index.ts";

/** The variables that name a deployment's model servers. */

const binding = () => ({ fetch: async () => new Response() });

function servers(UPSTREAMS: unknown, env: object = {}) {
  const text = typeof UPSTREAMS === "string" ? UPSTREAMS : JSON.stringify(UPSTREAMS);
  return loadConfig({ UPSTREAMS: text, ...env } as Variables).modelServers;
}

function mistakes(UPSTREAMS: unknown, env: object = {}): readonly string[] {
  try {
    servers(UPSTREAMS, env);
  } catch (error) {
    if (error instanceof ConfigError) return error.mistakes;
    throw error;
  }
  throw new Error("Expected a ConfigError.");
}

const A = "http://a:8000/v1";
const B = "http://b:8000/v1";

describe("UPSTREAMS", () => {
  it("names servers by URL or binding, with the fields of each", () => {
    const given = [
      { name: "big", url: `${A}/`, weight: 2.5, models: ["qwen3"], engine: "chat", salted: true },
      { name: "private", binding: "GPU", drain: true },
      { name: "old", url: B, weight: 0 },
    ];
    expect(servers(given, { GPU: binding() })).toMatchObject([
      {
        name: "big",
        baseUrl: A,
        weight: 2.5,
        models: new Map([["qwen3", "qwen3"]]),
        engine: "chat",
        drains: false,
        salted: true,
      },
      {
        name: "private",
        baseUrl: "http://gpu/v1",
        weight: 1,
        drains: true,
        keepsConversations: false,
        models: undefined,
        engine: undefined,
      },
      { name: "old", baseUrl: B, weight: 1, drains: true, keepsConversations: true },
    ]);
  });

  it("names servers, with their secrets and their names of models", () => {
    const given = {
      big: { url: A, models: { gpt: "Qwen/Qwen3" }, api_key: "s3cret" },
      small: { url: B, headers: { "X-Id": "1" } },
    };
    expect(servers(given, { VLLM_API_KEY: "everybody" })).toMatchObject([
      { name: "big", baseUrl: A, models: new Map([["gpt", "Qwen/Qwen3"]]), apiKey: "s3cret" },
      { name: "small", baseUrl: B, headers: { "x-id": "1" } },
    ]);
  });

  it("uses a binding's own fetch", async () => {
    const asked: string[] = [];
    const GPU = {
      fetch: async (url: string) => {
        asked.push(url);
        return new Response();
      },
    };
    const [server] = servers([{ binding: "GPU" }], { GPU });
    await server?.fetch(`${server.baseUrl}/models`, {});
    expect(asked).toEqual(["http://gpu/v1/models"]);
  });

  it("gives a server without a name a constant one that reveals nothing", () => {
    const [first, second] = servers([{ url: A }, { url: B }]);
    const [, again] = servers([{ url: B }, { url: A }]);
    expect(first?.name).toMatch(/^server-[0-9a-f]{8}$/);
    expect(again?.name).toBe(first?.name);
    expect(second?.name).not.toBe(first?.name);
  });

  it("takes keys and headers from UPSTREAM_SECRETS, or else the shared key", () => {
    const given = [
      { name: "own", url: A },
      { name: "shared", url: B },
      { name: "none", url: "http://c/v1" },
      { name: "basic", url: "http://d/v1" },
    ];
    const UPSTREAM_SECRETS = JSON.stringify({
      own: { api_key: "s3cret\n", headers: { "CF-Access-Client-Id": "id", "cf-access-client-secret": "x y" } },
      none: { api_key: null },
      basic: { headers: { Authorization: "Basic dTpw" } },
    });
    expect(servers(given, { UPSTREAM_SECRETS, VLLM_API_KEY: "everybody" })).toMatchObject([
      { apiKey: "s3cret", headers: { "cf-access-client-id": "id", "cf-access-client-secret": "x y" } },
      { apiKey: "everybody", headers: {} },
      { apiKey: undefined, headers: {} },
      { apiKey: undefined, headers: { authorization: "Basic dTpw" } },
    ]);
  });

  it("names all errors at once, and no value", () => {
    const given = [
      { name: "a", url: A },
      { name: "a", url: B },
      { url: "ftp://secret-host/v1" },
      { url: A, binding: "GPU" },
      { binding: "NOBODY" },
      { url: "http://user:secret@e/v1" },
      { url: "http://f/v1?key=secret" },
      { url: "http://g/v1", weight: -1 },
      { url: "http://h/v1", wieght: 1 },
      "secret",
    ];
    const UPSTREAM_SECRETS = JSON.stringify({ a: { api_key: "secret key" }, b: { headers: { Host: "secret" } } });
    const told = mistakes(given, { VLLM_BASE_URL: A, UPSTREAM_SECRETS, VLLM_TRANSPORT: "socket", WEBHOOK_URL: "x" });
    expect(told).toEqual([
      expect.stringMatching(/^WEBHOOK_URL: /),
      "UPSTREAMS: expected without VLLM_BASE_URL: name all servers here",
      "UPSTREAM_SECRETS: entry 1: 'api_key': expected visible ASCII characters without spaces: it is sent in a header",
      expect.stringMatching(/^UPSTREAM_SECRETS: entry 2: .*expected no header that this server sets itself$/),
      "UPSTREAMS: server 2: an earlier server has its name or its URL",
      "UPSTREAMS: server 3: 'url': expected a URL that begins with http:// or https://",
      "UPSTREAMS: server 4: expected either 'url' or 'binding', and not both",
      "UPSTREAMS: server 5: 'binding' names no service binding of this Worker",
      "UPSTREAMS: server 6: 'url': expected a URL without user name and password",
      "UPSTREAMS: server 7: 'url': expected a URL without a query: paths are put behind it",
      expect.stringMatching(/^UPSTREAMS: server 8: 'weight': /),
      "UPSTREAMS: server 9: 'wieght': unknown field",
      expect.stringMatching(/^UPSTREAMS: server 10: /),
    ]);
    expect(told.join()).not.toMatch(/secret/);
  });

  it.each<[what: string, given: unknown, env: object, mistake: RegExp]>([
    ["no JSON", "[{", {}, /^UPSTREAMS: expected a JSON array/],
    ["nothing by name", {}, {}, /^UPSTREAMS: expected a JSON array/],
    ["no server", [], {}, /^UPSTREAMS: expected a JSON array of 1 to 100/],
    ["a thousand servers", Array.from({ length: 1000 }, (_, n) => ({ url: `http://h${n}/v1` })), {}, /of 1 to 100/],
    [
      "the same server twice",
      [
        { name: "a", url: A },
        { name: "b", url: `${A}/` },
      ],
      {},
      /server 2: an earlier server has its name/,
    ],
    [
      "only servers that drain",
      [
        { url: A, weight: 0 },
        { url: B, drain: true },
      ],
      {},
      /takes new conversations/,
    ],
    ["a binding VLLM that it leaves out", [{ url: A }], { VLLM: binding() }, /the binding VLLM is set/],
    ["a binding that is a variable", [{ binding: "GPU" }], { GPU: "text" }, /names no service binding/],
    ["a binding over a socket", [{ binding: "GPU" }], { GPU: binding(), VLLM_TRANSPORT: "socket" }, /^VLLM_TRANSPORT/],
    ["secrets of nobody", [{ url: A }], { UPSTREAM_SECRETS: '{"x":{}}' }, /^UPSTREAM_SECRETS: names a server/],
    ["secrets that are none", [{ url: A }], { UPSTREAM_SECRETS: "[]" }, /^UPSTREAM_SECRETS: expected a JSON object/],
    [
      "a key and another authorization",
      [{ name: "a", url: A }],
      { UPSTREAM_SECRETS: '{"a":{"api_key":"k","headers":{"authorization":"Basic x"}}}' },
      /^UPSTREAM_SECRETS: entry 1: expected either/,
    ],
    [
      "a load below the mean",
      [{ url: A }],
      { UPSTREAM_LOAD_FACTOR: "0.9" },
      /^UPSTREAM_LOAD_FACTOR: expected at least 1/,
    ],
  ])("is refused with %s", (_, given, env, mistake) => {
    expect(mistakes(given, env)).toEqual([expect.stringMatching(mistake)]);
  });

  it("is required for secrets", () => {
    const env = { VLLM_BASE_URL: A, UPSTREAM_SECRETS: "{}" } as Variables;
    expect(() => loadConfig(env)).toThrow(
      /^UPSTREAM_SECRETS: has an effect only with UPSTREAMS: set that, too, or remove this$/,
    );
  });

  it("is read or refused, for any value", () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.json()), fc.oneof(fc.constant(undefined), fc.json()), (text, secrets) => {
        const env = { UPSTREAMS: text || "[]", ...(secrets && { UPSTREAM_SECRETS: secrets }) };
        expect(() => loadConfig(env as Variables)).toThrow(ConfigError);
      }),
    );
  });
});
