import { createHash, timingSafeEqual } from "node:crypto";
import { ApiError } from "@responses-edge/responses-api/errors";
import type { Context } from "hono";
import { type Config, type JwtConfig, loadConfig } from "../config/index.ts";
import { CONFIGURED_KEY, type Identity, JWT_KEY, NO_KEY } from "../contract/grants.ts";
import type { Env } from "../env.ts";
import { subprotocolKey, wantsSocket } from "../socket/upgrade.ts";
import { keyCache, newIdentity } from "../store/keys/key-cache.ts";
import type { Admin, AppEnv, Authenticated } from "./app-env.ts";
import { signedIn } from "./console-session.ts";
import { hasJwtForm, jwtVerifier, type TokenHolder } from "./jwt.ts";

/** The tenant of every caller where `ALLOW_ANONYMOUS` is set and no keys are (local development). */
const ANONYMOUS = "local";

/** Where keys are known from. `waitUntil` takes what need not be waited for. */
export interface KeySources {
  config: Config;
  env: Pick<Env, "KEYS">;
  waitUntil: (promise: Promise<unknown>) => void;
}

/** The 401 of a caller that has not shown who it is. */
function unauthorized(message: string, code: string): ApiError {
  return new ApiError({ status: 401, message, code, headers: { "www-authenticate": "Bearer" } });
}

function incorrect(): ApiError {
  return unauthorized("Incorrect API key provided.", "invalid_api_key");
}

/**
 * The caller that a request's `Authorization` header names. A page in a browser cannot set this header when it opens a WebSocket: an
 * upgrade without it may have its key in a subprotocol. Every configured key is compared, in constant time, so that the time taken tells
 * nothing about any of them. Any other key may be one of the directory, or an issuer's token. Gives a promise if this isolate does not
 * know such a key. Throws, or rejects with, the 401s, and the 503 if keys cannot be looked up.
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
  const key = /^Bearer +(\S+)$/i.exec(request.headers.get("authorization") ?? inSubprotocol())?.[1];
  if (key !== undefined) return configured(key, sources) ?? fromElsewhere(key, sources);
  if (config.signIn && request.headers.has("cookie")) return fromSession(request, sources);
  throw missing();
}

function missing(): ApiError {
  return unauthorized(
    "You didn't provide an API key. Send it in an Authorization header: Bearer YOUR_KEY.",
    "missing_api_key",
  );
}

/** The user of the console who is signed in. Rejects with the 401 of a request without a key that no page of this server has sent. */
async function fromSession(request: Request, sources: KeySources): Promise<Authenticated> {
  const holder = await signedIn(request, sources.config);
  if (!holder) throw missing();
  return ofHolder(holder, sources);
}

/** The owner of a key that stands in the configuration; undefined where it is none. Rejects with the 503 of `tenantIdentity`. */
function configured(key: string, sources: KeySources): Authenticated | Promise<Authenticated> | undefined {
  const { apiKeys, keys } = sources.config;
  if (apiKeys.length === 0 && keys.adminKeys.length === 0) return undefined;
  const digest = createHash("sha256").update(key).digest();
  let tenant: string | undefined;
  let admin: Admin | undefined;
  for (const known of apiKeys) if (timingSafeEqual(digest, known.sha256)) tenant = known.tenant;
  for (const known of keys.adminKeys) if (timingSafeEqual(digest, known.sha256)) admin = known;
  if (admin) return { admin, actor: admin.name };
  return tenant === undefined ? undefined : tenantIdentity(tenant, CONFIGURED_KEY, sources);
}

/**
 * A tenant whose key or token the directory does not know: its limits bind it all the same. The directory is not asked where nobody can
 * set any. Rejects with the 503 of a directory that cannot be asked.
 */
function tenantIdentity(tenant: string, keyId: string, sources: KeySources): AsTenant | Promise<AsTenant> {
  const { config, env, waitUntil } = sources;
  const { cacheMs, storedBytesPerTenant } = config.keys;
  if (!config.hasAdminApi) return tenantOfConfiguration(tenant, keyId, config);
  const found = keyCache(env, storedBytesPerTenant).identityOfTenant({ tenant, keyId }, cacheMs, waitUntil);
  return found instanceof Promise ? found.then(toAuthenticated) : toAuthenticated(found);
}

const tenants = new Map<string, AsTenant>();

/** A tenant of whom nothing is known but what the configuration says of all. There are as many as it has tenants. */
function tenantOfConfiguration(tenant: string, keyId: string, { keys }: Config): AsTenant {
  const name = `${tenant}:${keyId}:${keys.storedBytesPerTenant}`;
  const known = tenants.get(name);
  if (known) return known;
  const made = toAuthenticated(newIdentity({ tenant, keyId }, null, null, keys.storedBytesPerTenant));
  tenants.set(name, made);
  return made;
}

/** The owner of a key that the directory or an issuer has to know. */
function fromElsewhere(key: string, sources: KeySources): Authenticated | Promise<Authenticated> {
  const { config, env, waitUntil } = sources;
  const { cacheMs, storedBytesPerTenant } = config.keys;
  if (config.jwt && hasJwtForm(key)) return fromToken(key, config.jwt, sources);
  if (!config.hasAdminApi) throw incorrect();
  const found = keyCache(env, storedBytesPerTenant).identityOf(key, cacheMs, waitUntil);
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

/** Sets who asks. Throws, or rejects with, the 401. */
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
  // A look-up of a key also brings changes of the configuration.
  context.set("config", loadConfig(context.env));
}

/**
 * Throws the 401 of a header without the token of the metrics, where there are any; without a token whoever may call this server
 * may read them.
 */
export function checkMetricsToken(header: string | undefined, { telemetry, allowAnonymous, wantsKeys }: Config): void {
  if (!telemetry?.prometheus) return;
  const expected = telemetry.prometheus.tokenSha256;
  if (!expected && allowAnonymous && !wantsKeys) return;
  const token = /^Bearer +(\S+)$/i.exec(header ?? "")?.[1] ?? "";
  const digest = createHash("sha256").update(token).digest();
  if (token !== "" && expected && timingSafeEqual(digest, expected)) return;
  throw unauthorized("Incorrect token provided for the metrics (PROMETHEUS_TOKEN).", "invalid_api_key");
}
