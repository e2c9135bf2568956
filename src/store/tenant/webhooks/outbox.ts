import { responseId } from "@responses-edge/responses-api/ids";
import type { WebhookEvent } from "@responses-edge/responses-api/platform/webhooks";
import { unixSeconds } from "@responses-edge/responses-api/response";
import type { Outcome } from "@responses-edge/turn/decide";
import type { Env } from "../../../env.ts";
import type { RunSpec } from "../../home/run-store.ts";
import type { Tables } from "../../home/tables.ts";
import { announce } from "./announcing.ts";
import { retryWaitMs } from "./delivery-table.ts";

/**
 * The ends of background runs that are still to be sent to the tenant's webhooks. An end is noted in the transaction
 * that settles its run, so that none is lost; `Webhooks` may get it twice, under the same id.
 */

/** The event of a run's end. */
export type RunEvent = `response.${Outcome["status"]}`;

type Row = { turn: string; response: string; type: WebhookEvent; created_at: number; attempts: number };

export class WebhookOutbox {
  readonly #tables: Tables;
  readonly #tenant: string;
  readonly #env: Env;
  #handing: Promise<void> | undefined;

  constructor(tables: Tables, tenant: string, env: Env) {
    this.#tables = tables;
    this.#tenant = tenant;
    this.#env = env;
  }

  /** Notes the end of a run. To be called within the transaction that settles it. */
  add(spec: RunSpec, status: Outcome["status"]): void {
    const insert = "INSERT INTO webhooks (turn, response, type, created_at, attempts, due) VALUES (?, ?, ?, ?, 0, 0)";
    const createdAt = unixSeconds();
    this.#tables.write(
      "webhooks",
      insert,
      spec.turn,
      responseId(spec),
      `response.${status}` satisfies RunEvent,
      createdAt,
    );
  }

  /** When the next one is due (Unix milliseconds); null if there is none. */
  nextDue(): number | null {
    const next = "SELECT MIN(due) AS due FROM webhooks";
    return this.#tables.rows<{ due: number | null }>("webhooks", next)[0]?.due ?? null;
  }

  /** Sends the due ones. A failed one is scheduled again. */
  handOver(): Promise<void> {
    this.#handing ??= this.#handOverAll().finally(() => {
      this.#handing = undefined;
    });
    return this.#handing;
  }

  async #handOverAll(): Promise<void> {
    for (;;) {
      const next =
        "SELECT turn, response, type, created_at, attempts FROM webhooks WHERE due <= ? ORDER BY due LIMIT 1";
      const [row] = this.#tables.rows<Row>("webhooks", next, Date.now());
      if (!row) return;
      const { turn, response, type, created_at: createdAt, attempts } = row;
      try {
        const id = `evt_${response.slice("resp_".length)}`;
        await announce(this.#env, this.#tenant, { id, type, createdAt, about: response });
        this.#tables.rows("webhooks", "DELETE FROM webhooks WHERE turn = ?", turn);
      } catch {
        const due = Date.now() + retryWaitMs(attempts);
        this.#tables.rows("webhooks", "UPDATE webhooks SET attempts = attempts + 1, due = ? WHERE turn = ?", due, turn);
      }
    }
  }
}

declare module "./announcing.ts" {
  interface WebhookSenders {
    HOME: RunEvent;
  }
}
