/** Texts and whole numbers, as conventions have them. */
export type Attributes = Readonly<Record<string, string | number>>;

/** A metric, whoever reads it: OTLP and Prometheus tell the same. */
export interface Instrument {
  name: string;
  /** UCUM; in braces what is counted. */
  unit: string;
  description: string;
  /** Upper bounds of a histogram's buckets; a counter has none. */
  bounds?: readonly number[];
}

/** A gauge: what is so at this moment. It is read when somebody asks, and nothing is done for it before. */
export interface Gauge {
  name: string;
  /** As Prometheus writes the unit, behind the name. */
  unit?: "bytes";
  description: string;
}

/** A gauge with its values, by their attributes. */
export type GaugeReading = readonly [
  gauge: Gauge,
  values: readonly (readonly [attributes: Attributes, value: number])[],
];
