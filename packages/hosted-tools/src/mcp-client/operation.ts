import type { RequestOptions } from "@modelcontextprotocol/client";
import type { GuardOptions } from "@responses-edge/outgoing-fetch/guarded";
import type { OAuthClient } from "./client-tokens.ts";
import type { SdkClient, ServerAccess, Way } from "./sdk.ts";
import type { ToolFault } from "./tool-fault.ts";

/** The server of a connection, and what is asked of it. */

/** A server, its headers, and the allowed addresses. */
export interface McpTarget extends ServerAccess {
  guard: Partial<GuardOptions>;
  /** The OAuth client whose tokens authorise each connection. */
  client?: OAuthClient | undefined;
}

/** `traceparent` tells the server the trace of an operation. `meta`: further fields of the request's `_meta`. */
export interface OperationOptions {
  signal?: AbortSignal | undefined;
  traceparent?: string | undefined;
  meta?: Readonly<Record<string, unknown>> | undefined;
}

/** An operation at the server: its time, and the reason of its failure. */
export interface Operation {
  id: string;
  abort: AbortController;
  timer: ReturnType<typeof setTimeout>;
  /** The status of the last answer that was an HTTP error. */
  status: number | undefined;
  fault: ToolFault | undefined;
  /** The trace of the operation, for the server. */
  traceparent: string | undefined;
  /** The same in MCP's own form, for any transport (SEP-414). */
  meta: { _meta?: Record<string, unknown> };
  request: RequestOptions;
}

/** An attempt to connect, or its connection. */
export interface Attempt {
  sdk: typeof import("./sdk.ts");
  target: McpTarget;
  way: Way;
  made?: SdkClient;
  /** Requests without a caller. */
  unasked: number;
  /** Set once the old transport's one event stream is open. */
  hasEventStream: boolean;
}
