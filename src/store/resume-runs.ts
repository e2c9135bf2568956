import type { CreateRequest } from "@responses-edge/responses-api/create-request";
import { ApiError } from "@responses-edge/responses-api/errors";
import { parseResponseId } from "@responses-edge/responses-api/ids";
import type { ResponseObject } from "@responses-edge/responses-api/response";
import { accessOf } from "@responses-edge/responses-api/tools";
import { readLoggedTurn } from "@responses-edge/turn/resume";
import type { Turn, TurnResult } from "@responses-edge/turn/turn";
import { type PreparedRun, prepareRun, type RunHome, readRunPast } from "./prepared-run.ts";
import type { NotedRun, RunSpec } from "./run-store.ts";

/**
 * Runs whose process died: each is noted, and does not live. It is resumed where its log ends; one that cannot be resumed ends as
 * failed.
 */

/** A run that has killed its process this often in a row, before it said anything more, is not resumed any more. */
const MAX_ATTEMPTS = 10;

/** Lets a run go, which counts among those of its tenant until it has ended. */
type Launch = (run: PreparedRun, work: () => Promise<TurnResult>) => void;

/** Resumes a run. Counts that as one more attempt. */
export function resumeRun(home: RunHome, turn: string, launch: Launch): void {
  const noted = home.runs.readToResume(turn);
  if (!noted) return;
  const { spec, attempts } = noted;
  const run = spec && readRun(home, spec);
  if (!run) {
    endUnreadable(home, noted, launch);
    return;
  }
  void forgiveProgress(home, run);
  launch(run, async () => {
    // The history is read under the lock: another turn may hold it, and add to the conversation, until then.
    using _lease = run.spec.inConversation ? await home.acquireConversation() : undefined;
    if (attempts > MAX_ATTEMPTS) return await fail(run, gaveUp());
    const { turn, fault } = turnOf(home, run);
    if (fault) return await turn.abandon({ status: "failed", error: fault }, run.settle);
    return await turn.resume(run.settle);
  });
}

/** Forgets how often a run's process has died once the run goes on: then it is not the run that kills it. */
async function forgiveProgress(home: RunHome, { spec: { turn }, log, logged }: PreparedRun): Promise<void> {
  await log.changed();
  try {
    if (home.log.next(turn, logged - 1)) home.runs.forgive(turn);
  } catch {
    // A home that cannot be written to: the deaths go on being counted.
  }
}

/** A run with what its log tells; undefined where its rows cannot be read. */
function readRun(home: RunHome, spec: RunSpec): PreparedRun | undefined {
  try {
    const access = Object.entries(accessOf(spec.request)).filter(([label]) => !spec.withheld?.includes(label));
    return prepareRun(home, spec, readLoggedTurn(home.log.all(spec.turn)), Object.fromEntries(access));
  } catch (error) {
    if (isUnreadable(error)) return undefined;
    throw error;
  }
}

/**
 * The turn of a run to be resumed. It cannot be made when what the run continues was deleted or cannot be read. The turn then has
 * no past, and `fault` is the error that it ends with.
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
 * Ends a run of which not all rows can be read, so that its readers and its home have done with it: as failed, with
 * the log as far as it can be read.
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
    // Each line can be read, and yet they are no log.
    log.delete(noted.turn);
    return prepareRun(home, noted.spec ?? specOfLog(home.address, noted, undefined), undefined, {});
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

/** Tells whether an error is one of reading a row that holds something else than was written. */
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

function gaveUp(): ApiError {
  return new ApiError({
    status: 500,
    message: `The server was restarted ${MAX_ATTEMPTS} times in the middle of the response.`,
    code: "server_restarted",
  });
}
