import { USAGE_REPORTS, type UsageKind } from "@responses-edge/usage-limits";
import type { Context } from "hono";
import { costsQuery, storageQuery, usageQuery } from "../api/queries.ts";
import { readCosts, readStorage, readUsage } from "../api/usage.ts";
import type { AppEnv } from "./app-env.ts";
import { readableTenant } from "./caller.ts";
import { endpoint } from "./endpoint.ts";
import { type Operation, ok } from "./openapi/operation.ts";
import { USAGE_PAGES } from "./openapi/usage-schemas.ts";

/** Usage and costs (`GET /v1/organization/…`), under OpenAI's paths: a tenant's own, or all with a root key. */

/** The kinds of usage in words, for the reference. */
const ABOUT: Readonly<Record<UsageKind, string>> = {
  completions: "tokens, requests and cost of turns and completions",
  embeddings: "tokens of embeddings",
  images: "images that were made",
  moderations: "tokens of moderations",
  decisions: "tokens of decisions",
  audio_transcriptions: "seconds of speech",
  code_interpreter_sessions: "turns that have run programs",
  file_searches: "calls of `file_search`",
  vector_stores: "bytes in vector stores at the end of each bucket",
  web_searches: "searches of the web",
};

const usageOf = (kind: UsageKind) => {
  const { path, groups } = USAGE_REPORTS[kind];
  return endpoint(`GET /v1/organization/usage/${path}`, {
    summary: `${ABOUT[kind]}: a tenant's own, or with a root key all: \`start_time\`, \`end_time\`, \`bucket_width\` \`1h\`\\|\`1d\`, \`group_by\` ${groups.map((group) => `\`${group}\``).join("\\|")}, \`project_ids\`, \`api_key_ids\`, \`models\`, \`limit\`, \`page\``,
    operation: operation(kind === "completions" ? "readUsage" : `read${USAGE_PAGES[kind].replace(/Page$/, "")}`, {
      answers: ok(USAGE_PAGES[kind]),
    }),
    query: usageQuery(groups),
    handle: async (context, query) =>
      context.json(await readUsage(kind, readableTenant(context), query, sources(context))),
  });
};

export const usage = [
  ...(Object.keys(USAGE_REPORTS) as UsageKind[]).map(usageOf),
  endpoint("GET /v1/organization/costs", {
    summary:
      "the cost of usage by `MODEL_PRICES`, by the day: a tenant's own, or with a root key all: `start_time`, `end_time`, `group_by` `project_id`\\|`api_key_id`\\|`line_item` (a model, or a tool), `project_ids`, `api_key_ids`, `line_items`, `limit`, `page`",
    operation: operation("readCosts", { answers: ok("CostsPage") }),
    query: costsQuery,
    handle: async (context, query) => context.json(await readCosts(readableTenant(context), query, sources(context))),
  }),
  endpoint("GET /v1/organization/usage/storage", {
    summary: "present storage and its limits: a tenant's own, or with a root key all: `group_by`, `project_ids`",
    operation: operation("readStorageUsage", { answers: ok("StoragePage") }),
    query: storageQuery,
    handle: async (context, query) => {
      const { keys } = context.get("config");
      return context.json(await readStorage(readableTenant(context), query, sources(context), keys));
    },
  }),
];

function operation(id: string, fields: Pick<Operation, "answers">): Operation {
  return { id, group: "Administration", access: "tenant or root", counted: "read", ...fields };
}

function sources(context: Context<AppEnv>) {
  const { KEYS: directories, QUOTAS: quotas } = context.env;
  const configured = context.get("config").apiKeys.map(({ tenant }) => tenant);
  return { directories, quotas, configured };
}
