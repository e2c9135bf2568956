import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import { z } from "zod";
import { BUILTIN_LABELS, type BuiltinKind, HOSTED_TOOL_NAMES, hostedKinds } from "../protocol/hosted-tools.ts";
import { parseKeyValues } from "../protocol/key-values.ts";
import { logLine } from "../protocol/log-line.ts";
import { allowList, isPublicUrl } from "../protocol/public-url.ts";
import { type Fetch, type OperatorNetwork, operatorNetwork, type PrivateNetwork, publicFetch } from "./network.ts";
import { type EngineName, type ModelServerConfig, readModelServers, TRANSPORTS } from "./upstreams.ts";
import { headerSecret, httpUrl, serverUrl } from "./values.ts";

/** A key that may call this server: the SHA-256 of its text, and the tenant it names. */
export interface ApiKey {
  tenant: string;
  sha256: Uint8Array;
}

/** A root key of the admin API: the SHA-256 of its text, and who acts with it, for the audit log. */
export interface AdminKey {
  name: string;
  sha256: Uint8Array;
}

/** Signatures that a JWT may have: of asymmetric keys alone. A shared secret, or `none`, proves nothing here. */
export const JWT_ALGORITHMS = [
  ...["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"],
  ...["ES256", "ES384", "ES512", "EdDSA", "Ed25519"],
] as readonly string[];

/** The issuer whose tokens are a second kind of key. */
export interface JwtConfig {
  issuer: string;
  audience: string;
  jwksUrl: string;
  /** The claim that names the tenant. */
  tenantClaim: string;
  /** What the names of tokens' tenants begin with; "" where a token's tenant may be that of a key, too. */
  tenantPrefix: string;
  algorithms: readonly string[];
  /** How long the issuer's keys are believed when it cannot be reached, in milliseconds. */
  staleMs: number;
  /** Reaches the issuer. */
  fetch: Fetch;
}

/** Begins the names of tokens' tenants with `JWT_TENANTS=own`. No tenant in `API_KEYS` has a dot in its name. */
export const TOKEN_TENANT_PREFIX = "jwt.";

/** What a model's tokens cost, in dollars a million. Cached input costs what input does where nothing is said of it. */
export interface ModelPrice {
  input: number;
  cached_input?: number | undefined;
  output: number;
}

/** Keys that are made without redeploying, and what is counted of them. */
export interface KeyConfig {
  /** Without any there is no admin API, and no key of its making lets anybody in. */
  adminKeys: AdminKey[];
  /** How long what is known of a key is believed: the bound within which a revocation holds. Milliseconds. */
  cacheMs: number;
  /** Output tokens that a request without `max_output_tokens` reserves. */
  reservedOutputTokens: number;
  /** By the name that clients use; `*` is every other model. */
  prices: Readonly<Record<string, ModelPrice>>;
  /** What each tenant may store whose own limits do not say it, in bytes; 0 is any amount. */
  storedBytesPerTenant: number;
  usageRetentionMs: number;
  auditRetentionMs: number;
}

/** A key of the operator's, from which the keys of tenants are derived. `kid` names it in what it has sealed. */
export interface EncryptionKey {
  kid: string;
  secret: Uint8Array;
}

export type { EngineName, ModelServerConfig } from "./upstreams.ts";

/**
 * Whether vLLM's grammar lets a model choose between a call and the final text's format: never, where a tool is strict
 * (0.32, with a tool parser that has structural tags), or always (`--tool-strict-level function` or higher).
 */
export type FormatWithTools = "never" | "strict" | "always";

/** vLLM's fields that this server checks, and that clients may send only where the operator opens them. */
export const VLLM_EXTRAS = [
  "priority",
  "kv_transfer_params",
  "chat_template_kwargs",
  "mm_processor_kwargs",
  "vllm_xargs",
] as const;
export type VllmExtra = (typeof VLLM_EXTRAS)[number];

/** vLLM's own endpoints that may be opened to clients: their paths below `/v1/`, or below `/` for the last two. */
export const PASSTHROUGH_ENDPOINTS = [
  "chat/completions",
  "completions",
  "embeddings",
  "rerank",
  "score",
  "audio/transcriptions",
  "audio/translations",
  "messages",
  "tokenize",
  "detokenize",
] as const;
export type PassthroughEndpoint = (typeof PASSTHROUGH_ENDPOINTS)[number];

/** How prompts for gpt-oss are written. */
export interface HarmonyConfig {
  /** The date in the system message, `YYYY-MM-DD`; undefined is the turn's own. */
  startDate: string | undefined;
  /** Whether instructions stand in the system message, behind the model's identity, rather than in the developer's. */
  systemInstructions: boolean;
  /** Where the header of a tool's answer has its recipient: behind the channel, or before it. */
  toolHeader: "channel-first" | "recipient-first";
}

/** What this server may do for a model. */
export interface ToolConfig {
  /** MCP URLs of the operator's tool servers. */
  servers: Partial<Record<BuiltinKind, string>>;
  /** Sent to them, and what session names are made with. */
  apiKey: string | undefined;
  /** Labels of `mcp` tools that mean a built-in tool, as vLLM's `VLLM_GPT_OSS_SYSTEM_TOOL_MCP_LABELS`. */
  builtinLabels: ReadonlyMap<string, BuiltinKind>;
  /** Servers that requests may name, and pages that the browser may open, beside public ones. */
  isListed: (url: URL) => boolean;
  /** A DNS-over-HTTPS server for looking names up that requests bring: their addresses must be public, too. */
  dohUrl: string | undefined;
  callTimeoutMs: number;
  /** Of all calls of a turn. */
  turnTimeMs: number;
  /** Of one call's output, and the tenfold of a turn's. */
  outputBytes: number;
  maxRounds: number;
  /** `kind`s of the hosted tools that are offered. A request's tool of another kind is as if it were not there. */
  offeredKinds: ReadonlySet<string>;
  /** Whether a caller may have an MCP server called, where not all are allowed to it. */
  mayCallMcp?: ((url: URL) => boolean) | undefined;
  searxngUrl: string | undefined;
  braveApiKey: string | undefined;
  /** Reaches what the operator has named: servers of these, and those that are listed. */
  fetch: Fetch;
}

/** How often the deltas of a run are written to its event log, in milliseconds: while somebody reads it, and else. */
export interface EventLogConfig {
  intervalMs: number;
  unreadIntervalMs: number;
}

/** Where telemetry of one kind is sent to by OTLP over HTTP, as JSON. */
export interface OtlpTarget {
  url: string;
  headers: Readonly<Record<string, string>>;
  /** Reaches the collector. */
  fetch: Fetch;
}

/** Analytics Engine, as far as it is used. */
export interface AnalyticsDataset {
  writeDataPoint(point: { indexes: string[]; blobs: string[]; doubles: number[] }): void;
}

/** What is told of requests, and to whom (docs/telemetry.md). */
export interface TelemetryConfig {
  /** Which wide events are logged; and of those without an error how many, from 0 to 1. */
  log: { events: "all" | "errors" | "none"; ratio: number };
  analytics: AnalyticsDataset | undefined;
  traces: OtlpTarget | undefined;
  metrics: OtlpTarget | undefined;
  /** How long a collector may take over one export. */
  exportTimeoutMs: number;
  /** Who sends it, in the conventions' words: `service.name` and others. */
  resource: Readonly<Record<string, string>>;
  /** Of new traces so many are kept, from 0 to 1; `asksParent`: a caller that has decided already has decided. */
  sampler: { ratio: number; asksParent: boolean };
  /** Whether model server and MCP servers are told of traces. */
  handsTracesOn: boolean;
  /** `/metrics`; with the SHA-256 of its token, where it has one. */
  prometheus: { tokenSha256: Uint8Array | undefined; byTenant: boolean } | undefined;
}

/** The validated configuration. Durations in milliseconds, sizes in bytes. */
export interface Config {
  /** At least one. Most deployments have no more. */
  modelServers: readonly ModelServerConfig[];
  /** Of several servers none gets more than so many times the mean of what this isolate has in flight. */
  loadFactor: number;
  /** How long a server's headers are waited for while another one is free. */
  failoverMs: number;
  /** How often a board asks all servers how they are; 0 is no board. */
  boardMs: number;
  /** What is done about a server that does not keep tenants' prompts apart; undefined where there are no two tenants. */
  unsaltedServers: "warn" | "refuse" | undefined;
  /** Whether answers tell which server has made them. */
  showsUpstream: boolean;
  /** Whether streams have Open Responses' names of events for every client. */
  speaksOpenResponses: boolean;
  connectTimeoutMs: number;
  firstByteTimeoutMs: number;
  idleTimeoutMs: number;
  /** Silence after which the model server is asked whether it is still there. */
  silenceMs: number;
  /** How often a generation that broke off is taken up again; 0 lets it fail. */
  maxRetries: number;
  /** How long a background run waits for a model server that is away; and a foreground turn, while its client does. */
  recoveryTimeMs: number;
  foregroundRecoveryTimeMs: number;
  modelAliases: Record<string, string>;
  /** The engine of models whose name and root do not tell it, by the name that vLLM knows. */
  modelEngines: Record<string, EngineName>;
  formatWithTools: FormatWithTools;
  /** What the operator says of models in Codex's catalogue, by their names; `*` of all. */
  codexModels: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  /** Fields that this server does not know, and passes on to vLLM unchecked. */
  vllmExtraFields: readonly string[];
  /** No client gets to see what a model thinks. */
  hidesReasoning: boolean;
  /** Tokens that a model may think, by its name at vLLM and the request's `reasoning.effort`. */
  thinkingBudgets: Readonly<Record<string, Readonly<Record<string, number>>>>;
  harmony: HarmonyConfig;
  tools: ToolConfig;
  /** Whether tools of a type that this server does not have are left out, rather than refused. */
  dropsUnknownTools: boolean;
  /** Images and videos that vLLM may be sent to, beside public ones. */
  isMediaListed: (url: URL) => boolean;
  /** Those of `PASSTHROUGH_ENDPOINTS` that are open to clients. */
  passthroughEndpoints: ReadonlySet<PassthroughEndpoint>;
  /** Those of `VLLM_EXTRAS` that are open to clients. */
  vllmExtras: ReadonlySet<VllmExtra>;
  /**
   * vLLM's `priority` by tier, lower is sooner; `default` is that of callers without one, `background` is added for runs
   * in the background. Without any, none is sent but what clients may send themselves.
   */
  priorities: Readonly<Record<string, number>>;
  apiKeys: ApiKey[];
  keys: KeyConfig;
  jwt: JwtConfig | undefined;
  /** Whether nobody is served without a key: there are keys of one kind or another. */
  wantsKeys: boolean;
  /** The first one encrypts, all of them decrypt. Without any, nothing is encrypted. */
  encryptionKeys: EncryptionKey[];
  allowAnonymous: boolean;
  /** 0 keeps responses for ever. */
  retentionMs: number;
  /** 0 does not wait. */
  conversationLockWaitMs: number;
  /** Conversation trees that begin in one home, before the next one is taken. */
  treesPerHome: number;
  eventLog: EventLogConfig;
  webhook: { url: string; secret: Uint8Array; fetch: Fetch } | undefined;
  /** Undefined where nobody wants to know anything. */
  telemetry: TelemetryConfig | undefined;
  maxRequestBytes: number;
  /** Turns in one isolate, of all tenants. */
  maxOpenTurns: number;
  /** Of one tenant in one process: runs in homes, turns that hold a conversation or wait for one, and open WebSockets. */
  maxBackgroundRunsPerTenant: number;
  maxOpenConversationsPerTenant: number;
  maxWebSocketsPerTenant: number;
  heartbeatMs: number;
  /** Whether answers without `stream` have heartbeats, too: white space before the JSON. */
  jsonHeartbeats: boolean;
  /** After which a WebSocket connection is closed, whatever it does. */
  socketLifetimeMs: number;
  /** How long the client of a WebSocket may leave unread what was sent to it. */
  socketSendTimeoutMs: number;
}

/** The deployment's configuration is unusable: one mistake for each variable at fault, which never tells its value. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
  /** `NAME: what is expected of it`. */
  readonly mistakes: readonly string[];

  constructor(mistakes: readonly string[]) {
    super(mistakes.join("; "));
    this.mistakes = mistakes;
  }
}

const DAY_MS = 86_400_000;

/** Standard Webhooks' least. */
const MIN_WEBHOOK_SECRET_BYTES = 24;

/** The longest timer: a later one rings at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** A hundred years: what is added to the time of day stays a date. */
const MAX_RETENTION_DAYS = 36_500;

/** As long as AES-256's own key. */
const MIN_ENCRYPTION_KEY_BYTES = 32;

/** As many runs may live in a home: each tree of it can have one. */
const MAX_TREES_PER_HOME = 64;

/** No request of this size fits into a Worker's memory; a larger number is a slip of the pen. */
const MAX_MAX_REQUEST_BYTES = 1024 ** 3;

function integer(fallback: number, minimum: number, maximum = Number.MAX_SAFE_INTEGER) {
  return z
    .string()
    .regex(/^\d+$/, "expected a whole number")
    .transform(Number)
    .refine((value) => value >= minimum, `expected at least ${minimum}`)
    .refine((value) => value <= maximum, `expected at most ${maximum}`)
    .default(fallback);
}

/** A JSON object; `example` is shown to who has written something else. */
function jsonMap<Value extends z.ZodType>(value: Value, example: string) {
  return z
    .string()
    .transform((text, context) => {
      try {
        return JSON.parse(text) as unknown;
      } catch {
        context.addIssue({ code: "custom", message: `expected a JSON object such as ${example}` });
        return z.NEVER;
      }
    })
    .pipe(z.record(z.string().min(1), value))
    .default({});
}

/** What this server says itself: a field of the client's own must not say otherwise. */
const OWN_FIELDS = new Set([
  ...["continue_final_message", "add_generation_prompt", "echo", "logprobs", "max_completion_tokens", "max_tokens"],
  ...["messages", "model", "n", "prompt", "prompt_embeds", "request_id", "response_format", "return_token_ids"],
  ...["return_tokens_as_token_ids", "stream", "stream_options", "suffix", "tool_choice", "tools", "use_beam_search"],
]);

/** Names of fields, separated by commas or white space. */
const extraFields = z
  .string()
  .transform(listed)
  .refine((names) => names.every((name) => /^[a-z_]{1,64}$/.test(name)), "expected names such as min_tokens")
  .refine(
    (names) => names.every((name) => !OWN_FIELDS.has(name)),
    `expected none of the fields that this server sets: ${[...OWN_FIELDS].join(", ")}`,
  )
  .default([]);

const efforts = z.enum(["none", "minimal", "low", "medium", "high", "xhigh", "max"]);

/**
 * `tenant:sha256hex`, separated by commas or white space. Several keys may name one tenant (rotation), no key two.
 * A text without any entry is a mistake: whoever sets it does not mean to serve everybody.
 */
function keyEntries(expected: string) {
  return z.string().transform((text, context): ApiKey[] => {
    const tenants = new Map<string, string>();
    const entries = listed(text);
    if (entries.length === 0) context.addIssue({ code: "custom", message: "expected at least one entry" });
    for (const entry of entries) {
      const [, tenant, hash] = /^([A-Za-z0-9_-]{1,64}):([0-9a-fA-F]{64})$/.exec(entry) ?? [];
      if (tenant === undefined || hash === undefined) {
        context.addIssue({ code: "custom", message: expected });
        return z.NEVER;
      }
      const known = tenants.get(hash.toLowerCase());
      if (known !== undefined && known !== tenant) {
        context.addIssue({ code: "custom", message: "expected no key twice: one of them names two tenants" });
        return z.NEVER;
      }
      tenants.set(hash.toLowerCase(), tenant);
    }
    return [...tenants].map(([hash, tenant]) => ({ tenant, sha256: new Uint8Array(Buffer.from(hash, "hex")) }));
  });
}

const apiKeys = keyEntries("expected entries of the form tenant:sha256-in-hex").default([]);

/** A root key as its text, for whoever has nothing but a form to fill in: it has its prefix, and as many random characters as nobody guesses. */
const PLAIN_ROOT_KEY = /^sk-admin-[A-Za-z0-9_-]{32,512}$/;

/** Who acts with such a key. */
const PLAIN_ROOT_NAME = "root";

/** `name:sha256hex`, as `API_KEYS`, where the names are those of who acts; or the text of a root key. */
const adminKeys = z
  .string()
  .transform((text) => listed(text).map(hashedRootKey).join(","))
  .pipe(keyEntries("expected entries of the form name:sha256-in-hex, or sk-admin- and at least 32 letters and digits"))
  .transform((keys): AdminKey[] => keys.map(({ tenant, sha256 }) => ({ name: tenant, sha256 })))
  .default([]);

function hashedRootKey(entry: string): string {
  if (!PLAIN_ROOT_KEY.test(entry)) return entry;
  return `${PLAIN_ROOT_NAME}:${createHash("sha256").update(entry).digest("hex")}`;
}

const price = z.number().min(0).max(1_000_000);
const modelPrice = z.strictObject(
  { input: price, cached_input: price.optional(), output: price },
  "expected prices as input, output and, where it is another, cached_input",
);

/** vLLM takes 64-bit priorities; the sum of two of these stays far below. */
const priority = z.int().min(-1_000_000).max(1_000_000);

/** Names of algorithms, separated by commas or white space. */
const jwtAlgorithms = z
  .string()
  .transform(listed)
  .refine(
    (names) => names.length > 0 && names.every((name) => JWT_ALGORITHMS.includes(name)),
    `expected some of ${JWT_ALGORITHMS.join(", ")}`,
  )
  .default(["RS256", "ES256"]);

/** What commas or white space separate. */
function listed(text: string): string[] {
  return text.split(/[\s,]+/).filter((entry) => entry !== "");
}

/** URL prefixes, as a predicate. */
const urlPrefixes = z
  .string()
  .transform((text, context) => {
    try {
      return allowList(text);
    } catch {
      context.addIssue({ code: "custom", message: "expected URLs separated by commas" });
      return z.NEVER;
    }
  })
  .optional();

function extrasExpected(): string {
  return `expected 'all', 'none', or some of ${VLLM_EXTRAS.join(", ")}`;
}

const BUILTIN_KINDS: readonly string[] = [...new Set(BUILTIN_LABELS.values())];

const builtinLabels = z
  .string()
  .transform((text, context) => {
    const labels = listed(text).map((label) => [label, BUILTIN_LABELS.get(label)] as const);
    const known = labels.filter((entry): entry is [string, BuiltinKind] => entry[1] !== undefined);
    if (known.length === labels.length) return new Map(known);
    const message = "expected labels such as code_interpreter, web_search or container";
    context.addIssue({ code: "custom", message });
    return z.NEVER;
  })
  .default(new Map());

/** In whole groups of four characters, the last one with or without its padding. */
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?$/;

/** The bytes of a text in base64; none where it is something else. */
function fromBase64(text: string): Uint8Array {
  return new Uint8Array(Buffer.from(BASE64.test(text) ? text : "", "base64"));
}

/**
 * `kid:base64`, separated by commas or white space; no `kid` twice. A text without any entry is a mistake: whoever sets it
 * means to encrypt.
 */
const encryptionKeys = z
  .string()
  .transform((text, context): EncryptionKey[] => {
    const keys = new Map<string, EncryptionKey>();
    for (const entry of listed(text)) {
      const [, kid, base64] = /^([A-Za-z0-9_-]{1,32}):(.*)$/.exec(entry) ?? [];
      const secret = fromBase64(base64 ?? "");
      if (kid === undefined || secret.length < MIN_ENCRYPTION_KEY_BYTES) {
        const message = `expected entries of the form kid:key, the key at least ${MIN_ENCRYPTION_KEY_BYTES} bytes of base64`;
        context.addIssue({ code: "custom", message });
        return z.NEVER;
      }
      if (keys.has(kid)) {
        context.addIssue({ code: "custom", message: "expected no kid twice" });
        return z.NEVER;
      }
      keys.set(kid, { kid, secret });
    }
    if (keys.size === 0) context.addIssue({ code: "custom", message: "expected at least one entry" });
    return [...keys.values()];
  })
  .default([]);

const webhookSecret = z
  .string()
  .trim()
  .transform((text, context) => {
    const secret = fromBase64(/^whsec_(.*)$/.exec(text)?.[1] ?? "");
    if (secret.length >= MIN_WEBHOOK_SECRET_BYTES) return secret;
    const message = `expected whsec_ and at least ${MIN_WEBHOOK_SECRET_BYTES} bytes of base64`;
    context.addIssue({ code: "custom", message });
    return z.NEVER;
  })
  .optional();

/** A share of all, from 0 to 1. */
function ratio() {
  return z
    .string()
    .trim()
    .regex(/^(0|1|0?\.\d+|[01]\.\d*)$/, "expected a number from 0 to 1")
    .transform(Number)
    .refine((value) => value <= 1, "expected a number from 0 to 1")
    .default(1);
}

/** A list of OpenTelemetry's. */
function keyValues() {
  return z
    .string()
    .transform((text, context) => {
      const values = parseKeyValues(text);
      if (values) return values;
      context.addIssue({ code: "custom", message: "expected key=value,key=value with percent-encoded values" });
      return z.NEVER;
    })
    .optional();
}

/** The same, of what can stand in headers. */
function headerValues() {
  return keyValues().refine(
    (headers) =>
      [...(headers ?? [])].every(([name, value]) => /^[\w!#$%&'*+.^`|~-]+$/.test(name) && /^[\x20-\x7e]*$/.test(value)),
    "expected names and values of headers",
  );
}

/** The samplers of OpenTelemetry's specification ("General SDK Configuration"): the share of new traces, without their argument. */
const SAMPLERS = { always_on: 1, always_off: 0, traceidratio: undefined } as const;
type SamplerName = keyof typeof SAMPLERS;
const SAMPLER_NAMES = Object.keys(SAMPLERS) as [SamplerName, ...SamplerName[]];

/** A collector takes longer than this for no good reason; and what follows an answer may take 30 s. */
const MAX_EXPORT_TIMEOUT_MS = 20_000;

/** The variables and secrets of the deployment. This is their only list; README says what each is for. */
const variables = z.object({
  VLLM_BASE_URL: serverUrl().optional(),
  VLLM_API_KEY: headerSecret().optional(),
  VLLM_TRANSPORT: z.enum(TRANSPORTS).default("fetch"),
  UPSTREAMS: z.string().optional(),
  UPSTREAM_SECRETS: z.string().optional(),
  UPSTREAM_LOAD_FACTOR: z
    .string()
    .regex(/^\d{1,4}(\.\d{1,4})?$/, "expected a number such as 1.5")
    .transform(Number)
    .refine((factor) => factor >= 1, "expected at least 1")
    .default(1.5),
  UPSTREAM_FAILOVER_MS: integer(10_000, 1),
  UPSTREAM_BOARD_MS: integer(0, 0),
  UNSALTED_SERVERS: z.enum(["warn", "refuse"]).default("warn"),
  SHOW_UPSTREAM: z.enum(["true", "false"]).default("false"),
  OPEN_RESPONSES: z.enum(["true", "false"]).default("false"),
  VLLM_CONNECT_TIMEOUT_MS: integer(30_000, 1),
  VLLM_FIRST_BYTE_TIMEOUT_MS: integer(300_000, 1),
  VLLM_IDLE_TIMEOUT_MS: integer(60_000, 1),
  VLLM_SILENCE_MS: integer(5_000, 1),
  VLLM_MAX_RETRIES: integer(10, 0),
  VLLM_RECOVERY_TIME_MS: integer(900_000, 0),
  VLLM_FOREGROUND_RECOVERY_TIME_MS: integer(300_000, 0),
  MODEL_ALIASES: jsonMap(z.string().min(1), '{"alias":"model"}'),
  MODEL_ENGINES: jsonMap(z.enum(["chat", "harmony"]), '{"model":"harmony"}'),
  CODEX_MODELS: jsonMap(z.record(z.string(), z.unknown()), '{"model":{"input_modalities":["text","image"]}}'),
  VLLM_FORMAT_WITH_TOOLS: z.enum(["never", "strict", "always"]).default("never"),
  VLLM_EXTRA_FIELDS: extraFields,
  REASONING_CONTENT: z.enum(["shown", "hidden"]).default("shown"),
  THINKING_BUDGETS: jsonMap(z.partialRecord(efforts, z.int().min(0)), '{"model":{"low":1024}}'),
  HARMONY_START_DATE: z.iso.date().optional(),
  HARMONY_SYSTEM_INSTRUCTIONS: z.enum(["true", "false"]).default("false"),
  HARMONY_TOOL_HEADER: z.enum(["channel-first", "recipient-first"]).default("channel-first"),
  TOOL_SERVERS: jsonMap(httpUrl(), '{"python":"https://tools.example.com/python/mcp"}').refine(
    (servers) => Object.keys(servers).every((name) => BUILTIN_KINDS.includes(name)),
    `expected the names ${BUILTIN_KINDS.join(", ")}`,
  ),
  TOOL_SERVER_API_KEY: headerSecret().optional(),
  TOOL_SERVER_MCP_LABELS: builtinLabels,
  MCP_SERVERS: urlPrefixes,
  MEDIA_URLS: urlPrefixes,
  VLLM_EXTRAS: z
    .string()
    .transform(listed)
    .pipe(z.union([z.tuple([z.enum(["all", "none"])]), z.array(z.enum(VLLM_EXTRAS))], extrasExpected()))
    .optional(),
  PASSTHROUGH_ENDPOINTS: z
    .string()
    .transform(listed)
    .pipe(
      z.union(
        [z.tuple([z.enum(["all", "none"])]), z.array(z.enum(PASSTHROUGH_ENDPOINTS))],
        `expected 'all', 'none', or some of ${PASSTHROUGH_ENDPOINTS.join(", ")}`,
      ),
    )
    .default([]),
  HOSTED_TOOLS: z
    .string()
    .transform(listed)
    .pipe(
      z.union(
        [z.tuple([z.enum(["all", "none"])]), z.array(z.enum(HOSTED_TOOL_NAMES))],
        `expected 'all', 'none', or some of ${HOSTED_TOOL_NAMES.join(", ")}`,
      ),
    )
    .default(["all"]),
  UNKNOWN_TOOLS: z.enum(["refuse", "drop"]).default("refuse"),
  DNS_OVER_HTTPS_URL: httpUrl().optional(),
  TOOL_CALL_TIMEOUT_MS: integer(60_000, 1),
  TOOL_TIME_MS: integer(600_000, 1),
  TOOL_OUTPUT_BYTES: integer(100_000, 1_000),
  MAX_TOOL_ROUNDS: integer(32, 1),
  SEARXNG_URL: httpUrl().optional(),
  BRAVE_API_KEY: headerSecret().optional(),
  API_KEYS: apiKeys,
  ADMIN_KEY: adminKeys,
  KEY_CACHE_MS: integer(10_000, 100, 600_000),
  RESERVED_OUTPUT_TOKENS: integer(4_096, 1, 10_000_000),
  MODEL_PRICES: jsonMap(modelPrice, '{"model":{"input":0.5,"output":1.5}}'),
  VLLM_PRIORITIES: jsonMap(priority, '{"default":0,"background":100,"gold":-10}'),
  STORED_BYTES_PER_TENANT: integer(0, 0, Number.MAX_SAFE_INTEGER),
  USAGE_RETENTION_DAYS: integer(90, 1, MAX_RETENTION_DAYS),
  AUDIT_RETENTION_DAYS: integer(365, 1, MAX_RETENTION_DAYS),
  JWT_ISSUER: z.string().min(1).max(1024).optional(),
  JWT_AUDIENCE: z.string().min(1).max(1024).optional(),
  JWT_JWKS_URL: httpUrl().optional(),
  JWT_TENANT_CLAIM: z.string().min(1).max(256).default("sub"),
  JWT_TENANTS: z.enum(["own", "shared"]).optional(),
  JWT_ALGORITHMS: jwtAlgorithms,
  JWT_JWKS_STALE_MS: integer(86_400_000, 0),
  ENCRYPTION_KEYS: encryptionKeys,
  ALLOW_ANONYMOUS: z.enum(["true", "false"]).default("false"),
  RETENTION_DAYS: integer(30, 0, MAX_RETENTION_DAYS),
  CONVERSATION_LOCK_WAIT_MS: integer(10_000, 0),
  EVENT_LOG_INTERVAL_MS: integer(400, 0),
  EVENT_LOG_UNREAD_INTERVAL_MS: integer(4_000, 0),
  WEBHOOK_URL: httpUrl().optional(),
  WEBHOOK_SECRET: webhookSecret,
  ALLOW_PRIVATE_WEBHOOKS: z.enum(["true", "false"]).default("false"),
  TELEMETRY_LOG: z.enum(["all", "errors", "none"]).default("none"),
  TELEMETRY_LOG_RATIO: ratio(),
  OTEL_EXPORTER_OTLP_ENDPOINT: httpUrl().optional(),
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: httpUrl().optional(),
  OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: httpUrl().optional(),
  OTEL_EXPORTER_OTLP_HEADERS: headerValues(),
  OTEL_EXPORTER_OTLP_TRACES_HEADERS: headerValues(),
  OTEL_EXPORTER_OTLP_METRICS_HEADERS: headerValues(),
  OTEL_EXPORTER_OTLP_TIMEOUT: integer(10_000, 1, MAX_EXPORT_TIMEOUT_MS),
  OTEL_TRACES_EXPORTER: z.enum(["otlp", "none"]).default("otlp"),
  OTEL_METRICS_EXPORTER: z.enum(["otlp", "none"]).default("otlp"),
  OTEL_SERVICE_NAME: z.string().max(255).optional(),
  OTEL_RESOURCE_ATTRIBUTES: keyValues(),
  OTEL_TRACES_SAMPLER: z
    .templateLiteral(
      [z.enum(["", "parentbased_"]), z.enum(SAMPLER_NAMES)],
      `expected ${SAMPLER_NAMES.join(", ")}, or parentbased_ and one of them`,
    )
    .default("parentbased_always_on"),
  OTEL_TRACES_SAMPLER_ARG: ratio(),
  OTEL_PROPAGATORS: z.enum(["tracecontext", "none"]).optional(),
  PROMETHEUS_METRICS: z.enum(["true", "false"]).default("false"),
  PROMETHEUS_TOKEN: headerSecret().optional(),
  PROMETHEUS_TENANTS: z.enum(["true", "false"]).default("false"),
  TREES_PER_HOME: integer(32, 1, MAX_TREES_PER_HOME),
  MAX_REQUEST_BYTES: integer(12 * 1024 * 1024, 1024, MAX_MAX_REQUEST_BYTES),
  MAX_OPEN_TURNS: integer(200, 1),
  MAX_BACKGROUND_RUNS_PER_TENANT: integer(500, 1),
  MAX_OPEN_CONVERSATIONS_PER_TENANT: integer(500, 1),
  MAX_WEBSOCKETS_PER_TENANT: integer(500, 1),
  HEARTBEAT_MS: integer(5_000, 10),
  JSON_HEARTBEATS: z.enum(["true", "false"]).default("false"),
  WEBSOCKET_LIFETIME_MS: integer(3_600_000, 1),
  WEBSOCKET_SEND_TIMEOUT_MS: integer(60_000, 1),
});

type VariableName = keyof typeof variables.shape;

export const VARIABLE_NAMES = Object.keys(variables.shape) as readonly VariableName[];

/** The variables, all text. */
export type TextVariables = { [Name in VariableName]?: string };

/** The bindings that some deployments have. */
export interface Bindings {
  VLLM?: { fetch: Fetch };
  PRIVATE_NETWORK?: PrivateNetwork;
  ANALYTICS?: AnalyticsDataset;
}

/** What the Worker's environment holds: the variables; and the bindings to a private vLLM, to private networks and to Analytics Engine. */
export type Variables = TextVariables & Bindings;

const BINDING_NAMES: readonly string[] = ["VLLM", "PRIVATE_NETWORK", "ANALYTICS"] satisfies (keyof Bindings)[];

type Values = z.output<typeof variables>;

function toTools(vars: Values, { fetch }: OperatorNetwork): ToolConfig {
  return {
    fetch,
    servers: vars.TOOL_SERVERS,
    apiKey: vars.TOOL_SERVER_API_KEY,
    builtinLabels: vars.TOOL_SERVER_MCP_LABELS,
    isListed: (url) => vars.MCP_SERVERS?.(url) ?? false,
    dohUrl: vars.DNS_OVER_HTTPS_URL,
    callTimeoutMs: vars.TOOL_CALL_TIMEOUT_MS,
    turnTimeMs: vars.TOOL_TIME_MS,
    outputBytes: vars.TOOL_OUTPUT_BYTES,
    maxRounds: vars.MAX_TOOL_ROUNDS,
    offeredKinds: hostedKinds(vars.HOSTED_TOOLS[0] === "all" ? HOSTED_TOOL_NAMES : vars.HOSTED_TOOLS),
    searxngUrl: vars.SEARXNG_URL,
    braveApiKey: vars.BRAVE_API_KEY,
  };
}

/**
 * The extras that clients may send. Unless the operator says so: none where tenants share a vLLM, all where there are no
 * keys, and so nobody but this machine's own user.
 */
function toVllmExtras(vars: Values): ReadonlySet<VllmExtra> {
  const names: readonly string[] = vars.VLLM_EXTRAS ?? [wantsKeys(vars) ? "none" : "all"];
  return new Set(VLLM_EXTRAS.filter((name) => names[0] === "all" || names.includes(name)));
}

function toPassthroughEndpoints({ PASSTHROUGH_ENDPOINTS: opened }: Values): ReadonlySet<PassthroughEndpoint> {
  const names: readonly string[] = opened;
  return new Set(PASSTHROUGH_ENDPOINTS.filter((name) => names[0] === "all" || names.includes(name)));
}

function wantsKeys({ API_KEYS: keys, ADMIN_KEY: admins, JWT_ISSUER: issuer }: Values): boolean {
  return keys.length > 0 || admins.length > 0 || issuer !== undefined;
}

/** Whether there may be several tenants: the admin API and tokens name as many as they like. */
function hasTenants({ API_KEYS: keys, ADMIN_KEY: admins, JWT_ISSUER: issuer }: Values): boolean {
  return admins.length > 0 || issuer !== undefined || new Set(keys.map(({ tenant }) => tenant)).size > 1;
}

function toKeys(vars: Values): KeyConfig {
  return {
    adminKeys: vars.ADMIN_KEY,
    cacheMs: vars.KEY_CACHE_MS,
    reservedOutputTokens: vars.RESERVED_OUTPUT_TOKENS,
    prices: vars.MODEL_PRICES,
    storedBytesPerTenant: vars.STORED_BYTES_PER_TENANT,
    usageRetentionMs: vars.USAGE_RETENTION_DAYS * DAY_MS,
    auditRetentionMs: vars.AUDIT_RETENTION_DAYS * DAY_MS,
  };
}

function toJwt(vars: Values, { fetch }: OperatorNetwork): JwtConfig | undefined {
  const { JWT_ISSUER: issuer, JWT_AUDIENCE: audience, JWT_JWKS_URL: jwksUrl } = vars;
  if (issuer === undefined || audience === undefined || jwksUrl === undefined) return undefined;
  const { JWT_TENANT_CLAIM: tenantClaim, JWT_ALGORITHMS: algorithms, JWT_JWKS_STALE_MS: staleMs } = vars;
  const tenantPrefix = vars.JWT_TENANTS === "own" ? TOKEN_TENANT_PREFIX : "";
  return { issuer, audience, jwksUrl, tenantClaim, tenantPrefix, algorithms, staleMs, fetch };
}

function toWebhook(vars: Values, network: OperatorNetwork): Config["webhook"] {
  const { WEBHOOK_URL: url, WEBHOOK_SECRET: secret, ALLOW_PRIVATE_WEBHOOKS: mayBePrivate } = vars;
  if (url === undefined || secret === undefined) return undefined;
  return { url, secret, fetch: mayBePrivate === "true" ? network.fetch : publicFetch };
}

/** Undefined where nothing is to be told to anybody. */
function toTelemetry(
  vars: Values,
  analytics: AnalyticsDataset | undefined,
  network: OperatorNetwork,
): TelemetryConfig | undefined {
  const traces = toOtlpTarget(vars, "TRACES", network);
  const metrics = toOtlpTarget(vars, "METRICS", network);
  const sampler = vars.OTEL_TRACES_SAMPLER.replace("parentbased_", "") as SamplerName;
  const isWanted =
    vars.TELEMETRY_LOG !== "none" || analytics || traces || metrics || vars.PROMETHEUS_METRICS === "true";
  const handsTracesOn = (vars.OTEL_PROPAGATORS ?? (traces ? "tracecontext" : "none")) === "tracecontext";
  if (!isWanted && !handsTracesOn) return undefined;
  const { OTEL_SERVICE_NAME: name, OTEL_RESOURCE_ATTRIBUTES: attributes, PROMETHEUS_TOKEN: token } = vars;
  return {
    log: { events: vars.TELEMETRY_LOG, ratio: vars.TELEMETRY_LOG_RATIO },
    analytics,
    traces,
    metrics,
    exportTimeoutMs: vars.OTEL_EXPORTER_OTLP_TIMEOUT,
    resource: {
      "service.name": "responses-edge",
      ...Object.fromEntries(attributes ?? []),
      ...(name && { "service.name": name }),
    },
    sampler: {
      ratio: SAMPLERS[sampler] ?? vars.OTEL_TRACES_SAMPLER_ARG,
      asksParent: vars.OTEL_TRACES_SAMPLER.startsWith("parentbased_"),
    },
    handsTracesOn,
    prometheus:
      vars.PROMETHEUS_METRICS === "true"
        ? {
            tokenSha256: token === undefined ? undefined : new Uint8Array(createHash("sha256").update(token).digest()),
            byTenant: vars.PROMETHEUS_TENANTS === "true",
          }
        : undefined,
  };
}

/**
 * Where a signal goes ("OpenTelemetry Protocol Exporter" of the specification): to its own endpoint as it is, else below the
 * common one. Its own headers are sent instead of the common ones.
 */
function toOtlpTarget(vars: Values, signal: "TRACES" | "METRICS", { fetch }: OperatorNetwork): OtlpTarget | undefined {
  const { OTEL_EXPORTER_OTLP_ENDPOINT: common, OTEL_EXPORTER_OTLP_HEADERS: commonHeaders } = vars;
  const own = vars[`OTEL_EXPORTER_OTLP_${signal}_ENDPOINT`];
  const url = own ?? (common && `${common.replace(/\/+$/, "")}/v1/${signal.toLowerCase()}`);
  if (url === undefined || vars[`OTEL_${signal}_EXPORTER`] === "none") return undefined;
  const headers = vars[`OTEL_EXPORTER_OTLP_${signal}_HEADERS`] ?? commonHeaders;
  return { url, headers: Object.fromEntries(headers ?? []), fetch };
}

/** Reads each variable by itself, so that no mistake hides another. Gives the values of those that are right. */
function readVariables(env: Variables): { vars: Values; mistakes: Map<string, string> } {
  const vars: Record<string, unknown> = {};
  const mistakes = new Map<string, string>();
  for (const [name, schema] of Object.entries(variables.shape)) {
    const value: unknown = env[name as VariableName];
    // An empty variable is an unset one; workerd gives null for what its environment does not have (scripts/compile.ts).
    const result = schema.safeParse(value === "" || value === null ? undefined : value);
    if (!result.success) mistakes.set(name, result.error.issues[0]?.message ?? "not understood");
    else if (name.endsWith("_MS") && Number(result.data) > MAX_TIMER_MS)
      mistakes.set(name, `expected at most ${MAX_TIMER_MS}`);
    else vars[name] = result.data;
  }
  return { vars: vars as Values, mistakes };
}

/** What variables demand of each other. */
function checkTogether(vars: Values, mistakes: Map<string, string>): void {
  const add = (name: VariableName, mistake: string) => {
    if (!mistakes.has(name)) mistakes.set(name, mistake);
  };
  if (vars.JWT_ISSUER !== undefined) {
    if (vars.JWT_AUDIENCE === undefined)
      add("JWT_AUDIENCE", "needed with JWT_ISSUER: whom the issuer's tokens are for");
    if (vars.JWT_JWKS_URL === undefined) add("JWT_JWKS_URL", "needed with JWT_ISSUER: where the issuer's keys are");
    if (vars.JWT_TENANTS === undefined && (vars.API_KEYS.length > 0 || vars.ADMIN_KEY.length > 0)) {
      const why = "needed with JWT_ISSUER beside API_KEYS or ADMIN_KEY";
      const shared = "shared (a token's tenant is the key tenant of the same name, as before this variable was there)";
      add("JWT_TENANTS", `${why}: ${shared} or own (it is another one, ${TOKEN_TENANT_PREFIX}NAME)`);
    }
  } else if (vars.JWT_AUDIENCE !== undefined || vars.JWT_JWKS_URL !== undefined || vars.JWT_TENANTS !== undefined) {
    add("JWT_ISSUER", "needed with JWT_AUDIENCE, JWT_JWKS_URL and JWT_TENANTS: whose tokens are taken");
  }
  if (
    vars.PROMETHEUS_METRICS === "true" &&
    !vars.PROMETHEUS_TOKEN &&
    (vars.ALLOW_ANONYMOUS !== "true" || wantsKeys(vars))
  ) {
    add("PROMETHEUS_TOKEN", "needed by PROMETHEUS_METRICS, unless ALLOW_ANONYMOUS serves everybody");
  }
  if (vars.WEBHOOK_URL === undefined) return;
  if (vars.WEBHOOK_SECRET === undefined) add("WEBHOOK_SECRET", "needed to sign the webhooks to WEBHOOK_URL");
  // Strictly public unless the operator says otherwise (local development, tests).
  if (vars.ALLOW_PRIVATE_WEBHOOKS === "false" && !isPublicUrl(vars.WEBHOOK_URL)) {
    add("WEBHOOK_URL", "expected an https URL of a public address");
  }
}

/** Names that nobody reads and that differ little from one that is read: `[name, meant]`. */
export function misspeltVariables(names: Iterable<string>): [name: string, meant: string][] {
  const known: readonly string[] = VARIABLE_NAMES;
  return [...names].flatMap((name): [string, string][] => {
    if (name.length < MIN_MISSPELT_LENGTH || BINDING_NAMES.includes(name) || known.includes(name)) return [];
    const meant = known.find((other) => isNear(name.toUpperCase().replaceAll("-", "_"), other));
    return meant === undefined ? [] : [[name, meant]];
  });
}

/** Shorter names resemble each other by chance. */
const MIN_MISSPELT_LENGTH = 6;

/** Whether one text becomes the other by at most two letters put in, left out or changed. */
function isNear(a: string, b: string, edits = 2): boolean {
  if (a === b) return true;
  if (edits === 0 || Math.abs(a.length - b.length) > edits) return false;
  let same = 0;
  while (a[same] !== undefined && a[same] === b[same]) same += 1;
  const [restA, restB] = [a.slice(same), b.slice(same)];
  return (
    isNear(restA.slice(1), restB, edits - 1) ||
    isNear(restA, restB.slice(1), edits - 1) ||
    isNear(restA.slice(1), restB.slice(1), edits - 1)
  );
}

const cache = new WeakMap<Variables, Config | ConfigError>();

/** The configuration of an environment, checked as a whole once per isolate. Throws ConfigError. */
export function loadConfig(env: Variables): Config {
  let known = cache.get(env);
  if (!known) {
    known = readConfig(env);
    cache.set(env, known);
    // Bindings have the names that the operator gives them.
    const names = Object.keys(env).filter((name) => typeof (env as Record<string, unknown>)[name] === "string");
    for (const [name, meant] of misspeltVariables(names)) {
      console.warn(logLine({ level: "warn", unknown_variable: name, meant }));
    }
  }
  if (known instanceof ConfigError) throw known;
  return known;
}

function readConfig(env: Variables): Config | ConfigError {
  const { vars, mistakes } = readVariables(env);
  const upstreams = readModelServers(vars, env);
  const ofUpstreams = upstreams.mistakes.filter(([name]) => !mistakes.has(name));
  const { size: read } = mistakes;
  checkTogether(vars, mistakes);
  const told = [...mistakes].toSpliced(
    read,
    0,
    ...ofUpstreams.map(([name, mistake]): [string, string] => [name, mistake]),
  );
  if (told.length > 0) return new ConfigError(told.map(([name, mistake]) => `${name}: ${mistake}`));
  const network = operatorNetwork(env);
  return {
    modelServers: upstreams.servers,
    loadFactor: vars.UPSTREAM_LOAD_FACTOR,
    failoverMs: vars.UPSTREAM_FAILOVER_MS,
    boardMs: vars.UPSTREAM_BOARD_MS,
    unsaltedServers: hasTenants(vars) ? vars.UNSALTED_SERVERS : undefined,
    showsUpstream: vars.SHOW_UPSTREAM === "true",
    speaksOpenResponses: vars.OPEN_RESPONSES === "true",
    connectTimeoutMs: vars.VLLM_CONNECT_TIMEOUT_MS,
    firstByteTimeoutMs: vars.VLLM_FIRST_BYTE_TIMEOUT_MS,
    idleTimeoutMs: vars.VLLM_IDLE_TIMEOUT_MS,
    silenceMs: vars.VLLM_SILENCE_MS,
    maxRetries: vars.VLLM_MAX_RETRIES,
    recoveryTimeMs: vars.VLLM_RECOVERY_TIME_MS,
    foregroundRecoveryTimeMs: vars.VLLM_FOREGROUND_RECOVERY_TIME_MS,
    modelAliases: vars.MODEL_ALIASES,
    modelEngines: vars.MODEL_ENGINES,
    codexModels: vars.CODEX_MODELS,
    formatWithTools: vars.VLLM_FORMAT_WITH_TOOLS,
    vllmExtraFields: vars.VLLM_EXTRA_FIELDS,
    hidesReasoning: vars.REASONING_CONTENT === "hidden",
    thinkingBudgets: vars.THINKING_BUDGETS,
    harmony: {
      startDate: vars.HARMONY_START_DATE,
      systemInstructions: vars.HARMONY_SYSTEM_INSTRUCTIONS === "true",
      toolHeader: vars.HARMONY_TOOL_HEADER,
    },
    tools: toTools(vars, network),
    dropsUnknownTools: vars.UNKNOWN_TOOLS === "drop",
    isMediaListed: (url) => vars.MEDIA_URLS?.(url) ?? false,
    passthroughEndpoints: toPassthroughEndpoints(vars),
    vllmExtras: toVllmExtras(vars),
    priorities: vars.VLLM_PRIORITIES,
    apiKeys: vars.API_KEYS,
    keys: toKeys(vars),
    jwt: toJwt(vars, network),
    wantsKeys: wantsKeys(vars),
    encryptionKeys: vars.ENCRYPTION_KEYS,
    allowAnonymous: vars.ALLOW_ANONYMOUS === "true",
    retentionMs: vars.RETENTION_DAYS * DAY_MS,
    conversationLockWaitMs: vars.CONVERSATION_LOCK_WAIT_MS,
    treesPerHome: vars.TREES_PER_HOME,
    eventLog: { intervalMs: vars.EVENT_LOG_INTERVAL_MS, unreadIntervalMs: vars.EVENT_LOG_UNREAD_INTERVAL_MS },
    webhook: toWebhook(vars, network),
    telemetry: toTelemetry(vars, env.ANALYTICS, network),
    maxRequestBytes: vars.MAX_REQUEST_BYTES,
    maxOpenTurns: vars.MAX_OPEN_TURNS,
    maxBackgroundRunsPerTenant: vars.MAX_BACKGROUND_RUNS_PER_TENANT,
    maxOpenConversationsPerTenant: vars.MAX_OPEN_CONVERSATIONS_PER_TENANT,
    maxWebSocketsPerTenant: vars.MAX_WEBSOCKETS_PER_TENANT,
    heartbeatMs: vars.HEARTBEAT_MS,
    jsonHeartbeats: vars.JSON_HEARTBEATS === "true",
    socketLifetimeMs: vars.WEBSOCKET_LIFETIME_MS,
    socketSendTimeoutMs: vars.WEBSOCKET_SEND_TIMEOUT_MS,
  };
}
