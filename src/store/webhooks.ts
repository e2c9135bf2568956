import { createHmac } from "node:crypto";
import { responseId } from "@responses-edge/responses-api/ids";
import type { Outcome } from "@responses-edge/turn/decide";
import type { Config } from "../config/index.ts";
import type { RunSpec } from "./run-store.ts";
import type { Tables } from "./tables.ts";

/**
 * Webhooks on terminal states of background runs, signed as OpenAI signs them (Standard Webhooks 1.0:
 * `webhook-id`, `webhook-timestamp`, `webhook-signature: v1,base64(HMAC-SHA256(secret, id.timestamp.body))`).
 *
 * A webhook is noted in the transaction that settles its run, so none is forgotten; it may come twice, under the same
 * `webhook-id`.
 */

/** First wait after a failed delivery; it doubles, up to the longest. */
const RETRY_BASE_MS = 5_000;
const RETRY_MAX_MS = 4 * 3_600_000;

/** About three days of trying, as OpenAI does. */
const MAX_ATTEMPTS = 30;

const DELIVERY_TIMEOUT_MS = 15_000;

type Row = { turn: string; response: string; type: string; created_at: number; attempts: number };

export class WebhookStore {
  readonly #tables: Tables;
  #delivering: Promise<void> | undefined;

  constructor(tables: Tables) {
    this.#tables = tables;
  }

  /** Notes the webhook of a run that ends. To be called within the transaction that settles it. */
  add(spec: RunSpec, status: Outcome["status"]): void {
    const insert = "INSERT INTO webhooks (turn, response, type, created_at, attempts, due) VALUES (?, ?, ?, ?, 0, 0)";
    const createdAt = Math.floor(Date.now() / 1000);
    this.#tables.write("webhooks", insert, spec.turn, responseId(spec), `response.${status}`, createdAt);
  }

  /** When the next delivery is due (Unix milliseconds), or null when there is none to make. */
  nextDue(): number | null {
    const next = "SELECT MIN(due) AS due FROM webhooks";
    return this.#tables.rows<{ due: number | null }>("webhooks", next)[0]?.due ?? null;
  }

  /** Delivers what is due. What fails is noted for another time, and given up after about three days. */
  async deliverDue(config: Config): Promise<void> {
    if (this.#delivering) return this.#delivering;
    this.#delivering = this.#deliverAll(config).finally(() => {
      this.#delivering = undefined;
    });
    return this.#delivering;
  }

  async #deliverAll({ webhook }: Config): Promise<void> {
    if (!webhook) {
      // The operator has taken the endpoint away: nobody wants them any more.
      this.#tables.rows("webhooks", "DELETE FROM webhooks");
      return;
    }
    for (;;) {
      const next =
        "SELECT turn, response, type, created_at, attempts FROM webhooks WHERE due <= ? ORDER BY due LIMIT 1";
      const [row] = this.#tables.rows<Row>("webhooks", next, Date.now());
      if (!row) return;
      const done = await deliver(row, webhook);
      if (done || row.attempts + 1 >= MAX_ATTEMPTS) {
        this.#tables.rows("webhooks", "DELETE FROM webhooks WHERE turn = ?", row.turn);
      } else {
        const due = Date.now() + Math.min(RETRY_BASE_MS * 2 ** row.attempts, RETRY_MAX_MS);
        const later = "UPDATE webhooks SET attempts = attempts + 1, due = ? WHERE turn = ?";
        this.#tables.rows("webhooks", later, due, row.turn);
      }
    }
  }
}

/** Tells whether the endpoint has taken it. Redirects are not followed: their target was never configured. */
async function deliver(row: Row, webhook: NonNullable<Config["webhook"]>): Promise<boolean> {
  const id = `evt_${row.response.slice("resp_".length)}`;
  const body = JSON.stringify({
    id,
    object: "event",
    created_at: row.created_at,
    type: row.type,
    data: { id: row.response },
  });
  const timestamp = String(Math.floor(Date.now() / 1000));
  const signature = createHmac("sha256", webhook.secret).update(`${id}.${timestamp}.${body}`).digest("base64");
  try {
    const response = await webhook.fetch(webhook.url, {
      method: "POST",
      signal: AbortSignal.timeout(DELIVERY_TIMEOUT_MS),
      headers: {
        "content-type": "application/json",
        "user-agent": "responses-edge",
        "webhook-id": id,
        "webhook-timestamp": timestamp,
        "webhook-signature": `v1,${signature}`,
      },
      body,
    });
    await response.body?.cancel();
    return response.ok;
  } catch {
    return false;
  }
}
