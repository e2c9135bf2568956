import { checkModelServers, type ModelServerHealth } from "../assembly/model-server.ts";
import type { Caller } from "./transport.ts";

/** A model server that was asked how it is. */
interface ServerHealth {
  status: "ok" | "unreachable";
  latency_ms: number;
  models?: string[];
  error?: { code: string; message: string };
  /** ISO 8601. Since when it is down, as far as this isolate has seen. */
  down_since: string | null;
  /** True if it keeps the prompts of different tenants apart; null if it has not named its version. */
  separates_tenants: boolean | null;
}

/** The model servers behind this one, as `/health/upstream` tells of them. */
export interface UpstreamHealth extends Omit<ServerHealth, "status"> {
  /** `degraded`: some of several do not answer. */
  status: "ok" | "degraded" | "unreachable";
  /** How long turns wait for a server to come back, in milliseconds. */
  recovery: { background_ms: number; foreground_ms: number };
  /** Where there are several: each by its name. */
  servers?: (ServerHealth & {
    name: string;
    draining: boolean;
    ejected: boolean;
    /** As the board has seen it of late, where there is one: `load` is the requests that run and wait there. */
    board?: { down: boolean; load: number | null };
  })[];
}

/** Asks vLLM how it is. `hasTimedOut`: it did not answer in time. Does not throw. */
export async function checkUpstream({
  config,
  signal,
}: Pick<Caller, "config" | "signal">): Promise<{ health: UpstreamHealth; hasTimedOut: boolean }> {
  const recovery = { background_ms: config.recoveryTimeMs, foreground_ms: config.foregroundRecoveryTimeMs };
  const seen = await checkModelServers(config, signal);
  const [first] = seen;
  const hasTimedOut = seen.every(({ fault }) => fault?.status === 504);
  if (seen.length === 1 && first) return { health: { ...toHealth(first), recovery }, hasTimedOut };
  const able = seen.filter(({ fault }) => !fault);
  const best = able[0] ?? first;
  if (!best) throw new TypeError("There is always a model server.");
  const status = able.length === seen.length ? "ok" : able.length > 0 ? "degraded" : "unreachable";
  const servers = seen.map((server) => ({
    name: server.name,
    ...toHealth(server),
    draining: server.drains,
    ejected: server.isEjected,
    ...(server.report && { board: { down: server.report.isDown, load: server.report.load ?? null } }),
  }));
  const models = able.length > 0 && { models: [...new Set(servers.flatMap((server) => server.models ?? []))] };
  const latency_ms = Math.max(...seen.map(({ latencyMs }) => latencyMs));
  const said = servers.map((server) => server.separates_tenants);
  const separates_tenants = said.includes(false) ? false : said.includes(null) ? null : true;
  const all = { ...models, status, latency_ms, separates_tenants } as const;
  return { health: { ...toHealth(best), ...all, recovery, servers }, hasTimedOut };
}

function toHealth({ latencyMs: latency_ms, ...seen }: ModelServerHealth): ServerHealth {
  const separates_tenants = seen.separatesTenants ?? null;
  if (!seen.fault) return { status: "ok", latency_ms, models: seen.models, down_since: null, separates_tenants };
  const { code, message } = seen.fault;
  const down_since = seen.downSince === undefined ? null : new Date(seen.downSince).toISOString();
  return { status: "unreachable", latency_ms, error: { code, message }, down_since, separates_tenants };
}
