import type { ExportHost } from "@responses-edge/otlp";
import { ApiError } from "@responses-edge/responses-api/errors";
import { responseId } from "@responses-edge/responses-api/ids";
import type { McpAccess } from "@responses-edge/responses-api/tools";
import type { ServerAttempt } from "@responses-edge/turn/contract/engine";
import type { ForkMeans } from "@responses-edge/turn/fork";
import { matchOutputs } from "@responses-edge/turn/prompt";
import type { TurnState } from "@responses-edge/turn/state";
import { callsBefore } from "@responses-edge/turn/timing";
import type { Settle, Turn, TurnResult } from "@responses-edge/turn/turn";
import { assembleTurn, type ReadPast, type TurnHost } from "../../assembly/assemble-turn.ts";
import { ModelAccess } from "../../assembly/model-access.ts";
import { type Config, loadConfig } from "../../config/index.ts";
import type { AgentRuns } from "../../contract/agent-runs.ts";
import { restrictedConfig } from "../../contract/grants.ts";
import type { Env } from "../../env.ts";
import { tellContent } from "../../telemetry/content-log.ts";
import { type Observation, telemetryOf } from "../../telemetry/telemetry.ts";
import { countUsage, type UseOwner } from "../limits/allowances.ts";
import { reportEnded } from "../limits/ended-requests.ts";
import type { ObjectLoad } from "../limits/permits.ts";
import { HeldQuota } from "../limits/run-quota.ts";
import { MAX_CALL_LENGTH } from "../objects/rpc.ts";
import { containerFiles } from "../tenant/files/container-files.ts";
import { FileClient } from "../tenant/files/file-client.ts";
import { StoreClient } from "../tenant/vector-stores/store-client.ts";
import { storeSearch } from "../tenant/vector-stores/store-searcher.ts";
import { agentRuns } from "./agent-runs.ts";
import type { Lease } from "./conversation-lock.ts";
import { whenDue } from "./deferred-runs.ts";
import type { EventLogStore } from "./event-log.ts";
import type { ForkedBeginning } from "./forked-runs.ts";
import { type History, readHistory } from "./history.ts";
import { HomeClient } from "./home-client.ts";
import { EventLogWriter } from "./log-writer.ts";
import type { Fork, RunSpec, RunStore } from "./run-store.ts";
import type { RunToSettle } from "./settlement.ts";

/** A run that is ready to start: its turn can be made, and its output goes to its home. */

/** The parts of its home that a run needs. */
export interface RunHome {
  env: Env;
  /** Keeps an object alive, and catches the promise's errors. */
  waitUntil(promise: Promise<unknown>): void;
  runs: RunStore;
  log: EventLogStore;
  /** Counts the runs of this home among those of its tenant. */
  load: ObjectLoad;
  /** The key of this home, as ids contain it. */
  address: string;
  /** The history that a run continues. Throws the 400 of deleted items. */
  history(spec: RunSpec): { history: History; base: number | null };
  /** The beginning of a branch (`forked-runs.ts`). Throws as `forkRun` does. */
  fork(spec: RunSpec, fork: Fork, means: ForkMeans): ForkedBeginning | undefined;
  /** Waits for the conversation's lock, without a limit. */
  acquireConversation(): Promise<Lease | undefined>;
  /** Runs `body` in a transaction: all its writes take effect, or none. */
  transaction<T>(body: () => T): T;
  /** Ends the log and settles the turn in one transaction. Gives the rows that the turn took. */
  settle(settled: RunToSettle, result: TurnResult): number;
}

/** The history of a run. */
export interface RunPast extends ReadPast {
  /** The last position of its conversation that it has seen. */
  base: number | null;
}

export interface PreparedRun {
  spec: RunSpec;
  /** The JSON length of its spec and, once known, of its history, in UTF-16 units. */
  length: number;
  abort: AbortController;
  log: EventLogWriter;
  access: Readonly<Record<string, McpAccess>>;
  /**
   * Ends the run in memory, with all its output in its log, so that it can be resumed by another process. False if that
   * would lose or repeat something, and it is not `forced`.
   */
  freeze(isForced: boolean): boolean;
  /** Its reservation of its caller's limits. */
  quota: HeldQuota;
  /** Events in its log from before. */
  logged: number;
  /** Makes the run's turn. Without a history it can only end. Throws as `assembleTurn` does. */
  makeTurn: (past: RunPast | undefined) => Turn;
  /**
   * Starts the turn of a run that has not begun, and runs it to its end. A model that fails at once is replaced if its
   * route names another.
   */
  run: (turn: Turn, past: RunPast) => Promise<TurnResult>;
  settle: Settle;
  observation: Observation;
  /** The name of the model server that has answered last; undefined if none has. */
  server: () => string | undefined;
}

/** `logged` is the state that the run's log gives, if it has one. `access` is to the MCP servers of its request. */
export function prepareRun(
  home: RunHome,
  spec: RunSpec,
  logged: TurnState | undefined,
  access: Readonly<Record<string, McpAccess>>,
): PreparedRun {
  const whole = loadConfig(home.env);
  const config = spec.policy ? restrictedConfig(whole, spec.policy) : whole;
  const abort = new AbortController();
  const log = new EventLogWriter(home.log, spec.turn, logged?.sequence ?? 0, config.eventLog);
  // The spec has the request and the input, which are kept beside the output.
  const { length } = JSON.stringify(spec);
  const outputLength = Math.max(0, MAX_CALL_LENGTH - length);
  const observation = observe(home, spec, config);
  const { measured } = observation;
  measured.waitedMs = spec.waitedMs;
  if (logged) measured.modelCalls.push(...callsBefore(logged));
  let base: number | null = null;
  let server: string | undefined;
  let made: Turn | undefined;
  let isSettling = false;
  let isFrozen = false;
  const freeze = (isForced: boolean) => {
    if (isFrozen) return true;
    if (!isForced && (isSettling || made?.isResumable === false)) return false;
    isFrozen = true;
    try {
      log.commit();
    } catch {
      // The run goes on where its log ends.
    }
    log.stop();
    abort.abort();
    return true;
  };
  const onAttempt = (attempt: ServerAttempt) => {
    if (attempt.fault === undefined) ({ server } = attempt);
  };
  const modelAccess = new ModelAccess(config, spec.tenant, spec.model);
  const makeTurn = (past: RunPast | undefined, state = logged): Turn => {
    base = past?.base ?? null;
    const waitUntil = (promise: Promise<unknown>) => home.waitUntil(promise);
    const { signal } = abort;
    made = assembleTurn(spec, past, {
      config,
      modelAccess,
      access,
      ...fileAccessOf(home, spec, config),
      agents: (own) => agentsOf(home, { ...spec, ...own }, config, access),
      outputLength,
      signal,
      waitUntil,
      onAttempt,
      sink: log,
      logged: state,
      measured,
      diagnosis: spec.diagnosis && Promise.resolve(spec.diagnosis),
    });
    return made;
  };
  const run = async (first: Turn, past: RunPast): Promise<TurnResult> => {
    using _place = await whenDue(spec, abort.signal);
    let turn = first;
    let started = turn.start();
    while (await modelAccess.mayReplaceModel()) {
      try {
        await started;
        break;
      } catch (error) {
        const model = error instanceof ApiError ? await modelAccess.replaceModel(error, abort.signal) : undefined;
        if (!model || abort.signal.aborted) break;
        Object.assign(spec, { model, request: modelAccess.accept(spec.request, model) });
        home.transaction(() => home.runs.replace(spec));
        turn = makeTurn(past, turn.state);
        started = turn.start();
      }
    }
    return turn.run(started, settle);
  };
  const quota = new HeldQuota(spec.reservation, home.env);
  const settle: Settle = async (result, terminate) => {
    // It lasts until its object ends, and keeps its conversation.
    if (isFrozen) await new Promise(() => {});
    isSettling = true;
    const usage = quota.usageOf(result, { spec, prices: config.keys.prices });
    const used = quota.used(usage);
    terminate();
    try {
      // All or nothing: pending events, the terminal one, and the turn.
      measured.rowsWritten = home.settle({ spec, base, used, endLog: () => log.end() }, result);
      if (!used) countUsage(ownerOf(home, spec), usage, true);
      const { tenant, keyId, request, input, createdAt } = spec;
      const turn = { id: responseId(spec), tenant, keyId, request, input, createdAt, result };
      tellContent(config, spec.policy, turn, hostOf(home));
    } catch (error) {
      // The run stays in its table, and the alarm resumes it.
      log.stop();
      throw error;
    }
  };
  return {
    spec,
    length,
    abort,
    log,
    access,
    freeze,
    quota,
    logged: logged?.sequence ?? 0,
    makeTurn,
    run,
    settle,
    observation,
    server: () => server,
  };
}

/** The files and vector stores of a run, within the limits of the caller that has begun it. */
function fileAccessOf(home: RunHome, spec: RunSpec, config: Config): Pick<TurnHost, "searchStores" | "containerFiles"> {
  const { env } = home;
  const { tenant, policy } = spec;
  const owner = ownerOf(home, spec);
  const identity = { ...owner.identity, policy, storingKey: undefined };
  const { waitUntil } = owner;
  return {
    searchStores: storeSearch({ config, stores: new StoreClient(env, tenant), ...owner, identity }),
    containerFiles: () => containerFiles({ tenant, identity, config, files: new FileClient(env, tenant), waitUntil }),
  };
}

/** The runs of the sub-agents of a run. */
function agentsOf(
  { env, waitUntil }: RunHome,
  spec: RunSpec,
  config: Config,
  access: Readonly<Record<string, McpAccess>>,
): AgentRuns {
  const { parent, input, reservation, policy, keyId, owner, tenant } = spec;
  const { limits, endUser } = reservation ?? {};
  return agentRuns(
    {
      ...{ spec, parent, input, access, keyId },
      ...(policy && { policy }),
      ...(owner !== undefined && { owner }),
      limits: limits && { limits, ...(endUser && { endUser }) },
    },
    { config, homes: new HomeClient(env, tenant), quotas: env.QUOTAS, waitUntil },
  );
}

/** The owner of the usage of a run. */
function ownerOf(home: RunHome, { tenant, keyId, reservation }: RunSpec): UseOwner {
  const identity = { tenant, keyId, counted: reservation?.limits };
  // An unreadable run names no tenant.
  return {
    identity,
    quotas: tenant === "" ? undefined : home.env.QUOTAS,
    waitUntil: (promise) => home.waitUntil(promise),
  };
}

/** Telemetry treats a run as a request of its own, because the request that has begun it may have ended long before. */
function observe(home: RunHome, spec: RunSpec, config: Config): Observation {
  const request = {
    requestId: responseId(spec),
    transport: "background",
    endpoint: "run",
    tenant: spec.tenant,
    keyId: spec.keyId,
    begunAt: spec.createdAt,
  } as const;
  const observation = telemetryOf(config.telemetry).observeRun(request, spec.trace, hostOf(home));
  const { BOARD: boards } = home.env;
  observation.reportTo((ended) => reportEnded({ ...ownerOf(home, spec), boards, config }, ended, true));
  return observation;
}

/** A home as the sender of telemetry. One export only, because an object's time awake is billed. */
function hostOf(home: RunHome): ExportHost {
  return { waitUntil: (promise) => home.waitUntil(promise), isBrief: true };
}

/** The present history of a run. Throws the 400s of a history that was deleted, or is too long. */
export function readRunPast(home: RunHome, spec: RunSpec): RunPast {
  const { history, base } = home.history(spec);
  const read = readHistory(history);
  // The run settles the input of its spec.
  spec.input = [...matchOutputs(read.history, spec.input)];
  return { ...read, input: spec.input, base };
}
