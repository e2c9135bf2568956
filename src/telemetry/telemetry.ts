import { logLine } from "@responses-edge/json-text";
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
import { type Measurements, newMeasurements } from "@responses-edge/turn/measurements";
import type { TelemetryConfig } from "../config/index.ts";
import { AnalyticsWriter } from "./analytics.ts";
import { EXPORTS_DROPPED, SCOPE } from "./instruments.ts";
import { recordMetrics } from "./metrics.ts";
import { spansOf } from "./spans.ts";
import { isLogged, type RequestFacts, type Transport, toWideEvent, type WideEvent } from "./wide-event.ts";

/**
 * Telemetry of requests (docs/telemetry.md). A request is observed from its beginning; when it has ended, one wide event
 * is made of it, and that becomes a line of the log, a point of Analytics Engine, spans, and values of metrics.
 */

/** The most that one export carries of spans or contents, and that may wait for it, in UTF-16 units. */
export const QUEUED = { batch: 512 * 1024, waiting: 2 * 1024 * 1024 };

export class Telemetry {
  readonly config: TelemetryConfig;
  readonly #resource: Attributes;
  /** The values that `/metrics` shows. */
  readonly totals: Meter | undefined;
  /** The values that the collector has not been told yet. */
  readonly #deltas: Meter | undefined;
  readonly #spans = new TextQueue(QUEUED);
  readonly #exporters: Exporter[] = [];

  constructor(config: TelemetryConfig) {
    this.config = config;
    const { traces, metrics, prometheus, exportTimeoutMs: timeoutMs, resource } = config;
    // Isolates know nothing of each other: what each has counted is told apart by its name.
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

  /** Begins to observe a request. `headers` are its own, which may say to which trace it belongs. */
  observe(request: ObservedRequest & { headers?: Headers | undefined }, host: ObservationHost): Observation {
    const { handsTracesOn } = this.config;
    const { headers } = request;
    const remote =
      handsTracesOn && headers ? readTraceContext(headers.get("traceparent"), headers.get("tracestate")) : undefined;
    return new Observation(this, request, newTrace(this.config, remote), host);
  }

  /** Begins to observe a run, which may have been begun before, in another process: `kept` is what `runTrace` gave. */
  observeRun(request: ObservedRequest, kept: KeptTrace | undefined, host: ObservationHost): Observation {
    const { traces, handsTracesOn } = this.config;
    const isKept = traces !== undefined && kept?.isKept === true;
    const trace = kept && { ...kept, isKept, isHandedOn: handsTracesOn };
    return new Observation(this, request, trace ?? newTrace(this.config, undefined), host);
  }

  /** Tells what is to be told of a request that has ended. */
  tell({ event, measured, begunAt, endedAt }: EndedRequest, analytics: AnalyticsWriter | undefined): void {
    if (isLogged(event, this.config.log)) console.log(logLine(event));
    analytics?.add(event);
    const { trace } = measured;
    if (trace?.isKept) this.#queue(spansOf({ event, measured, trace, begunAt, endedAt }));
    if (this.totals || this.#deltas) {
      const tenant = this.config.prometheus?.byTenant ? event.tenant : undefined;
      recordMetrics(event, measured, (instrument, attributes, value) =>
        this.#record(instrument, attributes, value, tenant),
      );
    }
  }

  /** Adds to a counter what is no request's. */
  count(instrument: Instrument, value: number, attributes: Attributes): void {
    this.#record(instrument, attributes, value);
  }

  /** Sends what is to be sent. */
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

/** A request as it is known when it begins. */
export interface ObservedRequest {
  requestId: string;
  transport: Transport;
  /** Method and route, as far as they are known. */
  endpoint?: string;
  tenant?: string | undefined;
  keyId?: string | undefined;
  /** Unix milliseconds. */
  begunAt?: number;
}

/** Where a request is observed. */
export interface ObservationHost extends ExportHost {
  /** The points of the invocation, where it is more than one request's. */
  analytics?: AnalyticsWriter | undefined;
}

interface EndedRequest {
  event: WideEvent;
  measured: Measurements;
  begunAt: number;
  endedAt: number;
}

/** The parts of its trace that a run keeps, so that it goes on under the same one after its process has died. */
export type KeptTrace = Pick<Trace, "traceId" | "parent" | "span" | "isSampled" | "isKept" | "state">;

/** One request, from its beginning to its end. */
export class Observation {
  readonly measured: Measurements;
  readonly #telemetry: Telemetry;
  readonly #host: ObservationHost;
  readonly #facts: Omit<RequestFacts, "endedAt">;
  /** The answer goes on after its headers: what it comes to is not known before. */
  #isOpen = false;
  #isTold = false;

  constructor(telemetry: Telemetry, request: ObservedRequest, trace: Trace | undefined, host: ObservationHost) {
    const { requestId, transport, endpoint = "", tenant, keyId, begunAt = Date.now() } = request;
    this.#telemetry = telemetry;
    this.#host = host;
    host.analytics?.expect();
    this.measured = newMeasurements(trace);
    this.#facts = {
      ...{ requestId, transport, endpoint, tenant, keyId, begunAt },
      ...{ status: 200, error: undefined, hasClientLeft: false },
    };
  }

  /** The trace that a run keeps which the request begins. Its own span lies below this request's. */
  runTrace(newSpan: () => string): KeptTrace | undefined {
    const { trace } = this.measured;
    if (!trace) return undefined;
    const { traceId, isSampled, isKept, state, span } = trace;
    return { traceId, parent: span, span: isKept ? newSpan() : span, isSampled, isKept, state };
  }

  /** Notes facts that only its way through the server has shown. */
  know(facts: Partial<Pick<RequestFacts, "endpoint" | "transport" | "tenant" | "keyId" | "hasClientLeft">>): void {
    Object.assign(this.#facts, facts);
  }

  /** The answer is a stream that ends with `ended`, which never rejects; then the request has ended. */
  streamsUntil(ended: Promise<unknown>): Promise<void> {
    this.#isOpen = true;
    return ended.then(() => {
      this.#isOpen = false;
      this.#tell();
    });
  }

  /** The request was answered; unless the answer is a stream that goes on, it has ended. */
  answered(status: number, error?: string): void {
    this.#facts.status = status;
    this.#facts.error = error;
    if (!this.#isOpen) this.#tell();
  }

  /** Told once, whatever happens. Never throws: no request fails of what is told of it. */
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
    // A turn that nobody waits for any more was cancelled by its client's leaving.
    facts.hasClientLeft ||= facts.transport !== "background" && this.measured.end?.status === "cancelled";
    const event = toWideEvent(facts, this.measured);
    const { analytics: dataset } = this.#telemetry.config;
    const analytics = this.#host.analytics ?? (dataset && new AnalyticsWriter(dataset));
    this.#telemetry.tell({ event, measured: this.measured, begunAt: facts.begunAt, endedAt }, analytics);
    this.#telemetry.flush(this.#host);
  }
}

/** One for each configuration, whoever has loaded it: the Worker and its objects share an isolate, and so what it counts. */
const instances = new Map<string, Telemetry>();

/** By the configuration itself, so that a request need not ask twice. */
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
