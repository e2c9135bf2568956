import {
  Client,
  ProtocolError,
  SdkError,
  SdkErrorCode,
  SdkHttpError,
  SSEClientTransport,
  StreamableHTTPClientTransport,
  type Transport,
} from "@modelcontextprotocol/client";
import { ToolFault } from "./tool-fault.ts";

/**
 * The only module that uses the official client package: half a megabyte of code to evaluate, so it is loaded on
 * demand. It shares zod with other code, which must import zod as `{ z }`. With `* as z` esbuild leaves out the call
 * that initialises a shared module whose package declares no side effects.
 */

const CLIENT_INFO = { name: "responses-edge", version: "0.1.0" };

/** The server supports only the protocol of 2026-07-28, which has no `initialize`. */
const UNSUPPORTED_PROTOCOL_VERSION = -32022;

/** Characters of a server's error text that are kept. */
const MAX_MESSAGE_LENGTH = 2_000;

/** Streamable HTTP with `initialize`; the protocol of 2026-07-28; the transport of 2024-11-05 (HTTP with SSE). */
export type Way = "http" | "modern" | "sse";

/** A server, and the headers of each request. */
export interface ServerAccess {
  url: string;
  /** A token or a whole `Authorization` value. */
  authorization?: string | null;
  headers?: Record<string, string> | null;
}

/** A client that is not connected yet, and its transport. */
export interface SdkClient {
  client: Client;
  transport: Transport & Partial<Pick<StreamableHTTPClientTransport, "terminateSession" | "sessionId">>;
}

/** Throws ToolFault `protocol` for a header of the target that HTTP cannot carry. */
export function newClient(
  way: Way,
  target: ServerAccess,
  fetch: (url: string | URL, init?: RequestInit) => Promise<Response>,
): SdkClient {
  const Chosen = way === "sse" ? SSEClientTransport : StreamableHTTPClientTransport;
  const client = new Client(CLIENT_INFO, {
    // There is no user to ask.
    inputRequired: { autoFulfill: false },
    // A schema's patterns are the server's, and would run here.
    jsonSchemaValidator: {
      getValidator: () => (data) => ({ valid: true, data: data as never, errorMessage: undefined }),
    },
    ...(way === "modern" && { versionNegotiation: { mode: "auto" } }),
  });
  const requestInit = { headers: headersFor(target) };
  return { client, transport: new Chosen(new URL(target.url), { fetch, requestInit }) };
}

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
 * Prefixes of reserved headers: those of the MCP transport (`mcp-session-id`), those that only Cloudflare, proxies and
 * browsers may set, and those that make a server serve another URL or method than the request's (which would evade
 * MCP_SERVERS).
 */
const RESERVED_PREFIX =
  /^(mcp-|cf-|sec-|x-forwarded-|x-original-|x-rewrite-url$|x-(http-)?method(-override)?$|x-real-ip$|x-client-ip$)/;

/**
 * The headers to send to an MCP server: those of the request's tool without the ones a caller may not set, and its
 * `authorization`, which is a bearer token unless it names a scheme, and takes the place of a header of that name.
 * Throws ToolFault `protocol` for a header that HTTP cannot carry.
 */
function headersFor(server: ServerAccess): Headers {
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
    throw new ToolFault("protocol", "A header for the MCP server has a name or value that is invalid in HTTP.");
  }
}

/** Tells whether a client tries the transport of 2024-11-05 after a status; after others a GET would only get the same. */
export function mayBeOld(status: number | undefined): boolean {
  return status !== undefined && status >= 400 && status < 500 && ![401, 403, 407, 429].includes(status);
}

/** The error of a server that has left `initialize` behind, in the body of a 400 or as the answer. */
export function speaksOnlyModern(error: unknown): boolean {
  if (error instanceof ProtocolError) return error.code === UNSUPPORTED_PROTOCOL_VERSION;
  if (!(error instanceof SdkHttpError) || typeof error.data.text !== "string") return false;
  try {
    const body = JSON.parse(error.data.text) as { error?: { code?: unknown } } | null;
    return body?.error?.code === UNSUPPORTED_PROTOCOL_VERSION;
  } catch {
    return false;
  }
}

/**
 * The fault behind what the package has thrown. `status` is that of the server's last HTTP error. A server may repeat in its error
 * what it was sent: the secrets of its `target` are taken out of it.
 */
export function explain(
  error: unknown,
  { status, server, target }: { status: number | undefined; server: string; target: ServerAccess },
): ToolFault {
  if (error instanceof ProtocolError) {
    const text = secretsOf(target).reduce((message, secret) => message.replaceAll(secret, "[redacted]"), error.message);
    return new ToolFault("protocol", text.slice(0, MAX_MESSAGE_LENGTH), { code: error.code });
  }
  if (status !== undefined) {
    const redirected = status >= 300 && status < 400 ? " and a redirect that is not followed" : "";
    return new ToolFault("http", `${server} answered with HTTP status ${status}${redirected}.`, { status });
  }
  if (error instanceof SdkError && error.code === SdkErrorCode.ConnectionClosed) {
    return new ToolFault("unreachable", `${server} closed the connection.`);
  }
  // The package's own words may quote the answer.
  return new ToolFault("protocol", `${server} sent an answer that is not MCP.`);
}

/** The parts of a server's URL and headers that are long enough to be secrets. */
function secretsOf(target: ServerAccess): string[] {
  const { search, searchParams } = new URL(target.url);
  const parts = [search, ...searchParams.values(), ...[...searchParams.values()].map(encodeURIComponent)];
  for (const value of headersFor(target).values()) parts.push(value, ...value.split(" "));
  return parts.filter((part) => part.length >= 8);
}
