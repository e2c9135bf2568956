import { ToolFault } from "./tool-fault.ts";

/**
 * Headers that a caller's map may not set: those of the connection (RFC 9110 §7.6.1) and of the message, and those by
 * which the MCP transport keeps its state. `cookie` and `x-session-id` are the caller's own.
 */
const RESERVED = new Set([
  "accept",
  "accept-encoding",
  "connection",
  "content-encoding",
  "content-length",
  "content-type",
  "expect",
  "forwarded",
  "host",
  "http2-settings",
  "keep-alive",
  "last-event-id",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "true-client-ip",
  "upgrade",
  "via",
]);

/**
 * `mcp-session-id` and its kin; what Cloudflare, proxies and browsers say about a request, which nobody else may; what
 * makes a server take the request for another than its URL and method say, past the prefixes of MCP_SERVERS.
 */
const RESERVED_PREFIX =
  /^(mcp-|cf-|sec-|x-forwarded-|x-original-|x-rewrite-url$|x-(http-)?method(-override)?$|x-real-ip$|x-client-ip$)/;

/**
 * The headers to send to an MCP server: those of the request's tool without the ones a caller may not set, and its
 * `authorization`, which is a bearer token unless it names a scheme, and takes the place of a header of that name.
 * Throws ToolFault `protocol` for a header that HTTP cannot carry.
 */
export function mcpHeaders(server: {
  authorization?: string | null;
  headers?: Record<string, string> | null;
}): Headers {
  const headers = new Headers();
  for (const [name, value] of Object.entries(server.headers ?? {})) {
    const lower = name.toLowerCase();
    if (!RESERVED.has(lower) && !RESERVED_PREFIX.test(lower)) set(headers, name, value);
  }
  if (server.authorization != null) {
    const hasScheme = /^[A-Za-z][\w-]* +\S/.test(server.authorization);
    set(headers, "authorization", hasScheme ? server.authorization : `Bearer ${server.authorization}`);
  }
  return headers;
}

function set(headers: Headers, name: string, value: string): void {
  try {
    headers.set(name, value);
  } catch {
    throw new ToolFault("protocol", "A header for the MCP server has a name or value that HTTP cannot carry.");
  }
}

/** The parts of a server's URL and headers that are long enough to be secrets. */
export function secretsOf(url: string, headers: Headers): string[] {
  const { search, searchParams } = new URL(url);
  const parts = [search, ...searchParams.values(), ...[...searchParams.values()].map(encodeURIComponent)];
  for (const value of headers.values()) parts.push(value, ...value.split(" "));
  return parts.filter((part) => part.length >= 8);
}
