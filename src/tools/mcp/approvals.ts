import type { ToolExchange } from "../../contract/engine.ts";
import type { Item } from "../../items/registry.ts";
import { invalidRequest } from "../../protocol/errors.ts";
import type { SessionRequest } from "../plugin.ts";
import { functionName, type McpServers } from "./servers.ts";

/** Calls that clients are asked to approve, and what they have answered. */

type ApprovalRequest = Extract<Item, { type: "mcp_approval_request" }>;
type ApprovalResponse = Extract<Item, { type: "mcp_approval_response" }>;

/** Calls that one request may approve: all of them are made before the model is asked. */
const MAX_APPROVED_CALLS = 128;

const requestsOf = new WeakMap<readonly Item[], ReadonlyMap<string, ApprovalRequest>>();

/** The calls that clients were asked to approve, by id; of several with one id the first. Each array is read once. */
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

/** An approval that was asked for and refused, as an exchange: the model is told, and goes on without. */
export function refusedCall(response: ApprovalResponse, items: readonly Item[]): ToolExchange | undefined {
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
 * Has the servers make the calls that the client has approved. Throws the 400 of an approval that nobody asked for, that
 * contradicts another one, or that no tool of the request meets.
 */
export function takeApprovals({ items, input }: SessionRequest, servers: McpServers | undefined): void {
  const approvals = items.filter((item) => item.type === "mcp_approval_response");
  if (approvals.length === 0) return;
  const answered = new Set(items.map((item) => (item.type === "mcp_call" ? item.approval_request_id : null)));
  const decided = new Map<string, boolean>();
  const requests = approvalRequests(items);
  const indices = new Map<Item, number>();
  for (const [index, item] of input.entries()) if (!indices.has(item)) indices.set(item, index);
  for (const approval of approvals) {
    const id = approval.approval_request_id;
    const request = requests.get(id);
    // The request of an approval of an earlier turn, or its server, may be gone by now.
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
      throw invalidRequest(path, `No approval request found with id '${id}'.`);
    }
    if (!approval.approve || answered.has(id)) continue;
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
