import { DurableObject } from "cloudflare:workers";
import { loadConfig, type Variables } from "../../config/index.ts";
import type { Grants } from "../../contract/grants.ts";
import { Schema, type Versions } from "../schema.ts";
import { AUDIT_TABLES, type AuditEvent, AuditLog, type AuditQuery, type AuditRow } from "./audit-log.ts";
import { KEY_TABLES, type KeyChange, type KeyRecord, KeyStore, type StoredKey } from "./key-store.ts";

/** The tables of the directory, by version. What was made once is never changed: a new version adds to it. */
export const DIRECTORY_VERSIONS: Versions = [[...KEY_TABLES, ...AUDIT_TABLES]];

/** The name of the object: there is one. */
export const DIRECTORY = "directory";

/** What a look-up tells: the key, if it is one, and the mint's secret, by which whoever asks knows inventions from now on. */
export interface LookUp {
  mint: string;
  key: KeyRecord | null;
}

/**
 * The keys that were made without redeploying, the limits of tenants, and the audit log: one Durable Object. Each change
 * and its row in the audit log are one transaction. `actor` names the root key that acts.
 */
export class KeyDirectory extends DurableObject<Variables> {
  readonly #schema: Schema;
  readonly #keys: KeyStore;
  readonly #audit: AuditLog;

  constructor(state: DurableObjectState, env: Variables) {
    super(state, env);
    this.#schema = new Schema(state.storage, DIRECTORY_VERSIONS);
    this.#keys = new KeyStore(state.storage.sql);
    this.#audit = new AuditLog(state.storage.sql);
  }

  /** What is known of the key whose text has this SHA-256 (hex). */
  lookUp(sha256: string): LookUp {
    this.#schema.open();
    return { mint: this.#keys.mint, key: this.#keys.find(sha256) };
  }

  /** The limits of a tenant; null where it has none. */
  tenantLimits(tenant: string): Grants | null {
    return this.#schema.openIfMade() ? this.#keys.tenantLimits(tenant) : null;
  }

  tenants(after: string, limit: number): string[] {
    return this.#schema.openIfMade() ? this.#keys.tenants(after, limit) : [];
  }

  /** Makes a key, and gives its text, which is kept nowhere. */
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
    return this.#schema.openIfMade() ? this.#keys.get(id) : null;
  }

  list(tenant: string | undefined, after: string, limit: number): StoredKey[] {
    return this.#schema.openIfMade() ? this.#keys.list(tenant, after, limit) : [];
  }

  /** Changes a key; null where there is none. */
  change(actor: string, id: string, change: KeyChange): StoredKey | null {
    return this.#change(() => {
      const key = this.#keys.change(id, change);
      if (key) {
        this.#note({ type: "api_key.updated", actor, tenant: key.tenant, target: id, changes: shownChanges(change) });
      }
      return key;
    });
  }

  /** Gives a key another text. Those of before are good for `graceMs` more. Null where there is no such key. */
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

  /** Removes a key. False where there is none. */
  delete(actor: string, id: string): boolean {
    return this.#change(() => {
      const key = this.#keys.delete(id);
      if (key) this.#note({ type: "api_key.deleted", actor, tenant: key.tenant, target: id });
      return key !== null;
    });
  }

  /** Sets the limits of a tenant; null takes them away. */
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

  /** Notes what was done elsewhere: a deletion of a tenant's, or of an administrator's for it. */
  note(event: AuditEvent, kind: "admin" | "tenant"): void {
    this.#change(() => this.#note(event, kind));
  }

  auditLog(query: AuditQuery): AuditRow[] {
    return this.#schema.openIfMade() ? this.#audit.list(query) : [];
  }

  #change<T>(body: () => T): T {
    this.#schema.open();
    return this.ctx.storage.transactionSync(body);
  }

  #note(event: AuditEvent, kind: "admin" | "tenant" = "admin"): void {
    this.#audit.add(event, kind, Date.now(), loadConfig(this.env).keys.auditRetentionMs);
  }
}

/** A change as the audit log tells it. */
function shownChanges({ name, expiresAt, disabled, limits }: KeyChange): Record<string, unknown> {
  return {
    ...(name !== undefined && { name }),
    ...(expiresAt !== undefined && { expires_at: expiresAt === null ? null : Math.floor(expiresAt / 1000) }),
    ...(disabled !== undefined && { disabled }),
    ...(limits !== undefined && { limits }),
  };
}
