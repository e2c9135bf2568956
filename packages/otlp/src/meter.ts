import type { Attributes, Instrument } from "./instrument.ts";

/** Values of metrics, added up by their attributes. */

/** The values with the same attributes. */
export interface Series {
  readonly attributes: Attributes;
  count: number;
  sum: number;
  min: number;
  max: number;
  /** The number of values in each bucket, the last one above all bounds; empty for a counter. */
  readonly buckets: number[];
}

/**
 * The maximum of distinct attributes of one metric; further ones are added up under `OVERFLOW`, as the specification
 * says.
 */
const MAX_SERIES = 500;
const OVERFLOW: Attributes = { "otel.metric.overflow": "true" };

export class Meter {
  readonly #series = new Map<Instrument, Map<string, Series>>();
  #since: number;

  /** Unix milliseconds. */
  constructor(now: number) {
    this.#since = now;
  }

  /** The start of the sum. Unix milliseconds. */
  get since(): number {
    return this.#since;
  }

  /** Adds a value: to a histogram, or to a counter. */
  record(instrument: Instrument, attributes: Attributes, value: number): void {
    let ofInstrument = this.#series.get(instrument);
    if (!ofInstrument) {
      ofInstrument = new Map();
      this.#series.set(instrument, ofInstrument);
    }
    let key = JSON.stringify(attributes);
    let kept = attributes;
    if (ofInstrument.size >= MAX_SERIES && !ofInstrument.has(key)) {
      key = "";
      kept = OVERFLOW;
    }
    let series = ofInstrument.get(key);
    if (!series) {
      const buckets = instrument.bounds ? new Array<number>(instrument.bounds.length + 1).fill(0) : [];
      series = { attributes: kept, count: 0, sum: 0, min: value, max: value, buckets };
      ofInstrument.set(key, series);
    }
    series.count += 1;
    series.sum += value;
    series.min = Math.min(series.min, value);
    series.max = Math.max(series.max, value);
    if (instrument.bounds) {
      const at = instrument.bounds.findIndex((bound) => value <= bound);
      const bucket = at < 0 ? instrument.bounds.length : at;
      series.buckets[bucket] = (series.buckets[bucket] ?? 0) + 1;
    }
  }

  get isEmpty(): boolean {
    return this.#series.size === 0;
  }

  /** All that was added up. */
  read(): [Instrument, Series[]][] {
    return [...this.#series].map(([instrument, series]) => [instrument, [...series.values()]]);
  }

  /** Gives it, and starts again. */
  take(now: number): { since: number; metrics: [Instrument, Series[]][] } {
    const taken = { since: this.#since, metrics: this.read() };
    this.#series.clear();
    this.#since = now;
    return taken;
  }
}
