import { z } from "zod";
import { fromBase64, headerSecret, httpUrl, integer } from "./values.ts";
import { type Mistake, type Section, type ValuesOf, variable } from "./variable.ts";

/** Signing in to the console at the issuer of `JWT_ISSUER` (OpenID Connect Core 1.0, authorization code with PKCE). */

const MIN_SECRET_BYTES = 32;

const sessionSecret = z
  .string()
  .trim()
  .transform((text, context) => {
    const secret = fromBase64(text);
    if (secret.length >= MIN_SECRET_BYTES) return secret;
    context.addIssue({ code: "custom", message: `expected at least ${MIN_SECRET_BYTES} bytes of base64` });
    return z.NEVER;
  })
  .optional();

/** The path of the gateway to which the issuer sends browsers back. */
export const CALLBACK_PATH = "/console/callback";

export const signIn = {
  title: "Signing in to the console",
  variables: {
    clientId: variable(
      "OIDC_CLIENT_ID",
      z.string().min(1).max(1024).optional(),
      "The client as which the issuer of `JWT_ISSUER` knows the console ([console.md](../console.md#signing-in-at-an-issuer)). Needs `OIDC_REDIRECT_URL` and `OIDC_SESSION_SECRET`.",
    ),
    clientSecret: variable(
      "OIDC_CLIENT_SECRET",
      headerSecret.optional(),
      "Secret. The client's secret; a public client has none.",
    ),
    redirectUrl: variable(
      "OIDC_REDIRECT_URL",
      httpUrl
        .refine((url) => URL.parse(url)?.pathname === CALLBACK_PATH, `expected a URL whose path is ${CALLBACK_PATH}`)
        .optional(),
      `The URL of this server's \`${CALLBACK_PATH}\` as browsers reach it, as it is registered at the issuer.`,
    ),
    sessionSecret: variable(
      "OIDC_SESSION_SECRET",
      sessionSecret,
      `Secret. At least ${MIN_SECRET_BYTES} bytes of base64, which encrypt the sessions' cookies. Another value ends all sessions.`,
    ),
    sessionMs: variable(
      "OIDC_SESSION_HOURS",
      integer(8, 1, 24 * 30).transform((hours) => hours * 3_600_000),
      "The hours after which a session ends. A role that the issuer removes ends then, too.",
    ),
    scopes: variable(
      "OIDC_SCOPES",
      z
        .string()
        .regex(/^[\x21-\x7e]+( [\x21-\x7e]+)*$/, "expected scopes separated by single spaces")
        .refine((scopes) => scopes.split(" ").includes("openid"), "expected 'openid' among the scopes")
        .default("openid profile"),
      "The requested scopes.",
    ),
  },
} satisfies Section;

type SignInValues = ValuesOf<typeof signIn>;

/** Checks these variables against each other. `issuer`: `JWT_ISSUER`. */
export function signInMistakes(
  { clientId, clientSecret, redirectUrl, sessionSecret: secret }: SignInValues,
  issuer: string | undefined,
): Mistake[] {
  if (clientId === undefined) {
    const isNothingSet = clientSecret === undefined && redirectUrl === undefined && secret === undefined;
    return isNothingSet ? [] : [["OIDC_CLIENT_ID", "needed with the other OIDC_… variables"]];
  }
  const mistakes: Mistake[] = [];
  if (issuer === undefined) mistakes.push(["JWT_ISSUER", "needed with OIDC_CLIENT_ID: where users sign in"]);
  if (redirectUrl === undefined) mistakes.push(["OIDC_REDIRECT_URL", "needed with OIDC_CLIENT_ID"]);
  if (secret === undefined) mistakes.push(["OIDC_SESSION_SECRET", "needed with OIDC_CLIENT_ID"]);
  return mistakes;
}

/** The settings of the console's sign-in; undefined without one. */
export function signInConfig({ clientId, clientSecret, redirectUrl, sessionSecret: secret, ...rest }: SignInValues) {
  if (clientId === undefined || redirectUrl === undefined || secret === undefined) return undefined;
  return { clientId, clientSecret, redirectUrl, sessionSecret: secret, ...rest };
}
export type SignInConfig = NonNullable<ReturnType<typeof signInConfig>>;
