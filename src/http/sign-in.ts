import { Buffer } from "node:buffer";
import { createHash, randomBytes } from "node:crypto";
import { readBoundedText } from "@responses-edge/bounded-io/body";
import { logLine } from "@responses-edge/bounded-io/json-text";
import { type Context, Hono } from "hono";
import { type Config, type JwtConfig, loadConfig, type SignInConfig } from "../config/index.ts";
import { administration } from "./admin.ts";
import { unknownUrl } from "./answers.ts";
import type { AppEnv } from "./app-env.ts";
import { setAuthenticated } from "./auth.ts";
import { adminOf } from "./caller.ts";
import { isFromOwnPage, noCookie, openedCookie, sealedCookie, signedIn } from "./console-session.ts";
import { holderOfClaims, jwtVerifier } from "./jwt.ts";

/**
 * Signing in to the console at the issuer of tokens: OpenID Connect Core 1.0 §3.1, with PKCE (RFC 7636) and, where the
 * issuer sends it, the issuer's name in the answer (RFC 9207). A user may sign in exactly if an API token of the issuer
 * with the same claims would be accepted.
 */

/** The longest time of a login, from here to the issuer and back. */
const LOGIN_SECONDS = 600;

/** Bounds of the issuer's answers. */
const MAX_ANSWER_BYTES = 256 * 1024;
const TIMEOUT_MS = 10_000;

/** The issuer's endpoints are fetched again after this time. */
const DISCOVERED_FOR_MS = 600_000;

/** The reason of a failed sign-in. The console words it (`packages/console/src/sign-in.ts`). */
type Refusal = "refused" | "expired" | "no_access" | "unavailable";

interface Endpoints {
  authorization: string;
  token: string;
  /** True if the issuer takes a client's secret only in the form. */
  wantsSecretInForm: boolean;
}

const discovered = new WeakMap<SignInConfig, { endpoints: Endpoints; at: number }>();

/** The issuer's endpoints (OpenID Connect Discovery 1.0). Rejects if they cannot be fetched. */
async function endpointsOf(config: SignInConfig, jwt: JwtConfig): Promise<Endpoints> {
  const known = discovered.get(config);
  if (known && Math.abs(Date.now() - known.at) < DISCOVERED_FOR_MS) return known.endpoints;
  const found = await askIssuer(jwt, `${jwt.issuer.replace(/\/$/, "")}/.well-known/openid-configuration`, {});
  if (found.issuer !== jwt.issuer) throw new TypeError("The issuer's configuration is another issuer's.");
  const methods = found.token_endpoint_auth_methods_supported;
  const endpoints = {
    authorization: urlIn(found.authorization_endpoint),
    token: urlIn(found.token_endpoint),
    wantsSecretInForm: Array.isArray(methods) && !methods.includes("client_secret_basic"),
  };
  discovered.set(config, { endpoints, at: Date.now() });
  return endpoints;
}

function urlIn(value: unknown): string {
  if (typeof value !== "string" || !/^https?:$/.test(URL.parse(value)?.protocol ?? "")) {
    throw new TypeError("The issuer's configuration lacks an endpoint.");
  }
  return value;
}

/** The issuer's JSON answer. Rejects with any other answer, and with none in time. */
async function askIssuer(jwt: JwtConfig, url: string, init: RequestInit): Promise<Record<string, unknown>> {
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const answer = await jwt.fetch(url, { ...init, headers: { accept: "application/json", ...init.headers }, signal });
  const text = await readBoundedText(answer, { maxBytes: MAX_ANSWER_BYTES, timeoutMs: TIMEOUT_MS, signal });
  const value: unknown = answer.ok ? JSON.parse(text) : undefined;
  if (typeof value === "object" && value !== null) return value as Record<string, unknown>;
  throw new TypeError(`The issuer answered with status ${answer.status}.`);
}

const random = () => randomBytes(32).toString("base64url");

/** Redirects a browser to the issuer. Rejects if the issuer cannot be asked. */
async function begin(context: Context<AppEnv>, config: SignInConfig, jwt: JwtConfig): Promise<Response> {
  const { authorization } = await endpointsOf(config, jwt);
  const login = { state: random(), nonce: random(), verifier: random() };
  const url = new URL(authorization);
  const query = {
    response_type: "code",
    client_id: config.clientId,
    redirect_uri: config.redirectUrl,
    scope: config.scopes,
    state: login.state,
    nonce: login.nonce,
    code_challenge: createHash("sha256").update(login.verifier).digest("base64url"),
    code_challenge_method: "S256",
  };
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  context.header("set-cookie", await sealedCookie("login", login, LOGIN_SECONDS, config));
  return context.redirect(url.href, 303);
}

/**
 * Signs in the user whom the issuer has sent back. Returns the session's cookie, or the reason why there is none. Rejects
 * if the issuer cannot be asked.
 */
async function finish(request: Request, config: SignInConfig, jwt: JwtConfig): Promise<{ session: string } | Refusal> {
  const answer = new URL(request.url).searchParams;
  const login = await openedCookie("login", request, config);
  if (!login || typeof login.verifier !== "string" || answer.get("state") !== login.state) return "expired";
  const code = answer.get("code");
  if (code === null || (answer.get("iss") ?? jwt.issuer) !== jwt.issuer) return "refused";
  const claims = await claimsFor(code, login.verifier, config, jwt);
  // OpenID Connect Core §2 requires `sub`, which names the user in the audit log.
  if (claims.nonce !== login.nonce || !claims.sub) return "refused";
  // A token for several audiences must be issued to this client.
  if (Array.isArray(claims.aud) && claims.aud.length > 1 && claims.azp !== config.clientId) return "refused";
  try {
    const { tenant, role, subject } = holderOfClaims(claims, jwt);
    const who = { sub: subject, ...(tenant !== undefined && { tenant }), ...(role && { role }) };
    return { session: await sealedCookie("session", who, config.sessionMs / 1000, config) };
  } catch {
    return "no_access";
  }
}

/** The claims of the ID token for a code. Rejects if the issuer gives no valid one. */
async function claimsFor(code: string, verifier: string, config: SignInConfig, jwt: JwtConfig) {
  const { token, wantsSecretInForm } = await endpointsOf(config, jwt);
  const { clientId, clientSecret, redirectUrl } = config;
  const form = new URLSearchParams({ grant_type: "authorization_code", code, redirect_uri: redirectUrl });
  form.set("code_verifier", verifier);
  const headers: Record<string, string> = { "content-type": "application/x-www-form-urlencoded" };
  if (clientSecret !== undefined && !wantsSecretInForm) {
    // RFC 6749 §2.3.1 encodes both as form values.
    const pair = [clientId, clientSecret]
      .map((part) => new URLSearchParams({ "": part }).toString().slice(1))
      .join(":");
    headers.authorization = `Basic ${Buffer.from(pair).toString("base64")}`;
  } else {
    form.set("client_id", clientId);
    if (clientSecret !== undefined) form.set("client_secret", clientSecret);
  }
  const { id_token: idToken } = await askIssuer(jwt, token, { method: "POST", headers, body: form.toString() });
  if (typeof idToken !== "string") throw new TypeError("The issuer gave no ID token.");
  return jwtVerifier(idTokens(config, jwt)).claimsOf(idToken, () => {});
}

const configs = new WeakMap<SignInConfig, JwtConfig>();

/** The settings of ID tokens: those of access tokens, with another audience. */
function idTokens(config: SignInConfig, jwt: JwtConfig): JwtConfig {
  const known = configs.get(config) ?? { ...jwt, audience: config.clientId };
  configs.set(config, known);
  return known;
}

/** The settings of the sign-in. Throws a 404 if there is none. */
function settings(context: Context<AppEnv>): { config: Config; signIn: SignInConfig; jwt: JwtConfig } {
  const config = loadConfig(context.env);
  const { signIn, jwt } = config;
  if (!signIn || !jwt) throw unknownUrl(context);
  context.header("cache-control", "no-store");
  context.header("referrer-policy", "no-referrer");
  return { config, signIn, jwt };
}

function toConsole(context: Context<AppEnv>, why?: Refusal): Response {
  return context.redirect(why === undefined ? "/" : `/?sign-in=${why}`, 303);
}

/** Logs the issuer's failure without its text, which may contain a code. */
function failed(context: Context<AppEnv>, error: unknown): Response {
  const name = error instanceof Error ? error.name : "unknown";
  console.warn(logLine({ level: "warn", event: "sign_in_failed", error: name, request_id: context.get("requestId") }));
  return toConsole(context, "unavailable");
}

/** The console's paths, in addition to its files. They are not part of the API. */
export const consoleSignIn = new Hono<AppEnv>()
  .get("/console/session", async (context) => {
    const config = loadConfig(context.env);
    context.header("cache-control", "no-store");
    const who = await signedIn(context.req.raw, config);
    const session = who && { name: who.subject, tenant: who.tenant ?? null, role: who.role ?? null };
    return context.json({ session: session ?? null });
  })
  .get("/console/rights", async (context) => {
    context.set("config", loadConfig(context.env));
    context.header("cache-control", "no-store");
    await setAuthenticated(context);
    const { role } = adminOf(context);
    const allowed = administration.filter(({ operation }) => operation.roles?.includes(role));
    return context.json({ role, operations: allowed.map(({ operation }) => operation.id) });
  })
  .get("/console/login", async (context) => {
    const { signIn, jwt } = settings(context);
    return begin(context, signIn, jwt).catch((error: unknown) => failed(context, error));
  })
  .get("/console/callback", async (context) => {
    const { signIn, jwt } = settings(context);
    context.header("set-cookie", noCookie("login", signIn));
    try {
      const done = await finish(context.req.raw, signIn, jwt);
      if (typeof done === "string") return toConsole(context, done);
      context.header("set-cookie", done.session, { append: true });
      return toConsole(context);
    } catch (error) {
      return failed(context, error);
    }
  })
  .post("/console/logout", (context) => {
    const { signIn } = settings(context);
    if (!isFromOwnPage(context.req.raw)) throw unknownUrl(context);
    context.header("set-cookie", noCookie("session", signIn));
    return context.body(null, 204);
  });
