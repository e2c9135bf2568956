import { isPublicUrl } from "@responses-edge/outgoing-fetch/guarded";
import { invalidRequest, notFound } from "@responses-edge/responses-api/errors";
import { isOfOtherAgent } from "@responses-edge/responses-api/items/multi-agent";
import type { Item } from "@responses-edge/responses-api/items/registry";
import type { ToolExchange } from "@responses-edge/turn/contract/engine";
import { type BegunCall, type CallItem, stepOf } from "@responses-edge/turn/contract/plugin";
import type { CalledTool } from "@responses-edge/turn/contract/tool-session";
import type { ResponseOutputItem } from "openai/resources/responses/responses";
import type { PluginSession, RunnablePlugin, SessionRequest } from "../plugin.ts";
import { connectorOf } from "./connectors.ts";
import { functionName, McpServers, type McpTool } from "./servers.ts";

/** The fields that all `mcp_call` items share, whatever tool they show. */
export const MCP_CALL = {
  type: "mcp_call",
  written: {
    field: "arguments",
    deltaEvent: "response.mcp_call_arguments.delta",
    doneEvent: "response.mcp_call_arguments.done",
    whenEmpty: "{}",
  },
  finish(item, { failed, output, error }) {
    item.output = failed ? null : output;
    item.error = error ?? null;
    return failed ? "response.mcp_call.failed" : "response.mcp_call.completed";
  },
} satisfies Partial<CallItem<CalledTool, ResponseOutputItem.McpCall>>;

/** The item of a call as it begins. */
export function newMcpCall(
  { label, name }: Pick<McpTool, "label" | "name">,
  { id, approvalRequest }: BegunCall,
): ResponseOutputItem.McpCall {
  return {
    id,
    type: "mcp_call",
    status: "in_progress",
    server_label: label,
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
    create: newMcpCall,
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
  exchanges: {
    mcp_approval_response: refusedCall,
    mcp_call: (item) => ({
      name: functionName(item.server_label, item.name),
      arguments: item.arguments,
      output: item.output ?? toolText(item.error) ?? `Error: ${errorText(item.error ?? "no result")}`,
      step: stepOf(item),
    }),
  },
  check(tool, index, { config, access }) {
    if (tool.type !== "mcp") return;
    const { server_label: label, server_url: url, connector_id: id } = tool;
    const path = `tools[${index}].server_url`;
    const connector = connectorOf(tool, config);
    if (connector) {
      if (config.mcpGuard.limit?.(new URL(connector.url)) !== false) return;
      const field = id === undefined ? "server_label" : "connector_id";
      const message = "This API key does not allow this MCP server to be called.";
      throw invalidRequest(`tools[${index}].${field}`, message, "mcp_server_not_allowed");
    }
    if (id !== undefined) {
      const message = `This server has no connector '${id}'. Name the MCP server by 'server_url'.`;
      throw invalidRequest(`tools[${index}].connector_id`, message, "invalid_value");
    }
    if (url === undefined) {
      throw invalidRequest(path, `Missing required parameter: '${path}'.`, "missing_required_parameter");
    }
    const called = (Object.hasOwn(access, label) ? access[label]?.server_url : undefined) ?? url;
    if (!URL.canParse(called) || !(config.isListed(new URL(called)) || isPublicUrl(new URL(called).href))) {
      const message =
        "Expected an https URL of a public address, or of a server that the operator allows (MCP_SERVERS).";
      throw invalidRequest(path, message, "invalid_url");
    }
    if (config.mcpGuard.limit?.(new URL(called)) === false) {
      throw invalidRequest(path, "This API key does not allow this MCP server to be called.", "mcp_server_not_allowed");
    }
    if (config.guard.deny?.(new URL(called))) {
      const message = "This is the operator's tool server. Use the built-in tool instead.";
      throw invalidRequest(path, message, "invalid_url");
    }
  },
  session: (turn) => new McpServers(turn),
  takeInput: takeApprovals,
};

/** The tool's own text about its failure (`mcp_tool_execution_error`), which the model has read as the output. */
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

/** Calls that clients are asked to approve, and their answers. */

type ApprovalRequest = Extract<Item, { type: "mcp_approval_request" }>;
type ApprovalResponse = Extract<Item, { type: "mcp_approval_response" }>;

/** Most calls that one request may approve: all of them are made before the model is asked. */
const MAX_APPROVED_CALLS = 128;

const requestsOf = new WeakMap<readonly Item[], ReadonlyMap<string, ApprovalRequest>>();

/** The calls that clients were asked to approve, by id; the first of several with one id. Each array is read once. */
function approvalRequests(items: readonly Item[]): ReadonlyMap<string, ApprovalRequest> {
  const known = requestsOf.get(items);
  if (known) return known;
  const requests = new Map<string, ApprovalRequest>();
  for (const item of items) {
    if (item.type !== "mcp_approval_request" || item.id === undefined || requests.has(item.id)) continue;
    requests.set(item.id, item);
  }
  requestsOf.set(items, requests);
  return requests;
}

/** A refused approval, as an exchange: the model is told, and continues without the call. */
function refusedCall(response: ApprovalResponse, items: readonly Item[]): ToolExchange | undefined {
  const request = approvalRequests(items).get(response.approval_request_id);
  if (!request || response.approve) return undefined;
  const reason = response.reason ? ` Reason: ${response.reason}` : "";
  return {
    name: functionName(request.server_label, request.name),
    arguments: request.arguments,
    output: `The user did not approve this call.${reason}`,
    step: response.approval_request_id,
  };
}

/**
 * Makes the servers run the calls that the client has approved. Throws the 400 of an approval that nobody asked for,
 * that contradicts another one, or that no tool of the request matches.
 */
function takeApprovals({ items, input }: SessionRequest, session: PluginSession | undefined): void {
  const servers = session as McpServers | undefined;
  const approvals: ApprovalResponse[] = [];
  for (const item of items) if (item.type === "mcp_approval_response") approvals.push(item);
  if (approvals.length === 0) return;
  const answered = new Set(items.map((item) => (item.type === "mcp_call" ? item.approval_request_id : null)));
  const decided = new Map<string, boolean>();
  const requests = approvalRequests(items);
  const indices = new Map<Item, number>();
  for (const [index, item] of input.entries()) if (!indices.has(item)) indices.set(item, index);
  for (const approval of approvals) {
    const id = approval.approval_request_id;
    const request = requests.get(id);
    // The request for an earlier turn's approval, or its server, may be gone by now.
    const isNew = indices.has(approval);
    const path = `input[${indices.get(approval)}].approval_request_id`;
    if (isNew) {
      if ((decided.get(id) ?? approval.approve) !== approval.approve) {
        throw invalidRequest(path, `The approval request '${id}' is both approved and refused.`);
      }
      decided.set(id, approval.approve);
    }
    if (!request) {
      if (!isNew) continue;
      throw notFound("Approval request", id, path, { status: 400 });
    }
    // The task of its agent goes on with the call.
    if (!approval.approve || answered.has(id) || isOfOtherAgent(request)) continue;
    answered.add(id);
    if (isNew && servers && servers.approved.length >= MAX_APPROVED_CALLS) {
      throw invalidRequest(path, `Expected at most ${MAX_APPROVED_CALLS} approved calls.`, "array_above_max_length");
    }
    if (!servers?.approve(request, id) && isNew) {
      const message = `The tool '${request.name}' of the MCP server '${request.server_label}' is not among the 'tools' of this request.`;
      throw invalidRequest(path, message);
    }
  }
}
