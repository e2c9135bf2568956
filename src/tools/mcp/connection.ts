import { McpConnection, type McpTarget } from "@responses-edge/mcp-client";
import type { SessionOptions } from "../plugin.ts";

/** Most tools that one server may list. */
const MAX_TOOLS = 1_000;

/** The most bytes of one answer of an MCP server. */
const MAX_ANSWER_BYTES = 8 * 1024 * 1024;

const CONNECT_TIMEOUT_MS = 15_000;

/** The connection of one turn to an MCP server, within the turn's bounds. */
export function newConnection(
  label: string,
  { config, deadline }: Pick<SessionOptions, "config" | "deadline">,
  target: McpTarget,
): McpConnection {
  return new McpConnection({
    label,
    target,
    timeouts: { connectMs: CONNECT_TIMEOUT_MS, listMs: CONNECT_TIMEOUT_MS, callMs: config.callTimeoutMs },
    deadline,
    maxBytes: MAX_ANSWER_BYTES,
    maxOutputBytes: config.outputBytes,
    maxTools: MAX_TOOLS,
  });
}
