import type { Item } from "@responses-edge/responses-api/items/registry";
import type { McpToolCallError } from "openai/resources/responses/responses";
import type { PluginTools, ToolExchange } from "./engine.ts";

/** A tool of an MCP server, as `mcp_list_tools` shows it. */
export interface ListedTool {
  name: string;
  description?: string;
  input_schema: Record<string, unknown>;
  annotations?: Record<string, unknown>;
}

/** The tools of an MCP server, or the reason why they cannot be listed. */
export type ListedTools = { tools: ListedTool[] } | { error: string };

/** An MCP server whose tools have not been listed in this conversation. */
export interface UnlistedServer {
  server_label: string;
  /**
   * The inputs that its list will depend on: stored with the list, for turns that might use it again (`Replay.origin`).
   */
  origin: string;
  /** Lists its tools. Rejects only with the signal's reason when it is aborted. */
  list(signal: AbortSignal, traceparent?: string): Promise<ListedTools>;
}

/** An approved call, to be made before the model is asked. */
export interface ApprovedCall {
  tool: CalledTool;
  /** As in `ToolExchange`. */
  name: string;
  arguments: string;
  /** The id of the request that the client has approved. */
  request: string;
  by?: MadeBy | undefined;
}

/** The fields of the item of a call that a program has made. */
export interface MadeBy {
  caller: { type: "program"; caller_id: string };
  /** It ends in the number of the call in its program. */
  call_id: string;
}

/** The hosted tools of one turn, as the turn uses them. */
export interface ToolSession {
  /** Servers to list before the model is asked. */
  readonly unlisted: readonly UnlistedServer[];
  /** Calls to make before the model is asked. */
  readonly approved: readonly ApprovedCall[];
  /**
   * Finds out what the sessions have to know before the model may call: resolves at once where that is nothing, or was done. Rejects
   * only with the signal's reason when it is aborted.
   */
  open(signal: AbortSignal): Promise<void>;
  /** The container in which the code of a call runs that begins now, as `container_id`. */
  container(): string;
  /** Makes a filter for a content part; undefined if there is nothing to cite. */
  readonly citations: (() => CitationFilter) | undefined;
  /** Returns the citations of the session container's files in a complete text. Undefined if there are none. */
  readonly citationsIn: ((text: string) => readonly Citation[]) | undefined;
  /** The tools that the model sees. They change when tools have been listed. */
  readonly pluginTools: PluginTools;
  /** Why tools of the request (`hostedKey`) offer the model nothing: each a sentence for the client. */
  readonly idle: ReadonlyMap<string, string>;
  /** The number of rounds in which the model may call tools, and the time until which it may, in Unix milliseconds. */
  readonly maxRounds: number;
  readonly deadline: number;
  /**
   * The tool that a model means, by a function's name or by a built-in tool's full name. `isOffered`: this turn's choice of tools leaves it to
   * the model.
   */
  resolve(name: string): { tool: CalledTool; isOffered: boolean } | undefined;
  /** The tool that a program means by a function's name; undefined if programs may not call it. */
  callable(name: string): CalledTool | undefined;
  /**
   * Runs a call. `traceparent` is for the server that it calls. Rejects only with the signal's reason when it is
   * aborted.
   */
  run(call: PendingCall, signal: AbortSignal, traceparent?: string): Promise<ToolOutcome>;
  /** Takes outputs of a client's calls that have come while the turn runs. */
  inject(items: readonly Item[]): void;
  /** Ends the sessions with all tool servers. Never rejects. */
  close(): Promise<void>;
}

/**
 * The tool of a call that this server answers, whatever name a model calls it by: `kind` identifies its hosted tool,
 * which alone knows the other fields. JSON: a durable run stores it.
 */
export interface CalledTool {
  readonly kind: string;
}

/** A call that waits to be run, or for its result. Also JSON. */
export interface PendingCall {
  /** The id of its item. */
  item: string;
  tool: CalledTool;
  /** As in `ToolExchange`. */
  name: string;
  arguments: string;
}

/** The outcome of a call. A hosted tool may add fields that its own item shows. */
export interface ToolOutcome {
  /** The text that the model sees: the result, or the reason why there is none. */
  output: string;
  /** As in `ToolExchange`. */
  images?: readonly string[];
  failed: boolean;
  /** Why it failed, for items that have an `error`. */
  error?: McpToolCallError;
  /** The tool gets this again in later turns; JSON. */
  memory?: unknown;
}

/** A call and its outcome; calls with the same `step` were made in parallel. */
export function toExchange({ name, arguments: json }: PendingCall, outcome: ToolOutcome, step: string): ToolExchange {
  const { output, images, failed, memory } = outcome;
  return {
    ...{ name, arguments: json, output, ...(images && { images }), ...(failed && { failed: true }), step },
    ...(memory !== undefined && { memory }),
  };
}

/** A citation of a page, as an annotation of OpenAI's `output_text`. */
export interface UrlCitation {
  type: "url_citation";
  /**
   * The position of the replacement in the whole text, in Unicode code points: OpenAI counts as Python does, not in
   * UTF-16 units.
   */
  start_index: number;
  end_index: number;
  title: string;
  url: string;
}

/** A citation of a file, as an annotation of OpenAI's `output_text`. */
export interface FileCitation {
  type: "file_citation";
  /** The position in the text, in UTF-16 units. */
  index: number;
  file_id: string;
  filename: string;
}

/** A citation of a file that code has written, as an annotation of OpenAI's `output_text`. */
export interface ContainerFileCitation {
  type: "container_file_citation";
  container_id: string;
  file_id: string;
  filename: string;
  /** As in `UrlCitation`. */
  start_index: number;
  end_index: number;
}

export type Citation = UrlCitation | FileCitation | ContainerFileCitation;

export interface CitedText {
  text: string;
  annotations: readonly Citation[];
}

/** Replaces citations in one content part. The result does not depend on how the text is cut into pieces. */
export interface CitationFilter {
  /** The text that was received and cannot be shown yet. */
  readonly pending: string;
  /** Takes the next piece; gives the text that can be shown now, and its citations. */
  push(text: string): CitedText;
  /** Ends the text; gives the rest. */
  end(): CitedText;
}
