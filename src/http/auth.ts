import { createHash, timingSafeEqual } from "node:crypto";
import { ApiError } from "@responses-edge/responses-api/errors";
import type { Context } from "hono";
import { type Config, type JwtConfig, loadConfig } from "../config/index.ts";
import { type Identity, JWT_KEY, NO_KEY } from "../contract/grants.ts";
import type { Env } from "../env.ts";
import { subprotocolKey, wantsSocket } from "../socket/upgrade.ts";
import { keyCache, newIdentity } from "../store/deployment/keys/key-cache.ts";
import type { Admin, AppEnv, Authenticated } from "./app-env.ts";
import { wrongType } from "./body.ts";
import { signedIn } from "./console-session.ts";
import { hasJwtForm, jwtVerifier, type TokenHolder } from "./jwt.ts";

/** The tenant of every caller if `ALLOW_ANONYMOUS` is set and there are no keys (local development). */
const ANONYMOUS = "local";

/** The sources of keys. `waitUntil` takes work that the request need not wait for. */
export interface KeySources {
  config: Config;
  env: Pick<Env, "KEYS">;
  waitUntil: (promise: Promise<unknown>) => void;
}

/** The 401 of an unauthenticated caller. */
function unauthorized(message: string, code: string): ApiError {
  return new ApiError({ status: 401, message, code, headers: { "www-authenticate": "Bearer" } });
}

function incorrect(): ApiError {
  return unauthorized("Incorrect API key provided.", "invalid_api_key");
}

/**
 * The caller that a request's `Authorization` header names. A browser page cannot set this header when it opens a WebSocket: an
 * upgrade without it may have its key in a subprotocol. Every configured key is compared in constant time, so that the time
 * reveals nothing about any of them. Another key may be in the directory, or an issuer's token. Gives a promise if this isolate
 * has not cached such a key. Throws, or rejects with, the 401s, and the 503 if keys cannot be looked up.
 */
export function authenticate(request: Request, sources: KeySources): Authenticated | Promise<Authenticated> {
  const { config } = sources;
  if (!config.wantsKeys) {
    if (config.allowAnonymous) return tenantOfConfiguration(ANONYMOUS, NO_KEY, config);
    throw unauthorized(
      "This deployment has no API keys and refuses every call. Set the secret API_KEYS (see README, 'API keys').",
      "no_api_keys_configured",
    );
  }
  const inSubprotocol = () => (wantsSocket(request) ? `Bearer ${subprotocolKey(request) ?? ""}` : "");
  const { headers } = request;
  // Azure's clients send it in a header of its own.
  const key = /^Bearer +(\S+)$/i.exec(headers.get("authorization") ?? inSubprotocol())?.[1] ?? headers.get("api-key");
  if (key) return configured(key, sources) ?? fromElsewhere(key, sources);
  if (config.signIn && headers.has("cookie")) return fromSession(request, sources);
  throw missing();
}

function missing(): ApiError {
  return unauthorized(
    "You didn't provide an API key. Send it in an Authorization header: Bearer YOUR_KEY.",
    "missing_api_key",
  );
}

/** The user who is signed in to the console. Rejects with the 401 of a request without a key that no page of this server has sent. */
async function fromSession(request: Request, sources: KeySources): Promise<Authenticated> {
  const holder = await signedIn(request, sources.config);
  if (!holder) throw missing();
  return ofHolder(holder, sources);
}

/** The owner of a key in the configuration; undefined for other keys. Rejects with the 503 of `tenantIdentity`. */
function configured(key: string, sources: KeySources): Authenticated | Promise<Authenticated> | undefined {
  const { apiKeys, keys } = sources.config;
  if (apiKeys.length === 0 && keys.adminKeys.length === 0) return undefined;
  const digest = createHash("sha256").update(key).digest();
  let found: Config["apiKeys"][number] | undefined;
  let admin: Admin | undefined;
  for (const known of apiKeys) if (timingSafeEqual(digest, known.sha256)) found = known;
  for (const known of keys.adminKeys) if (timingSafeEqual(digest, known.sha256)) admin = known;
  if (admin) return { admin, actor: admin.name };
  return found && tenantIdentity(found.tenant, found.id, sources);
}

/**
 * The identity of a tenant whose key or token the directory does not know. The tenant's limits apply all the same. The directory
 * is not asked where there is no admin API to set any. Rejects with the 503 of a directory that cannot be asked.
 */
function tenantIdentity(tenant: string, keyId: string, sources: KeySources): AsTenant | Promise<AsTenant> {
  const { config, env, waitUntil } = sources;
  if (!config.hasAdminApi) return tenantOfConfiguration(tenant, keyId, config);
  const found = keyCache(env, config.keys).identityOfTenant({ tenant, keyId }, config.keys.cacheMs, waitUntil);
  return found instanceof Promise ? found.then(toAuthenticated) : toAuthenticated(found);
}

const tenants = new Map<string, AsTenant>();

/**
 * The identity of a tenant that only the configuration's general settings apply to. There are as many as the
 * configuration has tenants.
 */
function tenantOfConfiguration(tenant: string, keyId: string, { keys }: Config): AsTenant {
  const name = `${tenant}:${keyId}:${keys.storedBytesPerTenant}:${keys.diskShare}`;
  const known = tenants.get(name);
  if (known) return known;
  const made = toAuthenticated(newIdentity({ tenant, keyId }, null, null, keys));
  tenants.set(name, made);
  return made;
}

/** The owner of a key of the directory, or of an issuer's token. */
function fromElsewhere(key: string, sources: KeySources): Authenticated | Promise<Authenticated> {
  const { config, env, waitUntil } = sources;
  if (config.jwt && hasJwtForm(key)) return fromToken(key, config.jwt, sources);
  if (!config.hasAdminApi) throw incorrect();
  const found = keyCache(env, config.keys).identityOf(key, config.keys.cacheMs, waitUntil);
  return found instanceof Promise ? found.then(toAuthenticated) : toAuthenticated(found);
}

type AsTenant = Authenticated & { identity: Identity };

function toAuthenticated(identity: Identity | undefined): AsTenant {
  if (!identity) throw incorrect();
  return { identity, actor: identity.keyId };
}

async function fromToken(token: string, jwt: JwtConfig, sources: KeySources): Promise<Authenticated> {
  return ofHolder(await jwtVerifier(jwt).holderOf(token, sources.waitUntil), sources);
}

/** Authenticates the holder of a token: a tenant, an administrator, or both. Rejects with the 503 of `tenantIdentity`. */
async function ofHolder({ tenant, role, subject }: TokenHolder, sources: KeySources): Promise<Authenticated> {
  const actor = `${JWT_KEY}:${subject}`;
  const admin = role && { name: actor, role, ...(role === "tenant_admin" && { tenant }) };
  if (tenant !== undefined) return { ...(await tenantIdentity(tenant, JWT_KEY, sources)), actor, admin };
  if (!admin) throw incorrect();
  return { admin, actor };
}

/** Sets the authenticated caller. Throws, or rejects with, the 401. */
export async function setAuthenticated(context: Context<AppEnv>): Promise<void> {
  const asked = authenticate(context.req.raw, {
    config: context.get("config"),
    env: context.env,
    waitUntil: (promise) => context.executionCtx.waitUntil(promise),
  });
  if (!(asked instanceof Promise)) {
    context.set("authenticated", asked);
    return;
  }
  context.set("authenticated", await asked);
  // Looking up a key may also bring changes of the configuration.
  context.set("config", loadConfig(context.env));
}

/**
 * Throws the 401 of a header without the token of the metrics. If no token is configured, every caller that may use
 * this server may read them.
 */
export function checkMetricsToken(header: string | undefined, { telemetry, allowAnonymous, wantsKeys }: Config): void {
  if (!telemetry.prometheus) return;
  const expected = telemetry.prometheus.tokenSha256;
  if (!expected && allowAnonymous && !wantsKeys) return;
  const token = /^Bearer +(\S+)$/i.exec(header ?? "")?.[1] ?? "";
  const digest = createHash("sha256").update(token).digest();
  if (token !== "" && expected && timingSafeEqual(digest, expected)) return;
  throw unauthorized("Incorrect token provided for the metrics (PROMETHEUS_TOKEN).", "invalid_api_key");
}

/**
 * Protection from pages in a browser of the same machine where there are no keys (local development). Any site may send
 * requests to localhost, and a site whose name resolves to 127.0.0.1 (DNS rebinding) may read the answers.
 */

/** The names under which a machine reaches itself, as the URL parser writes them. */
const LOCAL_HOSTS = new Set(["localhost", "127.0.0.1", "[::1]"]);

/**
 * The accepted values of `Sec-Fetch-Site` (Fetch Metadata Request Headers §2.4). `same-site` is a page of this machine
 * on another port: its host was checked, and sites do not tell ports apart.
 */
const LOCAL_SITES = new Set(["same-origin", "same-site", "none"]);

const METHODS_WITH_BODY = new Set(["POST", "PUT", "PATCH"]);

const JSON_TYPE = /^application\/(json|[\w.+-]+\+json)\s*(;|$)/i;

/**
 * Refuses requests that a page of another host may have sent, on every path, if there are no keys: 403
 * `browser_request_refused`. If there are keys, the operator decides which pages know one. `isAllowed`: the operator has
 * named the page's origin.
 */
export function refuseForeignPages(context: Context<AppEnv>, isAllowed: boolean): void {
  if (!servesWithoutKeys(context)) return;
  const { headers, url } = context.req.raw;
  const host = headers.get("host");
  const origin = headers.get("origin");
  const site = headers.get("sec-fetch-site");
  if (!isLocal(url) || (host !== null && !isLocal(`http://${host}`))) throw refused("Host");
  if (isAllowed) return;
  if (origin !== null && !isLocal(origin)) throw refused("Origin");
  if (site !== null && !LOCAL_SITES.has(site)) throw refused("Sec-Fetch-Site");
}

/**
 * Throws the 415 of a body whose type is not JSON. A browser sends other types to any site without asking it first. An
 * empty body that may be absent needs no type (the SDKs cancel without one), except from a browser where there are no keys.
 */
export function requireJsonBody(context: Context<AppEnv>, mayBeAbsent: boolean): void {
  const { method, body, headers } = context.req.raw;
  const type = headers.get("content-type");
  if (!METHODS_WITH_BODY.has(method) || JSON_TYPE.test(type ?? "")) return;
  const isEmpty = body === null || headers.get("content-length") === "0";
  // Node's `fetch` sends `Sec-Fetch-Mode`, and neither of the other headers.
  const isFromBrowser = headers.has("origin") || headers.has("sec-fetch-site");
  const isBare = isEmpty && type === null && !(isFromBrowser && servesWithoutKeys(context));
  if (!mayBeAbsent || !isBare) throw wrongType("application/json");
}

/** True if this server serves everyone who reaches it. A misconfigured server serves nobody. */
function servesWithoutKeys(context: Context<AppEnv>): boolean {
  try {
    const { wantsKeys, allowAnonymous } = loadConfig(context.env);
    return !wantsKeys && allowAnonymous;
  } catch {
    return false;
  }
}

/** The last URL of this machine, up to its path. Most requests have the same one. */
let lastLocal: string | undefined;

function isLocal(url: string): boolean {
  const path = url.indexOf("/", "https://".length);
  const origin = path === -1 ? url : url.slice(0, path);
  if (origin === lastLocal) return true;
  const { protocol = "", hostname = "" } = URL.parse(url) ?? {};
  const is = /^https?:$/.test(protocol) && LOCAL_HOSTS.has(hostname);
  if (is) lastLocal = origin;
  return is;
}

/** The 403 of a request whose header shows that it is not from this machine. */
function refused(header: string): ApiError {
  const message =
    `This server has no API keys and serves only this machine, but the header '${header}' names another. ` +
    "To serve others, set API_KEYS (see README, 'API keys').";
  return new ApiError({ status: 403, message, code: "browser_request_refused" });
}
