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
 * All that knows the official client package: half a megabyte of code to evaluate, so it is loaded when it is first needed.
 *
 * It shares zod with the rest; so everywhere zod must be imported as `{ z }`. With `* as z` esbuild leaves out the call that initialises
 * a shared module whose package says it has no side effects.
 */

const CLIENT_INFO = { name: "responses-edge", version: "0.1.0" };

/** The server speaks only the protocol of 2026-07-28, which knows no `initialize`. */
const UNSUPPORTED_PROTOCOL_VERSION = -32022;

/** Characters of a server's error text that are kept. */
const MAX_MESSAGE_LENGTH = 2_000;

/** Streamable HTTP with `initialize`; the protocol of 2026-07-28; the transport of 2024-11-05 (HTTP with SSE). */
export type Way = "http" | "modern" | "sse";

/** A client that is not connected yet, and its transport. */
export interface SdkClient {
  client: Client;
  transport: Transport & Partial<Pick<StreamableHTTPClientTransport, "terminateSession">>;
}

export function newClient(
  way: Way,
  url: string,
  options: { fetch: (url: string | URL, init?: RequestInit) => Promise<Response>; requestInit: RequestInit },
): SdkClient {
  const Chosen = way === "sse" ? SSEClientTransport : StreamableHTTPClientTransport;
  const client = new Client(CLIENT_INFO, {
    // Nobody is there to be asked.
    inputRequired: { autoFulfill: false },
    // A schema's patterns are the server's, and would be run here.
    jsonSchemaValidator: {
      getValidator: () => (data) => ({ valid: true, data: data as never, errorMessage: undefined }),
    },
    ...(way === "modern" && { versionNegotiation: { mode: "auto" } }),
  });
  return { client, transport: new Chosen(new URL(url), options) };
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
 * what it was sent: `secrets` are taken out of it.
 */
export function explain(
  error: unknown,
  { status, server, secrets }: { status: number | undefined; server: string; secrets: readonly string[] },
): ToolFault {
  if (error instanceof ProtocolError) {
    const text = secrets.reduce((message, secret) => message.replaceAll(secret, "[redacted]"), error.message);
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
