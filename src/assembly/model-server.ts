import type { DialectName } from "@responses-edge/engines/dialects/dialect";
import { type MissingParsers, missingParsersOf } from "@responses-edge/engines/missing-parsers";
import { seesImages } from "@responses-edge/engines/modalities";
import { dialectOf, fetchModels } from "@responses-edge/engines/model-lists";
import { learnModels } from "@responses-edge/engines/model-names";
import type { ModelServer } from "@responses-edge/engines/model-server";
import { listModels as list, type ModelCard } from "@responses-edge/engines/models";
import {
  askState,
  type BoardReport,
  mustReadBoard,
  noteReport,
  reportOf,
  type ServerReport,
} from "@responses-edge/engines/pool/board-view";
import { candidateOf, loadOf } from "@responses-edge/engines/pool/server-load";
import { failureOf, sawNoAnswer } from "@responses-edge/engines/server-status";
import { separatesTenants } from "@responses-edge/engines/tenant-separation";
import { Upstream } from "@responses-edge/engines/upstream";
import { timedOut } from "@responses-edge/engines/upstream-faults";
import { type ApiError, toApiError } from "@responses-edge/responses-api/errors";
import type { Config } from "../config/index.ts";

export type { BoardReport } from "@responses-edge/engines/pool/board-view";

/** Asks the model servers for their models and their health. */

/** The models that clients may name. Throws ApiError as the upstream does. */
export function listModels(config: Config, signal: AbortSignal): Promise<ModelCard[]> {
  return list(config, new Upstream(config), signal);
}

/** Tells whether any model reads images: for items that name no model. False while no server lists its models. */
export async function anySeesImages(config: Config, signal: AbortSignal): Promise<boolean> {
  const upstream = new Upstream(config);
  const cards = await list(config, upstream, signal).catch(() => []);
  signal.throwIfAborted();
  for (const { id } of cards) if (await seesImages(id, config, upstream, signal)) return true;
  return false;
}

/** Asks for the lists of models again if none has this name. Rejects only with the reason of an aborted `signal`. */
export function learnModel(config: Config, name: string, signal: AbortSignal): Promise<void> {
  return learnModels(new Upstream(config).servers, name, signal);
}

/** Asks every model server how it is, for the board. Does not throw. */
export function askServers(config: Config): Promise<ServerReport[]> {
  return Promise.all(new Upstream(config).servers.map(askState));
}

/** Reads the board's report if it is due, in parallel with the caller's work. Ignores an unreachable board. */
export function hearReport(
  { boardMs, modelServers }: Config,
  read: () => Promise<BoardReport | null>,
  waitUntil: (promise: Promise<unknown>) => void,
): void {
  if (!mustReadBoard(Date.now(), boardMs)) return;
  waitUntil(
    read().then(
      (report) => {
        if (!report) return;
        noteReport(report);
        for (const { name, load, waiting } of report.servers) {
          const server = modelServers.find((each) => each.name === name);
          if (!server || load === undefined || waiting === undefined) continue;
          loadOf(server).admission.noteLoad({ running: load - waiting, waiting }, Date.now());
        }
      },
      () => {},
    ),
  );
}

/** The health of a model server. `latencyMs`: until it had listed its models, or failed to. */
export type ModelServerHealth = {
  name: string;
  drains: boolean;
  weight: number;
  isEjected: boolean;
  /** As the board has seen it lately. */
  report: ServerReport | undefined;
  /** Undefined if it has not named its version. */
  separatesTenants: boolean | undefined;
  /** The kind of server, as it or the operator says; undefined if unknown. */
  dialect: DialectName | undefined;
  /** The parsers that it was seen to lack. */
  missingParsers: MissingParsers[];
  latencyMs: number;
} /** `failure`: it lists its models, but has given only unusable answers lately. */ & (
  | { models: string[]; failure: ReturnType<typeof failureOf>; fault?: undefined }
  /** `downSince` in Unix milliseconds, as far as this isolate has seen. */
  | { fault: ApiError; downSince: number | undefined }
);

/** Asks every model server for its models, side by side and never from the cache. Does not throw. */
export function checkModelServers(config: Config, signal: AbortSignal): Promise<ModelServerHealth[]> {
  const { servers } = new Upstream(config);
  return Promise.all(
    servers.map(async (server) => ({
      ...(await checkModelServer(server, signal)),
      report: reportOf(server.config.name, Date.now(), config.boardMs),
      separatesTenants: separatesTenants(server),
      dialect: dialectOf(server)?.name,
      missingParsers: missingParsersOf(server.baseUrl, dialectOf(server)?.name),
    })),
  );
}

/** A model server's state, as this process has seen it lately. */
export interface ServerState {
  name: string;
  /** It answers, and its answers can be used. */
  isUp: boolean;
  isEjected: boolean;
  drains: boolean;
  /** Requests of this process that are under way to it. */
  inFlight: number;
  /** Requests of this process that wait for it. */
  waiting: number;
  /** Requests that run and wait there, if the board knows. */
  load: number | undefined;
}

/**
 * Every model server's state, without asking any.
 * @param turns the turns of this process, all of which are the requests of a server that is the only one
 */
export function serverStates(config: Config, turns: number): ServerState[] {
  const now = Date.now();
  const { servers } = new Upstream(config);
  return servers.map(({ config: { name, drains, ...server }, downSince, baseUrl }) => {
    const { isEjected, ...candidate } = candidateOf({ name, drains, ...server }, now);
    // A server that is the only one, without a limit, counts no requests.
    const inFlight = servers.length === 1 ? Math.max(candidate.inFlight, turns) : candidate.inFlight;
    const report = reportOf(name, now, config.boardMs);
    const isUp = downSince === undefined && report?.isDown !== true && !failureOf({ baseUrl });
    const { waiting } = loadOf({ name, ...server }).admission;
    return { name, isUp, isEjected, drains: drains === true, inFlight, waiting, load: report?.load };
  });
}

/** A server that takes longer to list its models counts as down. Milliseconds. */
const CHECK_MS = 2_000;

async function checkModelServer(server: ModelServer, signal: AbortSignal) {
  const { name, drains, weight } = server.config;
  const begin = Date.now();
  const { isEjected } = candidateOf(server.config, begin);
  const late = AbortSignal.timeout(CHECK_MS);
  try {
    const cards = await fetchModels(server, AbortSignal.any([signal, late]));
    const models = cards.map((card) => card.id);
    return { name, drains, weight, isEjected, latencyMs: Date.now() - begin, models, failure: failureOf(server) };
  } catch (error) {
    const isLate = late.aborted && !signal.aborted;
    if (isLate) sawNoAnswer(server);
    const fault = isLate ? timedOut("did not answer", CHECK_MS) : toApiError(error);
    return { name, drains, weight, isEjected, latencyMs: Date.now() - begin, fault, downSince: server.downSince };
  }
}
