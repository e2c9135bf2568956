import type { Client, RequestOptions, Tool } from "@modelcontextprotocol/client";
import type { ListedTool } from "../../contract/tool-session.ts";
import { refuseLargeFormats } from "../../protocol/bounded-formats.ts";
import { ApiError } from "../../protocol/errors.ts";
import { ToolFault } from "../tool-fault.ts";

/** Of a tool's input schema as JSON: it goes into every prompt. */
const MAX_SCHEMA_BYTES = 64 * 1024;

/** What the specification allows in a tool's name (2025-11-25, "Tool Names"), which is also what a prompt can hold. */
const TOOL_NAME = /^[A-Za-z0-9_./-]{1,128}$/;

/** A list that still goes on after this many pages never ends. */
const MAX_PAGES = 500;

export interface ToolListOptions {
  /** What the server is called in faults. */
  server: string;
  maxTools: number;
  /** Of all tools together. */
  maxBytes: number;
  request: RequestOptions;
  /** What goes with each question. */
  meta?: { _meta?: { traceparent: string } };
}

/**
 * All tools of a server by name, in its order; without those whose name the specification does not allow. Throws ToolFault
 * `too_large` or `protocol`, and what the client throws.
 */
export async function readTools(client: Client, options: ToolListOptions): Promise<Map<string, Tool>> {
  const { server, maxTools, maxBytes, request, meta } = options;
  const tools = new Map<string, Tool>();
  if (!client.getServerCapabilities()?.tools) return tools;
  let listed = 0;
  let bytes = 0;
  let cursor: string | undefined;
  for (let page = 0; page < MAX_PAGES; page++) {
    const result = await client.request(
      { method: "tools/list", params: { ...(cursor !== undefined && { cursor }), ...meta } },
      request,
    );
    listed += result.tools.length;
    if (listed > maxTools) throw new ToolFault("too_large", `${server} lists more than ${maxTools} tools.`);
    for (const tool of result.tools) {
      if (!TOOL_NAME.test(tool.name) || tools.has(tool.name)) continue;
      const size = new TextEncoder().encode(JSON.stringify(tool.inputSchema)).byteLength;
      if (size > MAX_SCHEMA_BYTES) {
        throw new ToolFault("too_large", `The input schema of tool '${tool.name}' of ${server} is too large.`);
      }
      checkFormats(tool, server);
      bytes += size + (tool.description?.length ?? 0);
      if (bytes > maxBytes) throw new ToolFault("too_large", `The tools of ${server} are too large together.`);
      tools.set(tool.name, tool);
    }
    cursor = result.nextCursor;
    if (cursor === undefined) return tools;
  }
  throw new ToolFault("protocol", `${server} lists its tools on more than ${MAX_PAGES} pages.`);
}

/** A model server binds calls to the schema, whoever has written it. */
function checkFormats({ name, inputSchema }: Tool, server: string): void {
  try {
    refuseLargeFormats(inputSchema, ["input_schema"]);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    throw new ToolFault("too_large", `Tool '${name}' of ${server}: ${error.message}`);
  }
}

/** A tool as `mcp_list_tools` has it. */
export function toListedTool(tool: Tool): ListedTool {
  return {
    name: tool.name,
    ...(tool.description !== undefined && { description: tool.description }),
    input_schema: tool.inputSchema,
    ...(tool.annotations !== undefined && { annotations: tool.annotations }),
  };
}
