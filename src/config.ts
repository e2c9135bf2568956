import { z } from "zod";
import { allowList, isPublicUrl } from "./protocol/public-url.ts";

/** Variables and secrets of the deployment, all text, and the binding to a private vLLM. README lists them. */
export interface Variables {
  VLLM?: Fetcher;
  VLLM_BASE_URL?: string;
  VLLM_API_KEY?: string;
  VLLM_CONNECT_TIMEOUT_MS?: string;
  VLLM_FIRST_BYTE_TIMEOUT_MS?: string;
  VLLM_IDLE_TIMEOUT_MS?: string;
  VLLM_MAX_RETRIES?: string;
  MODEL_ALIASES?: string;
  MODEL_ENGINES?: string;
  HARMONY_START_DATE?: string;
  HARMONY_SYSTEM_INSTRUCTIONS?: string;
  HARMONY_TOOL_HEADER?: string;
  TOOL_SERVERS?: string;
  TOOL_SERVER_API_KEY?: string;
  TOOL_SERVER_MCP_LABELS?: string;
  MCP_SERVERS?: string;
  DNS_OVER_HTTPS_URL?: string;
  TOOL_CALL_TIMEOUT_MS?: string;
  TOOL_TIME_MS?: string;
  TOOL_OUTPUT_BYTES?: string;
  MAX_TOOL_ROUNDS?: string;
  SEARXNG_URL?: string;
  BRAVE_API_KEY?: string;
  API_KEYS?: string;
  ALLOW_ANONYMOUS?: string;
  RETENTION_DAYS?: string;
  CONVERSATION_LOCK_WAIT_MS?: string;
  WEBHOOK_URL?: string;
  WEBHOOK_SECRET?: string;
  ALLOW_PRIVATE_WEBHOOKS?: string;
  MAX_REQUEST_BYTES?: string;
  HEARTBEAT_MS?: string;
}

/** A key that may call this server: the SHA-256 of its text, and the tenant it names. */
export interface ApiKey {
  tenant: string;
  sha256: Uint8Array;
}

/** How a model is spoken to: over vLLM's chat completions, or in Harmony over its completions (gpt-oss). */
export type EngineName = "chat" | "harmony";

/** Built-in tools that may stand on a server of the operator's. */
export type BuiltinName = "browser" | "python" | "container";

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
  servers: Partial<Record<BuiltinName, string>>;
  /** Sent to them, and what session names are made with. */
  apiKey: string | undefined;
  /** Labels of `mcp` tools that mean a built-in tool, as vLLM's `VLLM_GPT_OSS_SYSTEM_TOOL_MCP_LABELS`. */
  builtinLabels: ReadonlyMap<string, BuiltinName>;
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
  searxngUrl: string | undefined;
  braveApiKey: string | undefined;
}

/** The validated configuration. Durations in milliseconds, sizes in bytes. */
export interface Config {
  vllmBaseUrl: string;
  vllmFetch: (url: string, init: RequestInit) => Promise<Response>;
  vllmApiKey: string | undefined;
  connectTimeoutMs: number;
  firstByteTimeoutMs: number;
  idleTimeoutMs: number;
  /** How often a generation whose connection died is taken up again. */
  maxRetries: number;
  modelAliases: Record<string, string>;
  /** The engine of models whose name and root do not tell it, by the name that vLLM knows. */
  modelEngines: Record<string, EngineName>;
  harmony: HarmonyConfig;
  tools: ToolConfig;
  apiKeys: ApiKey[];
  allowAnonymous: boolean;
  /** 0 keeps responses for ever. */
  retentionMs: number;
  /** 0 does not wait. */
  conversationLockWaitMs: number;
  webhook: { url: string; secret: Uint8Array } | undefined;
  maxRequestBytes: number;
  heartbeatMs: number;
}

/** The deployment's configuration is unusable; the message says which variable to set and never its value. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
}

const DAY_MS = 86_400_000;

function integer(fallback: number, minimum: number) {
  return z
    .string()
    .regex(/^\d+$/, "expected a whole number")
    .transform(Number)
    .refine((value) => value >= minimum, `expected at least ${minimum}`)
    .default(fallback);
}

/** A JSON object of strings; `example` is shown to who has written something else. */
function jsonMap<Value extends z.ZodType<string, string>>(value: Value, example: string) {
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

/** `tenant:sha256hex`, separated by commas or white space. Several keys may name one tenant (rotation). */
const apiKeys = z
  .string()
  .transform((text, context) =>
    text
      .split(/[\s,]+/)
      .filter((entry) => entry !== "")
      .map((entry): ApiKey => {
        const match = /^([A-Za-z0-9_-]{1,64}):([0-9a-fA-F]{64})$/.exec(entry);
        if (!match) {
          context.addIssue({ code: "custom", message: "expected entries of the form tenant:sha256-in-hex" });
          return z.NEVER;
        }
        return { tenant: match[1] as string, sha256: Uint8Array.fromHex(match[2] as string) };
      }),
  )
  .default([]);

const variables = z.object({
  VLLM_BASE_URL: z.url({ protocol: /^https?$/ }).optional(),
  VLLM_API_KEY: z.string().optional(),
  VLLM_CONNECT_TIMEOUT_MS: integer(30_000, 1),
  VLLM_FIRST_BYTE_TIMEOUT_MS: integer(300_000, 1),
  VLLM_IDLE_TIMEOUT_MS: integer(60_000, 1),
  VLLM_MAX_RETRIES: integer(10, 0),
  MODEL_ALIASES: jsonMap(z.string().min(1), '{"alias":"model"}'),
  MODEL_ENGINES: jsonMap(z.enum(["chat", "harmony"]), '{"model":"harmony"}'),
  HARMONY_START_DATE: z.iso.date().optional(),
  HARMONY_SYSTEM_INSTRUCTIONS: z.enum(["true", "false"]).default("false"),
  HARMONY_TOOL_HEADER: z.enum(["channel-first", "recipient-first"]).default("channel-first"),
  TOOL_SERVERS: jsonMap(z.url({ protocol: /^https?$/ }), '{"python":"https://tools.example.com/python/mcp"}').refine(
    (servers) => Object.keys(servers).every((name) => BUILTINS.includes(name as BuiltinName)),
    "expected the names browser, python and container",
  ),
  TOOL_SERVER_API_KEY: z.string().optional(),
  TOOL_SERVER_MCP_LABELS: z.string().default(""),
  MCP_SERVERS: z
    .string()
    .transform((text, context) => {
      try {
        return allowList(text);
      } catch {
        context.addIssue({ code: "custom", message: "expected URLs separated by commas" });
        return z.NEVER;
      }
    })
    .optional(),
  DNS_OVER_HTTPS_URL: z.url({ protocol: /^https?$/ }).optional(),
  TOOL_CALL_TIMEOUT_MS: integer(60_000, 1),
  TOOL_TIME_MS: integer(600_000, 1),
  TOOL_OUTPUT_BYTES: integer(100_000, 1_000),
  MAX_TOOL_ROUNDS: integer(32, 1),
  SEARXNG_URL: z.url({ protocol: /^https?$/ }).optional(),
  BRAVE_API_KEY: z.string().optional(),
  API_KEYS: apiKeys,
  ALLOW_ANONYMOUS: z.enum(["true", "false"]).default("false"),
  RETENTION_DAYS: integer(30, 0),
  CONVERSATION_LOCK_WAIT_MS: integer(10_000, 0),
  WEBHOOK_URL: z.url({ protocol: /^https?$/ }).optional(),
  WEBHOOK_SECRET: z
    .string()
    .regex(/^whsec_[A-Za-z0-9+/]{32,}={0,2}$/, "expected whsec_ and at least 24 bytes of base64")
    .transform((text) => Uint8Array.fromBase64(text.slice("whsec_".length)))
    .optional(),
  ALLOW_PRIVATE_WEBHOOKS: z.enum(["true", "false"]).default("false"),
  MAX_REQUEST_BYTES: integer(12 * 1024 * 1024, 1024),
  HEARTBEAT_MS: integer(5_000, 10),
});

const BUILTINS: readonly BuiltinName[] = ["browser", "python", "container"];

/** What vLLM calls the built-in tools in its list of labels. */
const BUILTIN_LABELS: Record<string, BuiltinName> = {
  web_search_preview: "browser",
  web_search: "browser",
  browser: "browser",
  code_interpreter: "python",
  python: "python",
  container: "container",
};

function toTools(vars: z.output<typeof variables>): ToolConfig {
  const labels = vars.TOOL_SERVER_MCP_LABELS.split(/[\s,]+/).filter((label) => label !== "");
  const builtinLabels = labels.map((label) => {
    const builtin = Object.hasOwn(BUILTIN_LABELS, label) ? BUILTIN_LABELS[label] : undefined;
    if (builtin) return [label, builtin] as const;
    throw new ConfigError(`TOOL_SERVER_MCP_LABELS: expected labels such as code_interpreter, web_search or container`);
  });
  const listed = vars.MCP_SERVERS;
  return {
    servers: vars.TOOL_SERVERS,
    apiKey: vars.TOOL_SERVER_API_KEY,
    builtinLabels: new Map(builtinLabels),
    isListed: (url) => listed?.(url) ?? false,
    dohUrl: vars.DNS_OVER_HTTPS_URL,
    callTimeoutMs: vars.TOOL_CALL_TIMEOUT_MS,
    turnTimeMs: vars.TOOL_TIME_MS,
    outputBytes: vars.TOOL_OUTPUT_BYTES,
    maxRounds: vars.MAX_TOOL_ROUNDS,
    searxngUrl: vars.SEARXNG_URL,
    braveApiKey: vars.BRAVE_API_KEY,
  };
}

/** The webhook endpoint; strictly public unless the operator says otherwise (local development, tests). */
function toWebhook(vars: z.output<typeof variables>): Config["webhook"] {
  const { WEBHOOK_URL: url, WEBHOOK_SECRET: secret } = vars;
  if (url === undefined) return undefined;
  if (secret === undefined) throw new ConfigError("WEBHOOK_SECRET: needed to sign the webhooks to WEBHOOK_URL");
  if (vars.ALLOW_PRIVATE_WEBHOOKS !== "true" && !isPublicUrl(url)) {
    throw new ConfigError("WEBHOOK_URL: expected an https URL of a public address");
  }
  return { url, secret };
}

const cache = new WeakMap<Variables, Config>();

/** The configuration of an environment, validated once per isolate. Throws ConfigError. */
export function loadConfig(env: Variables): Config {
  const cached = cache.get(env);
  if (cached) return cached;
  // An empty variable is an unset one.
  const given = Object.fromEntries(Object.entries(env).filter(([, value]) => value !== ""));
  const result = variables.safeParse(given);
  if (!result.success) {
    const issue = result.error.issues[0];
    throw new ConfigError(`${String(issue?.path[0])}: ${issue?.message}`);
  }
  const vars = result.data;
  const binding = env.VLLM;
  if (!vars.VLLM_BASE_URL && !binding) {
    throw new ConfigError("VLLM_BASE_URL: set it to the vLLM server's URL, such as http://gpu:8000/v1");
  }
  const config: Config = {
    vllmBaseUrl: (vars.VLLM_BASE_URL ?? "http://vllm/v1").replace(/\/+$/, ""),
    vllmFetch: (url, init) => (binding ? binding.fetch(url, init) : fetch(url, init)),
    vllmApiKey: vars.VLLM_API_KEY,
    connectTimeoutMs: vars.VLLM_CONNECT_TIMEOUT_MS,
    firstByteTimeoutMs: vars.VLLM_FIRST_BYTE_TIMEOUT_MS,
    idleTimeoutMs: vars.VLLM_IDLE_TIMEOUT_MS,
    maxRetries: vars.VLLM_MAX_RETRIES,
    modelAliases: vars.MODEL_ALIASES,
    modelEngines: vars.MODEL_ENGINES,
    harmony: {
      startDate: vars.HARMONY_START_DATE,
      systemInstructions: vars.HARMONY_SYSTEM_INSTRUCTIONS === "true",
      toolHeader: vars.HARMONY_TOOL_HEADER,
    },
    tools: toTools(vars),
    apiKeys: vars.API_KEYS,
    allowAnonymous: vars.ALLOW_ANONYMOUS === "true",
    retentionMs: vars.RETENTION_DAYS * DAY_MS,
    conversationLockWaitMs: vars.CONVERSATION_LOCK_WAIT_MS,
    webhook: toWebhook(vars),
    maxRequestBytes: vars.MAX_REQUEST_BYTES,
    heartbeatMs: vars.HEARTBEAT_MS,
  };
  cache.set(env, config);
  return config;
}
