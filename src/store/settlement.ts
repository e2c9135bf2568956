import type { Config } from "../config/index.ts";
import { conversationLocked } from "../protocol/errors.ts";
import { keptInput } from "../turn/prompt.ts";
import type { TurnResult } from "../turn/turn.ts";
import type { ConversationTurns } from "./conversation-turns.ts";
import type { HomeRows } from "./home-rows.ts";
import type { Housekeeping } from "./housekeeping.ts";
import type { Cell } from "./row-pieces.ts";
import { type Result, refused } from "./rpc.ts";
import type { RunSpec } from "./run-store.ts";
import type { SettledTurn } from "./turn-store.ts";

/** Keeping a turn for good: in one transaction, one row where it fits. */

/** A foreground turn to keep; with the token of its lease when it belongs to the conversation. */
export interface TurnToSettle extends Omit<SettledTurn, "base" | "position" | "log"> {
  /** `joins`: its items become part of the conversation. */
  lease: { token: string; joins: boolean } | null;
}

export class Settlement {
  readonly #rows: HomeRows;
  readonly #conversation: ConversationTurns;
  readonly #housekeeping: Housekeeping;
  readonly #config: () => Config;

  readonly #waitUntil: (promise: Promise<unknown>) => void;

  /** `waitUntil` keeps the object alive until a promise has settled. */
  constructor(
    rows: HomeRows,
    conversation: ConversationTurns,
    housekeeping: Housekeeping,
    config: () => Config,
    waitUntil: (promise: Promise<unknown>) => void,
  ) {
    this.#rows = rows;
    this.#conversation = conversation;
    this.#housekeeping = housekeeping;
    this.#config = config;
    this.#waitUntil = waitUntil;
  }

  /**
   * Keeps a foreground turn, and gives its conversation back. Keeping a turn again is harmless. Gives the rows that it
   * took, or the 409 when the turn does not hold its conversation any more.
   */
  async foreground({ lease, ...settled }: TurnToSettle): Promise<Result<number>> {
    // A caller that has lost the answer asks again.
    if (this.#rows.turns.has(settled.turn)) return { ok: true, value: 0 };
    // From here on nothing waits: the turn and its alarm are one write.
    await this.#housekeeping.open();
    const entered = lease ? this.#conversation.entered(lease.token) : null;
    if (entered === undefined) return refused(conversationLocked());
    const rows = this.#rows.transaction(() => {
      const position = lease?.joins ? this.#rows.turns.lastPosition() + 1 : null;
      return this.#rows.turns.insert({ ...settled, base: entered?.base ?? null, position });
    });
    const retained = this.#housekeeping.retain(settled.createdAt, settled.owner != null);
    if (settled.owner != null) this.#tell(settled.turn);
    if (lease) this.#conversation.release(lease.token);
    await retained;
    return { ok: true, value: rows };
  }

  /**
   * Keeps a run's turn, in one transaction with what `endLog` writes, and with the end of the log that it gives. `base`: the last
   * position that the run saw. Gives the rows that the turn took.
   */
  run(spec: RunSpec, base: number | null, { outcome, closed }: TurnResult, endLog: () => Cell | null): number {
    const joins = spec.inConversation && (outcome.status === "completed" || outcome.status === "incomplete");
    const hasWebhook = spec.request.background === true && this.#config().webhook !== undefined;
    const rows = this.#rows.transaction(() => {
      const log = endLog();
      // Before the turn is written: it takes the place that the run's rows give back.
      this.#rows.runs.delete(spec.turn);
      const inserted = this.#rows.turns.insert({
        turn: spec.turn,
        parent: spec.parent,
        createdAt: spec.createdAt,
        base,
        position: joins ? this.#rows.turns.lastPosition() + 1 : null,
        input: JSON.stringify(keptInput(spec.input)),
        output: closed.kept,
        messages: closed.messages,
        response: closed.head,
        log,
        owner: spec.owner,
      });
      if (hasWebhook) this.#rows.webhooks.add(spec, outcome.status);
      return inserted;
    });
    if (hasWebhook) this.#waitUntil(this.#housekeeping.deliverWebhooks());
    this.#waitUntil(this.#housekeeping.retain(spec.createdAt, spec.owner !== undefined));
    if (spec.owner !== undefined) this.#tell(spec.turn);
    return rows;
  }

  /** Has the quota told of a turn that was kept: what is stored is counted. */
  #tell(turn: string): void {
    this.#rows.stored.added(turn);
    this.#waitUntil(this.#rows.stored.tellSoon());
  }
}
