import type { McpToolCallError } from "openai/resources/responses/responses";
import type { BrowserAction } from "../tools/browser/browser.ts";

/** A tool that this server runs, whatever name a model calls it by. JSON: a durable run keeps it. */
export type ServerTool =
  | { kind: "mcp"; label: string; name: string; approval: boolean }
  | { kind: "browser"; action: "search" | "open" | "find" }
  | { kind: "python" }
  | { kind: "container" };

/** A call that waits to be run, or for its result. JSON, too. */
export interface PendingCall {
  /** The id of its item. */
  item: string;
  tool: ServerTool;
  /** As in `ToolExchange`. */
  name: string;
  arguments: string;
}

/** What became of a call. */
export interface ToolOutcome {
  /** What the model sees: the result, or why there is none. */
  output: string;
  failed: boolean;
  /** For `mcp_call`: why it failed. */
  error?: McpToolCallError;
  /** For `web_search_call`: what was really done, and found. */
  action?: BrowserAction;
  sources?: { url: string }[];
  /** What the tool is to be reminded of in later turns; JSON. */
  memory?: unknown;
}

/** The name of a tool that is built in, in its namespace: as `ToolExchange` has it, and as gpt-oss writes it. */
export function fullToolName(tool: Exclude<ServerTool, { kind: "mcp" }>): string {
  switch (tool.kind) {
    case "browser":
      return `browser.${tool.action}`;
    case "python":
      return "python";
    case "container":
      return "container.exec";
  }
}
