import type { AnalyticsDataset } from "../config/index.ts";
import type { WideEvent } from "./wide-event.ts";

/**
 * Wide events as data points of Analytics Engine. docs/telemetry.md has the columns: `index1` of a point is the tenant,
 * and `double1` … `double17` are sums, so that a point may stand for several requests.
 */

/** Cloudflare takes 25 points per invocation. A whole WebSocket connection is one invocation. */
const MAX_POINTS = 25;

/** The texts of a point may take 16 KB together. */
const MAX_TEXT_LENGTH = 256;

interface Point {
  indexes: string[];
  blobs: string[];
  doubles: number[];
}

/** Writes the points of one invocation. Those beyond the limit are written as one, at its end. */
export class AnalyticsWriter {
  readonly #dataset: AnalyticsDataset;
  #written = 0;
  /** Requests that have begun and are not reported yet. */
  #expected = 0;
  #hasEnded = false;
  #rest: Point | undefined;

  constructor(dataset: AnalyticsDataset) {
    this.#dataset = dataset;
  }

  /** Announces a request that will be reported. */
  expect(): void {
    this.#expected += 1;
  }

  add(event: WideEvent): void {
    this.#expected -= 1;
    const point = toPoint(event);
    // The last point is for all later requests.
    if (this.#written < MAX_POINTS - 1) this.#write(point);
    else if (this.#rest) this.#rest = { ...point, doubles: sumOf(this.#rest.doubles, point.doubles) };
    else this.#rest = point;
    this.#writeRest();
  }

  /** No further request begins: after the last report, the remaining points are written. */
  end(): void {
    this.#hasEnded = true;
    this.#writeRest();
  }

  #writeRest(): void {
    if (!this.#hasEnded || this.#expected > 0) return;
    const rest = this.#rest;
    this.#rest = undefined;
    if (rest) this.#write(rest);
  }

  #write(point: Point): void {
    this.#written += 1;
    try {
      this.#dataset.writeDataPoint(point);
    } catch {
      // No request fails because of telemetry.
    }
  }
}

function sumOf(a: readonly number[], b: readonly number[]): number[] {
  return a.map((value, index) => value + (b[index] ?? 0));
}

export function toPoint(event: WideEvent): Point {
  const { endpoint, transport, model, upstream_model, engine, replica, outcome, error, key_id } = event;
  const texts = [endpoint, transport, model, upstream_model, engine, replica, outcome, error, key_id];
  const toolCalls = Object.values(event.tool_calls ?? {}).reduce((sum, calls) => sum + calls, 0);
  return {
    indexes: [event.tenant ?? ""],
    blobs: [...texts.map((text) => (text ?? "").slice(0, MAX_TEXT_LENGTH)), String(event.status)],
    doubles: [
      1,
      event.error === undefined ? 0 : 1,
      event.client_left ? 1 : 0,
      event.accept_ms ?? 0,
      event.first_token_ms ?? 0,
      event.first_token_ms === undefined ? 0 : 1,
      event.total_ms,
      event.input_tokens ?? 0,
      event.cached_tokens ?? 0,
      event.output_tokens ?? 0,
      event.reasoning_tokens ?? 0,
      event.rounds ?? 0,
      toolCalls,
      event.tool_failures ?? 0,
      event.retries ?? 0,
      event.take_ups ?? 0,
      event.rows_written ?? 0,
    ],
  };
}
