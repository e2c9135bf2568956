import type { McpToolCallError } from "openai/resources/responses/responses";

/**
 * The tool of a call that this server answers, whatever name a model calls it by: `kind` is that of its hosted tool, which
 * alone knows what else is in it. JSON: a durable run keeps it.
 */
export interface CalledTool {
  readonly kind: string;
}

/** A call that waits to be run, or for its result. JSON, too. */
export interface PendingCall {
  /** The id of its item. */
  item: string;
  tool: CalledTool;
  /** As in `ToolExchange`. */
  name: string;
  arguments: string;
}

/** The outcome of a call. A hosted tool may add to it what its own item shows. */
export interface ToolOutcome {
  /** The text that the model sees: the result, or why there is none. */
  output: string;
  failed: boolean;
  /** Why it failed, for items that have an `error`. */
  error?: McpToolCallError;
  /** The tool is reminded of this in later turns; JSON. */
  memory?: unknown;
}
