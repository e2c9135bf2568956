import { request as httpRequest } from "node:http";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { joinWithKeys, newKeys } from "./key-support.ts";
import { SocketClient } from "./socket-support.ts";
import { type Gateway, joinGateway } from "./support.ts";

/** Web pages in a browser of this machine: a server without keys refuses pages of other hosts. */

const UNKNOWN = `resp_${"a".repeat(32)}`;

let open: Gateway;
let keyed: Gateway;
let key: string;
beforeAll(async () => {
  [open, keyed] = await Promise.all([joinGateway(), joinWithKeys()]);
  key = (await newKeys(keyed, "a")).a;
});
afterAll(async () => {
  await open.close();
  await keyed.close();
});
beforeEach(() => {
  open.vllm.simulator.clear();
});

interface Answer {
  status: number;
  error: { message: string; type: string; param: string | null; code: string } | undefined;
}

/** Sends a request with any `Host`, `Origin` and `Sec-Fetch-Site`, as a browser may and fetch does not. */
function send(
  gateway: Gateway,
  method: string,
  path: string,
  headers: Record<string, string> = {},
  body?: string,
): Promise<Answer> {
  const { promise, resolve, reject } = Promise.withResolvers<Answer>();
  const { hostname, port } = new URL(gateway.url);
  const sent = httpRequest({ hostname, port, method, path, headers }, async (response) => {
    let text = "";
    for await (const chunk of response) text += String(chunk);
    const { error } = JSON.parse(text) as Partial<Answer>;
    resolve({ status: response.statusCode ?? 0, error });
  });
  sent.on("error", reject);
  sent.end(body);
  return promise;
}

const JSON_TYPE = { "content-type": "application/json" };
const HELLO = JSON.stringify({ model: "simulator", input: "Hello!" });

const CALLS: [method: string, path: string, body?: string][] = [
  ["GET", "/"],
  ["GET", "/health"],
  ["GET", "/health/upstream"],
  ["GET", "/v1/models"],
  ["GET", "/v1/models/simulator"],
  ["POST", "/v1/responses", HELLO],
  ["GET", `/v1/responses/${UNKNOWN}`],
  ["GET", `/v1/responses/${UNKNOWN}?stream=true`],
  ["GET", `/v1/responses/${UNKNOWN}/input_items`],
  ["POST", `/v1/responses/${UNKNOWN}/cancel`],
  ["DELETE", `/v1/responses/${UNKNOWN}`],
  ["POST", "/v1/conversations"],
  ["DELETE", "/v1/conversations/conv_1"],
  ["OPTIONS", "/v1/responses"],
  ["GET", "/nothing"],
];

describe("without keys", () => {
  it.each(CALLS)("a page of another host may not %s %s", async (method, path, body) => {
    const port = new URL(open.url).port;
    for (const [header, headers] of [
      ["Host", { host: `rebound.example.com:${port}` }],
      ["Origin", { origin: "https://evil.example.com" }],
      ["Sec-Fetch-Site", { "sec-fetch-site": "cross-site" }],
    ] as [string, Record<string, string>][]) {
      const { status, error } = await send(open, method, path, { ...JSON_TYPE, ...headers }, body);
      expect({ header, status, error }).toEqual({
        header,
        status: 403,
        error: {
          type: "invalid_request_error",
          param: null,
          code: "browser_request_refused",
          message: expect.stringMatching(new RegExp(`'${header}'.*API_KEYS`)),
        },
      });
    }
    expect(open.vllm.simulator.requests).toEqual([]);
  });

  it.each([
    "evil.example.com",
    "localhost.evil.example.com",
    "127.0.0.1.nip.io",
    "evil-localhost",
    "192.168.1.5",
    "10.0.0.1:8787",
    "[::2]",
    "0.0.0.0",
    "a.localhost",
    "localhost@evil.example.com",
    "evil.example.com#localhost",
    "evil.example.com/localhost",
  ])("the host '%s' is refused", async (host) => {
    const { status } = await send(open, "GET", "/v1/models", { host });
    // The HTTP server itself may refuse an invalid host.
    expect([400, 403]).toContain(status);
  });

  it.each(["localhost", "localhost:8787", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:99", "[::1]", "[::1]:8787"])(
    "the host '%s' is served",
    async (host) => {
      expect((await send(open, "GET", "/v1/models", { host })).status).toBe(200);
    },
  );

  it.each([
    "null",
    "https://evil.example.com",
    "http://localhost.evil.example.com",
    "http://evil.example.com:8787",
    "file://",
    "chrome-extension://abcdefghijklmnop",
    "localhost",
  ])("the origin '%s' is refused", async (origin) => {
    const { status, error } = await send(open, "POST", "/v1/responses", { ...JSON_TYPE, origin }, HELLO);
    expect({ status, code: error?.code }).toEqual({ status: 403, code: "browser_request_refused" });
  });

  it.each<Record<string, string>>([
    { origin: "http://localhost:3000", "sec-fetch-site": "same-site" },
    { origin: "http://127.0.0.1:5173", "sec-fetch-site": "same-origin" },
    { origin: "https://[::1]", "sec-fetch-site": "same-site" },
    { "sec-fetch-site": "none" },
    {},
  ])("a page or a program of this machine is served: %j", async (headers) => {
    const { status } = await send(open, "POST", "/v1/responses", { ...JSON_TYPE, ...headers }, HELLO);
    expect(status).toBe(200);
  });

  it.each(["/v1/conversations", `/v1/responses/${UNKNOWN}/cancel`])(
    "an empty POST %s needs a JSON content type from a browser, and none from a program",
    async (path) => {
      const page = { origin: open.url, "sec-fetch-site": "same-origin" };
      expect((await send(open, "POST", path, page)).error?.code).toBe("unsupported_media_type");
      expect((await send(open, "POST", path, { "sec-fetch-site": "none" })).error?.code).toBe("unsupported_media_type");
      for (const headers of [{ ...page, ...JSON_TYPE }, {}]) {
        const { status } = await send(open, "POST", path, headers);
        expect([200, 404]).toContain(status);
      }
    },
  );
});

describe("with keys", () => {
  it("all hosts and origins are served", async () => {
    const headers = { authorization: `Bearer ${key}`, host: "api.example.com", origin: "https://app.example.com" };
    expect((await send(keyed, "GET", "/v1/models", headers)).status).toBe(200);
    expect((await send(keyed, "POST", "/v1/conversations", headers)).status).toBe(200);
  });

  it("a page without a key gets a 401", async () => {
    const { error } = await send(keyed, "GET", "/v1/models", { origin: "https://evil.example.com" });
    expect(error?.code).toBe("missing_api_key");
  });
});

describe.each([
  ["without keys", () => open],
  ["with keys", () => keyed],
])("a body without JSON's content type, %s", (_, gateway) => {
  it.each([
    "/v1/responses",
    `/v1/responses/${UNKNOWN}/cancel`,
    "/v1/conversations",
    "/v1/conversations/conv_1",
    "/v1/conversations/conv_1/items",
  ])("is a 415 at POST %s", async (path) => {
    for (const type of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]) {
      for (const body of ["{}", ...(type === "" ? [] : [""])]) {
        const headers = { authorization: `Bearer ${key}`, ...(type !== "" && { "content-type": type }) };
        const { status, error } = await send(gateway(), "POST", path, headers, body);
        expect({ type, body, status, code: error?.code }).toEqual({
          type,
          body,
          status: 415,
          code: "unsupported_media_type",
        });
      }
    }
  });
});

it("a WebSocket opens only for pages of this machine", async () => {
  const strangers: Record<string, string>[] = [{ origin: "https://evil.example.com" }, { host: "rebound.example.com" }];
  for (const headers of strangers) await expect(SocketClient.open(open, { headers })).rejects.toThrow("403");
  const socket = await SocketClient.open(open, { headers: { origin: "http://localhost:3000" } });
  expect((await socket.turn({ input: "Hello!" })).text).toBe("You said: Hello!");
  await socket.close();
});

it("the SDK cancels responses and creates conversations", async () => {
  const { openai } = open;
  const run = await openai.responses.create({ model: "simulator", input: "Hello!", background: true });
  expect((await openai.responses.cancel(run.id)).id).toBe(run.id);
  expect((await openai.conversations.create()).object).toBe("conversation");
});
