import type { WebhookEvent } from "@responses-edge/responses-api/platform/webhooks";
import { MAX_ATTEMPTS, retryWaitMs } from "../../objects/outbox.ts";
import type { Schema } from "../../objects/schema.ts";
import type { WebhookNotice } from "./sending.ts";

/** The deliveries of a tenant's events: pending ones, and ended ones, which are the log. Times are Unix milliseconds. */

export const DELIVERY_TABLES = [
  "CREATE TABLE event (id TEXT NOT NULL PRIMARY KEY, type TEXT NOT NULL, created_at INTEGER NOT NULL, about TEXT NOT NULL) WITHOUT ROWID",
  `CREATE TABLE delivery (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, event TEXT NOT NULL, endpoint TEXT NOT NULL, attempts INTEGER NOT NULL,
    due INTEGER, status INTEGER, tried_at INTEGER, UNIQUE (event, endpoint))`,
  "CREATE INDEX delivery_due ON delivery (due) WHERE due IS NOT NULL",
  "CREATE INDEX delivery_of_endpoint ON delivery (endpoint, seq)",
];

/** How long ended deliveries are kept, and how many of a tenant's. */
const KEPT_MS = 30 * 24 * 3_600_000;
const MAX_DELIVERIES = 10_000;

/** Deliveries that are added between two removals of old ones. */
const SWEEP_EVERY = 64;

export interface Delivery {
  seq: number;
  endpoint: string;
  notice: WebhookNotice;
  attempts: number;
  /** When the next attempt is due; null once it has ended. */
  due: number | null;
  /** The status of the last answer; null if there was none. */
  status: number | null;
  triedAt: number | null;
}

type Row = {
  seq: number;
  endpoint: string;
  attempts: number;
  due: number | null;
  status: number | null;
  tried_at: number | null;
  event: string;
  type: WebhookEvent;
  created_at: number;
  about: string;
};

const SELECT = `SELECT seq, endpoint, attempts, due, status, tried_at, event, type, created_at, about
  FROM delivery JOIN event ON event.id = delivery.event`;

export class DeliveryTable {
  readonly #schema: Schema;
  #added = 0;

  constructor(schema: Schema) {
    this.#schema = schema;
  }

  /** Adds a delivery of an event to each endpoint. A repeated call is harmless. */
  add({ id, type, createdAt, about }: WebhookNotice, endpoints: readonly string[], now: number): void {
    const event = "INSERT OR IGNORE INTO event (id, type, created_at, about) VALUES (?, ?, ?, ?)";
    this.#schema.write(event, id, type, createdAt, about);
    const delivery = "INSERT OR IGNORE INTO delivery (event, endpoint, attempts, due) VALUES (?, ?, 0, ?)";
    for (const endpoint of endpoints) this.#schema.write(delivery, id, endpoint, now);
    this.#added += endpoints.length;
    if (this.#added % SWEEP_EVERY < endpoints.length) this.#sweep(now);
  }

  /** The endpoints that have due deliveries. */
  endpointsDue(now: number): string[] {
    const select = "SELECT DISTINCT endpoint FROM delivery WHERE due <= ?";
    return this.#schema.rows<{ endpoint: string }>(select, now).map(({ endpoint }) => endpoint);
  }

  /** The due deliveries to an endpoint, at most `limit`. */
  due(endpoint: string, now: number, limit: number): Delivery[] {
    const select = `${SELECT} WHERE endpoint = ? AND due <= ? ORDER BY due LIMIT ?`;
    return this.#schema.rows<Row>(select, endpoint, now, limit).map(toDelivery);
  }

  /** The number of pending deliveries. */
  waiting(): number {
    const count = "SELECT COUNT(*) AS count FROM delivery WHERE due IS NOT NULL";
    return this.#schema.rows<{ count: number }>(count)[0]?.count ?? 0;
  }

  nextDue(): number | null {
    return (
      this.#schema.rows<{ due: number | null }>("SELECT MIN(due) AS due FROM delivery WHERE due IS NOT NULL")[0]?.due ??
      null
    );
  }

  /** Counts an attempt, before it begins: the next one is due even if the process dies in it. */
  begin({ seq, attempts }: Delivery, now: number): void {
    const update = "UPDATE delivery SET attempts = attempts + 1, due = ? WHERE seq = ?";
    this.#schema.write(update, nextDueOf(attempts, now), seq);
  }

  /** Notes the end of an attempt. The delivery has ended if the endpoint has accepted it, or the attempts are used up. */
  tried({ seq, attempts }: Delivery, status: number | null, now: number): void {
    const due = isTaken(status) ? null : nextDueOf(attempts, now);
    this.#schema.write("UPDATE delivery SET due = ?, status = ?, tried_at = ? WHERE seq = ?", due, status, now, seq);
  }

  /** The deliveries of one endpoint, newest first, before the delivery `before`. */
  page(endpoint: string, before: number | undefined, limit: number): Delivery[] {
    const rows = this.#schema.rows<Row>(
      `${SELECT} WHERE endpoint = ? AND seq < ? ORDER BY seq DESC LIMIT ?`,
      ...[endpoint, before ?? Number.MAX_SAFE_INTEGER, limit],
    );
    return rows.map(toDelivery);
  }

  /** Forgets the deliveries to an endpoint. */
  forget(endpoint: string): void {
    this.#schema.write("DELETE FROM delivery WHERE endpoint = ?", endpoint);
    this.#forgetEvents();
  }

  #sweep(now: number): void {
    const last = "SELECT seq FROM delivery ORDER BY seq DESC LIMIT 1 OFFSET ?";
    const [excess] = this.#schema.rows<{ seq: number }>(last, MAX_DELIVERIES);
    this.#schema.write("DELETE FROM delivery WHERE seq <= ?", excess?.seq ?? 0);
    this.#schema.write("DELETE FROM delivery WHERE due IS NULL AND tried_at < ?", now - KEPT_MS);
    this.#forgetEvents();
  }

  #forgetEvents(): void {
    this.#schema.write("DELETE FROM event WHERE id NOT IN (SELECT event FROM delivery)");
  }
}

/** True if the status says that the endpoint has accepted an event. */
export function isTaken(status: number | null): boolean {
  return status !== null && status >= 200 && status < 300;
}

/** When the attempt after the present one is due, before which there were `attempts`; null if that is the last. Unix milliseconds. */
function nextDueOf(attempts: number, now: number): number | null {
  return attempts + 1 >= MAX_ATTEMPTS ? null : now + retryWaitMs(attempts);
}

function toDelivery({ event: id, type, created_at: createdAt, about, tried_at: triedAt, ...row }: Row): Delivery {
  return { ...row, triedAt, notice: { id, type, createdAt, about } };
}
