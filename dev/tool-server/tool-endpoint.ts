import { type CallToolResult, createMcpHandler, McpServer, type ServerContext } from "@modelcontextprotocol/server";
import { Cancellations } from "./cancellations.ts";
import { ToolError } from "./tool-error.ts";

/** A tool's output for the model. */
export type ToolResult = {
  text: string;
  failed: boolean;
  /** A tool's output for its caller. */
  structured?: Record<string, unknown>;
};

/** Runs a call of a tool. The signal aborts when the caller disconnects. */
export type Answer = (
  context: ServerContext,
  call: (signal: AbortSignal) => Promise<ToolResult>,
) => Promise<CallToolResult>;

/** A tool with its sessions, served under its name. */
export type ToolEndpoint = {
  name: string;
  sessions: { end(key: string): Promise<boolean>; close(): Promise<void> };
  /** Adds the tool to the server of one request, for one session. Null is a session for one call. */
  register(server: McpServer, session: string | null, answer: Answer): void;
};

/**
 * Serves a tool over MCP's streamable HTTP, to clients of 2026 (without sessions) and before (with sessions). The
 * header `x-session-id`, or else MCP's header, names a session. Without both, every call has its own.
 */
export function serveTool(endpoint: ToolEndpoint): (request: Request) => Promise<Response> {
  const cancellations = new Cancellations();

  const handler = createMcpHandler(({ requestInfo }) => {
    const session = requestInfo ? sessionOf(requestInfo) : null;
    const answer: Answer = (context, call) => {
      const { id, signal } = context.mcpReq;
      const gone = requestInfo ? AbortSignal.any([signal, requestInfo.signal]) : signal;
      return textResult(() => cancellations.run(callKey(session, id), gone, call));
    };
    const server = new McpServer({ name: endpoint.name, version: "1.0.0" });
    endpoint.register(server, session, answer);
    server.registerTool("cleanup_session", { description: "Ends this session, its processes and its files." }, () =>
      textResult(async () => {
        const ended = session !== null && (await endpoint.sessions.end(session));
        return { text: ended ? "The session was ended." : "There is no session.", failed: false };
      }),
    );
    return server;
  });

  return async function serve(request) {
    const mcpSession = request.headers.get("mcp-session-id");
    if (request.method === "DELETE" && mcpSession !== null) {
      await endpoint.sessions.end(mcpKey(mcpSession));
      return new Response(null, { status: 204 });
    }
    const session = sessionOf(request);
    const message = await messageOf(request);
    if (message?.method === "notifications/cancelled" && session !== null) {
      cancellations.cancel(callKey(session, message.params?.requestId));
    }
    const response = await handler.fetch(request);
    const opened = message?.method === "initialize" && session === null && response.ok;
    if (opened) response.headers.set("mcp-session-id", crypto.randomUUID());
    return response;
  };
}

async function textResult(run: () => Promise<ToolResult>): Promise<CallToolResult> {
  try {
    const { text, failed, structured } = await run();
    return { content: [{ type: "text", text }], isError: failed, ...(structured && { structuredContent: structured }) };
  } catch (error) {
    if (!(error instanceof ToolError)) throw error;
    return { content: [{ type: "text", text: `[ERROR] ${error.message}` }], isError: true };
  }
}

function sessionOf(request: Request): string | null {
  const given = request.headers.get("x-session-id");
  if (given) return `given:${given}`;
  const mcpSession = request.headers.get("mcp-session-id");
  return mcpSession ? mcpKey(mcpSession) : null;
}

function mcpKey(id: string): string {
  return `mcp:${id}`;
}

/** Calls of several connections may have the same id. Calls of one session rarely do at the same time. */
function callKey(session: string | null, id: unknown): string {
  return JSON.stringify([session, id]);
}

type Message = { method?: unknown; params?: { requestId?: unknown } };

async function messageOf(request: Request): Promise<Message | null> {
  if (request.method !== "POST") return null;
  try {
    return (await request.clone().json()) as Message | null;
  } catch {
    // The handler returns the error.
    return null;
  }
}
