import { list } from "@responses-edge/responses-api/collections";
import { HOSTED_TOOL_NAMES, type HostedType, hostedKinds } from "@responses-edge/responses-api/hosted-tools";
import { BUDGET_WINDOWS, type CountedLimits, endUserLimits, STORED_LIMITS } from "@responses-edge/usage-limits";
import { z } from "zod";
import { type Config, VLLM_EXTRAS, type VllmExtra } from "../config/index.ts";

/** The limits and permissions of a key, or a tenant: as the admin API takes it, as it is kept, and as it is shown. All is plain data. */

/** Entries of one list. */
const MAX_NAMES = 256;

const count = z.int().min(0);

/** The limits of each end user, as requests name it: `safety_identifier`, or `user`. */
const endUser = z.strictObject({ requests_per_minute: count.nullish(), tokens_per_minute: count.nullish() });

const budget = z.strictObject({
  tokens: count.nullish(),
  usd: z.number().min(0).nullish(),
  window: z.enum(BUDGET_WINDOWS).default("month"),
});

/** An allowed model: its name as clients say it, or the beginning of it and `*`. */
const modelName = z.string().min(1).max(512);

/** A host, with its port where that is not the scheme's own; `*.` before it means the hosts below it. */
const host = z
  .string()
  .max(260)
  .regex(/^(\*\.)?[a-z0-9.-]+(:\d{1,5})?$|^\[[0-9a-f:.]+\](:\d{1,5})?$/, "Expected a host such as mcp.example.com.");

const TIER = /^[A-Za-z0-9_-]{1,64}$/;

/**
 * Limits and permissions. A field that is absent, or null, does not limit. Zero lets nothing through. A field that nobody knows is refused:
 * who misspells a limit must not believe that there is one.
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
  tier: z.string().regex(TIER, "Expected 1 to 64 letters, digits, '_' or '-'.").nullish(),
  /** Usage is counted also where nothing limits it. */
  track_usage: z.boolean().nullish(),
  /** The contents of turns go to the operator's sink (`CONTENT_LOG`). */
  log_content: z.boolean().nullish(),
  /** It is noted where something is kept, so that all of it can be exported and erased. */
  track_homes: z.boolean().nullish(),
});

export type Grants = z.output<typeof grants>;

/** How many files may be kept, and how many bytes of them; null is any number. */
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

/** Tells whether anything of what is kept is limited. */
export function limitsStored(given: Grants | null): boolean {
  return given !== null && STORED_LIMITS.some((limit) => given[limit] != null);
}

/** A tenant's grants, with what it may store where they do not say it, in bytes; 0 is any amount. */
export function withStoredBytes(given: Grants | null, bytes: number): Grants | null {
  return bytes === 0 || given?.stored_bytes != null ? given : { ...given, stored_bytes: bytes };
}

/** The rules for requests of a key, apart from what is counted: its own grants within its tenant's. */
export interface Policy {
  /** Each list must have the model. */
  models: readonly (readonly string[])[];
  maxOutputTokens: number | undefined;
  hostedTools: readonly HostedType[] | undefined;
  mcpHosts: readonly (readonly string[])[];
  vllmExtras: readonly VllmExtra[] | undefined;
  forceStoreFalse: boolean;
  tracksHomes: boolean;
  logsContent: boolean;
  files: FileLimits;
  tier: string | undefined;
}

/** The policy of a key and its tenant. A key is never allowed more than its tenant; its tier goes before its tenant's. */
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
    tier: key?.tier ?? tenant?.tier ?? undefined,
  };
}

/** The names that all given lists have; undefined where none is given. */
function intersection<Name>(lists: readonly (readonly Name[] | null | undefined)[]): Name[] | undefined {
  const [first, ...rest] = lists.filter((each) => each != null);
  return first?.filter((name) => rest.every((other) => other.includes(name)));
}

/** Tells whether anything of grants has to be counted. */
export function isCounted(given: Grants | null): boolean {
  if (!given) return false;
  const { requests_per_minute: requests, tokens_per_minute: tokens, max_concurrent_requests: slots } = given;
  const { reads_per_minute: reads, max_background_runs: runs, budget } = given;
  const limits = [requests, reads, tokens, slots, runs, budget?.tokens, budget?.usd];
  const isCountedAtAll = given.track_usage === true || limitsStored(given) || endUserLimits(null, given) !== undefined;
  return isCountedAtAll || limits.some((limit) => limit != null);
}

/** Tells whether a list of models has one: by its name, or by a beginning of it. */
export function hasModel(models: readonly string[], name: string): boolean {
  return models.some((each) => (each.endsWith("*") ? name.startsWith(each.slice(0, -1)) : each === name));
}

/** Tells whether a list of hosts has that of a URL. */
export function hasHost(hosts: readonly string[], { host: wanted }: URL): boolean {
  return hosts.some((each) => (each.startsWith("*.") ? wanted.endsWith(each.slice(1)) : each === wanted));
}

const restrictedConfigs = new WeakMap<Policy, { of: Config; config: Config }>();

/** The configuration that a policy leaves to its callers. Made once for a policy. */
export function restrictedConfig(config: Config, policy: Policy): Config {
  const known = restrictedConfigs.get(policy);
  if (known?.of === config) return known.config;
  const { hostedTools, mcpHosts, vllmExtras, models } = policy;
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
      ...(mcpHosts.length > 0 && { mayCallMcp: (url: URL) => mcpHosts.every((hosts) => hasHost(hosts, url)) }),
    },
    routes: new Map(routes),
    ...(vllmExtras && { vllmExtras: new Set(vllmExtras) }),
  };
  restrictedConfigs.set(policy, { of: config, config: made });
  return made;
}

/** The caller, as its key tells. Made once for what is known of a key, and shared by the requests that it makes. */
export interface Identity {
  tenant: string;
  /** Names the key in counters, usage and the audit log: the id of one, or where it is from. Never the key itself. */
  keyId: string;
  /** Undefined where nothing but the deployment's configuration binds the caller. */
  policy: Policy | undefined;
  /** Undefined where nothing is counted: such a caller costs no call. */
  counted: CountedLimits | undefined;
  /** The limits of each end user; undefined where there are none. */
  endUser?: CountedLimits | undefined;
  /** The key id under which its things are stored; undefined where nothing counts what is stored. */
  storingKey: string | undefined;
}

/** Key ids of callers that the directory does not know. */
export const CONFIGURED_KEY = "configured";
export const JWT_KEY = "jwt";
export const NO_KEY = "none";
