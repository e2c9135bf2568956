import { type GuardOptions, guardedFetch } from "@responses-edge/outgoing-fetch/guarded";
import { ToolFault } from "./tool-fault.ts";

/** Tokens of OAuth clients (RFC 6749 §4.4, client credentials), for MCP servers of the operator. */

export interface OAuthClient {
  tokenUrl: string;
  clientId: string;
  clientSecret: string;
  /** Separated by spaces. */
  scope?: string | undefined;
  /** The allowed addresses of the token endpoint. */
  guard: Partial<GuardOptions>;
}

/** The tokens that this isolate has, and until when they are used. Unix milliseconds. */
const tokens = new Map<string, { token: string; until: number }>();

/** A token is not used in its last minute, and for an hour where its server does not say how long it is valid. */
const LAST_MS = 60_000;
const DEFAULT_MS = 3_600_000;

/** Bounds of the token endpoint's answer. */
const TOKEN_MS = 15_000;
const MAX_BYTES = 64 * 1024;

function nameOf({ tokenUrl, clientId, scope }: OAuthClient): string {
  return JSON.stringify([tokenUrl, clientId, scope]);
}

/** The token of a client. Throws ToolFault `unreachable` or `protocol` for a token endpoint that gives none, without its words. */
export async function clientToken(client: OAuthClient, server: string, signal: AbortSignal): Promise<string> {
  const name = nameOf(client);
  const known = tokens.get(name);
  if (known && Date.now() < known.until) return known.token;
  const { fetchToken, ClientCredentialsProvider } = await import("@modelcontextprotocol/client");
  const { tokenUrl, clientId, clientSecret, scope } = client;
  const issuer = new URL(tokenUrl).origin;
  const provider = new ClientCredentialsProvider({
    clientId,
    clientSecret,
    expectedIssuer: issuer,
    ...(scope && { scope }),
  });
  const metadata = { issuer, token_endpoint: tokenUrl, authorization_endpoint: tokenUrl, response_types_supported: [] };
  const fetchFn = (url: string | URL, init?: RequestInit) =>
    guardedFetch(url, { ...init, signal }, { ...client.guard, timeoutMs: TOKEN_MS, maxBytes: MAX_BYTES });
  try {
    const got = await fetchToken(provider, issuer, { metadata, fetchFn, ...(scope && { scope }) });
    const lifetimeMs = got.expires_in === undefined ? DEFAULT_MS : got.expires_in * 1_000;
    tokens.set(name, { token: got.access_token, until: Date.now() + Math.max(0, lifetimeMs - LAST_MS) });
    return got.access_token;
  } catch {
    signal.throwIfAborted();
    // Its words may repeat the secret.
    throw new ToolFault("protocol", `The token endpoint of ${server} gives no token.`);
  }
}

/** Forgets the token of a client, which its server has refused. */
export function forgetToken(client: OAuthClient): void {
  tokens.delete(nameOf(client));
}
