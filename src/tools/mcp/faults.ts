import type { McpToolCallError } from "openai/resources/responses/responses";
import type { ToolFault } from "../tool-fault.ts";

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
