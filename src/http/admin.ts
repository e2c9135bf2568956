import type { Context } from "hono";
import {
  type Administrator,
  changeKey,
  changeTenant,
  createKey,
  deleteKey,
  listAuditLog,
  listKeys,
  retrieveKey,
  retrieveTenant,
  rotateKey,
} from "../api/keys.ts";
import { cancelLiveRun, type LiveRuns, listLiveRuns } from "../api/live-runs.ts";
import { eraseTenant, exportTenant, type TenantData } from "../api/tenant-data.ts";
import { readUsage } from "../api/usage.ts";
import type { AppEnv } from "./app-env.ts";
import { readJson } from "./body.ts";
import { adminOf, identityOf } from "./caller.ts";
import { endpoint } from "./endpoint.ts";
import { unknownUrl } from "./errors.ts";
import { auditQuery, homesQuery, keysQuery, runsQuery, usageQuery } from "./queries.ts";

/**
 * The admin API, under a root key (`ADMIN_KEY`). Paths are OpenAI's where it has an endpoint for the same
 * (`/v1/organization/…`); it has none that makes a key, or says what one may.
 */
export const administration = [
  endpoint({
    method: "POST",
    path: "/v1/admin/keys",
    summary: "root key: make a key for a tenant; its `value` is shown this once",
    handle: async (context) => context.json(await createKey(administrator(context), await readBody(context))),
  }),
  endpoint({
    method: "GET",
    path: "/v1/admin/keys",
    summary: "root key: list keys: `tenant`, `limit` 1–100 (20), `after`",
    query: keysQuery,
    handle: async (context, query) => context.json(await listKeys(administrator(context), query)),
  }),
  endpoint({
    method: "GET",
    path: "/v1/admin/keys/:id",
    summary: "root key: retrieve",
    handle: async (context) => context.json(await retrieveKey(administrator(context), context.req.param("id"))),
  }),
  endpoint({
    method: "POST",
    path: "/v1/admin/keys/:id",
    summary: "root key: change its `name`, `expires_at`, `disabled`, `limits`",
    handle: async (context) => {
      const admin = administrator(context);
      return context.json(await changeKey(admin, context.req.param("id"), await readBody(context)));
    },
  }),
  endpoint({
    method: "DELETE",
    path: "/v1/admin/keys/:id",
    summary: "root key: delete, for good",
    handle: async (context) => context.json(await deleteKey(administrator(context), context.req.param("id"))),
  }),
  endpoint({
    method: "POST",
    path: "/v1/admin/keys/:id/rotate",
    summary: "root key: another `value`; the old one is good for `grace_seconds` (3600) more",
    handle: async (context) => {
      const admin = administrator(context);
      const body = hasBody(context) ? await readBody(context) : {};
      return context.json(await rotateKey(admin, context.req.param("id"), body));
    },
  }),
  endpoint({
    method: "GET",
    path: "/v1/admin/tenants/:tenant",
    summary: "root key: a tenant's `limits`",
    handle: async (context) => context.json(await retrieveTenant(administrator(context), context.req.param("tenant"))),
  }),
  endpoint({
    method: "POST",
    path: "/v1/admin/tenants/:tenant",
    summary: "root key: set a tenant's `limits`; all its keys share them",
    handle: async (context) => {
      const admin = administrator(context);
      return context.json(await changeTenant(admin, context.req.param("tenant"), await readBody(context)));
    },
  }),
  endpoint({
    method: "DELETE",
    path: "/v1/admin/tenants/:tenant",
    summary:
      "root key: erase a tenant: its keys, limits and usage, and what is kept in its noted homes; again while `has_more`: `after`",
    query: homesQuery,
    handle: async (context, { after }) =>
      context.json(await eraseTenant(tenantData(context), context.req.param("tenant"), after)),
  }),
  endpoint({
    method: "GET",
    path: "/v1/admin/tenants/:tenant/export",
    summary: "root key: a tenant's data as JSON lines: `limit` 1–200 (200) homes, `after`",
    query: homesQuery,
    handle: async (context, query) => {
      const lines = await exportTenant(tenantData(context), context.req.param("tenant"), query);
      return context.body(lines, 200, { "content-type": "application/jsonl" });
    },
  }),
  endpoint({
    method: "GET",
    path: "/v1/admin/runs",
    summary: "root key: background runs that live, by their ids: `tenant`, `limit` 1–100 (20), `after`",
    query: runsQuery,
    handle: async (context, query) => context.json(await listLiveRuns(liveRuns(context), query)),
  }),
  endpoint({
    method: "POST",
    path: "/v1/admin/runs/:id/cancel",
    summary: "root key: stop one of them",
    handle: async (context) => context.json(await cancelLiveRun(liveRuns(context), context.req.param("id"))),
  }),
  endpoint({
    method: "GET",
    path: "/v1/organization/audit_logs",
    summary:
      "root key: who did what and when, newest first: `project_ids`, `event_types`, `effective_at[gte]`, `effective_at[lt]`, `limit` 1–100 (20), `after`",
    query: auditQuery,
    handle: async (context, query) => context.json(await listAuditLog(administrator(context), query)),
  }),
  endpoint({
    method: "GET",
    path: "/v1/organization/usage/completions",
    summary:
      "tokens, requests and cost: a tenant's own, or with a root key all: `start_time`, `end_time`, `bucket_width` `1h`\\|`1d`, `group_by`, `project_ids`, `api_key_ids`, `models`, `limit`, `page`",
    query: usageQuery,
    handle: async (context, query) => {
      if (context.get("config").keys.adminKeys.length === 0) throw unknownUrl(context);
      const { KEYS: directories, QUOTAS: quotas } = context.env;
      const isAdmin = context.get("authenticated").admin !== undefined;
      const tenant = isAdmin ? undefined : identityOf(context).tenant;
      return context.json(await readUsage(tenant, query, { directories, quotas }));
    },
  }),
];

function administrator(context: Context<AppEnv>): Administrator {
  return { name: adminOf(context), directories: context.env.KEYS };
}

function tenantData(context: Context<AppEnv>): TenantData {
  return { ...administrator(context), homes: context.env.HOME, quotas: context.env.QUOTAS };
}

function liveRuns(context: Context<AppEnv>): LiveRuns {
  return { ...administrator(context), homes: context.env.HOME, boards: context.env.BOARD };
}

function readBody(context: Context<AppEnv>): Promise<unknown> {
  return readJson(context.req.raw, context.get("config").maxRequestBytes);
}

function hasBody({ req: { raw } }: Context<AppEnv>): boolean {
  return raw.body !== null && raw.headers.get("content-length") !== "0";
}
