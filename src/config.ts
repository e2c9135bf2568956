import * as z from "zod";
import type { Home } from "./store/home.ts";

/** What wrangler binds: variables and secrets (all text), and the object namespace. README lists them. */
export interface Env {
  HOME: DurableObjectNamespace<Home>;
  VLLM?: Fetcher;
  VLLM_BASE_URL?: string;
  VLLM_API_KEY?: string;
  VLLM_CONNECT_TIMEOUT_MS?: string;
  VLLM_FIRST_BYTE_TIMEOUT_MS?: string;
  VLLM_IDLE_TIMEOUT_MS?: string;
  MODEL_ALIASES?: string;
  API_KEYS?: string;
  ALLOW_ANONYMOUS?: string;
  RETENTION_DAYS?: string;
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
  modelAliases: Record<string, string>;
  apiKeys: ApiKey[];
  allowAnonymous: boolean;
  /** 0 keeps responses for ever. */
  retentionMs: number;
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
  MODEL_ALIASES: aliases,
  API_KEYS: apiKeys,
  ALLOW_ANONYMOUS: z.enum(["true", "false"]).default("false"),
  RETENTION_DAYS: integer(30, 0),
  MAX_REQUEST_BYTES: integer(12 * 1024 * 1024, 1024),
  HEARTBEAT_MS: integer(5_000, 10),
});

const cache = new WeakMap<Env, Config>();

/** The configuration of an environment, validated once per isolate. Throws ConfigError. */
export function loadConfig(env: Env): Config {
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
    modelAliases: vars.MODEL_ALIASES,
    apiKeys: vars.API_KEYS,
    allowAnonymous: vars.ALLOW_ANONYMOUS === "true",
    retentionMs: vars.RETENTION_DAYS * DAY_MS,
    maxRequestBytes: vars.MAX_REQUEST_BYTES,
    heartbeatMs: vars.HEARTBEAT_MS,
  };
  cache.set(env, config);
  return config;
}
