import { checkModelServers, type ModelServerHealth, serverStates } from "../assembly/model-server.ts";
import type { Config } from "../config/index.ts";
import { directoryState } from "../store/deployment/keys/directory-state.ts";
import { permitsTaken } from "../store/limits/permits.ts";
import { areFilesNearlyUsed, type FileBindings } from "../store/objects/open-objects.ts";
import { processState } from "../store/objects/process-state.ts";
import type { Caller } from "./transport.ts";

/**
 * Asks the model servers how they are, for `/health/upstream`. `degraded`: some of several cannot serve. `failing`: the best of them
 * answers, but not with usable answers.
 * `hasTimedOut`: none has answered in time. Does not throw.
 */
export async function checkUpstream({ config, signal }: Pick<Caller, "config" | "signal">) {
  /** How long turns wait for a server to come back. */
  const recovery = { background_ms: config.recoveryTimeMs, foreground_ms: config.foregroundRecoveryTimeMs };
  const seen = await checkModelServers(config, signal);
  const [first] = seen;
  const hasTimedOut = seen.every(({ fault }) => fault?.status === 504);
  if (seen.length === 1 && first) return { health: { ...toHealth(first), recovery }, hasTimedOut };
  const answering = seen.filter(({ fault }) => !fault);
  const able = answering.filter((server) => !("failure" in server && server.failure));
  const best = able[0] ?? answering[0] ?? first;
  if (!best) throw new TypeError("There is always a model server.");
  const one = toHealth(best);
  const status = able.length === seen.length ? "ok" : able.length > 0 ? "degraded" : one.status;
  const servers = seen.map((server) => ({
    name: server.name,
    ...toHealth(server),
    draining: server.drains,
    weight: server.weight,
    ejected: server.isEjected,
    // As the board has seen the server lately: `load` is the requests that run and wait there.
    ...(server.report && { board: { down: server.report.isDown, load: server.report.load ?? null } }),
  }));
  const models = answering.length > 0 && {
    models: [...new Set(servers.flatMap((server) => ("models" in server ? server.models : [])))],
  };
  const latency_ms = Math.max(...seen.map(({ latencyMs }) => latencyMs));
  const said = servers.map((server) => server.separates_tenants);
  const separates_tenants = said.includes(false) ? false : said.includes(null) ? null : true;
  const all = { ...models, status, latency_ms, separates_tenants } as const;
  const { dialect: _, missing_parsers: __, ...others } = one;
  return { health: { ...others, ...all, recovery, servers }, hasTimedOut };
}

/** Reasons to refuse all new requests, or some of them. */
export const LIMITED_BECAUSE = [
  ...["disk_low", "disk_read_only", "files_used", "room_used", "model_servers_down"],
  ...["keys_unavailable", "keys_damaged"],
] as const;
type Reason = (typeof LIMITED_BECAUSE)[number];

/**
 * Tells whether new requests should come to this process, without asking anybody. `limited`: it serves, except requests that
 * store on a full or read-only disk (507), connections without a file, and turns without memory permits (503), or no model
 * server answers as far as it has seen: turns wait for one, and stored responses can be read; or the directory of keys did not answer: requests
 * whose key is not cached are refused. No reason takes the process out
 * of a balancer: where all are full, their refusals tell clients when to come back. A process that is shutting down refuses
 * this question like all others. A process whose schema is older than its data does not start.
 */
export async function checkReadiness(
  config: Config,
  files: FileBindings,
): Promise<{ status: "ready" | "limited"; reasons: Reason[] }> {
  const reasons: Reason[] = [];
  if (processState.isDiskClosed) reasons.push(processState.disk === "read_only" ? "disk_read_only" : "disk_low");
  if (await areFilesNearlyUsed(files)) reasons.push("files_used");
  if (permitsTaken() >= config.maxOpenTurns) reasons.push("room_used");
  if (serverStates(config, 0).every(({ isUp }) => !isUp)) reasons.push("model_servers_down");
  const keys = directoryState();
  if (keys !== undefined && keys !== "ok") reasons.push(`keys_${keys}`);
  return { status: reasons.length > 0 ? "limited" : "ready", reasons };
}

/**
 * `down_since` is ISO 8601, as far as this isolate has seen. `separates_tenants` is true of a server that keeps the prompts of different
 * tenants apart, and null of one that has not named its version.
 */
function toHealth({ latencyMs: latency_ms, ...seen }: ModelServerHealth) {
  const { missingParsers: missing } = seen;
  const kind = {
    separates_tenants: seen.separatesTenants ?? null,
    dialect: seen.dialect ?? null,
    ...(missing.length > 0 && { missing_parsers: missing }),
  };
  if (!seen.fault) {
    const answers = { latency_ms, models: seen.models, down_since: null, ...kind };
    if (!seen.failure) return { status: "ok" as const, ...answers };
    const { since, fault } = seen.failure;
    const error = { code: fault.code, message: fault.message };
    return { status: "failing" as const, ...answers, error, failing_since: new Date(since).toISOString() };
  }
  const { code, message } = seen.fault;
  const down_since = seen.downSince === undefined ? null : new Date(seen.downSince).toISOString();
  return { status: "unreachable" as const, latency_ms, error: { code, message }, down_since, ...kind };
}
