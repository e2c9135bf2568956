import { logLine } from "@responses-edge/bounded-io/json-text";
import { conversationOf } from "@responses-edge/responses-api/create-bodies";
import {
  ApiError,
  conversationLocked,
  conversationNotFound,
  responseNotFound,
  tooManyInProgress,
} from "@responses-edge/responses-api/errors";
import { estimateTokens } from "@responses-edge/responses-api/estimate";
import { responseId } from "@responses-edge/responses-api/ids";
import type { McpAccess } from "@responses-edge/responses-api/tools";
import type { ForkMeans } from "@responses-edge/turn/fork";
import type { TurnResult } from "@responses-edge/turn/turn";
import { forkMeans } from "../../assembly/fork-means.ts";
import { loadConfig } from "../../config/index.ts";
import { tooManyAgents } from "../../contract/agent-runs.ts";
import { announceRun } from "../deployment/board.ts";
import { type PermitOwner, Permits } from "../limits/permits.ts";
import { runsAreSuspended } from "../objects/ownership.ts";
import { processState } from "../objects/process-state.ts";
import { type Result, refusalOf, refused } from "../objects/rpc.ts";
import { learnEndpoints } from "../tenant/webhooks/announcing.ts";
import type { ConversationTurns } from "./conversation-turns.ts";
import type { HomeRows } from "./home-rows.ts";
import type { Housekeeping } from "./housekeeping.ts";
import type { EventLogWriter } from "./log-writer.ts";
import { type PreparedRun, prepareRun, type RunHome, readRunPast } from "./prepared-run.ts";
import { resumeRun } from "./resume-runs.ts";
import { isUnstored, type RunSpec, runningBody } from "./run-store.ts";
import type { StoredResponse } from "./stored-response.ts";

/**
 * Runs that outlive every client: they live in the home, their events go to its log, and their creator is only the first of their
 * readers. A run whose process died is found again (`resumeRuns`) and continues where its log ends (`resume-runs.ts`).
 */

interface LiveRun {
  spec: RunSpec;
  abort: AbortController;
  log: EventLogWriter;
  access: Readonly<Record<string, McpAccess>>;
  freeze: PreparedRun["freeze"];
  ended: Promise<void>;
  /** The model server that has answered last. */
  server: () => string | undefined;
  /** The JSON length of its request and history, in UTF-16 units. */
  length: number;
}

/** Most live runs of one object, and their longest total, in UTF-16 units, if there are several: they share its 128 MB. */
const MAX_LIVE_RUNS = 64;
const MAX_LIVE_LENGTH = 16 * 1024 * 1024;

/** How often it is checked whether a run can be resumed. Milliseconds. */
const POLL_MS = 10;

export class RunHost {
  readonly #home: RunHome;
  readonly #live = new Map<string, LiveRun>();

  constructor(home: RunHome) {
    this.#home = home;
  }

  get liveRuns(): number {
    return this.#live.size;
  }

  live(turn: string): LiveRun | undefined {
    return this.#live.get(turn);
  }

  /** The live runs. */
  specs(): RunSpec[] {
    return [...this.#live.values()].map(({ spec }) => spec);
  }

  /**
   * Counts one more run of the tenant; gives the function that ends it. Throws the 429s of an object or a tenant with
   * as many as it may have.
   */
  #countRun(): () => void {
    if (this.#live.size >= MAX_LIVE_RUNS) {
      throw tooManyInProgress(
        `${MAX_LIVE_RUNS} background responses that are stored together with this one are in progress.`,
      );
    }
    const { maxBackgroundRunsPerTenant: limit } = loadConfig(this.#home.env);
    const giveBack = this.#home.load.take(limit);
    if (!giveBack) throw tooManyInProgress(`You already have ${limit} background responses in progress.`);
    return giveBack;
  }

  /** Throws the 429 of a task that would make more agents of its team work than may. */
  #checkTeam({ agent }: RunSpec): void {
    const working = this.specs().filter((spec) => spec.agent?.team === agent?.team).length;
    if (agent?.most !== undefined && working >= agent.most) throw tooManyInProgress(tooManyAgents(working));
  }

  /** The owner of the memory permits of a run. */
  #ownerOf({ tenant }: RunSpec): PermitOwner {
    return { tenant, config: loadConfig(this.#home.env) };
  }

  /** Throws a 429 if there is no room for the run in addition to the others. */
  #checkLength(length: number): void {
    const others = this.#live.values().reduce((sum, run) => sum + run.length, 0);
    if (others === 0 || others + length <= MAX_LIVE_LENGTH) return;
    throw tooManyInProgress(
      "The background responses in progress that are stored together with this one leave no memory for it.",
    );
  }

  /**
   * Starts a run: stores it first, so that no crash can lose it. Throws the 400s of an input that does not fit its
   * history, the 429s and the 503 of limits, and for a branch as `forkRun` does. `scope` holds the lease of the turn's conversation, if it is in one:
   * the run takes it over and releases it at its end; a refused run leaves it to the caller. `access` is to the MCP
   * servers of the request, and kept only as long as this process lives. `means` are those of a branch.
   */
  start(
    spec: RunSpec,
    scope: DisposableStack,
    access: Readonly<Record<string, McpAccess>>,
    means: ForkMeans | undefined,
  ): void {
    this.#checkTeam(spec);
    scope.defer(this.#countRun());
    const permits = scope.use(new Permits("run", this.#ownerOf(spec), 0));
    const forked = spec.fork && means && this.#home.fork(spec, spec.fork, means);
    const run = prepareRun(this.#home, spec, forked?.state, access);
    const past = readRunPast(this.#home, spec);
    run.length += past.length;
    this.#checkLength(run.length);
    permits.resize(run.length);
    const turn = run.makeTurn(past);
    if (turn.refusal) throw turn.refusal;
    // The input of a branch was not known to its caller.
    const unseen = spec.fork ? [...past.history, ...spec.input] : past.history;
    if (spec.reservation) run.quota.raise(estimateTokens(unseen), loadConfig(this.#home.env).keys.prices);
    this.#home.transaction(() => {
      this.#home.runs.insert(spec);
      if (forked) this.#home.log.write(spec.turn, forked.lines);
      else if (spec.request.background) turn.queue();
    });
    this.#launch(run, scope, () => (forked ? turn.resume(run.settle) : run.run(turn, past)));
  }

  /** Resumes every run that is stored but not live. `access` is that to MCP servers, by turn, where another process has had it. */
  resumeRuns(access: Readonly<Record<string, Readonly<Record<string, McpAccess>>>> = {}): void {
    for (const turn of this.#home.runs.turns()) {
      if (this.#live.has(turn)) continue;
      resumeRun(this.#home, turn, access[turn], (run, work) => this.#launchResumed(run, work));
    }
  }

  /** A run that was accepted before its process died counts among its tenant's, and is never refused. */
  #launchResumed(run: PreparedRun, work: () => Promise<TurnResult>): void {
    using scope = new DisposableStack();
    const giveBack = this.#home.load.take(Number.POSITIVE_INFINITY);
    if (giveBack) scope.defer(giveBack);
    scope.use(new Permits("run", this.#ownerOf(run.spec))).resize(run.length, true);
    this.#launch(run, scope, work, true);
  }

  /** Starts a run. It takes over everything in `scope`, which is released at its end. */
  #launch(run: PreparedRun, scope: DisposableStack, work: () => Promise<TurnResult>, isResumed = false): void {
    const { spec, abort, log, access, freeze, quota, server, length } = run;
    scope.defer(quota.renew(isResumed));
    if (spec.tenant !== undefined) scope.defer(announceRun({ id: responseId(spec), tenant: spec.tenant }, this.#home));
    // During a hand-over it begins in the next process.
    if (runsAreSuspended()) freeze(true);
    const ended = this.#runToEnd(run, work(), scope.move());
    this.#live.set(spec.turn, { spec, abort, log, access, freeze, ended, server, length });
    this.#home.waitUntil(ended);
    // Beside the run: its end is announced if somebody may want to know of it.
    const { env } = this.#home;
    if (spec.request.background)
      this.#home.waitUntil(learnEndpoints(env, loadConfig(env), spec.tenant).catch(() => {}));
  }

  async #runToEnd(
    { spec, abort, log, observation }: PreparedRun,
    result: Promise<TurnResult>,
    scope: Disposable,
  ): Promise<void> {
    using _freedAtTheEnd = scope;
    try {
      await result;
      observation.answered(200);
    } catch (error) {
      // An unexpected error: the run stays stored, and the alarm resumes it.
      abort.abort(error);
      const name = error instanceof Error ? error.name : typeof error;
      console.error(logLine({ level: "error", run: spec.turn, error: name }));
    } finally {
      this.#live.delete(spec.turn);
      log.stop();
    }
  }

  /** Ends the live runs in memory where they can be resumed. Resolves when all are ended, or after `ms`. */
  async suspend(ms: number): Promise<void> {
    for (const deadline = Date.now() + ms; ; await scheduler.wait(POLL_MS)) {
      const left = [...this.#live.values()].filter(({ freeze }) => !freeze(false));
      if (left.length === 0 || Date.now() >= deadline || processState.isEnding) return;
    }
  }

  /** Ends the live runs in memory wherever they are. Gives their access to MCP servers. */
  freeze(): Record<string, Readonly<Record<string, McpAccess>>> {
    const runs = [...this.#live.values()];
    for (const { freeze } of runs) freeze(true);
    return Object.fromEntries(runs.map(({ spec, access }) => [spec.turn, access]));
  }

  /** Stops all live runs and waits until they are settled. */
  async cancelAll(): Promise<void> {
    await Promise.all([...this.#live.keys()].map((turn) => this.cancel(turn)));
  }

  /** Stops a live run and waits until it is settled. False if it is not live. */
  async cancel(turn: string): Promise<boolean> {
    const run = this.#live.get(turn);
    if (!run) return false;
    run.abort.abort(new ApiError({ status: 499, message: "The response was cancelled.", code: "cancelled" }));
    await run.ended;
    return true;
  }
}

/** The parts of its home that a run needs to begin. */
interface Admission {
  rows: HomeRows;
  runs: RunHost;
  conversation: ConversationTurns;
  housekeeping: Housekeeping;
  waitUntil: (promise: Promise<unknown>) => void;
  /** A response, settled or still running; null if it does not exist. */
  find: (turn: string) => StoredResponse | null;
}

/** The caller that begins a run: its ticket in the queue of the conversation, and its access to MCP servers. */
interface Caller {
  ticket: string;
  waitMs: number;
  access: Readonly<Record<string, McpAccess>>;
}

/**
 * Begins a run, under the lock of its conversation if it is in one, and gives its response in its current state; if the
 * turn already has a response, gives that one.
 */
export async function admitRun(home: Admission, spec: RunSpec, caller: Caller): Promise<Result<StoredResponse>> {
  const known = home.find(spec.turn);
  if (known) return { ok: true, value: known };
  // The response was deleted, and its items are in the conversation.
  if (home.rows.turns.has(spec.turn)) return refused(responseNotFound(responseId(spec)));
  try {
    checkConversation(home, spec);
    return { ok: true, value: await begin(home, spec, caller) };
  } catch (error) {
    // A refused run leaves nothing.
    await home.housekeeping.releaseIfEmpty();
    return refusalOf(error);
  }
}

async function begin(home: Admission, spec: RunSpec, { ticket, waitMs, access }: Caller): Promise<StoredResponse> {
  using scope = new DisposableStack();
  const begunAt = Date.now();
  const lease = spec.inConversation ? scope.use(await home.conversation.acquire(ticket, waitMs)) : undefined;
  if (spec.inConversation) spec.waitedMs = Date.now() - begunAt;
  await home.housekeeping.watchRuns();
  const means = spec.fork && (await forkMeans(spec.model));
  // Nothing awaits from here to the start: of two requests with one turn, one starts it and the other finds it.
  const meanwhile = home.find(spec.turn);
  if (meanwhile) return meanwhile;
  if (spec.inConversation && !lease) throw conversationLocked();
  // Deleted while this turn waited.
  checkConversation(home, spec);
  home.runs.start(spec, scope, access, means);
  if (!isUnstored(spec)) home.rows.noteResponse(spec.turn);
  // An object that was empty until now may have deleted its alarm during the wait.
  await home.housekeeping.watchRuns();
  return runningBody(spec, spec.request.background ? "queued" : "in_progress");
}

/** Throws the 404 of a run whose conversation is not here. */
function checkConversation({ rows }: Admission, { request }: RunSpec): void {
  const id = conversationOf(request);
  if (id !== undefined && !rows.conversations.get(id)) throw conversationNotFound(id);
}
