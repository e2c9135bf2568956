import type { Attributes, Instrument } from "@responses-edge/otlp";
import { loadConfig, type Variables } from "../../config/index.ts";
import { telemetryOf } from "../../telemetry/telemetry.ts";

/** The part of an object that its counters need. */
export interface CountingHost {
  env: Variables;
  waitUntil(promise: Promise<unknown>): void;
}

/** Adds to a counter of an object's work. */
export function count(host: CountingHost, instrument: Instrument, value: number, attributes: Attributes = {}): void {
  if (value === 0) return;
  const counters = telemetryOf(loadConfig(host.env).telemetry);
  counters.count(instrument, value, attributes);
  // One export only, because an object's time awake is billed.
  counters.flush({ waitUntil: (promise) => host.waitUntil(promise), isBrief: true });
}
