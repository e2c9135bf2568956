import { z } from "zod";
import type { OperatorNetwork } from "./network.ts";
import { httpUrl, listed, milliseconds } from "./values.ts";
import { type Mistake, type Section, type ValuesOf, variable } from "./variable.ts";

/** Tokens of an OpenID Connect issuer, which are a second kind of key. */

/** Signatures that a JWT may have: those of asymmetric keys only. A shared secret, or `none`, proves nothing here. */
export const JWT_ALGORITHMS = [
  ...["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"],
  ...["ES256", "ES384", "ES512", "EdDSA", "Ed25519"],
] as readonly string[];

/** Begins the names of tokens' tenants with `JWT_TENANTS=own`. No tenant in `API_KEYS` has a dot in its name. */
export const TOKEN_TENANT_PREFIX = "jwt.";

/** Names of algorithms, separated by commas or white space. */
const algorithms = z
  .string()
  .transform(listed)
  .refine(
    (names) => names.length > 0 && names.every((name) => JWT_ALGORITHMS.includes(name)),
    `expected some of ${JWT_ALGORITHMS.join(", ")}`,
  )
  .default(["RS256", "ES256"]);

export const tokens = {
  title: "Tokens of an identity provider",
  variables: {
    issuer: variable(
      "JWT_ISSUER",
      z.string().min(1).max(1024).optional(),
      "The issuer whose tokens are accepted as keys ([keys.md](../keys.md)). Needs `JWT_AUDIENCE` and `JWT_JWKS_URL`.",
    ),
    audience: variable("JWT_AUDIENCE", z.string().min(1).max(1024).optional(), "The audience that a token must name."),
    jwksUrl: variable("JWT_JWKS_URL", httpUrl().optional(), "The URL of the issuer's public keys (JWKS)."),
    tenants: variable(
      "JWT_TENANTS",
      z.enum(["own", "shared"]).optional(),
      "`shared` gives a token the tenant of keys of the same name; `own` gives it a tenant of its own. Required beside `API_KEYS` or `ADMIN_KEY`.",
    ),
    tenantClaim: variable(
      "JWT_TENANT_CLAIM",
      z.string().min(1).max(256).default("sub"),
      "The claim that names the tenant.",
    ),
    algorithms: variable(
      "JWT_ALGORITHMS",
      algorithms,
      `The signatures that are accepted, some of \`${JWT_ALGORITHMS.join(",")}\`.`,
    ),
    staleMs: variable(
      "JWT_JWKS_STALE_MS",
      milliseconds(86_400_000, 0),
      "How long the issuer's public keys stay valid here while it cannot be reached.",
    ),
  },
} satisfies Section;

type TokenValues = ValuesOf<typeof tokens>;

/** What the variables of tokens demand of each other. `hasKeys`: there are keys of another kind, too. */
export function tokenMistakes({ issuer, audience, jwksUrl, tenants }: TokenValues, hasKeys: boolean): Mistake[] {
  if (issuer === undefined) {
    if (audience === undefined && jwksUrl === undefined && tenants === undefined) return [];
    return [["JWT_ISSUER", "needed with JWT_AUDIENCE, JWT_JWKS_URL and JWT_TENANTS: whose tokens are taken"]];
  }
  const mistakes: Mistake[] = [];
  if (audience === undefined)
    mistakes.push(["JWT_AUDIENCE", "needed with JWT_ISSUER: whom the issuer's tokens are for"]);
  if (jwksUrl === undefined) mistakes.push(["JWT_JWKS_URL", "needed with JWT_ISSUER: where the issuer's keys are"]);
  if (tenants === undefined && hasKeys) {
    const why = "needed with JWT_ISSUER beside API_KEYS or ADMIN_KEY";
    const shared = "shared (a token's tenant is the key tenant of the same name, as before this variable was there)";
    mistakes.push(["JWT_TENANTS", `${why}: ${shared} or own (it is another one, ${TOKEN_TENANT_PREFIX}NAME)`]);
  }
  return mistakes;
}

/** The settings of tokens; undefined where no issuer's are accepted. `fetch` reaches the issuer. */
export function jwtConfig(values: TokenValues, { fetch }: OperatorNetwork) {
  const { issuer, audience, jwksUrl, tenants, ...rest } = values;
  if (issuer === undefined || audience === undefined || jwksUrl === undefined) return undefined;
  /** Begins the names of tokens' tenants; "" where a token's tenant may also be that of a key. */
  const tenantPrefix = tenants === "own" ? TOKEN_TENANT_PREFIX : "";
  return { issuer, audience, jwksUrl, tenantPrefix, ...rest, fetch };
}
export type JwtConfig = NonNullable<ReturnType<typeof jwtConfig>>;
