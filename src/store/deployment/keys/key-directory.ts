import type { AuditType } from "@responses-edge/responses-api/platform/audit";
import { loadConfig } from "../../../config/index.ts";
import type { Grants } from "../../../contract/grants.ts";
import type { RawEnv } from "../../../env.ts";
import { OwnedObject } from "../../objects/owned-object.ts";
import { OBJECTS } from "../../objects/registry.ts";
import { Schema } from "../../objects/schema.ts";
import { KEY_TABLES, type KeyChange, type KeyRecord, KeyStore, type StoredKey } from "./key-store.ts";

/** The audit log of the actions of administrators, and of tenants' deletions. Rows are only added, and removed when they are old. */

const AUDIT_TABLES = [
  `CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, kind TEXT NOT NULL, type TEXT NOT NULL,
    tenant TEXT NOT NULL, body TEXT NOT NULL)`,
];

/** An action. Never contains a secret: no key, and no text of a tenant's. */
export interface AuditEvent {
  type: AuditType;
  /** The actor: the name of a root key, or the id of a tenant's key. */
  actor: string;
  tenant: string;
  /** The id of the affected object. */
  target: string;
  /** The requested changes, by field; plain values. */
  changes?: Readonly<Record<string, unknown>> | undefined;
}

export interface AuditRow extends Omit<AuditEvent, "changes"> {
  /** JSON text. */
  changes: string | null;
  seq: number;
  /** Unix milliseconds. */
  at: number;
}

interface AuditQuery {
  /** Rows before this one, newest first. */
  before?: number | undefined;
  limit: number;
  tenants?: readonly string[] | undefined;
  types?: readonly string[] | undefined;
  from?: number | undefined;
  until?: number | undefined;
}

/** The kind of actor: tenants' rows do not displace those of administrators. */
type AuditKind = "admin" | "tenant";

/** Most rows of each kind. */
const MAX_ROWS = 100_000;

/** Rows that are added between two removals of old ones. */
const SWEEP_EVERY = 128;

/** The longest changes of one row, in UTF-16 units. */
const MAX_CHANGES_LENGTH = 16_384;

type Row = { seq: number; at: number; type: AuditType; tenant: string; body: string };

export class AuditLog {
  readonly #schema: Schema;
  readonly #maxRows: number;
  #added = 0;

  /** `maxRows`: most rows of each kind. */
  constructor(schema: Schema, maxRows = MAX_ROWS) {
    this.#schema = schema;
    this.#maxRows = maxRows;
  }

  /** Adds a row. Regularly removes rows that are older than `retentionMs`, or too many. */
  add({ type, tenant, actor, target, changes }: AuditEvent, kind: AuditKind, now: number, retentionMs: number): void {
    const json = changes ? JSON.stringify(changes) : null;
    const told = json !== null && json.length <= MAX_CHANGES_LENGTH ? json : null;
    const body = JSON.stringify({ actor, target, changes: told });
    const insert = "INSERT INTO audit (at, kind, type, tenant, body) VALUES (?, ?, ?, ?, ?)";
    this.#schema.write(insert, now, kind, type, tenant, body);
    this.#added += 1;
    if (this.#added % SWEEP_EVERY !== 1) return;
    this.#schema.write("DELETE FROM audit WHERE at < ?", now - retentionMs);
    const excess = "SELECT seq FROM audit WHERE kind = ? ORDER BY seq DESC LIMIT 1 OFFSET ?";
    const [last] = this.#schema.rows<{ seq: number }>(excess, kind, this.#maxRows);
    if (last) this.#schema.write("DELETE FROM audit WHERE kind = ? AND seq <= ?", kind, last.seq);
  }

  /** Rows, newest first. */
  list({ before, limit, tenants, types, from = 0, until }: AuditQuery): AuditRow[] {
    const isAmong = (column: string, wanted: readonly string[] | undefined) =>
      wanted ? ` AND ${column} IN (SELECT value FROM json_each(?))` : "";
    const rows = this.#schema.rows<Row>(
      `SELECT seq, at, type, tenant, body FROM audit
       WHERE seq < ? AND at >= ? AND at < ?${isAmong("tenant", tenants)}${isAmong("type", types)}
       ORDER BY seq DESC LIMIT ?`,
      ...[before ?? Number.MAX_SAFE_INTEGER, from, until ?? Number.MAX_SAFE_INTEGER],
      ...[tenants, types].filter((each) => each !== undefined).map((each) => JSON.stringify(each)),
      limit,
    );
    return rows.map(({ body, ...row }) => {
      const { actor, target, changes } = JSON.parse(body) as Pick<AuditRow, "actor" | "target" | "changes">;
      return { ...row, actor, target, changes };
    });
  }
}

/** The tables of the directory. */
export const DIRECTORY_TABLES = [
  ...KEY_TABLES,
  ...AUDIT_TABLES,
  // At most one row: the administrators' changes of the configuration, as JSON. The version grows with each change.
  "CREATE TABLE overrides (version INTEGER NOT NULL, body TEXT NOT NULL)",
];

/** The result of a look-up: the key, if it exists, and the mint's secret, by which the caller recognises invented keys from now on. */
interface LookUp {
  mint: string;
  key: KeyRecord | null;
  /** The version of the administrators' changes of the configuration; 0 if there are none. */
  overridesVersion: number;
}

interface StoredOverrides {
  version: number;
  /** JSON of `Overrides`. */
  body: string;
}

/**
 * The keys that were made without a redeployment, the limits of tenants, and the audit log: one Durable Object. Each
 * change and its row in the audit log are one transaction. `actor` names the administrator's root key.
 */
export class KeyDirectory extends OwnedObject {
  readonly #schema: Schema;
  readonly #keys: KeyStore;
  readonly #audit: AuditLog;
  #knownVersion: number | undefined;

  constructor(state: DurableObjectState, env: RawEnv) {
    super(state, env, "KEYS");
    this.#schema = new Schema(state.storage, DIRECTORY_TABLES, OBJECTS.KEYS.migrations);
    this.#keys = new KeyStore(this.#schema);
    this.#audit = new AuditLog(this.#schema);
  }

  /** The key whose text has this SHA-256 (hex). */
  lookUp(sha256: string): LookUp {
    this.#schema.open();
    return { mint: this.#keys.mint, key: this.#keys.find(sha256), overridesVersion: this.#overridesVersion };
  }

  /** The limits of a tenant whose key or token the directory does not know. */
  lookUpTenant(tenant: string): Pick<LookUp, "overridesVersion"> & { limits: Grants | null } {
    return { limits: this.#keys.tenantLimits(tenant), overridesVersion: this.#overridesVersion };
  }

  /** Gives the administrators' changes of the configuration; null if there are none since `version`. */
  overrides(version: number): StoredOverrides | null {
    const [row] = this.#schema.rows<StoredOverrides & Record<string, string | number>>(
      "SELECT version, body FROM overrides",
    );
    return !row || row.version === version ? null : row;
  }

  /**
   * Stores the administrators' changes as a whole, as JSON; `changes` goes to the audit log. Gives the version; null,
   * without a change, if the version is no longer `expected`.
   */
  setOverrides(actor: string, expected: number, body: string, changes: string): number | null {
    return this.#change(() => {
      if (this.#overridesVersion !== expected) return null;
      this.#schema.write("DELETE FROM overrides");
      this.#schema.write("INSERT INTO overrides (version, body) VALUES (?, ?)", expected + 1, body);
      const told = JSON.parse(changes) as Record<string, unknown>;
      this.#note({ type: "configuration.updated", actor, tenant: "", target: `v${expected + 1}`, changes: told });
      this.#knownVersion = expected + 1;
      return expected + 1;
    });
  }

  get #overridesVersion(): number {
    this.#knownVersion ??= this.#schema.rows<{ version: number }>("SELECT version FROM overrides")[0]?.version ?? 0;
    return this.#knownVersion;
  }

  /** The limits of a tenant; null if it has none. */
  tenantLimits(tenant: string): Grants | null {
    return this.#keys.tenantLimits(tenant);
  }

  /** Notes that a tenant has used something. */
  noteTenant(tenant: string): void {
    this.#keys.noteTenant(tenant);
  }

  tenants(after: string, limit: number): string[] {
    return this.#keys.tenants(after, limit);
  }

  /** Makes a key, and gives its text, which is not stored. */
  create(
    actor: string,
    tenant: string,
    fields: Pick<StoredKey, "name" | "expiresAt" | "limits">,
  ): { key: StoredKey; value: string } {
    return this.#change(() => {
      const now = Date.now();
      const made = this.#keys.create(tenant, fields, now);
      this.#note({ type: "api_key.created", actor, tenant, target: made.key.id, changes: shownChanges(fields) });
      return made;
    });
  }

  get(id: string): StoredKey | null {
    return this.#keys.get(id);
  }

  list(tenant: string | undefined, after: string, limit: number): StoredKey[] {
    return this.#keys.list(tenant, after, limit);
  }

  /** Changes a key; null if it does not exist. */
  change(actor: string, id: string, change: KeyChange): StoredKey | null {
    return this.#change(() => {
      const key = this.#keys.change(id, change);
      if (key) {
        this.#note({ type: "api_key.updated", actor, tenant: key.tenant, target: id, changes: shownChanges(change) });
      }
      return key;
    });
  }

  /** Gives a key another text. Its earlier texts are valid for `graceMs` more. Null if the key does not exist. */
  rotate(actor: string, id: string, graceMs: number): { key: StoredKey; value: string } | null {
    return this.#change(() => {
      const now = Date.now();
      const rotated = this.#keys.rotate(id, now + graceMs, now);
      if (rotated) {
        const changes = { grace_seconds: graceMs / 1000 };
        this.#note({ type: "api_key.rotated", actor, tenant: rotated.key.tenant, target: id, changes });
      }
      return rotated;
    });
  }

  /** Removes a key. False if it does not exist. */
  delete(actor: string, id: string): boolean {
    return this.#change(() => {
      const key = this.#keys.delete(id);
      if (key) this.#note({ type: "api_key.deleted", actor, tenant: key.tenant, target: id });
      return key !== null;
    });
  }

  /** Replaces the limits of a tenant; null removes them. */
  setTenantLimits(actor: string, tenant: string, limits: Grants | null): void {
    this.#change(() => {
      this.#keys.setTenantLimits(tenant, limits);
      const type = limits === null ? "rate_limit.deleted" : "rate_limit.updated";
      this.#note({ type, actor, tenant, target: tenant, changes: limits ?? undefined });
    });
  }

  /** Removes the keys and the limits of a tenant. */
  eraseTenant(actor: string, tenant: string): void {
    this.#change(() => {
      this.#keys.eraseTenant(tenant);
      this.#note({ type: "tenant.erased", actor, tenant, target: tenant });
    });
  }

  /** Notes an action elsewhere: a deletion by a tenant, or by an administrator for it. */
  note(event: AuditEvent, kind: "admin" | "tenant"): void {
    this.#change(() => this.#note(event, kind));
  }

  auditLog(query: AuditQuery): AuditRow[] {
    return this.#audit.list(query);
  }

  #change<T>(body: () => T): T {
    this.#schema.open();
    return this.ctx.storage.transactionSync(body);
  }

  #note(event: AuditEvent, kind: "admin" | "tenant" = "admin"): void {
    this.#audit.add(event, kind, Date.now(), loadConfig(this.env).keys.auditRetentionMs);
  }
}

declare module "../../objects/objects.ts" {
  interface ObjectClasses {
    KEYS: KeyDirectory;
  }
}

/** A change as the audit log shows it. */
function shownChanges({ name, expiresAt, disabled, limits }: KeyChange): Record<string, unknown> {
  return {
    ...(name !== undefined && { name }),
    ...(expiresAt !== undefined && { expires_at: expiresAt === null ? null : Math.floor(expiresAt / 1000) }),
    ...(disabled !== undefined && { disabled }),
    ...(limits !== undefined && { limits }),
  };
}
