import { list } from "@responses-edge/bounded-io/schemas/collections";
import { HOSTED_TOOL_NAMES, hostedKinds } from "@responses-edge/responses-api/hosted-tools";
import { REPETITION_GUARDS, type RepetitionGuardMode } from "@responses-edge/turn/repetition";
import { BUDGET_WINDOWS, type CountedLimits, endUserLimits, STORED_LIMITS } from "@responses-edge/usage-limits";
import { z } from "zod";
import { type Config, closedFields, VLLM_EXTRAS, type VllmExtra } from "../config/index.ts";

/** The limits and permissions of a key or a tenant: plain data, the same in the admin API and in storage. */

/** Most entries of one list. */
const MAX_NAMES = 256;

const count = z.int().min(0);

/** The limits of each end user, whom a request names as `safety_identifier` or `user`. */
const endUser = z.strictObject({ requests_per_minute: count.nullish(), tokens_per_minute: count.nullish() });

const budget = z.strictObject({
  tokens: count.nullish(),
  usd: z.number().min(0).nullish(),
  window: z.enum(BUDGET_WINDOWS).default("month"),
});

/** An allowed model: its name as clients use it, or the beginning of it and `*`. */
const modelName = z.string().min(1).max(512);

/** A host, with its port unless it is the scheme's default; `*.` before it stands for its subdomains. */
const host = z
  .string()
  .max(260)
  .regex(/^(\*\.)?[a-z0-9.-]+(:\d{1,5})?$|^\[[0-9a-f:.]+\](:\d{1,5})?$/, "Expected a host such as mcp.example.com.");

const [MIN_WEIGHT, MAX_WEIGHT] = [0.01, 1_000];

const TIER = /^[A-Za-z0-9_-]{1,64}$/;

/**
 * Limits and permissions. A field that is absent, or null, does not limit. Zero allows nothing. An unknown field is
 * refused, because a misspelt limit would not apply.
 */
export const grants = z.strictObject({
  models: list(modelName, { max: MAX_NAMES }).nullish(),
  requests_per_minute: count.nullish(),
  /** The limit of requests that read, delete or cancel. `readsPerMinute` has its default. */
  reads_per_minute: count.nullish(),
  tokens_per_minute: count.nullish(),
  max_concurrent_requests: count.nullish(),
  max_background_runs: count.nullish(),
  budget: budget.nullish(),
  end_user: endUser.nullish(),
  stored_bytes: count.nullish(),
  stored_responses: count.nullish(),
  stored_conversations: count.nullish(),
  stored_files: count.nullish(),
  stored_file_bytes: count.nullish(),
  max_output_tokens: z.int().min(1).nullish(),
  hosted_tools: list(z.enum(HOSTED_TOOL_NAMES), { max: MAX_NAMES }).nullish(),
  mcp_hosts: list(host, { max: MAX_NAMES }).nullish(),
  vllm_extras: list(z.enum(VLLM_EXTRAS), { max: MAX_NAMES }).nullish(),
  force_store_false: z.boolean().nullish(),
  /** In the place of `REPETITION_GUARD`. */
  repetition_guard: z.enum(REPETITION_GUARDS).nullish(),
  /** The share of a saturated model server, compared with other tenants, or with other keys of the tenant. */
  weight: z.number().min(MIN_WEIGHT).max(MAX_WEIGHT).nullish(),
  tier: z.string().regex(TIER, "Expected 1 to 64 letters, digits, '_' or '-'.").nullish(),
  /** The content of turns goes to the operator's sink (`CONTENT_LOG`). */
  log_content: z.boolean().nullish(),
  /** Homes that store something are noted, so that all of it can be exported and erased. */
  track_homes: z.boolean().nullish(),
});

export type Grants = z.output<typeof grants>;

/** Most files, and most bytes of them; null is no limit. */
export interface FileLimit {
  files: number | null;
  bytes: number | null;
}

/** The limits of the files of a tenant, and of those that one key has uploaded. */
export interface FileLimits {
  tenant: FileLimit;
  key: FileLimit;
}

function fileLimitOf(given: Grants | null): FileLimit {
  return { files: given?.stored_files ?? null, bytes: given?.stored_file_bytes ?? null };
}

/** Tells whether grants limit what is stored. */
function limitsStored(given: Grants | null): boolean {
  return given !== null && STORED_LIMITS.some((limit) => given[limit] != null);
}

/** The limits of storage of tenants that have none of their own: exact, or by what was stored a moment ago. Bytes; 0 is no limit. */
export interface StorageDefaults {
  storedBytesPerTenant: number;
  diskShare: number;
}

/**
 * A tenant's grants with the default of bytes that it may store, the share of the disk that it may fill otherwise (0 is any
 * number of bytes), and whether what its key stores is counted.
 */
export function storageOf(ofTenant: Grants | null, ofKey: Grants | null, defaults: StorageDefaults) {
  const { storedBytesPerTenant: bytes } = defaults;
  const tenant = bytes === 0 || ofTenant?.stored_bytes != null ? ofTenant : { ...ofTenant, stored_bytes: bytes };
  const diskShare = tenant?.stored_bytes == null ? defaults.diskShare : 0;
  return { tenant, diskShare, isStoredCounted: diskShare > 0 || limitsStored(tenant) || limitsStored(ofKey) };
}

/** The rules for a key's requests, apart from counted limits: its own grants within its tenant's. */
export interface Policy {
  /** Each list must have the model. */
  models: readonly (readonly string[])[];
  maxOutputTokens: number | undefined;
  hostedTools: readonly (typeof HOSTED_TOOL_NAMES)[number][] | undefined;
  mcpHosts: readonly (readonly string[])[];
  vllmExtras: readonly VllmExtra[] | undefined;
  forceStoreFalse: boolean;
  tracksHomes: boolean;
  logsContent: boolean;
  files: FileLimits;
  repetitionGuard: RepetitionGuardMode | undefined;
  tier: string | undefined;
  /** The shares of a saturated model server. */
  tenantWeight: number;
  keyWeight: number;
}

/** The policy of a key and its tenant. A key is never allowed more than its tenant; its tier and its `repetition_guard` override its tenant's. */
export function policyOf(tenant: Grants | null, key: Grants | null): Policy {
  const both = [tenant, key].filter((each) => each !== null);
  const caps = both.map((each) => each.max_output_tokens).filter((cap) => cap != null);
  return {
    models: both.map(({ models }) => models).filter((models) => models != null),
    maxOutputTokens: caps.length === 0 ? undefined : Math.min(...caps),
    hostedTools: intersection(both.map((each) => each.hosted_tools)),
    mcpHosts: both.map(({ mcp_hosts: hosts }) => hosts).filter((hosts) => hosts != null),
    vllmExtras: intersection(both.map((each) => each.vllm_extras)),
    forceStoreFalse: both.some((each) => each.force_store_false === true),
    tracksHomes: both.some((each) => each.track_homes === true),
    logsContent: both.some((each) => each.log_content === true),
    files: { tenant: fileLimitOf(tenant), key: fileLimitOf(key) },
    repetitionGuard: key?.repetition_guard ?? tenant?.repetition_guard ?? undefined,
    tier: key?.tier ?? tenant?.tier ?? undefined,
    tenantWeight: tenant?.weight ?? 1,
    keyWeight: key?.weight ?? 1,
  };
}

/** The names that are in all given lists; undefined if no list is given. */
function intersection<Name>(lists: readonly (readonly Name[] | null | undefined)[]): Name[] | undefined {
  const [first, ...rest] = lists.filter((each) => each != null);
  return first?.filter((name) => rest.every((other) => other.includes(name)));
}

/** Tells whether grants have counted limits. */
export function isCounted(given: Grants | null): boolean {
  if (!given) return false;
  const { requests_per_minute: requests, tokens_per_minute: tokens, max_concurrent_requests: slots } = given;
  const { reads_per_minute: reads, max_background_runs: runs, budget } = given;
  const limits = [requests, reads, tokens, slots, runs, budget?.tokens, budget?.usd];
  const limitsOthers = limitsStored(given) || endUserLimits(null, given) !== undefined;
  return limitsOthers || limits.some((limit) => limit != null);
}

/** Tells whether a list of models has one, by its name or by a prefix. */
export function hasModel(models: readonly string[], name: string): boolean {
  return models.some((each) => (each.endsWith("*") ? name.startsWith(each.slice(0, -1)) : each === name));
}

/** Tells whether a list of hosts has a URL's. */
export function hasHost(hosts: readonly string[], { host: wanted }: URL): boolean {
  return hosts.some((each) => (each.startsWith("*.") ? wanted.endsWith(each.slice(1)) : each === wanted));
}

const restrictedConfigs = new WeakMap<Policy, { of: Config; config: Config }>();

/** The configuration as a policy restricts it. Made once for a policy. */
export function restrictedConfig(config: Config, policy: Policy): Config {
  const known = restrictedConfigs.get(policy);
  if (known?.of === config) return known.config;
  const { hostedTools, mcpHosts, vllmExtras, models, repetitionGuard } = policy;
  const allowed = (names: readonly string[]) => names.filter((name) => models.every((each) => hasModel(each, name)));
  const routes = [...config.routes].map(([name, { targets, fallbacks, contextFallbacks }]) => {
    return [name, { targets, fallbacks: allowed(fallbacks), contextFallbacks: allowed(contextFallbacks) }] as const;
  });
  const { tools } = config;
  const kinds = hostedTools && hostedKinds(hostedTools);
  const made = {
    ...config,
    tools: {
      ...tools,
      ...(kinds && { offeredKinds: new Set([...tools.offeredKinds].filter((kind) => kinds.has(kind))) }),
      ...(mcpHosts.length > 0 && {
        mcpGuard: { ...tools.mcpGuard, limit: (url: URL) => mcpHosts.every((hosts) => hasHost(hosts, url)) },
      }),
    },
    routes: new Map(routes),
    ...(repetitionGuard && { repetitionGuard }),
    ...(vllmExtras && { closedFields: closedFields(vllmExtras, config.vllmExtraFields) }),
  };
  restrictedConfigs.set(policy, { of: config, config: made });
  return made;
}

/** The caller, as its key identifies it. Made once for a key's cached record, and shared by its requests. */
export interface Identity {
  tenant: string;
  /** Names the key in counters, usage and the audit log: its id, or its source. Never the key itself. */
  keyId: string;
  /** Undefined if only the deployment's configuration restricts the caller. */
  policy: Policy | undefined;
  /** Undefined if nothing is limited: such a caller waits for no call. Its usage is counted all the same. */
  counted: CountedLimits | undefined;
  /** The limits of each end user; undefined if there are none. */
  endUser?: CountedLimits | undefined;
  /** The key id that stored data is counted for; undefined if it is not counted. */
  storingKey: string | undefined;
  /** The bytes of the disk that the tenant may fill; absent or 0: any number, or another limit applies. */
  diskShare?: number;
}

/** Key ids of callers that the directory does not know, beside those of `API_KEYS`. */
export const JWT_KEY = "jwt";
export const NO_KEY = "none";
