import { randomBytes } from "node:crypto";
import type { Grants } from "../../../contract/grants.ts";
import type { Schema } from "../../objects/schema.ts";
import { keyHash, mintKey, newMint, redactedKey } from "./api-keys.ts";

/** Keys, their tenants, and the secrets by which they are found. Times are Unix milliseconds. */

export const KEY_TABLES = [
  // The body is a key as JSON: `StoredKey` without its id and its tenant.
  `CREATE TABLE keys (id TEXT NOT NULL PRIMARY KEY, tenant TEXT NOT NULL, body TEXT NOT NULL) WITHOUT ROWID`,
  "CREATE INDEX keys_of_tenant ON keys (tenant, id)",
  // The SHA-256 of each text of a key. A text that was replaced by rotation has an end.
  `CREATE TABLE secrets (
    sha256 TEXT NOT NULL PRIMARY KEY, key TEXT NOT NULL, expires_at INTEGER) WITHOUT ROWID`,
  "CREATE INDEX secrets_of_key ON secrets (key)",
  "CREATE TABLE tenants (tenant TEXT NOT NULL PRIMARY KEY, limits TEXT NOT NULL) WITHOUT ROWID",
  // Tenants that have used something: their quotas note them.
  "CREATE TABLE used_by (tenant TEXT NOT NULL PRIMARY KEY) WITHOUT ROWID",
  // The secret of the mint: `api-keys.ts`.
  "CREATE TABLE mint (secret TEXT NOT NULL)",
];

/** A key as it is stored and shown. Its text is shown once and not stored. */
export interface StoredKey {
  id: string;
  tenant: string;
  name: string;
  createdAt: number;
  /** When the key expires; null: never. */
  expiresAt: number | null;
  disabled: boolean;
  limits: Grants | null;
  redacted: string;
}

/** A key as a request needs it. */
export interface KeyRecord {
  id: string;
  tenant: string;
  /** The earlier end: that of the key, or of the text that it was found by. */
  expiresAt: number | null;
  disabled: boolean;
  limits: Grants | null;
  tenantLimits: Grants | null;
}

export type KeyChange = Partial<Pick<StoredKey, "name" | "expiresAt" | "disabled" | "limits">>;

type Body = Omit<StoredKey, "id" | "tenant">;
type KeyRow = { id: string; tenant: string; body: string };

export class KeyStore {
  readonly #schema: Schema;
  #mint: string | undefined;

  constructor(schema: Schema) {
    this.#schema = schema;
  }

  /** The secret of the mint; made at its first use. */
  get mint(): string {
    this.#mint ??= this.#schema.rows<{ secret: string }>("SELECT secret FROM mint")[0]?.secret;
    if (this.#mint === undefined) {
      this.#mint = newMint();
      this.#schema.write("INSERT INTO mint (secret) VALUES (?)", this.#mint);
    }
    return this.#mint;
  }

  /** The key whose text has this SHA-256. */
  find(sha256: string): KeyRecord | null {
    const [row] = this.#schema.rows<KeyRow & { expires_at: number | null; limits: string | null }>(
      `SELECT keys.id, keys.tenant, keys.body, secrets.expires_at, tenants.limits
       FROM secrets JOIN keys ON keys.id = secrets.key LEFT JOIN tenants ON tenants.tenant = keys.tenant
       WHERE secrets.sha256 = ?`,
      sha256,
    );
    if (!row) return null;
    const { id, tenant, expiresAt, disabled, limits } = toKey(row);
    const ends = [expiresAt, row.expires_at].filter((end) => end !== null);
    return {
      id,
      tenant,
      expiresAt: ends.length === 0 ? null : Math.min(...ends),
      disabled,
      limits,
      tenantLimits: row.limits === null ? null : (JSON.parse(row.limits) as Grants),
    };
  }

  /** Makes a key. Only the answer has its text. */
  create(tenant: string, fields: Pick<StoredKey, "name" | "expiresAt" | "limits">, now: number) {
    const value = mintKey(this.mint);
    const key: StoredKey = {
      id: newKeyId(now),
      tenant,
      ...fields,
      createdAt: now,
      disabled: false,
      redacted: redactedKey(value),
    };
    this.#write(key);
    this.#addSecret(value, key.id);
    return { key, value };
  }

  get(id: string): StoredKey | null {
    const [row] = this.#schema.rows<KeyRow>("SELECT id, tenant, body FROM keys WHERE id = ?", id);
    return row ? toKey(row) : null;
  }

  /** Keys by their creation, after the key `after`, of one tenant or of all. */
  list(tenant: string | undefined, after: string, limit: number): StoredKey[] {
    const rows = this.#schema.rows<KeyRow>(
      `SELECT id, tenant, body FROM keys WHERE id > ? ${tenant === undefined ? "" : "AND tenant = ?"} ORDER BY id LIMIT ?`,
      ...[after, ...(tenant === undefined ? [] : [tenant]), limit],
    );
    return rows.map(toKey);
  }

  change(id: string, change: KeyChange): StoredKey | null {
    const key = this.get(id);
    if (!key) return null;
    const changed = { ...key, ...change };
    this.#write(changed);
    return changed;
  }

  /** Another text for a key. Its earlier ones are valid until `until`. */
  rotate(id: string, until: number, now: number): { key: StoredKey; value: string } | null {
    const key = this.get(id);
    if (!key) return null;
    const value = mintKey(this.mint);
    this.#schema.write("DELETE FROM secrets WHERE key = ? AND expires_at <= ?", id, now);
    this.#schema.write(
      "UPDATE secrets SET expires_at = ? WHERE key = ? AND (expires_at IS NULL OR expires_at > ?)",
      ...[until, id, until],
    );
    this.#addSecret(value, id);
    const rotated = { ...key, redacted: redactedKey(value) };
    this.#write(rotated);
    return { key: rotated, value };
  }

  delete(id: string): StoredKey | null {
    const key = this.get(id);
    if (!key) return null;
    this.#schema.write("DELETE FROM secrets WHERE key = ?", id);
    this.#schema.write("DELETE FROM keys WHERE id = ?", id);
    return key;
  }

  eraseTenant(tenant: string): void {
    this.#schema.write("DELETE FROM secrets WHERE key IN (SELECT id FROM keys WHERE tenant = ?)", tenant);
    this.#schema.write("DELETE FROM keys WHERE tenant = ?", tenant);
    this.#schema.write("DELETE FROM used_by WHERE tenant = ?", tenant);
    this.setTenantLimits(tenant, null);
  }

  tenantLimits(tenant: string): Grants | null {
    const [row] = this.#schema.rows<{ limits: string }>("SELECT limits FROM tenants WHERE tenant = ?", tenant);
    return row ? (JSON.parse(row.limits) as Grants) : null;
  }

  /** Null removes them. */
  setTenantLimits(tenant: string, limits: Grants | null): void {
    if (limits === null) this.#schema.write("DELETE FROM tenants WHERE tenant = ?", tenant);
    else {
      this.#schema.write(
        "INSERT INTO tenants (tenant, limits) VALUES (?, ?) ON CONFLICT (tenant) DO UPDATE SET limits = excluded.limits",
        ...[tenant, JSON.stringify(limits)],
      );
    }
  }

  /** Notes that a tenant has used something. */
  noteTenant(tenant: string): void {
    this.#schema.write("INSERT OR IGNORE INTO used_by (tenant) VALUES (?)", tenant);
  }

  /** The tenants that have keys or limits, or have used something, by name; at most `limit`, after the name `after`. */
  tenants(after: string, limit: number): string[] {
    const rows = this.#schema.rows<{ tenant: string }>(
      `SELECT tenant FROM (SELECT DISTINCT tenant FROM keys WHERE tenant > ?1 UNION SELECT tenant FROM tenants WHERE tenant > ?1
         UNION SELECT tenant FROM used_by WHERE tenant > ?1)
       ORDER BY tenant LIMIT ?2`,
      ...[after, limit],
    );
    return rows.map(({ tenant }) => tenant);
  }

  #write({ id, tenant, ...body }: StoredKey): void {
    this.#schema.write(
      "INSERT INTO keys (id, tenant, body) VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET body = excluded.body",
      ...[id, tenant, JSON.stringify(body satisfies Body)],
    );
  }

  #addSecret(value: string, id: string): void {
    this.#schema.write("INSERT INTO secrets (sha256, key, expires_at) VALUES (?, ?, NULL)", keyHash(value), id);
  }
}

function toKey({ id, tenant, body }: KeyRow): StoredKey {
  return { id, tenant, ...(JSON.parse(body) as Body) };
}

/** An id that sorts by time of creation, and cannot be guessed. */
function newKeyId(now: number): string {
  return `key_${now.toString(36).padStart(9, "0")}${randomBytes(9).toString("hex")}`;
}
