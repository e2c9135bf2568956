import {
  type Grants,
  NOTHING_STORED,
  STORED_LIMITS,
  type Stored,
  type StoredLimit,
  withStoredBytes,
} from "../contract/grants.ts";
import { type ApiError, invalidRequest } from "../protocol/errors.ts";
import { DIRECTORY, type KeyDirectory } from "../store/keys/key-directory.ts";
import type { Quota } from "../store/quota/quota.ts";
import { MAX_USAGE_ROWS, type UsageRow } from "../store/quota/usage.ts";

/** Usage, in the shape of OpenAI's `GET /v1/organization/usage/completions`; its projects are tenants here. */

/** A query of usage. Times are Unix seconds. */
export interface UsageRequest {
  from: number;
  until?: number | undefined;
  width: UsageWidth;
  groupBy: readonly UsageGroup[];
  projects?: readonly string[] | undefined;
  keys?: readonly string[] | undefined;
  models?: readonly string[] | undefined;
  /** Buckets. */
  limit?: number | undefined;
  page?: string | undefined;
}

export const USAGE_WIDTHS = ["1h", "1d"] as const;
export type UsageWidth = (typeof USAGE_WIDTHS)[number];
export const USAGE_GROUPS = ["project_id", "api_key_id", "model"] as const;
export type UsageGroup = (typeof USAGE_GROUPS)[number];

const WIDTHS: Record<UsageWidth, { seconds: number; buckets: number; most: number }> = {
  "1h": { seconds: 3_600, buckets: 24, most: 168 },
  "1d": { seconds: 86_400, buckets: 7, most: 31 },
};

/** Tenants that one answer can be about: each is an object to be asked. */
const MAX_TENANTS = 200;
const CONCURRENT_TENANTS = 16;

/** Where usage is found. */
export interface UsageSources {
  directories: DurableObjectNamespace<KeyDirectory>;
  quotas: DurableObjectNamespace<Quota>;
}

/** The usage of one group in a bucket. */
export interface UsageResult {
  object: "organization.usage.completions.result";
  input_tokens: number;
  input_cached_tokens: number;
  output_tokens: number;
  num_model_requests: number;
  project_id: string | null;
  api_key_id: string | null;
  model: string | null;
  /** The cost by MODEL_PRICES; OpenAI has that elsewhere. */
  cost_usd: number;
}

export interface UsagePage {
  object: "page";
  data: { object: "bucket"; start_time: number; end_time: number; results: UsageResult[] }[];
  has_more: boolean;
  next_page: string | null;
}

/** Usage of one tenant, or, without one, of those that are asked for: of all, where none is. */
export async function readUsage(
  tenant: string | undefined,
  request: UsageRequest,
  sources: UsageSources,
): Promise<UsagePage> {
  const { seconds, buckets, most } = WIDTHS[request.width];
  const limit = request.limit ?? buckets;
  if (limit > most) {
    throw invalidRequest(
      "limit",
      `Invalid 'limit': expected a value <= ${most} with 'bucket_width=${request.width}'.`,
      "above_max_value",
    );
  }
  const first = request.page === undefined ? floor(request.from, seconds) : pageStart(request.page, seconds);
  const end = Math.min(request.until ?? Number.POSITIVE_INFINITY, Math.floor(Date.now() / 1000) + 1);
  const starts: number[] = [];
  for (let start = first; start < end && starts.length < limit; start += seconds) starts.push(start);
  const next = first + starts.length * seconds;
  const query = { from: first * 1000, until: Math.min(next, end) * 1000, keys: request.keys, models: request.models };
  const tenants = tenant === undefined ? await tenantsOf(request, sources) : [tenant];
  const rows = await rowsOf(tenants, query, sources);
  const byBucket = Map.groupBy(rows, ({ start }) => floor(start / 1000, seconds));
  const hasMore = next < end && starts.length === limit;
  return {
    object: "page",
    data: starts.map((start) => ({
      object: "bucket",
      start_time: start,
      end_time: start + seconds,
      results: grouped(byBucket.get(start) ?? [], request.groupBy),
    })),
    has_more: hasMore,
    next_page: hasMore ? `page_${next}` : null,
  };
}

/** A query of storage. */
export interface StorageRequest {
  groupBy: readonly StorageGroup[];
  projects?: readonly string[] | undefined;
}

export const STORAGE_GROUPS = ["project_id", "api_key_id"] as const;
export type StorageGroup = (typeof STORAGE_GROUPS)[number];

/** Current storage, in the shape of OpenAI's usage: one bucket, of this moment. */
export interface StoragePage {
  object: "page";
  data: { object: "bucket"; start_time: number; end_time: number; results: StorageResult[] }[];
  has_more: false;
  next_page: null;
}

export interface StorageResult {
  object: "organization.usage.storage.result";
  usage_bytes: number;
  num_responses: number;
  num_conversations: number;
  project_id: string | null;
  api_key_id: string | null;
  /** The limits of one tenant's storage, if its keys are not grouped. Null if nothing limits it, and in every other result. */
  limits: Partial<Record<StoredLimit, number>> | null;
}

/** The current storage of one tenant, or, without one, of those that are asked for: of all, if none is. */
export async function readStorage(
  tenant: string | undefined,
  { groupBy, projects }: StorageRequest,
  sources: UsageSources,
  storedBytesPerTenant: number,
): Promise<StoragePage> {
  const tenants = tenant === undefined ? await tenantsOf({ projects }, sources) : [tenant];
  const rows: { tenant: string; key: string; stored: Stored }[] = [];
  await forEachTenant(tenants, async (of) => {
    const byKey = Object.entries(await sources.quotas.getByName(of).stored());
    // A tenant that stores nothing has a row too, because it has limits.
    for (const [key, stored] of [["", NOTHING_STORED] as const, ...byKey]) rows.push({ tenant: of, key, stored });
  });
  const byTenant = groupBy.includes("project_id");
  const byKey = groupBy.includes("api_key_id");
  const groups = Map.groupBy(rows, ({ tenant: of, key }) => `${byTenant ? of : ""}:${byKey ? key : ""}`);
  const directory = sources.directories.getByName(DIRECTORY);
  const results = await Promise.all(
    [...groups.values()].map(async (group): Promise<StorageResult> => {
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
        limits: of === undefined || byKey ? null : storedLimits(withStoredBytes(limits, storedBytesPerTenant)),
      };
    }),
  );
  const now = Math.floor(Date.now() / 1000);
  return {
    object: "page",
    data: [{ object: "bucket", start_time: now, end_time: now + 1, results }],
    has_more: false,
    next_page: null,
  };
}

function storedLimits(grants: Grants | null): StorageResult["limits"] {
  const limits = STORED_LIMITS.map((kind) => [kind, grants?.[kind]] as const).filter(([, limit]) => limit != null);
  return limits.length === 0 ? null : Object.fromEntries(limits);
}

/** Does something for each tenant, a few at a time. */
async function forEachTenant(tenants: readonly string[], work: (tenant: string) => Promise<void>): Promise<void> {
  for (let start = 0; start < tenants.length; start += CONCURRENT_TENANTS) {
    await Promise.all(tenants.slice(start, start + CONCURRENT_TENANTS).map(work));
  }
}

type TenantRow = UsageRow & { tenant: string };

async function rowsOf(
  tenants: readonly string[],
  query: Parameters<Quota["usage"]>[0],
  { quotas }: UsageSources,
): Promise<TenantRow[]> {
  const rows: TenantRow[] = [];
  if (query.until <= query.from) return rows;
  for (let start = 0; start < tenants.length; start += CONCURRENT_TENANTS) {
    const asked = tenants.slice(start, start + CONCURRENT_TENANTS);
    const answers = await Promise.all(asked.map((tenant) => quotas.getByName(tenant).usage(query)));
    for (const [index, answer] of answers.entries()) {
      for (const row of answer) rows.push({ ...row, tenant: asked[index] ?? "" });
    }
    if (rows.length >= MAX_USAGE_ROWS) throw tooMuch("Ask for a shorter time, or for fewer keys.");
  }
  return rows;
}

/** The tenants that are asked for; without any, all that have keys or limits. */
async function tenantsOf(
  { projects }: Pick<UsageRequest, "projects">,
  { directories }: UsageSources,
): Promise<readonly string[]> {
  const tenants = projects ?? (await directories.getByName(DIRECTORY).tenants("", MAX_TENANTS + 1));
  if (tenants.length <= MAX_TENANTS) return tenants;
  throw tooMuch(`Name at most ${MAX_TENANTS} tenants in 'project_ids'.`);
}

function tooMuch(advice: string): ApiError {
  return invalidRequest("project_ids", `There is more usage than one answer may have. ${advice}`, "result_too_large");
}

function grouped(rows: readonly TenantRow[], groupBy: readonly UsageGroup[]): UsageResult[] {
  const groups = new Map<string, UsageResult>();
  for (const row of rows) {
    const names = {
      project_id: groupBy.includes("project_id") ? row.tenant : null,
      api_key_id: groupBy.includes("api_key_id") ? row.key : null,
      model: groupBy.includes("model") ? row.model : null,
    };
    const group = JSON.stringify(names);
    const before = groups.get(group);
    groups.set(group, {
      object: "organization.usage.completions.result",
      input_tokens: (before?.input_tokens ?? 0) + row.input,
      input_cached_tokens: (before?.input_cached_tokens ?? 0) + row.cached,
      output_tokens: (before?.output_tokens ?? 0) + row.output,
      num_model_requests: (before?.num_model_requests ?? 0) + row.requests,
      ...names,
      cost_usd: (before?.cost_usd ?? 0) + row.cost / 1e6,
    });
  }
  return [...groups.values()];
}

function floor(time: number, seconds: number): number {
  return Math.floor(time / seconds) * seconds;
}

function pageStart(page: string, seconds: number): number {
  const start = Number(/^page_(\d{1,12})$/.exec(page)?.[1]);
  if (Number.isInteger(start) && start % seconds === 0) return start;
  throw invalidRequest("page", "Expected the 'next_page' of an answer.");
}
