import { isPublicUrl } from "@responses-edge/guarded-fetch";
import type { ResponseOutputItem } from "openai/resources/responses/responses";
import { type BegunCall, type CallItem, stepOf } from "../../contract/plugin.ts";
import type { CalledTool } from "../../contract/tool-call.ts";
import type { Item } from "../../items/registry.ts";
import { invalidRequest } from "../../protocol/errors.ts";
import { isToolServer } from "../guard.ts";
import type { RunnablePlugin } from "../plugin.ts";
import { refusedCall, takeApprovals } from "./approvals.ts";
import { functionName, McpServers, type McpTool } from "./servers.ts";

/** All `mcp_call` items have this in common, whatever tool's calls they show. */
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

/** `mcp`: tools of servers that the request names. */
export const MCP: RunnablePlugin<McpTool, ResponseOutputItem.McpCall> = {
  kind: "mcp",
  item: {
    ...MCP_CALL,
    canShow: ({ approval }) => !approval,
    create: ({ label, name }, begun) => newMcpCall({ server_label: label, name }, begun),
    approvalRequest({ label, name, approval }, text, newId) {
      if (!approval) return undefined;
      return {
        id: newId("mcp_approval_request"),
        type: "mcp_approval_request",
        server_label: label,
        name,
        arguments: text === "" ? "{}" : text,
      };
    },
    toolOf: ({ server_label: label, name }) => ({ kind: "mcp", label, name, approval: false }),
  },
  exchangeOf(item: Item, items: readonly Item[]) {
    if (item.type === "mcp_approval_response") return refusedCall(item, items);
    if (item.type !== "mcp_call") return undefined;
    return {
      name: functionName(item.server_label, item.name),
      arguments: item.arguments,
      output: item.output ?? toolText(item.error) ?? `Error: ${errorText(item.error ?? "no result")}`,
      step: stepOf(item),
    };
  },
  check(tool, index, { config, access }) {
    if (tool.type !== "mcp") return;
    const { server_label: label, server_url: url } = tool;
    const path = `tools[${index}].server_url`;
    if (url === undefined) {
      throw invalidRequest(path, `Missing required parameter: '${path}'.`, "missing_required_parameter");
    }
    const called = (Object.hasOwn(access, label) ? access[label]?.server_url : undefined) ?? url;
    if (!URL.canParse(called) || !(isPublicUrl(new URL(called).href) || config.isListed(new URL(called)))) {
      const message =
        "Expected an https URL of a public address, or of a server that the operator has listed (MCP_SERVERS).";
      throw invalidRequest(path, message, "invalid_url");
    }
    if (config.mayCallMcp?.(new URL(called)) === false) {
      throw invalidRequest(path, "This API key does not allow this MCP server to be called.", "mcp_server_not_allowed");
    }
    if (isToolServer(new URL(called), config)) {
      const message = "This is the operator's tool server: ask for the built-in tool instead.";
      throw invalidRequest(path, message, "invalid_url");
    }
  },
  session: (turn) => new McpServers(turn),
  takeInput: (options, servers) => takeApprovals(options, servers as McpServers | undefined),
};

/** The words of a tool itself about its failure (`mcp_tool_execution_error`): the model has read it as any other output. */
function toolText(error: unknown): string | undefined {
  if (typeof error !== "object" || error === null || !("content" in error)) return undefined;
  if (!Array.isArray(error.content)) return undefined;
  const texts = error.content.map((part: unknown) =>
    typeof part === "object" && part !== null && "text" in part ? String(part.text) : "",
  );
  return texts.join("\n");
}

function errorText(error: unknown): string {
  if (typeof error === "string") return error;
  if (typeof error === "object" && error !== null && "message" in error) return String(error.message);
  return JSON.stringify(error);
}
