import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { SignJWT } from "jose";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startWorkerd, type WorkerdProcess } from "../workerd/process.ts";
import { GPT_OSS } from "./harmony-support.ts";
import { eventually } from "./support.ts";

/**
 * Redirects by model servers and other addresses that the operator names: they are not followed, so no request goes
 * elsewhere, and no other server's answer is accepted. (Redirects by addresses that requests name are followed to
 * permitted addresses: guarded-fetch.test.ts.)
 */

const STATUSES = [301, 302, 303, 307, 308];

/** The requests at the target of redirects: a model server that would answer anything. */
const led: string[] = [];
/** The requests that were answered with a redirect. */
const redirected: string[] = [];
let status = 307;
let trapUrl = "";

async function serve(listener: RequestListener) {
  const server = createServer(listener);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, server };
}

let servers: Awaited<ReturnType<typeof serve>>[];
let worker: WorkerdProcess;
beforeAll(async () => {
  const trap = await serve((request, response) => {
    led.push(`${request.method} ${request.url}`);
    response.writeHead(200, { "content-type": "application/json" });
    response.end('{"object":"list","data":[{"id":"m","object":"model"}],"tokens":[1],"count":1,"choices":[]}');
  });
  trapUrl = trap.url;
  const redirecting = await serve((request, response) => {
    redirected.push(`${request.method} ${request.url}`);
    request.resume();
    response.writeHead(status, { location: trapUrl + (request.url ?? "") }).end();
  });
  servers = [trap, redirecting];
  const { url } = redirecting;
  worker = await startWorkerd(
    {
      VLLM_BASE_URL: `${url}/v1`,
      VLLM_MAX_RETRIES: "0",
      UPSTREAM_DIALECT: "vllm",
      MODEL_ENGINES: JSON.stringify({ [GPT_OSS]: "harmony" }),
      API_KEYS: "a:ee063bb3d7270fdf6148f09dde510a5cf346c4aa4dd2ff4b2caec5348d799043",
      PASSTHROUGH_ENDPOINTS: "all",
      TOOL_SERVERS: JSON.stringify({ python: `${url}/mcp/python` }),
      WEBHOOK_URL: `${url}/webhook`,
      WEBHOOK_SECRET: `whsec_${Buffer.alloc(32).toString("base64")}`,
      ALLOW_PRIVATE_WEBHOOKS: "true",
      JWT_ISSUER: "https://issuer.example.com",
      JWT_AUDIENCE: "edge",
      JWT_TENANTS: "shared",
      JWT_JWKS_URL: `${url}/jwks`,
      OTEL_EXPORTER_OTLP_ENDPOINT: `${url}/otlp`,
    },
    { readsFormats: false },
  );
});
afterAll(async () => {
  await worker.close();
  for (const { server } of servers) {
    server.closeAllConnections();
    server.close();
  }
});

function ask(path: string, body?: object | FormData, bearer = "key-of-a"): Promise<Response> {
  const isForm = body instanceof FormData;
  return fetch(worker.url + path, {
    method: body ? "POST" : "GET",
    headers: { authorization: `Bearer ${bearer}`, ...(body && !isForm && { "content-type": "application/json" }) },
    ...(body && { body: isForm ? body : JSON.stringify(body) }),
  });
}

const form = () => {
  const data = new FormData();
  data.set("file", new Blob(["sound"]));
  data.set("model", "m");
  return data;
};
const input = { model: "m", input: "The zebra is at the door." };
const messages = { model: "m", messages: [{ role: "user", content: "The zebra." }] };
const PATHS: [what: string, path: string, body?: () => object | FormData][] = [
  ["a response", "/v1/responses", () => input],
  ["a response of gpt-oss", "/v1/responses", () => ({ ...input, model: GPT_OSS })],
  ["a stream", "/v1/responses", () => ({ ...input, stream: true })],
  ["an answer with truncation", "/v1/responses", () => ({ ...input, truncation: "auto" })],
  [
    "an answer with the operator's tool",
    "/v1/responses",
    () => ({ ...input, tools: [{ type: "code_interpreter", container: { type: "auto" } }] }),
  ],
  ["a compaction", "/v1/responses/compact", () => input],
  ["the count of a prompt", "/v1/responses/input_tokens", () => input],
  ["the models", "/v1/models"],
  ["Codex's models", "/v1/models?client_version=1.0.0"],
  ["chat completions", "/v1/chat/completions", () => messages],
  ["a stream of these", "/v1/chat/completions", () => ({ ...messages, stream: true })],
  ["completions", "/v1/completions", () => ({ model: "m", prompt: "a" })],
  ["embeddings", "/v1/embeddings", () => input],
  ["rerank", "/v1/rerank", () => ({ model: "m", query: "a", documents: ["b"] })],
  ["score", "/v1/score", () => ({ model: "m", text_1: "a", text_2: "b" })],
  ["messages", "/v1/messages", () => ({ ...messages, max_tokens: 5 })],
  ["tokenize", "/tokenize", () => ({ model: "m", prompt: "a" })],
  ["detokenize", "/detokenize", () => ({ model: "m", tokens: [1] })],
  ["transcriptions", "/v1/audio/transcriptions", form],
  ["translations", "/v1/audio/translations", form],
];

describe("no redirect of a model server is followed", () => {
  it.each(PATHS)("for %s", async (_what, path, body) => {
    for (const each of STATUSES) {
      status = each;
      redirected.length = 0;
      const answer = await ask(path, body?.());
      expect(answer.status).toBe(502);
      const { error } = (await answer.json()) as { error: { code: string; message: string } };
      expect(error.code).toBe("upstream_error");
      // A request that needs a count of the prompt names that.
      expect(error.message).toMatch(new RegExp(`redirect \\(status ${each}\\)|/tokenize route`));
      expect(redirected.length).toBeGreaterThan(0);
    }
    expect(led).toEqual([]);
  });

  it("for its health, and the server counts as down", async () => {
    redirected.length = 0;
    const health = await ask("/health/upstream");
    expect(health.status).toBe(503);
    await health.text();
    expect(redirected.length).toBeGreaterThan(0);
    expect(led).toEqual([]);
  });
});

describe("no redirect is followed", () => {
  it("of a webhook's endpoint, of a collector, or of an issuer", async () => {
    const run = await ask("/v1/responses", { ...input, background: true });
    expect(run.status).toBe(200);
    await run.text();
    const { privateKey } = await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, true, [
      "sign",
      "verify",
    ]);
    const token = new SignJWT({ sub: "b" }).setProtectedHeader({ alg: "ES256", kid: "one" });
    const jwt = await token
      .setIssuer("https://issuer.example.com")
      .setAudience("edge")
      .setExpirationTime("1h")
      .sign(privateKey);
    expect((await ask("/v1/models", undefined, jwt)).status).toBe(503);
    for (const path of ["/webhook", "/otlp/v1/traces", "/jwks"]) {
      await eventually(() => Promise.resolve(redirected.some((line) => line.endsWith(path))));
    }
    expect(led).toEqual([]);
  });
});
