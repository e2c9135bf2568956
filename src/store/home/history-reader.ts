import { ApiError, previousResponseNotFound, type Uncontinuable } from "@responses-edge/responses-api/errors";
import { MAX_HISTORY_LENGTH, MAX_READ_LENGTH } from "../objects/rpc.ts";
import { concatArrays, EMPTY_HISTORY, type History, historyTooLong, type KnownHistory } from "./history.ts";
import type { HomeRows } from "./home-rows.ts";
import type { RunSpec } from "./run-store.ts";

/** Reads the history that a turn continues from its home. */

/** The data that a new turn needs of its past: a history, and the items that it refers to, as JSON texts by id. */
export type Snapshot =
  | { found: true; history: History; references: Record<string, string> }
  | { found: false; missing: "previous"; why?: Uncontinuable }
  | { found: false; missing: "item"; id: string }
  | { found: false; missing: "room" };

/** An item that is referred to. */
export interface ItemKey {
  id: string;
  turn: string;
  /** A missing item is left out. */
  optional?: true;
}

/** The answer of a home that stores nothing. */
export function emptySnapshot(previous: string | null, references: readonly ItemKey[]): Snapshot {
  if (previous !== null) return { found: false, missing: "previous" };
  return snapshotOf(EMPTY_HISTORY, references, {});
}

function snapshotOf(history: History, references: readonly ItemKey[], found: Record<string, string>): Snapshot {
  const missing = references.find(({ id, optional }) => !optional && !Object.hasOwn(found, id));
  return missing ? { found: false, missing: "item", id: missing.id } : { found: true, history, references: found };
}

/**
 * The history of the response `previous`, if it is given, and the items of `references`. A response with a deleted
 * ancestor has no history any more.
 */
export function snapshot(rows: HomeRows, previous: string | null, references: readonly ItemKey[]): Snapshot {
  let history: History | undefined = EMPTY_HISTORY;
  try {
    if (previous !== null) history = responseHistory(rows, previous);
  } catch (error) {
    // A call to an object does not preserve the class of an error.
    if (error instanceof ApiError) return { found: false, missing: "room" };
    throw error;
  }
  if (history === undefined) {
    const why = previous === null ? undefined : whyUncontinuable(rows, previous);
    return { found: false, missing: "previous", ...(why && { why }) };
  }
  const found = itemsOf(rows, references, MAX_HISTORY_LENGTH - history.items.length - history.messages.length);
  if (found === undefined) return { found: false, missing: "room" };
  return snapshotOf(history, references, found);
}

/** The history of the conversation up to a position. Throws the 400 when it is too long. */
export function conversationHistory(rows: HomeRows, upTo: number): KnownHistory {
  const history = rows.items.history(upTo);
  checked(history.texts);
  return history;
}

/**
 * The history that a run continues, and the last position of the conversation that it has then seen (null outside a
 * conversation). Throws the 400s of a history that is gone or too long.
 */
export function historyOfRun(rows: HomeRows, spec: RunSpec): { history: History; base: number | null } {
  if (spec.inConversation) {
    const base = rows.turns.lastPosition();
    return { history: conversationHistory(rows, base).texts, base };
  }
  if (spec.base != null) return { history: conversationHistory(rows, spec.base).texts, base: spec.base };
  if (spec.parent === null) return { history: EMPTY_HISTORY, base: null };
  const history = responseHistory(rows, spec.parent, spec.agent !== undefined);
  if (history === undefined) {
    throw previousResponseNotFound(spec.request.previous_response_id ?? "", whyUncontinuable(rows, spec.parent));
  }
  return { history, base: null };
}

/** Why a response without a history exists all the same; undefined if it does not. */
function whyUncontinuable(rows: HomeRows, previous: string): Uncontinuable | undefined {
  if (rows.runs.has(previous)) return "in_progress";
  if (rows.isUnstored(previous)) return "not_stored";
  return rows.turns.hasResponse(previous) ? "incomplete_chain" : undefined;
}

/**
 * The history of a response. If it began in a conversation, the earlier items of that come first. Throws the 400 of one
 * that is too long. `ofTask`: of an agent's task, which may not be stored, for its next one.
 */
function responseHistory(rows: HomeRows, previous: string, ofTask = false): History | undefined {
  const found = rows.turns.history(previous);
  if (found === undefined || (!ofTask && rows.isUnstored(previous))) return undefined;
  const { base, history } = found;
  if (base === null) return checked(history);
  const before = rows.items.history(base).texts;
  const items = concatArrays([before.items, history.items]);
  return checked({ items, messages: concatArrays([before.messages, history.messages]) });
}

/** Items as JSON texts by id, without missing ones. Undefined if they are longer than `maxLength` together. */
function itemsOf(
  rows: HomeRows,
  references: readonly ItemKey[],
  maxLength: number,
): Record<string, string> | undefined {
  const found: Record<string, string> = {};
  let length = 0;
  let read = 0;
  for (const [turn, keys] of Map.groupBy(references, (key) => key.turn)) {
    const items = rows.items.ofTurn(turn, new Set(keys.map(({ id }) => id)));
    read += items.read;
    for (const [id, item] of items.found) {
      found[id] = item;
      length += item.length;
    }
    if (length > maxLength || read > MAX_READ_LENGTH) return undefined;
  }
  return found;
}

function checked(history: History): History {
  if (history.items.length + history.messages.length > MAX_HISTORY_LENGTH) throw historyTooLong();
  return history;
}
