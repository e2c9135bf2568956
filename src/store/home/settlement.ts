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

/** A foreground turn to store; with the token of its lease if it is in the conversation. */
export interface TurnToSettle extends Omit<SettledTurn, "base" | "position" | "log"> {
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
export async function settle(home: Settling, { lease, ...settled }: TurnToSettle): Promise<Result<number>> {
  const { tenant, rows, conversation, housekeeping } = home;
  const slice = new LongWork(tenant).spend((settled.input.length + settled.output.length) / LENGTH_PER_UNIT);
  if (slice) await slice;
  // The caller has lost the answer of its first call. It may hold the conversation again, after a hand-over.
  if (lease && rows.turns.has(settled.turn)) {
    conversation.release(lease.token);
    return { ok: true, value: 0 };
  }
  // Nothing awaits from here on: the turn and its alarm are one write.
  await housekeeping.open();
  const entered = lease ? conversation.entered(lease.token) : null;
  if (entered === undefined) return refused(conversationLocked());
  const taken = rows.transaction(() => {
    const position = lease?.joins ? rows.turns.lastPosition() + 1 : null;
    return rows.turns.insert({ ...settled, base: entered?.base ?? null, position }, true);
  });
  if (taken === 0) return { ok: true, value: 0 };
  if (settled.response !== null) rows.noteResponse(settled.turn);
  rows.noteStored(settled.owner);
  const retained = housekeeping.retain(settled.createdAt);
  if (lease) conversation.release(lease.token);
  await retained;
  return { ok: true, value: taken };
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
      timing: closed.keptTiming,
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
