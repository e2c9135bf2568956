import { invalidRequest } from "@responses-edge/responses-api/errors";
import type { BuiltinKind } from "@responses-edge/responses-api/hosted-tools";
import { McpConnection } from "./mcp/connection.ts";
import type { RunnablePlugin, SessionOptions } from "./plugin.ts";
import { ToolFault } from "./tool-fault.ts";

/** The tool of a tool server that ends a session's container, too. */
export const CLEAN_UP_TOOL = "cleanup_session";

/**
 * The connection of one turn to a tool on an MCP server of the operator's (`TOOL_SERVERS`; gpt-oss's own tool servers are such). Its
 * container there is told by a header, without telling whose it is.
 */
export function toolServer(builtin: BuiltinKind, turn: SessionOptions, container = turn.ownContainer): McpConnection {
  const { servers, apiKey: authorization, fetch: fetchListed } = turn.config;
  const url = servers[builtin];
  return new McpConnection(turn, () => {
    if (!url) throw new ToolFault("unreachable", `There is no tool server for '${builtin}'.`);
    const { origin } = new URL(url);
    const headers = { "x-session-id": turn.sessionOf(container) };
    return {
      server: { label: builtin, url, headers, ...(authorization !== undefined && { authorization }) },
      guard: { allow: (target) => target.origin === origin, fetchListed, maxRedirects: 0 },
    };
  });
}

/** Throws the 400 of a tool that needs a server of the operator's where there is none. */
export function checkToolServer(builtin: BuiltinKind): NonNullable<RunnablePlugin["check"]> {
  return (_tool, index, { config }) => {
    if (config.servers[builtin]) return;
    const message = `This server has no tool server for '${builtin}' (TOOL_SERVERS).`;
    throw invalidRequest(`tools[${index}].type`, message, "unsupported_parameter");
  };
}
