import * as z from "zod";
import { isPublicUrl } from "./protocol/public-url.ts";

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

const aliases = z
  .string()
  .transform((text, context) => {
    try {
      return JSON.parse(text) as unknown;
    } catch {
      context.addIssue({ code: "custom", message: 'expected a JSON object such as {"alias":"model"}' });
      return z.NEVER;
    }
  })
  .pipe(z.record(z.string().min(1), z.string().min(1)))
  .default({});

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
  MODEL_ALIASES: aliases,
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
