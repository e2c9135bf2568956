import { type ApiError, invalidRequest } from "@responses-edge/responses-api/errors";
import { unixSeconds } from "@responses-edge/responses-api/response";
import {
  costResults,
  NOTHING_STORED,
  STORED_LIMITS,
  type Stored,
  type StoredLimit,
  type TenantUsage,
  type UsageKind,
  usageResults,
} from "@responses-edge/usage-limits";
import type { z } from "zod";
import { type Grants, type StorageDefaults, storageOf } from "../contract/grants.ts";
import type { Env } from "../env.ts";
import type { Quota } from "../store/limits/quota-object.ts";
import { MAX_USAGE_ROWS } from "../store/limits/usage.ts";
import type { Stub } from "../store/objects/objects.ts";
import type { costsQuery, storageQuery, usageQuery } from "./queries.ts";

/** Usage and costs of tenants, in buckets of time. */

const WIDTHS = {
  "1h": { seconds: 3_600, buckets: 24, most: 168 },
  "1d": { seconds: 86_400, buckets: 7, most: 31 },
};

/** OpenAI reports costs by the day. */
const COST_WIDTHS = { "1d": { seconds: 86_400, buckets: 7, most: 180 } };

/** The usage that a query asks for, and its number of buckets. Times are Unix seconds. */
type Buckets = Pick<
  z.output<ReturnType<typeof usageQuery>>,
  "start_time" | "end_time" | "limit" | "page" | "project_ids" | "api_key_ids" | "models"
> & { kinds?: readonly UsageKind[] };

/** Most tenants of one answer; each is an object that is asked. */
const MAX_TENANTS = 200;
const CONCURRENT_TENANTS = 16;

/** The sources of usage. */
export interface UsageSources {
  directories: Env["KEYS"];
  quotas: Env["QUOTAS"];
  /** The tenants of the configuration's keys. */
  configured: readonly string[];
}

/** One kind of usage: of one tenant, or of the tenants that the query names, or of all. Throws the 400s of `inBuckets`, and of a filter that the kind does not have. */
export function readUsage(
  kind: UsageKind,
  tenant: string | undefined,
  request: z.output<ReturnType<typeof usageQuery>>,
  sources: UsageSources,
) {
  // A tenant's vector stores are counted as one sum.
  const filter = kind === "vector_stores" && (["api_key_ids", "models"] as const).find((name) => request[name]);
  if (filter)
    throw invalidRequest(
      filter,
      `'${filter}' is not supported for the usage of vector stores, which is one sum for a tenant.`,
      "unsupported_parameter",
    );
  const results = (rows: readonly TenantUsage[]) => usageResults(kind, rows, request.group_by);
  return inBuckets(tenant, { ...request, kinds: [kind] }, sources, WIDTHS, results);
}

/** The costs of the same usage, by `MODEL_PRICES` at the time of use. Their line items are models. */
export function readCosts(
  tenant: string | undefined,
  { line_items: models, ...request }: z.output<typeof costsQuery>,
  sources: UsageSources,
) {
  return inBuckets(tenant, { ...request, models }, sources, COST_WIDTHS, (rows) => costResults(rows, request.group_by));
}

/** Throws the 400 of more buckets than an answer may have, and of a `page` that no answer gave. */
async function inBuckets<Result, Width extends string>(
  tenant: string | undefined,
  request: Buckets & { bucket_width: Width },
  sources: UsageSources,
  widths: Readonly<Record<Width, { seconds: number; buckets: number; most: number }>>,
  resultsOf: (rows: readonly TenantUsage[]) => Result[],
) {
  const { bucket_width: width, page, api_key_ids: keys, models, kinds } = request;
  const { seconds, buckets, most } = widths[width];
  const limit = request.limit ?? buckets;
  if (limit > most) {
    const message = `Invalid 'limit': expected a value <= ${most} with 'bucket_width=${width}'.`;
    throw invalidRequest("limit", message, "above_max_value");
  }
  const first = page === undefined ? floor(request.start_time, seconds) : pageStart(page, seconds);
  const end = Math.min(request.end_time ?? Number.POSITIVE_INFINITY, unixSeconds() + 1);
  const starts: number[] = [];
  for (let start = first; start < end && starts.length < limit; start += seconds) starts.push(start);
  const next = first + starts.length * seconds;
  const tenants = tenant === undefined ? await tenantsOf(request.project_ids, sources) : [tenant];
  const rows = kinds?.includes("vector_stores")
    ? await sizesOf(tenants, starts, (start) => Math.min(start + seconds, end), sources)
    : await rowsOf(tenants, { from: first * 1000, until: Math.min(next, end) * 1000, keys, models, kinds }, sources);
  const byBucket = Map.groupBy(rows, ({ start }) => floor(start / 1000, seconds));
  const hasMore = next < end && starts.length === limit;
  return {
    object: "page" as const,
    data: starts.map((start) => ({
      object: "bucket" as const,
      start_time: start,
      end_time: start + seconds,
      results: resultsOf(byBucket.get(start) ?? []),
    })),
    has_more: hasMore,
    next_page: hasMore ? `page_${next}` : null,
  };
}

/**
 * The current storage: of one tenant, or of the tenants that the query names, or of all. It has the form of OpenAI's
 * usage: one bucket, of this moment. `limits` are the storage limits, given for one tenant whose keys are not grouped.
 */
export async function readStorage(
  tenant: string | undefined,
  { group_by: groupBy, project_ids: projects }: z.output<typeof storageQuery>,
  sources: UsageSources,
  defaults: StorageDefaults,
) {
  const tenants = tenant === undefined ? await tenantsOf(projects, sources) : [tenant];
  const rows: { tenant: string; key: string; stored: Stored }[] = [];
  for await (const { tenant: of, answer } of ofEach(tenants, sources, (quota) => quota.stored())) {
    // A tenant that stores nothing has a row too, because it has limits.
    const byKey = [["", NOTHING_STORED] as const, ...Object.entries(answer)];
    for (const [key, stored] of byKey) rows.push({ tenant: of, key, stored });
  }
  const byTenant = groupBy.includes("project_id");
  const byKey = groupBy.includes("api_key_id");
  const groups = Map.groupBy(rows, ({ tenant: of, key }) => `${byTenant ? of : ""}:${byKey ? key : ""}`);
  const directory = sources.directories.getByName();
  const results = await Promise.all(
    [...groups.values()].map(async (group) => {
      const sum = (kind: StoredLimit) => group.reduce((total, { stored }) => total + stored[kind], 0);
      const [first] = group;
      const of = byTenant || tenants.length === 1 ? first?.tenant : undefined;
      const limits = of === undefined || byKey ? null : await directory.tenantLimits(of);
      return {
        object: "organization.usage.storage.result",
        usage_bytes: sum("stored_bytes"),
        num_responses: sum("stored_responses"),
        num_conversations: sum("stored_conversations"),
        project_id: byTenant ? (first?.tenant ?? null) : null,
        api_key_id: byKey ? first?.key || null : null,
        limits: of === undefined || byKey ? null : storedLimits(limits, defaults),
      };
    }),
  );
  const now = unixSeconds();
  const data = [{ object: "bucket", start_time: now, end_time: now + 1, results }];
  return { object: "page", data, has_more: false, next_page: null };
}

/** Null if nothing limits the storage. */
function storedLimits(grants: Grants | null, defaults: StorageDefaults): Partial<Record<StoredLimit, number>> | null {
  const { tenant, diskShare } = storageOf(grants, null, defaults);
  const shown = diskShare > 0 ? { ...tenant, stored_bytes: diskShare } : tenant;
  const limits = STORED_LIMITS.map((kind) => [kind, shown?.[kind]] as const).filter(([, limit]) => limit != null);
  return limits.length === 0 ? null : Object.fromEntries(limits);
}

async function rowsOf(
  tenants: readonly string[],
  query: Parameters<Quota["usage"]>[0],
  sources: UsageSources,
): Promise<TenantUsage[]> {
  const rows: TenantUsage[] = [];
  if (query.until <= query.from) return rows;
  for await (const { tenant, answer } of ofEach(tenants, sources, (quota) => quota.usage(query))) {
    for (const row of answer) rows.push({ ...row, tenant });
    if (rows.length >= MAX_USAGE_ROWS) throw tooMuch("Choose a shorter time, or fewer keys.");
  }
  return rows;
}

/** The size of the vector stores of each tenant that has content in them, at the end of each bucket. */
async function sizesOf(
  tenants: readonly string[],
  starts: readonly number[],
  endOf: (start: number) => number,
  sources: UsageSources,
): Promise<TenantUsage[]> {
  const nothing = { key: "", model: "", requests: 0, input: 0, cached: 0, output: 0, cost: 0 };
  const times = starts.map((start) => endOf(start) * 1000);
  const rows: TenantUsage[] = [];
  for await (const { tenant, answer } of ofEach(tenants, sources, (quota) => quota.storeBytes(times))) {
    for (const [index, start] of starts.entries()) {
      const units = answer[index];
      if (units) rows.push({ ...nothing, tenant, start: start * 1000, units });
    }
  }
  return rows;
}

/** The answers of tenants' quotas, of which `CONCURRENT_TENANTS` are asked at once. */
async function* ofEach<Answer>(
  tenants: readonly string[],
  { quotas }: UsageSources,
  ask: (quota: Stub<"QUOTAS">) => Promise<Answer>,
) {
  for (let start = 0; start < tenants.length; start += CONCURRENT_TENANTS) {
    const asked = tenants.slice(start, start + CONCURRENT_TENANTS);
    yield* await Promise.all(asked.map(async (tenant) => ({ tenant, answer: await ask(quotas.getByName(tenant)) })));
  }
}

/** The tenants that the query names, or all that have keys or limits, or have used something. */
async function tenantsOf(
  projects: readonly string[] | undefined,
  { directories, configured }: UsageSources,
): Promise<readonly string[]> {
  const known = async () => [...configured, ...(await directories.getByName().tenants("", MAX_TENANTS + 1))];
  const tenants = projects ?? [...new Set(await known())];
  if (tenants.length <= MAX_TENANTS) return tenants;
  throw tooMuch(`Name at most ${MAX_TENANTS} tenants in 'project_ids'.`);
}

function tooMuch(advice: string): ApiError {
  return invalidRequest("project_ids", `The usage is too long for one answer. ${advice}`, "result_too_large");
}

function floor(time: number, seconds: number): number {
  return Math.floor(time / seconds) * seconds;
}

function pageStart(page: string, seconds: number): number {
  const start = Number(/^page_(\d{1,12})$/.exec(page)?.[1]);
  if (Number.isInteger(start) && start % seconds === 0) return start;
  throw invalidRequest("page", "Invalid 'page': expected the 'next_page' of an earlier answer.");
}
