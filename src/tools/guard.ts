import { canonicalHost, dohResolver, type GuardOptions } from "@responses-edge/guarded-fetch";
import type { ToolConfig } from "../config/index.ts";

/**
 * Lets a request call public https addresses (looked up if DNS is configured) and listed ones, but never the operator's
 * tool servers, not by a redirect either. `mayCall`: a caller's own restriction.
 */
export function guardOf(
  config: ToolConfig,
  mayCall?: (url: URL) => boolean,
): Required<Pick<GuardOptions, "allow" | "fetchListed" | "allowPublic" | "limit">> & Pick<GuardOptions, "resolve"> {
  const { isListed, dohUrl, fetch } = config;
  return {
    allow: isListed,
    fetchListed: fetch,
    allowPublic: true,
    limit: (url) => !isToolServer(url, config) && mayCall?.(url) !== false,
    ...(dohUrl !== undefined && { resolve: dohResolver(dohUrl, fetch) }),
  };
}

/**
 * True if a URL is on one of the operator's tool servers, where a header that callers set identifies each session. The
 * default ports of http and https count as one: a server often answers on both.
 */
export function isToolServer(url: URL, { servers }: ToolConfig): boolean {
  for (const text of Object.values(servers)) {
    const server = new URL(text);
    if (server.port === url.port && canonicalHost(server.hostname) === canonicalHost(url.hostname)) return true;
  }
  return false;
}
