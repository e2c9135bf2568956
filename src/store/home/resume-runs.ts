import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { ApiError } from "@responses-edge/responses-api/errors";
import { parseResponseId } from "@responses-edge/responses-api/ids";
import type { ResponseObject } from "@responses-edge/responses-api/response";
import { accessOf, type McpAccess } from "@responses-edge/responses-api/tools";
import { untilEntered } from "@responses-edge/turn/contract/measurements";
import { readLoggedTurn } from "@responses-edge/turn/resume";
import type { Turn, TurnResult } from "@responses-edge/turn/turn";
import { NO_KEY } from "../../contract/grants.ts";
import { whenDue } from "./deferred-runs.ts";
import { type PreparedRun, prepareRun, type RunHome, readRunPast } from "./prepared-run.ts";
import type { NotedRun, RunSpec } from "./run-store.ts";

/**
 * Runs whose process died: each is in the table, but not live. It is resumed where its log ends; one that cannot be
 * resumed ends as failed.
 */

/** A run that has killed its process this often in a row, without new output in between, is not resumed any more. */
const MAX_ATTEMPTS = 10;

/** Starts a run, which counts among its tenant's runs until it has ended. */
type Launch = (run: PreparedRun, work: () => Promise<TurnResult>) => void;

/** Resumes a run. Counts one more attempt. `access` is that to MCP servers, if an earlier process has passed it on. */
export function resumeRun(
  home: RunHome,
  turn: string,
  access: Readonly<Record<string, McpAccess>> | undefined,
  launch: Launch,
): void {
  const noted = home.runs.readToResume(turn);
  if (!noted) return;
  const { spec, attempts } = noted;
  const run = spec && readRun(home, spec, access);
  if (!run) {
    endUnreadable(home, noted, launch);
    return;
  }
  void forgiveProgress(home, run);
  launch(run, async () => {
    // The history is read under the lock, because another turn may hold it, and add to the conversation.
    const entering = () => untilEntered(run.observation.measured, () => home.acquireConversation());
    using _lease = run.spec.inConversation ? await entering() : undefined;
    if (attempts > MAX_ATTEMPTS) return await fail(run, gaveUp());
    const { turn, fault } = turnOf(home, run);
    if (fault) return await turn.abandon({ status: "failed", error: fault }, run.settle);
    using _place = turn.state.started ? undefined : await whenDue(run.spec, run.abort.signal);
    return await turn.resume(run.settle);
  });
}

/** Resets the number of attempts once the run makes progress: then it is not the run that kills its process. */
async function forgiveProgress(home: RunHome, { spec: { turn }, log, logged }: PreparedRun): Promise<void> {
  await log.changed();
  try {
    if (home.log.next(turn, logged - 1)) home.runs.forgive(turn);
  } catch {
    // The home cannot be written to. The attempts stay counted.
  }
}

/** A run with the state that its log gives; undefined if its rows are unreadable. */
function readRun(
  home: RunHome,
  spec: RunSpec,
  carried: Readonly<Record<string, McpAccess>> | undefined,
): PreparedRun | undefined {
  try {
    const stored = Object.entries(accessOf(spec.request)).filter(([label]) => !spec.withheld?.includes(label));
    return prepareRun(home, spec, readLoggedTurn(home.log.all(spec.turn)), carried ?? Object.fromEntries(stored));
  } catch (error) {
    if (isUnreadable(error)) return undefined;
    throw error;
  }
}

/**
 * The turn of a run to resume. If the history was deleted or is unreadable, the turn has none, and `fault` is the error
 * that it ends with.
 */
function turnOf(home: RunHome, { spec, makeTurn }: PreparedRun): { turn: Turn; fault?: ApiError } {
  try {
    return { turn: makeTurn(readRunPast(home, spec)) };
  } catch (error) {
    if (!(error instanceof ApiError) && !isUnreadable(error)) throw error;
    return { turn: makeTurn(undefined), fault: error instanceof ApiError ? error : unreadable() };
  }
}

/**
 * Ends a run with unreadable rows as failed, so that its readers and its home are done with it. Its log is kept as far
 * as it is readable.
 */
function endUnreadable(home: RunHome, noted: NotedRun, launch: Launch): void {
  home.transaction(() => home.log.cutUnreadable(noted.turn));
  const run = remainderOf(home, noted);
  launch(run, () => fail(run, unreadable()));
}

function remainderOf(home: RunHome, noted: NotedRun): PreparedRun {
  const { log } = home;
  try {
    const spec = noted.spec ?? specOfLog(home.address, noted, log.next(noted.turn, -1)?.events[0]);
    return prepareRun(home, spec, readLoggedTurn(log.all(noted.turn)), {});
  } catch (error) {
    if (!isUnreadable(error)) throw error;
    // Each line is readable, and yet together they are no log.
    log.delete(noted.turn);
    return prepareRun(home, noted.spec ?? specOfLog(home.address, noted, undefined), undefined, {});
  }
}

/** Ends a run as failed that never got to generate. */
function fail({ makeTurn, settle, log }: PreparedRun, error: ApiError): Promise<TurnResult> {
  const turn = makeTurn(undefined);
  // An empty log begins as every log does.
  if (log.isNew) turn.queue();
  return turn.abandon({ status: "failed", error }, settle);
}

/** The spec of a run whose own rows are unreadable, as far as the first event of its log (`response.created`) shows it. */
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
    tenant: "",
    keyId: NO_KEY,
    cacheSalt: "",
    affinity: { isRooted: true },
    inConversation: false,
  };
}

/** Tells whether an error comes from reading a row whose content has changed since it was written. */
function isUnreadable(error: unknown): boolean {
  return error instanceof SyntaxError || error instanceof TypeError || error instanceof RangeError;
}

function unreadable(): ApiError {
  return new ApiError({
    status: 500,
    message: "The server was restarted in the middle of the response, and its stored data is unreadable.",
    code: "storage_error",
  });
}

function gaveUp(): ApiError {
  return new ApiError({
    status: 500,
    message: `The server was restarted ${MAX_ATTEMPTS} times in the middle of the response.`,
    code: "server_restarted",
  });
}
