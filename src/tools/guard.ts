import type { ToolConfig } from "../config/index.ts";
import { canonicalHost } from "../protocol/public-url.ts";
import { dohResolver, type GuardOptions } from "./guarded-fetch.ts";

/**
 * What a request may have called: public https addresses, looked up where that is set up, and what is listed. Never the
 * operator's tool servers, not by a redirect either.
 */
export function guardOf(
  config: ToolConfig,
): Required<Pick<GuardOptions, "allow" | "fetchListed" | "allowPublic" | "limit">> & Pick<GuardOptions, "resolve"> {
  const { isListed, dohUrl, fetch } = config;
  return {
    allow: isListed,
    fetchListed: fetch,
    allowPublic: true,
    limit: (url) => !isToolServer(url, config),
    ...(dohUrl !== undefined && { resolve: dohResolver(dohUrl, fetch) }),
  };
}

/** The same for MCP servers: of these not all may be allowed to a caller, where a redirect leads neither. */
export function mcpGuardOf(config: ToolConfig): ReturnType<typeof guardOf> {
  const guard = guardOf(config);
  const { mayCallMcp } = config;
  return mayCallMcp ? { ...guard, limit: (url) => guard.limit(url) && mayCallMcp(url) } : guard;
}

/** Whether a URL is on a tool server of the operator's, where each session is somebody's by a header that callers set. */
export function isToolServer(url: URL, { servers }: ToolConfig): boolean {
  return Object.values(servers).some((server) => placeOf(new URL(server)) === placeOf(url));
}

/** The default ports of http and https count as one: a server often answers on both. */
function placeOf({ hostname, port }: URL): string {
  return `${canonicalHost(hostname)}:${port}`;
}
