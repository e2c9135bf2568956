import type { Item } from "../protocol/items.ts";
import type { Replay, ToolExchange } from "./engine.ts";

/**
 * The call that an item shows and how it was answered, for an item of this server's own tools: as it was kept, or, for
 * one that a client gives back, as far as the item tells. Undefined where there is nothing to be told to a model: other
 * items, and searches, whose results are in no item.
 */
export function exchangeOf(item: Item, replay: Replay | undefined): ToolExchange | undefined {
  if (replay?.exchange) return replay.exchange;
  switch (item.type) {
    case "mcp_call": {
      const output = item.output ?? toolText(item.error) ?? `Error: ${errorText(item.error ?? "no result")}`;
      return {
        name: mcpFunctionName(item.server_label, item.name),
        arguments: item.arguments,
        output,
        step: stepOf(item),
      };
    }
    case "code_interpreter_call": {
      if (item.code === null) return undefined;
      const logs = (item.outputs ?? []).map((part) => ("logs" in part ? String(part.logs) : `[${part.type}]`));
      return { name: "python", arguments: item.code, output: logs.join("\n"), step: stepOf(item) };
    }
    default:
      return undefined;
  }
}

/** Calls that were not kept are taken to have been made one after another. */
function stepOf(item: Item): string {
  return item.id ?? crypto.randomUUID();
}

/** What a tool itself said of its failure (`mcp_tool_execution_error`): the model has read it as any other output. */
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

/** The name under which a model sees a tool of an MCP server: `label__tool`, in the letters that functions may have. */
export function mcpFunctionName(label: string, tool: string): string {
  return `${label}__${tool}`.replaceAll(/[^A-Za-z0-9_-]/g, "_").slice(0, 64);
}

type ApprovalRequest = Extract<Item, { type: "mcp_approval_request" }>;

/** The calls that clients were asked to approve, by id; of several with one id the first. */
export function approvalRequests(items: readonly Item[]): ReadonlyMap<string, ApprovalRequest> {
  const requests = new Map<string, ApprovalRequest>();
  for (const item of items) {
    if (item.type !== "mcp_approval_request" || item.id === undefined || requests.has(item.id)) continue;
    requests.set(item.id, item);
  }
  return requests;
}

/** An approval that was asked for and refused, or not given, as an exchange: the model is told, and goes on without. */
export function refusedApproval(
  requests: ReadonlyMap<string, ApprovalRequest>,
  response: Extract<Item, { type: "mcp_approval_response" }>,
): ToolExchange | undefined {
  const request = requests.get(response.approval_request_id);
  if (!request) return undefined;
  const reason = response.reason ? ` Reason: ${response.reason}` : "";
  return {
    name: mcpFunctionName(request.server_label, request.name),
    arguments: request.arguments,
    output: `The user did not approve this call.${reason}`,
    step: response.approval_request_id,
  };
}
