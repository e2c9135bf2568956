import { type CallToolResult, createMcpHandler, McpServer, type ServerContext } from "@modelcontextprotocol/server";
import { z } from "zod";
import { Cancellations } from "./cancellations.ts";
import type { NamedSession } from "./session-pool.ts";
import { GoneSession, ToolError } from "./tool-error.ts";

/** The longest idle time that a caller may ask for. */
const MAX_IDLE_SECONDS = 100_000;

/** A tool's output for the model. */
export type ToolResult = {
  text: string;
  failed: boolean;
  /** A tool's output for its caller. */
  structured?: Record<string, unknown>;
};

/** Runs a call of a tool. The signal aborts when the caller disconnects. A session of null lasts for one call. */
export type Answer = (
  context: ServerContext,
  call: (signal: AbortSignal, session: NamedSession | null) => Promise<ToolResult>,
) => Promise<CallToolResult>;

/** The gateway describes its session in this field of each call (docs/tools.md#the-protocol-of-a-tool-server). */
const SESSION_META = "responses-edge/session";

const sessionMeta = z.object({
  kept: z.boolean().default(false),
  idle_seconds: z.number().positive().max(MAX_IDLE_SECONDS).optional(),
  memory_mb: z.int().positive().optional(),
});

/** A tool with its sessions, served under its name. */
export type ToolEndpoint = {
  name: string;
  sessions: { end(key: string): Promise<boolean>; close(): Promise<void> };
  /** Adds the tool to the server of one request. */
  register(server: McpServer, answer: Answer): void;
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
      const named = session === null ? null : namedSession(session, context.mcpReq._meta);
      return textResult(() => cancellations.run(callKey(session, id), gone, (cancelled) => call(cancelled, named)));
    };
    const server = new McpServer({ name: endpoint.name, version: "1.0.0" });
    endpoint.register(server, answer);
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
    const content = [{ type: "text" as const, text: `[ERROR] ${error.message}` }];
    return { content, isError: true, ...(error instanceof GoneSession && { structuredContent: { session: "gone" } }) };
  }
}

function sessionOf(request: Request): string | null {
  const given = request.headers.get("x-session-id");
  if (given) return `given:${given}`;
  const mcpSession = request.headers.get("mcp-session-id");
  return mcpSession ? mcpKey(mcpSession) : null;
}

function namedSession(key: string, meta: Readonly<Record<string, unknown>> = {}): NamedSession {
  const told = sessionMeta.safeParse(meta[SESSION_META]);
  if (!told.success) return { key, kept: false };
  const { kept, idle_seconds: seconds, memory_mb: memoryMb } = told.data;
  return { key, kept, idleMs: seconds === undefined ? undefined : seconds * 1_000, memoryMb };
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
