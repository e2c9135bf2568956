import { McpConnection } from "@responses-edge/hosted-tools/mcp-client";
import { invalidRequest } from "@responses-edge/responses-api/errors";
import type { BuiltinKind } from "@responses-edge/responses-api/hosted-tools";
import type { RunnablePlugin, SessionOptions } from "./plugin.ts";

/** The tool of a tool server that ends a session and its container. */
export const CLEAN_UP_TOOL = "cleanup_session";

/**
 * The connection of one turn to a tool on one of the operator's MCP servers (`TOOL_SERVERS`; gpt-oss's own tool servers
 * are such servers). A header names its container there, without revealing whose it is.
 */
export function toolServer(builtin: BuiltinKind, turn: SessionOptions, container = turn.ownContainer): McpConnection {
  const { servers, apiKey: authorization, fetch: fetchListed, callTimeoutMs, outputBytes } = turn.config;
  const url = servers[builtin];
  if (!url) throw new TypeError(`There is no tool server for '${builtin}'.`);
  const { origin } = new URL(url);
  const headers = { "x-session-id": turn.sessionOf(container) };
  const guard = { allow: (target: URL) => target.origin === origin, fetchListed, maxRedirects: 0 };
  return new McpConnection({
    label: builtin,
    target: { url, headers, authorization, guard },
    timeouts: { callMs: callTimeoutMs },
    deadline: turn.deadline,
    maxOutputBytes: outputBytes,
  });
}

/** Throws the 400 of a tool that needs an operator's server if there is none. */
export function checkToolServer(builtin: BuiltinKind): NonNullable<RunnablePlugin["check"]> {
  return (_tool, index, { config }) => {
    if (config.servers[builtin]) return;
    const message = `This server has no tool server for '${builtin}' (TOOL_SERVERS).`;
    throw invalidRequest(`tools[${index}].type`, message, "unsupported_parameter");
  };
}
