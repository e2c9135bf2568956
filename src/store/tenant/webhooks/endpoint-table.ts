import { randomBytes } from "node:crypto";
import type { Schema } from "../../objects/schema.ts";

/** The endpoints of a tenant, each a row. */

export const ENDPOINT_TABLE =
  "CREATE TABLE endpoint (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, body TEXT NOT NULL)";

/** An endpoint as it is stored. Times are Unix seconds. */
export interface Endpoint {
  id: string;
  name: string;
  url: string;
  eventTypes: string[];
  createdAt: number;
  updatedAt: number;
  /** Base64. */
  secret: string;
  /** The earlier secret, and until when events are also signed with it. */
  previous: { secret: string; until: number } | null;
}

export type EndpointFields = Pick<Endpoint, "name" | "url" | "eventTypes">;

/** Endpoints that one tenant may have. */
export const MAX_ENDPOINTS = 50;

/** How long the earlier secret stays valid, if it is kept, in seconds. */
const GRACE_SECONDS = 86_400;

const SECRET_BYTES = 32;

export class EndpointTable {
  readonly #schema: Schema;

  constructor(schema: Schema) {
    this.#schema = schema;
  }

  all(): Endpoint[] {
    const rows = this.#schema.rows<{ id: string; body: string }>("SELECT id, body FROM endpoint ORDER BY seq DESC");
    return rows.map(toEndpoint);
  }

  /** Newest first, after the endpoint `after`. Null if that does not exist. */
  page(after: string | undefined, limit: number): Endpoint[] | null {
    const [cursor] = this.#schema.rows<{ seq: number }>("SELECT seq FROM endpoint WHERE id = ?", after ?? "");
    if (after !== undefined && !cursor) return null;
    const select = "SELECT id, body FROM endpoint WHERE seq < ? ORDER BY seq DESC LIMIT ?";
    const from = cursor?.seq ?? Number.MAX_SAFE_INTEGER;
    return this.#schema.rows<{ id: string; body: string }>(select, from, limit).map(toEndpoint);
  }

  find(id: string): Endpoint | null {
    const [row] = this.#schema.rows<{ id: string; body: string }>("SELECT id, body FROM endpoint WHERE id = ?", id);
    return row ? toEndpoint(row) : null;
  }

  /** Null if the tenant has as many as it may. */
  create(fields: EndpointFields, now: number): Endpoint | null {
    if (this.all().length >= MAX_ENDPOINTS) return null;
    const id = `whe_${randomBytes(16).toString("hex")}`;
    const endpoint = { id, ...fields, createdAt: now, updatedAt: now, secret: newSecret(), previous: null };
    const { id: _, ...body } = endpoint;
    this.#schema.write("INSERT INTO endpoint (id, body) VALUES (?, ?)", id, JSON.stringify(body));
    return endpoint;
  }

  change(id: string, fields: Partial<EndpointFields>, now: number): Endpoint | null {
    const endpoint = this.find(id);
    if (!endpoint) return null;
    const changed = { ...endpoint, ...fields };
    return JSON.stringify(changed) === JSON.stringify(endpoint)
      ? endpoint
      : this.#write({ ...changed, updatedAt: now });
  }

  /** Gives an endpoint another secret. */
  rotate(id: string, keepsOld: boolean, now: number): Endpoint | null {
    const endpoint = this.find(id);
    if (!endpoint) return null;
    const previous = keepsOld ? { secret: endpoint.secret, until: now + GRACE_SECONDS } : null;
    return this.#write({ ...endpoint, secret: newSecret(), previous, updatedAt: now });
  }

  delete(id: string): boolean {
    return this.#schema.write("DELETE FROM endpoint WHERE id = ?", id) > 0;
  }

  #write(endpoint: Endpoint): Endpoint {
    const { id, ...body } = endpoint;
    this.#schema.write("UPDATE endpoint SET body = ? WHERE id = ?", JSON.stringify(body), id);
    return endpoint;
  }
}

function toEndpoint({ id, body }: { id: string; body: string }): Endpoint {
  return { id, ...(JSON.parse(body) as Omit<Endpoint, "id">) };
}

function newSecret(): string {
  return randomBytes(SECRET_BYTES).toString("base64");
}
