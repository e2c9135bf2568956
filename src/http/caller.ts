import { randomUUID } from "node:crypto";
import { logLine } from "@responses-edge/bounded-io/json-text";
import { ApiError } from "@responses-edge/responses-api/errors";
import type { Context } from "hono";
import { callerWith } from "../api/caller.ts";
import type { Caller } from "../api/transport.ts";
import { hearReport } from "../assembly/model-server.ts";
import type { Role } from "../config/index.ts";
import type { Identity } from "../contract/grants.ts";
import type { EndedOwner } from "../store/limits/ended-requests.ts";
import { unknownUrl } from "./answers.ts";
import type { Admin, AppEnv } from "./app-env.ts";
import { readForm, readJson } from "./body.ts";

/** Headers by which agents name the session of a request; the most specific first. */
const SESSION_HEADERS = [
  "session-id", // Codex
  "session_id",
  "thread-id", // Codex
  "x-claude-code-session-id", // Claude Code
  "x-session-affinity", // OpenCode
  "x-session-id",
];

/** Longer values are ignored. UTF-16 units. */
const MAX_LENGTH = 256;

/** The API's caller of an authenticated HTTP request. Its history is in the tenant's homes. */
export function callerOf(context: Context<AppEnv>, identity: Identity = identityOf(context)): Caller {
  const config = context.get("config");
  const waitUntil = (promise: Promise<unknown>) => context.executionCtx.waitUntil(promise);
  const { BOARD: boards } = context.env;
  // This isolate reads the board's report from time to time. No request waits for it.
  if (boards && config.boardMs !== 0) {
    hearReport(config, () => boards.getByName().read(), waitUntil);
  }
  let clientSession: string | undefined;
  for (const name of SESSION_HEADERS) {
    const value = context.req.raw.headers.get(name) ?? "";
    if (value !== "" && value.length <= MAX_LENGTH) clientSession ??= `${name}:${value}`;
  }
  return callerWith(context.env, config, identity, {
    counting: context.get("counting") ?? { isDone: false },
    bodyLength: 0,
    clientSession,
    signal: context.req.raw.signal,
    peer: () => peerOf(context.req.raw),
    observation: context.get("observation"),
    waitUntil,
    tell: (headers) => {
      for (const [name, value] of Object.entries(headers)) context.header(name, value);
    },
    note: config.hasAdminApi ? noteOf(context, identity) : undefined,
  });
}

/** The owner of a request, for the reports about it. */
export function ownerOf(context: Context<AppEnv>, identity: Identity): EndedOwner {
  const waitUntil = (promise: Promise<unknown>) => context.executionCtx.waitUntil(promise);
  const { QUOTAS: quotas, BOARD: boards } = context.env;
  return { identity, config: context.get("config"), quotas, boards, waitUntil };
}

/** The client's end of a connection, as plain workerd tells it; undefined on Cloudflare. */
function peerOf({ cf }: Request): string | undefined {
  const { clientIp: peer } = (cf ?? {}) as { clientIp?: unknown };
  if (typeof peer !== "string") return undefined;
  // An IPv6 address has several forms.
  return peer.startsWith("[") ? URL.parse(`tcp://${peer}`)?.host : peer;
}

/** The identity of the tenant's key. Throws the 403 of a root key, which belongs to no tenant. */
export function identityOf(context: Context<AppEnv>): Identity {
  const { identity } = context.get("authenticated");
  if (identity) return identity;
  const message =
    "This is the key of an administrator, which has no responses. Make an API key for a tenant, and use that.";
  throw new ApiError({ status: 403, message, code: "insufficient_permissions" });
}

/** Throws the 404 of a deployment that has no admin API. */
export function requireAdminApi(context: Context<AppEnv>): void {
  if (!context.get("config").hasAdminApi) throw unknownUrl(context);
}

/** The administrator who asks. Throws the 404 of `requireAdminApi`, and the 403 of another key. */
export function adminOf(context: Context<AppEnv>): Admin {
  requireAdminApi(context);
  const { admin } = context.get("authenticated");
  if (admin !== undefined) return admin;
  throw insufficient("This API key may not administer this deployment. Use a root key (ADMIN_KEY).");
}

/**
 * Throws as `adminOf` does, and the 403 of an administrator without any of the roles, or of a tenant admin for another
 * tenant in the path. Where a path names no tenant, the operation itself checks it.
 */
export function requireRole(context: Context<AppEnv>, roles: readonly Role[]): void {
  const { role, tenant } = adminOf(context);
  if (!roles.includes(role))
    throw insufficient(`The role '${role}' may not do this. These roles may: ${roles.join(", ")}.`);
  const named = context.req.param("tenant");
  if (tenant === undefined || named === undefined || named === tenant) return;
  throw insufficient(`This key administers the tenant '${tenant}' only.`);
}

function insufficient(message: string): ApiError {
  return new ApiError({ status: 403, message, code: "insufficient_permissions" });
}

/** The tenant whose usage the caller may read: its own, or that of a tenant admin. Undefined: all tenants. */
export function readableTenant(context: Context<AppEnv>): string | undefined {
  const { admin } = context.get("authenticated");
  return admin ? admin.tenant : identityOf(context).tenant;
}

/** Notes a tenant's actions in the audit log, in parallel with the answer. */
function noteOf(context: Context<AppEnv>, { tenant }: Identity): NonNullable<Caller["note"]> {
  const { actor } = context.get("authenticated");
  return (event) => {
    const noted = context.env.KEYS.getByName().note({ ...event, tenant, actor }, "tenant");
    const told = noted.catch(() => console.error(logLine({ level: "error", audit_not_noted: event })));
    context.executionCtx.waitUntil(told);
  };
}

/** The caller, and the parsed body of the request, whose length the caller has. Throws as `readJson` does. */
export async function callWithBody(context: Context<AppEnv>): Promise<{ caller: Caller; body: unknown }> {
  const caller = callerOf(context);
  const { value: body, length } = await readJson(context.req.raw, caller);
  caller.bodyLength = length;
  return { caller, body };
}

/** The parsed body of a request whose length does not count. Throws as `readJson` does. */
export async function jsonBody(context: Context<AppEnv>): Promise<unknown> {
  // Administrators belong to no tenant, and count together as one sender.
  const { tenant } = context.get("authenticated").identity ?? { tenant: "" };
  return (await readJson(context.req.raw, { tenant, config: context.get("config") })).value;
}

/** True if a request has a body. */
export function hasBody({ req: { raw } }: Context<AppEnv>): boolean {
  return raw.body !== null && raw.headers.get("content-length") !== "0";
}

/** The caller, and the body of a form, not parsed. Throws as `readForm` does. */
export async function callWithForm(
  context: Context<AppEnv>,
): Promise<{ caller: Caller; bytes: Uint8Array; type: string }> {
  const caller = callerOf(context);
  const form = await readForm(context.req.raw, caller);
  caller.bodyLength = form.bytes.length;
  return { caller, ...form };
}

/** The Codex CLI (0.169) sends the value of this answer header with all further requests of its turn. */
export const CODEX_TURN_STATE = "x-codex-turn-state";

/** The session id that a request of Codex repeats, or a new one that it is to send from now on. Undefined for all other clients. */
export function codexTurnState(headers: Headers): string | undefined {
  const state = headers.get(CODEX_TURN_STATE);
  if (state !== null && state.length <= MAX_LENGTH) return state;
  return headers.has("x-codex-turn-metadata") ? randomUUID() : undefined;
}
