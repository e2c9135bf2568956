import type { ToolOutcome } from "../contract/tool-call.ts";
import { invalidRequest } from "../protocol/errors.ts";
import type { BuiltinKind } from "../protocol/hosted-tools.ts";
import { McpConnection } from "./mcp/connection.ts";
import type { RunnablePlugin, SessionOptions } from "./plugin.ts";
import { ToolFault } from "./tool-fault.ts";

/**
 * A tool on an MCP server of the operator's (`TOOL_SERVERS`; gpt-oss's own tool servers are such), in one turn. Its
 * container there is told by a header, without telling whose it is.
 */
export class ToolServer {
  readonly #connection: McpConnection;

  constructor(builtin: BuiltinKind, turn: SessionOptions, container = turn.ownContainer) {
    const { servers, apiKey: authorization } = turn.config;
    const url = servers[builtin];
    this.#connection = new McpConnection(turn, () => {
      if (!url) throw new ToolFault("unreachable", `There is no tool server for '${builtin}'.`);
      const { origin } = new URL(url);
      const headers = { "x-session-id": turn.sessionOf(container) };
      return {
        server: { label: builtin, url, headers, ...(authorization !== undefined && { authorization }) },
        guard: { allow: (target) => target.origin === origin, fetchListed: turn.config.fetch, maxRedirects: 0 },
      };
    });
  }

  /** Calls the server's tool of this name. Throws ToolFault; that the tool failed is an outcome. */
  call(name: string, json: string, signal: AbortSignal, traceparent?: string): Promise<ToolOutcome> {
    return this.#connection.call(name, json, signal, traceparent);
  }

  /** Ends the session, if there is one; `cleanUp` ends its container, too. Never rejects. */
  close({ cleanUp }: { cleanUp: boolean }): Promise<void> {
    return this.#connection.close(cleanUp ? "cleanup_session" : undefined);
  }
}

/** Throws the 400 of a tool that needs a server of the operator's where there is none. */
export function checkToolServer(builtin: BuiltinKind): NonNullable<RunnablePlugin["check"]> {
  return (_tool, index, { config }) => {
    if (config.servers[builtin]) return;
    const message = `This server has no tool server for '${builtin}' (TOOL_SERVERS).`;
    throw invalidRequest(`tools[${index}].type`, message, "unsupported_parameter");
  };
}
