import { describe, expect, it } from "vitest";
import { loadConfig } from "../../src/config.ts";
import { readFault, toFaultError, Upstream } from "../../src/engine/upstream.ts";
import { ApiError } from "../../src/protocol/errors.ts";

type Fetch = (url: string, init: RequestInit) => Promise<Response>;

function upstreamOf(vllmFetch: Fetch, overrides: Partial<ReturnType<typeof loadConfig>> = {}): Upstream {
  const config = loadConfig({ VLLM_BASE_URL: "http://vllm/v1" } as Parameters<typeof loadConfig>[0]);
  return new Upstream({ ...config, vllmApiKey: "vllm-key", ...overrides, vllmFetch });
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

  it("without a key has no authorization", async () => {
    const upstream = upstreamOf(
      async (_url, init) => {
        expect(init.headers).not.toHaveProperty("authorization");
        return Response.json({});
      },
      { vllmApiKey: undefined },
    );
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
    ["'max_tokens' is too large: 20. This model's maximum context length is 10 tokens", "vLLM's max_tokens"],
  ])("%s: context_length_exceeded", (message) => {
    const error = toFaultError(400, { message });
    expect(error).toMatchObject({ status: 400, param: "input", code: "context_length_exceeded", message });
  });

  it("a 400 keeps vLLM's words and its param", () => {
    const error = toFaultError(400, { message: "stop is too long", param: "stop" });
    expect(error).toMatchObject({ status: 400, param: "stop", message: "stop is too long" });
  });

  it.each([500, 502, 503, 504, 401, 403, 429, 418])("%i does not: its words may tell of the inside", (status) => {
    const error = toFaultError(status, { message: "CUDA error on 10.0.0.7 with key abc" });
    expect(error.message).not.toMatch(/CUDA|10\.0|abc/);
    expect(error.status).not.toBe(401);
    expect(error.status).not.toBe(403);
  });

  it("retry-after is passed on where a retry helps", () => {
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
