import { Exporter } from "@responses-edge/otlp";
import { internalError } from "@responses-edge/responses-api/errors";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { loadConfig, type Variables } from "../../../src/config/index.ts";
import { type Observation, type Telemetry, telemetryOf } from "../../../src/telemetry/telemetry.ts";

/** The export of telemetry: beside requests, one export at a time, and not to a collector that is down. */

interface Export {
  body: string;
  answer: (response: Response | Error) => void;
}

let exports: Export[];
let warnings: { why: string; dropped: number }[];

beforeEach(() => {
  exports = [];
  warnings = [];
  vi.useFakeTimers({ toFake: ["Date"] });
  vi.spyOn(globalThis, "fetch").mockImplementation(
    (_, init) =>
      new Promise((resolve, reject) => {
        const answer = (given: Response | Error) => (given instanceof Error ? reject(given) : resolve(given));
        exports.push({ body: String(init?.body), answer });
      }),
  );
  vi.spyOn(console, "warn").mockImplementation((line) => void warnings.push(JSON.parse(String(line))));
});
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

/** Lets all settled promises continue. */
const settled = () => new Promise((resolve) => setTimeout(resolve, 0));

function rig() {
  const waiting: string[] = [];
  let dropped = 0;
  const exporter = new Exporter({
    target: { url: "http://collector/v1/traces", headers: {}, fetch: (url, init) => fetch(url, init) },
    timeoutMs: 10_000,
    onFailed: (fault) => void warnings.push(fault),
    take: () => (waiting.length > 0 ? waiting.splice(0).join("+") : undefined),
    onDropped: () => {
      dropped += 1;
    },
  });
  const pending = new Set<Promise<unknown>>();
  const end = (request: string, isBrief = false) => {
    waiting.push(request);
    exporter.flush({
      isBrief,
      waitUntil: (promise) => {
        pending.add(promise);
        void promise.finally(() => pending.delete(promise));
      },
    });
  };
  return { end, pending, dropped: () => dropped };
}

const taken = () => new Response("{}");
const answer = async (index: number, response: Response | Error) => {
  exports[index]?.answer(response);
  await settled();
};

describe("an exporter", () => {
  it("has one export in progress, and sends later data together", async () => {
    const { end, pending } = rig();
    for (const request of ["a", "b", "c"]) end(request);
    expect(exports.map(({ body }) => body)).toEqual(["a"]);
    // Only the request that sends is kept alive for the export.
    expect(pending.size).toBe(1);
    await answer(0, taken());
    expect(exports.map(({ body }) => body)).toEqual(["a", "b+c"]);
    await answer(1, taken());
    expect(pending.size).toBe(0);
    expect(exports).toHaveLength(2);
  });

  it("sends for an object, which is paid for while it is awake, only what came before the end of an export", async () => {
    const { end, pending } = rig();
    end("a", true);
    end("b", true);
    await answer(0, taken());
    expect(exports.map(({ body }) => body)).toEqual(["a", "b"]);
    await answer(1, taken());
    expect([exports.length, pending.size]).toEqual([2, 0]);
    end("c", true);
    expect(exports.at(-1)?.body).toBe("c");
  });

  it.each([
    ["is busy", () => new Response(null, { status: 503 })],
    ["is not there", () => new TypeError("fetch failed")],
  ])("pauses for a collector that %s, sends the same again, and gives up", async (_, refusal) => {
    const { end, pending, dropped } = rig();
    const pauses = [1_000, 2_000, 4_000, 8_000];
    end("a");
    for (const [index, pause] of pauses.entries()) {
      await answer(index, refusal());
      expect(pending.size).toBe(0);
      vi.setSystemTime(Date.now() + pause - 1);
      end("later");
      expect(exports).toHaveLength(index + 1);
      vi.setSystemTime(Date.now() + 1);
      end("later");
      expect(exports).toHaveLength(index + 2);
    }
    expect(exports.slice(0, 4).map(({ body }) => body)).toEqual(["a", "a", "a", "a"]);
    expect(exports.at(-1)?.body).toBe(Array.from({ length: 8 }, () => "later").join("+"));
    expect(dropped()).toBe(1);
    expect(warnings).toHaveLength(1);
  });

  it("waits for a collector's retry time", async () => {
    const { end } = rig();
    end("a");
    await answer(0, new Response(null, { status: 429, headers: { "retry-after": "30" } }));
    vi.setSystemTime(Date.now() + 29_000);
    end("b");
    expect(exports).toHaveLength(1);
    vi.setSystemTime(Date.now() + 1_000);
    end("c");
    expect(exports).toHaveLength(2);
  });

  it.each([
    ["a refusal", () => new Response(null, { status: 400 }), "status 400"],
    ["a redirect", () => new Response(null, { status: 302, headers: { location: "http://elsewhere/" } }), "status 302"],
    ["a page", () => new Response("<html>"), "an answer that is not OTLP"],
    ["a part", () => new Response('{"partialSuccess":{"rejectedSpans":"1"}}'), "partial success"],
    ["more than any answer", () => new Response(" ".repeat(100_000)), "an answer that is not OTLP"],
  ])("does not repeat data that was answered with %s", async (_, response, why) => {
    const { end, dropped } = rig();
    end("a");
    end("b");
    await answer(0, response());
    await settled();
    expect(warnings[0]?.why).toBe(why);
    expect(exports.map(({ body }) => body)).toEqual(["a", "b"]);
    expect(dropped()).toBe(1);
  });

  it("continues after an export whose request the platform has ended", async () => {
    const { end } = rig();
    end("a");
    vi.setSystemTime(Date.now() + 11_999);
    end("b");
    expect(exports).toHaveLength(1);
    vi.setSystemTime(Date.now() + 1);
    end("c");
    expect(exports.map(({ body }) => body)).toEqual(["a", "a"]);
  });

  it("logs failures once a minute", async () => {
    const { end } = rig();
    for (let minute = 0; minute < 3; minute += 1) {
      for (let second = 0; second < 60; second += 10) {
        end("a");
        await answer(exports.length - 1, new Response(null, { status: 400 }));
        vi.setSystemTime(Date.now() + 10_000);
      }
    }
    expect(warnings.map(({ dropped }) => dropped)).toEqual([1, 6, 6]);
  });
});

describe("telemetry", () => {
  let names = 0;
  const host = { waitUntil: () => {}, isBrief: false };

  function start(variables: Variables): Telemetry {
    const own = { OTEL_SERVICE_NAME: `test-${names++}`, VLLM_BASE_URL: "http://vllm/v1", ALLOW_ANONYMOUS: "true" };
    const { telemetry } = loadConfig({ ...own, ...variables });
    if (!telemetry) throw new Error("There is none.");
    return telemetryOf(telemetry);
  }
  const observe = (telemetry: Telemetry, tenant = "acme"): Observation =>
    telemetry.observe({ requestId: "r", transport: "http", endpoint: "GET /v1/models", tenant }, host);

  it("keeps a bounded number of spans for a collector that is down", async () => {
    const telemetry = start({ OTEL_EXPORTER_OTLP_ENDPOINT: "http://collector", OTEL_METRICS_EXPORTER: "none" });
    for (let request = 0; request < 10_000; request += 1) observe(telemetry).answered(200);
    expect(exports).toHaveLength(1);
    let sent = 0;
    for (let index = 0; index < exports.length; index += 1) {
      sent += exports[index]?.body.length ?? 0;
      expect(exports[index]?.body.length).toBeLessThan(600_000);
      await answer(index, taken());
    }
    expect(sent).toBeGreaterThan(1_500_000);
    expect(sent).toBeLessThan(2_200_000);
  });

  it("adds up values before an export, and starts again after it", async () => {
    const telemetry = start({ OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: "http://collector/m" });
    for (let request = 0; request < 5; request += 1) observe(telemetry).answered(200);
    const counts = () =>
      exports.map(({ body }) => Number(/"http\.server\.request\.duration".*?"count":"(\d+)"/.exec(body)?.[1]));
    expect(counts()).toEqual([1]);
    await answer(0, taken());
    expect(counts()).toEqual([1, 4]);
  });

  it("reports a request once", () => {
    const logged = vi.spyOn(console, "log").mockImplementation(() => {});
    const observation = observe(start({ TELEMETRY_LOG: "all" }));
    observation.answered(200);
    observation.answered(500, internalError());
    expect(logged).toHaveBeenCalledTimes(1);
    expect(exports).toEqual([]);
  });

  it("has tenants in metrics only if configured, and only in those of responses", () => {
    for (const [asked, expected] of [
      ["false", []],
      ["true", ["acme", "other"]],
    ] as const) {
      const telemetry = start({ PROMETHEUS_METRICS: "true", PROMETHEUS_TENANTS: asked });
      for (const tenant of ["acme", "other"]) {
        const observation = observe(telemetry, tenant);
        const model = { name: "m", upstream: "m", engine: "chat" } as const;
        const settings = { maxTokens: undefined, temperature: undefined, topP: undefined };
        const turn = {
          model,
          isOperatorsModel: true,
          responseId: "r",
          conversation: undefined,
          isStored: true,
          settings,
        };
        const tokens = { input: 1, cached: 0, output: 1, reasoning: 0 };
        Object.assign(observation.measured, { turn, end: { status: "completed", error: undefined, tokens } });
        observation.answered(200);
      }
      const all = telemetry.totals?.read() ?? [];
      const tenantsOf = (name: string) =>
        all.flatMap(([instrument, series]) =>
          instrument.name === name ? series.flatMap(({ attributes }) => attributes.tenant ?? []) : [],
        );
      expect(tenantsOf("responses_edge.responses")).toEqual(expected);
      expect(tenantsOf("gen_ai.server.request.duration")).toEqual(expected);
      expect(all.map(([{ name }]) => name)).toContain("http.server.request.duration");
      expect(tenantsOf("http.server.request.duration")).toEqual([]);
    }
  });

  it("fails no request by its own faults", () => {
    const said = vi.spyOn(console, "error").mockImplementation(() => {});
    vi.spyOn(console, "log").mockImplementation(() => {
      throw new RangeError("secret");
    });
    observe(start({ TELEMETRY_LOG: "all" })).answered(200);
    expect(said.mock.calls.join()).toContain("RangeError");
    expect(said.mock.calls.join()).not.toContain("secret");
  });
});
