/** Texts and whole numbers, by the conventions. */
export type Attributes = Readonly<Record<string, string | number>>;

/** A metric, the same for OTLP and Prometheus. */
export interface Instrument {
  name: string;
  /** UCUM; the counted thing in braces. */
  unit: string;
  description: string;
  /** Upper bounds of a histogram's buckets; a counter has none. */
  bounds?: readonly number[];
}

/** A gauge: a present value. It is read on demand, without work before. */
export interface Gauge {
  name: string;
  /** The unit in Prometheus' form, after the name. */
  unit?: "bytes" | "seconds";
  description: string;
}

/** A gauge with its values, by their attributes. */
export type GaugeReading = readonly [
  gauge: Gauge,
  values: readonly (readonly [attributes: Attributes, value: number])[],
];
