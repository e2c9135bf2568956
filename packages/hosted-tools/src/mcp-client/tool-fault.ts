import { FetchFault, type FetchFaultKind } from "@responses-edge/outgoing-fetch/guarded";
import type { McpToolCallError } from "openai/resources/responses/responses";

/**
 * Faults of a tool on another server: those of any call (`too_large` may also be the number of tools, and
 * `protocol` an error of the protocol, with its `code`), and
 * - `http`: an HTTP error, with its `status`;
 * - `tool`: the tool ran and failed.
 */
export type FaultKind = FetchFaultKind | "http" | "tool";

/**
 * The one error class of tools on other servers. Its message may be shown to clients and to models: it names nothing
 * but what the caller gave, and holds no credentials.
 */
export class ToolFault extends Error {
  override readonly name = "ToolFault";
  readonly kind: FaultKind;
  /** The HTTP status, of kind `http`. */
  readonly status: number | undefined;
  /** The JSON-RPC error code, of kind `protocol` when the server sent one. */
  readonly code: number | undefined;

  constructor(kind: FaultKind, message: string, { status, code }: { status?: number; code?: number } = {}) {
    super(message);
    this.kind = kind;
    this.status = status;
    this.code = code;
  }
}

/** The fault of a tool, for any thrown value. */
export function toToolFault(error: unknown): ToolFault {
  if (error instanceof ToolFault) return error;
  if (error instanceof FetchFault) return new ToolFault(error.kind, error.message);
  return new ToolFault("unreachable", "The tool could not be run.");
}

/** JSON-RPC codes for faults without one, with the numbers of the MCP packages. */
export const CONNECTION_CLOSED = -32000;
const REQUEST_TIMEOUT = -32001;

/** A fault in the form of `mcp_call.error`. */
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
