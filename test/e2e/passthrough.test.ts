import { once } from "node:events";
import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import OpenAI, { toFile } from "openai";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import type { JsonObject } from "../../dev/simulator/json.ts";
import { serveSimulator } from "../../dev/simulator/serve.ts";
import { OPERATORS_FIELDS, VLLM_EXTRAS } from "../../src/config/models.ts";
import { startWorkerd, type WorkerdProcess } from "../workerd/process.ts";
import { expectError } from "./expectations.ts";
import { type Fleet, type Replica, startFleet } from "./fleet.ts";
import { eventually } from "./support.ts";

/** vLLM's own endpoints through this gateway. */

const PATHS = [
  "/v1/chat/completions",
  "/v1/completions",
  "/v1/embeddings",
  "/v1/rerank",
  "/v1/score",
  "/v1/audio/transcriptions",
  "/v1/audio/translations",
  "/v1/messages",
  "/v1/messages/count_tokens",
  "/v1/chat/completions/render",
  "/v1/responses/render",
  "/tokenize",
  "/detokenize",
  "/classify",
  "/pooling",
  "/v2/rerank",
];

/** The hashes of the keys `key-of-a` and `key-of-b`. */
const API_KEYS =
  "a:ee063bb3d7270fdf6148f09dde510a5cf346c4aa4dd2ff4b2caec5348d799043,b:caad66a34f6dbd2c56b4fceb13caf74761aba0720534d6e33185edd493ea0f63";

interface Seen {
  method: string;
  url: string;
  headers: IncomingHttpHeaders;
  body: Buffer;
}

/** A model server with every endpoint, which records its requests. `answer` makes its answers. */
async function startWitness() {
  const seen: Seen[] = [];
  let answer: () => { status: number; body: string; headers?: Record<string, string> } = () => ok;
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const { method = "", url = "", headers } = request;
    // In a deployment with tenants, a server is asked once for its kind.
    if (url !== "/v1/models") seen.push({ method, url, headers, body: Buffer.concat(chunks) });
    const said = answer();
    const own = { "content-type": "application/json", "set-cookie": "secret=1", server: "uvicorn", "x-inside": "yes" };
    response.writeHead(said.status, { ...own, ...said.headers });
    response.end(said.body);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    seen,
    says: (said: typeof answer) => {
      answer = said;
    },
    /** The only request since the last call, and its body as JSON. */
    take() {
      const [only, ...others] = seen.splice(0);
      expect(others).toEqual([]);
      if (!only) throw new Error("Nothing was sent.");
      return only;
    },
    takeJson(): JsonObject {
      return JSON.parse(this.take().body.toString()) as JsonObject;
    },
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

const ok = { status: 200, body: '{"object":"list","data":[]}' };

let witness: Awaited<ReturnType<typeof startWitness>>;
let open: WorkerdProcess;
let closed: WorkerdProcess;
beforeAll(async () => {
  witness = await startWitness();
  const variables = {
    VLLM_BASE_URL: witness.url,
    UPSTREAM_DIALECT: "vllm",
    API_KEYS,
    VLLM_API_KEY: "key-of-vllm",
    MAX_REQUEST_BYTES: "100000",
  };
  [open, closed] = await Promise.all([
    startWorkerd({ ...variables, PASSTHROUGH_ENDPOINTS: "all", MODEL_ALIASES: '{"alias":"qwen3"}' }),
    startWorkerd({ ...variables, PASSTHROUGH_ENDPOINTS: "embeddings" }),
  ]);
});
afterEach(() => {
  witness.seen.length = 0;
  witness.says(() => ok);
});
afterAll(async () => {
  await Promise.all([open.close(), closed.close()]);
  await witness.close();
});

function post(path: string, body: unknown, headers: Record<string, string> = {}, { url } = open): Promise<Response> {
  return fetch(url + path, {
    method: "POST",
    headers: { authorization: "Bearer key-of-a", "content-type": "application/json", ...headers },
    body: typeof body === "string" ? body : JSON.stringify(body),
  });
}

function form(fields: Record<string, string | Blob>): FormData {
  const data = new FormData();
  for (const [name, value] of Object.entries(fields)) data.set(name, value);
  return data;
}

function postForm(path: string, body: FormData): Promise<Response> {
  return fetch(open.url + path, { method: "POST", headers: { authorization: "Bearer key-of-a" }, body });
}

describe("a closed endpoint", () => {
  it.each(PATHS.filter((path) => path !== "/v1/embeddings"))("%s is an unknown path for every method", async (path) => {
    await expectError(await post(path, {}, {}, closed), { status: 404, code: "unknown_url" });
    const headers = { authorization: "Bearer key-of-a" };
    await expectError(await fetch(closed.url + path, { headers }), { status: 404, code: "unknown_url" });
    expect(witness.seen).toEqual([]);
  });

  it.each([
    "/metrics",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/sleep",
    "/wake_up",
    "/reset_prefix_cache",
    "/collective_rpc",
    "/server_info",
    "/pause",
    "/v1/completions/render",
    "/v1/embeddings/../load_lora_adapter",
    "/v1/embeddings%2f..%2f..%2fsleep",
    "//sleep",
    "/inference/v1/generate",
    "/invocations",
  ])("%s is never passed on", async (path) => {
    const response = await post(path, {});
    expect([404, 401, 405]).toContain(response.status);
    expect(witness.seen).toEqual([]);
  });

  it("admits no request without a key, or with another method", async () => {
    for (const path of PATHS) {
      await expectError(await post(path, {}, { authorization: "" }), { status: 401, code: "missing_api_key" });
      await expectError(await post(path, {}, { authorization: "Bearer no" }), { status: 401, code: "invalid_api_key" });
      const headers = { authorization: "Bearer key-of-a" };
      await expectError(await fetch(open.url + path, { headers }), { status: 405, code: "method_not_allowed" });
    }
    expect(witness.seen).toEqual([]);
  });
});

describe("a request that is passed on", () => {
  it.each(PATHS.filter((path) => !path.includes("/audio/")))(
    "%s arrives with its fields, and has vLLM's answer",
    async (path) => {
      const body = {
        model: "m",
        input: ["a", "ü😀"],
        documents: [{ text: "b" }],
        temperature: 0.5,
        nobody_knows: [1, null],
      };
      const response = await post(path, body);
      expect(response.status).toBe(200);
      expect(await response.text()).toBe(ok.body);
      const { url, body: sent } = witness.take();
      expect(url).toBe(path);
      const { cache_salt: _, ...fields } = JSON.parse(sent.toString()) as JsonObject;
      expect(fields).toEqual(body);
    },
  );

  it("has none of its client's headers, and its answer none of the server's", async () => {
    const strange = { cookie: "a=b", "x-forwarded-for": "1.2.3.4", "x-api-key": "key-of-a", "x-anything": "1" };
    const response = await post(
      "/v1/embeddings",
      { input: "a" },
      { ...strange, connection: "close", "session-id": "s" },
    );
    const { headers } = witness.take();
    expect(headers).toMatchObject({ authorization: "Bearer key-of-vllm", "content-type": "application/json" });
    expect(headers["x-session-id"]).toMatch(/^[0-9a-f]{16}$/);
    for (const name of [...Object.keys(strange), "session-id"]) expect(headers).not.toHaveProperty(name);
    expect(JSON.stringify(headers)).not.toContain("key-of-a");
    for (const name of ["set-cookie", "server", "x-inside", "x-upstream"])
      expect(response.headers.has(name)).toBe(false);
    expect(response.headers.get("content-type")).toBe("application/json");
    expect(response.headers.get("x-request-id")).toBeTruthy();
  });

  it("is part of the session that it names, or that its prompt's beginning gives, or else of none", async () => {
    const sessionOf = async (body: object, headers: Record<string, string> = {}) => {
      await post("/v1/completions", { model: "m", ...body }, headers);
      return witness.take().headers["x-session-id"];
    };
    expect(await sessionOf({ prompt_cache_key: "k" })).toBe(await sessionOf({ prompt_cache_key: "k", prompt: "a" }));
    expect(await sessionOf({ prompt: "a" })).not.toBe(await sessionOf({ prompt: "b" }));
    expect(await sessionOf({ prompt: "a" })).toBe(await sessionOf({ prompt: "a", max_tokens: 5 }));
    const others = { authorization: "Bearer key-of-b" };
    expect(await sessionOf({ prompt: "a" })).not.toBe(await sessionOf({ prompt: "a" }, others));
    expect(await sessionOf({})).toBeUndefined();
  });

  it("has its tenant's cache salt, which no client can set", async () => {
    const saltOf = async (key: string, path: string, salt?: string) => {
      await post(path, { model: "m", messages: [], cache_salt: salt }, { authorization: `Bearer ${key}` });
      return witness.takeJson().cache_salt;
    };
    for (const path of PATHS.filter((each) => !/audio|render|token/.test(each))) {
      const own = await saltOf("key-of-a", path);
      expect(own).toMatch(/^[\w-]{43}$/);
      expect(await saltOf("key-of-a", path)).toBe(own);
      const others = [await saltOf("key-of-b", path), await saltOf("key-of-a", path, "mine")];
      expect(new Set([own, ...others]).size).toBe(3);
      expect(await saltOf("key-of-b", path, String(own))).not.toBe(own);
    }
    await expectError(await post("/v1/completions", { cache_salt: 5 }), { status: 400, param: "cache_salt" });
  });

  it("has its model's own name", async () => {
    await post("/v1/embeddings", { model: "alias", input: "a" });
    expect(witness.takeJson().model).toBe("qwen3");
    await post("/v1/embeddings", { input: "a" });
    expect(witness.takeJson()).not.toHaveProperty("model");
    for (const model of [5, {}, "x".repeat(2_000)]) {
      await expectError(await post("/v1/embeddings", { model, input: "a" }), { status: 400, param: "model" });
    }
  });

  it.each([...VLLM_EXTRAS, ...OPERATORS_FIELDS])(
    "may not have %s, which is the operator's; nor may a response",
    async (field) => {
      const value = field === "priority" ? 1 : {};
      const refusal = { status: 400, code: "unsupported_parameter", param: field };
      for (const path of ["/v1/chat/completions", "/v1/responses", "/v1/responses/input_tokens"]) {
        await expectError(await post(path, { model: "m", input: "x", [field]: value }), refusal);
      }
      const audio = form({ file: new Blob(["x"]), [field]: "x" });
      await expectError(await postForm("/v1/audio/transcriptions", audio), { status: 400, param: field });
      expect(witness.seen).toEqual([]);
    },
  );

  it.each<[part: object, param: string]>([
    [{ image_url: { url: "http://127.0.0.1/x" } }, "messages[1].content[0].image_url.url"],
    [{ image_url: "https://localhost/x" }, "messages[1].content[0].image_url"],
    [{ video_url: { url: "file:///etc/passwd" } }, "messages[1].content[0].video_url.url"],
    [{ source: { type: "url", url: "http://169.254.169.254/" } }, "messages[1].content[0].source.url"],
    [{ audio_url: ["https://public.example.com/a", "http://10.0.0.1/a"] }, "messages[1].content[0].audio_url[1]"],
  ])("may not contain a private address for vLLM: %j", async (part, param) => {
    const messages = [
      { role: "user", content: "Hello!" },
      { role: "user", content: [part] },
    ];
    const response = await post("/v1/chat/completions", { model: "m", messages });
    await expectError(response, { status: 400, code: "invalid_url", param });
    expect(witness.seen).toEqual([]);
  });

  it.each<[path: string, format: object, param: string]>([
    ["/v1/chat/completions", { structured_outputs: { regex: "((a{99}){99}){99}" } }, "structured_outputs.regex"],
    ["/v1/completions", { guided_regex: "((a{99}){99}){99}" }, "guided_regex"],
    ["/v1/completions", { guided_grammar: 'root ::= ("a"{999}){999}' }, "guided_grammar"],
    [
      "/v1/chat/completions",
      { response_format: { type: "json_schema", json_schema: { schema: { pattern: "(a{999}){999}" } } } },
      "response_format.json_schema.schema.pattern",
    ],
    ["/v1/messages", { tools: [{ name: "a", input_schema: { minLength: 1e9 } }] }, "tools[0].input_schema.minLength"],
  ])("may not contain a format whose expansion is too large: %s %j", async (path, format, param) => {
    const response = await post(path, { model: "m", messages: [], ...format });
    await expectError(response, { status: 400, code: "above_max_value", param });
    expect(witness.seen).toEqual([]);
  });

  it("may contain public addresses and data, and tools with fields of such names", async () => {
    const content = [
      { image_url: { url: "https://example.com/x.png" } },
      { image_url: { url: "data:image/png;base64,AA==" } },
    ];
    const tools = [{ function: { parameters: { properties: { url: { type: "string" } } } } }];
    const response = await post("/v1/chat/completions", { model: "m", messages: [{ role: "user", content }], tools });
    expect(response.status).toBe(200);
  });

  it.each<[what: string, body: string, headers: Record<string, string>, status: number]>([
    ["no JSON", "{", {}, 400],
    ["no object", "[]", {}, 400],
    ["nothing", "", {}, 400],
    ["another type", "a=b", { "content-type": "application/x-www-form-urlencoded" }, 415],
    ["too long", JSON.stringify({ input: "x".repeat(100_000) }), {}, 413],
    ["too deep", `${'{"a":'.repeat(2_000)}1${"}".repeat(2_000)}`, {}, 400],
    ["a coding that is none", "{}", { "content-encoding": "gzip" }, 400],
  ])("is refused if its body is %s", async (_, body, headers, status) => {
    await expectError(await post("/v1/embeddings", body, headers), { status });
    expect(witness.seen).toEqual([]);
  });
});

describe("a form that is passed on", () => {
  it("has an unchanged file, and its model's own name", async () => {
    const bytes = Uint8Array.from({ length: 50_000 }, (_, index) => (index * 7) % 256);
    const openai = new OpenAI({ apiKey: "key-of-a", baseURL: `${open.url}/v1`, maxRetries: 0 });
    witness.says(() => ({ status: 200, body: '{"text":"Hello!"}' }));
    const file = await toFile(bytes, "speech.wav", { type: "audio/wav" });
    const { text } = await openai.audio.transcriptions.create({ model: "alias", file, language: "en" });
    expect(text).toBe("Hello!");
    const { headers, body, url } = witness.take();
    expect(url).toBe("/v1/audio/transcriptions");
    const type = headers["content-type"] ?? "";
    const sent = await new Response(new Uint8Array(body), { headers: { "content-type": type } }).formData();
    expect(sent.get("model")).toBe("qwen3");
    expect(sent.get("language")).toBe("en");
    const received = sent.get("file") as File;
    expect(received.name).toBe("speech.wav");
    expect(new Uint8Array(await received.arrayBuffer())).toEqual(bytes);
  });

  it("is refused if it is invalid, JSON, or too long", async () => {
    const path = "/v1/audio/transcriptions";
    const type = "multipart/form-data; boundary=x";
    await expectError(await post(path, "no form", { "content-type": type }), { status: 400, code: "invalid_form" });
    await expectError(await post(path, {}), { status: 415, code: "unsupported_media_type" });
    const long = form({ file: new Blob(["x".repeat(100_000)]) });
    await expectError(await postForm(path, long), { status: 413, code: "request_too_large" });
    expect(witness.seen).toEqual([]);
  });
});

describe("an error of vLLM", () => {
  const said =
    (status: number, message: string, param: string | null = null) =>
    () => ({
      status,
      body: JSON.stringify({ error: { message, type: "BadRequestError", param, code: status } }),
      headers: { "retry-after": "3" },
    });

  it.each<[status: number, wanted: Parameters<typeof expectError>[1]]>([
    [400, { status: 400, message: "max_tokens is wrong.", param: "max_tokens", code: "invalid_request" }],
    [422, { status: 422, message: "max_tokens is wrong.", param: "max_tokens" }],
    [404, { status: 404, message: "max_tokens is wrong.", code: "not_served" }],
    [401, { status: 502, code: "upstream_error" }],
    [429, { status: 429, code: "rate_limit_exceeded" }],
    [500, { status: 502, code: "upstream_error" }],
    [503, { status: 503, code: "server_is_overloaded" }],
  ])("has OpenAI's shape: %i", async (status, wanted) => {
    witness.says(said(status, "max_tokens is wrong.", "max_tokens"));
    const response = await post("/v1/chat/completions", { model: "m", messages: [] });
    if (status === 429 || status === 503) expect(response.headers.get("retry-after")).toBe("3");
    await expectError(response, wanted);
  });

  it("is a 502 if a proxy answers with a page", async () => {
    witness.says(() => ({ status: 200, body: "<html>", headers: { "content-type": "text/html" } }));
    const response = await post("/v1/chat/completions", { model: "m", messages: [], stream: true });
    await expectError(response, { status: 502, code: "upstream_malformed_response" });
  });

  it("names an unknown model", async () => {
    witness.says(said(404, "The model `m` does not exist.", "model"));
    const error = { status: 404, code: "model_not_found", param: "model" };
    await expectError(await post("/v1/embeddings", { model: "m", input: "a" }), error);
  });
});

describe("in front of several servers", () => {
  let fleet: Fleet;
  let openai: OpenAI;
  beforeAll(async () => {
    fleet = await startFleet({
      servers: { a: {}, b: {}, c: {} },
      variables: {
        PASSTHROUGH_ENDPOINTS: "chat/completions,completions,tokenize,detokenize",
        // A healthy server has answered by then, also on a busy machine.
        UPSTREAM_FAILOVER_MS: "2000",
      },
    });
    openai = new OpenAI({ apiKey: "any", baseURL: `${fleet.url}/v1`, maxRetries: 0 });
  });
  afterEach(() => fleet.clear());
  afterAll(() => fleet.close());

  const ask = (path: string, body: object, headers: Record<string, string> = {}) =>
    fetch(fleet.url + path, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify(body),
    });
  const messages = [{ role: "user" as const, content: "one two three four five" }];
  const TEXT = "You said: one two three four five";

  it("chat completions are served, streamed or not, and a stream has the bytes that vLLM sends", async () => {
    const whole = await openai.chat.completions.create({ model: "simulator", messages });
    expect(whole.choices[0]?.message.content).toBe(TEXT);
    let text = "";
    const stream = await openai.chat.completions.create({ model: "simulator", messages, stream: true });
    for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? "";
    expect(text).toBe(TEXT);
    const streamed = {
      ...{ model: "simulator", prompt: "Hello!", stream: true },
      // Without it the gateway asks for the usage, and leaves that event out.
      stream_options: { include_usage: true },
    };
    const response = await ask("/v1/completions", streamed);
    expect(response.headers.get("content-type")).toMatch(/^text\/event-stream/);
    expect(["a", "b", "c"]).toContain(response.headers.get("x-upstream"));
    const direct = await serveSimulator();
    try {
      const body = JSON.stringify(streamed);
      const headers = { "content-type": "application/json" };
      const said = await fetch(`${direct.url}/v1/completions`, { method: "POST", headers, body });
      const withoutIds = (events: string) => events.replace(/"id":"[^"]*"|"created":\d+/g, "");
      expect(withoutIds(await response.text())).toBe(withoutIds(await said.text()));
    } finally {
      await direct.close();
    }
  });

  it("prompts are counted, and tokens decoded", async () => {
    const { tokens } = (await (
      await ask("/tokenize", { model: "simulator-gpt-oss", prompt: "one two" })
    ).json()) as JsonObject;
    const { prompt } = (await (
      await ask("/detokenize", { model: "simulator-gpt-oss", tokens: tokens as never })
    ).json()) as JsonObject;
    expect(prompt).toBe("one two");
  });

  it.each<[what: string, fields: (index: number) => object, headers: (index: number) => Record<string, string>]>([
    ["prompt_cache_key", (index) => ({ prompt_cache_key: `k${index}` }), () => ({})],
    ["a session's header", () => ({}), (index) => ({ "session-id": `s${index}` })],
    [
      "how its messages begin",
      (index) => ({ messages: [{ role: "user", content: `I am ${index}.` }, ...messages] }),
      () => ({}),
    ],
  ])("a session stays at one server by %s", async (_, fields, headers) => {
    const all = new Set<string>();
    for (let index = 0; index < 8; index += 1) {
      fleet.clear();
      for (let turn = 0; turn < 3; turn += 1) {
        const said = { role: "assistant", content: `Turn ${turn}.` };
        const own = { messages, ...fields(index) };
        const body = { ...own, model: "simulator", messages: [...own.messages, ...Array(turn).fill(said)] };
        await (await ask("/v1/chat/completions", body, headers(index))).text();
      }
      expect(fleet.servers()).toHaveLength(1);
      for (const name of fleet.servers()) all.add(name);
    }
    expect(all.size).toBeGreaterThan(1);
  });

  it.each(["fault=refuse", "fault=http:500", "fault=http:503", "fault=html", "fault=stall_headers"])(
    "another server answers if one cannot (%s), before the first byte",
    async (trouble) => {
      const [first] = fleet.replicas as [Replica, ...Replica[]];
      first.trouble = trouble;
      for (let index = 0; index < 6; index += 1) {
        const body = { model: "simulator", messages, stream: true, prompt_cache_key: `${trouble} ${index}` };
        const response = await ask("/v1/chat/completions", body);
        expect(response.status).toBe(200);
        expect(await response.text()).toContain("[DONE]");
      }
    },
  );

  it("a broken stream stays broken, and no other server is asked", async () => {
    for (const replica of fleet.replicas) replica.trouble = "fault=cut:3&tps=20";
    const response = await ask("/v1/chat/completions", { model: "simulator", messages, stream: true });
    expect(response.status).toBe(200);
    await expect(response.text()).rejects.toThrow();
    expect(fleet.replicas.flatMap(({ asked }) => asked)).toHaveLength(1);
  });

  it("a client's disconnection ends its request", async () => {
    for (const replica of fleet.replicas) replica.trouble = "tps=20&words=10000";
    const client = new AbortController();
    const response = await fetch(`${fleet.url}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: "simulator", messages, stream: true }),
      signal: client.signal,
    });
    await response.body?.getReader().read();
    client.abort();
    await eventually(() => fleet.replicas.some(({ asked }) => asked.some(({ state }) => state === "aborted")));
  });

  it("a model that no server has is a 404 with vLLM's message", async () => {
    const response = await ask("/v1/chat/completions", { model: "nobody", messages });
    await expectError(response, { status: 404, code: "model_not_found", param: "model" });
  });
});
