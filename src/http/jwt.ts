import { createHash } from "node:crypto";
import { readBoundedText } from "@responses-edge/bounded-io/body";
import { ApiError } from "@responses-edge/responses-api/errors";
import {
  createLocalJWKSet,
  decodeProtectedHeader,
  errors,
  type JSONWebKeySet,
  type JWTPayload,
  type JWTVerifyGetKey,
  jwtVerify,
} from "jose";
import { type JwtConfig, ROLES, type Role } from "../config/index.ts";

/**
 * Tokens of an OpenID Connect issuer as keys (RFC 7519, RFC 8725). Only algorithms on the operator's list are accepted,
 * and the issuer's keys are fetched at a bounded rate, whatever tokens come.
 */

/** RFC 8725 §2.8 allows a small leeway for the operator's clocks. */
const LEEWAY_S = 30;

/** A longer text is not taken for a token. */
const MAX_TOKEN_LENGTH = 8_192;

/** Bounds of the issuer's key set, and of the time to fetch it. */
const MAX_JWKS_BYTES = 256 * 1024;
const JWKS_TIMEOUT_MS = 5_000;

/**
 * The keys are fetched again after this time, in parallel with a request. For a missing key they are fetched at once,
 * at most this often.
 */
const REFRESH_AFTER_MS = 600_000;
const MIN_INTERVAL_MS = 10_000;

/** A verified token is not verified again for this time. A key that the issuer revokes is accepted for as long. */
const BELIEVED_MS = 60_000;
const MAX_BELIEVED = 10_000;

const TENANT = /^[A-Za-z0-9_-]{1,64}$/;

/** True if a bearer has the form of a signed token: three parts, the first of which begins with `{"`. */
export function hasJwtForm(bearer: string): boolean {
  return /^eyJ[A-Za-z0-9_-]*\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*$/.test(bearer);
}

interface Keys {
  find: JWTVerifyGetKey;
  /** Unix milliseconds. */
  at: number;
}

/** The holder of a token, with a tenant, a role, or both. */
export interface TokenHolder {
  tenant: string | undefined;
  role: Role | undefined;
  /** Its `sub`. */
  subject: string;
}

/** A longer subject is truncated. UTF-16 units. */
const MAX_SUBJECT = 256;

/** The holder that claims name. Throws the 401 of claims without a tenant or a role. */
export function holderOfClaims(payload: JWTPayload, config: JwtConfig): TokenHolder {
  const { tenantPrefix, tenantClaim, roles, roleClaim } = config;
  const values = [claimAt(payload, roleClaim)].flat();
  const has = new Set(
    values.map((value) => (typeof value === "string" && Object.hasOwn(roles, value) ? roles[value] : 0)),
  );
  const named = payload[tenantClaim];
  const tenant = typeof named === "string" && TENANT.test(named) ? tenantPrefix + named : undefined;
  const role = ROLES.find((each) => has.has(each) && (each !== "tenant_admin" || tenant !== undefined));
  if (tenant === undefined && role === undefined) {
    throw notGood(`its claim '${tenantClaim}' names no tenant (1 to 64 letters, digits, '_' or '-')`);
  }
  return { tenant, role, subject: (payload.sub ?? "").slice(0, MAX_SUBJECT) };
}

/** A claim by its name, or else by its path. Issuers name claims by URLs, which have dots. */
function claimAt(payload: JWTPayload, name: string): unknown {
  if (Object.hasOwn(payload, name)) return payload[name];
  let value: unknown = payload;
  for (const step of name.split(".")) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, step)) return undefined;
    value = (value as Record<string, unknown>)[step];
  }
  return value;
}

class JwtVerifier {
  readonly #config: JwtConfig;
  #keys: Keys | undefined;
  #askedAt = Number.NEGATIVE_INFINITY;
  /** Holders of verified tokens, by the token's SHA-256; oldest first. */
  readonly #believed = new Map<string, { holder: TokenHolder; until: number; from: number }>();

  constructor(config: JwtConfig) {
    this.#config = config;
  }

  /**
   * The holder of a token. `beside` takes work that the request need not wait for. Rejects with the 401 of an invalid
   * token, and the 503 if the issuer's keys cannot be fetched.
   */
  async holderOf(token: string, beside: (promise: Promise<unknown>) => void): Promise<TokenHolder> {
    if (token.length > MAX_TOKEN_LENGTH) throw notGood("it is too long");
    const hash = createHash("sha256").update(token).digest("base64url");
    const now = Date.now();
    const known = this.#believed.get(hash);
    if (known && now >= known.from && now < known.until) return known.holder;
    const payload = await this.claimsOf(token, beside);
    const holder = holderOfClaims(payload, this.#config);
    const expires = (payload.exp ?? 0) * 1000 + LEEWAY_S * 1000;
    this.#believed.delete(hash);
    this.#believed.set(hash, { holder, from: now, until: Math.min(expires, now + BELIEVED_MS) });
    if (this.#believed.size > MAX_BELIEVED) {
      const oldest = this.#believed.keys().next().value;
      if (oldest !== undefined) this.#believed.delete(oldest);
    }
    return holder;
  }

  /** The claims of a token. Rejects with the 401 of an invalid token, and the 503 of `holderOf`. */
  async claimsOf(token: string, beside: (promise: Promise<unknown>) => void): Promise<JWTPayload> {
    const { issuer, audience, algorithms } = this.#config;
    // Refuses most tokens of other issuers before any key is fetched.
    checkHeader(token, algorithms);
    const { find } = await this.#issuersKeys(beside);
    const lists = { algorithms: [...algorithms], requiredClaims: ["exp"] };
    const options = { issuer, audience, clockTolerance: LEEWAY_S, ...lists };
    try {
      return (await jwtVerify(token, find, options)).payload;
    } catch (error) {
      if (!(error instanceof errors.JWKSNoMatchingKey) || !this.#mayAsk()) throw toRefusal(error);
    }
    // The issuer may have a new key.
    const renewed = await this.#ask().catch(() => undefined);
    try {
      return (await jwtVerify(token, renewed?.find ?? find, options)).payload;
    } catch (error) {
      throw toRefusal(error);
    }
  }

  async #issuersKeys(beside: (promise: Promise<unknown>) => void): Promise<Keys> {
    const keys = this.#keys;
    const age = keys ? Math.abs(Date.now() - keys.at) : Number.POSITIVE_INFINITY;
    if (!keys || age > REFRESH_AFTER_MS + this.#config.staleMs) {
      if (!this.#mayAsk()) throw unavailable();
      return this.#ask();
    }
    if (age > REFRESH_AFTER_MS && this.#mayAsk()) beside(this.#ask().catch(() => {}));
    return keys;
  }

  #mayAsk(): boolean {
    // The first requests of an isolate fetch the keys each for itself: none waits for another's fetch.
    if (!this.#keys && this.#askedAt === Number.NEGATIVE_INFINITY) return true;
    return Math.abs(Date.now() - this.#askedAt) >= MIN_INTERVAL_MS;
  }

  /** Fetches the issuer's keys. Rejects with the 503. */
  async #ask(): Promise<Keys> {
    try {
      const signal = AbortSignal.timeout(JWKS_TIMEOUT_MS);
      const headers = { accept: "application/json" };
      const answer = await this.#config.fetch(this.#config.jwksUrl, { headers, signal });
      if (this.#keys) this.#askedAt = Date.now();
      if (!answer.ok) throw new TypeError(`The issuer's keys: ${answer.status}.`);
      const text = await readBoundedText(answer, { maxBytes: MAX_JWKS_BYTES, timeoutMs: JWKS_TIMEOUT_MS, signal });
      const keys = { find: createLocalJWKSet(JSON.parse(text) as JSONWebKeySet), at: Date.now() };
      this.#keys = keys;
      this.#askedAt = keys.at;
      return keys;
    } catch {
      this.#askedAt = Date.now();
      throw unavailable();
    }
  }
}

/** Throws the 401 of a token whose algorithm is not on the list, such as `none` or one with a shared secret. */
function checkHeader(token: string, algorithms: readonly string[]): void {
  let alg: string | undefined;
  try {
    ({ alg } = decodeProtectedHeader(token));
  } catch {
    throw notGood("it is malformed");
  }
  if (alg === undefined || !algorithms.includes(alg)) throw notGood("its algorithm is not accepted");
}

function toRefusal(error: unknown): ApiError {
  if (error instanceof errors.JWTExpired) return notGood("it has expired");
  if (error instanceof errors.JWTClaimValidationFailed) return notGood(`its claim '${error.claim}' is not accepted`);
  if (error instanceof errors.JWKSNoMatchingKey) return notGood("nobody knows its key");
  return notGood("its signature is not valid");
}

function notGood(why: string): ApiError {
  return new ApiError({
    status: 401,
    message: `Incorrect token provided: ${why}.`,
    code: "invalid_token",
    headers: { "www-authenticate": 'Bearer error="invalid_token"' },
  });
}

function unavailable(): ApiError {
  const message =
    "Tokens cannot be verified at the moment, because their issuer's keys are not reachable. Please retry later.";
  return new ApiError({ status: 503, message, code: "token_keys_unavailable", headers: { "retry-after": "10" } });
}

const verifiers = new WeakMap<JwtConfig, JwtVerifier>();

/** This isolate's verifier. */
export function jwtVerifier(config: JwtConfig): JwtVerifier {
  const verifier = verifiers.get(config) ?? new JwtVerifier(config);
  verifiers.set(config, verifier);
  return verifier;
}
