import { logLine } from "@responses-edge/bounded-io/json-text";
import {
  type Attributes,
  Exporter,
  type ExportFault,
  type ExportHost,
  type Instrument,
  Meter,
  metricsBody,
  newTrace,
  randomHex,
  readTraceContext,
  TextQueue,
  type Trace,
  tracesBody,
} from "@responses-edge/otlp";
import type { ApiError } from "@responses-edge/responses-api/errors";
import { type Measurements, newMeasurements } from "@responses-edge/turn/contract/measurements";
import type { TelemetryConfig } from "../config/index.ts";
import { AnalyticsWriter } from "./analytics.ts";
import { EXPORTS_DROPPED, OF_TENANTS, SCOPE } from "./instruments.ts";
import { recordMetrics } from "./metrics.ts";
import { spansOf } from "./spans.ts";
import { isLogged, type RequestFacts, type Transport, toWideEvent, type WideEvent } from "./wide-event.ts";

/**
 * Telemetry of requests (docs/telemetry.md). A request is observed from its beginning. At its end it becomes one wide
 * event, which becomes a line of the log, a data point of Analytics Engine, spans, and values of metrics.
 */

/** Most spans or contents that one export carries, and that may wait for it, in UTF-16 units. */
export const QUEUED = { batch: 512 * 1024, waiting: 2 * 1024 * 1024 };

export class Telemetry {
  readonly config: TelemetryConfig;
  readonly #resource: Attributes;
  /** The values that `/metrics` shows. */
  readonly totals: Meter | undefined;
  /** The values that the collector has not got yet. */
  readonly #deltas: Meter | undefined;
  readonly #spans = new TextQueue(QUEUED);
  readonly #exporters: Exporter[] = [];

  constructor(config: TelemetryConfig) {
    this.config = config;
    const { traces, metrics, prometheus, exportTimeoutMs: timeoutMs, resource } = config;
    // Isolates know nothing of each other: the name tells their counts apart.
    this.#resource = { "service.instance.id": randomHex(8), ...resource };
    this.totals = prometheus && new Meter(Date.now());
    this.#deltas = metrics && new Meter(Date.now());
    const failed = (kind: string) => (fault: ExportFault) =>
      console.warn(logLine({ level: "warn", event: "export_failed", kind, ...fault }));
    const onDropped = () => this.#record(EXPORTS_DROPPED, {}, 1);
    if (traces) {
      const take = () => this.#takeSpans();
      this.#exporters.push(new Exporter({ target: traces, timeoutMs, take, onDropped, onFailed: failed("traces") }));
    }
    if (metrics) {
      const take = () => this.#takeMetrics();
      this.#exporters.push(new Exporter({ target: metrics, timeoutMs, take, onDropped, onFailed: failed("metrics") }));
    }
  }

  /** Begins to observe a request. `headers` are its own, which may name its trace. */
  observe(request: ObservedRequest & { headers?: Headers | undefined }, host: ObservationHost): Observation {
    const { forwardsTraces } = this.config;
    const { headers } = request;
    const remote =
      forwardsTraces && headers ? readTraceContext(headers.get("traceparent"), headers.get("tracestate")) : undefined;
    return new Observation(this, request, newTrace(this.config, remote), host);
  }

  /** Begins to observe a run, which another process may have begun: `kept` comes from `runTrace`. */
  observeRun(request: ObservedRequest, kept: KeptTrace | undefined, host: ObservationHost): Observation {
    const { traces, forwardsTraces } = this.config;
    const isKept = traces !== undefined && kept?.isKept === true;
    const trace = kept && { ...kept, isKept, isForwarded: forwardsTraces };
    return new Observation(this, request, trace ?? newTrace(this.config, undefined), host);
  }

  /** Reports a request that has ended. */
  tell({ event, measured, begunAt, endedAt }: EndedRequest, analytics: AnalyticsWriter | undefined): void {
    if (isLogged(event, this.config.log)) console.log(logLine(event));
    analytics?.add(event);
    const { trace } = measured;
    if (trace?.isKept) this.#queue(spansOf({ event, measured, trace, begunAt, endedAt }));
    if (this.totals || this.#deltas) {
      const tenant = this.config.prometheus?.byTenant ? event.tenant : undefined;
      recordMetrics(event, measured, (instrument, attributes, value) =>
        this.#record(instrument, attributes, value, OF_TENANTS.has(instrument) ? tenant : undefined),
      );
    }
  }

  /** Adds to a counter that belongs to no request. */
  count(instrument: Instrument, value: number, attributes: Attributes): void {
    this.#record(instrument, attributes, value);
  }

  /** Exports what is due. */
  flush(host: ExportHost): void {
    for (const exporter of this.#exporters) exporter.flush(host);
  }

  #record(instrument: Instrument, attributes: Attributes, value: number, tenant?: string): void {
    this.#deltas?.record(instrument, attributes, value);
    this.totals?.record(instrument, tenant === undefined ? attributes : { ...attributes, tenant }, value);
  }

  #queue(spans: readonly string[]): void {
    if (!spans.every((span) => this.#spans.add(span))) this.#record(EXPORTS_DROPPED, {}, 1);
  }

  #takeSpans(): string | undefined {
    const spans = this.#spans.take();
    return spans && tracesBody(this.#resource, SCOPE, spans);
  }

  #takeMetrics(): string | undefined {
    const deltas = this.#deltas;
    if (!deltas || deltas.isEmpty) return undefined;
    const now = Date.now();
    return metricsBody(this.#resource, SCOPE, { now, ...deltas.take(now) });
  }
}

/** The facts of a request that are known at its beginning. */
export interface ObservedRequest {
  requestId: string;
  transport: Transport;
  /** Method and route, if they are known. */
  endpoint?: string;
  tenant?: string | undefined;
  keyId?: string | undefined;
  /** Unix milliseconds. */
  begunAt?: number;
}

/** The host of an observation. */
export interface ObservationHost extends ExportHost {
  /** The points of the invocation, if it serves more than one request. */
  analytics?: AnalyticsWriter | undefined;
}

/** A request that has ended. Times are Unix milliseconds. */
export interface EndedRequest {
  event: WideEvent;
  measured: Measurements;
  begunAt: number;
  endedAt: number;
  /** The message of its error, which is in no event: it may quote the request. */
  message: string | undefined;
}

/** The parts of its trace that a run stores, so that it continues under the same trace after its process has died. */
export type KeptTrace = Pick<Trace, "traceId" | "parent" | "span" | "isSampled" | "isKept" | "state">;

/** One request, from its beginning to its end. */
export class Observation {
  readonly measured: Measurements;
  readonly #telemetry: Telemetry;
  readonly #host: ObservationHost;
  readonly #facts: Omit<RequestFacts, "endedAt">;
  /** The answer continues after its headers: its outcome is not known yet. */
  #isOpen = false;
  #isTold = false;
  #beginsRun = false;
  #report: ((request: EndedRequest) => void) | undefined;
  #message: string | undefined;

  constructor(telemetry: Telemetry, request: ObservedRequest, trace: Trace | undefined, host: ObservationHost) {
    const { requestId, transport, endpoint = "", tenant, keyId, begunAt = Date.now() } = request;
    this.#telemetry = telemetry;
    this.#host = host;
    host.analytics?.expect();
    this.measured = newMeasurements(trace);
    this.#facts = {
      ...{ requestId, transport, endpoint, tenant, keyId, begunAt },
      ...{ model: undefined, status: 200, error: undefined, hasClientLeft: false },
    };
  }

  /**
   * Has the request reported elsewhere, too, when it ends. A request that begins a run is left out if it succeeds: the run
   * has an event of its own.
   */
  reportTo(report: (request: EndedRequest) => void): void {
    this.#report = report;
  }

  /** The trace that is stored with a run which this request begins. The run's own span lies below this request's. */
  runTrace(newSpan: () => string): KeptTrace | undefined {
    this.#beginsRun = true;
    const { trace } = this.measured;
    if (!trace) return undefined;
    const { traceId, isSampled, isKept, state, span } = trace;
    return { traceId, parent: span, span: isKept ? newSpan() : span, isSampled, isKept, state };
  }

  /** Notes facts that became known on the request's way through the server. */
  know(
    facts: Partial<Pick<RequestFacts, "endpoint" | "transport" | "tenant" | "keyId" | "model" | "hasClientLeft">>,
  ): void {
    Object.assign(this.#facts, facts);
  }

  /** The answer is a stream. The request ends with `ended`, which never rejects. */
  streamsUntil(ended: Promise<unknown>): Promise<void> {
    this.#isOpen = true;
    return ended.then(() => {
      this.#isOpen = false;
      this.#tell();
    });
  }

  /** The request was answered. It has ended, unless the answer is a stream that continues. */
  answered(status: number, error?: Pick<ApiError, "code" | "message" | "upstream">): void {
    this.#message = error?.message;
    this.#facts.status = status;
    this.#facts.error = error?.code;
    this.measured.upstreamError ??= error?.upstream;
    if (!this.#isOpen) this.#tell();
  }

  /** Reports the request, once in any case. Never throws: no request fails because of its telemetry. */
  #tell(): void {
    if (this.#isTold) return;
    this.#isTold = true;
    try {
      this.#tellNow();
    } catch (error) {
      const name = error instanceof Error ? error.name : typeof error;
      console.error(logLine({ level: "error", event: "telemetry_failed", error: name }));
    }
  }

  #tellNow(): void {
    const endedAt = Date.now();
    const facts = { ...this.#facts, endedAt };
    // A turn without a client was cancelled because the client disconnected.
    const hasClient = facts.transport !== "background" && facts.transport !== "batch";
    facts.hasClientLeft ||= hasClient && this.measured.end?.status === "cancelled";
    const event = toWideEvent(facts, this.measured);
    const { analytics: dataset } = this.#telemetry.config;
    const analytics = this.#host.analytics ?? (dataset && new AnalyticsWriter(dataset));
    const { measured } = this;
    const message = this.#message ?? measured.end?.message;
    const ended = { event, measured, begunAt: facts.begunAt, endedAt, message };
    this.#telemetry.tell(ended, analytics);
    this.#telemetry.flush(this.#host);
    if (!this.#beginsRun || event.error !== undefined) this.#report?.(ended);
  }
}

/** One for each configuration, whatever has loaded it: the Worker and its objects share an isolate, and so its counts. */
const instances = new Map<string, Telemetry>();

/** By the configuration object itself, so that a request need not compute its key again. */
const known = new WeakMap<TelemetryConfig, Telemetry>();

/** The telemetry of requests under a configuration. */
export function telemetryOf(config: TelemetryConfig): Telemetry {
  let telemetry = known.get(config);
  if (telemetry) return telemetry;
  const name = JSON.stringify({ ...config, analytics: config.analytics !== undefined });
  telemetry = instances.get(name) ?? new Telemetry(config);
  instances.set(name, telemetry);
  known.set(config, telemetry);
  return telemetry;
}
