import type { CreateRequest } from "../protocol/create-request.ts";

/** How to reach an MCP server that a request names: what a response does not show and no storage keeps. */
export interface McpAccess {
  server_url: string;
  authorization?: string;
  headers?: Record<string, string>;
}

/** How to reach the MCP servers of a request, by label: to be kept apart from it. */
export function accessOf({ tools }: CreateRequest): Record<string, McpAccess> {
  const entries = (tools ?? []).flatMap((tool) => {
    if (tool.type !== "mcp" || tool.server_url === undefined) return [];
    const { server_label: label, server_url, authorization, headers } = tool;
    const access: McpAccess = {
      server_url,
      ...(authorization !== undefined && { authorization }),
      ...(headers !== undefined && { headers }),
    };
    return [[label, access] as const];
  });
  // Own properties, whatever they are called.
  return Object.fromEntries(entries);
}
