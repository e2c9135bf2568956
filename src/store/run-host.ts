import { loadConfig, type Variables } from "../config.ts";
import type { Replay } from "../contract/engine.ts";
import { createEngine } from "../engine/create-engine.ts";
import { Upstream } from "../engine/upstream.ts";
import type { CreateRequest } from "../protocol/create-request.ts";
import { ApiError, tooManyInProgress } from "../protocol/errors.ts";
import { parseResponseId } from "../protocol/ids.ts";
import type { Item } from "../protocol/items.ts";
import type { ResponseObject } from "../protocol/response.ts";
import { toolsetOf } from "../tools/create-toolset.ts";
import { HOSTED_TOOLS } from "../tools/hosted-tools.ts";
import { accessOf, type McpAccess } from "../tools/mcp/access.ts";
import { readLoggedTurn } from "../turn/logged-turn.ts";
import { checkPromptMedia } from "../turn/media.ts";
import type { TurnState } from "../turn/state.ts";
import { type Settle, Turn, type TurnOptions, type TurnResult } from "../turn/turn.ts";
import type { Lease } from "./conversation-lock.ts";
import { type EventLogStore, EventLogWriter } from "./event-log.ts";
import { MAX_CALL_LENGTH } from "./limits.ts";
import type { NotedRun, RunSpec, RunStore } from "./run-store.ts";
import type { ObjectLoad } from "./tenant-load.ts";
import { type History, readHistory } from "./turn-store.ts";

/**
 * Runs that outlive every client: they live in the home, their events go to its log, and their creator is only the
 * first of their readers. A run whose process died is found again (`takeUpOrphans`) and goes on where its log ends.
 */

/** What a run needs from its home. */
export interface RunHome {
  env: Variables;
  /** Keeps an object alive and its errors out of nowhere. */
  waitUntil(promise: Promise<unknown>): void;
  runs: RunStore;
  log: EventLogStore;
  /** Counts the runs of this home among those of its tenant. */
  load: ObjectLoad;
  /** The key of this home, which ids carry. */
  address: string;
  /** The earlier items that a run continues. Throws the 400 when they are gone. */
  history(spec: RunSpec): { history: History; base: number | null };
  /** Runs `body` in a transaction: all that it writes, or nothing. */
  transaction<T>(body: () => T): T;
  /** Runs `body` and settles the turn in one transaction. */
  settle(spec: RunSpec, base: number | null, result: TurnResult, body: () => void): void;
}

/** What a run's prompt is made of, and the last position of the conversation that it saw. */
interface Past {
  history: Item[];
  replays: Replay[];
  base: number | null;
  input: Item[];
  /** Why nothing of it is there any more, or why it does not fit: all that the run can do is end. */
  gone?: ApiError;
}

interface PreparedRun {
  spec: RunSpec;
  abort: AbortController;
  log: EventLogWriter;
  /** Events that its log had before. */
  logged: number;
  makeTurn: (past: Past) => Turn;
  settle: Settle;
}

interface LiveRun {
  spec: RunSpec;
  abort: AbortController;
  log: EventLogWriter;
  ended: Promise<void>;
}

/** A run that has killed its process this often in a row, before it said anything more, is not taken up any more. */
const MAX_ATTEMPTS = 10;

/** Runs that may live in one object at the same time: its 128 MB are shared by all of them. */
const MAX_LIVE_RUNS = 32;

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

  /** Room for one more run, and what gives it back. Throws the 429s of an object or a tenant that has all it may have. */
  #takeRoom(): () => void {
    if (this.#live.size >= MAX_LIVE_RUNS) {
      throw tooManyInProgress(`This conversation already has ${MAX_LIVE_RUNS} background responses in progress.`);
    }
    const { maxBackgroundRunsPerTenant: limit } = loadConfig(this.#home.env);
    const giveBack = this.#home.load.take(limit);
    if (!giveBack) throw tooManyInProgress(`You already have ${limit} background responses in progress.`);
    return giveBack;
  }

  /**
   * Begins a run: notes it, so that no crash can lose it, and lets it go. Throws the 400s of an input that does not
   * fit its past, and the 429s where there is no room. `lease` is the conversation's, for a turn in one; `access` is to the MCP servers of the request, and
   * kept only as long as this process lives.
   */
  start(spec: RunSpec, lease: Lease | undefined, access: Readonly<Record<string, McpAccess>>): void {
    const giveBack = this.#takeRoom();
    try {
      const run = this.#makeRun(spec, undefined, access);
      const turn = run.makeTurn(this.#readPast(spec));
      this.#home.transaction(() => {
        this.#home.runs.insert(spec);
        if (spec.request.background) turn.queue();
      });
      this.#launch(run, lease, giveBack, () => turn.run(turn.start(), run.settle));
    } catch (error) {
      giveBack();
      throw error;
    }
  }

  /** Room for a run that was accepted before its process died: it counts, and is never refused. */
  #takeRoomForOrphan(): () => void {
    return this.#home.load.take(Number.POSITIVE_INFINITY) ?? (() => {});
  }

  /** Takes up every run that is noted and does not live. `acquire` gives the conversation's lock, waiting as needed. */
  takeUpOrphans(acquire: () => Promise<Lease | undefined>): void {
    for (const turn of this.#home.runs.turns()) {
      if (this.#live.has(turn)) continue;
      const noted = this.#home.runs.takeUp(turn);
      if (noted) this.#takeUp(noted, acquire);
    }
  }

  #takeUp(noted: NotedRun, acquire: () => Promise<Lease | undefined>): void {
    const { spec, attempts } = noted;
    const run = spec && this.#orphanOf(spec);
    if (!run) {
      this.#endUnreadable(noted);
      return;
    }
    void this.#forgiveProgress(run);
    this.#launch(run, undefined, this.#takeRoomForOrphan(), async () => {
      // The past is read under the lock: another turn may hold it, and add to the conversation, until then.
      const lease = run.spec.inConversation ? await acquire() : undefined;
      try {
        if (attempts > MAX_ATTEMPTS) return await fail(run, gaveUp());
        const { turn, gone } = this.#turnOf(run);
        if (gone) return await turn.abandon({ status: "failed", error: gone }, run.settle);
        return await turn.resume(run.settle);
      } finally {
        lease?.release();
      }
    });
  }

  /** Forgets how often a run's process has died once the run goes on: then it is not the run that kills it. */
  async #forgiveProgress({ spec: { turn }, log, logged }: PreparedRun): Promise<void> {
    await log.changed();
    try {
      if (this.#home.log.next(turn, logged - 1)) this.#home.runs.forgive(turn);
    } catch {
      // A home that cannot be written to: the deaths go on being counted.
    }
  }

  /** An orphan with what its log tells; undefined where its rows cannot be read. */
  #orphanOf(spec: RunSpec): PreparedRun | undefined {
    try {
      const access = Object.entries(accessOf(spec.request)).filter(([label]) => !spec.withheld?.includes(label));
      return this.#makeRun(spec, readLoggedTurn(this.#home.log.all(spec.turn)), Object.fromEntries(access));
    } catch (error) {
      if (isUnreadable(error)) return undefined;
      throw error;
    }
  }

  /**
   * Ends a run of which not all rows can be read, so that its readers and its home have done with it: as failed, with
   * the log as far as it can be read.
   */
  #endUnreadable(noted: NotedRun): void {
    const { log } = this.#home;
    this.#home.transaction(() => log.cutUnreadable(noted.turn));
    const run = this.#remainderOf(noted);
    this.#launch(run, undefined, this.#takeRoomForOrphan(), () => fail(run, unreadable()));
  }

  #remainderOf(noted: NotedRun): PreparedRun {
    const { log } = this.#home;
    try {
      const spec = noted.spec ?? specOfLog(this.#home.address, noted, log.next(noted.turn, -1)?.events[0]);
      return this.#makeRun(spec, readLoggedTurn(log.all(noted.turn)), {});
    } catch (error) {
      if (!isUnreadable(error)) throw error;
      // Each line can be read, and yet they are no log.
      log.delete(noted.turn);
      return this.#makeRun(noted.spec ?? specOfLog(this.#home.address, noted, undefined), undefined, {});
    }
  }

  #readPast(spec: RunSpec): Past {
    const { history, base } = this.#home.history(spec);
    const past = { ...readHistory(history), base, input: spec.input };
    checkPromptMedia(past, spec.request, loadConfig(this.#home.env).isMediaListed);
    return past;
  }

  /** The turn of an orphan, with the 400 that it ends with when what it was made of is not there any more. */
  #turnOf({ spec, makeTurn }: PreparedRun): { turn: Turn; gone?: ApiError } {
    try {
      return { turn: makeTurn(this.#readPast(spec)) };
    } catch (error) {
      if (!(error instanceof ApiError) && !isUnreadable(error)) throw error;
      const gone = error instanceof ApiError ? error : unreadable();
      return { turn: makeTurn(pastOf(gone)), gone };
    }
  }

  #makeRun(spec: RunSpec, logged: TurnState | undefined, access: Readonly<Record<string, McpAccess>>): PreparedRun {
    const config = loadConfig(this.#home.env);
    const abort = new AbortController();
    const log = new EventLogWriter(this.#home.log, spec.turn, logged?.sequence ?? 0);
    // The spec has the request and the input, which are kept beside what the turn puts out.
    const room = Math.max(0, MAX_CALL_LENGTH - JSON.stringify(spec).length);
    let base: number | null = null;
    const makeTurn = (past: Past): Turn => {
      base = past.base;
      const upstream = new Upstream(config);
      const options: TurnOptions = {
        engine: createEngine(spec.model.engine, config, upstream, HOSTED_TOOLS),
        request: spec.request,
        address: spec,
        model: spec.model,
        history: past.history,
        replays: past.replays,
        input: past.input,
        hostedTools: HOSTED_TOOLS,
        tools: past.gone ? undefined : this.#toolsOf(spec, past, logged, access),
        cacheSalt: spec.cacheSalt,
        createdAt: spec.createdAt,
        signal: abort.signal,
        clock: Date.now,
        maxRetries: config.maxRetries,
        room,
        recoveryTimeMs: spec.request.background ? config.recoveryTimeMs : config.foregroundRecoveryTimeMs,
        isServerGone: (signal) => upstream.isGone(signal),
        waitUntil: (promise) => this.#home.waitUntil(promise),
        logged,
      };
      return new Turn(options, log);
    };
    const settle: Settle = async (result, terminate) => {
      terminate();
      try {
        // What is pending, the terminal event and the turn: all or nothing.
        this.#home.settle(spec, base, result, () => log.write());
      } catch (error) {
        // Left as an orphan, for the alarm to find.
        log.stop();
        throw error;
      }
    };
    return { spec, abort, log, logged: logged?.sequence ?? 0, makeTurn, settle };
  }

  #toolsOf(
    spec: RunSpec,
    past: Past,
    logged: TurnState | undefined,
    access: Readonly<Record<string, McpAccess>>,
  ): TurnOptions["tools"] {
    return toolsetOf(spec.request, access, {
      address: spec,
      config: loadConfig(this.#home.env),
      tenant: spec.tenant ?? "",
      history: past.history,
      input: past.input,
      // What tools remember of this turn, too.
      replays: [...past.replays, ...(logged?.replays ?? [])],
      output: logged?.output.filter((_, index) => !logged.openLists.includes(index)) ?? [],
    });
  }

  /** `giveBack` gives the run's room back when it has ended. */
  #launch(run: PreparedRun, lease: Lease | undefined, giveBack: () => void, work: () => Promise<TurnResult>): void {
    const { spec, abort, log } = run;
    const ended = work()
      .then(
        () => {},
        // Nobody foresaw it: the run stays noted, and the alarm takes it up again.
        (error: unknown) => {
          abort.abort(error);
          console.error(JSON.stringify({ level: "error", run: spec.turn, error: errorName(error) }));
        },
      )
      .finally(() => {
        this.#live.delete(spec.turn);
        log.stop();
        lease?.release();
        giveBack();
      });
    this.#live.set(spec.turn, { spec, abort, log, ended });
    this.#home.waitUntil(ended);
  }

  /** Stops a live run and waits until it is settled. False when it does not live. */
  async cancel(turn: string): Promise<boolean> {
    const run = this.#live.get(turn);
    if (!run) return false;
    run.abort.abort(cancelled());
    await run.ended;
    return true;
  }
}

/** Ends a run as failed that never got to generate. */
function fail({ makeTurn, settle, log }: PreparedRun, error: ApiError): Promise<TurnResult> {
  const turn = makeTurn(pastOf(error));
  // A log that nothing is left of begins as every log does.
  if (log.isNew) turn.queue();
  return turn.abandon({ status: "failed", error }, settle);
}

function pastOf(gone: ApiError): Past {
  return { history: [], replays: [], base: null, input: [], gone };
}

/** A run whose own rows cannot be read, as far as the first event of its log (`response.created`) tells what it was. */
function specOfLog(home: string, { turn, createdAt }: NotedRun, first: string | undefined): RunSpec {
  const { response } = (first === undefined ? {} : JSON.parse(first)) as { response?: ResponseObject };
  const { model = "unknown", previous_response_id: previous, ...echo } = response ?? { background: true };
  return {
    home,
    turn,
    parent: previous == null ? null : (parseResponseId(previous)?.turn ?? null),
    createdAt,
    request: { ...echo, model, previous_response_id: previous } as CreateRequest,
    input: [],
    model: { name: model, upstream: model, engine: "chat" },
    cacheSalt: "",
    inConversation: false,
  };
}

/** What is thrown by reading a row that holds something else than was written. */
function isUnreadable(error: unknown): boolean {
  return error instanceof SyntaxError || error instanceof TypeError || error instanceof RangeError;
}

function unreadable(): ApiError {
  return new ApiError({
    status: 500,
    message: "The server was restarted in the middle of the response, and what was stored of it cannot be read.",
    code: "storage_error",
  });
}

function errorName(error: unknown): string {
  return error instanceof Error ? error.name : typeof error;
}

function cancelled(): ApiError {
  return new ApiError({ status: 499, message: "The response was cancelled.", code: "cancelled" });
}

function gaveUp(): ApiError {
  return new ApiError({
    status: 500,
    message: `The server was restarted ${MAX_ATTEMPTS} times in the middle of the response.`,
    code: "server_restarted",
  });
}
