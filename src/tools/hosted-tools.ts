import { HostedTools } from "../contract/hosted-tool.ts";
import { BROWSER } from "./browser/hosted-tool.ts";
import { CONTAINER } from "./container/hosted-tool.ts";
import { MCP } from "./mcp/hosted-tool.ts";
import { PYTHON } from "./python/hosted-tool.ts";
import type { ToolRoom } from "./tool-room.ts";
import { TOOL_SEARCH } from "./tool-search/hosted-tool.ts";

/**
 * The tools that this server runs (docs/tools.md, "Adding a hosted tool"). MCP is the last: an `mcp_call` that no other
 * tool says is its own is a call of an MCP server's tool.
 */
export const TOOL_ROOMS: readonly ToolRoom[] = [BROWSER, PYTHON, CONTAINER, TOOL_SEARCH, MCP];

/** As engines and turns know them. */
export const HOSTED_TOOLS = new HostedTools(TOOL_ROOMS);
