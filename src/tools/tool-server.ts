import { createHmac } from "node:crypto";
import { McpConnection } from "@responses-edge/hosted-tools/mcp-client";
import { invalidRequest } from "@responses-edge/responses-api/errors";
import type { BuiltinKind } from "@responses-edge/responses-api/hosted-tools";
import type { ToolConfig } from "../config/index.ts";
import type { RunnablePlugin, SessionOptions } from "./plugin.ts";

/** The tool of a tool server that ends a session and its container. */
export const CLEAN_UP_TOOL = "cleanup_session";

/**
 * The connection of one turn to a tool on one of the operator's MCP servers (`TOOL_SERVERS`; gpt-oss's own tool servers
 * are such servers). A header names its container there, without revealing whose it is.
 */
export function toolServer(
  builtin: BuiltinKind,
  turn: Pick<SessionOptions, "config" | "tenant" | "deadline">,
  container: string,
): McpConnection {
  const { servers, apiKey: authorization, fetch: fetchListed, callTimeoutMs, outputBytes } = turn.config;
  const url = servers[builtin];
  if (!url) throw new TypeError(`There is no tool server for '${builtin}'.`);
  const { origin } = new URL(url);
  const headers = { "x-session-id": sessionName(turn.config, turn.tenant, container) };
  const guard = { allow: (target: URL) => target.origin === origin, fetchListed, maxRedirects: 0 };
  return new McpConnection({
    label: builtin,
    target: { url, headers, authorization, guard },
    timeouts: { callMs: callTimeoutMs },
    deadline: turn.deadline,
    maxOutputBytes: outputBytes,
  });
}

/**
 * The name of a container's session on a tool server. It is derived from the secret key: nobody else can compute it, and it reveals
 * neither the tenant nor the container.
 */
function sessionName({ apiKey }: ToolConfig, tenant: string, container: string): string {
  return createHmac("sha256", apiKey ?? "")
    .update(`${tenant}\n${container}`)
    .digest("hex")
    .slice(0, 32);
}

/** Milliseconds for the end of a session. */
const END_MS = 10_000;

/** Ends the session of a container on the tool server of `code_interpreter`, if there is one. Never rejects. */
export async function endContainer(config: ToolConfig, tenant: string, container: string): Promise<void> {
  if (!config.servers.python) return;
  const server = toolServer("python", { config, tenant, deadline: Date.now() + END_MS }, container);
  await server.connect().catch(() => {});
  await server.close(CLEAN_UP_TOOL);
}

/** Throws the 400 of a tool that needs an operator's server if there is none. */
export function checkToolServer(builtin: BuiltinKind): NonNullable<RunnablePlugin["check"]> {
  return (_tool, index, { config }) => {
    if (config.servers[builtin]) return;
    const message = `This server has no tool server for '${builtin}' (TOOL_SERVERS).`;
    throw invalidRequest(`tools[${index}].type`, message, "unsupported_parameter");
  };
}
