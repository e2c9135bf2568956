import type { McpTarget } from "@responses-edge/hosted-tools/mcp-client";
import { allowList } from "@responses-edge/outgoing-fetch/guarded";
import type { McpServerTool } from "@responses-edge/responses-api/hosted-tools";
import type { Connector, ToolConfig } from "../../config/tools.ts";

/**
 * MCP servers of the operator (`MCP_CONNECTORS`), which a request names by its label, or by `connector_id`. Their addresses and
 * credentials are in the configuration alone: no request, response, log or storage has them.
 */

/** The name of a tool's connector: its `connector_id`, or its label if it has no address. Undefined for a server of the client's. */
export function connectorName({
  connector_id: id,
  server_url: url,
  server_label: label,
}: McpServerTool): string | undefined {
  return id ?? (url === undefined ? label : undefined);
}

/** The connector of a tool; undefined where the operator has none of its name, or the client names the server itself. */
export function connectorOf(
  tool: McpServerTool,
  { connectors }: Pick<ToolConfig, "connectors">,
): Connector | undefined {
  const name = connectorName(tool);
  return name !== undefined && Object.hasOwn(connectors, name) ? connectors[name] : undefined;
}

/** How a connection reaches a connector. Its redirects stay below its address. */
export function targetOf({ url, headers, oauth }: Connector, { mcpGuard }: Pick<ToolConfig, "mcpGuard">): McpTarget {
  const guard = { ...mcpGuard, allow: allowList(url) };
  if (!oauth) return { url, headers, guard };
  const { token_url: tokenUrl, client_id: clientId, client_secret: clientSecret, scope } = oauth;
  const tokenGuard = { ...mcpGuard, allow: allowList(tokenUrl) };
  return { url, headers, guard, client: { tokenUrl, clientId, clientSecret, scope, guard: tokenGuard } };
}
