import type { McpToolCallError } from "openai/resources/responses/responses";
import { ToolFault } from "../tool-fault.ts";

/** The MCP package, which is loaded where a request needs it. */
export type Sdk = typeof import("./sdk.ts");

/** Characters of a server's error text that are kept. */
const MAX_MESSAGE_LENGTH = 2_000;

/** JSON-RPC codes of faults that have none of their own, as the MCP packages number them. */
export const CONNECTION_CLOSED = -32000;
const REQUEST_TIMEOUT = -32001;

/** A fault as `mcp_call.error` shows it. */
export function toMcpError(fault: ToolFault): McpToolCallError {
  switch (fault.kind) {
    case "http":
      return { type: "http_error", code: fault.status ?? 502, message: fault.message };
    case "tool":
      return { type: "mcp_tool_execution_error", content: [{ type: "text", text: fault.message }] };
    case "timeout":
      return { type: "mcp_protocol_error", code: REQUEST_TIMEOUT, message: fault.message };
    case "refused_address":
    case "too_large":
    case "unreachable":
    case "protocol":
      return { type: "mcp_protocol_error", code: fault.code ?? CONNECTION_CLOSED, message: fault.message };
  }
}

/**
 * The fault behind what the MCP package has thrown. `status` is that of the server's last HTTP error. A server may repeat in its error
 * what it was sent: `secrets` are taken out of it.
 */
export function explain(
  error: unknown,
  { status, server, secrets }: { status: number | undefined; server: string; secrets: readonly string[] },
  { ProtocolError, SdkError, SdkErrorCode }: Sdk,
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

/** The parts of a server's URL and headers that are long enough to be secrets. */
export function secretsOf(url: string, headers: Headers): string[] {
  const { search, searchParams } = new URL(url);
  const parts = [search, ...searchParams.values(), ...[...searchParams.values()].map(encodeURIComponent)];
  for (const value of headers.values()) parts.push(value, ...value.split(" "));
  return parts.filter((part) => part.length >= 8);
}

/** The statuses that send a client to the transport of 2024-11-05; of the others a GET would only get the same. */
export function isOldTransport(status: number | undefined): boolean {
  return status !== undefined && status >= 400 && status < 500 && ![401, 403, 407, 429].includes(status);
}
