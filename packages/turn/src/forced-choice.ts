import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { ApiError, invalidRequest } from "@responses-edge/responses-api/errors";
import type { OutputItem } from "@responses-edge/responses-api/items/registry";
import { hostedKey } from "@responses-edge/responses-api/tool-names";
import { chosenTools, type Tool, type ToolChoice } from "@responses-edge/responses-api/tools";
import type { Engine, Prompt } from "./contract/engine.ts";
import type { ToolSession } from "./contract/tool-session.ts";

/** Choices that force a call (`tool_choice`) where the model has nothing to call. No model can fulfil such a request. */

/**
 * The error of a prompt, whose choice forces a call, if it offers the model none; undefined if the model may call one. `output` is that of the turn so far. The error is OpenAI's 424 if an MCP server could not be listed, a
 * 400 naming `tool_choice` and the reasons if its tools offer nothing, and a 504 if the turn may call no more tools.
 */
export function unfulfillable(
  prompt: Prompt,
  engine: Pick<Engine, "mayCall">,
  { session, output }: { session: Pick<ToolSession, "idle"> | undefined; output: readonly OutputItem[] },
): ApiError | undefined {
  const { request } = prompt;
  const { tool_choice: choice } = request;
  if (engine.mayCall(prompt)) return undefined;
  const tools = forcedTools(request, choice);
  const unlisted = unlistedIn(output);
  for (const tool of tools) {
    const error = tool.type === "mcp" ? unlisted.get(tool.server_label) : undefined;
    if (tool.type === "mcp" && error !== undefined) return notListed(tool.server_label, error);
  }
  if (session && !prompt.pluginTools) return outOfTools();
  const reasons = tools.flatMap((tool) => reasonOf(tool, session) ?? []);
  return invalidRequest(
    "tool_choice",
    ["'tool_choice' forces a call, but there is none to make.", ...reasons].join(" "),
  );
}

/** The tools of a request that its choice leaves, as far as they are hosted, and its namespaces. */
function forcedTools({ tools }: CreateRequest, choice: ToolChoice | null | undefined): Tool[] {
  const chosen = chosenTools(choice)?.map(hostedKey);
  return (tools ?? []).filter((tool) => !chosen || chosen.includes(hostedKey(tool)));
}

/** Why the MCP servers of a turn could not be listed, by their labels. */
function unlistedIn(output: readonly OutputItem[]): ReadonlyMap<string, string> {
  const errors = new Map<string, string>();
  for (const item of output) {
    if (item.type === "mcp_list_tools" && item.error != null) errors.set(item.server_label, String(item.error));
  }
  return errors;
}

/** Why a tool offers the model nothing, as a sentence. */
function reasonOf(tool: Tool, session: Pick<ToolSession, "idle"> | undefined): string | undefined {
  if (tool.type === "namespace") return `The namespace '${tool.name}' has no tools.`;
  const why = session?.idle.get(hostedKey(tool) ?? "");
  if (why !== undefined) return why;
  if (tool.type === "mcp") {
    return `The MCP server '${tool.server_label}' has no tool that 'allowed_tools' and 'tool_choice' leave.`;
  }
  return undefined;
}

/** OpenAI's error of an MCP server whose tools it needs and cannot list. */
function notListed(label: string, why: string): ApiError {
  return new ApiError({
    status: 424,
    type: "external_connector_error",
    message: `Error retrieving tool list from MCP server: '${label}'. ${why} 'tool_choice' forces a call of its tools.`,
    param: "tools",
    code: "http_error",
  });
}

function outOfTools(): ApiError {
  const message = "'tool_choice' forces a call, but the tools of this turn have used up their time or their rounds.";
  return new ApiError({ status: 504, message, param: "tool_choice", code: "tool_timeout" });
}
