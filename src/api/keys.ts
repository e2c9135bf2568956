import { ApiError, notFound } from "@responses-edge/responses-api/errors";
import { parse } from "@responses-edge/responses-api/validation-errors";
import { z } from "zod";
import type { Config } from "../config/index.ts";
import type { ApiKeyObject } from "../contract/admin-objects.ts";
import { type Grants, grants } from "../contract/grants.ts";
import type { Env } from "../env.ts";
import type { AuditRow } from "../store/deployment/keys/key-directory.ts";
import type { KeyChange, StoredKey } from "../store/deployment/keys/key-store.ts";
import type { Stub } from "../store/objects/objects.ts";
import { checkDisk } from "../store/objects/process-state.ts";
import type { auditQuery, keysQuery } from "./queries.ts";

/** The admin API: keys, the limits of tenants, and the audit log. Every function takes an administrator. */

/** An administrator, whom every function here takes. */
export interface Administrator {
  /** The actor of the audit log: the name of the root key, or the subject of a token. */
  name: string;
  /** The only tenant of a tenant admin; undefined for an administrator of all tenants. */
  tenant: string | undefined;
  directories: Env["KEYS"];
  /** The keys of the configuration. */
  configured: Config["apiKeys"];
  /**
   * Makes this isolate, and the other workers of its machine, forget the keys and tenants that they have cached. Called
   * after every change.
   */
  forgetKeys: () => Promise<void>;
}

/** The last second of the year 9999. */
const MAX_TIME = 253_402_300_799;

/** A week. With a longer grace time, a second key serves better. */
const MAX_GRACE_SECONDS = 604_800;
const GRACE_SECONDS = 3_600;

/** Tenants of tokens may have a prefix (`TOKEN_TENANT_PREFIX`). */
const tenant = z.string().regex(/^(?:jwt\.)?[A-Za-z0-9_-]{1,64}$/, "Expected 1 to 64 letters, digits, '_' or '-'.");
const name = z.string().max(256);
const expiresAt = z.int().min(0).max(MAX_TIME).nullable();

export const createKeyBody = z.strictObject({
  tenant,
  name: name.default(""),
  expires_at: expiresAt.default(null),
  limits: grants.nullable().default(null),
});
export const changeKeyBody = z.strictObject({
  name: name.optional(),
  expires_at: expiresAt.optional(),
  disabled: z.boolean().optional(),
  limits: grants.nullable().optional(),
});
export const rotateKeyBody = z.strictObject({
  grace_seconds: z.int().min(0).max(MAX_GRACE_SECONDS).default(GRACE_SECONDS),
});
export const tenantBody = z.strictObject({ limits: grants.nullable() });

/** Makes a key, and shows its text, which is shown only once. Throws the 507 of a full disk. */
export async function createKey(admin: Administrator, body: unknown) {
  const { tenant: of, expires_at: end, ...fields } = parse(createKeyBody, body);
  if (admin.tenant !== undefined && of !== admin.tenant) throw notOfTenant("tenant");
  checkLimits(admin, fields.limits);
  checkDisk();
  const made = await directoryOf(admin).create(admin.name, of, { ...fields, expiresAt: toMs(end) });
  return { ...shownKey(made.key), value: made.value };
}

/** The keys of the configuration, and then those of the admin API by their time of creation: so by their ids. */
export async function listKeys(admin: Administrator, { tenant, after = "", limit }: z.output<typeof keysQuery>) {
  const of = admin.tenant ?? tenant;
  const configured = admin.configured
    .filter((key) => key.id > after && (of === undefined || key.tenant === of))
    .toSorted((one, other) => (one.id < other.id ? -1 : 1));
  const left = limit + 1 - configured.length;
  const keys = left > 0 ? await directoryOf(admin).list(of, after, left) : [];
  return page([...configured.map(shownConfigured), ...keys.map(shownKey)], limit);
}

export async function retrieveKey(admin: Administrator, id: string) {
  const configured = configuredKey(admin, id);
  if (configured) return shownConfigured(configured);
  return shownKey(await keyOf(admin, id));
}

/** Changes the given fields; `limits` is replaced as a whole. */
export async function changeKey(admin: Administrator, id: string, body: unknown) {
  const { expires_at: end, ...rest } = parse(changeKeyBody, body);
  checkLimits(admin, rest.limits);
  await checkChangeable(admin, id);
  const change: KeyChange = { ...rest, ...(end !== undefined && { expiresAt: toMs(end) }) };
  const changed = await directoryOf(admin).change(admin.name, id, change);
  await admin.forgetKeys();
  return shownKey(found(id, changed));
}

/** Gives a key another text, and shows it, only once. The earlier text is valid for the grace time. */
export async function rotateKey(admin: Administrator, id: string, body: unknown) {
  const { grace_seconds: grace } = parse(rotateKeyBody, body);
  await checkChangeable(admin, id);
  const rotated = await directoryOf(admin).rotate(admin.name, id, grace * 1000);
  await admin.forgetKeys();
  const { key, value } = found(id, rotated);
  return { ...shownKey(key), value };
}

export async function deleteKey(admin: Administrator, id: string) {
  await checkChangeable(admin, id);
  const isDeleted = await directoryOf(admin).delete(admin.name, id);
  await admin.forgetKeys();
  if (!isDeleted) throw keyNotFound(id);
  return { object: "api_key.deleted", id, deleted: true };
}

/** A tenant's limits: none for an unknown tenant. */
export async function retrieveTenant(admin: Administrator, id: string) {
  const of = parseTenant(id);
  return { object: "tenant", id: of, limits: await directoryOf(admin).tenantLimits(of) };
}

/** Replaces a tenant's limits; null removes them. */
export async function changeTenant(admin: Administrator, id: string, body: unknown) {
  const of = parseTenant(id);
  const { limits } = parse(tenantBody, body);
  await directoryOf(admin).setTenantLimits(admin.name, of, limits);
  await admin.forgetKeys();
  return { object: "tenant", id: of, limits };
}

/** The audit log, newest first, in the shape of OpenAI's. */
export async function listAuditLog(admin: Administrator, { after, limit, ...query }: z.output<typeof auditQuery>) {
  const { project_ids: tenants, event_types: types, "effective_at[gte]": from, "effective_at[lt]": until } = query;
  const rows = await directoryOf(admin).auditLog({
    before: after === undefined ? undefined : sequenceOf(after),
    limit: limit + 1,
    tenants: admin.tenant === undefined ? tenants : [admin.tenant],
    types,
    from: from === undefined ? undefined : from * 1000,
    until: until === undefined ? undefined : until * 1000,
  });
  return page(rows.map(shownRow), limit);
}

function shownRow({ seq, at, type, actor, tenant: of, target, changes }: AuditRow) {
  return {
    id: `audit_log-${seq}`,
    object: "organization.audit_log",
    type,
    effective_at: Math.floor(at / 1000),
    actor: shownActor(actor),
    project: { id: of },
    [type]: { id: target, ...(changes !== null && { changes_requested: JSON.parse(changes) as unknown }) },
  };
}

/** A root key by its name, a tenant's key by its id, or the subject of a token. */
function shownActor(actor: string) {
  const subject = /^jwt:(.*)$/s.exec(actor)?.[1];
  if (subject === undefined) return { type: "api_key", api_key: { id: actor } };
  return { type: "session", session: { user: { id: subject } } };
}

function sequenceOf(id: string): number {
  const sequence = Number(/^audit_log-(\d{1,15})$/.exec(id)?.[1]);
  if (Number.isInteger(sequence)) return sequence;
  throw notFound("Audit log entry", id, "after", { status: 400 });
}

/** A tenant's name. Throws the 400 of an invalid one. */
export function parseTenant(id: string): string {
  return parse(z.object({ tenant }), { tenant: id }).tenant;
}

/** A page of the first `limit` items. One item more than `limit` shows that there are more. */
export function page<Item extends { id: string }>(items: Item[], limit: number) {
  const data = items.slice(0, limit);
  const [first, last] = [data[0], data.at(-1)];
  return {
    object: "list" as const,
    data,
    first_id: first?.id ?? null,
    last_id: last?.id ?? null,
    has_more: items.length > limit,
  };
}

/** A key as it is shown. */
export function shownKey({ id, tenant: of, name: called, redacted, createdAt, ...key }: StoredKey): ApiKeyObject {
  return {
    object: "api_key",
    id,
    tenant: of,
    name: called,
    redacted_value: redacted,
    created_at: Math.floor(createdAt / 1000),
    expires_at: key.expiresAt === null ? null : Math.floor(key.expiresAt / 1000),
    disabled: key.disabled,
    limits: key.limits,
    source: "admin_api",
  };
}

/** A key of the configuration as it is shown: its text is unknown, and its tenant's limits apply to it. */
function shownConfigured({ id, tenant: of }: Administrator["configured"][number]): ApiKeyObject {
  const unknown = { name: "", redacted_value: "", created_at: null, expires_at: null, disabled: false, limits: null };
  return { object: "api_key", id, tenant: of, ...unknown, source: "configuration" };
}

/** The key of the configuration with an id, if the administrator may see it. */
function configuredKey({ tenant: own, configured }: Administrator, id: string) {
  return configured.find((key) => key.id === id && (own === undefined || key.tenant === own));
}

function toMs(seconds: number | null): number | null {
  return seconds === null ? null : seconds * 1000;
}

function directoryOf({ directories }: Administrator): Stub<"KEYS"> {
  return directories.getByName();
}

function found<T>(id: string, value: T | null): T {
  if (value === null) throw keyNotFound(id);
  return value;
}

/** A key that the administrator may see. Rejects with the 404 of one that does not exist, or is another tenant's. */
async function keyOf(admin: Administrator, id: string): Promise<StoredKey> {
  const key = await directoryOf(admin).get(id);
  return found(id, admin.tenant === undefined || key?.tenant === admin.tenant ? key : null);
}

/**
 * Rejects with the 409 of a key of the configuration, and with the 404 of a key of another tenant than a tenant admin's. A key never
 * changes its tenant.
 */
async function checkChangeable(admin: Administrator, id: string): Promise<void> {
  if (configuredKey(admin, id)) {
    const message = `The API key '${id}' is in the variable API_KEYS of this server. Change it there.`;
    throw new ApiError({ status: 409, message, param: "id", code: "configured_key" });
  }
  if (admin.tenant !== undefined) await keyOf(admin, id);
}

/** Grants that may give a key more than its tenant has. Only the operator sets them. */
const OPERATORS_GRANTS = ["vllm_extras", "tier"] as const;

/** Throws the 403 of a tenant admin who gives a key more than its tenant has. */
function checkLimits(admin: Administrator, limits: Grants | null | undefined): void {
  if (admin.tenant === undefined) return;
  for (const field of OPERATORS_GRANTS) if (limits?.[field] != null) throw notOfTenant(`limits.${field}`);
}

function notOfTenant(param: string): ApiError {
  const message = `The role 'tenant_admin' may not set '${param}' to this value: only an operator of this deployment may.`;
  return new ApiError({ status: 403, message, param, code: "insufficient_permissions" });
}

function keyNotFound(id: string): ApiError {
  return notFound("API key", id, "id");
}
