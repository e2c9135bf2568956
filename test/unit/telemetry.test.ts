import { gaugeName, Meter, newTrace, prometheusName, prometheusText } from "@responses-edge/otlp";
import { newMeasurements } from "@responses-edge/turn/contract/measurements";
import fc from "fast-check";
import { afterEach, describe, expect, it, vi } from "vitest";
import rules from "../../deploy/prometheus/rules.yaml?raw";
import dashboard from "../../docs/grafana-dashboard.json?raw";
import operations from "../../docs/operations.md?raw";
import documentation from "../../docs/telemetry.md?raw";
import { loadConfig, type TelemetryConfig, type Variables } from "../../src/config/index.ts";
import { parseKeyValues } from "../../src/config/values.ts";
import { AnalyticsWriter, toPoint } from "../../src/telemetry/analytics.ts";
import { GAUGES, PERMITS, UPSTREAM_UP } from "../../src/telemetry/gauges.ts";
import { INSTRUMENTS, RETRIES, SERVER_TIME_TO_FIRST_TOKEN } from "../../src/telemetry/instruments.ts";
import { recordMetrics } from "../../src/telemetry/metrics.ts";
import { isLogged, toWideEvent, type WideEvent } from "../../src/telemetry/wide-event.ts";

const TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT = "00f067aa0ba902b7";

const event = (fields: Partial<WideEvent> = {}): WideEvent => ({
  ...{ level: "info", event: "request", request_id: "r", endpoint: "POST /v1/responses", transport: "http" },
  ...{ status: 200, total_ms: 10, client_left: false },
  ...fields,
});

function configOf(variables: Variables): TelemetryConfig | undefined {
  return loadConfig({ VLLM_BASE_URL: "http://vllm/v1", ALLOW_ANONYMOUS: "true", ...variables }).telemetry;
}

afterEach(() => {
  vi.restoreAllMocks();
});

describe("a sampler", () => {
  const samplerOf = (name: string, ratio = "1") =>
    configOf({
      OTEL_EXPORTER_OTLP_ENDPOINT: "http://collector",
      ...{ OTEL_TRACES_SAMPLER: name, OTEL_TRACES_SAMPLER_ARG: ratio },
    }) as TelemetryConfig;
  const remote = (isSampled: boolean, traceId = TRACE_ID) => ({ traceId, parent: PARENT, isSampled, state: undefined });

  it("follows or ignores the decision of the trace's caller, as configured", () => {
    const keeps = (name: string, kept: boolean | undefined) =>
      newTrace(samplerOf(name), kept === undefined ? undefined : remote(kept))?.isKept;
    expect([true, false, undefined].map((kept) => keeps("parentbased_always_on", kept))).toEqual([true, false, true]);
    expect([true, false, undefined].map((kept) => keeps("parentbased_always_off", kept))).toEqual([true, false, false]);
    expect([true, false, undefined].map((kept) => keeps("always_on", kept))).toEqual([true, true, true]);
    expect([true, false, undefined].map((kept) => keeps("always_off", kept))).toEqual([false, false, false]);
  });

  it("keeps a share of the traces, the same ones everywhere", () => {
    const ids = Array.from({ length: 4_000 }, (_, index) => (index * 2_654_435_761).toString(16).padStart(32, "9"));
    const spread = ids.map(
      (id, index) =>
        id.slice(0, 19) +
        Math.floor((index / 4_000) * 2 ** 52)
          .toString(16)
          .padStart(13, "0"),
    );
    const kept = (ratio: string) => {
      const sampler = samplerOf("traceidratio", ratio);
      return spread.filter((id) => newTrace(sampler, remote(false, id))?.isKept);
    };
    expect(kept("0")).toEqual([]);
    expect(kept("1")).toHaveLength(4_000);
    expect(kept("0.25")).toHaveLength(1_000);
    const half = new Set(kept("0.5"));
    expect(kept("0.25").filter((id) => !half.has(id))).toEqual([]);
  });

  it("passes an unsampled trace on as unsampled, below the caller's own span", () => {
    expect(newTrace(samplerOf("always_off"), remote(true))).toMatchObject({ isSampled: false, span: PARENT });
    const only = configOf({ OTEL_PROPAGATORS: "tracecontext" }) as TelemetryConfig;
    expect(newTrace(only, remote(true))).toMatchObject({ isSampled: true, isKept: false, span: PARENT });
    expect(newTrace(only, undefined)).toBeUndefined();
  });
});

describe("the configuration", () => {
  it("without variables sends nothing", () => {
    const sent = { traces: undefined, metrics: undefined, prometheus: undefined, analytics: undefined };
    expect(configOf({})).toMatchObject({ ...sent, log: { events: "none" }, forwardsTraces: false });
  });

  it("sends a kind of data to its own endpoint unchanged, else below the common one", () => {
    const common = { OTEL_EXPORTER_OTLP_ENDPOINT: "https://c.dev/otlp/", OTEL_EXPORTER_OTLP_HEADERS: "a=b%20c,d=e" };
    expect(configOf(common)).toMatchObject({
      traces: { url: "https://c.dev/otlp/v1/traces", headers: { a: "b c", d: "e" } },
      metrics: { url: "https://c.dev/otlp/v1/metrics", headers: { a: "b c", d: "e" } },
    });
    const own = {
      OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: "https://t.dev/in",
      OTEL_EXPORTER_OTLP_TRACES_HEADERS: "x=y",
      OTEL_METRICS_EXPORTER: "none",
    };
    expect(configOf({ ...common, ...own })).toMatchObject({
      traces: { url: "https://t.dev/in", headers: { x: "y" } },
      metrics: undefined,
    });
  });

  it.each([
    ["OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"],
    ["OTEL_EXPORTER_OTLP_HEADERS", "a"],
    ["OTEL_EXPORTER_OTLP_HEADERS", "a b=c"],
    ["OTEL_EXPORTER_OTLP_HEADERS", "a=%0d%0ab"],
    ["OTEL_RESOURCE_ATTRIBUTES", "a=%"],
    ["OTEL_TRACES_SAMPLER", "parentbased"],
    ["OTEL_TRACES_SAMPLER_ARG", "1.5"],
    ["OTEL_EXPORTER_OTLP_TIMEOUT", "60000"],
    ["TELEMETRY_LOG_RATIO", "half"],
    ["TELEMETRY_LOG", "some"],
  ])("refuses %s=%s, and does not quote it", (name, value) => {
    expect(() => configOf({ [name]: value })).toThrow(new RegExp(`^${name}: expected|^${name}: Invalid`));
  });

  it("requires a token for the metrics, unless everybody is served", () => {
    expect(() => configOf({ PROMETHEUS_METRICS: "true", ALLOW_ANONYMOUS: "false" })).toThrow(/PROMETHEUS_TOKEN/);
    const keys = { API_KEYS: `acme:${"a".repeat(64)}` };
    expect(() => configOf({ PROMETHEUS_METRICS: "true", ...keys })).toThrow(/PROMETHEUS_TOKEN/);
    expect(configOf({ PROMETHEUS_METRICS: "true" })?.prometheus).toEqual({ tokenSha256: undefined, byTenant: false });
  });

  it("decodes OpenTelemetry's lists", () => {
    const text = fc.string({ unit: "grapheme", minLength: 1 });
    fc.assert(
      fc.property(fc.uniqueArray(fc.tuple(text, text), { selector: ([key]) => key }), (pairs) => {
        const written = pairs.map((pair) => pair.map(encodeURIComponent).join("=")).join(" , ");
        expect([...(parseKeyValues(written) ?? [])]).toEqual(pairs);
      }),
    );
  });
});

describe("a meter", () => {
  it("has each value in one bucket, and adds up values", () => {
    fc.assert(
      fc.property(fc.array(fc.double({ min: 0, max: 20, noNaN: true }), { minLength: 1 }), (values) => {
        const meter = new Meter(0);
        for (const value of values) meter.record(SERVER_TIME_TO_FIRST_TOKEN, { model: "m" }, value);
        const [series] = meter.read()[0]?.[1] ?? [];
        const bounds = [...(SERVER_TIME_TO_FIRST_TOKEN.bounds ?? []), Number.POSITIVE_INFINITY];
        const expected = bounds.map(
          (bound, at) => values.filter((value) => value <= bound && (at === 0 || value > (bounds[at - 1] ?? 0))).length,
        );
        expect(series?.buckets).toEqual(expected);
        expect(series).toMatchObject({ count: values.length, min: Math.min(...values), max: Math.max(...values) });
        expect(series?.sum).toBeCloseTo(values.reduce((sum, value) => sum + value, 0));
      }),
    );
  });
});

describe("Prometheus' text", () => {
  it("has cumulative buckets, and escapes labels", () => {
    const meter = new Meter(0);
    for (const value of [0.0005, 0.03, 100]) meter.record(SERVER_TIME_TO_FIRST_TOKEN, { a: 'x"\\\n' }, value);
    meter.record(RETRIES, {}, 2);
    const lines = prometheusText(INSTRUMENTS, meter).split("\n");
    const name = "gen_ai_server_time_to_first_token_seconds";
    const labels = 'a="x\\"\\\\\\n"';
    expect(lines).toContain(`${name}_bucket{${labels},le="0.001"} 1`);
    expect(lines).toContain(`${name}_bucket{${labels},le="0.04"} 2`);
    expect(lines).toContain(`${name}_bucket{${labels},le="+Inf"} 3`);
    expect(lines).toContain(`${name}_count{${labels}} 3`);
    expect(lines).toContain("responses_edge_retries_total 2");
    for (const line of lines) expect(line).toMatch(/^$|^# (HELP|TYPE) [a-z0-9_]+ .+$|^[a-z0-9_]+(\{.*\})? [0-9.e+-]+$/);
  });
});

describe("a gauge", () => {
  it("has the value that is read, also without any", () => {
    const text = prometheusText(INSTRUMENTS, new Meter(0), [
      [UPSTREAM_UP, [[{ "responses_edge.server": 'a"b' }, 1]]],
      [PERMITS, []],
    ]);
    expect(text).toContain('responses_edge_upstream_up{responses_edge_server="a\\"b"} 1\n');
    expect(text).toContain("# TYPE responses_edge_upstream_up gauge\n");
    expect(text).toMatch(/# TYPE responses_edge_permits gauge\n$/);
  });

  it("is documented", () => {
    const missing = GAUGES.map(gaugeName).filter((name) => {
      const [, last = ""] = /^responses_edge_upstream(_\w+)$/.exec(name) ?? [];
      return !documentation.includes(`\`${name}\``) && (last === "" || !documentation.includes(`\`…${last}\``));
    });
    expect(missing).toEqual([]);
  });
});

/** The names under which Prometheus knows a metric. */
const shownNames = INSTRUMENTS.flatMap((instrument) => {
  const name = prometheusName(instrument);
  return instrument.bounds ? [`${name}_bucket`, `${name}_sum`, `${name}_count`] : [name];
}).concat(GAUGES.map(gaugeName));

describe("the alert rules", () => {
  it("name only exported metrics", () => {
    const used = new Set(rules.match(/\b(?:gen_ai|http|responses_edge)_[a-z_]+(?=\{|\[|\)| [/>=]|$)/gm));
    expect(used.size).toBeGreaterThan(8);
    const labels = ["responses_edge_state", "responses_edge_server", "gen_ai_request_model"];
    expect([...used].filter((name) => !shownNames.includes(name) && !labels.includes(name))).toEqual([]);
  });

  it("are the same as those in the documentation, which says what to do for each", () => {
    const alerts = [...rules.matchAll(/alert: (\w+)/g)].map(([, name]) => name);
    const explained = [...operations.matchAll(/^\| `(ResponsesEdge\w+)` \| \S/gm)].map(([, name]) => name);
    expect(explained.toSorted()).toEqual(alerts.toSorted());
  });
});

describe("the dashboard", () => {
  const expressions = [...dashboard.matchAll(/"(?:expr|query)": "((?:[^"\\]|\\.)*)"/g)].map(([, text = ""]) => text);
  const used = new Set(
    expressions.flatMap(
      (text) => text.match(/\b(?:gen_ai|http|responses_edge)_[a-z_]+_(?:bucket|sum|count|total)\b/g) ?? [],
    ),
  );

  it("names only exported metrics", () => {
    expect(used.size).toBeGreaterThan(10);
    expect([...used].filter((name) => !shownNames.includes(name))).toEqual([]);
  });

  it("shows every metric", () => {
    const unused = INSTRUMENTS.filter((each) => ![...used].some((name) => name.startsWith(prometheusName(each))));
    expect(unused).toEqual([]);
  });

  it("names labels that its metrics have", () => {
    const labels = new Set(
      expressions.flatMap((text) =>
        [...text.matchAll(/(?:by \(([^)]*)\)|[{,] ?([a-z_]+)(?==|!))/g)].flatMap(([, by, label]) =>
          (by ?? label ?? "").split(", "),
        ),
      ),
    );
    labels.delete("le");
    // The names of gauges.
    const known = new Set(["responses_edge_state", "responses_edge_outcome"]);
    const measured = newMeasurements();
    const turn = {
      model: { name: "m", upstream: "m", engine: "chat" },
      responseId: "r",
      conversation: undefined,
      isOperatorsModel: true,
      isStored: true,
    } as const;
    measured.turn = { ...turn, settings: { maxTokens: undefined, temperature: undefined, topP: undefined } };
    const tokens = { input: 1, cached: 1, output: 3, reasoning: 1 };
    const call = {
      span: "",
      round: 0,
      purpose: "round",
      begunAt: 1,
      acceptedAt: 1,
      firstChunkAt: 2,
      endedAt: 3,
      model: "m",
      replica: "vllm",
      queuedMs: 0,
      attempts: 1,
      tokens,
      finishReason: "stop",
      error: "e",
    } as const;
    measured.modelCalls.push({ ...call }, { ...call, error: undefined });
    measured.toolCalls.push({
      span: "",
      kind: "mcp",
      name: "n",
      item: "i",
      begunAt: 1,
      endedAt: 2,
      error: "tool_error",
    });
    measured.end = { status: "completed", error: undefined, tokens };
    measured.cuts.push({ kind: "thought", reason: "repetition" });
    const told = event({
      client_left: true,
      upstream_model: "m",
      outcome: "completed",
      first_token_ms: 1,
      conversation_wait_ms: 1,
      queued_ms: 1,
      cached_tokens: 1,
      reasoning_tokens: 1,
      retries: 1,
      take_ups: 1,
    });
    const seen = new Set<string>();
    recordMetrics(told, measured, ({ name }, attributes) => {
      seen.add(name);
      for (const key of Object.keys(attributes)) known.add(key.replaceAll(".", "_"));
    });
    // All metrics except those that objects and exports add.
    const others = /^responses_edge\.(files|ingestion|export)\./;
    expect(INSTRUMENTS.filter(({ name }) => seen.has(name) === others.test(name)).map(({ name }) => name)).toEqual([]);
    expect([...labels].filter((label) => label !== "" && !known.has(label))).toEqual([]);
  });
});

describe("the documentation", () => {
  it("names every metric", () => {
    for (const { name } of INSTRUMENTS) expect(documentation, name).toContain(`\`${name}\``);
  });

  it("names every field of the wide event", () => {
    const facts = {
      requestId: "r",
      endpoint: "e",
      transport: "http",
      tenant: "t",
      keyId: "k",
      model: undefined,
      status: 200,
    } as const;
    const measured = newMeasurements();
    measured.turn = {
      ...{
        model: { name: "m", upstream: "m", engine: "chat" },
        responseId: "r",
        conversation: undefined,
        isOperatorsModel: true,
        isStored: false,
      },
      settings: { maxTokens: undefined, temperature: undefined, topP: undefined },
    };
    const told = toWideEvent({ ...facts, error: "e", hasClientLeft: false, begunAt: 0, endedAt: 1 }, measured);
    for (const field of Object.keys(told)) expect(documentation, field).toContain(`\`${field}\``);
  });
});

describe("a line of the log", () => {
  const failed = event({ level: "error", error: "e" });

  it("is written for errors with any sampling", () => {
    expect(isLogged(failed, { events: "all", ratio: 0 })).toBe(true);
    expect(isLogged(failed, { events: "errors", ratio: 0 })).toBe(true);
    expect(isLogged(failed, { events: "none", ratio: 1 })).toBe(false);
    expect(isLogged(event(), { events: "errors", ratio: 1 })).toBe(false);
    const left = {
      requestId: "r",
      endpoint: "e",
      transport: "http",
      tenant: "t",
      keyId: "k",
      model: undefined,
      status: 499,
    } as const;
    const toldOfLeft = { ...left, error: "client_closed_request", hasClientLeft: false, begunAt: 0, endedAt: 1 };
    expect(toWideEvent(toldOfLeft, newMeasurements())).toMatchObject({ level: "info", client_left: true });
    expect(isLogged(toWideEvent(toldOfLeft, newMeasurements()), { events: "errors", ratio: 1 })).toBe(false);
    expect(isLogged(event(), { events: "all", ratio: 0 })).toBe(false);
    expect(isLogged(event(), { events: "all", ratio: 1 })).toBe(true);
  });
});

describe("points of Analytics Engine", () => {
  /** A dataset with Cloudflare's limit of points per invocation. */
  function dataset() {
    const points: { indexes: string[]; blobs: string[]; doubles: number[] }[] = [];
    return {
      points,
      writeDataPoint: (point: (typeof points)[number]) => {
        if (points.length >= 25) throw new Error("Too many points");
        points.push(point);
      },
    };
  }
  const tell = (writer: AnalyticsWriter, count: number) => {
    for (let index = 0; index < count; index += 1) {
      writer.expect();
      writer.add(event({ tenant: "acme", input_tokens: 2, tool_calls: { mcp: 1, python: 2 } }));
    }
  };

  it.each([1, 24, 25, 26, 500])("of a connection with %d creates are at most 25, and lose nothing", (creates) => {
    const { points, writeDataPoint } = dataset();
    const writer = new AnalyticsWriter({ writeDataPoint });
    tell(writer, creates);
    writer.end();
    expect(points).toHaveLength(Math.min(25, creates));
    const sum = (column: number) => points.reduce((all, { doubles }) => all + (doubles[column - 1] ?? 0), 0);
    expect([sum(1), sum(8), sum(13)]).toEqual([creates, 2 * creates, 3 * creates]);
  });

  it("wait for creates that end after their connection", () => {
    const { points, writeDataPoint } = dataset();
    const writer = new AnalyticsWriter({ writeDataPoint });
    tell(writer, 30);
    writer.expect();
    writer.end();
    expect(points).toHaveLength(24);
    writer.add(event());
    expect(points).toHaveLength(25);
    expect(points.at(-1)?.doubles[0]).toBe(7);
  });

  it("keep within the limits of a point", () => {
    const { indexes, blobs, doubles } = toPoint(event({ tenant: "t".repeat(64), model: "m".repeat(10_000) }));
    expect([indexes.length, blobs.length <= 20, doubles.length <= 20]).toEqual([1, true, true]);
    expect(blobs.join("").length).toBeLessThan(16_000);
    expect(doubles.every(Number.isFinite)).toBe(true);
  });
});
