import { invalidRequest, responseInProgress, responseNotFound } from "@responses-edge/responses-api/errors";
import { responseId } from "@responses-edge/responses-api/ids";
import { answeredId, type Item, type OutputItem } from "@responses-edge/responses-api/items/registry";
import { type ForkMeans, forkedLines, forkPointOf } from "@responses-edge/turn/fork";
import { impliedEvents } from "@responses-edge/turn/implied-events";
import { responseBody } from "@responses-edge/turn/response";
import { readLoggedTurn } from "@responses-edge/turn/resume";
import type { TurnState } from "@responses-edge/turn/state";
import type { EventLogStore } from "./event-log.ts";
import type { HomeRows } from "./home-rows.ts";
import { type Fork, type RunSpec, runningBody } from "./run-store.ts";
import type { SettledTurn } from "./turn-store.ts";

/** Branches of ended turns: runs whose log begins with that of another turn (`packages/turn/src/fork.ts`). */

/** The beginning of a branch: the lines of its log, and the state that they give. */
export interface ForkedBeginning {
  lines: string[];
  state: TurnState;
}

/**
 * Gives a branch the input of its turn, and what it keeps of its output; undefined if that is nothing. Throws the 404 of a response that
 * does not exist, the 409 of one in progress, and the 400s of one that is not stored, and of a point from which no branch can
 * go on.
 */
export function forkRun(rows: HomeRows, spec: RunSpec, fork: Fork, means: ForkMeans): ForkedBeginning | undefined {
  const { turn, at, output } = fork;
  const source = rows.turns.hasResponse(turn) ? rows.turns.settled(turn) : undefined;
  const id = responseId({ home: spec.home, turn });
  if (!source?.response) throw rows.runs.has(turn) ? responseInProgress() : responseNotFound(id);
  if (rows.isUnstored(turn)) {
    throw invalidRequest("response_id", `'${id}' was created with 'store: false': no branch can begin with it.`);
  }
  // Ids are random and of one length: no text has them by chance.
  const renamed = (json: string) => json.replaceAll(`${spec.home}${turn}`, `${spec.home}${spec.turn}`);
  const input = JSON.parse(source.input) as Item[];
  const items = JSON.parse(source.output) as OutputItem[];
  const inInput = input.flatMap((item) => [item.id, answeredId(item)]).filter((name) => name !== undefined);
  const point = forkPointOf(at, output, { output: items, input: new Set(inInput) });
  spec.base = source.base;
  const changed = point.kind === "start" && output !== undefined ? withOutput(input, at, output) : input;
  spec.input = JSON.parse(renamed(JSON.stringify(changed))) as Item[];
  const called = point.kind === "call" ? items[point.index]?.id : undefined;
  if (called !== undefined && output !== undefined) spec.givenOutput = { item: renamed(called), output };
  const life = (["queued", "in_progress"] as const).flatMap((status) => lifeOf(spec, status));
  const turnSource = {
    events: eventsOf(rows.log, source),
    output: items,
    replays: JSON.parse(source.messages ?? "[]"),
  };
  const lines = forkedLines(turnSource, point, means, life).map(renamed);
  if (lines.length === 0) return undefined;
  return { lines, state: readLoggedTurn(lines) };
}

/** The events that begin a run, as a turn sends them. */
function lifeOf(spec: RunSpec, status: "queued" | "in_progress"): (readonly [type: string, responseJson: string])[] {
  const isBackground = spec.request.background === true;
  if (status === "queued" && !isBackground) return [];
  const response = responseBody(runningBody(spec, status));
  const begins = status === "queued" || !isBackground;
  return [...(begins ? [["response.created", response] as const] : []), [`response.${status}`, response]];
}

/** The events of an ended turn: those of its log, or the ones that its items imply. */
function* eventsOf(log: EventLogStore, { turn, response, output }: SettledTurn): Generator<string> {
  let block = log.next(turn, -1);
  if (!block) for (const { json } of impliedEvents({ head: response ?? "{}", output })) yield json;
  for (; block; block = log.next(turn, block.to)) yield* block.events;
}

/** An input in which the client's answer to a call has another output. Throws the 400 of an item that is no such answer. */
function withOutput(input: readonly Item[], at: Fork["at"], output: string): Item[] {
  let isChanged = false;
  const changed = input.map((item) => {
    if (answeredId(item) === undefined || (item.id !== at && answeredId(item) !== at)) return item;
    if (item.type !== "function_call_output" && item.type !== "custom_tool_call_output") return item;
    isChanged = true;
    return { ...item, output };
  });
  if (isChanged) return changed;
  throw invalidRequest("at", `'${at}' is no output of a function or a custom tool.`);
}
