import type { ResponseOutputItem } from "openai/resources/responses/responses";
import type { BegunCall, CallItem } from "../../contract/plugin.ts";
import type { CalledTool } from "../../contract/tool-call.ts";

/** What all `mcp_call` items have in common, whatever tool's calls they show. */
export const MCP_CALL = {
  type: "mcp_call",
  written: {
    deltaEvent: "response.mcp_call_arguments.delta",
    of: (item) => item.arguments,
    append(item, text) {
      item.arguments += text;
    },
    whenEmpty: "{}",
    done: (item, at) => ({ type: "response.mcp_call_arguments.done", ...at, arguments: item.arguments }),
  },
  finish(item, { failed, output, error }) {
    item.output = failed ? null : output;
    item.error = error ?? null;
    return failed ? "response.mcp_call.failed" : "response.mcp_call.completed";
  },
} satisfies Partial<CallItem<CalledTool, ResponseOutputItem.McpCall>>;

/** The item of a call as it begins. */
export function newMcpCall(
  { server_label, name }: { server_label: string; name: string },
  { id, approvalRequest }: BegunCall,
): ResponseOutputItem.McpCall {
  return {
    id,
    type: "mcp_call",
    status: "in_progress",
    server_label,
    name,
    arguments: "",
    approval_request_id: approvalRequest,
    output: null,
    error: null,
  };
}
