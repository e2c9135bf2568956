import { Upstream } from "@responses-edge/engines/upstream";
import { readFault, toFaultError, toPassedError } from "@responses-edge/engines/upstream-faults";
import { ApiError } from "@responses-edge/responses-api/errors";
import { describe, expect, it } from "vitest";
import { loadConfig } from "../../src/config/index.ts";

type Fetch = (url: string, init: RequestInit) => Promise<Response>;

function upstreamOf(fetch: Fetch, VLLM_API_KEY = "vllm-key"): Upstream {
  const config = loadConfig({
    VLLM_BASE_URL: "http://vllm/v1",
    UPSTREAM_DIALECT: "vllm",
    VLLM_API_KEY,
  } as Parameters<typeof loadConfig>[0]);
  return new Upstream({ ...config, modelServers: config.modelServers.map((server) => ({ ...server, fetch })) });
}

const never = new AbortController().signal;

async function refusal(promise: Promise<unknown>): Promise<unknown> {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("Expected a rejection.");
}

describe("a request to vLLM", () => {
  it("goes below /v1, or from the root with two slashes, with the operator's key", async () => {
    const asked: [string, string | undefined, unknown][] = [];
    const upstream = upstreamOf(async (url, init) => {
      asked.push([url, init.method, init.headers]);
      return Response.json({});
    });
    await upstream.request("/models", never);
    await upstream.request("//tokenize", never, "{}");
    expect(asked).toMatchObject([
      ["http://vllm/v1/models", "GET", { authorization: "Bearer vllm-key" }],
      ["http://vllm/tokenize", "POST", { authorization: "Bearer vllm-key", "content-type": "application/json" }],
    ]);
  });

  it("has no authorization without a key", async () => {
    const upstream = upstreamOf(async (_url, init) => {
      expect(init.headers).not.toHaveProperty("authorization");
      return Response.json({});
    }, "");
    await upstream.request("/models", never);
  });

  it("that is aborted ends with the signal's own reason, not with a fault of vLLM", async () => {
    const controller = new AbortController();
    const upstream = upstreamOf((_url, init) => {
      return new Promise((_resolve, reject) => {
        init.signal?.addEventListener("abort", () => reject(new Error("aborted")));
      });
    });
    const reason = new Error("the client left");
    const result = refusal(upstream.request("/models", controller.signal));
    controller.abort(reason);
    expect(await result).toBe(reason);
  });

  it.each<[what: string, answer: () => Response]>([
    ["is no JSON", () => new Response("<html>")],
    ["is cut", () => new Response('{"data":[')],
    ["is empty", () => new Response("")],
  ])("whose answer %s fails with a 502", async (_what, answer) => {
    const error = await refusal(upstreamOf(async () => answer()).json("/models", never));
    expect(error).toMatchObject({ status: 502, code: "upstream_malformed_response" });
  });

  it("reads errors of any shape", async () => {
    const bodies = [
      '{"error":{"message":"m"}}',
      '{"object":"error","message":"m"}',
      '{"error":"m"}',
      '{"detail":"x"}',
      "<html>",
      "",
    ];
    for (const body of bodies) {
      const error = await refusal(
        upstreamOf(async () => new Response(body, { status: 400 })).request("/models", never),
      );
      expect(error).toBeInstanceOf(ApiError);
      expect(error).toMatchObject({ status: 400, type: "invalid_request_error", code: "invalid_request" });
    }
  });
});

describe("a fault of vLLM as an error of this API", () => {
  it.each<[message: string, what: string]>([
    ["This model's maximum context length is 10 tokens. However, you requested 20 tokens", "vLLM's chat completions"],
    ["The decoder prompt (length 20) is longer than the maximum model length of 10.", "vLLM's engine"],
    [
      "This model's maximum context length is 10 tokens. However, you requested 20 tokens (15 in the messages, 5 in the completion). Please reduce the length of the messages or completion.",
      "vLLM before 0.12, where the prompt is too long",
    ],
    [
      "'max_tokens' or 'max_completion_tokens' is too large: 5. This model's maximum context length is 10 tokens and your request has 12 input tokens (5 > 10 - 12).",
      "vLLM 0.9, where the prompt is too long",
    ],
  ])("%s: context_length_exceeded", (message) => {
    const error = toFaultError(400, { message });
    expect(error).toMatchObject({ status: 400, param: "input", code: "context_length_exceeded" });
  });

  it("a prompt of exactly the window counts as too long", () => {
    const message = "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)";
    const error = toFaultError(400, { message, param: "max_tokens" });
    expect(error).toMatchObject({ status: 400, param: "input", code: "context_length_exceeded" });
    expect(error.message).toMatch(/context window/);
  });

  it.each([
    "max_completion_tokens=5000 cannot be greater than max_model_len=4096. Please request fewer output tokens. (parameter=max_completion_tokens, value=5000)",
    "max_tokens=9000 cannot be greater than max_model_len=8192. Please request fewer output tokens. (parameter=max_tokens, value=9000)",
    "'max_tokens' or 'max_completion_tokens' is too large: 20. This model's maximum context length is 10 tokens and your request has 3 input tokens (20 > 10 - 3).",
    "This model's maximum context length is 10 tokens. However, you requested 20 tokens (3 in the messages, 17 in the completion). Please reduce the length of the messages or completion.",
  ])("%s: max_output_tokens is at fault", (message) => {
    const error = toFaultError(400, { message, param: "max_completion_tokens" });
    expect(error).toMatchObject({ status: 400, param: "max_output_tokens", code: "above_max_value" });
    expect(error.message).not.toMatch(/max_completion_tokens|max_tokens\b|parameter=/);
  });

  it.each([
    ["max_completion_tokens", "max_output_tokens"],
    ["messages", "input"],
    ["messages[3].content", "input"],
    ["prompt", "input"],
    ["input_tokens", "input"],
    ["response_format", "text.format"],
    ["logprobs", "top_logprobs"],
    ["body.reasoning_effort", "reasoning.effort"],
    ["body.stop", "stop"],
    ["body.tools.2.function.name", "tools[2].function.name"],
    ["top_p", "top_p"],
    [null, null],
  ])("vLLM's param %s is the client's %s", (theirs, ours) => {
    expect(toFaultError(400, { message: "Wrong.", param: theirs })).toMatchObject({ status: 400, param: ours });
  });

  it("a 400 keeps vLLM's message and param", () => {
    const error = toFaultError(400, { message: "stop is too long", param: "stop" });
    expect(error).toMatchObject({ status: 400, param: "stop", message: "stop is too long" });
  });

  it.each([500, 502, 503, 504, 401, 403, 429, 418])(
    "%i does not keep the message, which may have internal details",
    (status) => {
      const error = toFaultError(status, { message: "CUDA error on 10.0.0.7 with key abc" });
      expect(error.message).not.toMatch(/CUDA|10\.0|abc/);
      expect(error.status).not.toBe(401);
      expect(error.status).not.toBe(403);
    },
  );

  it.each([
    [undefined, "upstream_error", "not_served"],
    [{ message: "Not Found" }, "upstream_error", "not_served"],
    [{ message: "The model `x` does not exist." }, "model_not_found", "model_not_found"],
    [{ message: "No such thing.", param: "model" }, "model_not_found", "model_not_found"],
  ])("a 404 that says %j is %s of a create, %s where it is passed on", (fault, created, passed) => {
    expect(toFaultError(404, fault).code).toBe(created);
    expect(toPassedError(404, fault)).toMatchObject({ status: 404, code: passed });
  });

  it("retry-after is passed on if a retry helps", () => {
    expect(toFaultError(429, undefined, "7").headers).toEqual({ "retry-after": "7" });
    expect(toFaultError(503, undefined, "7").headers).toEqual({ "retry-after": "7" });
    expect(toFaultError(503, undefined, null).headers).toEqual({});
    expect(toFaultError(500, undefined, "7").headers).toEqual({});
  });

  it.each([undefined, null, 5, "x", [], {}, { error: null }, { error: 5 }, { object: "list" }])(
    "%j is none",
    (body) => {
      expect(readFault(body)).toBeUndefined();
    },
  );
});
