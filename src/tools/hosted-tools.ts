import { HostedTools } from "../contract/hosted-tool.ts";
import type { HostedKind } from "../protocol/hosted-tools.ts";
import { BROWSER } from "./browser/hosted-tool.ts";
import { CONTAINER } from "./container/hosted-tool.ts";
import { MCP } from "./mcp/hosted-tool.ts";
import { PYTHON } from "./python/hosted-tool.ts";
import type { ToolRoom } from "./tool-room.ts";
import { TOOL_SEARCH } from "./tool-search/hosted-tool.ts";

/** The tools that this server runs (docs/tools.md, "Adding a hosted tool"). */
const OWN: { readonly [Kind in Exclude<HostedKind, "mcp">]: ToolRoom & { kind: Kind } } = {
  browser: BROWSER,
  python: PYTHON,
  container: CONTAINER,
  tool_search: TOOL_SEARCH,
};

/** MCP is the last: an `mcp_call` that no other tool says is its own is a call of an MCP server's tool. */
export const TOOL_ROOMS: readonly ToolRoom[] = [...Object.values(OWN), MCP];

/** As engines and turns know them. */
export const HOSTED_TOOLS = new HostedTools(TOOL_ROOMS);
