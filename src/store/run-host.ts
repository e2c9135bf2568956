import { assembleTurn } from "../assembly/assemble-turn.ts";
import type { Past } from "../assembly/past.ts";
import { loadConfig, type Variables } from "../config.ts";
import { accessOf, type McpAccess } from "../contract/mcp-access.ts";
import type { CreateRequest } from "../protocol/create-request.ts";
import { ApiError, tooManyInProgress } from "../protocol/errors.ts";
import { parseResponseId } from "../protocol/ids.ts";
import type { ResponseObject } from "../protocol/response.ts";
import { readLoggedTurn } from "../turn/logged-turn.ts";
import type { TurnState } from "../turn/state.ts";
import type { Settle, Turn, TurnResult } from "../turn/turn.ts";
import type { Lease } from "./conversation-lock.ts";
import { type EventLogStore, EventLogWriter } from "./event-log.ts";
import { type History, readHistory } from "./history.ts";
import { MAX_CALL_LENGTH } from "./limits.ts";
import type { NotedRun, RunSpec, RunStore } from "./run-store.ts";
import type { ObjectLoad } from "./tenant-load.ts";

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
  /** The earlier items that a run continues. Throws the 400 when they have been deleted. */
  history(spec: RunSpec): { history: History; base: number | null };
  /** Waits for the conversation's lock, as long as it takes. */
  acquireConversation(): Promise<Lease | undefined>;
  /** Runs `body` in a transaction: all that it writes, or nothing. */
  transaction<T>(body: () => T): T;
  /** Runs `body` and settles the turn in one transaction. */
  settle(spec: RunSpec, base: number | null, result: TurnResult, body: () => void): void;
}

/** The past of a run. */
interface RunPast extends Past {
  /** The last position of its conversation that it has seen. */
  base: number | null;
}

interface PreparedRun {
  spec: RunSpec;
  abort: AbortController;
  log: EventLogWriter;
  /** Events that its log had before. */
  logged: number;
  /** The run's turn; without a past one that can only end. Throws as `assembleTurn` does. */
  makeTurn: (past: RunPast | undefined) => Turn;
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
   * fit its history, and the 429s where there is no room. `scope` holds the conversation's lease, for a turn in one: the
   * run takes it over and frees it when it ends, and a run that is refused leaves it to the caller. `access` is to the
   * MCP servers of the request, and kept only as long as this process lives.
   */
  start(spec: RunSpec, scope: DisposableStack, access: Readonly<Record<string, McpAccess>>): void {
    scope.defer(this.#takeRoom());
    const run = this.#makeRun(spec, undefined, access);
    const turn = run.makeTurn(this.#readPast(spec));
    this.#home.transaction(() => {
      this.#home.runs.insert(spec);
      if (spec.request.background) turn.queue();
    });
    this.#launch(run, scope, () => turn.run(turn.start(), run.settle));
  }

  /** Room for a run that was accepted before its process died: it counts, and is never refused. */
  #takeRoomForOrphan(): DisposableStack {
    const scope = new DisposableStack();
    const giveBack = this.#home.load.take(Number.POSITIVE_INFINITY);
    if (giveBack) scope.defer(giveBack);
    return scope;
  }

  /** Takes up every run that is noted and does not live. */
  takeUpOrphans(): void {
    for (const turn of this.#home.runs.turns()) {
      if (this.#live.has(turn)) continue;
      const noted = this.#home.runs.takeUp(turn);
      if (noted) this.#takeUp(noted);
    }
  }

  #takeUp(noted: NotedRun): void {
    const { spec, attempts } = noted;
    const run = spec && this.#orphanOf(spec);
    if (!run) {
      this.#endUnreadable(noted);
      return;
    }
    void this.#forgiveProgress(run);
    using scope = this.#takeRoomForOrphan();
    this.#launch(run, scope, async () => {
      // The history is read under the lock: another turn may hold it, and add to the conversation, until then.
      using _lease = run.spec.inConversation ? await this.#home.acquireConversation() : undefined;
      if (attempts > MAX_ATTEMPTS) return await fail(run, gaveUp());
      const { turn, fault } = this.#turnOf(run);
      if (fault) return await turn.abandon({ status: "failed", error: fault }, run.settle);
      return await turn.resume(run.settle);
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
    using scope = this.#takeRoomForOrphan();
    this.#launch(run, scope, () => fail(run, unreadable()));
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

  #readPast(spec: RunSpec): RunPast {
    const { history, base } = this.#home.history(spec);
    return { ...readHistory(history), input: spec.input, base };
  }

  /**
   * The turn of an orphan: a run whose process died. It cannot be made when what the run continues was deleted or
   * cannot be read. The turn then has no past, and `fault` is the error that it ends with.
   */
  #turnOf({ spec, makeTurn }: PreparedRun): { turn: Turn; fault?: ApiError } {
    try {
      return { turn: makeTurn(this.#readPast(spec)) };
    } catch (error) {
      if (!(error instanceof ApiError) && !isUnreadable(error)) throw error;
      return { turn: makeTurn(undefined), fault: error instanceof ApiError ? error : unreadable() };
    }
  }

  #makeRun(spec: RunSpec, logged: TurnState | undefined, access: Readonly<Record<string, McpAccess>>): PreparedRun {
    const config = loadConfig(this.#home.env);
    const abort = new AbortController();
    const log = new EventLogWriter(this.#home.log, spec.turn, logged?.sequence ?? 0);
    // The spec has the request and the input, which are kept beside what the turn puts out.
    const room = Math.max(0, MAX_CALL_LENGTH - JSON.stringify(spec).length);
    let base: number | null = null;
    const makeTurn = (past: RunPast | undefined): Turn => {
      base = past?.base ?? null;
      const waitUntil = (promise: Promise<unknown>) => this.#home.waitUntil(promise);
      return assembleTurn(spec, past, { config, access, room, signal: abort.signal, waitUntil, sink: log, logged });
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

  /** Lets a run go. What `scope` holds is the run's from now on, and is freed when it has ended. */
  #launch(run: PreparedRun, scope: DisposableStack, work: () => Promise<TurnResult>): void {
    const { spec, abort, log } = run;
    const ended = this.#runToEnd(run, work(), scope.move());
    this.#live.set(spec.turn, { spec, abort, log, ended });
    this.#home.waitUntil(ended);
  }

  async #runToEnd({ spec, abort, log }: PreparedRun, result: Promise<TurnResult>, scope: Disposable): Promise<void> {
    using _freedAtTheEnd = scope;
    try {
      await result;
    } catch (error) {
      // Nobody foresaw it: the run stays noted, and the alarm takes it up again.
      abort.abort(error);
      console.error(JSON.stringify({ level: "error", run: spec.turn, error: errorName(error) }));
    } finally {
      this.#live.delete(spec.turn);
      log.stop();
    }
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
  const turn = makeTurn(undefined);
  // A log that nothing is left of begins as every log does.
  if (log.isNew) turn.queue();
  return turn.abandon({ status: "failed", error }, settle);
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
