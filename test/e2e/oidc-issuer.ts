import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { decodeJwt, exportJWK, generateKeyPair, SignJWT } from "jose";
import Provider from "oidc-provider";

/** A user's claims. */
export interface IssuerUser {
  sub: string;
  org?: string;
  groups?: string[];
}

export const CLIENT = { id: "console", secret: "s3cret/with+signs" };

/** An OpenID Provider (`oidc-provider`) that requires PKCE and signs `user` in without a question, or refuses. */
export class OidcIssuer {
  user: IssuerUser = { sub: "eve@acme.dev", org: "acme" };
  isRefusing = false;
  /** It leaves `sub` out of ID tokens, against the specification. */
  hidesSubject = false;
  readonly url: string;
  readonly #server: Server;

  private constructor(server: Server, url: string) {
    this.#server = server;
    this.url = url;
  }

  /** Starts a provider for a gateway. `redirectUrl` is the registered one. */
  static async start(redirectUrl: string): Promise<OidcIssuer> {
    let handle: (request: IncomingMessage, response: ServerResponse) => unknown = () => {};
    const server = createServer((request, response) => handle(request, response));
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    // A different site from the gateway's, which is 127.0.0.1.
    const url = `http://localhost:${(server.address() as AddressInfo).port}`;
    const issuer = new OidcIssuer(server, url);
    const { privateKey } = await generateKeyPair("ES256", { extractable: true });
    const provider = new Provider(url, {
      jwks: { keys: [{ ...(await exportJWK(privateKey)), kid: "one", alg: "ES256", use: "sig" }] },
      clients: [
        {
          client_id: CLIENT.id,
          client_secret: CLIENT.secret,
          redirect_uris: [redirectUrl],
          id_token_signed_response_alg: "ES256",
        },
      ],
      cookies: { keys: ["of the tests"] },
      pkce: { required: () => true },
      claims: { openid: ["sub", "org", "groups"], profile: ["name"] },
      conformIdTokenClaims: false,
      features: { devInteractions: { enabled: false } },
      interactions: { url: (_, { uid }) => `/interaction/${uid}` },
      findAccount: (_, id) => ({ accountId: id, claims: () => ({ ...issuer.user, sub: id }) }),
      // The scopes of the operator's own client are granted.
      async loadExistingGrant({ oidc }) {
        const grant = new oidc.provider.Grant({ clientId: CLIENT.id, accountId: issuer.user.sub });
        grant.addOIDCScope("openid profile");
        await grant.save();
        return grant;
      },
    });
    provider.use(async (context, next) => {
      await next();
      const { id_token: token } = (context.body ?? {}) as { id_token?: string };
      if (!issuer.hidesSubject || token === undefined) return;
      const { sub: _, ...claims } = decodeJwt(token);
      const signed = await new SignJWT(claims).setProtectedHeader({ alg: "ES256", kid: "one" }).sign(privateKey);
      context.body = { ...(context.body as object), id_token: signed };
    });
    const answer = provider.callback();
    handle = async (request, response) => {
      if (!request.url?.startsWith("/interaction/")) return answer(request, response);
      const refusal = { error: "access_denied", error_description: "Not today." };
      const result = issuer.isRefusing ? refusal : { login: { accountId: issuer.user.sub, remember: false } };
      await provider.interactionFinished(request, response, result, { mergeWithLastSubmission: false });
    };
    return issuer;
  }

  /** The variables of a gateway whose users sign in here. */
  variables(redirectUrl: string): Record<string, string> {
    return {
      JWT_ISSUER: this.url,
      JWT_AUDIENCE: "responses",
      JWT_JWKS_URL: `${this.url}/jwks`,
      JWT_TENANT_CLAIM: "org",
      JWT_TENANTS: "shared",
      JWT_ROLE_CLAIM: "groups",
      JWT_ROLES: JSON.stringify({ admins: "owner", audit: "auditor" }),
      OIDC_CLIENT_ID: CLIENT.id,
      OIDC_CLIENT_SECRET: CLIENT.secret,
      OIDC_REDIRECT_URL: redirectUrl,
      OIDC_SESSION_SECRET: Buffer.alloc(32, 7).toString("base64"),
    };
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}
