import { checkModelServer } from "../assembly/model-server.ts";
import type { Caller } from "./transport.ts";

/** The vLLM behind this server, as `/health/upstream` tells of it. */
export interface UpstreamHealth {
  status: "ok" | "unreachable";
  latency_ms: number;
  models?: string[];
  error?: { code: string; message: string };
  /** ISO 8601. Since when vLLM is down, as far as this isolate has seen. */
  down_since: string | null;
  /** How long turns wait for it to come back, in milliseconds. */
  recovery: { background_ms: number; foreground_ms: number };
}

/** Asks vLLM how it is. `hasTimedOut`: it did not answer in time. Does not throw. */
export async function checkUpstream({
  config,
  signal,
}: Pick<Caller, "config" | "signal">): Promise<{ health: UpstreamHealth; hasTimedOut: boolean }> {
  const recovery = { background_ms: config.recoveryTimeMs, foreground_ms: config.foregroundRecoveryTimeMs };
  const { latencyMs: latency_ms, ...seen } = await checkModelServer(config, signal);
  if (!seen.fault) {
    return {
      health: { status: "ok", latency_ms, models: seen.models, down_since: null, recovery },
      hasTimedOut: false,
    };
  }
  const { status, code, message } = seen.fault;
  const down_since = seen.downSince === undefined ? null : new Date(seen.downSince).toISOString();
  const health: UpstreamHealth = {
    status: "unreachable",
    latency_ms,
    error: { code, message },
    down_since,
    recovery,
  };
  return { health, hasTimedOut: status === 504 };
}
