import { APIError, BadRequestError, InternalServerError, RateLimitError } from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { freePort } from "../workerd/tools.ts";
import { errorOf, expectError, readStream, rejection, type Streamed } from "./expectations.ts";
import { eventually, type Gateway, startGateway } from "./support.ts";

const VLLM_API_KEY = "vllm-key-of-the-operator";
const PROMPT = "The zebra is at the door.";

/** Nothing of the prompt, of a key, of where vLLM is, or of the code may be in an error. */
function expectDiscreet(text: string): void {
  for (const secret of [/zebra/, /vllm-key/, /127\.0\.0\.1/, /localhost/, /\.(ts|js):\d+/, /\n\s+at /]) {
    expect(text).not.toMatch(secret);
  }
}

// These gateways do not resume a generation whose connection dies; continuation.test.ts covers resumption.
let gateway: Gateway;
/** A gateway with short timeouts, for a vLLM that never answers. */
let hasty: Gateway;
beforeAll(async () => {
  const vars = { VLLM_API_KEY, VLLM_MAX_RETRIES: "0" };
  [gateway, hasty] = await Promise.all([
    startGateway(vars),
    startGateway({ ...vars, VLLM_CONNECT_TIMEOUT_MS: "600", VLLM_IDLE_TIMEOUT_MS: "500" }),
  ]);
});
afterAll(() => Promise.all([gateway.close(), hasty.close()]));

const gatewayFor = (settings: string) => (settings.includes("stall") ? hasty : gateway);
const stored = (settings = "") => gatewayFor(settings).storage.ids();
const ask = (settings: string, fields: object = {}) =>
  gatewayFor(settings).post({ model: `simulator?${settings}`, input: PROMPT, ...fields });

/** The failure that a stream ends with: `error`, then `response.failed`, then `[DONE]`. */
function failureOf({ events, types, done }: Streamed) {
  expect(types.slice(0, 2)).toEqual(["response.created", "response.in_progress"]);
  expect(types.slice(-2)).toEqual(["error", "response.failed"]);
  expect(done).toBe(true);
  const [error, failed] = events.slice(-2);
  if (!error?.error || !failed?.response?.error) throw new Error("No error in the last events.");
  // Nested for OpenAI's own clients, flat for the others.
  const { code, message, param, type } = error.error;
  expect(error).toMatchObject({ code, message, param });
  expect(failed.response).toMatchObject({ status: "failed", error: { message } });
  return { type, code, message, response: failed.response };
}

describe("vLLM fails before it answers", () => {
  const cases: [fault: string, status: number, code: string, type?: string][] = [
    ["http:400", 400, "invalid_request", "invalid_request_error"],
    ["http:422", 400, "invalid_request", "invalid_request_error"],
    ["http:429", 429, "rate_limit_exceeded", "rate_limit_error"],
    ["http:500", 502, "upstream_error"],
    ["http:502", 502, "upstream_unreachable"],
    ["http:503", 503, "server_is_overloaded"],
    ["http:504", 504, "upstream_timeout"],
    // The gateway's credentials at vLLM, or its URL, are wrong: that is not the client's fault.
    ["http:401", 502, "upstream_error"],
    ["http:403", 502, "upstream_error"],
    ["http:404", 502, "upstream_error"],
    ["http:405", 502, "upstream_error"],
    ["http:302", 502, "upstream_error"],
    ["html", 502, "upstream_malformed_response"],
    ["stall_headers", 504, "upstream_timeout"],
  ];
  const rows = cases.flatMap(([fault, status, code, type = "server_error"]) =>
    [false, true].map((stream) => [fault, stream, status, code, type] as const),
  );

  it.each(rows)("%s, stream: %s: %i %s", async (fault, stream, status, code, type) => {
    const before = await stored(fault);
    const response = await ask(`fault=${fault}`, { stream });
    const text = await response.clone().text();
    await expectError(response, { status, code, type });
    expectDiscreet(text);
    expect(await stored(fault)).toEqual(before);
  });

  it.each([
    ["http:429", RateLimitError],
    ["http:401", InternalServerError],
    ["http:503", InternalServerError],
    ["http:422", BadRequestError],
  ])("the openai client throws its own class for %s", async (fault, errorClass) => {
    const request = { model: `simulator?fault=${fault}`, input: PROMPT };
    expect(await rejection(gateway.openai.responses.create(request))).toBeInstanceOf(errorClass);
    expect(await rejection(gateway.openai.responses.create({ ...request, stream: true }))).toBeInstanceOf(errorClass);
  });

  it("recovers by the client's own retry from a passing fault", async () => {
    const openai = gateway.client({ maxRetries: 1 });
    const request = { model: "simulator?fault=http:503&fault_times=1", input: "Hello!" };
    expect((await openai.responses.create(request)).output_text).toBe("You said: Hello!");
  });

  it.each(["nobody", "nobody?flat=1"])("the unknown model %s is a 400 model_not_found", async (model) => {
    for (const stream of [false, true]) {
      const error = await rejection(gateway.openai.responses.create({ model, input: PROMPT, stream }));
      expect(error).toBeInstanceOf(BadRequestError);
      expect(error).toMatchObject({
        param: "model",
        code: "model_not_found",
        message: expect.stringContaining("nobody"),
      });
    }
  });

  it("a prompt beyond the context window is a 400 context_length_exceeded", async () => {
    for (const stream of [false, true]) {
      await expectError(await ask("max_model_len=5", { stream }), {
        status: 400,
        type: "invalid_request_error",
        param: "input",
        code: "context_length_exceeded",
      });
    }
  });

  it("names an image for a model without vision in the same way in a create, its count and its truncation", async () => {
    const body = {
      model: "tiny-qwen3",
      input: [
        {
          role: "user",
          content: [
            { type: "input_text", text: "What is this?" },
            { type: "input_image", image_url: "data:image/png;base64,iVBORw0KGgo=", detail: "auto" },
          ],
        },
      ],
    };
    const wanted = { status: 400, type: "invalid_request_error", param: "input[0].content[1]" };
    await expectError(await gateway.post(body), wanted);
    await expectError(await gateway.post({ ...body, truncation: "auto" }), wanted);
    await expect(gateway.openai.responses.inputTokens.count(body as never)).rejects.toMatchObject(wanted);
  });

  it("is an upstream error, not the client's, for truncation: auto without a working /tokenize", async () => {
    for (const fault of ["http:404", "http:400", "http:500", "html"]) {
      const response = await ask(`fault=${fault}`, { truncation: "auto" });
      expect({ fault, status: response.status }).toEqual({ fault, status: 502 });
    }
  });
});

describe("vLLM fails in the middle of its answer", () => {
  const cases: [fault: string, text: string, code: string, status: number][] = [
    ["error:0", "", "upstream_error", 502],
    ["error:2", "You said", "upstream_error", 502],
    ["error:2&flat=1", "You said", "upstream_error", 502],
    ["error:2&done=0", "You said", "upstream_error", 502],
    ["error:2&chunk=16", "You said", "upstream_error", 502],
    ["error:2&bytes=3", "You said", "upstream_error", 502],
    ["garbage:0", "", "upstream_malformed_response", 502],
    ["garbage:2", "You said", "upstream_malformed_response", 502],
    ["cut:0", "", "upstream_connection_lost", 502],
    ["cut:2", "You said", "upstream_connection_lost", 502],
    ["end:0", "", "upstream_connection_lost", 502],
    ["end:2", "You said", "upstream_connection_lost", 502],
    ["end:1000", "You said: The zebra is at the door.", "upstream_connection_lost", 502],
    ["stall:2", "You said", "upstream_timeout", 504],
  ];

  it.each(cases)(
    "%s: the stream ends with error and response.failed, and the failed response is stored",
    async (fault, text, code) => {
      const stream = await readStream(await ask(`fault=${fault}`, { stream: true }));
      const failure = failureOf(stream);
      expect(failure).toMatchObject({ type: "server_error", code, response: { error: { code: "server_error" } } });
      expectDiscreet(failure.message);
      expect(stream.text).toBe(text);
      expect(failure.response.output).toMatchObject(
        text === "" ? [] : [{ type: "message", status: "incomplete", content: [{ text }] }],
      );
      const { output_text, ...retrieved } = await gatewayFor(fault).openai.responses.retrieve(stream.id);
      expect(retrieved).toEqual(failure.response);
      expect(output_text).toBe(text);
    },
  );

  it.each(cases)("%s: a JSON request gets an error, and nothing is stored", async (fault, _text, code, status) => {
    const before = await stored(fault);
    const response = await ask(`fault=${fault}`);
    const text = await response.clone().text();
    await expectError(response, { status, code, type: "server_error", param: null });
    expectDiscreet(text);
    expect(await stored(fault)).toEqual(before);
  });

  it("with store: false a failed stream leaves nothing behind", async () => {
    const before = await stored();
    const stream = await readStream(await ask("fault=cut:2", { stream: true, store: false }));
    failureOf(stream);
    expect(await stored()).toEqual(before);
    await expectError(await gateway.fetch(`${gateway.url}/v1/responses/${stream.id}`), { status: 404 });
  });

  it.each(["error:2", "cut:2"])("openai's stream() throws an APIError on %s", async (fault) => {
    const stream = gateway.openai.responses.stream({ model: `simulator?fault=${fault}`, input: PROMPT });
    const seen: string[] = [];
    const error = await rejection(
      (async () => {
        for await (const event of stream) if (event.type === "response.output_text.delta") seen.push(event.delta);
      })(),
    );
    expect(error).toBeInstanceOf(APIError);
    expect(seen.join("")).toBe("You said");
  });

  it("in its reasoning: the partial reasoning is stored", async () => {
    const request = { model: "simulator-reasoning?fault=cut:3", input: PROMPT, stream: true };
    const stream = await readStream(await gateway.post(request));
    expect(failureOf(stream).response.output).toMatchObject([
      { type: "reasoning", status: "incomplete", content: [{ type: "reasoning_text", text: "The user said" }] },
    ]);
  });

  it("in a call's arguments: the call is incomplete, and does not hinder the next turn", async () => {
    const tools = [
      {
        type: "function" as const,
        name: "get_weather",
        parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
        strict: true,
      },
    ];
    const request = { tools, tool_choice: "required", input: "Weather?", stream: true };
    const stream = await readStream(await gateway.post({ ...request, model: "simulator?fault=cut:3" }));
    expect(failureOf(stream).response.output).toMatchObject([{ type: "function_call", status: "incomplete" }]);
    const next = await gateway.openai.responses.create({
      model: "simulator",
      input: "And now?",
      previous_response_id: stream.id,
    });
    expect(next.output_text).toBe("You said: And now?");
  });

  it("a failed response can be continued: its input and its partial answer are history", async () => {
    const failed = await readStream(await ask("fault=cut:2", { stream: true }));
    failureOf(failed);
    const next = await gateway.openai.responses.create({
      model: "simulator?mode=transcript",
      input: "Again.",
      previous_response_id: failed.id,
    });
    expect(JSON.parse(next.output_text)).toEqual([
      { role: "user", content: PROMPT },
      { role: "assistant", content: "You said" },
      { role: "user", content: "Again." },
    ]);
  });
});

describe("vLLM answers in an unusual way", () => {
  const input = "Grüße, 世界! 👩‍👩‍👧 «ok»";
  const settings = [
    "done=0",
    "usage=0",
    "cached=0",
    "crlf=1",
    "comments=1",
    "reasoning_field=reasoning_content",
    "reasoning_field=both",
    "flat=1",
    "fault=json",
    "fault=json&cached=0",
    "bytes=1",
    "bytes=2",
    "bytes=7",
    "chunk=16",
    "chunk=1000",
    "per_delta=4",
    "crlf=1&comments=1&bytes=1&done=0&usage=0&reasoning_field=reasoning_content",
  ];
  const rows = settings.flatMap((setting) => [false, true].map((stream) => [setting, stream] as const));

  it.each(rows)("%s is understood, stream: %s", async (setting, stream) => {
    const request = { model: `simulator-reasoning?${setting}`, input };
    const response = stream
      ? await gateway.openai.responses.stream(request).finalResponse()
      : await gateway.openai.responses.create(request);
    const usage = {
      input_tokens: expect.any(Number),
      input_tokens_details: { cached_tokens: expect.any(Number), cache_write_tokens: expect.any(Number) },
      output_tokens: expect.any(Number),
      output_tokens_details: { reasoning_tokens: expect.any(Number) },
      total_tokens: expect.any(Number),
    };
    expect(response).toMatchObject({
      status: "completed",
      output: [
        {
          type: "reasoning",
          status: "completed",
          content: [{ text: `The user said: ${input}. I should answer with effort default.` }],
        },
        { type: "message", status: "completed", content: [{ type: "output_text", text: `You said: ${input}` }] },
      ],
      usage: setting.includes("usage=0") ? null : usage,
    });
  });

  it("flat errors are read like nested ones", async () => {
    const [nested, flat] = await Promise.all([ask("max_model_len=5"), ask("max_model_len=5&flat=1")]);
    expect(await errorOf(flat)).toEqual(await errorOf(nested));
  });
});

it("logs nothing of prompts and keys", () => {
  expectDiscreet(gateway.logs());
});

describe("the connection to vLLM", () => {
  const [heartbeat, connect, firstByte, idle] = [150, 4_000, 3_000, 2_500];
  let dev: Gateway;
  let unreachable: Gateway;
  beforeAll(async () => {
    [dev, unreachable] = await Promise.all([
      startGateway({
        VLLM_API_KEY,
        HEARTBEAT_MS: String(heartbeat),
        VLLM_CONNECT_TIMEOUT_MS: String(connect),
        VLLM_FIRST_BYTE_TIMEOUT_MS: String(firstByte),
        VLLM_IDLE_TIMEOUT_MS: String(idle),
        VLLM_MAX_RETRIES: "0",
      }),
      startGateway({ VLLM_BASE_URL: `http://127.0.0.1:${await freePort()}/v1` }),
    ]);
  });
  afterAll(async () => {
    await Promise.all([dev.close(), unreachable.close()]);
  });

  const askDev = (settings: string, fields: object = {}) =>
    dev.post({ model: `simulator?${settings}`, input: PROMPT, ...fields });
  const requestOf = (settings: string) =>
    dev.vllm.simulator.requests.findLast((request) => JSON.stringify(request.body)?.includes(`?${settings}"`));
  /** The request's connection to vLLM closes, because nobody waits for its answer. */
  const released = (settings: string) => eventually(() => requestOf(settings)?.state === "aborted");

  it.each([false, true])("refused: 502, stream: %s", async (stream) => {
    await expectError(await ask("fault=refuse", { stream }), {
      status: 502,
      type: "server_error",
      code: "upstream_unreachable",
      message: "The model server could not be reached.",
    });
  });

  it("nothing listens at VLLM_BASE_URL: 502 for a response, a list of models, and 503 for the health of vLLM", async () => {
    for (const body of [{ model: "m" }, { model: "m", stream: true }, {}]) {
      const response = await unreachable.post({ input: PROMPT, ...body });
      expectDiscreet(await response.clone().text());
      expect(response.headers.get("retry-after")).toBe("2");
      await expectError(response, { status: 502, type: "server_error" });
    }
    await expectError(await unreachable.fetch(`${unreachable.url}/v1/models`), { status: 502, type: "server_error" });
    const health = await unreachable.fetch(`${unreachable.url}/health/upstream`);
    expect({ status: health.status, body: await health.json() }).toMatchObject({
      status: 503,
      body: { status: "unreachable", error: { code: expect.any(String), message: expect.any(String) } },
    });
    expect((await unreachable.fetch(`${unreachable.url}/health`)).status).toBe(200);
  });

  describe.concurrent("timeouts", () => {
    it("no headers: 504 after VLLM_CONNECT_TIMEOUT_MS, and the request is given up", async () => {
      const settings = "fault=stall_headers";
      const response = await askDev(settings);
      await expectError(response, {
        status: 504,
        type: "server_error",
        code: "upstream_timeout",
        message: `The model server did not answer within ${connect} ms.`,
      });
      await released(settings);
    });

    it("no headers, with a stream: it starts after the heartbeat interval, and fails with an event", async () => {
      const settings = "fault=stall_headers&ttft=1";
      const stream = await readStream(await askDev(settings, { stream: true }));
      expect(failureOf(stream)).toMatchObject({ code: "upstream_timeout" });
      expect(stream.types).toHaveLength(4);
      expect(stream.comments).toContain("heartbeat");
      await released(settings);
    });

    it("late headers, with a stream: it starts, and has heartbeats and its whole output", async () => {
      const stream = await readStream(await askDev("headers_delay=700", { stream: true }));
      expect(stream.types.at(-1)).toBe("response.completed");
      expect(stream.comments).toContain("heartbeat");
      expect(stream.text).toBe(`You said: ${PROMPT}`);
    });

    it("a refusal that comes late is an event: response.failed says invalid_prompt", async () => {
      const response = await dev.post({ model: "nobody?headers_delay=400", input: PROMPT, stream: true });
      const stream = await readStream(response);
      const failure = failureOf(stream);
      expect(failure).toMatchObject({ type: "invalid_request_error", code: "model_not_found" });
      expect(failure.response.error?.code).toBe("invalid_prompt");
      expect((await dev.openai.responses.retrieve(stream.id)).status).toBe("failed");
    });

    it("headers and no first byte: 504 after VLLM_FIRST_BYTE_TIMEOUT_MS, and the request is given up", async () => {
      const settings = "ttft=5000";
      await expectError(await askDev(settings), {
        status: 504,
        code: "upstream_timeout",
        message: `The model server went silent within ${firstByte} ms.`,
      });
      await released(settings);
    });

    it("headers and no first byte, with a stream: it fails with an event", async () => {
      const settings = "ttft=5001";
      const stream = await readStream(await askDev(settings, { stream: true }));
      expect(failureOf(stream)).toMatchObject({ code: "upstream_timeout" });
      await released(settings);
    });

    it("silence in the middle: 504 after VLLM_IDLE_TIMEOUT_MS, and the request is given up", async () => {
      const settings = "fault=stall:2";
      await expectError(await askDev(settings), {
        status: 504,
        code: "upstream_timeout",
        message: `The model server went silent within ${idle} ms.`,
      });
      await released(settings);
    });

    it("silence in the middle of a stream: it fails with its partial output", async () => {
      const settings = "fault=stall:3";
      const stream = await readStream(await askDev(settings, { stream: true }));
      expect(failureOf(stream)).toMatchObject({ code: "upstream_timeout" });
      expect(stream.text).toBe("You said:");
      await released(settings);
    });

    it("a slow model is not a silent one", async () => {
      const response = await dev.openai.responses.create({ model: "simulator?words=8&tps=8", input: PROMPT });
      expect(response.status).toBe("completed");
    });
  });

  it("a malformed stream is given up at once", async () => {
    const settings = "fault=garbage:2&tps=20&words=500";
    failureOf(await readStream(await askDev(settings, { stream: true })));
    await released(settings);
  });

  it("prints nothing of prompts and keys", () => {
    expect(dev.logs()).not.toMatch(/zebra|vllm-key/);
  });
});
