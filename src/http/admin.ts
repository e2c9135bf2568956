import { ApiError } from "@responses-edge/responses-api/errors";
import type { Context } from "hono";
import { type ConfigurationAccess, changeConfiguration, retrieveConfiguration } from "../api/configuration.ts";
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
import { readOverview } from "../api/overview.ts";
import { auditQuery, homesQuery, keysQuery, overviewQuery, requestsQuery, tenantQuery } from "../api/queries.ts";
import { listRequests, type RequestsReader } from "../api/requests.ts";
import { responseDetailsOf } from "../api/response-details.ts";
import { eraseTenant, exportTenant, type TenantData } from "../api/tenant-data.ts";
import { importTenant } from "../api/tenant-import.ts";
import { ROLES } from "../config/index.ts";
import { keyCache, type OtherKeys } from "../store/deployment/keys/key-cache.ts";
import { MAX_LINE_LENGTH } from "../store/objects/rpc.ts";
import { askOthers } from "../store/objects/workers.ts";
import type { AppEnv } from "./app-env.ts";
import { readLines } from "./body.ts";
import { adminOf, hasBody, jsonBody, readableTenant } from "./caller.ts";
import { endpoint } from "./endpoint.ts";
import { byRoot, json, ok } from "./openapi/operation.ts";

/**
 * Maximum bytes of one import, a page of 200 homes, without its last file. A page ends after the file that exceeds its
 * length.
 */
const IMPORT_BYTES = 1024 * 1024 * 1024;

/** A unit of UTF-16 takes at most three bytes of UTF-8. */
const IMPORT_LINE_BYTES = 3 * MAX_LINE_LENGTH;

/** Roles beside `ROLES`, which all may read. A tenant admin may do for its tenant what an owner may, within the tenant's limits. */
const OWNERS = ["owner"] as const;
const READERS = ["owner", "operator", "auditor"] as const;
const OPERATORS = ["owner", "operator"] as const;
const KEY_MAKERS = ["owner", "tenant_admin"] as const;
const STOPPERS = ["owner", "operator", "tenant_admin"] as const;

/**
 * The admin API, under a root key (`ADMIN_KEY`). Paths are OpenAI's (`/v1/organization/…`) where it has the same
 * endpoint. OpenAI has none that makes a key or sets its limits.
 */
export const administration = [
  endpoint("POST /v1/admin/keys", {
    summary: "root key: make a key for a tenant; its `value` is shown this once",
    operation: byRoot(KEY_MAKERS, "createApiKey", { body: json("CreateApiKey"), answers: ok("NewApiKey") }),
    handle: async (context) => context.json(await createKey(administrator(context), await jsonBody(context))),
  }),
  endpoint("GET /v1/admin/keys", {
    summary: "root key: list keys, also those of `API_KEYS` (`source`): `tenant`, `limit` 1–100 (20), `after`",
    operation: byRoot(ROLES, "listApiKeys", { answers: ok("ApiKeyList") }),
    query: keysQuery,
    handle: async (context, query) => context.json(await listKeys(administrator(context), query)),
  }),
  endpoint("GET /v1/admin/keys/:id", {
    summary: "root key: retrieve",
    operation: byRoot(ROLES, "retrieveApiKey", { answers: ok("ApiKey") }),
    handle: async (context) => context.json(await retrieveKey(administrator(context), context.req.param("id"))),
  }),
  endpoint("POST /v1/admin/keys/:id", {
    summary: "root key: change its `name`, `expires_at`, `disabled`, `limits`",
    operation: byRoot(KEY_MAKERS, "changeApiKey", { body: json("ChangeApiKey"), answers: ok("ApiKey"), errors: [409] }),
    handle: async (context) => {
      const admin = administrator(context);
      return context.json(await changeKey(admin, context.req.param("id"), await jsonBody(context)));
    },
  }),
  endpoint("DELETE /v1/admin/keys/:id", {
    summary: "root key: delete it",
    operation: byRoot(KEY_MAKERS, "deleteApiKey", { answers: ok("DeletedApiKey"), errors: [409] }),
    handle: async (context) => context.json(await deleteKey(administrator(context), context.req.param("id"))),
  }),
  endpoint("POST /v1/admin/keys/:id/rotate", {
    summary: "root key: make another `value`; the old one stays valid for `grace_seconds` (3600)",
    operation: byRoot(KEY_MAKERS, "rotateApiKey", {
      body: { ...json("RotateApiKey"), isOptional: true },
      answers: ok("NewApiKey"),
      errors: [409],
    }),
    handle: async (context) => {
      const admin = administrator(context);
      const body = hasBody(context) ? await jsonBody(context) : {};
      return context.json(await rotateKey(admin, context.req.param("id"), body));
    },
  }),
  endpoint("GET /v1/admin/tenants/:tenant", {
    summary: "root key: a tenant's `limits`",
    operation: byRoot(ROLES, "retrieveTenant", { answers: ok("Tenant"), errors: [400] }),
    handle: async (context) => context.json(await retrieveTenant(administrator(context), context.req.param("tenant"))),
  }),
  endpoint("POST /v1/admin/tenants/:tenant", {
    summary: "root key: set a tenant's `limits`; all its keys share them",
    operation: byRoot(OPERATORS, "changeTenant", { body: json("ChangeTenant"), answers: ok("Tenant") }),
    handle: async (context) => {
      const admin = administrator(context);
      return context.json(await changeTenant(admin, context.req.param("tenant"), await jsonBody(context)));
    },
  }),
  endpoint("DELETE /v1/admin/tenants/:tenant", {
    summary:
      "root key: erase a tenant: its keys, limits and usage, and the data in its noted homes; repeat while `has_more`: `after`",
    operation: byRoot(OWNERS, "eraseTenant", { answers: ok("ErasedTenant") }),
    query: homesQuery,
    handle: async (context, { after }) =>
      context.json(await eraseTenant(tenantData(context), context.req.param("tenant"), after)),
  }),
  endpoint("GET /v1/admin/tenants/:tenant/export", {
    summary: "root key: a tenant's data as JSON lines: `limit` 1–200 (200) homes, `after`",
    operation: byRoot(KEY_MAKERS, "exportTenant", { answers: { 200: { "application/jsonl": "ExportLine" } } }),
    query: homesQuery,
    handle: async (context, query) => {
      const lines = await exportTenant(tenantData(context), context.req.param("tenant"), query);
      return context.body(lines, 200, { "content-type": "application/jsonl" });
    },
  }),
  endpoint("POST /v1/admin/tenants/:tenant/import", {
    summary: "root key: import such JSON lines, of this or another deployment; existing homes stay as they are",
    operation: byRoot(OWNERS, "importTenant", {
      body: { name: "ImportLine", type: "application/jsonl" },
      answers: { ...ok("ImportedTenant"), 409: { "application/json": "RefusedImport" } },
    }),
    handle: async (context) => {
      const data = tenantData(context);
      const config = context.get("config");
      // Base64 makes a file longer by a third, and each line adds some characters.
      const maxBytes = IMPORT_BYTES + 1.5 * config.files.maxFileBytes;
      const lines = readLines(context.req.raw, { maxBytes, maxLineBytes: IMPORT_LINE_BYTES });
      const done = await importTenant(data, config, context.req.param("tenant"), lines);
      if (done.homes.refused === 0) return context.json(done);
      const message = `Homes with other data here, which were not changed: ${done.homes.refused}.`;
      const error = new ApiError({ status: 409, message, code: "home_differs" });
      return context.json({ ...error.toBody(), ...done }, 409);
    },
  }),
  endpoint("GET /v1/admin/configuration", {
    summary: "root key: model servers, routes and prices in the form of the configuration file, and the source of each",
    operation: byRoot(READERS, "retrieveConfiguration", { answers: ok("Configuration") }),
    handle: async (context) => context.json(await retrieveConfiguration(configurationAccess(context))),
  }),
  endpoint("POST /v1/admin/configuration", {
    summary:
      "root key: change model servers, routes and prices by their names; `false` removes one, `null` reverts the change",
    operation: byRoot(OPERATORS, "changeConfiguration", {
      body: json("ChangeConfiguration"),
      answers: ok("Configuration"),
      errors: [409],
    }),
    handle: async (context) =>
      context.json(await changeConfiguration(configurationAccess(context), await jsonBody(context))),
  }),
  endpoint("GET /v1/admin/runs", {
    summary: "root key: live background runs, by their ids: `tenant`, `limit` 1–100 (20), `after`",
    operation: byRoot(ROLES, "listRuns", { answers: ok("RunList") }),
    query: keysQuery,
    handle: async (context, query) => context.json(await listLiveRuns(liveRuns(context), query)),
  }),
  endpoint("POST /v1/admin/runs/:id/cancel", {
    summary: "root key: stop one of them",
    operation: byRoot(STOPPERS, "cancelRun", { answers: ok("CancelledRun") }),
    handle: async (context) => context.json(await cancelLiveRun(liveRuns(context), context.req.param("id"))),
  }),
  endpoint("GET /v1/admin/requests", {
    summary:
      "requests that have ended, newest first, without content: a tenant's own, or with a root key all: `tenant`, `api_key_id`, `model`, `server`, `status`, `min_duration_ms`, `created_at[gte]`, `created_at[lt]`, `limit` 1–100 (20), `after`",
    operation: {
      ...{ id: "listRequests", group: "Administration", access: "tenant or root", counted: "read", roles: ROLES },
      ...{ openedBy: "RESPONSE_INDEX", answers: ok("RequestList") },
    },
    isOpen: ({ listsResponses }) => listsResponses,
    query: requestsQuery,
    handle: async (context, query) => context.json(await listRequests(requestsReader(context), query)),
  }),
  endpoint("GET /v1/admin/responses/:id", {
    summary:
      "root key: the times of a stored response of `tenant`, and the model server's own text of its failure; never its content",
    operation: byRoot(ROLES, "retrieveResponseDetails", { answers: ok("ResponseDetails"), errors: [400] }),
    query: tenantQuery,
    handle: async (context, { tenant }) => {
      const asked = adminOf(context).tenant ?? tenant;
      return context.json(await responseDetailsOf(context.env, asked, context.req.param("id")));
    },
  }),
  endpoint("GET /v1/admin/overview", {
    summary:
      "root key: requests, errors, times and tokens of all tenants over time, and the state of the model servers: `start_time`, `end_time`, `bucket_width` `1m`\\|`5m`\\|`1h`\\|`1d`",
    operation: byRoot(READERS, "retrieveOverview", { openedBy: "RESPONSE_INDEX", answers: ok("Overview") }),
    isOpen: ({ listsResponses }) => listsResponses,
    query: overviewQuery,
    handle: async (context, query) => context.json(await readOverview(context.env.BOARD, context.get("config"), query)),
  }),
  endpoint("GET /v1/organization/audit_logs", {
    summary:
      "root key: the audit log, newest first: `project_ids`, `event_types`, `effective_at[gte]`, `effective_at[lt]`, `limit` 1–100 (20), `after`",
    operation: byRoot(ROLES, "listAuditLog", { answers: ok("AuditLog") }),
    query: auditQuery,
    handle: async (context, query) => context.json(await listAuditLog(administrator(context), query)),
  }),
];

function requestsReader(context: Context<AppEnv>): RequestsReader {
  const isAdministrator = context.get("authenticated").admin !== undefined;
  return { boards: context.env.BOARD, tenant: readableTenant(context), isAdministrator };
}

function administrator(context: Context<AppEnv>): Administrator {
  const { name, tenant } = adminOf(context);
  const { keys, apiKeys: configured } = context.get("config");
  const forgetKeys = async () => {
    keyCache(context.env, keys).forget();
    await askOthers((worker: OtherKeys) => worker.forgetKeys());
  };
  return { name, tenant, directories: context.env.KEYS, configured, forgetKeys };
}

function configurationAccess(context: Context<AppEnv>): ConfigurationAccess {
  return { admin: administrator(context), env: context.env };
}

function tenantData(context: Context<AppEnv>): TenantData {
  return { ...administrator(context), env: context.env };
}

function liveRuns(context: Context<AppEnv>): LiveRuns {
  return { ...administrator(context), homes: context.env, boards: context.env.BOARD };
}
