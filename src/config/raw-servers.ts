import { createHash } from "node:crypto";

/**
 * The model servers of variables as they were given, unchecked. Programs that run beside the Worker as long as it does read
 * this file, too: it loads no schemas.
 */

/** Every request searches the pool. */
export const MAX_SERVERS = 100;

/** Variables, as text. Bindings pass through. */
export type Texts = Readonly<Record<string, unknown>>;

/** An entry as it was given, unchecked. */
export type RawEntry = { name?: unknown; url?: unknown; binding?: unknown } & Record<string, unknown>;

/** The base URL of a server, which identifies it. Behind a binding its host is arbitrary. */
export function baseUrlOf({ url, binding }: RawEntry): string {
  return url === undefined
    ? `http://${encodeURIComponent(String(binding ?? "")).toLowerCase()}/v1`
    : String(url).replace(/\/+$/, "");
}

/** A name that depends only on the server's address, not on its position in the list. */
export function defaultName(given: RawEntry): string {
  return `server-${createHash("sha256").update(baseUrlOf(given)).digest("hex").slice(0, 8)}`;
}

/** The entries of the parsed `UPSTREAMS`, in their order; undefined if it is neither a list nor entries by name, or has too many. */
export function entriesOf(json: unknown): unknown[] | undefined {
  if (typeof json !== "object" || json === null) return undefined;
  const entries = Array.isArray(json)
    ? json
    : Object.entries(json).map(([name, given]) => (isObject(given) ? { name, ...given } : given));
  return entries.length === 0 || entries.length > MAX_SERVERS ? undefined : entries;
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The environment, overridden by a file. Model servers are taken as a whole from one of the two. */
export function withFile<Env extends object>(env: Env, file: Texts): Env {
  const merged: Record<string, unknown> = { ...(env as Texts), ...file };
  if (file.UPSTREAMS !== undefined) {
    merged.VLLM_BASE_URL = undefined;
    const names = new Set(entries(file.UPSTREAMS).map(nameOf));
    if (file.UPSTREAM_SECRETS === undefined) merged.UPSTREAM_SECRETS = secretsOf(names, merged.UPSTREAM_SECRETS);
  } else if (file.VLLM_BASE_URL !== undefined) {
    merged.UPSTREAMS = undefined;
    merged.UPSTREAM_SECRETS = undefined;
  }
  return merged as Env;
}

/** The model servers of variables, in any of their forms. */
export function serversOf({ UPSTREAMS: pool, VLLM_BASE_URL: url, VLLM: binding }: Texts): RawEntry[] {
  if (pool) return entries(pool);
  if (url) return [{ name: "vllm", url }];
  return binding ? [{ name: "vllm", binding: "VLLM" }] : [];
}

/** The secrets of these servers; undefined if there are none. Invalid JSON is refused elsewhere. */
export function secretsOf(names: ReadonlySet<string>, text: unknown): unknown {
  const secrets = parsed(text);
  if (typeof secrets !== "object" || secrets === null || Array.isArray(secrets)) return text;
  const kept = Object.entries(secrets).filter(([name]) => names.has(name));
  return kept.length === 0 ? undefined : JSON.stringify(Object.fromEntries(kept));
}

function entries(text: unknown): RawEntry[] {
  return (entriesOf(parsed(text)) ?? []).filter((entry) => typeof entry === "object" && entry !== null) as RawEntry[];
}

export function nameOf(entry: RawEntry): string {
  return typeof entry.name === "string" ? entry.name : defaultName(entry);
}

export function parsed(text: unknown): unknown {
  if (typeof text !== "string") return undefined;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
