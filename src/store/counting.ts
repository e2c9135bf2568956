import type { Attributes, Instrument } from "@responses-edge/otlp";
import { loadConfig, type Variables } from "../config/index.ts";
import { telemetryOf } from "../telemetry/telemetry.ts";

/** An object, as far as its counters need it. */
export interface CountingHost {
  env: Variables;
  waitUntil(promise: Promise<unknown>): void;
}

/** Adds to a counter what an object has done, whoever has asked for it. Does nothing without telemetry. */
export function count(host: CountingHost, instrument: Instrument, value: number, attributes: Attributes = {}): void {
  const { telemetry } = loadConfig(host.env);
  if (!telemetry || value === 0) return;
  const counters = telemetryOf(telemetry);
  counters.count(instrument, value, attributes);
  // An object that is awake is paid for: one export must do.
  counters.flush({ waitUntil: (promise) => host.waitUntil(promise), isBrief: true });
}
