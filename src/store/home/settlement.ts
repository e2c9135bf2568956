import { LongWork } from "@responses-edge/bounded-io/long-work";
import { conversationLocked } from "@responses-edge/responses-api/errors";
import { responseId } from "@responses-edge/responses-api/ids";
import { isKept } from "@responses-edge/responses-api/items/registry";
import { unixSeconds } from "@responses-edge/responses-api/response";
import type { Outcome } from "@responses-edge/turn/decide";
import type { TurnResult } from "@responses-edge/turn/turn";
import { loadConfig } from "../../config/index.ts";
import type { Env } from "../../env.ts";
import type { RunUse } from "../limits/run-quota.ts";
import type { Cell } from "../objects/row-pieces.ts";
import { type Result, refused } from "../objects/rpc.ts";
import { isAnnounced, noticeOf } from "../tenant/webhooks/announcing.ts";
import type { ConversationTurns } from "./conversation-turns.ts";
import type { HomeRows } from "./home-rows.ts";
import type { Housekeeping } from "./housekeeping.ts";
import { isUnstored, type RunSpec } from "./run-store.ts";
import type { SettledTurn } from "./turn-store.ts";

/** Stores a turn: in one transaction, in one row if it fits. */

/** A foreground turn to store. */
export type ForegroundTurn = Omit<SettledTurn, "base" | "position" | "log">;

/** A foreground turn to store; with the token of its lease if it is in the conversation. */
export interface TurnToSettle extends ForegroundTurn {
  /** `joins`: its items become part of the conversation. */
  lease: { token: string; joins: boolean } | null;
}

/** A run to settle. */
export interface RunToSettle {
  spec: RunSpec;
  /** The last position of the conversation that it saw. */
  base: number | null;
  /** Its use, if it is counted. */
  used: RunUse | undefined;
  /** Ends the log, and gives the end that the turn's row stores. */
  endLog: () => Cell | null;
}

/** UTF-16 units that are compressed and written in a microsecond. */
const LENGTH_PER_UNIT = 200;

/** The parts of its home that settling a turn needs. */
interface Settling {
  tenant: string;
  env: Env;
  rows: HomeRows;
  conversation: ConversationTurns;
  housekeeping: Housekeeping;
  /** Keeps the object alive until a promise has settled. */
  waitUntil: (promise: Promise<unknown>) => void;
}

/**
 * Stores a foreground turn, and releases its conversation. A repeated call is harmless. Gives the rows that it took, or
 * the 409 if the turn no longer holds its conversation.
 */
export async function settle(home: Settling, { lease, ...turn }: TurnToSettle): Promise<Result<number>> {
  if (lease) return settleEntered(home, turn, lease);
  const [taken = 0] = await settleTogether(home, [turn]);
  return { ok: true, value: taken };
}

/**
 * Stores foreground turns that are in no conversation, in one transaction. A repeated call is harmless. Gives the rows that each
 * took: none if it was stored before.
 */
export async function settleTogether(home: Settling, turns: readonly ForegroundTurn[]): Promise<number[]> {
  const { rows, housekeeping } = home;
  await untilInTurn(home, turns);
  // Nothing awaits from here on: the turns and their alarm are one write.
  await housekeeping.open();
  const taken = rows.transaction(() =>
    turns.map((turn) => rows.turns.insert({ ...turn, base: null, position: null }, true)),
  );
  const kept = turns.filter((_, index) => taken[index] !== 0);
  for (const turn of kept) note(rows, turn);
  if (kept.length > 0) await housekeeping.retain(Math.min(...kept.map(({ createdAt }) => createdAt)));
  return taken;
}

async function settleEntered(
  home: Settling,
  turn: ForegroundTurn,
  lease: NonNullable<TurnToSettle["lease"]>,
): Promise<Result<number>> {
  const { rows, conversation, housekeeping } = home;
  await untilInTurn(home, [turn]);
  // The caller has lost the answer of its first call. It may hold the conversation again, after a hand-over.
  if (rows.turns.has(turn.turn)) {
    conversation.release(lease.token);
    return { ok: true, value: 0 };
  }
  // Nothing awaits from here on: the turn and its alarm are one write.
  await housekeeping.open();
  const entered = conversation.entered(lease.token);
  if (entered === undefined) return refused(conversationLocked());
  const taken = rows.transaction(() => {
    const position = lease.joins ? rows.turns.lastPosition() + 1 : null;
    return rows.turns.insert({ ...turn, base: entered.base, position }, true);
  });
  note(rows, turn);
  const retained = housekeeping.retain(turn.createdAt);
  conversation.release(lease.token);
  await retained;
  return { ok: true, value: taken };
}

/** Resolves when the tenant may use the thread for storing turns. */
async function untilInTurn({ tenant }: Settling, turns: readonly ForegroundTurn[]): Promise<void> {
  const length = turns.reduce((sum, { input, output }) => sum + input.length + output.length, 0);
  await new LongWork(tenant).spend(length / LENGTH_PER_UNIT);
}

/** Has a stored turn reported to other objects. */
function note(rows: HomeRows, { turn, response, owner }: ForegroundTurn): void {
  if (response !== null) rows.noteResponse(turn);
  rows.noteStored(owner);
}

/**
 * Stores a run's turn, in one transaction with the end of its log and its messages to other objects. Gives the rows that
 * the turn took.
 */
export function settleRun(
  home: Settling,
  { spec, base, used, endLog }: RunToSettle,
  { outcome, closed }: TurnResult,
): number {
  const { env, rows, housekeeping, waitUntil } = home;
  const joins = spec.inConversation && (outcome.status === "completed" || outcome.status === "incomplete");
  const hasWebhook = spec.request.background === true && isAnnounced(loadConfig(env), spec.tenant);
  const input = JSON.stringify(spec.input.filter(isKept));
  const taken = rows.transaction(() => {
    const log = endLog();
    // Removed before the turn is written, which reuses the space of the run's rows.
    rows.runs.delete(spec.turn);
    const inserted = rows.turns.insert({
      turn: spec.turn,
      parent: spec.parent,
      createdAt: spec.createdAt,
      base,
      position: joins ? rows.turns.lastPosition() + 1 : null,
      input,
      output: closed.kept,
      messages: closed.messages,
      response: closed.head,
      timing: closed.keptTiming(),
      log,
      owner: spec.owner,
    });
    if (used) rows.outbox.add("usage", used.reservation.holder, used);
    if (hasWebhook) {
      const notice = noticeOf(responseId(spec), `response.${outcome.status}`, unixSeconds());
      rows.outbox.add("webhook", notice.id, notice);
    }
    if (isUnstored(spec)) rows.outbox.add("removal", spec.turn, {}, Date.now() + loadConfig(env).unstoredRetentionMs);
    return inserted;
  });
  if (!isUnstored(spec)) rows.noteResponse(spec.turn);
  rows.noteStored(spec.owner);
  waitUntil(housekeeping.retain(spec.createdAt));
  return taken;
}

declare module "../tenant/webhooks/announcing.ts" {
  interface WebhookSenders {
    HOME: `response.${Outcome["status"]}`;
  }
}
