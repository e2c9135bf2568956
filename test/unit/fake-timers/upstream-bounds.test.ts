import { readBounded } from "@responses-edge/bounded-io/body";
import { Upstream } from "@responses-edge/engines/upstream";
import { toFaultError } from "@responses-edge/engines/upstream-faults";
import { SseDecoder } from "@responses-edge/engines/vllm-stream";
import { afterEach, describe, expect, it, vi } from "vitest";
import { loadConfig } from "../../../src/config/index.ts";

/** The model server's data and silence are bounded. A slow reader does not count as the server's silence. */

type Overrides = Partial<ReturnType<typeof loadConfig>>;

let servers = 0;

/** Each test has its own server, because a server's state is cached by its URL. */
function upstreamOf(answer: (url: string) => Promise<Response> | Response, overrides: Overrides = {}): Upstream {
  const config = loadConfig({
    VLLM_BASE_URL: `http://vllm-${servers++}/v1`,
    UPSTREAM_DIALECT: "vllm",
  } as Parameters<typeof loadConfig>[0]);
  const fetch = async (url: string) => answer(url);
  const modelServers = config.modelServers.map((server) => ({ ...server, fetch }));
  return new Upstream({ ...config, ...overrides, modelServers });
}

const never = new AbortController().signal;

afterEach(() => {
  vi.useRealTimers();
});

/** A body without an end, in pieces of 64 KiB, that counts how many were taken, and whether it was cancelled. */
function endless() {
  const seen = { pieces: 0, cancelled: false };
  const piece = new Uint8Array(64 * 1024).fill(97);
  const body = new ReadableStream<Uint8Array>(
    {
      pull(controller) {
        seen.pieces += 1;
        controller.enqueue(piece);
      },
      cancel() {
        seen.cancelled = true;
      },
    },
    { highWaterMark: 0 },
  );
  return { seen, body };
}

/** A body with a few bytes and then silence. */
function silent(first = "") {
  const seen = { cancelled: false };
  const body = new ReadableStream<Uint8Array>({
    start: (controller) => void (first !== "" && controller.enqueue(new TextEncoder().encode(first))),
    cancel() {
      seen.cancelled = true;
    },
  });
  return { seen, body };
}

describe("an error body", () => {
  it("without an end is given up after 64 KiB, and nothing of it is passed on", async () => {
    const { seen, body } = endless();
    const error = await upstreamOf(() => new Response(body, { status: 400 }))
      .request("/completions", never)
      .catch((thrown: Error) => thrown);
    expect(error).toMatchObject({ status: 400, message: "The model server answered with status 400." });
    expect(seen.pieces).toBeLessThanOrEqual(3);
    expect(seen.cancelled).toBe(true);
  });

  it("that does not end in time still gives its status", async () => {
    vi.useFakeTimers();
    const { seen, body } = silent('{"error":');
    const error = upstreamOf(() => new Response(body, { status: 503, headers: { "retry-after": "3" } }))
      .request("/completions", never)
      .catch((thrown: Error) => thrown);
    await vi.advanceTimersByTimeAsync(5_000);
    expect(await error).toMatchObject({ status: 503, headers: { "retry-after": "3" } });
    expect(seen.cancelled).toBe(true);
  });

  it("is passed on in short", () => {
    expect(toFaultError(400, { message: "x" }).message).toBe("x");
    const long = JSON.stringify({ error: { message: "x".repeat(60_000) } });
    const told = upstreamOf(() => new Response(long, { status: 400 })).request("/completions", never);
    return expect(told).rejects.toMatchObject({ message: "x".repeat(4_000) });
  });
});

describe("a JSON answer", () => {
  it("without an end is a 502 after 32 MiB, and is cancelled", async () => {
    const { seen, body } = endless();
    await expect(upstreamOf(() => new Response(body)).json("/models", never)).rejects.toMatchObject({
      status: 502,
      code: "upstream_malformed_response",
    });
    expect(seen.pieces).toBeLessThanOrEqual(32 * 16 + 2);
    expect(seen.cancelled).toBe(true);
  });

  it("with a longer announced length is not read at all", async () => {
    const { seen, body } = endless();
    const headers = { "content-length": String(300 * 1024 * 1024) };
    await expect(upstreamOf(() => new Response(body, { headers })).json("/models", never)).rejects.toMatchObject({
      status: 502,
    });
    expect(seen.pieces).toBe(0);
  });

  it("whose headers are followed by silence is a 504", async () => {
    vi.useFakeTimers();
    const { seen, body } = silent("{");
    const answer = upstreamOf(() => new Response(body), { connectTimeoutMs: 700 }).json("/models", never);
    const settled = expect(answer).rejects.toMatchObject({ status: 504, code: "upstream_timeout" });
    await vi.advanceTimersByTimeAsync(700);
    await settled;
    expect(seen.cancelled).toBe(true);
  });

  it("without a waiting client is cancelled at once", async () => {
    const { seen, body } = silent("{");
    const client = new AbortController();
    const answer = upstreamOf(() => new Response(body)).json("/models", client.signal);
    const left = new Error("left");
    const settled = expect(answer).rejects.toBe(left);
    await Promise.resolve();
    client.abort(left);
    await settled;
    await vi.waitFor(() => expect(seen.cancelled).toBe(true));
  });
});

it("within its bounds is complete, with any chunking", async () => {
  const text = "Grüße, 世界!".repeat(1000);
  const bytes = new TextEncoder().encode(text);
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      for (let at = 0; at < bytes.length; at += 7) controller.enqueue(bytes.subarray(at, at + 7));
      controller.close();
    },
  });
  const bounds = { maxBytes: bytes.length, timeoutMs: 1_000, signal: never };
  expect(new TextDecoder().decode(await readBounded(new Response(body), bounds))).toBe(text);
});

describe("a line of a stream", () => {
  it("that arrives byte by byte is assembled unchanged", () => {
    const decoder = new SseDecoder();
    const line = `data: ${"abc".repeat(2_000)}\n`;
    const payloads = [...line].flatMap((character) => decoder.push(new TextEncoder().encode(character)));
    expect(payloads).toEqual(["abc".repeat(2_000)]);
  });

  it("that broke off in the middle is no complete answer: the connection was lost, and not its end malformed", () => {
    const decoder = new SseDecoder();
    decoder.push(new TextEncoder().encode('data: {"choices":[{"del'));
    expect(decoder.end()).toEqual([]);
  });
});

describe("silence", () => {
  const HEALTH = "/health";

  /** A stream with one word and then silence, from a server whose health is `health`. */
  function silentStream(health: () => Response, first = "data: 1\n\n") {
    const { seen, body } = silent(first);
    const asked: string[] = [];
    const upstream = upstreamOf(
      (url) => {
        asked.push(new URL(url).pathname);
        return url.endsWith(HEALTH) ? health() : new Response(body);
      },
      { silenceMs: 1_000, idleTimeoutMs: 20_000, firstByteTimeoutMs: 40_000 },
    );
    return { seen, asked, upstream };
  }

  async function readAll(upstream: Upstream): Promise<unknown> {
    const response = await upstream.request("/completions", never);
    try {
      for await (const _ of upstream.reads(response, never));
    } catch (error) {
      return error;
    }
    return undefined;
  }

  it.each<[what: string, health: () => Response]>([
    [
      "refuses the connection",
      () => {
        throw new TypeError("connection refused");
      },
    ],
    ["says 503", () => new Response(null, { status: 503 })],
    ["says 502, by a proxy", () => new Response(null, { status: 502 })],
  ])("of a server whose /health %s is a lost connection, long before the idle timeout", async (_what, health) => {
    vi.useFakeTimers();
    const { seen, asked, upstream } = silentStream(health);
    const error = readAll(upstream);
    await vi.advanceTimersByTimeAsync(2_000);
    expect(await error).toMatchObject({ code: "upstream_connection_lost" });
    expect(asked.filter((path) => path === HEALTH)).toHaveLength(1);
    expect(seen.cancelled).toBe(true);
    expect(upstream.server.downSince).toBeGreaterThan(0);
  });

  it.each([200, 404, 401, 500])("of a server whose /health is %i is accepted", async (status) => {
    vi.useFakeTimers();
    const { asked, upstream } = silentStream(() => new Response(null, { status }));
    const error = readAll(upstream);
    await vi.advanceTimersByTimeAsync(21_000);
    expect(await error).toMatchObject({
      code: "upstream_timeout",
      message: "The model server went silent within 20000 ms.",
    });
    // The health is requested again and again, but at most every `VLLM_SILENCE_MS`.
    expect(asked.filter((path) => path === HEALTH).length).toBeGreaterThan(5);
    expect(asked.filter((path) => path === HEALTH).length).toBeLessThanOrEqual(20);
  });

  it("of many streams causes one health check", async () => {
    vi.useFakeTimers();
    const { asked, upstream } = silentStream(() => new Response());
    const response = () => new Response(silent("data: 1\n\n").body);
    const read = async (from: Response) => {
      for await (const _ of upstream.reads(from, never));
    };
    const streams = Array.from({ length: 20 }, () => read(response()).catch(() => {}));
    await vi.advanceTimersByTimeAsync(5_000);
    expect(asked.filter((path) => path === HEALTH).length).toBeLessThanOrEqual(5);
    await vi.advanceTimersByTimeAsync(16_000);
    await Promise.all(streams);
  });

  it("is not broken by comments, which come from a server whose engine is gone, too", async () => {
    vi.useFakeTimers();
    let pings = 0;
    const body = new ReadableStream<Uint8Array>(
      {
        async pull(controller) {
          await new Promise((resolve) => setTimeout(resolve, 300));
          pings += 1;
          controller.enqueue(new TextEncoder().encode(": keep-alive\n\n"));
        },
      },
      { highWaterMark: 0 },
    );
    const upstream = upstreamOf(
      (url) => (url.endsWith(HEALTH) ? new Response(null, { status: 503 }) : new Response(body)),
      { silenceMs: 1_000 },
    );
    const error = readAll(upstream);
    await vi.advanceTimersByTimeAsync(3_000);
    expect(await error).toMatchObject({ code: "upstream_connection_lost" });
    expect(pings).toBeGreaterThan(1);
  });

  it("does not include the time of a slow reader", async () => {
    vi.useFakeTimers();
    const words = ["data: 1\n\n", "data: 2\n\n", "data: 3\n\n"];
    const body = new ReadableStream<Uint8Array>(
      {
        pull(controller) {
          const word = words.shift();
          if (word === undefined) controller.close();
          else controller.enqueue(new TextEncoder().encode(word));
        },
      },
      { highWaterMark: 0 },
    );
    const asked: string[] = [];
    const upstream = upstreamOf(
      (url) => {
        asked.push(new URL(url).pathname);
        return new Response(body);
      },
      { silenceMs: 1_000, idleTimeoutMs: 5_000, firstByteTimeoutMs: 5_000 },
    );
    const response = await upstream.request("/completions", never);
    let reads = 0;
    const done = (async () => {
      for await (const _ of upstream.reads(response, never)) {
        reads += 1;
        // A client that does not read delays the turn in this way.
        await new Promise((resolve) => setTimeout(resolve, 60_000));
      }
    })();
    await vi.advanceTimersByTimeAsync(200_000);
    await done;
    expect(reads).toBe(3);
    expect(asked).toEqual(["/v1/completions"]);
  });
});
