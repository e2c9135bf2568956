import type { CitationFilter } from "./citations.ts";
import type { PluginTools } from "./engine.ts";
import type { CalledTool, PendingCall, ToolOutcome } from "./tool-call.ts";

/** A tool of an MCP server, as `mcp_list_tools` shows it. */
export interface ListedTool {
  name: string;
  description?: string;
  input_schema: Record<string, unknown>;
  annotations?: Record<string, unknown>;
}

/** The tools of an MCP server, or why they cannot be listed. */
export type ListedTools = { tools: ListedTool[] } | { error: string };

/** An MCP server whose tools nobody has listed in this conversation. */
export interface UnlistedServer {
  server_label: string;
  /** The facts on which its list will depend: kept with the list, for turns that might use it again (`Replay.origin`). */
  origin: string;
}

/** An approved call, to be made before the model is asked. */
export interface ApprovedCall {
  tool: CalledTool;
  /** As in `ToolExchange`. */
  name: string;
  arguments: string;
  /** The id of the request that the client has approved. */
  request: string;
}

/** The hosted tools of one turn, as the turn knows them. */
export interface ToolSession {
  /** Servers to be listed before the model can be asked. */
  readonly unlisted: readonly UnlistedServer[];
  /** Calls to be made before the model is asked. */
  readonly approved: readonly ApprovedCall[];
  /** Tells whether something is to be done before the model can be asked. */
  readonly mustPrepare: boolean;
  /** The container in which code runs, as `container_id`. */
  readonly container: string;
  /** Makes a filter for a content part; undefined where there is nothing to cite. */
  readonly citations: (() => CitationFilter) | undefined;
  /** The tools that the model gets to see. To be asked again once tools have been listed. */
  readonly pluginTools: PluginTools;
  /** Tells whether the model may call anything in its next round, after so many. */
  mayCall(rounds: number): boolean;
  /** Tells whether this turn's choice of tools leaves one to the model, by the name that the model writes. */
  offers(name: string): boolean;
  /** The tool that a model means, by a function's name or by a built-in tool's full one. */
  resolve(name: string): CalledTool | undefined;
  /** Lists the tools of a server. Rejects with the signal's reason when it is aborted, and with nothing else. */
  list(server: UnlistedServer, signal: AbortSignal, traceparent?: string): Promise<ListedTools>;
  /**
   * Runs a call. `traceparent` is for the server that it goes to. Rejects with the signal's reason when it is aborted, and
   * with nothing else.
   */
  run(call: PendingCall, signal: AbortSignal, traceparent?: string): Promise<ToolOutcome>;
  /** Ends the sessions with all tool servers. Never rejects. */
  close(): Promise<void>;
}
