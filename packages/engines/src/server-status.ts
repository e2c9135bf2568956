import { logLine } from "@responses-edge/bounded-io/json-text";
import type { ApiError } from "@responses-edge/responses-api/errors";

/**
 * The state of model servers as this isolate knows it, by URL. Plain data that all its requests may read and write: no
 * request may wait for a promise of another. Each change of a server's state is one line of the log.
 */

interface Status {
  /** Unix milliseconds; absent while the server answers. */
  downSince?: number | undefined;
  /** When it was last seen down. */
  downAt?: number;
  /** Unix milliseconds; absent while it answers, or cannot be reached. Streams that it has begun go on: it may be busy. */
  unansweredSince?: number | undefined;
  /** The last answer of its `/health`, and when it came. */
  health?: { isGone: boolean; at: number };
  /** When a request last began to ask. */
  askedAt?: number;
  /** When it was last seen down, or broke off a stream: another server may have its URL since. Unix milliseconds. */
  doubtedAt?: number;
  /** The unusable answers since the last usable one; absent if there are none. */
  unusable?: UnusableAnswers | undefined;
  /** The last state that the log has of it; absent: it is up. */
  logged?: ServerState | undefined;
}

interface UnusableAnswers {
  count: number;
  /** When the first and the last one came. Unix milliseconds. */
  since: number;
  at: number;
  /** The last one's fault. */
  fault: ApiError;
}

/** A server that cannot serve: it cannot be reached, does not answer, gives no usable answers, or is spared by the pool. */
type ServerState = "down" | "hanging" | "failing" | "ejected";

/** A model server, as far as its state needs it. */
interface Server {
  readonly baseUrl: string;
  readonly config: { readonly name: string };
}

const servers = new Map<string, Status>();

/** The states that were noted. A server without one is up. */
export const STATUSES: ReadonlyMap<string, Status> = servers;

/** The state of a server, which is made if there is none. */
export function statusOf(baseUrl: string): Status {
  const known = servers.get(baseUrl);
  if (known) return known;
  const status: Status = {};
  servers.set(baseUrl, status);
  return status;
}

/** Notes that the server is unreachable, or says that it is gone. */
export function sawDown(server: Server): void {
  const status = statusOf(server.baseUrl);
  status.downAt = Date.now();
  status.doubtedAt = status.downAt;
  // The first loss may be that of a kept connection, which the next attempt replaces.
  if (status.downSince !== undefined) logState(server, "down");
  status.downSince ??= status.downAt;
}

/** Notes that the server has left a request without an answer for too long. */
export function sawNoAnswer(server: Server): void {
  statusOf(server.baseUrl).unansweredSince ??= Date.now();
  logState(server, "hanging");
}

/** Notes that a server has answered, with a status of success. */
export function noteAnswer(server: Server): void {
  const status = statusOf(server.baseUrl);
  status.downSince = undefined;
  const { logged } = status;
  if (logged === "down" || logged === "hanging") logState(server, undefined);
}

/** So many unusable answers in a row show a server that cannot generate. A single one may be the prompt's fault. */
const MAX_UNUSABLE = 3;

/** They are forgotten this long after the last one: nobody asks a server any more that nobody uses. Milliseconds. */
const UNUSABLE_MS = 300_000;

/** The codes of faults by which a server answers, but not with an answer. */
const UNUSABLE = new Set([
  ...["upstream_error", "upstream_malformed_response", "upstream_connection_lost", "model_server_unknown"],
]);

/** Notes the fault of a request for an answer of the model, if the server has answered, but not with a usable answer. */
export function noteUnusable(server: Server, fault: ApiError): void {
  if (!UNUSABLE.has(fault.code)) return;
  const status = statusOf(server.baseUrl);
  const at = Date.now();
  const { count = 0, since = at } = recentOf(status, at) ?? {};
  status.unusable = { count: count + 1, since, at, fault };
  if (count + 1 >= MAX_UNUSABLE) logState(server, "failing", fault.code);
}

/** Notes a usable answer after unusable ones. */
export function noteUsable(server: Server): void {
  const status = statusOf(server.baseUrl);
  status.unusable = undefined;
  if (status.logged === "failing") logState(server, undefined);
}

/** Since when a server has given only unusable answers, and the last one's fault; undefined if its answers are usable. */
export function failureOf({ baseUrl }: Pick<Server, "baseUrl">): Pick<UnusableAnswers, "since" | "fault"> | undefined {
  const unusable = recentOf(statusOf(baseUrl), Date.now());
  return unusable && unusable.count >= MAX_UNUSABLE ? unusable : undefined;
}

function recentOf({ unusable }: Status, now: number): UnusableAnswers | undefined {
  return unusable && now - unusable.at < UNUSABLE_MS ? unusable : undefined;
}

/** Logs a change of a server's state; undefined: it serves again. `error` is the code of the fault that has caused it. */
export function logState(server: Server, state: ServerState | undefined, error?: string): void {
  const status = statusOf(server.baseUrl);
  if (status.logged === state) return;
  status.logged = state;
  const level = state === undefined ? "info" : "warn";
  const line = { level, event: "model_server", server: server.config.name, state: state ?? "up", error };
  console.warn(logLine(line));
}
