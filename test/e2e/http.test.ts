import { brotliCompressSync, constants, deflateRawSync, deflateSync, gzipSync, zstdCompressSync } from "node:zlib";
import { NotFoundError } from "openai";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { openFilesLimit } from "../../cli/serve/open-files.ts";
import { errorOf, expectError, rejection } from "./expectations.ts";
import { type Gateway, startGateway } from "./support.ts";

const MIB = 1024 * 1024;
const LIMIT = 12 * MIB;

let gateway: Gateway;
beforeAll(async () => {
  gateway = await startGateway({
    MODEL_ALIASES: JSON.stringify({ "gpt-5": "simulator", "org/model": "simulator-reasoning", gone: "not-there" }),
  });
});
afterAll(() => gateway.close());

/** The objects that have storage. */
const stored = () => gateway.storage.ids();
let storedBefore: string[];
beforeEach(async () => {
  gateway.vllm.simulator.requests.length = 0;
  storedBefore = await stored();
});

const get = (path: string, init?: RequestInit) => gateway.fetch(gateway.url + path, init);

/** Posts bytes unchanged. */
function send(body: BodyInit, headers: Record<string, string> = {}, path = "/v1/responses"): Promise<Response> {
  const init = { method: "POST", headers: { "content-type": "application/json", ...headers }, body, duplex: "half" };
  return get(path, init);
}

const json = (text: string) => new TextEncoder().encode(text);
const helloText = '{"model":"simulator","input":"Hello!","store":false}';
const hello = json(helloText);

async function outputText(response: Response): Promise<string> {
  const body = (await response.json()) as { output: { content: { text: string }[] }[] };
  return body.output[0]?.content[0]?.text ?? "";
}

/** Neither vLLM nor the store has got the request. */
async function expectUntouched(): Promise<void> {
  expect(gateway.vllm.simulator.requests).toEqual([]);
  expect(await stored()).toEqual(storedBefore);
}

const COMPRESSIONS: [encoding: string, compress: (body: Uint8Array) => Uint8Array<ArrayBuffer>][] = [
  ["gzip", gzipSync],
  ["deflate", deflateSync],
  // The best compression of 50 MB takes a second or two.
  ["br", (body) => brotliCompressSync(body, { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } })],
  ["zstd", zstdCompressSync],
];

describe("a body that is not JSON", () => {
  const deep = 100_000;
  it.each<[what: string, body: BodyInit]>([
    ["nothing", ""],
    ["white space", "  \n"],
    ["a word", "hello"],
    ["a cut object", '{"model":"simulator","input":"Hel'],
    ["a trailing comma", '{"model":"simulator","input":"Hello!",}'],
    ["a comment", '{"model":"simulator"/* the model */,"input":"Hello!"}'],
    ["single quotes", "{'input':'Hello!'}"],
    ["two objects", '{"input":"a"}{"input":"b"}'],
    ["NaN", '{"input":"a","temperature":NaN}'],
    ["a raw line break in a string", '{"input":"a\nb"}'],
    ["a NUL", "\0"],
    ["UTF-16", new Uint8Array([0x7b, 0, 0x7d, 0])],
    ["invalid UTF-8", new Uint8Array([...json('{"input":"'), 0xff, 0xfe, ...json('"}')])],
    ["UTF-8 cut within a character", new Uint8Array([...json('{"input":"'), 0xe2, 0x82, ...json('"}')])],
    ["a surrogate in UTF-8", new Uint8Array([...json('{"input":"'), 0xed, 0xa0, 0x80, ...json('"}')])],
    [`${deep} opening brackets`, `{"input":${"[".repeat(deep)}`],
    [`${deep} nested arrays`, `{"input":${"[".repeat(deep)}${"]".repeat(deep)}}`],
    [`${deep} nested objects`, `${'{"a":'.repeat(deep)}1${"}".repeat(deep)}`],
    [
      "tool parameters 1000 deep",
      `{"input":"a","tools":[{"type":"function","name":"f","parameters":${'{"a":'.repeat(1000)}1${"}".repeat(1000)}}]}`,
    ],
  ])("%s: 400 invalid_json", async (_what, body) => {
    await expectError(await send(body), {
      status: 400,
      type: "invalid_request_error",
      param: null,
      code: "invalid_json",
    });
    await expectUntouched();
  });

  it.each(["null", "5", "true", '"hello"', "[]", '[{"input":"a"}]'])("%s is JSON and no object: 400", async (body) => {
    await expectError(await send(body), { status: 400, param: null, code: "invalid_type", message: /object/ });
    await expectUntouched();
  });

  it("is not quoted in the error", async () => {
    const error = await errorOf(await send('{"input":"my secret prompt'));
    expect(JSON.stringify(error)).not.toContain("secret");
  });
});

describe("a body of unusual text", () => {
  it("may have any number of brackets in strings", async () => {
    const input = '[{"\\'.repeat(500);
    expect(await outputText(await send(JSON.stringify({ model: "simulator", input, store: false })))).toBe(
      `You said: ${input}`,
    );
  });

  it("may begin with a byte order mark", async () => {
    expect(await outputText(await send(new Uint8Array([0xef, 0xbb, 0xbf, ...hello])))).toBe("You said: Hello!");
  });

  it("may nest tool parameters as deeply as schemas do", async () => {
    let parameters: object = { type: "string" };
    for (let depth = 0; depth < 60; depth += 1) parameters = { type: "object", properties: { a: parameters } };
    const tools = [{ type: "function", name: "f", parameters }];
    const response = await send(JSON.stringify({ model: "simulator", input: "Hello!", store: false, tools }));
    expect(await response.json()).toMatchObject({ status: "completed", tools: [{ parameters }] });
  });

  it.each([false, true])("has U+FFFD for a lone surrogate, with stream: %s", async (stream) => {
    const response = await send(`{"model":"simulator","input":"a \\ud83d b \\ude00 c","stream":${stream}}`);
    const text = await response.text();
    expect(text).toContain("You said: a \ufffd b \ufffd c");
    const id = /resp_\w+/.exec(text)?.[0];
    expect(await (await get(`/v1/responses/${id}`)).text()).toContain("You said: a \ufffd b \ufffd c");
    expect(await (await get(`/v1/responses/${id}/input_items`)).text()).toContain('"a \ufffd b \ufffd c"');
    const messages = gateway.vllm.simulator.lastAsked?.body;
    expect(messages).toMatchObject({ messages: [{ role: "user", content: "a \ufffd b \ufffd c" }] });
  });
});

describe("a body that is too large", () => {
  const large = 50 * MIB;
  /** `{"input":"xxx…` of any length, in pieces. */
  function chunked(length: number): ReadableStream<Uint8Array> {
    const piece = new Uint8Array(64 * 1024).fill(0x78);
    let sent = 0;
    return new ReadableStream({
      pull(controller) {
        controller.enqueue(sent === 0 ? json('{"input":"') : piece);
        sent += piece.length;
        if (sent > length) controller.close();
      },
    });
  }

  it("in one piece is a 413", async () => {
    await expectError(await send(new Uint8Array(large).fill(0x20)), {
      status: 413,
      type: "invalid_request_error",
      param: null,
      code: "request_too_large",
      message: `The request body is too large. The limit is ${LIMIT} bytes.`,
    });
    await expectUntouched();
  });

  it("in chunks, without an announced length, is a 413", async () => {
    await expectError(await send(chunked(large)), { status: 413, code: "request_too_large" });
    await expectUntouched();
  });

  it.each(COMPRESSIONS)("only after decompression (%s) is a 413", async (encoding, compress) => {
    const bomb = compress(new Uint8Array(large).fill(0x20));
    expect(bomb.length).toBeLessThan(LIMIT / 100);
    const response = await send(bomb, { "content-encoding": encoding });
    await expectError(response, { status: 413, code: "request_too_large" });
    await expectUntouched();
  });

  it("is accepted just below the limit", async () => {
    const body = JSON.stringify({ model: "simulator", input: "Hello!", store: false });
    expect(await outputText(await send(body.padEnd(LIMIT, " ")))).toBe("You said: Hello!");
  });
});

describe("a compressed body", () => {
  const compressed: [encoding: string, body: Uint8Array<ArrayBuffer>][] = [
    ["gzip", gzipSync(hello)],
    ["x-gzip", gzipSync(hello)],
    ["GZIP", gzipSync(hello)],
    ["deflate", deflateSync(hello)],
    ["br", brotliCompressSync(hello)],
    ["zstd", zstdCompressSync(hello)],
    ["identity", hello],
  ];
  it.each(compressed)("is read (%s)", async (encoding, body) => {
    expect(await outputText(await send(body, { "content-encoding": encoding }))).toBe("You said: Hello!");
  });

  const broken: [what: string, encoding: string, body: Uint8Array<ArrayBuffer>][] = [
    ["plain JSON", "gzip", hello],
    ["plain JSON", "br", hello],
    ["plain JSON", "zstd", hello],
    ["plain JSON", "deflate", hello],
    ["cut", "gzip", gzipSync(hello).subarray(0, 30)],
    ["cut", "br", brotliCompressSync(hello).subarray(0, 20)],
    ["cut", "zstd", zstdCompressSync(hello).subarray(0, 30)],
    ["of a wrong checksum", "gzip", gzipSync(hello).map((byte, at, all) => (at === all.length - 6 ? byte ^ 1 : byte))],
    ["without zlib's header", "deflate", deflateRawSync(hello)],
    ["empty", "gzip", new Uint8Array()],
    ["in another encoding", "br", gzipSync(hello)],
  ];
  it.each(broken)("that is %s under %s is a 400", async (_what, encoding, body) => {
    await expectError(await send(body, { "content-encoding": encoding }), {
      status: 400,
      type: "invalid_request_error",
      code: expect.stringMatching(/^invalid_(content_encoding|json)$/),
    });
    await expectUntouched();
  });

  /** The body is sent in pieces, without an announced length. */
  const chunks = (body: Uint8Array<ArrayBuffer>) =>
    new ReadableStream<Uint8Array>({
      start(controller) {
        for (let at = 0; at < body.length; at += 1024) controller.enqueue(body.subarray(at, at + 1024));
        controller.close();
      },
    });

  it.each(COMPRESSIONS)(
    "that becomes more than 100 times as long is a 413 that says so, although it is short enough (%s)",
    async (encoding, compress) => {
      const bomb = compress(json(helloText.padEnd(8 * MIB, " ")));
      for (const body of [bomb, chunks(bomb)]) {
        await expectError(await send(body, { "content-encoding": encoding }), {
          status: 413,
          type: "invalid_request_error",
          param: null,
          code: "request_too_large",
          message:
            "The request body expands too much: beyond 1048576 bytes it may expand to 100 times its size. Send it without Content-Encoding.",
        });
      }
      await expectUntouched();
    },
  );

  it.each(COMPRESSIONS)("that becomes 1 MiB long is read, however short it was (%s)", async (encoding, compress) => {
    const body = compress(json(helloText.padEnd(MIB, " ")));
    expect(body.length).toBeLessThan(MIB / 500);
    for (const sent of [body, chunks(body)]) {
      expect(await outputText(await send(sent, { "content-encoding": encoding }))).toBe("You said: Hello!");
    }
  });

  it.each(COMPRESSIONS)(
    "of many similar rows, which becomes many times as long, is read (%s)",
    async (encoding, compress) => {
      const rows = Array.from({ length: 25_000 }, (_, id) => ({ id, name: `Sensor ${id % 50}`, unit: "°C", tags: [] }));
      const model = "simulator?words=3&max_model_len=10000000";
      const text = json(JSON.stringify({ model, input: JSON.stringify(rows), store: false }));
      expect(text.length).toBeGreaterThan(MIB);
      const body = compress(text);
      expect(text.length / body.length).toBeGreaterThan(10);
      for (const sent of [body, chunks(body)]) {
        expect(await outputText(await send(sent, { "content-encoding": encoding }))).not.toBe("");
      }
    },
  );

  it.each(["compress", "gzip, br", "__proto__", "gzip;q=1"])(
    "of encoding %s is a 415 that names the others",
    async (encoding) => {
      const response = await send(hello, { "content-encoding": encoding });
      expect(response.headers.get("accept-encoding")).toBe("gzip, x-gzip, deflate, br, zstd");
      await expectError(response, { status: 415, code: "unsupported_content_encoding", message: /gzip.*br, zstd/ });
      await expectUntouched();
    },
  );
});

describe("the content type", () => {
  it.each(["application/json", "application/json; charset=utf-8", "Application/JSON", "application/vnd.api+json"])(
    "%s is accepted",
    async (type) => {
      expect((await send(hello, { "content-type": type })).status).toBe(200);
    },
  );

  it.each([
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "application/jsonp",
    "",
  ])("'%s' is a 415", async (type) => {
    await expectError(await send(hello, { "content-type": type }), {
      status: 415,
      type: "invalid_request_error",
      code: "unsupported_media_type",
      message: /application\/json/,
    });
    await expectUntouched();
  });

  it("that is absent is a 415", async () => {
    const response = await get("/v1/responses", { method: "POST", body: hello });
    await expectError(response, { status: 415, code: "unsupported_media_type" });
  });
});

describe("routes", () => {
  const id = `resp_${"a".repeat(32)}`;

  it.each([
    ["PUT", "/v1/responses", "POST, GET"],
    ["DELETE", "/v1/responses", "POST, GET"],
    ["OPTIONS", "/v1/responses", "POST, GET"],
    ["PATCH", `/v1/responses/${id}`, "GET, POST, DELETE"],
    ["POST", `/v1/responses/${id}/input_items`, "GET"],
    ["POST", "/v1/models", "GET"],
    ["DELETE", "/v1/models/simulator", "GET"],
    ["POST", "/health", "GET"],
    ["POST", "/health/upstream", "GET"],
  ])("%s %s is a 405 that allows %s", async (method, path, allow) => {
    const response = await get(path, { method });
    expect(response.headers.get("allow")).toBe(allow);
    await expectError(response, {
      status: 405,
      type: "invalid_request_error",
      code: "method_not_allowed",
      message: `Not allowed to ${method} on ${path}. Allowed: ${allow}.`,
    });
  });

  it.each([
    ["GET", "/v1"],
    ["GET", "/v1/"],
    ["POST", "/responses"],
    ["POST", "/v1/chat/completions"],
    ["POST", "/v1/conversations/"],
    ["POST", "/v1/responses/"],
    ["POST", "/V1/responses"],
    ["GET", `/v1/responses/${id}/output_items`],
    ["GET", "/favicon.ico"],
    ["GET", "/%00"],
    ["GET", "/%ff"],
  ])("%s %s is a 404", async (method, path) => {
    await expectError(await get(path, { method }), {
      status: 404,
      type: "invalid_request_error",
      param: null,
      code: "unknown_url",
    });
  });

  it.each([
    ["POST", "/v1/images", { status: 404, code: "unknown_url" }],
    ["POST", "/v1/models", { status: 405, code: "method_not_allowed" }],
    ["POST", "/v1/responses", { status: 415, code: "unsupported_media_type" }],
  ])("%s %s with a form of 24 MB is read to its end, and refused by its type", async (method, path, wanted) => {
    const body = new FormData();
    body.set("purpose", "user_data");
    body.set("file", new Blob(["x".repeat(24 * 1024 * 1024)]), "big.txt");
    await expectError(await get(path, { method, body }), wanted);
  });

  it.each([id, "resp_", "resp_1", "msg_1", "%E2%82%AC", "%ff", "a%2Fb", "..%2F..", "constructor"])(
    "an unknown id (%s) is a 404 in every operation",
    async (unknown) => {
      const path = `/v1/responses/${unknown}`;
      const wanted = { status: 404, type: "invalid_request_error", param: "response_id", code: "response_not_found" };
      await expectError(await get(path), wanted);
      await expectError(await get(path, { method: "DELETE" }), wanted);
      await expectError(await get(`${path}/input_items`), wanted);
    },
  );

  it.each([
    ["Response", "/v1/responses/x"],
    ["Conversation", "/v1/conversations/x"],
    ["File", "/v1/files/x"],
    ["Vector store", "/v1/vector_stores/x"],
    ["Batch", "/v1/batches/x"],
    ["Webhook endpoint", "/v1/webhook_endpoints/x"],
  ])("the 404 of an unknown id names it in the same words: %s", async (thing, path) => {
    await expectError(await get(path), { status: 404, message: `${thing} with id 'x' not found.` });
  });

  it("an id of 65 characters is a 400 that says so", async () => {
    for (const suffix of ["", "/input_items"]) {
      await expectError(await get(`/v1/responses/${"x".repeat(65)}${suffix}`), {
        status: 400,
        param: "response_id",
        code: "string_above_max_length",
      });
    }
  });

  it.each<[what: string, call: () => Promise<unknown>]>([
    ["retrieve", () => gateway.openai.responses.retrieve(id)],
    ["delete", () => gateway.openai.responses.delete(id)],
    ["inputItems.list", () => gateway.openai.responses.inputItems.list(id)],
    ["models.retrieve", () => gateway.openai.models.retrieve("nobody/nothing")],
  ])("the openai client throws a NotFoundError on %s", async (_what, call) => {
    const error = await rejection(call());
    expect(error).toBeInstanceOf(NotFoundError);
    expect(error).toMatchObject({ status: 404, type: "invalid_request_error" });
  });

  it("every answer has a request id, also errors", async () => {
    expect((await get("/health")).headers.get("x-request-id")).toBeTruthy();
    expect((await send("{")).headers.get("x-request-id")).toBeTruthy();
    const response = await gateway.openai.responses.create({ model: "simulator", input: "Hello!", store: false });
    expect(response._request_id).toBeTruthy();
  });

  it("a client's own request id is returned", async () => {
    const response = await send(hello, { "x-request-id": "my-request-7" });
    expect(response.headers.get("x-request-id")).toBe("my-request-7");
  });
});

describe("/health", () => {
  it("reports that the Worker is up, without asking vLLM", async () => {
    const response = await get("/health");
    const limits = { limit: expect.any(Number), open: expect.any(Number) };
    const open_files = { limit: openFilesLimit(), used: expect.any(Number), objects: limits };
    expect([response.status, await response.json()]).toMatchObject([200, { status: "ok", open_files }]);
    expect(gateway.vllm.simulator.requests).toEqual([]);
  });

  it("/health/upstream asks vLLM each time, and names its models", async () => {
    for (let count = 1; count <= 2; count += 1) {
      expect(await (await get("/health/upstream")).json()).toEqual({
        status: "ok",
        latency_ms: expect.any(Number),
        models: [
          "simulator",
          "simulator-reasoning",
          "simulator-gpt-oss",
          "simulator-harmony",
          "tiny-qwen3",
          "tiny-gpt-oss",
        ],
        down_since: null,
        separates_tenants: true,
        dialect: "vllm",
        recovery: { background_ms: 900_000, foreground_ms: 300_000 },
      });
      expect(gateway.vllm.simulator.requests.map((request) => request.path)).toEqual(Array(count).fill("/v1/models"));
    }
  });
});

describe("/v1/models", () => {
  it("lists vLLM's models, and the aliases of existing ones", async () => {
    const models = [];
    for await (const model of gateway.openai.models.list()) models.push(model);
    expect(models).toMatchObject([
      { id: "simulator", object: "model", owned_by: "vllm", created: expect.any(Number), max_model_len: 131_072 },
      { id: "simulator-reasoning" },
      { id: "simulator-gpt-oss", root: "openai/gpt-oss-20b" },
      { id: "simulator-harmony", root: "openai/gpt-oss-120b" },
      { id: "tiny-qwen3" },
      { id: "tiny-gpt-oss" },
      { id: "gpt-5", object: "model", parent: "simulator" },
      { id: "org/model", object: "model", parent: "simulator-reasoning" },
    ]);
  });

  it.each(["simulator", "gpt-5", "org/model"])("retrieves %s, its slashes encoded or not", async (id) => {
    expect(await gateway.openai.models.retrieve(id)).toMatchObject({ id, object: "model" });
    expect(await (await get(`/v1/models/${id}`)).json()).toMatchObject({ id });
  });

  it.each(["gone", "gpt-4", "constructor"])("'%s' is a 404 model_not_found", async (id) => {
    await expectError(await get(`/v1/models/${id}`), {
      status: 404,
      type: "invalid_request_error",
      param: "model",
      code: "model_not_found",
      message: `The model '${id}' does not exist.`,
    });
  });

  it("asks vLLM once for many lists", async () => {
    await Promise.all([get("/v1/models"), get("/v1/models/gpt-5")]);
    await get("/v1/models");
    expect(gateway.vllm.simulator.requests).toEqual([]);
  });

  it("an alias is the client's name of a model, and vLLM gets the model's own", async () => {
    const response = await gateway.openai.responses.create({ model: "gpt-5", input: "Hello!", store: false });
    expect(response.model).toBe("gpt-5");
    expect(gateway.vllm.simulator.lastAsked?.body).toMatchObject({ model: "simulator" });
  });

  it("vLLM's first model answers a request without a model", async () => {
    const response = await gateway.openai.responses.create({ input: "Hello!", store: false });
    expect(response.model).toBe("simulator");
  });

  it.each(["gpt-4", "gone", "constructor"])(
    "a response of the unknown model '%s' is a 400 model_not_found",
    async (model) => {
      const error = await rejection(gateway.openai.responses.create({ model, input: "Hello!" }));
      expect(error).toMatchObject({
        status: 400,
        type: "invalid_request_error",
        param: "model",
        code: "model_not_found",
      });
    },
  );
});
