import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import { z } from "zod";
import type { OperatorNetwork } from "./network.ts";
import { ROLES, readRole } from "./roles.ts";
import { days, flag, fromBase64, httpUrl, integer, jsonMap, listed, listText, milliseconds } from "./values.ts";
import { type Mistake, type Section, type ValuesOf, variable } from "./variable.ts";

/** Keys of callers, and the limits that keys and tenants have. */

/**
 * `name:sha256hex`, separated by commas or white space, each followed by whatever `readRest` takes. Several keys may
 * name one tenant (rotation), no key names two. A text without any entry is a mistake: an operator who sets it does not
 * mean to serve everybody.
 */
function keyEntries<Rest>(expected: string, readRest: (text: string | undefined) => Rest | undefined) {
  return listText().transform((text, context) => {
    const owners = new Map<string, { owner: string; name: string; rest: Rest }>();
    const entries = listed(text);
    if (entries.length === 0) context.addIssue({ code: "custom", message: "expected at least one entry" });
    for (const entry of entries) {
      const [, name, hash, behind] = /^([A-Za-z0-9_-]{1,64}):([0-9a-fA-F]{64})(?::(.*))?$/.exec(entry) ?? [];
      const rest = readRest(behind);
      if (name === undefined || hash === undefined || rest === undefined) {
        context.addIssue({ code: "custom", message: expected });
        return z.NEVER;
      }
      const owner = `${name}:${behind ?? ""}`;
      if ((owners.get(hash.toLowerCase())?.owner ?? owner) !== owner) {
        context.addIssue({ code: "custom", message: "expected each key once: one key has two tenants" });
        return z.NEVER;
      }
      owners.set(hash.toLowerCase(), { owner, name, rest });
    }
    return [...owners].map(([hash, { name, rest }]) => {
      return { name, rest, sha256: new Uint8Array(Buffer.from(hash, "hex")) };
    });
  });
}

/** The commands that make a key, in a checkout and of the package. */
export const MAKES_KEYS = "`npm run create-key -- TENANT` or `responses-edge create-key TENANT`";

/** The id of a key in `API_KEYS`: it stays the same while the key does, whatever other keys there are. */
function configuredId(sha256: Uint8Array): string {
  return `configured_${Buffer.from(sha256).toString("hex").slice(0, 16)}`;
}

const apiKeys = keyEntries(
  `expected entries of the form tenant:sha256-in-hex, as ${MAKES_KEYS} prints them`,
  (behind) => (behind === undefined ? true : undefined),
)
  .transform((keys) => keys.map(({ name, sha256 }) => ({ id: configuredId(sha256), tenant: name, sha256 })))
  .default([]);

/**
 * The text of a root key, for an operator who can only fill in a form. It has its prefix, and enough random characters
 * that it cannot be guessed.
 */
const PLAIN_ROOT_KEY = /^sk-admin-[A-Za-z0-9_-]{32,512}$/;

/** The name of the holder of such a key in the audit log. */
const PLAIN_ROOT_NAME = "root";

/**
 * `name:sha256hex` as in `API_KEYS`, where the name is the holder's, followed by its role; or the text of a root key,
 * which is an owner's.
 */
const adminKeys = listText()
  .transform((text) => listed(text).map(hashedRootKey).join(","))
  .pipe(
    keyEntries(
      `expected entries of the form name:sha256-in-hex, with :ROLE of ${ROLES.join(", ")} (tenant_admin:TENANT) where it is not owner, or sk-admin- and at least 32 letters and digits`,
      readRole,
    ),
  )
  .transform((keys) => keys.map(({ name, sha256, rest }) => ({ name, sha256, ...rest })))
  .default([]);

function hashedRootKey(entry: string): string {
  if (!PLAIN_ROOT_KEY.test(entry)) return entry;
  return `${PLAIN_ROOT_NAME}:${createHash("sha256").update(entry).digest("hex")}`;
}

/** The key length of AES-256. */
const MIN_ENCRYPTION_KEY_BYTES = 32;

/**
 * `kid:base64`, separated by commas or white space; no `kid` twice. A text without any entry is a mistake: an operator
 * who sets it means to encrypt.
 */
const encryptionKeys = listText()
  .transform((text, context) => {
    const keys = new Map<string, { kid: string; secret: Uint8Array }>();
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

const price = z.number().min(0).max(1_000_000);

/** The fields of `ModelPrice`. */
export const modelPrice = z.strictObject(
  { input: price, cached_input: price.optional(), output: price, unit: price.optional() },
  "expected prices as input, output and, where there are such, cached_input and unit",
);

export const keys = {
  title: "Keys and limits",
  variables: {
    apiKeys: variable(
      "API_KEYS",
      apiKeys,
      "Secret. The keys of callers: `tenant:<sha256>`, separated by commas. `npm run create-key -- TENANT` (`responses-edge create-key TENANT`) makes a key and its entry.",
    ),
    /** Root keys. Without any there is no admin API, and no key that it made is accepted. */
    adminKeys: variable(
      "ADMIN_KEY",
      adminKeys,
      "Secret. Root keys, which make and limit keys without a deployment: `name:<sha256>`, with `:ROLE` where it is not `owner`, or the key itself (`sk-admin-…`). See [keys.md](../keys.md).",
    ),
    allowAnonymous: variable(
      "ALLOW_ANONYMOUS",
      flag,
      "`true` serves programs of this machine without keys, as long as no kind of key is set. `npm start` sets it.",
    ),
    cacheMs: variable(
      "KEY_CACHE_MS",
      milliseconds(10_000, 100, 600_000),
      "How long an isolate caches a key of the admin API. A revocation takes effect within this time.",
    ),
    reservedOutputTokens: variable(
      "RESERVED_OUTPUT_TOKENS",
      integer(4_096, 1, 10_000_000),
      "The output tokens that a request without `max_output_tokens` reserves from its limits.",
    ),
    storedBytesPerTenant: variable(
      "STORED_BYTES_PER_TENANT",
      integer(0, 0),
      "The bytes that a tenant without its own `stored_bytes` may store; `0` is any amount. Without it, `npm start` and `npm run serve` refuse what a tenant would store beyond [a quarter of the disk](../keys.md#a-tenants-share-of-the-disk).",
    ),
    /** By the name that clients use; `*` stands for every other model. */
    prices: variable(
      "MODEL_PRICES",
      jsonMap(modelPrice, '{"model":{"input":0.5,"output":1.5}}'),
      'JSON: dollars for a million tokens of each model, for budgets in money: `{"qwen3":{"input":0.5,"cached_input":0.05,"output":1.5}}`; `unit` is the price of an image, a second of speech, or, of `code_interpreter`, `file_search` and `web_search`, of a session or a call. `*` stands for all other models.',
    ),
    usageRetentionMs: variable("USAGE_RETENTION_DAYS", days(90, 1), "The days after which usage is deleted."),
    auditRetentionMs: variable(
      "AUDIT_RETENTION_DAYS",
      days(365, 1),
      "The days after which rows of the audit log are deleted.",
    ),
    /** The first key encrypts, all of them decrypt. Without any, nothing is encrypted. */
    encryptionKeys: variable(
      "ENCRYPTION_KEYS",
      encryptionKeys,
      "Secret. `kid:base64,…`, keys of at least 32 bytes, which encrypt the `encrypted_content` of items ([reasoning.md](../reasoning.md)). The first key encrypts, all keys decrypt ([operations.md](../operations.md)). Without keys nothing is encrypted.",
    ),
  },
} satisfies Section;

export type KeyValues = ValuesOf<typeof keys>;
/** A key of the operator, from which the tenants' keys are derived. Sealed texts name it by `kid`. */

/** Tokens of an OpenID Connect issuer are a second kind of key. */

/** Signature algorithms that a JWT may have: only those of asymmetric keys. A shared secret, or `none`, proves nothing here. */
export const JWT_ALGORITHMS = [
  ...["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"],
  ...["ES256", "ES384", "ES512", "EdDSA", "Ed25519"],
] as readonly string[];

/** The prefix of tokens' tenants with `JWT_TENANTS=own`. No tenant in `API_KEYS` has a dot in its name. */
export const TOKEN_TENANT_PREFIX = "jwt.";

/** Names of algorithms, separated by commas or white space. */
const algorithms = listText()
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
    jwksUrl: variable("JWT_JWKS_URL", httpUrl.optional(), "The URL of the issuer's public keys (JWKS)."),
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
    /** By the claim's values. */
    roles: variable(
      "JWT_ROLES",
      jsonMap(z.enum(ROLES, `expected roles: ${ROLES.join(", ")}`), '{"platform-admins":"owner"}'),
      'JSON: the roles of tokens in the [admin API](../keys.md#roles), by values of `JWT_ROLE_CLAIM`: `{"platform-admins":"owner","on-call":"operator"}`. A `tenant_admin` has the tenant of its token.',
    ),
    roleClaim: variable(
      "JWT_ROLE_CLAIM",
      z.string().min(1).max(256).default("roles"),
      "The claim that `JWT_ROLES` reads: a text, or a list of texts. A nested claim is named by its path: `realm_access.roles`.",
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

/** Checks the variables of tokens against each other. `hasKeys`: there are also keys of another kind. */
export function tokenMistakes({ issuer, audience, jwksUrl, tenants, roles }: TokenValues, hasKeys: boolean): Mistake[] {
  if (issuer === undefined) {
    if (Object.keys(roles).length > 0) return [["JWT_ISSUER", "needed with JWT_ROLES: the issuer of the tokens"]];
    if (audience === undefined && jwksUrl === undefined && tenants === undefined) return [];
    return [["JWT_ISSUER", "needed with JWT_AUDIENCE, JWT_JWKS_URL and JWT_TENANTS: the issuer of the tokens"]];
  }
  const mistakes: Mistake[] = [];
  if (audience === undefined)
    mistakes.push(["JWT_AUDIENCE", "needed with JWT_ISSUER: the audience that its tokens name"]);
  if (jwksUrl === undefined) mistakes.push(["JWT_JWKS_URL", "needed with JWT_ISSUER: the URL of the issuer's keys"]);
  if (tenants === undefined && hasKeys) {
    const why = "needed with JWT_ISSUER beside API_KEYS or ADMIN_KEY";
    const shared = "shared (a token's tenant is the key tenant of the same name)";
    mistakes.push(["JWT_TENANTS", `${why}: ${shared} or own (it is another one, ${TOKEN_TENANT_PREFIX}NAME)`]);
  }
  return mistakes;
}

/** The settings of tokens; undefined if no issuer's tokens are accepted. `fetch` reaches the issuer. */
export function jwtConfig(values: TokenValues, { fetch }: OperatorNetwork) {
  const { issuer, audience, jwksUrl, tenants, ...rest } = values;
  if (issuer === undefined || audience === undefined || jwksUrl === undefined) return undefined;
  /** The prefix of tokens' tenants; "" if a token's tenant may also be a key's. */
  const tenantPrefix = tenants === "own" ? TOKEN_TENANT_PREFIX : "";
  return { issuer, audience, jwksUrl, tenantPrefix, ...rest, fetch };
}
export type JwtConfig = NonNullable<ReturnType<typeof jwtConfig>>;
