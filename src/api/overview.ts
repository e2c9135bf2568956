import { invalidRequest } from "@responses-edge/responses-api/errors";
import { unixSeconds } from "@responses-edge/responses-api/response";
import { quantile } from "@responses-edge/usage-limits";
import type { z } from "zod";
import { type ServerState, serverStates } from "../assembly/model-server.ts";
import type { Config } from "../config/index.ts";
import type { Overview } from "../contract/admin-objects.ts";
import type { Env } from "../env.ts";
import { addSums, HOUR, MINUTE, MINUTES_KEPT_S, noSums, type Sums } from "../store/deployment/request-log.ts";
import { turnsUnderWay } from "../store/limits/permits.ts";
import { processState } from "../store/objects/process-state.ts";
import { askOthers, type OtherWorker } from "../store/objects/workers.ts";
import type { overviewQuery } from "./queries.ts";

/** All requests over time, and the state of the model servers and the disk at this moment. */

/** The widths of buckets, and of the sums that they are made of. Seconds. */
const WIDTHS = {
  "1m": { seconds: MINUTE, of: MINUTE },
  "5m": { seconds: 5 * MINUTE, of: MINUTE },
  "1h": { seconds: HOUR, of: HOUR },
  "1d": { seconds: 24 * HOUR, of: HOUR },
} as const;

/** Most buckets of one answer: a day of minutes. */
const MAX_BUCKETS = 1_440;

/** Another worker, which has requests at model servers, too. */
interface OtherServers extends OtherWorker {
  serverStates(): Promise<ServerState[]>;
}

/** The overview. Throws the 400s of a time that is too long, or too long ago for its buckets. */
export async function readOverview(
  boards: Env["BOARD"],
  config: Config,
  { start_time: from, end_time: end, bucket_width: width }: z.output<typeof overviewQuery>,
): Promise<Overview> {
  const { seconds, of } = WIDTHS[width];
  const now = unixSeconds();
  const until = end ?? now + 1;
  const first = from - (from % seconds);
  if ((until - first) / seconds > MAX_BUCKETS) {
    const message = `Invalid 'start_time': expected at most ${MAX_BUCKETS} buckets with 'bucket_width=${width}'.`;
    throw invalidRequest("start_time", message, "result_too_large");
  }
  if (of === MINUTE && until > first && first < now - MINUTES_KEPT_S) {
    const message = `Invalid 'start_time': expected a time of the last ${MINUTES_KEPT_S / HOUR} hours with 'bucket_width=${width}'.`;
    throw invalidRequest("start_time", message, "below_min_value");
  }
  const [rows, servers] = await Promise.all([
    boards.getByName().sums({ width: of, from: first, until }),
    allServerStates(config),
  ]);
  const byBucket = Map.groupBy(rows, ({ start }) => start - (start % seconds));
  const starts = Array.from(
    { length: Math.max(0, Math.ceil((until - first) / seconds)) },
    (_, no) => first + no * seconds,
  );
  return {
    object: "list",
    data: starts.map((start) => {
      const sums = (byBucket.get(start) ?? []).reduce((sum, row) => addSums(sum, row.sums), noSums());
      return { object: "overview.bucket" as const, start_time: start, end_time: start + seconds, ...shown(sums) };
    }),
    now: present(servers),
  };
}

function shown({ requests, errors, input, output, durations, firstTokens, byStatus, peaks, ...generation }: Sums) {
  const { generated, generatingMs } = generation;
  const load = Object.values(peaks.load);
  const most = (index: 0 | 1) => (load.length === 0 ? null : load.reduce((sum, each) => sum + each[index], 0));
  return {
    requests,
    errors,
    by_status: byStatus,
    input_tokens: input,
    output_tokens: output,
    p50_ms: quantile(durations, 0.5),
    p95_ms: quantile(durations, 0.95),
    p50_first_token_ms: quantile(firstTokens, 0.5),
    p95_first_token_ms: quantile(firstTokens, 0.95),
    most_in_flight: most(0),
    most_waiting: most(1),
    servers_down: peaks.down,
    least_free_disk_bytes: peaks.freeDisk ?? null,
    output_tokens_per_second: generatingMs > 0 ? Math.round((generated / generatingMs) * 100_000) / 100 : null,
  };
}

/** The model servers as all workers of this machine see them. */
async function allServerStates(config: Config): Promise<ServerState[]> {
  const others = await askOthers((worker: OtherServers) => worker.serverStates());
  const byName = Map.groupBy([...serverStates(config, turnsUnderWay()), ...others.flat()], ({ name }) => name);
  return [...byName.values()].flatMap(([own, ...rest]) => (own ? [rest.reduce(joined, own)] : []));
}

/** A server that one worker reaches is up. */
function joined(one: ServerState, other: ServerState): ServerState {
  return {
    ...one,
    isUp: one.isUp || other.isUp,
    isEjected: one.isEjected && other.isEjected,
    inFlight: one.inFlight + other.inFlight,
    waiting: one.waiting + other.waiting,
    load: one.load ?? other.load,
  };
}

function present(servers: readonly ServerState[]): Overview["now"] {
  const { disk, isDiskClosed: low, measures } = processState;
  return {
    in_flight: servers.reduce((sum, { inFlight }) => sum + inFlight, 0),
    waiting: servers.reduce((sum, { waiting }) => sum + waiting, 0),
    servers: servers.map((server) => ({
      name: server.name,
      status: statusOf(server),
      in_flight: server.inFlight,
      waiting: server.waiting,
      load: server.load ?? null,
    })),
    disk: disk === undefined ? null : { free_bytes: measures.freeDisk ?? null, low },
  };
}

function statusOf({ isUp, isEjected, drains }: ServerState): Overview["now"]["servers"][number]["status"] {
  if (!isUp) return "unreachable";
  if (isEjected) return "ejected";
  return drains ? "draining" : "ok";
}
